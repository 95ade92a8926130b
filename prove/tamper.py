"""tamper: somebody with write access to the files changes the past.

Eight attacks at positions all over a log of several days with foreign lines and a torn
fragment in it: edit, delete, insert, reorder, cut, replace, rollback, fork.  Each has to be
noticed by `verify` or by the anchor, a cursor of the newest line that was kept outside of the
attacker's reach.  What `verify` alone cannot notice (a tail cut at a line, an older copy put
back and continued, a suffix chained anew) is counted as such: a hash chain without a secret
is evidence only as far as somebody remembers its head.  The stand-alone `tools/verify_log.py`
has to agree with `verify` every time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from holdfast.store.home import Home
from holdfast.store.primitives import Cursor
from prove import frame
from prove.actors import Calendar, tally
from prove.frame import Control, Harness, Result

HARNESS = Harness(
    name="tamper",
    proves="A changed past is noticed, given the head of the chain.",
    targets={"quick": 240, "ci": 1_600, "full": 8_000},
    unit="attacks",
)
_POSITIONS = {"quick": 30, "ci": 200, "full": 1_000}
_LOG, _VIEW = "ledger/rio", "state/rio/report.json"
_DAYS, _A_DAY = 4, 275
_MEMORY = Path("/dev/shm")
_SEAL = re.compile(rb',"seq":(\d+),"hash":"[0-9a-f]{64}"\}\n')
_SEALED_SIZE = len(b',"hash":""}\n') + 64

Lines = list[tuple[str, bytes]]
"""Every line of the log, LF included, with the file it stands in."""


class Desk:
    """The log, as it was written and as the attacker leaves it."""

    def __init__(self, place: Path) -> None:
        self.path = place / "home"
        self.folder = self.path / _LOG
        self._write_log()
        self.lines = self._read()
        with Home.open(str(self.path), clock=Calendar(_DAYS)) as home:
            self.anchor = home.log(_LOG).head()

    def _write_log(self) -> None:
        """Four days, with what others leave in a log: foreign lines and a torn one."""
        with Home.open(str(self.path), create=True, timezone="UTC", clock=Calendar(0)):
            pass
        for day in range(_DAYS):
            with Home.open(str(self.path), clock=Calendar(day)) as home:
                log = home.log(_LOG)
                for number in range(_A_DAY):
                    cursor = log.append({"id": f"{day}.{number}", "text": "what happened " * 3})
                    if number % 60 == 30:
                        self._scribble(cursor, b'{"id":"foreign %d"}\n' % number)
                    if number % 60 == 50:
                        self._scribble(cursor, b'{"id":"torn')
                log.close()
        with Home.open(str(self.path), clock=Calendar(_DAYS)) as home:
            log = home.log(_LOG)
            home.view(_VIEW, log, tally()).refresh()
            log.close()

    def _scribble(self, after: Cursor, data: bytes) -> None:
        with open(self.folder / after.segment, "ab") as file:
            file.write(data)

    def _read(self) -> Lines:
        files = sorted(self.folder.glob("*.jsonl"))
        return [(file.name, line) for file in files for line in file.read_bytes().splitlines(True)]

    def put(self, lines: Lines) -> None:
        """Leave the log with just these lines."""
        texts: dict[str, list[bytes]] = {}
        for name, line in lines:
            texts.setdefault(name, []).append(line)
        for file in self.folder.glob("*.jsonl"):
            if file.name not in texts:
                file.unlink()
        for name, parts in texts.items():
            (self.folder / name).write_bytes(b"".join(parts))

    def go_on(self) -> None:
        """Somebody who knows nothing of it appends."""
        with Home.open(str(self.path), clock=Calendar(_DAYS - 1)) as home:
            log = home.log(_LOG)
            for number in range(3):
                log.append({"id": f"later {number}"})
            log.close()

    def verifies(self) -> bool:
        with Home.open(str(self.path), clock=Calendar(_DAYS)) as home:
            return not home.log(_LOG).verify().problems

    def holds_anchor(self) -> bool:
        with Home.open(str(self.path), clock=Calendar(_DAYS)) as home:
            return home.log(_LOG).contains(self.anchor)

    def stamp_tells(self) -> bool:
        """Whether the stamp of the view, which lies in the home too, gives it away."""
        with Home.open(str(self.path), clock=Calendar(_DAYS)) as home:
            stamp = home.cell(_VIEW).peek()
            return stamp is not None and not home.log(_LOG).contains(stamp.cursor)

    def files(self) -> list[str]:
        return [str(file) for file in sorted(self.folder.glob("*.jsonl"))]


# --- the attacks ----------------------------------------------------------------------------

Attack = Callable[[Lines, int, Random], Lines]


def edit(lines: Lines, at: int, rng: Random) -> Lines:
    """One byte of a line is another one."""
    name, line = lines[at]
    place = rng.randrange(len(line))
    new = rng.choice([byte for byte in b'0123456789abcxyz{}" \x00' if byte != line[place]])
    return [*lines[:at], (name, line[:place] + bytes([new]) + line[place + 1 :]), *lines[at + 1 :]]


def delete(lines: Lines, at: int, rng: Random) -> Lines:
    return [*lines[:at], *lines[at + 1 :]]


def insert(lines: Lines, at: int, rng: Random) -> Lines:
    """A line that was never written, plain or with a seal that looks right."""
    forged = b'{"id":"never happened"'
    if rng.random() < 0.5 and (seal := _SEAL.search(lines[at][1])):
        forged += b',"seq":%b,"hash":"%b"}\n' % (seal[1], sha256(forged).hexdigest().encode())
    else:
        forged += b"}\n"
    return [*lines[:at], (lines[at][0], forged), *lines[at:]]


def reorder(lines: Lines, at: int, rng: Random) -> Lines:
    """Two lines change places."""
    other = rng.choice([index for index in range(len(lines)) if lines[index][1] != lines[at][1]])
    changed = list(lines)
    changed[at] = (lines[at][0], lines[other][1])
    changed[other] = (lines[other][0], lines[at][1])
    return changed


def cut(lines: Lines, at: int, rng: Random) -> Lines:
    """The end of the log is gone, at a line or within one."""
    name, line = lines[at]
    rest = line[: rng.randrange(1, len(line))] if rng.random() < 0.3 else b""
    return [*lines[:at], (name, rest)] if rest else lines[:at]


def replace(lines: Lines, at: int, rng: Random) -> Lines:
    """A line is overwritten by another one of the same log."""
    other = rng.choice([line for _, line in lines if line != lines[at][1]])
    return [*lines[:at], (lines[at][0], other), *lines[at + 1 :]]


def rollback(lines: Lines, at: int, rng: Random) -> Lines:
    """An older copy is put back; then others go on, see `Desk.go_on`."""
    return lines[:at]


def fork(lines: Lines, at: int, rng: Random) -> Lines:
    """A line says something else, and it and all after it are chained anew."""
    changed = list(lines)
    name, line = lines[at]
    changed[at] = (name, line.replace(b'"id":"', b'"id":"forged ', 1))
    return chained_anew(changed, at)


def chained_anew(lines: Lines, first: int) -> Lines:
    """What an attacker can do who has read how the chain works."""
    done: Lines = []
    previous, gap = bytes(32), b""
    for index, (name, line) in enumerate(lines):
        seal = _SEAL.search(line)
        if seal is None or seal.end() != len(line):
            gap += line
            done.append((name, line))
            continue
        covered = line[:-_SEALED_SIZE]
        if index >= first:
            digest = sha256(previous + sha256(gap + covered).digest())
            line = covered + b',"hash":"%b"}\n' % digest.hexdigest().encode()
        previous, gap = bytes.fromhex(line[-67:-3].decode()), b""
        done.append((name, line))
    return done


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (edit, delete, insert, reorder, cut, replace, rollback, fork)
}


# --- the harness ----------------------------------------------------------------------------


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    counts: dict[str, Counter[str]] = {}
    tool = _tool()
    with frame.scratch("tamper", _MEMORY) as place:
        desk = Desk(place)
        _untouched(desk, tool)
        for name, attack in ATTACKS.items():
            rng = Random(seed)
            positions = rng.sample(range(len(desk.lines)), _POSITIONS[tier])
            counts[name] = Counter()
            for at in positions:
                if case is None or case == f"{name}:{at}":
                    _attack(result, desk, tool, name, attack, at, counts[name])
        limits = _limits(desk)
    result.details = {
        "lines": len(desk.lines),
        "attacks": {name: dict(count) for name, count in counts.items()},
        "without_anchor": limits,
    }
    return result


def _untouched(desk: Desk, tool: Any) -> None:
    if not desk.verifies() or not desk.holds_anchor() or not _agrees(tool, desk.files()):
        raise AssertionError("the log does not verify as it was written")
    run_alone = subprocess.run(
        [sys.executable, str(_TOOL), *desk.files()], capture_output=True, text=True, check=False
    )
    if run_alone.returncode != 0:
        raise AssertionError(f"the stand-alone verifier refuses it: {run_alone.stdout}")


def _attack(
    result: Result,
    desk: Desk,
    tool: Any,
    name: str,
    attack: Attack,
    at: int,
    count: Counter[str],
) -> None:
    changed = attack(desk.lines, at, Random(f"{name} {at}"))
    desk.put(changed)
    if name == "rollback":
        desk.go_on()
    result.tried += 1
    result.fired += changed != desk.lines
    verifies, anchored, stamp = desk.verifies(), desk.holds_anchor(), desk.stamp_tells()
    count["tried"] += 1
    count["seen_by_verify"] += not verifies
    count["seen_by_stamp_in_home"] += stamp
    count["seen_with_anchor"] += not (verifies and anchored)
    complaints: list[str] = []
    if verifies and anchored:
        complaints.append("nobody noticed")
    if verifies != _agrees(tool, desk.files()):
        complaints.append(f"verify says {verifies}, tools/verify_log.py says {not verifies}")
    if complaints:
        result.add_failure(f"{name}:{at}", f"{name} at line {at}: {'; '.join(complaints)}")
    else:
        result.survived += 1
    desk.put(desk.lines)


def _limits(desk: Desk) -> dict[str, str]:
    """What a chain cannot show when nobody outside remembers its head."""
    said: dict[str, str] = {}
    half = len(desk.lines) // 2
    (desk.path / "state/rio/.report.json.view").unlink()
    for name in ("rollback", "fork"):
        desk.put(ATTACKS[name](desk.lines, half, Random(0)))
        seen = [
            word
            for word, tells in (
                ("verify", not desk.verifies()),
                ("stamps in the home", desk.stamp_tells()),
                ("anchor outside", not desk.holds_anchor()),
            )
            if tells
        ]
        said[f"{name}, stamps removed too"] = f"seen by: {', '.join(seen)} only"
    return said


_TOOL = frame.REPO / "tools/verify_log.py"


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("verify_log", _TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _agrees(tool: Any, paths: Sequence[str]) -> bool:
    """Whether the stand-alone verifier finds the log sound."""
    with contextlib.redirect_stdout(io.StringIO()):
        return tool.main(list(paths)) == 0


def control(seed: int) -> list[Control]:
    """A verifier that only looks whether lines are JSON notices next to nothing."""
    rng = Random(seed)
    with frame.scratch("tamper", _MEMORY) as place:
        lines = Desk(place).lines
    missed = tried = 0
    for name, attack in ATTACKS.items():
        for at in rng.sample(range(len(lines)), 20):
            tried += 1
            changed = attack(lines, at, Random(f"{name} {at}"))
            missed += sum(map(_is_json, changed)) == sum(map(_is_json, lines)) + (
                len(changed) - len(lines)
            )
    detail = f"a check of JSON alone misses {missed} of {tried} attacks"
    return [Control("json-only", missed > tried // 2, detail)]


def _is_json(line: tuple[str, bytes]) -> bool:
    try:
        json.loads(line[1])
    except ValueError:
        return False
    return True

"""Loss and tampering are found and named: file, first bad position, exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import NotFound
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import REPO, Shell, Verbs, day_files, lines_in, split

OLDEST, MIDDLE, NEWEST = "2023-11-14.jsonl", "2023-11-15.jsonl", "2023-11-16.jsonl"
SCRIPT = b"#!/usr/bin/env bash\nset -euo pipefail\n" + b"".join(
    b'echo "restoring %d" >> "$LEDGER"\n' % number for number in range(22)
)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose ledger has 10 events: 4, 3 and 3 on three days."""
    path = tmp_path_factory.mktemp("pristine") / "home"
    verbs = Verbs(str(path), Turner())
    verbs("init", timezone="UTC")
    for number in range(1, 11):
        verbs.write(f"event {number}", event="task_result", task=f"wo-{number}")
        if number in (4, 7):
            verbs.clock.sleep(DAY)
    assert [len(split(file.read_bytes())) for file in day_files(path, "rio")] == [4, 3, 3]
    return path


@pytest.fixture
def ledger(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it that may be tampered with."""
    shutil.copytree(pristine, tmp_path / "home")
    return tmp_path / "home/ledger/rio"


def altered(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    lines = change(split(file.read_bytes()))
    file.write_bytes(b"".join(line + b"\n" for line in lines))


def edit(line: bytes) -> bytes:
    return line.replace(b"event", b"EVENT")


def without(number: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: lines[: number - 1] + lines[number:]


def with_line(number: int, change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], Any]:
    return lambda lines: [*lines[: number - 1], change(lines[number - 1]), *lines[number:]]


def swap(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def insert(lines: list[bytes]) -> list[bytes]:
    foreign = json.dumps({"ts": "2023-11-15T12:00:00+00:00", "agent": "rio", "event": "info"})
    return [lines[0], foreign.encode(), *lines[1:]]


def repeat(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1], lines[1], *lines[2:]]


def cut(file: Path, keep: int) -> None:
    os.truncate(file, keep)


def half(file: Path) -> int:
    """A length that ends in the middle of the second line."""
    first, second, *_ = split(file.read_bytes())
    return len(first) + 1 + len(second) // 2


# name: what is done to the ledger, and what `verify` has to say: kind, where
TAMPERINGS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "delete the first line": (lambda d: altered(d / OLDEST, without(1)), "missing", f"{OLDEST}:1"),
    "delete a line": (lambda d: altered(d / OLDEST, without(3)), "missing", f"{OLDEST}:3"),
    "delete the last line of a day": (
        lambda d: altered(d / OLDEST, without(4)),
        "missing",
        f"{MIDDLE}:1",
    ),
    "delete the newest line": (lambda d: altered(d / NEWEST, without(3)), "cut", NEWEST),
    "blank a line": (
        lambda d: altered(d / OLDEST, with_line(2, lambda line: b"")),
        "missing",
        f"{OLDEST}:3",
    ),
    "blank a line with blanks": (
        lambda d: altered(d / MIDDLE, with_line(2, lambda line: b" " * len(line))),
        "missing",
        f"{MIDDLE}:3",
    ),
    "edit a line": (lambda d: altered(d / MIDDLE, with_line(2, edit)), "edited", f"{MIDDLE}:2"),
    "edit the newest line": (
        lambda d: altered(d / NEWEST, with_line(3, edit)),
        "edited",
        f"{NEWEST}:3",
    ),
    "edit a number": (
        lambda d: altered(d / MIDDLE, with_line(2, lambda x: x.replace(b'"seq":6', b'"seq":5'))),
        "misplaced",
        f"{MIDDLE}:2",
    ),
    "edit a hash": (
        lambda d: altered(d / MIDDLE, with_line(2, lambda x: x[:-4] + b'00"}')),
        "edited",
        f"{MIDDLE}:2",
    ),
    "truncate a past day": (lambda d: cut(d / MIDDLE, half(d / MIDDLE)), "missing", f"{NEWEST}:1"),
    "truncate the newest day": (lambda d: cut(d / NEWEST, half(d / NEWEST)), "cut", NEWEST),
    "empty a past day": (lambda d: cut(d / MIDDLE, 0), "empty", f"{MIDDLE}:1"),
    "empty the newest day": (lambda d: cut(d / NEWEST, 0), "empty", f"{NEWEST}:1"),
    "remove the oldest day": (lambda d: (d / OLDEST).unlink(), "missing", f"{MIDDLE}:1"),
    "remove a day in the middle": (lambda d: (d / MIDDLE).unlink(), "missing", f"{NEWEST}:1"),
    "remove the newest day": (lambda d: (d / NEWEST).unlink(), "cut", NEWEST),
    "remove every day": (lambda d: shutil.rmtree(d), "cut", NEWEST),
    "reorder lines": (lambda d: altered(d / OLDEST, swap), "missing", f"{OLDEST}:2"),
    "swap two days": (
        lambda d: (
            (os.rename(d / OLDEST, d / "x"), os.rename(d / MIDDLE, d / OLDEST))
            and os.rename(d / "x", d / MIDDLE)
        ),
        "missing",
        f"{OLDEST}:1",
    ),
    "insert a line": (lambda d: altered(d / MIDDLE, insert), "edited", f"{MIDDLE}:3"),
    "repeat a line": (lambda d: altered(d / MIDDLE, repeat), "misplaced", f"{MIDDLE}:3"),
}
# These leave a shorter chain that is sound in itself: only who remembers its head can tell.
CUTS = {name for name, (_, kind, _) in TAMPERINGS.items() if kind == "cut"}


def problems(verbs: Verbs) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of `ledger verify`, and what it found, without its verdict on the whole."""
    found = verbs("ledger verify")
    return found.exit_code, [dict(row) for row in found.rows][:-1]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_verify_names_the_file_and_the_first_bad_position(
    ledger: Path, clock: Turner, name: str
) -> None:
    tamper, kind, where = TAMPERINGS[name]
    tamper(ledger)

    code, [first, *_] = problems(Verbs(str(ledger.parents[1]), clock))
    assert code == 6
    assert (first["agent"], first["state"]) == ("rio", kind)
    assert first["where"] == where or (kind == "cut" and where in first["where"] + first["detail"])
    assert "byte " in first["detail"]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_check_and_doctor_find_it_too(ledger: Path, clock: Turner, name: str) -> None:
    TAMPERINGS[name][0](ledger)
    verbs = Verbs(str(ledger.parents[1]), clock)
    assert verbs("check").exit_code == 6
    assert "broken" in [row["state"] for row in verbs.rows("doctor")]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_writing_on_does_not_cover_it_up(ledger: Path, clock: Turner, name: str) -> None:
    TAMPERINGS[name][0](ledger)
    verbs = Verbs(str(ledger.parents[1]), clock)
    clock.advance(10 * DAY)
    for number in range(3):
        verbs.write(f"afterwards {number}")
    assert verbs("ledger verify").exit_code == 6
    verbs("rebuild")
    assert verbs("ledger verify").exit_code == 6
    assert verbs.texts(since="1h") == ["afterwards 0", "afterwards 1", "afterwards 2"]


def check_without_our_code(ledger: Path) -> tuple[int, str]:
    tool = [sys.executable, "-I", str(REPO / "tools/verify_log.py")]
    done = subprocess.run(
        [*tool, *map(str, ledger.glob("*.jsonl"))], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", sorted(set(TAMPERINGS) - CUTS))
def test_the_checker_that_uses_none_of_our_code_finds_it_at_the_same_place(
    ledger: Path, name: str
) -> None:
    tamper, _, where = TAMPERINGS[name]
    tamper(ledger)
    code, said = check_without_our_code(ledger)
    assert code == 1
    assert f"{ledger}/{where.removesuffix(':1') if 'empty' in name else where}: " in said


def test_an_untouched_ledger_verifies_by_both(ledger: Path, clock: Turner) -> None:
    found = Verbs(str(ledger.parents[1]), clock)("ledger verify")
    assert found.exit_code == 0
    assert [(row["agent"], row["state"], row["detail"]) for row in found.rows] == [
        ("rio", "sound", "10 lines")
    ]
    assert found.counts | {"agents": 1, "lines": 10, "bad_lines": 0, "problems": 0} == found.counts
    assert check_without_our_code(ledger) == (0, "10 is the last line, 0 breaks\n")


def test_a_process_exits_with_six_and_names_the_place(shell: Shell) -> None:
    for number in range(3):
        shell.write(f"event {number}")
    [file] = day_files(shell.home, "cls")
    altered(file, with_line(2, edit))

    ran = shell("ledger", "verify", "--agent", "cls")
    assert ran.code == 6
    assert f"{file.name}:2" in ran.out
    assert shell("ledger", "verify", "--json").rows()[0]["state"] == "edited"


def test_only_the_agent_asked_for_is_judged(ledger: Path, clock: Turner) -> None:
    verbs = Verbs(str(ledger.parents[1]), clock)
    clock.advance(3 * DAY)
    verbs.write("fine", agent="clay")
    altered(ledger / MIDDLE, with_line(1, edit))
    assert verbs("ledger verify", agent="clay").exit_code == 0
    assert verbs("ledger verify", agent="RIO").exit_code == 6
    assert verbs("ledger verify").exit_code == 6


# --- what is no ledger -----------------------------------------------------------------


@pytest.fixture
def script(verbs: Verbs) -> Path:
    """A shell script where a day file belongs."""
    verbs("init", timezone="UTC")
    file = Path(verbs.path, "ledger/rio", OLDEST)
    file.parent.mkdir(parents=True)
    file.write_bytes(SCRIPT)
    return file


def test_a_shell_script_in_place_of_a_day_has_24_bad_lines_and_no_records(
    verbs: Verbs, script: Path
) -> None:
    found = verbs("ledger verify")
    assert found.exit_code != 0
    assert (found.counts["bad_lines"], found.counts["lines"]) == (24, 0)
    assert [row["state"] for row in found.rows] == ["bad line"] * 24 + ["not a ledger"]
    assert verbs.rows("ledger list") == []
    assert verbs("ledger tail") == []
    assert script.read_bytes() == SCRIPT


def test_bad_lines_are_named_by_file_and_line_number(verbs: Verbs, script: Path) -> None:
    rows = verbs.rows("ledger verify")
    assert [row["where"].partition(" ")[0] for row in rows[:24]] == [
        f"{OLDEST}:{number}" for number in range(1, 25)
    ]


def test_a_shell_script_is_neither_emptied_nor_overwritten_by_the_next_event(
    verbs: Verbs, script: Path
) -> None:
    verbs.write("after")
    assert script.read_bytes().startswith(SCRIPT)
    assert verbs.texts() == ["after"]
    verbs("doctor", fix=True)
    verbs("rebuild")
    assert script.read_bytes().startswith(SCRIPT)
    assert len(script.read_bytes().splitlines()) == 25


def test_an_empty_ledger_no_events_yet_and_no_such_agent_are_three_things(verbs: Verbs) -> None:
    verbs("init", agent=["clay"], timezone="UTC")
    file = Path(verbs.path, "ledger/rio", OLDEST)
    file.parent.mkdir(parents=True)
    file.touch()

    empty, none_yet = verbs("ledger verify", agent="rio"), verbs("ledger verify", agent="clay")
    assert (empty.exit_code, empty.rows[0]["state"]) == (6, "empty")
    assert empty.rows[0]["where"].startswith(OLDEST)
    assert (none_yet.exit_code, [row["state"] for row in none_yet.rows]) == (0, ["no events yet"])
    for verb in ("ledger verify", "ledger list", "ledger tail"):
        with refused(NotFound, "nobody"):
            verbs(verb, agent="nobody")


def test_an_unknown_agent_is_exit_four_and_names_those_there_are(shell: Shell) -> None:
    shell.write("text")
    for verb in ("verify", "list", "tail"):
        ran = shell("ledger", verb, "--agent", "nobody")
        assert (ran.code, ran.out) == (4, "")
        assert "known: cls" in ran.err


def test_verify_changes_nothing(ledger: Path, clock: Turner) -> None:
    altered(ledger / MIDDLE, with_line(2, edit))
    home = ledger.parents[1]

    def everything() -> dict[Path, tuple[int, bytes]]:
        files = [file for file in home.rglob("*") if file.is_file()]
        return {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

    before = everything()
    Verbs(str(home), clock)("ledger verify")
    assert everything() == before
    assert len(lines_in(home, "rio")) == 10

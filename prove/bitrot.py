"""bitrot: every bit of what is kept flips, and every file is cut at every byte.

One case is one flip or one cut of one subject, judged in memory:

- `log`, `ledger` (three days), 8 KiB each, and `big`, a log of 1 MiB: `verify` has to name it.
  What it cannot name without an anchor (a cursor of the newest line, kept elsewhere) is counted
  as `by_anchor`: the newest line no longer looks like one of ours, which is what the line of
  another writer, or one in progress, looks like.  `read` does not check hashes: a record that it
  returns changed has to be one that `verify` names (`read_told_by_verify`).
- `document`, 8 KiB: nothing in it tells what it was.  `check` sees bytes that are no JSON; any
  other flip is seen only by who kept the revision (`by_revision`).
- `view`, file and stamp together 8 KiB: whatever flips, `View.read` answers from the log, and the
  next refresh shows it; a file that lacks only its last LF is `harmless`.
- `packed`, a packed segment of 8 KiB in frames of a few lines: one flip costs one frame at most,
  and `verify` names it; a cut costs the frames behind it.

No more than one record is lost by one flip in a file that is not packed.  A case fired if the
bytes are others than before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import holdfast
from holdfast.codec import encode
from holdfast.store import chain, packed, reader
from holdfast.store.chain import ORIGIN
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.packed import Packed
from holdfast.store.primitives import Cursor, Line
from holdfast.store.reader import Source, read_lines, verify
from holdfast.store.view import Shape
from prove import frame
from prove.actors import Calendar
from prove.frame import Control, Failure, Harness, Result
from prove.sim import SimFs, State

HARNESS = Harness(
    name="bitrot",
    proves="A flipped bit in a log is named, costs one record, and no view tells anything wrong.",
    targets={"quick": 1_900, "ci": 18_500, "full": 388_000},
    unit="flips and cuts",
)
_SIZE = 8 << 10
_BIG = 1 << 20
_SMALL_SAMPLE = {"quick": (350, 60), "ci": (3_000, 800), "full": None}
"""Flips and cuts of each subject of 8 KiB."""
_BIG_SAMPLE = {"quick": 30, "ci": 300, "full": 20_000}
_PROCESSES = 2
_SOURCE = Path(holdfast.__file__).resolve().parent.parent
_SIDECAR = "state/rio/.report.json.view"
_PACKED_LINES, _PACKED_FRAME = 60, 1_000
_LOG, _DOCUMENT, _VIEW = "state/rio/journal.jsonl", "state/rio/tasks.json", "state/rio/report.json"


class Verdict(NamedTuple):
    """How one case was noticed, and what is wrong."""

    noticed: str
    complaint: str = ""


@dataclass(frozen=True)
class Subject:
    name: str
    files: dict[str, bytes]
    judge: Callable[[dict[str, bytes], bool], Verdict]
    """Of the changed files, and whether they were cut."""

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))

    def changed(self, how: str, at: int) -> dict[str, bytes]:
        """The files with one bit flipped, or one of them cut at a byte."""
        place = at // 8 if how == "flip" else at
        for name, data in self.files.items():
            if place < len(data):
                flipped = data[:place] + bytes([data[place] ^ 1 << at % 8]) + data[place + 1 :]
                return {**self.files, name: flipped if how == "flip" else data[:place]}
            place -= len(data)
        raise IndexError(at)

    def try_case(self, how: str, at: int) -> tuple[bool, Verdict]:
        files = self.changed(how, at)
        return files != self.files, self.judge(files, how == "cut")


# --- logs -----------------------------------------------------------------------------------


def _log_files(sizes: dict[str, int], pad: int) -> dict[str, bytes]:
    """Sealed lines in files of exactly these sizes, chained over all of them."""
    link, files, number = ORIGIN, dict[str, bytes](), 0
    for name, size in sizes.items():
        text = b""
        while len(text) < size:
            number += 1
            record = {"ts": "2027-01-15T08:00:00Z", "id": number, "text": "what happened " * pad}
            line, following = chain.seal(encode(record), link)
            left = size - len(text) - len(line)
            if left < 2 * len(line):
                # The last one of the file is as long as it takes.
                record["text"] += "x" * left
                line, following = chain.seal(encode(record), link)
            text, link = text + line, following
        files[name] = text
    return files


def _sources(files: dict[str, bytes]) -> Iterator[Source]:
    *_, last = files
    for name, data in files.items():
        yield Source(name, 0, name == last, iter([data] if data else []))


class LogJudge:
    def __init__(self, files: dict[str, bytes]) -> None:
        lines = [line for line in read_lines(_sources(files)) if isinstance(line, Line)]
        self._records = {line.seq: line.record for line in lines}
        self._places = {line.seq: (line.segment, line.end) for line in lines}
        self._anchor: Cursor = verify(_sources(files)).head

    def __call__(self, files: dict[str, bytes], cut: bool) -> Verdict:
        found = verify(_sources(files))
        named = bool(found.problems or found.bad)
        anchor = self._anchor
        kept = files[anchor.segment][: anchor.offset].endswith(
            chain.suffix(anchor.seq, anchor.hash)
        )
        if not named and kept:
            return Verdict("nobody", "neither `verify` nor the anchor notices")
        noticed = "by_verify" if named else "by_anchor"
        return self._of_reading(files, noticed, cut=cut)

    def _of_reading(self, files: dict[str, bytes], noticed: str, *, cut: bool) -> Verdict:
        right: set[int] = set()
        for line in read_lines(_sources(files)):
            if not isinstance(line, Line) or line.seq is None:
                continue
            if self._records.get(line.seq) == line.record:
                right.add(line.seq)
            elif noticed == "by_verify":
                noticed = "read_told_by_verify"
            else:
                return Verdict(noticed, f"line {line.seq} is served changed, and nobody says so")
        wanted = set(self._records)
        if cut:
            wanted = {seq for seq, (name, end) in self._places.items() if end <= len(files[name])}
        lost = wanted - right
        if len(lost) > (0 if cut else 1):
            return Verdict(noticed, f"lines {sorted(lost)} are lost by one change")
        return Verdict(noticed)


def _log(name: str, sizes: dict[str, int], pad: int = 3) -> Subject:
    files = _log_files(sizes, pad)
    return Subject(name, files, LogJudge(files))


# --- documents and views, on a disk in memory -----------------------------------------------


class Shelf:
    """A home in memory in which some files can be exchanged."""

    def __init__(self, fill: Callable[[Home], None], names: tuple[str, ...]) -> None:
        self._fs = SimFs()
        with self.home(self._fs, create=True) as home:
            fill(home)
        self._state = self._fs.state()
        self._inodes = {name: self._find(name) for name in names}
        self.files = {name: self._state.files[inode] for name, inode in self._inodes.items()}

    def _find(self, path: str) -> int:
        here = self._state.dirs[1]["home"]
        for part in path.split("/"):
            here = self._state.dirs[here][part]
        return here

    @staticmethod
    def home(fs: SimFs, *, create: bool = False) -> Home:
        zone = "UTC" if create else None
        return Home.open("/home", create=create, timezone=zone, clock=Calendar(0), vfs=fs.process())

    def opened(self, files: dict[str, bytes]) -> Home:
        contents = dict(self._state.files)
        for name, data in files.items():
            contents[self._inodes[name]] = data
        return self.home(SimFs(State(contents, self._state.dirs)))


def _document() -> Subject:
    text = json.dumps({"tasks": [{"id": n, "title": "water the plants"} for n in range(150)]})
    data = json.dumps({**json.loads(text), "pad": ""}).encode()
    data = json.dumps({**json.loads(text), "pad": "x" * (_SIZE - len(data))}).encode()
    revision = ""

    def fill(home: Home) -> None:
        nonlocal revision
        revision = home.document(_DOCUMENT).replace(data)

    shelf = Shelf(fill, (_DOCUMENT,))

    def judge(files: dict[str, bytes], cut: bool) -> Verdict:
        with shelf.opened(files) as home:
            read = home.document(_DOCUMENT).read()
            told = any(finding.kind == "corrupt" for finding in check(home))
        if read is None or read.data != files[_DOCUMENT]:
            return Verdict("nobody", "what is read is not what is there")
        if told:
            return Verdict("by_check")
        if read.revision == revision:
            return Verdict("nobody", "the revision is the same")
        return Verdict("by_revision")

    return Subject("document", shelf.files, judge)


def _titles() -> Shape[dict[str, Any]]:
    """A view that keeps the text of each line, so that it is as large as we like."""

    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        state[str(line.record["id"])] = line.record["title"]
        return state

    return Shape(
        version=1,
        initial=dict,
        fold=fold,
        render=lambda state: json.dumps(state, indent=1).encode() + b"\n",
    )


def _view() -> Subject:
    # Each letter of a title stands in the file and in the stamp.
    short = sum(map(len, _shelf_with_view(1).files.values()))
    shelf = _shelf_with_view(1 + (_SIZE - short) // 2)
    if sum(map(len, shelf.files.values())) != _SIZE:
        raise RuntimeError("the view and its stamp are not as large as they should be")
    with shelf.opened(shelf.files) as home:
        right = home.view(_VIEW, home.log(_LOG), _titles()).read()

    def judge(files: dict[str, bytes], cut: bool) -> Verdict:
        with shelf.opened(files) as home:
            told = any(True for _ in check(home))
            log = home.log(_LOG)
            view = home.view(_VIEW, log, _titles())
            answer = view.read()
            view.refresh()
            view.close()
            shown = home.document(_VIEW).read()
            log.close()
            aside = bool(view.kept_aside)
        if answer != right:
            return Verdict("nobody", f"the view answers {answer!r:.80}")
        # Without its last LF a file counts as whole: a crash may cut it there.
        if shown is None or shown.data.rstrip() != shelf.files[_VIEW].rstrip():
            return Verdict("nobody", f"after a refresh it shows {shown!r:.80}")
        if aside and files[_VIEW] == shelf.files[_VIEW]:
            return Verdict("nobody", "a damaged stamp is taken for an edit by hand")
        return Verdict("by_check") if told else Verdict("harmless")

    return Subject("view", shelf.files, judge)


def _shelf_with_view(letters: int) -> Shelf:
    def fill(home: Home) -> None:
        log = home.log(_LOG)
        for number in range(20):
            log.append({"id": number, "title": "buy milk"})
        log.append({"id": "long", "title": "y" * letters})
        view = home.view(_VIEW, log, _titles())
        view.refresh()
        view.close()
        log.close()

    return Shelf(fill, (_VIEW, _SIDECAR))


# --- packed segments ------------------------------------------------------------------------


def _packed_source(data: bytes) -> Source:
    text = Packed(lambda count, offset: data[offset : offset + count], len(data))
    return Source("journal.jsonl", 0, last=True, chunks=text.chunks(0))


def _packed_text(rng: Random, pad: int) -> bytes:
    """Lines of text that hardly can be packed, the last one as long as it takes."""
    link, text = ORIGIN, b""
    for number in range(_PACKED_LINES):
        size = pad if number == _PACKED_LINES - 1 else 60
        record = {"ts": "2027-01-15T08:00:00Z", "id": number, "text": rng.randbytes(size).hex()}
        line, link = chain.seal(encode(record), link)
        text += line
    return text


def _packed() -> Subject:
    """A segment of 8 KiB in frames of a few lines each."""
    # How much a text shrinks is the packer's business: try until it fits.
    for seed, pad in product(range(9), range(240, 340)):
        text = _packed_text(Random(seed), pad)
        with mock.patch.object(packed, "FRAME", _PACKED_FRAME):
            data = b"".join(packed.pack([text], len(text)))
        if len(data) == _SIZE:
            break
    else:
        raise RuntimeError("no packed segment of 8 KiB was found")
    frames = Packed(lambda count, offset: data[offset : offset + count], len(data)).frames
    lines = [line for line in read_lines([_packed_source(data)]) if isinstance(line, Line)]
    records = {line.seq: line.record for line in lines}
    places = {line.seq: _frame_of(line, frames) for line in lines}

    def judge(files: dict[str, bytes], cut: bool) -> Verdict:
        (changed,) = files.values()
        read = [line for line in read_lines([_packed_source(changed)]) if isinstance(line, Line)]
        wrong = [line.seq for line in read if records.get(line.seq) != line.record]
        if wrong:
            return Verdict("nobody", f"lines {wrong} are served changed")
        lost = records.keys() - {line.seq for line in read}
        if not lost:
            return Verdict("harmless")
        proof = verify([_packed_source(changed)])
        noticed = "by_verify" if proof.bad or proof.problems else "by_anchor"
        hit = {places[seq] for seq in lost}
        if cut:
            hit = {number for number in hit if _ends(frames[number]) <= len(changed)}
        elif noticed == "by_anchor":
            return Verdict("nobody", f"lines {sorted(lost)} are gone, and nobody says so")
        if len(hit) > (0 if cut else 1):
            return Verdict(noticed, f"frames {sorted(hit)} are lost by one change")
        return Verdict(noticed)

    return Subject("packed", {"journal.jsonl.zst": data}, judge)


def _frame_of(line: Line, frames: list[packed.Frame]) -> int:
    inside = (n for n, frame in enumerate(frames) if line.offset < frame.start + frame.size)
    return next(inside)


def _ends(frame: packed.Frame) -> int:
    return frame.at + frame.length


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "log": lambda: _log("log", {"journal.jsonl": _SIZE}),
    "ledger": lambda: _log(
        "ledger",
        {"2027-01-15.jsonl": 3_000, "2027-01-16.jsonl": 2_500, "2027-01-17.jsonl": _SIZE - 5_500},
    ),
    "document": _document,
    "view": _view,
    "packed": _packed,
    "big": lambda: _log("big", {"journal.jsonl": _BIG}, pad=70),
}


# --- the harness ----------------------------------------------------------------------------


def places(subject: Subject, tier: str, seed: int) -> list[tuple[str, int]]:
    """The cases of a subject in a tier."""
    rng = Random(f"bitrot|{subject.name}|{seed}")
    if subject.name == "big":
        return [("flip", rng.randrange(subject.size * 8)) for _ in range(_BIG_SAMPLE[tier])]
    flips, cuts = range(subject.size * 8), range(subject.size)
    sample = _SMALL_SAMPLE[tier]
    if sample is not None:
        flips, cuts = rng.sample(flips, sample[0]), rng.sample(cuts, sample[1])
    return [("flip", at) for at in flips] + [("cut", at) for at in cuts]


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    noticed: dict[str, Counter[str]] = {}
    children = [
        _start({"tier": tier, "seed": seed, "case": case, "part": part})
        for part in range(_PROCESSES if case is None else 1)
    ]
    try:
        for child in children:
            said, _ = child.communicate()
            if child.returncode != 0:
                raise RuntimeError(f"a process that tries cases ended with {child.returncode}")
            counts, failures, seen = json.loads(said)
            part = Result(HARNESS.name, tier, **counts, failures=[Failure(*f) for f in failures])
            result.add(part)
            for name, numbers in seen.items():
                noticed.setdefault(name, Counter()).update(numbers)
    finally:
        for child in children:
            child.kill()
            child.wait()
    result.details = {"noticed": {name: dict(sorted(n.items())) for name, n in noticed.items()}}
    return result


def _start(order: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "prove.bitrot", json.dumps(order)],
        stdout=subprocess.PIPE,
        text=True,
        env=frame.child_environment(_SOURCE),
    )


def shard(order: dict[str, Any]) -> None:
    """Try one part of the cases; the counts as one line of JSON."""
    result = Result(HARNESS.name, order["tier"])
    noticed: dict[str, Counter[str]] = {}
    for name, make in SUBJECTS.items():
        wanted, how, at = (order["case"] or "//").split("/")
        if wanted and wanted != name:
            continue
        subject = make()
        todo = places(subject, order["tier"], order["seed"])[order["part"] :: _PROCESSES]
        if at.isdecimal():
            todo = [(how, int(at))]
        for each in todo:
            _try(result, noticed, subject, *each)
    keys = ("tried", "fired", "survived", "lost", "failed")
    counts = {key: getattr(result, key) for key in keys}
    print(json.dumps([counts, result.failures, noticed]))


def _try(
    result: Result, noticed: dict[str, Counter[str]], subject: Subject, how: str, at: int
) -> None:
    fired, verdict = subject.try_case(how, at)
    result.tried += 1
    result.fired += fired
    noticed.setdefault(f"{subject.name}_{how}", Counter())[verdict.noticed] += 1
    if verdict.complaint:
        case = f"{subject.name}/{how}/{at}"
        result.lost += "are lost" in verdict.complaint
        result.add_failure(case, f"{case}: {verdict.complaint}")
    else:
        result.survived += 1


def control(seed: int) -> list[Control]:
    """A reader that does not look at hashes misses what flips inside of records."""
    subject = SUBJECTS["log"]()
    honest = reader.holds
    reader.holds = lambda *_: True
    try:
        cases = Random(seed).sample(range(subject.size * 8), 400)
        missed = [at for at in cases if subject.try_case("flip", at)[1].noticed == "nobody"]
    finally:
        reader.holds = honest
    detail = f"it misses {len(missed)} of {len(cases)} flips"
    return [Control("skips-hashes", bool(missed), detail)]


if __name__ == "__main__":
    shard(json.loads(sys.argv[1]))

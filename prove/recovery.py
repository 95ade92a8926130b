"""Opening a home after a crash: what is there, and whether life goes on.

`recover` looks with the store's own readers, then writes as the next process would, twice,
and says everything it saw; `judge` holds that against what had been acknowledged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zstandard import ZstdDecompressor

from holdfast.store.check import Finding, check
from holdfast.store.log import FileLog
from holdfast.store.mailbox import FileMailbox
from holdfast.store.primitives import CONTROL, Cursor, Line
from holdfast.store.sweep import sweep
from prove.properties import Broken, Entry, Observation, Write, broken
from prove.schedule import SimClock
from prove.sim import EMPTY, Op, SimFs, State
from prove.workloads import DAY, NOON, Scenario, Station, Writer, start_ids

_LETTERS = {"journal": "a", "ledger": "e", "tasks": "u", "note": "r", "inbox": "m"}
_MAIL = ("inbox", "done")
"""Of these no order is promised: all messages, and those that are done."""


_VIEW = "state/rio/report.json"
_SELDOM = frozenset({"bad_line", "damaged"})
"""What may stay for ever: the bytes of a line that somebody died over, and a hole that the
disk left among lines nobody had acknowledged, named as that."""
_AFTER_CRASH = _SELDOM | {"temporary", "stale", "view", "double"}
"""What the next writer puts right."""
_FAILED_DISK = frozenset({"missing", "edited", "cut"})
"""What a check may find, and name, when the disk itself refused to keep bytes.

`cut`: the kernel told one process of the failure and another, which asked later, that all is
well; that one has then stamped a line that was never written, and says truly that it is gone.
"""
Listing = Mapping[str, bytes | None]


@dataclass
class Parts:
    """Which objects a scenario touches; the others need not be looked at."""

    streams: set[str]
    view: bool
    lease: bool
    archive: bool = False
    check_all: bool = False
    """Whether the whole home is checked, which takes longer."""
    write_twice: bool = True
    """Whether a second process writes after the first one."""

    @classmethod
    def of(cls, scenario: Scenario) -> Parts:
        letters = set(scenario.letters)
        streams: set[str] = set()
        for name, mine in (
            ("journal", "agtpvwsz"),
            ("ledger", "edbsz"),
            ("tasks", "uc"),
            ("note", "r"),
            ("inbox", "mk"),
            ("done", "mk"),
        ):
            if letters & set(mine):
                streams.add(name)
        return cls(streams, bool(letters & set("vw")), "l" in letters, "z" in letters)

    def logs(self) -> list[str]:
        return [name for name in ("journal", "ledger") if name in self.streams]

    def word(self) -> str:
        """What the first process after a crash does: one of everything."""
        letters = [_LETTERS[name] for name in sorted(self.streams - {"done"})]
        more = {"w": self.view, "l": self.lease, "z": self.archive}
        return "".join(letters) + "".join(letter for letter, used in more.items() if used)


@dataclass
class Found:
    """What a disk holds, independent of what was acknowledged."""

    streams: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])
    registers: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    torn: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    recovery: list[str] = field(default_factory=list[str])
    views: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    at_once: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """For each stream what could be read before anybody wrote."""
    controls: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """For each log the numbers of the lines that it wrote about itself."""
    handed: set[str] = field(default_factory=set[str])
    """The ids of messages that were handed out after the crash."""
    fence: int | None = None
    """The first fencing number given out after the crash."""
    journal: list[Op] = field(default_factory=list[Op])
    """What the first process after the crash wrote."""
    state: State = EMPTY
    """The disk it began with."""


def recover(
    state: State,
    scenario: Scenario,
    parts: Parts,
    *,
    tolerate: bool = False,
    depth: int = 1,
) -> Found:
    """Open, look, write, write, look.  `tolerate` is for disks that failed a sync."""
    fs = SimFs(state, lies=scenario.lies)
    clock = SimClock(NOON + DAY, boots=depth + 1)
    found = Found(state=state)
    try:
        station = Station(fs.process(), clock, scenario.rotate_at)
        _look(station, parts, found, _AFTER_CRASH | (_FAILED_DISK if tolerate else frozenset()))
        found.at_once = {
            stream: {entry.id for entry in lines} for stream, lines in found.streams.items()
        }
        if fs.journal:
            found.recovery.append(f"reading wrote: {fs.journal[0]}")
        _go_on(fs, clock, scenario, parts, found, tolerate=tolerate, depth=depth)
    except Exception as error:
        found.recovery.append(f"{type(error).__name__}: {error}")
    return found


def _look(station: Station, parts: Parts, found: Found, allowed: frozenset[str]) -> None:
    for name in parts.logs():
        found.streams[name] = _entries(station.log(name), name, found)
    if "tasks" in parts.streams:
        held = _document(station.tasks.read(), "tasks.json", list, found)
        found.streams["tasks"] = [Entry(name, i + 1) for i, name in enumerate(held or [])]
    if "note" in parts.streams:
        found.registers["note"] = _document(station.note.read(), "note.json", str, found)
    if "inbox" in parts.streams:
        _look_at_mail(station.inbox, found)
    found.problems += _findings(station, parts, allowed)
    if parts.view:
        folded = [entry.id for entry in found.streams["journal"]]
        found.views["report"] = (station.view.read(), folded)


def _look_at_mail(box: FileMailbox, found: Found) -> None:
    done = [message.id for message in box.done()]
    there = {*done, *(each.id for each in box.waiting()), *(each.id for each in box.claimed())}
    found.streams["inbox"] = [Entry(name, None) for name in sorted(there)]
    found.streams["done"] = [Entry(f"done {name}", None) for name in done]
    found.torn += [f"{each.id} was set aside" for each in (*box.bad(), *box.dead())]


def _entries(log: FileLog, name: str, found: Found) -> list[Entry]:
    entries: list[Entry] = []
    alone = 0
    for line in log.read():
        if not isinstance(line, Line):
            continue
        if line.seq is None:
            found.torn.append(f"a line without seal at {line.segment}:{line.offset}")
        elif CONTROL not in line.record:
            entries.append(Entry(line.record["id"], line.seq))
            saw = line.record.get("saw")
            if saw is not None and not saw < line.seq <= saw + alone + 1:
                said = f"{line.record['id']} was decided at line {saw} and is line {line.seq}"
                found.problems.append(said)
        if CONTROL in line.record and line.seq is not None:
            found.controls.setdefault(name, set()).add(line.seq)
            alone += 1
        else:
            alone = 0
    return entries


def _findings(station: Station, parts: Parts, allowed: frozenset[str]) -> list[str]:
    """What the store's own check complains about."""
    found = check(station.home) if parts.check_all else _quick_check(station, parts)
    return [
        f"{one.kind} {one.key}: {one.detail}"
        for one in found
        if one.kind not in allowed and not ("view" in allowed and one.key == _VIEW)
    ]


def _quick_check(station: Station, parts: Parts) -> Iterator[Finding]:
    """The invariants of the logs and views in use; `check` walks the whole home."""
    for name in parts.logs():
        for problem in station.log(name).verify().problems:
            where = f"{problem.segment} (byte {problem.offset}): {problem.detail}"
            yield Finding(problem.kind, name, where, "")
    if parts.view:
        stamp = station.home.cell(_VIEW).peek()
        if stamp is not None and not station.journal.contains(stamp.cursor):
            yield Finding("cut", "journal", f"the view has seen line {stamp.cursor.seq}", "")


def _document(text: Any, name: str, kind: type, found: Found) -> Any:
    if text is None:
        return None
    try:
        held = json.loads(text.data)
    except ValueError:
        held = None
    if isinstance(held, kind):
        return held
    found.torn.append(f"{name} is half-written: {text.data[:40]!r}")
    return None


def _go_on(
    fs: SimFs,
    clock: SimClock,
    scenario: Scenario,
    parts: Parts,
    found: Found,
    *,
    tolerate: bool,
    depth: int,
) -> None:
    """The next process writes; then another one does, and nothing else may change."""
    names = [f"r{depth}"]
    _write_on(fs, clock, scenario, parts, found, names[0])
    found.journal = list(fs.journal)
    found.handed = {op.detail[0] for op in fs.journal if op.kind == "handed"}
    fences = [op.detail[0] for op in fs.journal if op.kind == "fence"]
    found.fence = fences[0] if fences else None
    listing = fs.state().listing()
    if parts.write_twice:
        once = listing
        names.append(f"q{depth}")
        _write_on(fs, clock, scenario, parts, found, names[1])
        listing = fs.state().listing()
        found.recovery += _only_appended(once, listing)
    again = Found()
    station = Station(fs.process(), clock, scenario.rotate_at)
    if any(path.endswith(".tmp") for path in listing):
        found.recovery += _left_by_writers(listing, parts)
        list(sweep(station.home))
        listing = fs.state().listing()
    found.recovery += [f"{path} is left over" for path in listing if path.endswith(".tmp")]
    # When a failed disk took lines that a view showed, the view is all that is left of them.
    edits = [] if tolerate else [path for path in listing if ".edited-" in path]
    found.recovery += [f"{path}: taken for an edit by hand" for path in edits]
    _look(station, parts, again, _SELDOM | (_FAILED_DISK if tolerate else frozenset()))
    _compare(again, found, names)


def _write_on(
    fs: SimFs, clock: SimClock, scenario: Scenario, parts: Parts, found: Found, writes_as: str
) -> None:
    station = Station(fs.process(), clock, scenario.rotate_at)
    writer = Writer(fs, len(fs.processes) - 1, writes_as, station)
    writer.work(parts.word())
    if "inbox" in parts.streams:
        writer.drain()
    if parts.view:
        station.view.close()
    for name in parts.logs():
        station.log(name).close()
    found.recovery += [f"writing after the crash: {said}" for said in writer.surprises]


def _compare(again: Found, found: Found, names: list[str]) -> None:
    """After one or two more writes everything is there, and those, once each and last."""
    for stream, lines in again.streams.items():
        before = found.streams[stream]
        if stream in _MAIL:
            _compare_mail(again, found, names)
            continue
        fresh = [entry.id.partition(".")[0] for entry in lines[-len(names) :]]
        if fresh != names:
            found.recovery.append(f"{stream}: writing on after the crash ended in {fresh}")
        # A line that lacked nothing but its line end is completed by the next writer.
        rest = lines[: -len(names)]
        if rest[: len(before)] != before or len(rest) > len(before) + 1:
            found.recovery.append(f"{stream}: {before} became {rest} by writing on")
        found.streams[stream] = rest
    for stream, held in again.registers.items():
        if held is None or not held.startswith(f"{names[-1]}."):
            found.recovery.append(f"{stream} holds {held} after it was written again")
    found.recovery += [f"after writing on: {said}" for said in (*again.torn, *again.problems)]
    for view, (shown, folded) in again.views.items():
        if shown != folded:
            found.recovery.append(f"after writing on, {view} answers {shown}, not {folded}")


def _compare_mail(again: Found, found: Found, names: list[str]) -> None:
    """After everything was taken, each message is done, once, and in no other place."""
    done = [entry.id.removeprefix("done ") for entry in again.streams["done"]]
    there = [entry.id for entry in again.streams["inbox"]]
    fresh = [name for name in there if name.partition(".")[0] in names]
    if sorted(done) != there or len(fresh) != len(names):
        found.recovery.append(f"after all was taken {there} were there and {done} done")
    if missing := {entry.id for entry in found.streams["inbox"]} - set(there):
        found.recovery.append(f"{sorted(missing)} were gone after all was taken")


def _only_appended(once: Listing, twice: Listing) -> list[str]:
    """Recovery is done once: the second process only adds to what is there."""
    return [
        f"{path} was changed by a second recovery"
        for path, data in once.items()
        if path.endswith(".jsonl") and data and not _text(twice, path).startswith(data)
    ]


def _text(listing: Listing, path: str) -> bytes:
    """The bytes of a segment, packed or not."""
    data, packed = listing.get(path), listing.get(f"{path}.zst")
    if data is None and packed is not None:
        reader = ZstdDecompressor().stream_reader(packed, read_across_frames=True)
        data = reader.read()
    return data or b""


def _left_by_writers(listing: Listing, parts: Parts) -> list[str]:
    """Temporaries that writing to the same log or document should have removed.

    Those of a view, or of a log that nobody has written to since, wait for a sweep.
    """
    starts = [start for name, start in _TEMPORARIES.items() if name in parts.streams]
    return [
        f"{path} is left over after writing on"
        for path in listing
        if path.endswith(".tmp") and path.startswith(tuple(starts))
    ]


_TEMPORARIES = {
    "inbox": "/state/rio/inbox/.",
    "journal": "/state/rio/.journal",
    "ledger": "/ledger/rio/.",
    "tasks": "/state/rio/.tasks",
    "note": "/state/rio/.note",
}


# --- judging --------------------------------------------------------------------------------


def writes_at_start(scenario: Scenario) -> list[Write]:
    """What the disk held, durably, before anything happened."""
    return [
        Write(stream, name, -2, -1)
        for stream, names in start_ids(scenario.start, scenario.letters).items()
        for name in names
    ]


def writes_of(journal: Sequence[Op], since: int = 0) -> list[Write]:
    """Every write with the places in the journal where it began and was acknowledged."""
    writes: list[Write] = []
    began: dict[str, tuple[str, int]] = {}
    ended: dict[str, tuple[int, int | None, bool]] = {}
    for place, op in enumerate(journal, since):
        if op.kind == "start":
            began |= dict.fromkeys(op.detail[1], (op.detail[0], place))
        elif op.kind == "ack":
            numbers = zip(op.detail[1], op.detail[2], strict=True)
            ended |= {name: (place, seq or None, False) for name, seq in numbers}
        elif op.kind == "refuse":
            ended |= dict.fromkeys(op.detail[1], (place, None, True))
    for name, (stream, place) in began.items():
        end, seq, refused = ended.get(name, (None, None, False))
        writes.append(Write(stream, name, place, end, seq, refused))
    return writes


def until(writes: Iterable[Write], place: int) -> list[Write]:
    """The writes as they were known when the journal had `place` entries."""
    known: list[Write] = []
    for write in writes:
        if write.started < place:
            if write.ended is not None and write.ended >= place:
                write = write._replace(ended=None, seq=None, refused=False)
            known.append(write)
    return known


@dataclass
class Promises:
    """What else the store has said that must stay true: durable cursors and given fences."""

    settled: list[tuple[str, Cursor]] = field(default_factory=list[tuple[str, Cursor]])
    fence: int = 0

    @classmethod
    def of(cls, journal: Sequence[Op]) -> Promises:
        promises = cls()
        # After a failed sync the kernel says to others that all is well: their `settle`
        # promises nothing then, and the docs say so.
        failed = any(op.kind == "syncfail" for op in journal)
        for op in journal:
            if op.kind == "settled" and not failed:
                promises.settled.append((op.detail[0], op.detail[1]))
            elif op.kind == "fence":
                promises.fence = max(promises.fence, op.detail[0])
        return promises


def judge(found: Found, writes: Sequence[Write], promises: Promises, parts: Parts) -> list[Broken]:
    """Every property that a crash state breaks."""
    problems = list(found.problems)
    for stream, cursor in promises.settled:
        numbers = {entry.seq for entry in found.streams.get(stream, ())}
        if cursor.seq and cursor.seq not in numbers | found.controls.get(stream, set()):
            problems.append(f"line {cursor.seq} of {stream} was settled and is gone")
    if found.fence is not None and found.fence <= promises.fence:
        problems.append(f"fence {found.fence} was given out again after {promises.fence}")
    mine = [write for write in writes if write.stream in parts.streams]
    seen = Observation(
        mine, found.streams, found.registers, found.torn, problems, found.recovery, found.views
    )
    late = [
        Broken("P1", f"{write.id} was acknowledged, but can be read only after somebody writes")
        for write in mine
        if write.acked and write.id not in found.at_once.get(write.stream, (write.id,))
    ]
    again = [
        Broken("P2", f"{write.id} was acknowledged, and it was handed out again")
        for write in mine
        if write.acked and write.stream == "done" and write.id.partition(" ")[2] in found.handed
    ]
    return broken(seen) + late + again

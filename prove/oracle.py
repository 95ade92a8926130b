"""What victims acknowledged, kept outside of their home, and what the home says afterwards.

`History` takes in what comes out of the victims' channels; `judge` opens the home as the next
process would, looks, writes, looks again and names every property that does not hold.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.primitives import CONTROL, Line
from prove.actors import (
    ACK,
    COUNT,
    DAYS,
    KINDS,
    LEASE,
    ROTATE_AT,
    SHARED,
    VIEWS,
    Calendar,
    own_log,
    tally,
)
from prove.properties import Broken, Entry, Observation, Write, broken

_IN_FLIGHT = 4
"""How many lines a writer may have attempted without an acknowledgement: one batch and one."""


@dataclass
class Life:
    """One victim, from its start to its end."""

    me: int
    number: int
    last: int = 0
    """Its newest attempt that was acknowledged."""
    since: float = 0.0
    """When that began.  What it attempted later did not begin before, and no more is known: of a
    batch the first line may be acknowledged, and the next one is as old."""


@dataclass
class History:
    """Every acknowledgement of one home."""

    writes: dict[str, list[Write]] = field(default_factory=dict[str, list[Write]])
    lives: dict[tuple[int, int], Life] = field(default_factory=dict[tuple[int, int], Life])
    counts: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Numbers taken from the counter, with begin and end."""
    fences: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Fencing numbers, with when they were got and how long they were surely held."""
    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """For each document replaced as a whole, what was tried; the acknowledged one is first."""
    complaints: list[str] = field(default_factory=list[str])
    """What victims said that was no acknowledgement."""
    acks: int = 0
    recoveries: int = 0
    fragments: int = 0
    """How many torn lines were in the logs after the last recovery."""

    def born(self, me: int, number: int) -> Life:
        return self.lives.setdefault((me, number), Life(me, number))

    def take(self, life: Life, packet: bytes, *, late: bool = False) -> None:
        """Take in one packet of a writer; one that is `late` proves an attempt and no more."""
        if packet.startswith(b"!"):
            if not late:
                self.complaints.append(packet[1:].decode(errors="replace"))
            return
        number, attempt, value, began, ended = ACK.unpack(packet)
        kind = KINDS[number]
        life.last, life.since = max(life.last, attempt), began
        if kind in ("shared", "own", "days"):
            stream = {"shared": SHARED, "days": DAYS}.get(kind) or own_log(life.me)
            name = f"{life.me}.{life.number}.{attempt}"
            self.append(Write(stream, name, began, ended, value if value > 0 else None), late=late)
        elif late:
            return
        elif kind == "count":
            self.counts.append((value, began, ended))
        elif kind == "lease":
            self.fences.append((value, ended, ended))
        else:
            self._held_until(value, began)
            return
        self.acks += not late

    def append(self, write: Write, *, late: bool = False) -> None:
        if late:
            write = write._replace(ended=None, seq=None)
        self.writes.setdefault(write.stream, []).append(write)

    def _held_until(self, fence: int, when: float) -> None:
        for index in range(len(self.fences) - 1, -1, -1):
            if self.fences[index][0] == fence:
                self.fences[index] = (fence, self.fences[index][1], when)
                return

    def in_flight(self, name: str) -> Write | None:
        """The attempt that a line may come from which nobody acknowledged."""
        try:
            me, number, attempt = map(int, name.split("."))
        except ValueError:
            return None
        life = self.lives.get((me, number))
        if life is None or not life.last < attempt <= life.last + _IN_FLIGHT:
            return None
        return Write("", name, life.since)


def judge(path: str, history: History) -> list[Broken]:
    """Recover a home and hold it against its history."""
    found = [Broken("P7", says) for says in history.complaints]
    try:
        with Home.open(path, clock=Calendar(0)) as home:
            found += _look(home)
            found += _go_on(home, history)
            found += _findings(home, history)
            for stream in history.writes:
                found += _stream(home, stream, history)
            for log, key in VIEWS.items():
                found += _view(home, log, key)
    except (HoldfastError, OSError) as error:
        found.append(Broken("P7", f"recovery failed: {type(error).__name__}: {error}"))
    return found


def _look(home: Home) -> Iterator[Broken]:
    """Before anybody writes: no stamp names a line that its log lacks."""
    for key in home.keys():
        if key.startswith("audit/") or not key.endswith(".json"):
            continue
        stamp = home.cell(key).peek()
        if stamp is not None and not home.log(stamp.log).contains(stamp.cursor):
            yield Broken("P6", f"{key} has seen line {stamp.cursor.seq}, which {stamp.log} lacks")


def _go_on(home: Home, history: History) -> Iterator[Broken]:
    """Write to everything that anybody may have written to before."""
    history.recoveries += 1
    _tell_audit(home.path, history.recoveries)
    own = {own_log(me) for me, _ in history.lives}
    for stream in sorted({SHARED, DAYS} | own | set(history.writes)):
        log = home.log(stream, rotate_at=ROTATE_AT)
        name, began = f"recovery.{history.recoveries}", time.monotonic()
        seq = log.append({"id": name}).seq
        history.append(Write(stream, name, began, time.monotonic(), seq))
        log.close()
    yield from _counter(home, history)
    yield from _leases(home, history)
    for key, texts in history.texts.items():
        yield from _whole(home, key, texts)
    for stream, key in VIEWS.items():
        log = home.log(stream, rotate_at=ROTATE_AT)
        view = home.view(key, log, tally())
        view.refresh()
        view.close()
        log.close()


def _tell_audit(path: str, number: int) -> None:
    with Home.open(path, clock=Calendar(100_000)) as later:
        log = later.log("audit")
        log.append({"event": "recovered", "detail": str(number)})
        log.close()


def _counter(home: Home, history: History) -> Iterator[Broken]:
    taken = sorted(history.counts)
    for (one, _, _), (other, _, _) in pairwise(taken):
        if one == other:
            yield Broken("P2", f"{COUNT}: two writers were given number {one}")
    by_end = sorted(history.counts, key=lambda count: count[2])
    yield from _growing(COUNT, by_end)
    text = home.document(COUNT).read()
    try:
        held = json.loads(text.data)["count"] if text else 0
    except ValueError:
        yield Broken("P3", f"{COUNT} is half-written: {text.data[:80] if text else b''!r}")
        return
    lost = [value for value, _, _ in taken if value > held]
    for value in lost:
        yield Broken("P1", f"{COUNT} was acknowledged with {value} and holds {held}")

    def change(old: bytes | None) -> bytes:
        return json.dumps({"count": (json.loads(old)["count"] if old else 0) + 1}).encode()

    home.document(COUNT).update(change)


def _growing(what: str, by_end: list[tuple[int, float, float]]) -> Iterator[Broken]:
    """What began after another one had ended was given a higher number."""
    highest, done = 0, 0
    for value, began, _ in sorted(by_end, key=lambda each: each[1]):
        while done < len(by_end) and by_end[done][2] < began:
            highest = max(highest, by_end[done][0])
            done += 1
        if value <= highest:
            yield Broken("P4", f"{what}: number {value} was given after {highest}")


def _leases(home: Home, history: History) -> Iterator[Broken]:
    held = sorted(history.fences)
    for (one, _, until), (other, since, _) in pairwise(held):
        if one == other:
            yield Broken("P2", f"{LEASE}: fencing number {one} was given twice")
        elif since < until:
            yield Broken("P4", f"{LEASE}: {other} was given while {one} was held")
    lease = home.lease(LEASE)
    fence = lease.acquire("recovery")
    lease.close()
    if held and fence <= held[-1][0]:
        yield Broken("P1", f"{LEASE}: {held[-1][0]} was given out, and now {fence}")
    history.fences = [(fence, 0.0, 0.0)]


def _whole(home: Home, key: str, texts: list[str]) -> Iterator[Broken]:
    text = home.document(key).read()
    held = text.data.decode(errors="replace") if text else None
    if held not in texts:
        yield Broken("P1", f"{key} was acknowledged with {texts[0][:40]!r} and holds {held!r:.60}")
    home.document(key).replace(texts[0].encode())
    texts[1:] = []


def _findings(home: Home, history: History) -> Iterator[Broken]:
    history.fragments = 0
    for finding in check(home):
        history.fragments += finding.kind == "bad_line"
        if finding.kind == "temporary":
            yield Broken("P7", f"{finding.key} is left after the next write")
        elif finding.kind not in HARMLESS:
            yield Broken("P6", f"{finding.kind}: {finding.key}: {finding.detail}")


def _stream(home: Home, stream: str, history: History) -> list[Broken]:
    writes = list(history.writes[stream])
    known = {write.id for write in writes}
    entries: list[Entry] = []
    misplaced: list[Broken] = []
    for line in home.log(stream).read():
        if not isinstance(line, Line) or CONTROL in line.record:
            continue
        name = str(line.record.get("id"))
        entries.append(Entry(name, line.seq))
        if line.record.get("after", (line.seq or 0) - 1) != (line.seq or 0) - 1:
            misplaced.append(Broken("P4", f"{name} was decided after another line than it stands"))
        if name not in known and (attempt := history.in_flight(name)):
            writes.append(attempt._replace(stream=stream))
            known.add(name)
    found = misplaced + broken(Observation(writes=writes, streams={stream: entries}))
    # What was not acknowledged is decided now: it is durable and has to stay, or it is not there.
    there, now = {entry.id for entry in entries}, time.monotonic()
    history.writes[stream] = [
        write._replace(ended=write.ended or now)
        for write in writes
        if write.ended or write.id in there
    ]
    return found


def _view(home: Home, log: str, key: str) -> Iterator[Broken]:
    shape = tally()
    state: Any = shape.initial()
    for line in home.log(log).read():
        if isinstance(line, Line) and CONTROL not in line.record:
            state = shape.fold(state, line)
    answer = home.view(key, home.log(log), tally()).read()
    shown = home.document(key).read()
    if answer != state:
        yield Broken("P8", f"{key} answers {answer}, its log says {state}")
    if state["lines"] and (shown is None or shown.data != shape.render(state)):
        yield Broken("P8", f"{key} shows {shown!r:.80}, its log says {state}")

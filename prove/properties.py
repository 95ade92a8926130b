"""The properties, once for all harnesses.

A harness turns whatever it did (a simulated crash, a kill, a power cut) into an
`Observation`: what was attempted, what was acknowledged and when, and what is there after
recovery.  `broken(observation)` names every property that does not hold.  Nothing here knows
of files or processes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Write(NamedTuple):
    """One line (or one new value of a register) that a writer tried to store.

    `started` and `ended` are instants on one clock of the harness; `ended` is None when no
    acknowledgement came before the fault.
    """

    stream: str
    id: str
    started: float
    ended: float | None = None
    seq: int | None = None
    """Where the acknowledgement says the line is."""
    refused: bool = False
    """At `ended` the caller was told that it was *not* stored."""

    @property
    def acked(self) -> bool:
        return self.ended is not None and not self.refused


class Entry(NamedTuple):
    """One line found after recovery."""

    id: str
    seq: int | None


@dataclass
class Observation:
    """What one case shows.  Leave out what the harness cannot see."""

    writes: Sequence[Write] = ()
    """Everything attempted, acknowledged or not."""
    streams: Mapping[str, Sequence[Entry]] = field(default_factory=dict[str, Sequence[Entry]])
    """For each stream its lines after recovery, in the order of reading."""
    registers: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """For each register (a document replaced whole) the id of the value it holds."""
    torn: Sequence[str] = ()
    """Objects that can be seen half-written."""
    problems: Sequence[str] = ()
    """What the store's own verification complains about, and stamps the log does not hold."""
    recovery: Sequence[str] = ()
    """What went wrong when recovery ran, ran again, or the next write was made."""
    views: Mapping[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    """For each view what it answers, and what a fold of the whole log gives."""


Check = Callable[[Observation], Iterable[str]]


class Property(NamedTuple):
    id: str
    says: str
    check: Check


class Broken(NamedTuple):
    property: str
    says: str

    def __str__(self) -> str:
        return f"{self.property}: {self.says}"


def broken(observation: Observation) -> list[Broken]:
    """Every property that the observation breaks."""
    return [Broken(prop.id, says) for prop in PROPERTIES for says in prop.check(observation)]


def lost_in(found: Iterable[Broken]) -> int:
    """How many acknowledged writes are gone, among what is broken."""
    return sum(one.property == "P1" for one in found)


# --- the checks -----------------------------------------------------------------------------


def _acked_present(seen: Observation) -> Iterator[str]:
    present = {stream: {entry.id for entry in lines} for stream, lines in seen.streams.items()}
    for write in seen.writes:
        if not write.acked:
            continue
        if write.stream in present:
            if write.id not in present[write.stream]:
                yield f"{write.id} was acknowledged in {write.stream} and is gone"
        elif write.stream in seen.registers:
            yield from _overtaken(seen, write)
        else:
            yield f"{write.id} was acknowledged, but {write.stream} is not there at all"


def _overtaken(seen: Observation, acked: Write) -> Iterator[str]:
    """A register may hold an acknowledged value, or one written at the same time or later."""
    held = seen.registers[acked.stream]
    if held == acked.id:
        return
    source = next((w for w in seen.writes if w.stream == acked.stream and w.id == held), None)
    older = source is None or (source.acked and (source.ended or 0) < acked.started)
    if older:
        yield f"{acked.id} was acknowledged in {acked.stream}, which holds {held}"


def _at_most_once(seen: Observation) -> Iterator[str]:
    for stream, lines in seen.streams.items():
        once: set[str] = set()
        for entry in lines:
            if entry.id in once:
                yield f"{entry.id} stands twice in {stream}"
            once.add(entry.id)


def _nothing_torn(seen: Observation) -> Iterator[str]:
    yield from seen.torn


def _in_order(seen: Observation) -> Iterator[str]:
    for stream, lines in seen.streams.items():
        numbers = [entry.seq for entry in lines if entry.seq is not None]
        for before, after in itertools.pairwise(numbers):
            if after <= before:
                yield f"{stream}: line {after} stands behind line {before}"
        yield from _acked_in_order(seen, stream, {entry.id: entry.seq for entry in lines})


def _acked_in_order(seen: Observation, stream: str, at: Mapping[str, int | None]) -> Iterator[str]:
    acked = sorted(
        (write.ended, write.id, at[write.id])
        for write in seen.writes
        if write.stream == stream and write.acked and at.get(write.id) is not None
    )
    ends = [end for end, _, _ in acked]
    highest: list[tuple[int, str]] = []
    for _, name, seq in acked:
        this = (seq or 0, name)
        highest.append(max(highest[-1], this) if highest else this)
    for write in seen.writes:
        if write.stream != stream or at.get(write.id) is None:
            continue
        mine = at[write.id] or 0
        if write.seq is not None and write.seq != mine:
            yield f"{write.id} was acknowledged as line {write.seq} of {stream}, but is {mine}"
        before = bisect_left(ends, write.started)
        if before and highest[before - 1][0] >= mine:
            seq, name = highest[before - 1]
            yield f"{write.id} began after {name} was acknowledged, but is {mine}, not after {seq}"


def _whole_or_absent(seen: Observation) -> Iterator[str]:
    tried: dict[str, set[str]] = {}
    for write in seen.writes:
        if not write.refused:
            tried.setdefault(write.stream, set()).add(write.id)
    for stream, lines in seen.streams.items():
        for entry in lines:
            if entry.id not in tried.get(stream, ()):
                yield f"{stream} holds {entry.id!r}, which nobody wrote or which was refused"
    for name, held in seen.registers.items():
        if held is not None and held not in tried.get(name, ()):
            yield f"{name} holds {held!r}, which nobody wrote or which was refused"


def _verifies(seen: Observation) -> Iterator[str]:
    yield from seen.problems


def _recovers(seen: Observation) -> Iterator[str]:
    yield from seen.recovery


def _view_is_fold(seen: Observation) -> Iterator[str]:
    for name, (shown, folded) in seen.views.items():
        if shown != folded:
            yield f"view {name} answers {shown!r}, the log says {folded!r}"


PROPERTIES = (
    Property("P1", "What was acknowledged is there after recovery.", _acked_present),
    Property("P2", "Nothing is there twice.", _at_most_once),
    Property("P3", "No object can be seen half-written.", _nothing_torn),
    Property(
        "P4",
        "The order of a stream is the order of its numbers, and what began after an "
        "acknowledgement stands behind what was acknowledged.",
        _in_order,
    ),
    Property(
        "P5",
        "What was not acknowledged is whole or absent; what was refused is absent.",
        _whole_or_absent,
    ),
    Property("P6", "The log verifies, and no stamp names a line it lacks.", _verifies),
    Property(
        "P7",
        "Recovery ends, run twice it gives the same bytes, and writing goes on behind it.",
        _recovers,
    ),
    Property("P8", "A view answers what a fold of the whole log gives.", _view_is_fold),
)

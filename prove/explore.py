"""One scenario with all its crash states: play, cut the power everywhere, recover, judge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from prove.crash import Disk
from prove.properties import Broken, Write, lost_in
from prove.recovery import (
    Found,
    Parts,
    Promises,
    judge,
    recover,
    until,
    writes_at_start,
    writes_of,
)
from prove.schedule import Stuck
from prove.sim import Fault, Op, State
from prove.workloads import Run, Scenario, play

_PROMISES = frozenset({"ack", "refuse", "settled", "fence"})
_SYNCS = frozenset({"sync", "dirsync", "start"})
_LATER = 1_000_000
"""Places in the journal of a recovery come after all places of the run before it."""


_PROMISED_EVEN_THEN = ("P1", "P2", "P3", "P4", "P5")


class Limits(NamedTuple):
    """How much of a scenario is looked at."""

    states: int = 24
    """Crash states at each place of an undisturbed run."""
    states_after_fault: int = 6
    kills: int = 4
    """Places at which one process is killed; -1 for every call of every process."""
    errors: int = 4
    """Calls that fail; -1 for every one."""
    deep: int = 2
    """Crash states of each run whose recovery is interrupted by a crash, too."""
    deep_states: int = 3
    levels: int = 1
    """How many recoveries in a row are interrupted before one may end."""
    strict: bool = False
    """Whether a disk that failed a sync has to keep more than what was acknowledged."""


@dataclass
class Tally:
    """What was seen; `disks` are the distinct states that were recovered."""

    strict: bool = False

    disks: set[bytes] = field(default_factory=set[bytes])
    bad: set[bytes] = field(default_factory=set[bytes])
    unfired: set[bytes] = field(default_factory=set[bytes])
    judged: int = 0
    deep: int = 0
    in_recovery: dict[int, set[bytes]] = field(default_factory=dict[int, set[bytes]])
    """Distinct states that a crash of recovery number 1, 2, … left; it had changed something."""
    runs: int = 0
    kills: int = 0
    errors: int = 0
    lost: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    """How often each kind of complaint was made."""
    failures: list[tuple[str, str, tuple[str, ...]]] = field(
        default_factory=list[tuple[str, str, tuple[str, ...]]]
    )

    def fail(self, scenario: Scenario, says: str, trace: tuple[str, ...] = ()) -> None:
        self.kinds[_kind(says)] += 1
        if self.kinds[_kind(says)] <= 2:
            self.failures.append((str(scenario), says, trace))

    def merge(self, other: Tally) -> None:
        self.disks |= other.disks
        self.bad |= other.bad
        self.unfired |= other.unfired
        for level, disks in other.in_recovery.items():
            self.in_recovery.setdefault(level, set()).update(disks)
        for name in ("judged", "deep", "runs", "kills", "errors", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures += [one for one in other.failures if self.kinds[_kind(one[1])] < 2]
        self.kinds += other.kinds


def _kind(says: str) -> str:
    """A complaint without its numbers and names."""
    return re.sub(r"\d+", "N", says)[:60]


def explore(scenario: Scenario, limits: Limits) -> Tally:
    """The scenario undisturbed, then with a kill, then with an error, at various calls."""
    tally, memo = Tally(strict=limits.strict), Memo()
    if scenario.fault is not None:
        _crash_everywhere(scenario, limits, tally, memo)
        return tally
    run = _crash_everywhere(scenario, limits, tally, memo)
    if run is None:
        return tally
    rng = Random(f"faults|{scenario}")
    for fault in _sample(list(kills(run)), limits.kills, rng):
        tally.kills += 1
        _crash_everywhere(scenario._replace(fault=fault), limits, tally, memo)
    for fault in _sample(list(errors(run)), limits.errors, rng):
        tally.errors += 1
        _crash_everywhere(scenario._replace(fault=fault), limits, tally, memo)
    return tally


def _sample(faults: list[Fault], most: int, rng: Random) -> list[Fault]:
    return faults if most < 0 or len(faults) <= most else rng.sample(faults, most)


def kills(run: Run) -> Iterator[Fault]:
    """A kill at every call of every process, and in the middle of every write."""
    for process, calls in enumerate(run.calls):
        for at, kind in enumerate(calls):
            yield Fault(process, at, "kill")
            if kind in ("write", "pwrite"):
                yield Fault(process, at, "half")


_ERRORS: dict[str, tuple[tuple[str, int], ...]] = {
    "write": (("ENOSPC", 1), ("ENOSPC", 6), ("EIO", 1)),
    "pwrite": (("ENOSPC", 1), ("EIO", 1)),
    "sync": (("EIO", 1),),
    "dirsync": (("EIO", 1),),
    "truncate": (("EIO", 1),),
    "open": (("EMFILE", 1), ("EIO", 1)),
    "create": (("ENOSPC", 1), ("EMFILE", 1), ("EIO", 1)),
    "opendir": (("EMFILE", 1),),
    "mkdir": (("ENOSPC", 1),),
    "link": (("ENOSPC", 1), ("EIO", 1)),
    "rename": (("ENOSPC", 1), ("EIO", 1)),
    "exchange": (("ENOSYS", 1), ("EIO", 1)),
    "move": (("ENOSPC", 1), ("EIO", 1)),
    "unlink": (("EIO", 1),),
    "pread": (("EIO", 1),),
    "stat": (("EIO", 1),),
    "names": (("EIO", 1),),
}


def errors(run: Run) -> Iterator[Fault]:
    """Every error that every call can give."""
    for process, calls in enumerate(run.calls):
        for at, kind in enumerate(calls):
            for name, times in _ERRORS.get(kind, ()):
                yield Fault(process, at, name, times)


# --- one run --------------------------------------------------------------------------------


Memo = dict[tuple[bytes, bool, int], Found]
"""What recovery found, by disk, tolerance and depth; the same for all runs of a scenario."""


class _Judge:
    """Recovers each distinct disk once and judges it for each set of promises."""

    def __init__(self, run: Run, tally: Tally, memo: Memo) -> None:
        self.run, self.scenario, self.tally = run, run.scenario, tally
        self.parts = parts = Parts.of(run.scenario)
        # One disk in four is looked at all over, every second one is written to twice.
        self._parts = (
            replace(parts, check_all=True),
            parts,
            replace(parts, write_twice=False),
            replace(parts, write_twice=False),
        )
        self._tolerate = any(op.kind == "syncfail" for op in run.journal)
        self._memo = memo
        self._judged: set[tuple[bytes, int]] = set()

    def case(
        self, state: State, writes: list[Write], promises: Promises, signature: int, place: int
    ) -> Found | None:
        """Judge one state; what was found if it is one not judged before."""
        digest = state.digest()
        if (digest, signature) in self._judged:
            return None
        self._judged.add((digest, signature))
        found = self.recover(state, digest, depth=1)
        self.settle(digest, judge(found, writes, promises, self.parts), place, state)
        return found

    def recover(self, state: State, digest: bytes, depth: int) -> Found:
        key = (digest, self._tolerate, depth)
        found = self._memo.get(key)
        if found is None:
            parts = self._parts[digest[0] % len(self._parts)]
            found = recover(state, self.scenario, parts, tolerate=self._tolerate, depth=depth)
            self._memo[key] = found
        return found

    def settle(self, digest: bytes, broken: list[Broken], place: int, state: State) -> None:
        tally = self.tally
        tally.judged += 1
        tally.disks.add(digest)
        if self.scenario.fault and not self.run.fired:
            tally.unfired.add(digest)
        if self._tolerate and not tally.strict:
            # The kernel tells of a failed sync once, and says to whoever asks later that all is
            # well: what was acknowledged has to be there, whole and once; no more is promised.
            broken = [each for each in broken if each.property in _PROMISED_EVEN_THEN]
        if broken:
            tally.bad.add(digest)
            tally.lost += lost_in(broken)
            tally.fail(self.scenario, str(broken[0]), _trace(self.run.journal[:place], state))


def _trace(journal: list[Op], state: State) -> tuple[str, ...]:
    rows = [str(op) for op in journal]
    rows += [f"left: {path} {_shown(data)}" for path, data in sorted(state.listing().items())]
    return tuple(rows)


def _shown(data: bytes | None) -> str:
    return "/" if data is None else repr(data)


def _crash_everywhere(scenario: Scenario, limits: Limits, tally: Tally, memo: Memo) -> Run | None:
    try:
        run = play(scenario)
    except (Stuck, AssertionError, LookupError, ValueError, TypeError, OSError) as error:
        tally.fail(scenario, f"P7: {type(error).__name__}: {error}")
        tally.bad.add(str(scenario).encode())
        tally.disks.add(str(scenario).encode())
        return None
    tally.runs += 1
    for says in _complaints(run):
        tally.fail(scenario, f"P7: {says}", tuple(str(op) for op in run.journal))
        tally.bad.add(str(scenario).encode())
        tally.disks.add(str(scenario).encode())
    if scenario.fault is not None:
        limits = limits._replace(states=limits.states_after_fault)
    _cut_power(run, limits, tally, memo)
    return run


def _cut_power(run: Run, limits: Limits, tally: Tally, memo: Memo) -> None:
    rng = Random(f"crash|{run.scenario}")
    disk = Disk(run.before, rng)
    judge_of = _Judge(run, tally, memo)
    known = writes_at_start(run.scenario) + writes_of(run.journal)
    writes, promises, signature = until(known, 0), Promises(), 0
    deep: list[tuple[Found, list[Write], Promises]] = []
    for place, op in enumerate(run.journal, 1):
        disk.apply(op)
        if op.kind in _PROMISES:
            signature += 1
            promises = Promises.of(run.journal[:place])
        if op.kind in _SYNCS or place <= run.fired_at:
            continue  # nothing that was not there before
        writes = until(known, place)
        for state in disk.states(limits.states):
            found = judge_of.case(state, writes, promises, signature, place)
            if found is not None:
                _keep_some(deep, (found, writes, promises), limits.deep, rng)
    for found, before, held in deep:
        _crash_again(judge_of, found, before, held, limits, rng)


def _keep_some(kept: list, case: tuple, most: int, rng: Random) -> None:  # type: ignore[type-arg]
    """Reservoir of the cases that are crashed a second time."""
    if len(kept) < most:
        kept.append(case)
    elif most and rng.random() < 0.02:
        kept[rng.randrange(most)] = case


def _crash_again(
    judge_of: _Judge,
    found: Found,
    writes: list[Write],
    promises: Promises,
    limits: Limits,
    rng: Random,
    level: int = 1,
) -> None:
    """Crash recovery number `level` at every place; for some of the states, the next one too."""
    disk = Disk(found.state, rng)
    began_with = found.state.digest()
    later = writes_of(found.journal, level * _LATER)
    seen: set[bytes] = set()
    deeper: list[tuple[Found, list[Write], Promises]] = []
    for place, op in enumerate(found.journal, 1):
        disk.apply(op)
        if op.kind in _SYNCS:
            continue
        both = writes + until(later, level * _LATER + place)
        more = Promises.of(found.journal[:place])
        held = Promises(promises.settled + more.settled, max(promises.fence, more.fence))
        for again in disk.states(limits.deep_states):
            digest = again.digest()
            if digest in seen:
                continue
            seen.add(digest)
            after = judge_of.recover(again, digest, depth=level + 1)
            judge_of.tally.deep += 1
            if digest != began_with:
                judge_of.tally.in_recovery.setdefault(level, set()).add(digest)
            judge_of.settle(digest, judge(after, both, held, judge_of.parts), 0, again)
            if level < limits.levels:
                _keep_some(deeper, (after, both, held), limits.deep, rng)
    for after, both, held in deeper:
        _crash_again(judge_of, after, both, held, limits, rng, level + 1)


# --- checks on the record of operations -----------------------------------------------------


def _complaints(run: Run) -> Iterator[str]:
    yield from run.surprises
    yield from retried_syncs(run.journal)
    yield from views_gone_back(run.journal)
    yield from not_resumed(run)
    yield from disturbed(run)


def retried_syncs(journal: list[Op]) -> Iterator[str]:
    """Bytes whose sync failed are only safe when written again, or elsewhere."""
    dirty: dict[tuple[int, int], list[tuple[int, int]]] = {}
    doubtful: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for op in journal:
        here = (op.process, op.inode)
        match op.kind:
            case "write":
                low, high = op.detail[0], op.detail[0] + len(op.detail[1])
                dirty.setdefault(here, []).append((low, high))
                if here in doubtful:
                    doubtful[here] = [r for r in doubtful[here] if r[0] < low or r[1] > high]
            case "syncfail":
                doubtful[here] = dirty.pop(here, [])
            case "sync":
                dirty = {key: spans for key, spans in dirty.items() if key[1] != op.inode}
                if doubtful.get(here):
                    yield f"p{op.process} synced file #{op.inode} again after its sync had failed"
            case _:
                pass


def views_gone_back(journal: list[Op]) -> Iterator[str]:
    """A stamp replaced by one of the same version that has seen less."""
    written: dict[int, bytes] = {}
    newest, kind = 0, b""
    for op in journal:
        if op.kind == "write":
            written[op.inode] = written.get(op.inode, b"") + op.detail[1]
        elif op.kind == "rename" and op.detail[1].endswith(".view"):
            found = _STAMP.search(written.get(op.detail[2], b""))
            version, seen = (found[1], int(found[2])) if found else (kind, newest)
            if version == kind and seen < newest:
                yield f"the view went back from line {newest} to {seen}"
            newest, kind = seen, version


_STAMP = re.compile(rb'"version":(\d+),.*?"cursor":\[(\d+),', re.DOTALL)


def disturbed(run: Run) -> Iterator[str]:
    """What nobody interferes with is acknowledged: the death of another is no reason not to.

    A failed sync is: whoever has the file open is told of it.
    """
    fault = run.scenario.fault
    if any(op.kind == "syncfail" for op in run.journal):
        return
    pending: dict[str, None] = {}
    for op in run.journal:
        if fault is not None and op.process == fault.process:
            continue
        if op.kind == "start" and op.detail[0] != "tasks":
            pending |= dict.fromkeys(op.detail[1])
        elif op.kind == "ack":
            for name in op.detail[1]:
                pending.pop(name, None)
    for name in pending:
        yield f"{name} was not acknowledged although nothing hindered its writer"


def not_resumed(run: Run) -> Iterator[str]:
    """After one error, the same process goes on: what it begins later is acknowledged.

    Of a failed sync each descriptor of the file is told once, so that what comes next may be
    indeterminate; it must not be refused.
    """
    fault = run.scenario.fault
    if fault is None or fault.kind in ("kill", "half") or fault.times > 1:
        return
    told_again = any(op.kind == "syncfail" for op in run.journal)
    pending: dict[str, None] = {}
    refused: set[str] = set()
    for place, op in enumerate(run.journal):
        if op.process != fault.process:
            continue
        if op.kind == "start" and place >= run.fired_at and op.detail[0] != "tasks":
            pending |= dict.fromkeys(op.detail[1])
        elif op.kind == "ack":
            for name in op.detail[1]:
                pending.pop(name, None)
        elif op.kind == "refuse":
            refused |= set(op.detail[1])
    for name in pending:
        if name in refused or not told_again:
            yield f"{name} began after the only error and was not acknowledged"

"""recovery-crash: the power goes again while a home recovers, and again in the next recovery.

A run of `crashstates` is cut; the first process afterwards looks, mends what it must and
writes; at each of its changes the power is cut once more, and for some of the disks that
leaves, the recovery after that is cut as well.  Whatever is left must recover with everything
in it that anybody, the interrupted recoveries included, had acknowledged.

A case is one distinct disk.  It fired if it is not the disk that the interrupted recovery had
found: that one had changed something, and not lived to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from holdfast.store.appender import Appender
from prove.crashstates import explore_all, scenarios
from prove.explore import Limits, Tally, explore
from prove.frame import Control, Harness, Result
from prove.workloads import Scenario

HARNESS = Harness(
    name="recovery-crash",
    proves="a recovery that is itself cut off, twice in a row, loses nothing and can be repeated",
    targets={"quick": 1_500, "ci": 15_000, "full": 100_000},
    unit="distinct states left by a crash in a recovery",
)
_DEPTH = 2
_LIMITS = Limits(
    states=6, states_after_fault=3, kills=3, errors=2, deep=3, deep_states=6, levels=_DEPTH
)


def run(tier: str, seed: int, case: str | None = None) -> Result:
    started = time.monotonic()
    if case is not None:
        tally = explore(Scenario.parse(case), _LIMITS)
    else:
        target = HARNESS.targets[tier]
        chosen = ((scenario, _LIMITS) for scenario, _ in scenarios(tier, seed))

        def enough(total: Tally) -> bool:
            return len(_interrupted(total)) >= target

        tally = explore_all(chosen, 0, enough, HARNESS.name)
    result = Result(HARNESS.name, tier)
    _count(result, tally)
    spent = time.monotonic() - started
    result.details = {
        "by_depth": {level: len(disks) for level, disks in sorted(tally.in_recovery.items())},
        "states_per_second": round(result.tried / max(spent, 0.001)),
        "recoveries": tally.judged,
        "runs": tally.runs,
        "complaints": dict(tally.kinds),
    }
    return result


def _interrupted(tally: Tally) -> set[bytes]:
    return set[bytes]().union(*tally.in_recovery.values())


def _count(result: Result, tally: Tally) -> None:
    """Disks that an uninterrupted recovery found bad count too: they were judged on the way."""
    cases = _interrupted(tally) | tally.bad
    result.tried = len(cases)
    result.fired = len(cases - tally.unfired)
    for case, says, trace in tally.failures:
        result.add_failure(case, says, trace)
    result.failed = len(tally.bad)
    result.survived = result.tried - result.failed
    result.lost = tally.lost


# --- the control ----------------------------------------------------------------------------


def control(seed: int) -> list[Control]:
    """Recoveries that do well unless somebody interrupts them."""
    return [
        _control("rewrites a torn log in place", _rewrite, ("a", "a"), seed),
        _control("drops the last line of a torn log", _drop_line, ("aa", "a"), seed),
    ]


def _control(
    name: str, take_over: Callable[..., None], words: tuple[str, ...], seed: int
) -> Control:
    rng = Random(f"control|{seed}")
    judged = 0
    with _patched(take_over):
        for _ in range(12):
            scenario = Scenario(words, "torn", rng.randrange(1 << 30))
            tally = explore(scenario, _LIMITS._replace(kills=0, errors=0))
            judged += tally.judged
            if tally.bad & _interrupted(tally):
                return Control(name, caught=True, detail=tally.failures[0][1])
    return Control(name, caught=False, detail=f"{judged} states and no complaint")


@contextmanager
def _patched(take_over: Callable[..., None]) -> Iterator[None]:
    sound = Appender._take_over

    def broken(self: Any, active: Any, tail: Any) -> None:
        if tail.torn and tail.gap is not None:
            tail = take_over(self._vfs, active.fd, tail)
        sound(self, active, tail)

    Appender._take_over = broken
    try:
        yield
    finally:
        Appender._take_over = sound


def _rewrite(vfs: Any, fd: int, tail: Any) -> Any:
    """Put the good lines in place of all of it; the same bytes, for a while not there."""
    good = vfs.pread(fd, tail.offset, 0)
    vfs.truncate(fd, 0)
    vfs.write(fd, good)
    return tail._replace(gap=None, torn=False)


def _drop_line(vfs: Any, fd: int, tail: Any) -> Any:
    """Take the last line for a part of the fragment behind it."""
    ends = vfs.pread(fd, max(tail.offset - 1, 0), 0).rfind(b"\n") + 1
    vfs.truncate(fd, ends)
    return tail._replace(gap=None, torn=False, offset=ends)

"""Every crash state of short workloads, in memory.

Two or three simulated processes run one to three operations each, interleaved call by call.
At each place the power is cut in every way that the weak model of `crash` allows; one process
may have been killed or have met an error before.  Each distinct disk is then opened with the
store's own code, judged by the properties, written to again, and for some of them the power
is cut once more while that happens.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from prove import truth, twins
from prove.explore import Limits, Tally, explore
from prove.frame import Control, Harness, Result
from prove.workloads import OPERATIONS, STARTS, Scenario

HARNESS = Harness(
    name="crashstates",
    proves="no acknowledged write is lost or torn in the simulated crash states of short workloads",
    targets={"quick": 6_000, "ci": 45_000, "full": 1_000_000},
    unit="distinct crash states",
)

LETTERS = "".join(OPERATIONS)
THEMES = ("agtvwsxz", "edbsz", "ucr", "l", "mk")
"""Letters that work on the same objects."""
WHOLE = 100 << 20
ROTATE = 400
"""Bytes after which a log goes on in the next file: about two lines."""


class Plan(NamedTuple):
    """What a tier looks at."""

    core: Limits
    """For the scenarios named below."""
    other: Limits
    """For the words made by chance or in turn."""
    all_words: bool
    """Whether the first writer goes through every word of up to three letters."""


PLANS = {
    "quick": Plan(Limits(12, 2, 6, 6, 1, 1), Limits(16, 4, 2, 2, 1, 2), all_words=False),
    "ci": Plan(Limits(24, 3, 20, 20, 2, 2), Limits(16, 4, 3, 3, 1, 2), all_words=False),
    "full": Plan(Limits(48, 6, -1, -1, 4, 3), Limits(10, 4, 1, 1, 1, 2), all_words=True),
}

# Races that once broke a store, ours or another's.
CORE = (
    ("e,e", "empty"),  # two make the first day file
    ("ed,de", "lines"),  # two cross midnight together
    ("eb,de", "lines"),  # one clock goes back
    ("a,a", "empty"),  # two make the first segment
    ("ag,ga", "torn"),  # both find a torn tail
    ("ag,ta", "nul"),  # both find NULs
    ("ag+ga,ta", "lines"),  # threads share a sync
    ("aa+aa,ag", "empty"),
    ("gaz,za", "lines"),  # two pack, one writes on
    ("vaz,w", "lines"),  # a view of lines that are packed
    ("dz,ze", "torn"),
    ("u,u", "empty"),  # two make the first document
    ("uc,cu", "lines"),
    ("r,rr", "empty"),
    ("av,w", "empty"),  # a view of lines that another wrote
    ("va,wv", "lines"),
    ("as,sa", "empty"),
    ("l,l", "empty"),
    ("lal,l", "lines"),
    ("at,ut", "unlinked"),  # the lock files are gone
    ("gxg,t,as", "nul"),  # one cannot begin a segment, another does; then the lock file goes
    ("g,w,s", "lines"),
    ("m,m", "empty"),  # two make the mailbox
    ("mk,km", "lines"),  # both want the same message
    ("mkk,mk", "empty"),
)


_TRUTHS = ("twins", "strace")
"""Cases that compare the simulated disk with a real one."""


def run(tier: str, seed: int, case: str | None = None) -> Result:
    started = time.monotonic()
    result = Result(HARNESS.name, tier)
    if case in _TRUTHS:
        _check_truth(result, seed)
        return result
    if case is not None:
        tally = explore(Scenario.parse(case), PLANS["full"].core)
    else:
        tally = _explore_all(tier, seed)
    _count(result, tally)
    spent = time.monotonic() - started
    result.details |= {
        "states_per_second": round(len(tally.disks) / max(spent, 0.001)),
        "judged": tally.judged,
        "in_recovery": tally.deep,
        "runs": tally.runs,
        "kills": tally.kills,
        "errors": tally.errors,
        "processes": _workers(),
        "complaints": dict(tally.kinds),
    }
    if case is None:
        _check_truth(result, seed)
    return result


def _count(result: Result, tally: Tally) -> None:
    result.tried = len(tally.disks)
    result.fired = result.tried - len(tally.unfired)
    result.failed = len(tally.bad)
    result.survived = result.tried - result.failed
    result.lost = tally.lost
    for case, says, trace in tally.failures:
        result.add_failure(case, says, trace)
    result.failed = len(tally.bad)


def _check_truth(result: Result, seed: int) -> None:
    """The simulator must do what really happens."""
    _compared(result, "twins", twins.differences(seed))
    if shutil.which("strace") is None:
        result.details["strace"] = "not checked: strace is not here"
        print("crashstates: strace is not here, the journal was not compared", file=sys.stderr)
    else:
        _compared(result, "strace", truth.differences())


def _compared(result: Result, name: str, differences: list[str]) -> None:
    result.tried += 1
    result.fired += 1
    result.details[name] = differences or "the same calls, results and errors"
    if differences:
        result.add_failure(name, f"the real file system differs: {differences[0]}")
    else:
        result.survived += 1


# --- the scenarios --------------------------------------------------------------------------


def scenarios(tier: str, seed: int) -> Iterator[tuple[Scenario, Limits]]:
    """Without end: first the named races, then words in turn or by chance."""
    plan = PLANS[tier]
    rng = Random(f"scenarios|{seed}")
    for words, start in CORE:
        for rotate_at in (WHOLE, ROTATE):
            scenario = Scenario(
                tuple(words.split(",")),
                start,
                rng.randrange(1 << 30),
                rotate_at,
                rng.random() < 0.5,
            )
            yield scenario, plan.core
    words = ["".join(word) for n in (1, 2, 3) for word in itertools.product(LETTERS, repeat=n)]
    if plan.all_words:
        yield from ((_around(word, rng), plan.other) for word in words)
    while True:
        yield _around(rng.choice(words), rng), plan.other


def required(tier: str) -> int:
    """How many scenarios have to be looked at however many states there are."""
    every = sum(len(LETTERS) ** n for n in (1, 2, 3)) if PLANS[tier].all_words else 0
    return 2 * len(CORE) + every


def _around(word: str, rng: Random) -> Scenario:
    """A scenario in which one writer works through `word`, and others mostly on the same."""
    same = "".join(theme for theme in THEMES if set(theme) & set(word))
    letters = same if rng.random() < 0.8 else LETTERS
    others = [_word(letters, rng) for _ in range(rng.choice((1, 1, 1, 2)))]
    if rng.random() < 0.15:
        word = f"{word}+{_word(letters, rng)}"
    return Scenario(
        (word, *others),
        rng.choice(STARTS),
        rng.randrange(1 << 30),
        rng.choice((WHOLE, WHOLE, ROTATE)),
        rng.random() < 0.5,
    )


def _word(letters: str, rng: Random) -> str:
    return "".join(rng.choices(letters, k=rng.choice((1, 2, 2, 3))))


# --- running --------------------------------------------------------------------------------


def _workers() -> int:
    return len(os.sched_getaffinity(0))


def _explore_all(tier: str, seed: int) -> Tally:
    target = HARNESS.targets[tier]
    todo = scenarios(tier, seed)
    return explore_all(todo, required(tier), lambda total: len(total.disks) >= target)


def explore_all(
    todo: Iterator[tuple[Scenario, Limits]],
    least: int,
    enough: Callable[[Tally], bool],
    name: str = HARNESS.name,
) -> Tally:
    """At least so many of the scenarios, and more until there is enough, on all cores."""
    total = Tally()
    done, told = 0, time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Pool(_workers()) as pool:
        while done < least or not enough(total):
            batch = list(itertools.islice(todo, least - done if done < least else 2 * _workers()))
            for tally in pool.imap_unordered(_explore, batch, chunksize=1):
                total.merge(tally)
                told = _tell(name, total, told)
            done += len(batch)
    return total


def _tell(name: str, total: Tally, told: float) -> float:
    """Say every minute how far a long run is."""
    now = time.monotonic()
    if now - told < 60.0:
        return told
    seen = f"{len(total.disks)} states of {total.runs} runs, {len(total.bad)} bad"
    print(f"{name}: {seen}", file=sys.stderr, flush=True)
    return now


def _explore(job: tuple[Scenario, Limits]) -> Tally:
    return explore(*job)


# --- the control ----------------------------------------------------------------------------


def control(seed: int) -> list[Control]:
    """The same checks on machines that only pretend: each must be caught."""
    return [_control(lie, words, seed) for lie, words in CONTROLS]


CONTROLS = (
    ("sync", ("aa", "a")),
    ("dirsync", ("e", "e")),
    ("dirsync", ("u", "u")),
    ("sync", ("u", "r")),
    ("sync", ("a", "w")),
    ("lock", ("ga", "ag")),
    ("lock", ("uu", "uu")),
    ("sync", ("m", "m")),
    ("dirsync", ("mk", "mk")),
)


def _control(lie: str, words: tuple[str, ...], seed: int) -> Control:
    name = f"{lie} is a lie, {','.join(words)}"
    rng = Random(f"control|{seed}")
    judged = 0
    for _ in range(12):
        scenario = Scenario(words, "empty", rng.randrange(1 << 30), lies=lie)
        tally = explore(scenario, Limits(16, 0, 0, 0, 0, 0))
        judged += tally.judged
        if tally.bad:
            return Control(name, caught=True, detail=tally.failures[0][1])
    return Control(name, caught=False, detail=f"{judged} states and no complaint")

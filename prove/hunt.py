"""Look for a broken property in a few scenarios; what the mutants are hunted with.

    python -m prove.hunt 'ag,ta torn kills' …

A hunt names the words, the start, and any of: `rotate` (files of two lines), `kills`,
`errors` (a fault at every call), `few` (crash states at each place), `x30` (interleavings).
`eio:vfs/lease/*/once` instead tries all cases of a harness that match, with its own judgement.
Stops at the first complaint with exit status 3; 0 means that all of it was clean.
"""

from __future__ import annotations

import importlib
import sys
import time

from prove.crashstates import ROTATE, WHOLE
from prove.explore import Limits, Tally, explore
from prove.frame import Result
from prove.workloads import Scenario

CAUGHT = 3
_TRIES = 8


def scenarios_of(text: str) -> tuple[list[Scenario], Limits]:
    """The scenarios of one hunt, and how much of each is looked at."""
    words, start, *options = text.split()
    tries = next((int(o[1:]) for o in options if o[0] == "x" and o[1:].isdecimal()), _TRIES)
    rotate_at = ROTATE if "rotate" in options else WHOLE
    kills = -1 if "kills" in options else 0
    errors = -1 if "errors" in options else 0
    states = 4 if kills or errors else 24
    limits = Limits(states, 6, kills, errors, 0, 0, strict=True)
    if "few" in options:
        limits = limits._replace(states=2, states_after_fault=3)
    split = tuple(words.split(","))
    return [Scenario(split, start, n, rotate_at, n % 2 == 1) for n in range(tries)], limits


def hunt(text: str) -> Tally:
    """All scenarios of a hunt, until one is bad."""
    total = Tally()
    scenarios, limits = scenarios_of(text)
    for scenario in scenarios:
        total.merge(explore(scenario, limits))
        if total.bad:
            break
    return total


def cases_of(text: str) -> Result:
    """The cases of another harness, by its name and a pattern."""
    name, _, pattern = text.partition(":")
    return importlib.import_module(f"prove.{name}").run("quick", 0, pattern)


def main(hunts: list[str]) -> int:
    started = time.monotonic()
    judged = 0
    for text in hunts:
        if ":" in text:
            result = cases_of(text)
            judged += result.tried
            if result.failed:
                print(f"caught by `{text}`: {result.failures[0].says}")
                return CAUGHT
            continue
        tally = hunt(text)
        judged += tally.judged
        if tally.bad:
            case, says, _ = tally.failures[0]
            print(f"caught by `{text}` after {judged} states: {says} [{case}]")
            return CAUGHT
    print(f"clean: {judged} states in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

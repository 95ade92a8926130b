"""Look for a broken property in a few scenarios; what the mutants are hunted with.

    python -m prove.hunt 'ag,ta torn kills' 'harness fuzz' …

A hunt names the words, the start, and any of: `rotate` (files of two lines), `kills`,
`errors` (a fault at every call), `few` (crash states at each place), `x30` (interleavings),
`again` (recoveries are cut off as well).  Or it names another harness, of which the quick tier
or the cases of a pattern are run: `harness eio vfs/lease/*/once`.
Stops at the first complaint with exit status 3; 0 means that all of it was clean.
"""

from __future__ import annotations

import sys
import time

from prove import frame
from prove.crashstates import ROTATE, WHOLE
from prove.explore import Limits, Tally, explore
from prove.workloads import Scenario

CAUGHT = 3
_TRIES = 8
_SEED = 1


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
    if "again" in options:
        limits = limits._replace(deep=3, deep_states=6, levels=2)
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


def run_harness(name: str, case: str = "") -> Tally:
    """The quick tier of a harness; whatever it finds fault with, or fails over, is a catch."""
    total = Tally()
    try:
        result = frame.discover()[name].run("quick", _SEED, case=case or None)
        total.judged = result.tried
        found = [(case, says, trace) for case, says, trace in result.failures]
    except Exception as error:
        found = [("-", f"{type(error).__name__}: {error}", ())]
    total.failures += found
    total.bad |= {case.encode() for case, _, _ in found}
    return total


def main(hunts: list[str]) -> int:
    started = time.monotonic()
    judged = 0
    for text in hunts:
        what, *which = text.split()
        tally = run_harness(*which) if what == "harness" else hunt(text)
        judged += tally.judged
        if tally.bad:
            case, says, _ = tally.failures[0]
            print(f"caught by `{text}` after {judged} states: {says} [{case}]")
            return CAUGHT
    print(f"clean: {judged} states in {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

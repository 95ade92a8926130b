"""heldout: three protocol bugs that no other harness was made for have to be seen by a power cut.

Each bug in `prove/heldout` is a change to the source.  It is applied to a copy; the cuts of
`powercut` run on the copy, every scenario in turn, with a seed that nobody knew before; one of
them has to break a property, after acknowledgements and a cut that provably happened.  The
source as it is has to pass the very same cuts.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import Any

from prove import frame, powercut
from prove.disk import TOOLS, cannot_mount
from prove.frame import Control, Harness, Result
from prove.mutants import HELD_OUT, Mutant, copy_source, load
from prove.powercut import Cut

HARNESS = Harness(
    name="heldout",
    proves="Held-out protocol bugs are seen by power cuts on a mounted file system.",
    targets={"quick": 3, "ci": 3, "full": 9},
    unit="mutants",
    tools=TOOLS,
    root=True,
    missing=lambda tier: cannot_mount(),
)
_SEEDS = {"quick": 1, "ci": 1, "full": 3}
_GROUPS = 3
"""How often every scenario is played before a mutant counts as missed."""
_KIND = "ext4"


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    shown: list[dict[str, Any]] = []
    for _ in range(_SEEDS[tier]):
        fresh = secrets.randbits(48)
        for mutant in load(HELD_OUT):
            name = f"{mutant.name}:{fresh}"
            if case is not None:
                if not case.startswith(f"{mutant.name}:"):
                    continue
                name, fresh = case, int(case.rpartition(":")[2])
            shown.append(_try(result, name, mutant, fresh))
    result.details = {"seed_is": "fresh in every run", "mutants": shown}
    return result


def _try(result: Result, name: str, mutant: Mutant, seed: int) -> dict[str, Any]:
    """One mutant, and then the source as it is, through the same cuts."""
    done = _cuts(mutant, seed)
    last = done[-1]
    sound = _cuts(None, seed, len({cut.case for cut in done}))
    acks = sum(cut.acks for cut in done)
    complaints: list[str] = []
    if not _seen(last):
        complaints.append(f"not seen in {len(done)} cuts with {acks} acknowledgements")
    if bad := [says for cut in sound for says in cut.broken]:
        complaints.append(f"the source as it is fails too: {bad[0]}")
    result.tried += 1
    result.fired += all(cut.fired for cut in (*done, *sound)) and acks > 0
    if complaints:
        result.add_failure(name, f"{mutant.name}: {'; '.join(complaints)}")
    else:
        result.survived += 1
    return {
        "mutant": mutant.name,
        "seed": seed,
        "cuts": len(done),
        "seen_in": last.scenario if _seen(last) else None,
        "acks_before_that_cut": last.acks,
        "ioctl_returned": last.ioctl,
        "says": last.broken[:3],
        "as_it_is": f"{len(sound)} cuts, {sum(cut.acks for cut in sound)} acks, {len(bad)} broken",
    }


def _cuts(mutant: Mutant | None, seed: int, groups: int = _GROUPS) -> list[Cut]:
    with frame.scratch("heldout") as place:
        source = copy_source(place)
        if mutant is not None and (why := mutant.apply(source)):
            raise LookupError(f"{mutant.name}: {why}")
        done: list[Cut] = []
        cuts = powercut.cuts(_KIND, seed, range(groups), source=source, all_in_turn=True)
        with closing(cuts):
            for cut in cuts:
                done.append(cut)
                # Not at the first that breaks: a bug may stop recovery before it loses a line.
                if mutant is not None and _seen(cut):
                    break
        return done


def _seen(cut: Cut) -> bool:
    """Whether a cut that happened, after acknowledgements, broke a property of what is on disk."""
    return cut.fired and cut.acks > 0 and any(says[:2] in ("P1", "P6") for says in cut.broken)


def control(seed: int) -> list[Control]:
    """A change that breaks nothing is not taken for a bug."""
    change = ("store/view.py", '"""A view: documents', '"""A  view: documents')
    harmless = Mutant("harmless", "a space in a comment", (change,))
    done = _cuts(harmless, seed, 1)
    blamed = [says for cut in done for says in cut.broken]
    detail = f"{len(done)} cuts: {blamed[0] if blamed else 'not blamed'}"
    return [Control("harmless-change", not blamed, detail)]

"""When a measured difference is a gain.

Paired and sequential: base and candidate are measured in turn under the same conditions, and the
differences are tested by Student's t after each pair.  The bounds were chosen by simulation; the
tests repeat it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Literal, NamedTuple

LEAST_RUNS = 5
"""Runs of the unchanged repository from which its noise is known."""
_FIRST_LOOK, _EARLY, _MOST = 4, 8, 16
_SURE_EARLY, _SURE = 5.5, 3.4
_Z = 1.96


class Noise(NamedTuple):
    """What repeated runs of unchanged files gave."""

    mean: float
    sd: float
    """0.0 where every run gave the same number, so that one run is enough."""


class Decision(NamedTuple):
    accepted: bool
    why: str
    base: float
    """The mean of the base over the pairs."""
    candidate: float
    pairs: int
    interval: tuple[float, float] | None
    """A 95 % interval of the gain, in the direction that is better; None for one exact pair."""


def noise_of(scores: Sequence[float]) -> Noise:
    if len(scores) < LEAST_RUNS:
        raise ValueError(f"noise needs {LEAST_RUNS} runs, not {len(scores)}")
    return Noise(fmean(scores), 0.0 if len(set(scores)) == 1 else stdev(scores))


def gain(base: float, candidate: float, *, higher: bool) -> float:
    """How much better the candidate is; negative if it is worse."""
    return candidate - base if higher else base - candidate


def verdict(gains: Sequence[float]) -> Literal["accept", "reject", "more"]:
    """What the gains of all pairs so far decide."""
    count = len(gains)
    if count < _FIRST_LOOK:
        return "more"
    t = _t(gains)
    if t < 0.25 * (count - 3):
        return "reject"
    if count >= _EARLY and t > _SURE_EARLY:
        return "accept"
    if count < _MOST:
        return "more"
    return "accept" if t > _SURE else "reject"


def contest(
    measure: Callable[[int], tuple[float, float]], *, higher: bool, exact: bool
) -> Decision:
    """Measure pairs (base, candidate) by their number, until it is decided."""
    pairs = [measure(0)]
    if exact:
        ((base, candidate),) = pairs
        ahead = gain(base, candidate, higher=higher)
        why = "better" if ahead > 0 else "tie" if ahead == 0 else "worse"
        return Decision(ahead > 0, why, base, candidate, 1, None)
    while (found := verdict(gains := _gains(pairs, higher=higher))) == "more":
        pairs.append(measure(len(pairs)))
    half = _Z * stdev(gains) / math.sqrt(len(gains))
    why = "better" if found == "accept" else "not distinguishable from noise"
    if found == "reject" and fmean(gains) + half < 0:
        why = "worse"
    bases, candidates = zip(*pairs, strict=True)
    interval = fmean(gains) - half, fmean(gains) + half
    return Decision(found == "accept", why, fmean(bases), fmean(candidates), len(pairs), interval)


def holds_even(score: float, best: float, sd: float, *, higher: bool) -> bool:
    """Whether one run of a candidate does not rule out that it is as good as the best."""
    return gain(best, score, higher=higher) >= -sd


def regressed(
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    *,
    threshold: float,
    higher: bool,
) -> list[str]:
    """The sub-scores that fell by more than this share of what they were, or are gone."""
    found: list[str] = []
    for name, old in before.items():
        new = after.get(name)
        if old is None:
            continue
        if new is None or gain(old, new, higher=higher) < -threshold * abs(old):
            found.append(name)
    return sorted(found)


def _gains(pairs: Sequence[tuple[float, float]], *, higher: bool) -> list[float]:
    return [gain(base, candidate, higher=higher) for base, candidate in pairs]


def _t(gains: Sequence[float]) -> float:
    mean, spread = fmean(gains), stdev(gains)
    if spread == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    return mean / (spread / math.sqrt(len(gains)))

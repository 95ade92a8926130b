"""Which agents are asked in a tick, and why; and what is learned from whom it took.

The score is the documented one: what baton and agent have in common (TF-IDF over words and pairs of
words, or the cosine of embeddings), the weight of the agent, less for the experts of the tick
before and for those chosen lately.  Both count in ticks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import log
from operator import mul
from random import Random
from typing import NamedTuple

from holdfast.swarm.analysis import balance
from holdfast.swarm.prompts import goal_text
from holdfast.swarm.spec import Spec

COOLING = -1e9
_PREVIOUS, _RECENT = 0.5, 0.1
_STEP, _MOST_WEIGHT = 0.05, 1.0
_WORD = re.compile(r"[^\W_]+")
Likeness = Callable[[str], Mapping[str, float]]
"""What a text has in common with each agent."""
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]]]


class Choice(NamedTuple):
    experts: list[str]
    scores: dict[str, float]
    """Of every agent."""
    reason: str


class Router:
    def __init__(self, spec: Spec, embed: Embed | None = None) -> None:
        """Compares by words; with `embed`, by meaning."""
        self._spec = spec
        roles = {agent: " ".join(spec.roles.get(agent, ())) for agent in spec.agents}
        documents = {agent: f"{roles[agent]} {goal_text(spec, agent)}" for agent in roles}
        alike = _tf_idf(documents) if embed is None else _by_meaning(documents, embed)
        # A tick looks at one baton; its plan may be made twice.
        self.likeness: Likeness = lru_cache(maxsize=2)(alike)

    def choose(
        self, tick: int, baton: str, previous: Sequence[str], selected: Mapping[str, int]
    ) -> Choice:
        """The experts of a tick of moe; none if all of them are cooling.

        `previous` are the experts of the tick before, `selected` the tick in which each agent was
        chosen last.
        """
        spec, alike = self._spec, self.likeness(baton)
        cooling = {each for each, last in selected.items() if 0 < tick - last <= spec.cooldown}
        scores: dict[str, float] = {}
        for agent in spec.agents:
            score = alike.get(agent, 0.0) + spec.weights.get(agent, 0.0)
            if agent in selected:
                score -= _RECENT / max(1, tick - selected[agent])
            if agent in previous:
                score -= _PREVIOUS
            scores[agent] = COOLING if agent in cooling else score
        ranked = sorted(spec.agents, key=lambda agent: -scores[agent])
        free = [agent for agent in ranked if agent not in cooling]
        experts, drawn = free[: spec.topk], ""
        rest, rng = free[spec.topk :], Random(f"{spec.seed}/{tick}")
        if rest and rng.random() < spec.explore:
            drawn = experts[-1] = rng.choice(rest)
        return Choice(experts, scores, _reason(experts, scores, previous, cooling, drawn))


def _reason(
    experts: Sequence[str],
    scores: Mapping[str, float],
    previous: Sequence[str],
    cooling: set[str],
    drawn: str,
) -> str:
    if not experts:
        return f"all {len(scores)} experts are cooling down"
    best = [f"{agent} {scores[agent]:.4f}" for agent in experts if agent != drawn]
    parts = [f"best scores: {', '.join(best)}"] if best else []
    parts += [f"drawn at random: {drawn}"] if drawn else []
    parts += [f"asked in the tick before: {', '.join(previous)}"] if previous else []
    parts += [f"cooling down: {', '.join(sorted(cooling))}"] if cooling else []
    return "; ".join(parts)


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, and each two that stand next to each other."""
    words = _WORD.findall(text.lower())
    return words + [f"{first}_{second}" for first, second in pairwise(words)]


def _tf_idf(documents: Mapping[str, str]) -> Likeness:
    counts = {agent: Counter(tokens(text)) for agent, text in documents.items()}
    having = Counter(token for found in counts.values() for token in found)
    idf = {token: log(1 + len(counts) / (1 + df)) for token, df in having.items()}
    parts: dict[str, list[tuple[str, float]]] = {}
    for agent, found in counts.items():
        for token, count in found.items():
            parts.setdefault(token, []).append((agent, count * idf[token]))

    def likeness(text: str) -> dict[str, float]:
        sums = dict.fromkeys(documents, 0.0)
        for token in dict.fromkeys(tokens(text)):
            for agent, part in parts.get(token, ()):
                sums[agent] += part
        return sums

    return likeness


def _by_meaning(documents: Mapping[str, str], embed: Embed) -> Likeness:
    """The cosine of the vectors, which have length 1."""
    vectors = embed(list(documents.values()))

    def likeness(text: str) -> dict[str, float]:
        (found,) = embed([text])
        cosines = (sum(map(mul, found, vector)) for vector in vectors)
        return dict(zip(documents, cosines, strict=True))

    return likeness


def learned(
    spec: Spec, chosen: Mapping[str, int], before: Mapping[str, int]
) -> tuple[dict[str, float], float]:
    """The weights after a run, and how evenly the agents were chosen in it and the runs before.

    The documented step takes an agent towards the mean of this run.  A second one, the larger the
    less even the choices of all runs were, takes it towards their mean.
    """
    ever = {agent: chosen.get(agent, 0) + before.get(agent, 0) for agent in spec.agents}
    even = balance(list(ever.values()))["evenness"] or 0.0
    weights: dict[str, float] = {}
    for agent in spec.agents:
        weight = spec.weights.get(agent, 0.0)
        weight += _STEP * _short_of_mean(agent, {each: chosen.get(each, 0) for each in ever})
        weight += _STEP * (1 - even) * _short_of_mean(agent, ever)
        weights[agent] = round(min(max(weight, -_MOST_WEIGHT), _MOST_WEIGHT), 9)
    return weights, round(even, 6)


def _short_of_mean(agent: str, counts: Mapping[str, int]) -> float:
    mean = sum(counts.values()) / len(counts)
    return (mean - counts[agent]) / max(1.0, mean)

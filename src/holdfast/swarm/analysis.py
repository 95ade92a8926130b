"""What a run shows: tokens, latency, load, router choices, errors and the drift of the baton.

Pure functions over the documents of `contracts.swarm`, also over those of other systems: a field
that is missing or malformed makes its measure `None` and never stops the others.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any, NamedTuple, cast

from holdfast.contracts.kind import object_of, objects_in
from holdfast.swarm.state import EVENTS

Json = dict[str, Any]
LOAD = frozenset({"handoff", "broadcast", "moe", "chat"})
"""The events that count as an agent's load, as `counts.chat` does."""
_MOST_ERRORS = 5
_WORD = re.compile(r"\w+")


class Reply(NamedTuple):
    """One reply of an agent."""

    kind: str
    agent: str
    tick: int | None
    prompt: str
    text: str
    event: Mapping[str, Any]


def is_test(run: Mapping[str, Any]) -> bool:
    """Whether a document is the run of one agent under test."""
    return "agent_id" in run and "agents" not in run


def agents_of(run: Mapping[str, Any]) -> list[str]:
    """The agents that the run names, then those that only its events name."""
    named = [run.get("agent_id")] if is_test(run) else run.get("agents")
    listed = cast("list[object]", named) if isinstance(named, list) else []
    names = [name for name in listed if isinstance(name, str)]
    return list(dict.fromkeys([*names, *(reply.agent for reply in replies(run))]))


def replies(run: Mapping[str, Any]) -> Iterator[Reply]:
    """The replies in the order of the events."""
    tested = run.get("agent_id") if is_test(run) else None
    for event in objects_in(run.get("events")):
        kind = event.get("type")
        agent = tested if kind == "chat" else event.get(EVENTS.get(str(kind), ""))
        if isinstance(agent, str):
            tick = event.get("tick")
            tick = tick if isinstance(tick, int) and not isinstance(tick, bool) else None
            prompt, text = _text(event.get("prompt")), _text(event.get("reply"))
            yield Reply(str(kind), agent, tick, prompt, text, event)


def errors_of(run: Mapping[str, Any]) -> list[Json]:
    return [event for event in objects_in(run.get("events")) if event.get("type") == "error"]


def analyze(run: Mapping[str, Any]) -> Json:
    """All measures of a run."""
    said, events = list(replies(run)), list(objects_in(run.get("events")))
    agents, load = agents_of(run), load_of(run)
    failed = errors_of(run)
    elapsed = number(run.get("elapsed_sec"))
    tested = agents[0] if is_test(run) and agents else None
    errors = Counter(tested or _text(event.get("agent")) for event in failed)
    words, summaries = Counter[str](), Counter(e.agent for e in said if e.kind == "aggregate")
    for reply in said:
        words[reply.agent] += len(reply.text.split())
    return {
        "kind": "test-run" if is_test(run) else "cluster-run",
        "model": run.get("model"),
        "agents": len(agents),
        "ticks": None if is_test(run) else number(run.get("ticks")),
        "elapsed_sec": elapsed,
        "events": dict(sorted(Counter(str(event.get("type")) for event in events).items())),
        "replies": len(said),
        "nonempty_ratio": _ratio(sum(bool(reply.text.strip()) for reply in said), len(said)),
        "tokens": {
            "words": words.total(),
            "prompt_words": sum(len(reply.prompt.split()) for reply in said),
            "reported_input": _sum(said, "input_tokens"),
            "reported_output": _sum(said, "output_tokens"),
            "words_per_second": _ratio(words.total(), elapsed),
        },
        "cost_usd": _sum(said, "cost_usd"),
        "latency": _latency(said, events),
        "load": balance([load[agent] for agent in agents]),
        "moe_distribution": dict(Counter(each.agent for each in said if each.kind == "moe")),
        "errors": {
            "count": len(failed),
            "ratio": _ratio(len(failed), len(failed) + len(said)),
            "first": [_text(event.get("error")) for event in failed[:_MOST_ERRORS]],
        },
        "baton": drift(run),
        "per_agent": {
            agent: {
                "chat": load[agent],
                "share": _ratio(load[agent], load.total()),
                "aggregate": summaries[agent],
                "errors": errors[agent],
                "words": words[agent],
            }
            for agent in agents
        },
    }


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """The first minus the second, for every measure that both have as a number."""
    mine, theirs = dict(measures(one)), dict(measures(other))
    return {name: mine[name] - theirs[name] for name in mine if name in theirs}


def measures(found: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of an analysis by their path: `load.entropy`."""
    for name, value in found.items():
        if isinstance(value, dict):
            yield from measures(cast("Json", value), f"{above}{name}.")
        elif (known := number(value)) is not None:
            yield above + name, known


def load_of(run: Mapping[str, Any]) -> Counter[str]:
    """Replies of each agent without the summaries; by `counts` where the run has them."""
    load = Counter(reply.agent for reply in replies(run) if reply.kind in LOAD)
    counts = object_of(run.get("counts"))
    if is_test(run):
        counts = {_text(run.get("agent_id")): counts}
    for agent, counted in counts.items():
        chats = number(object_of(counted).get("chat"))
        if chats is not None and chats >= 0:
            load[agent] = int(chats)
    return load


def balance(loads: Sequence[int]) -> Json:
    """How evenly work was spread: entropy in bits, evenness 1 where all had the same."""
    total = sum(loads)
    shares = [load / total for load in loads if load] if total else []
    entropy = -sum(share * math.log2(share) for share in shares) + 0.0
    mean = total / len(loads) if loads else 0.0
    return {
        "entropy": entropy,
        "evenness": _ratio(entropy, math.log2(len(loads)) if len(loads) > 1 else 0),
        "std": pstdev(loads) if loads else 0.0,
        "cov": _ratio(pstdev(loads) if loads else 0.0, mean),
        "max_min": _ratio(max(loads, default=0), min(loads, default=0)),
    }


def _latency(said: Sequence[Reply], events: Sequence[Mapping[str, Any]]) -> Json:
    """Seconds of a call as reported; else those between one event and the next."""
    reported = [number(reply.event.get("seconds")) for reply in said]
    known = [seconds for seconds in reported if seconds is not None and seconds >= 0]
    measured = "reported" if known else "between events"
    if not known:
        stamps = sorted(t for event in events if (t := number(event.get("t"))) is not None)
        known = [later - earlier for earlier, later in pairwise(stamps)]
    known.sort()
    return {
        "measured": measured if known else None,
        "mean": fmean(known) if known else None,
        "p50": _quantile(known, 0.5),
        "p95": _quantile(known, 0.95),
        "max": known[-1] if known else None,
    }


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def batons(run: Mapping[str, Any]) -> dict[int, str]:
    """What each tick handed to the next: its summary, else its last reply."""
    found: dict[int, Reply] = {}
    for reply in replies(run):
        before = found.get(reply.tick) if reply.tick is not None else None
        if reply.tick is not None and (before is None or before.kind != "aggregate"):
            found[reply.tick] = reply
    return {tick: found[tick].text for tick in sorted(found)}


def drifts(run: Mapping[str, Any]) -> dict[int, float]:
    """How far the baton moved in each tick: 0 for the same words, 1 for none in common."""
    texts = batons(run).items()
    return {tick: _distance(before, after) for (_, before), (tick, after) in pairwise(texts)}


def drift(run: Mapping[str, Any]) -> Json:
    moved, texts = list(drifts(run).values()), list(batons(run).values())
    events = objects_in(run.get("events"))
    goals = [_text(event.get("text")) for event in events if event.get("type") == "input_goal"]
    return {
        "ticks": len(texts),
        "mean_drift": fmean(moved) if moved else None,
        "max_drift": max(moved, default=None),
        "drift_from_goal": _distance(goals[0], texts[-1]) if goals and texts else None,
    }


def _distance(one: str, other: str) -> float:
    """1 minus the cosine of the word counts of two texts."""
    first, second = (Counter(_WORD.findall(text.lower())) for text in (one, other))
    lengths = [math.hypot(*counts.values()) for counts in (first, second)]
    if not all(lengths):
        return float(first != second)
    same = sum(count * second[word] for word, count in first.items())
    return max(0.0, 1.0 - same / (lengths[0] * lengths[1]))


def number(value: object) -> float | None:
    """A finite number, as it stands in the document."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _ratio(part: float, whole: float | None) -> float | None:
    return part / whole if whole else None


def _sum(said: Sequence[Reply], field: str) -> float | None:
    """None where nothing was reported; never a sum that leaves calls out."""
    values = [number(reply.event.get(field)) for reply in said]
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None

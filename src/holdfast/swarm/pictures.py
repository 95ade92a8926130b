"""The pictures of a run: who talked to whom, the router's scores, load, timeline, drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from holdfast.charts import Bar, Cell, Chart, Link, Meaning, Series, Span, bars, graph, heat, lanes
from holdfast.charts import lines as lines_chart
from holdfast.contracts.kind import object_of, objects_in
from holdfast.swarm.analysis import (
    LOAD,
    Reply,
    agents_of,
    drifts,
    errors_of,
    is_test,
    load_of,
    number,
    replies,
)
from holdfast.text import clip, one_line, plural

MOST_COLUMNS, MOST_SPANS, MOST_LINKS = 60, 400, 300
COOLING = -1e8
"""Scores below this are of agents that may not be chosen."""
BATON = "the baton"
Item = TypeVar("Item")
_MEANINGS: Mapping[str, Meaning] = {"aggregate": "good", "status": "quiet", "fork": "care"}


def pictures(run: Mapping[str, Any]) -> list[Chart]:
    """Those that the run has something to show for; a timeline and a load always."""
    found = [router(run), load(run), timeline(run), drift(run)]
    return [chart for chart in found if chart is not None]


def router(run: Mapping[str, Any]) -> Chart | None:
    """Scores by agent and tick, scaled within each tick; the chosen have an edge."""
    scored: dict[int, Mapping[str, Any]] = {}
    chosen: dict[int, set[str]] = {}
    for reply in replies(run):
        scores = object_of(reply.event.get("router_scores"))
        if reply.kind == "moe" and reply.tick is not None and scores:
            scored[reply.tick] = scores
            chosen.setdefault(reply.tick, set()).add(reply.agent)
    if not scored:
        return None
    ticks = _thinned(sorted(scored), MOST_COLUMNS)
    names = list(
        dict.fromkeys([*agents_of(run), *(name for tick in ticks for name in scored[tick])])
    )
    rows = {
        name: [_cell(name, tick, scored[tick], name in chosen[tick]) for tick in ticks]
        for name in names
    }
    note = "darker: higher score in its tick; framed: chosen; dash: cooling"
    title = "Router scores by tick"
    if len(ticks) < len(scored):
        title += f" ({len(ticks)} of {plural(len(scored), 'tick')})"
    return heat(title, rows, [str(tick) for tick in ticks], note)


def _cell(name: str, tick: int, scores: Mapping[str, Any], chosen: bool) -> Cell | None:
    score = number(scores.get(name))
    if score is None:
        return None
    if score < COOLING:
        return Cell(None, f"{name}, tick {tick}: cooling down", chosen)
    free = [known for each in scores.values() if (known := number(each)) is not None]
    free = [each for each in free if each >= COOLING]
    low, high = min(free), max(free)
    share = (score - low) / (high - low) if high > low else 0.5
    return Cell(share, f"{name}, tick {tick}: {score:.4g}{', chosen' if chosen else ''}", chosen)


def load(run: Mapping[str, Any]) -> Chart:
    counted, agents = load_of(run), agents_of(run)
    tested = agents[0] if is_test(run) and agents else None
    failed = Counter(tested or str(event.get("agent")) for event in errors_of(run))
    found: list[Bar] = []
    for agent in agents:
        says = plural(counted[agent], "reply").replace("replys", "replies")
        says += f", {plural(failed[agent], 'error')}" if failed[agent] else ""
        found.append(Bar(agent, counted[agent], says, "care" if failed[agent] else "going"))
    return bars("Replies by agent", found)


def timeline(run: Mapping[str, Any]) -> Chart:
    timed = [(t, event) for event in objects_in(run.get("events")) if (t := number(event.get("t")))]
    timed.sort(key=lambda each: each[0])
    said = {id(reply.event): reply for reply in replies(run)}
    started = number(run.get("start_ts")) or (timed[0][0] if timed else 0.0)
    names, tested = agents_of(run), is_test(run)
    spans = [
        span
        for t, event in timed[-MOST_SPANS:]
        if (span := _span(t - started, event, said.get(id(event)), names, tested))
    ]
    more = f" (the last {MOST_SPANS} of {len(timed):,} events)" if len(timed) > MOST_SPANS else ""
    notes = "blue: chat; grey: status; brown: fork" if tested else "blue: reply; green: summary"
    return lanes(f"Timeline{more}", names, spans, f"{notes}; red square: error")


def _span(
    at: float, event: Mapping[str, Any], reply: Reply | None, names: Sequence[str], tested: bool
) -> Span | None:
    kind = str(event.get("type"))
    agent = reply.agent if reply else names[0] if tested and names else event.get("agent")
    if not isinstance(agent, str) or agent not in names:
        return None
    took = number(event.get("seconds")) or 0.0
    says = f"{kind}, {agent}" + (f", tick {reply.tick}" if reply and reply.tick else "")
    text = reply.text if reply else str(event.get("error") or event.get("child_id") or "")
    says += f": {clip(one_line(text), 80)}" if text else ""
    if reply:
        meaning = "going" if reply.kind in LOAD else "good"
    else:
        meaning = "bad" if kind == "error" else _MEANINGS.get(kind, "quiet")
    return Span(agent, max(0.0, at - took), at, says, meaning)


def drift(run: Mapping[str, Any]) -> Chart | None:
    moved = _thinned(list(drifts(run).items()), 4 * MOST_COLUMNS)
    if not moved:
        return None
    points = [(float(tick), distance) for tick, distance in moved]
    series = [Series("distance to the baton before", points)]
    return lines_chart("Baton drift", series, "tick", floor=0)


def topology(run: Mapping[str, Any]) -> Chart:
    """Handoffs and broadcasts from agent to agent; experts and the summariser by the baton."""
    weights = Counter[tuple[str, str]]()
    for reply in replies(run):
        sender = reply.event.get("from")
        if reply.kind == "moe":
            weights[reply.agent, BATON] += 1
        elif reply.kind == "aggregate":
            weights[BATON, reply.agent] += 1
        elif isinstance(sender, str):
            weights[sender, reply.agent] += 1
    names = list(dict.fromkeys([*agents_of(run), *(name for pair in weights for name in pair)]))
    hub = BATON if any(BATON in pair for pair in weights) else ""
    links = [
        Link(start, end, times, f"{start} → {end}: {times}×")
        for (start, end), times in weights.most_common(MOST_LINKS)
    ]
    return graph("Who talked to whom", names, links, hub)


def _thinned(values: Sequence[Item], most: int) -> list[Item]:
    """At most so many of the values, evenly spread, with the newest."""
    step = -(-len(values) // most) or 1
    return list(values[::-1][::step][::-1])

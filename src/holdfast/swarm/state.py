"""What the lines of a run come to: the fold behind `swarms/RUN.json`.  Pure.

It holds what the next tick needs and sums, and nothing that grows with the number of ticks: what
was said stands in the log, from which the document of the run is made.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast.codec import Record, pretty
from holdfast.store.primitives import Line
from holdfast.store.view import Shape
from holdfast.swarm.prompts import noted
from holdfast.swarm.spec import spec_of

State = dict[str, Any]
EVENTS = {"handoff": "to", "broadcast": "to", "moe": "expert", "aggregate": "summarizer"}
"""Kinds of replies, and the field that names the agent."""
RUNNING, STOPPED, DONE = "running", "stopped", "done"


def initial() -> State:
    return {
        **dict.fromkeys(("run", "status", "baton"), ""),
        **dict.fromkeys(("why", "created", "updated", "plan", "ending")),
        **dict.fromkeys(("fence", "tick", "lost_calls", "barren", "tokens", "unknown"), 0),
        **dict.fromkeys(("cost_usd", "assumed_usd", "elapsed"), 0.0),
        **{name: {} for name in ("spec", "said", "selected", "chosen", "counts", "asked", "lost")},
        "aggregate": {"calls": 0, "errors": 0},
        "previous": [],
        "stopping": False,
    }


def fold(state: State, line: Line) -> State:
    """In place; what is no line of a run, or of a runner that was replaced, changes nothing."""
    record = line.record
    event, fence = record.get("event"), record.get("fence", 0)
    act = _ACTS.get(event) if isinstance(event, str) else None
    if act is None or not isinstance(fence, int) or 0 < fence < state["fence"]:
        return state
    if not state["run"] and event != "new":
        return state  # what the run is stood in a line that is damaged
    state["fence"] = max(fence, state["fence"])
    state["updated"] = record.get("ts", state["updated"])
    with suppress(KeyError, TypeError):  # a line that was edited by hand
        act(state, record)
    return state


def _new(state: State, record: Record) -> None:
    if state["run"]:
        return
    spec = spec_of(record)
    state["counts"] = {agent: {"chat": 0, "errors": 0} for agent in spec.agents}
    state |= {"run": record["run"], "status": RUNNING, "created": record["t"]}
    state |= {"spec": record["spec"], "baton": spec.goal}


def _plan(state: State, record: Record) -> None:
    kept = ("tick", "kind", "from", "experts", "scores", "reason")
    state["plan"] = {name: record[name] for name in kept if name in record}


def _replied(state: State, record: Record) -> None:
    kind = record["event"]
    agent = record[EVENTS[kind]]
    _paid(state, agent, record)
    state["tokens"] += record.get("tokens") or 0
    if kind == "aggregate":
        state["aggregate"]["calls"] += 1
        return
    state["counts"][agent]["chat"] += 1
    state["said"] = noted(state["said"], [(agent, record["reply"])])


def _failed(state: State, record: Record) -> None:
    agent = record["agent"]
    state["counts"][agent]["errors"] += 1
    if record.get("summary"):
        state["aggregate"]["errors"] += 1
    if "turn" in record:
        _paid(state, agent, record)


def _paid(state: State, agent: str, record: Record) -> None:
    state["asked"][agent] = state["asked"].get(agent, 0) + 1
    cost = record.get("cost_usd")
    if isinstance(cost, int | float):
        state["cost_usd"] += cost
    else:
        _unknown(state, record)


def _unknown(state: State, record: Record) -> None:
    state["unknown"] += 1
    state["assumed_usd"] += record.get("reserved_usd") or 0.0


def _lost(state: State, record: Record) -> None:
    """A call whose process died: it may have been answered and paid."""
    name = record["call"]
    state["lost"][name] = state["lost"].get(name, 0) + 1
    state["lost_calls"] += 1
    _unknown(state, record)


def _tick(state: State, record: Record) -> None:
    plan: Record = state["plan"] or {"experts": [], "kind": ""}
    tick, replies = record["tick"], record["replies"]
    state |= {"tick": tick, "baton": record["baton"], "plan": None, "lost": {}}
    state["elapsed"] += record["seconds"]
    state["barren"] = 0 if replies or not plan["experts"] else state["barren"] + 1
    state["previous"] = plan["experts"]
    for agent in plan["experts"]:
        state["selected"][agent] = tick
        if plan["kind"] == "moe":
            state["chosen"][agent] = state["chosen"].get(agent, 0) + 1


def _stop(state: State, record: Record) -> None:
    state["stopping"] = state["status"] == RUNNING
    state["why"] = record.get("why")


def _over(state: State, record: Record) -> None:
    status = DONE if record["event"] == "end" else STOPPED
    state |= {"status": status, "why": record.get("why"), "stopping": False}


def _go(state: State, record: Record) -> None:
    state |= {"status": RUNNING, "why": None, "stopping": False, "barren": 0}
    state["spec"] = {**state["spec"], **record.get("changes", {})}
    if state["ending"] is not None and "ticks" in record.get("changes", {}):
        state["ending"] = None


def _ending(state: State, record: Record) -> None:
    state["ending"] = {name: record[name] for name in ("weights", "entropy", "why")}


_ACTS: dict[str, Callable[[State, Record], None]] = {
    "new": _new,
    "plan": _plan,
    **dict.fromkeys(EVENTS, _replied),
    "error": _failed,
    "lost": _lost,
    "tick": _tick,
    "stop": _stop,
    "halt": _over,
    "go": _go,
    "ending": _ending,
    "end": _over,
}
SHAPE: Shape[State] = Shape(version=1, initial=initial, fold=fold, render=pretty)

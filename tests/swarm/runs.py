"""Runs as their documents have them, small and made by hand."""

from __future__ import annotations

from typing import Any

T = 1_794_725_040.0


def cluster(*events: dict[str, Any], agents: tuple[str, ...] = ("a", "b"), **more: Any) -> Any:
    ticks = max((event.get("tick", 0) for event in events), default=0)
    run = {"agents": [*agents], "model": "scripted", "use_ollama": False, "ticks": ticks}
    return {**run, "elapsed_sec": 4.0, "counts": {}, "events": [*events], **more}


def moe(tick: int, expert: str, reply: str, **scores: float) -> dict[str, Any]:
    event = {"t": T + tick, "type": "moe", "expert": expert, "prompt": "What next?"}
    return {**event, "reply": reply, "tick": tick, "router_scores": scores}


def aggregate(tick: int, agent: str, reply: str) -> dict[str, Any]:
    event = {"t": T + tick + 0.5, "type": "aggregate", "summarizer": agent, "prompt": "Sum up."}
    return {**event, "reply": reply, "tick": tick}


def passed(tick: int, kind: str, start: str, end: str, reply: str) -> dict[str, Any]:
    event = {"t": T + tick, "type": kind, "from": start, "to": end, "prompt": "Go on."}
    return {**event, "reply": reply, "tick": tick}


def failed(agent: str, error: str = "no answer") -> dict[str, Any]:
    return {"t": T + 9, "type": "error", "agent": agent, "error": error}


def of_one(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    run = {"agent_id": "rio", "start_ts": T, "end_ts": T + 6, "elapsed_sec": 6.0}
    counts = {"chat": 0, "fork": 0, "status": 0, "errors": 0}
    return {**run, "counts": counts, "events": [*events], **more}

"""Who is doing what: the status of an agent, folded from its ledger.

`task_start` makes an agent busy, `task_result` idle, `error` and a failed result leave it in
error until the next start.  Heartbeats and notes say only that it lives.  Offline is never
folded: it is a matter of the clock, computed when somebody looks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.clock import instant_of
from holdfast.codec import Record, pretty
from holdfast.errors import BadName
from holdfast.ids import SessionId, session_id
from holdfast.ledger.entry import NO_TASK
from holdfast.store.primitives import Line
from holdfast.store.view import Shape

State = dict[str, Any]
SHOWN = ("agent", "state", "last_heartbeat", "last_task_id", "session_id", "last_error")


def initial() -> State:
    return {
        "agent": None,
        "state": "idle",
        "last_heartbeat": None,
        "last_task_id": None,
        "session_id": None,
        "last_error": None,
        # Not shown: the highest session number of the newest day, and the spooled line that
        # was taken in last.
        "session_day": "",
        "session_number": 0,
        "spooled": 0,
    }


def fold(state: State, line: Line) -> State:
    """One entry more; a line that is no entry of the ledger changes nothing."""
    record = line.record
    agent, event, stamp = record.get("agent"), record.get("event"), record.get("ts")
    if not (isinstance(agent, str) and isinstance(event, str) and isinstance(stamp, str)):
        return state
    state["agent"] = agent.lower()
    state["last_heartbeat"] = _later(state["last_heartbeat"], stamp)
    _note_session(state, record.get("session_id"))
    state["spooled"] = max(state["spooled"], spooled_from(record))
    task = record.get("task_id")
    if event in ("task_start", "task_result", "error") and task not in (None, NO_TASK):
        state["last_task_id"] = task
    match event:
        case "task_start":
            state["state"], state["last_error"] = "busy", None
        case "task_result":
            failed = _data(record).get("status") == "failure"
            state["state"] = "error" if failed else "idle"
            state["last_error"] = _reason(record) if failed else None
        case "error":
            state["state"], state["last_error"] = "error", _reason(record)
        case _:
            pass
    return state


def render(state: State) -> bytes:
    return pretty({name: state[name] for name in SHOWN})


STATUS = Shape(version=1, initial=initial, fold=fold, render=render)


def next_session(state: State, agent: str, today: str) -> SessionId:
    """The number after the highest that this agent has used on this day."""
    used = state["session_number"] if state["session_day"] == today else 0
    return SessionId(today, agent.lower(), used + 1)


def current_session(state: State, agent: str, today: str) -> SessionId:
    """The session that an entry without one belongs to.

    It is the latest one, unless that began on an earlier day and nothing is under way: a
    session that runs over midnight stays one session.
    """
    if state["session_id"] is not None:
        latest = session_id(state["session_id"])
        if latest.day == today or state["state"] == "busy":
            return latest
    return next_session(state, agent, today)


class Presence(NamedTuple):
    """How an agent stands at this moment."""

    state: str
    age: float | None
    """Seconds since it was last heard of; None if it never was."""
    note: str


def presence(state: State, now: float, offline_after: float) -> Presence:
    """What the status means now that time has passed."""
    if state["last_heartbeat"] is None:
        return Presence("unknown", None, "no events yet")
    age = now - instant_of(state["last_heartbeat"])
    if age < -60:
        return Presence(state["state"], age, "last heard of in the future: a clock is wrong")
    if age <= offline_after:
        return Presence(state["state"], age, state["last_error"] or "")
    note = f"offline while busy on {state['last_task_id']}" if state["state"] == "busy" else ""
    return Presence("offline", age, note or state["last_error"] or "")


def spooled_from(record: Record) -> int:
    """Which line of the spool an entry was taken from; 0 if it was written directly."""
    _, mark, seq = str(record.get("ref", "")).partition("spool#")
    return int(seq) if mark and seq.isdigit() else 0


def _note_session(state: State, text: object) -> None:
    try:
        found = session_id(str(text))
    except BadName:
        return
    state["session_id"] = str(text)
    if (found.day, found.number) > (state["session_day"], state["session_number"]):
        state["session_day"], state["session_number"] = found.day, found.number


def _later(known: str | None, stamp: str) -> str | None:
    """The later of two stamps, so that a clock that went back cannot age an agent."""
    try:
        return stamp if known is None or instant_of(stamp) > instant_of(known) else known
    except ValueError:
        return known


def _data(record: Record) -> dict[str, Any]:
    data = record.get("data")
    return data if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _reason(record: Record) -> str:
    data = _data(record)
    return str(data.get("error") or data.get("cause") or record.get("summary") or "unknown")

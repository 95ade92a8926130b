"""Who is doing what: the status of an agent, folded from its ledger.

`task_start` makes an agent busy, `task_result` idle, `error` and a failed result leave it in
error until the next start.  Heartbeats and notes say only that it lives.  Offline is mostly a
matter of the clock, computed when somebody looks; a note with the state `offline` says that
somebody stopped it on purpose.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, cast

from holdfast.clock import instant_of
from holdfast.codec import Record, pretty
from holdfast.errors import BadName
from holdfast.ids import SessionId, session_id
from holdfast.ledger.entry import IMPORT, IMPORTER, NO_TASK
from holdfast.ledger.foreign import as_entry
from holdfast.store.primitives import Line
from holdfast.store.view import Shape

State = dict[str, Any]
_REF = re.compile(r"spool:([0-9a-f]{16})#([0-9]{1,18})")
_TOLD = re.compile(r".*/journal\.jsonl#[0-9]{1,18}")
_DAYS_KEPT = 32
_RUNS_KEPT = 16
STATES = ("idle", "busy", "error", "offline")
SHOWN = ("agent", "state", "last_heartbeat", "last_task_id", "session_id", "last_error")
"""What the file of the status tells of a state."""


def status_of(agent: str) -> Shape[State]:
    """The view of one agent's ledger; lines of other agents in it do not count."""

    def begin() -> State:
        return initial(agent)

    return Shape(version=5, initial=begin, fold=fold, render=render)


def initial(agent: str) -> State:
    return {
        "agent": agent,
        "state": "idle",
        "last_heartbeat": None,
        "last_task_id": None,
        "session_id": None,
        "last_error": None,
        # Not shown: the highest session number of each of the latest days, which of the latest
        # sessions that have a beginning and an end are over, the latest one that has neither,
        # how far each spool has been taken in, and where lines tell of imported files.
        "sessions": {},
        "over": {},
        "ad_hoc": None,
        "spools": {},
        "imports": [],
    }


def copied(state: State) -> State:
    """A state that can be folded on without changing this one."""
    parts = ("sessions", "over", "spools", "imports")
    return {**state, **{name: state[name].copy() for name in parts}}


def fold(state: State, line: Line) -> State:
    """One entry more; a line that is no entry of this agent changes nothing."""
    record = line.record
    if line.seq is None and not ("ts" in record and isinstance(record.get("event"), str)):
        record = as_entry(record)
    agent, event, stamp = record.get("agent"), record.get("event"), record.get("ts")
    if not (isinstance(agent, str) and isinstance(event, str) and isinstance(stamp, str)):
        return state
    if agent.lower() != state["agent"]:
        return state
    told = line.seq is not None and record.get("source") == IMPORTER
    if told and (imported := _imported(record)) is not None:
        state["imports"].append([line.segment, line.offset])
        _count_session(state, record.get("session_id"))
        return _adopt(state, imported)
    note(state, record, stamp)
    return state


def note(state: State, record: Record, stamp: str) -> None:
    """Take in an entry of this agent."""
    event = record["event"]
    if stamp != state["last_heartbeat"]:
        state["last_heartbeat"] = later(state["last_heartbeat"], stamp)
    session = record.get("session_id")
    # As almost never: told by others, or in another session than the one before.
    if record.get("ref") is not None or session is None or session != state["session_id"]:
        _note_session(state, record)
        spool, number = spooled_from(record)
        if number:
            state["spools"][spool] = max(number, state["spools"].get(spool, 0))
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
        case "info" if _data(record).get("state") == "offline":
            state["state"] = "offline"
        case "info" if state["state"] == "offline" and _data(record).get("state") == "idle":
            state["state"] = "idle"
        case _:
            pass


def _imported(record: Record) -> dict[str, Any] | None:
    """What an entry says of files of others; anybody may write one that only looks like it."""
    match _data(record).get(IMPORT):
        case {"files": list(), "sessions": dict(), "status": dict()} as found:
            return cast("dict[str, Any]", found)
        case _:
            return None


def _adopt(state: State, imported: dict[str, Any]) -> State:
    """Take in what imported entries come to; importing them is no sign of life."""
    for day, number in imported["sessions"].items():
        if type(number) is int and number > 0:
            _count_session(state, str(SessionId(day, state["agent"], number)))
    told = {name: imported["status"].get(name) for name in SHOWN if name != "agent"}
    heard = told["last_heartbeat"]
    newest = isinstance(heard, str) and later(state["last_heartbeat"], heard) == heard
    if newest and _is_status(told):
        state.update(told)
    return state


def _is_status(told: dict[str, Any]) -> bool:
    try:
        if told["session_id"] is not None:
            session_id(told["session_id"])
    except (BadName, TypeError):
        return False
    texts = (told["last_task_id"], told["last_error"])
    return told["state"] in STATES and all(each is None or type(each) is str for each in texts)


def render(state: State) -> bytes:
    return pretty({name: state[name] for name in SHOWN})


def next_session(state: State, today: str) -> SessionId:
    """The number after the highest that this agent has used on this day."""
    return SessionId(today, state["agent"], state["sessions"].get(today, 0) + 1)


def current_session(state: State, today: str) -> str:
    """The session that an entry without one belongs to.

    It is the one under way: the latest, unless that is over, or began on another day and nothing
    is being done (a session that runs over midnight stays one).  Else it is the latest of today
    that nobody began or ended, else a new one.
    """
    over: dict[str, bool] = state["over"]
    latest: str = state["session_id"] or ""
    stays = latest.startswith(today) or state["state"] == "busy"
    if latest and stays and not over.get(latest, False):
        return latest
    if under_way := [name for name, ended in over.items() if not ended]:
        return under_way[-1]
    if (state["ad_hoc"] or "").startswith(today):
        return state["ad_hoc"]
    return str(next_session(state, today))


def is_over(state: State, session: object) -> bool:
    """Whether a session is known to have ended, or another one followed that nobody ends."""
    return state["over"].get(session, session != state["session_id"])


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


def spooled_from(record: Record) -> tuple[str, int]:
    """Which spool an entry was taken from and its number there; 0 if it was written directly."""
    ref = record.get("ref")
    match = _REF.fullmatch(ref) if isinstance(ref, str) else None
    return (match[1], int(match[2])) if match else ("", 0)


def _note_session(state: State, record: Record) -> None:
    text, ref = record.get("session_id"), record.get("ref")
    if not _count_session(state, text):
        return
    session, over = str(text), state["over"]
    state["session_id"] = session
    if isinstance(ref, str) and _TOLD.fullmatch(ref):
        # Told by the journal: this session has a beginning and will have an end.
        over[session] = record.get("event") == "task_result" or over.get(session, False)
        ended = (name for name, is_over in over.items() if is_over)
        # Those under way are kept, however many came after them.
        if len(over) > _RUNS_KEPT and (oldest := next(ended, None)) is not None:
            del over[oldest]
    elif session not in over:
        state["ad_hoc"] = session


def _count_session(state: State, text: object) -> bool:
    """Whether it is a session of this agent; its number is not given again."""
    try:
        found = session_id(str(text))
    except BadName:
        return False
    if found.agent != state["agent"]:
        return False
    sessions: dict[str, int] = state["sessions"]
    sessions[found.day] = max(found.number, sessions.get(found.day, 0))
    if len(sessions) > _DAYS_KEPT:
        del sessions[min(sessions)]
    return True


def later(known: str | None, stamp: str) -> str | None:
    """The later of two stamps, so that a clock that went back cannot age an agent."""
    if stamp == known:
        return known
    try:
        seen = instant_of(stamp)
    except ValueError:
        return known
    return stamp if known is None or seen > instant_of(known) else known


def _data(record: Record) -> dict[str, Any]:
    data = record.get("data")
    return data if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _reason(record: Record) -> str:
    data = _data(record)
    return str(data.get("error") or data.get("cause") or record.get("summary") or "unknown")

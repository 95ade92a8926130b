"""How the sessions of an agent ended, and what that says of the tasks they worked on.

Folded from its journal: what is recorded nowhere else is known here.
"""

from __future__ import annotations

import re

from holdfast.codec import Record
from holdfast.store.primitives import Line

_OWN_ID = re.compile(r"task-([0-9]{1,15})")
_ID_BY_HAND = re.compile(r'"id"\s*:\s*"(task-[0-9]{1,15})"')
_SESSIONS_KEPT = 100
_LONGEST = 300


def number_of(id: str) -> int:
    """The number in a task's id of ours; 0 of another one."""
    found = _OWN_ID.fullmatch(id)
    return int(found[1]) if found else 0


def initial(_: str) -> Record:
    return {
        "highest": 0,
        # The task of each session under way, and what went wrong in it so far.
        "open": {},
        # How often in a row sessions on a task failed, and why the last time.
        "failed": {},
        # How often it had failed when it was parked.
        "parked": {},
        # The outcomes of the last sessions.
        "ended": {},
    }


def fold(state: Record, line: Line) -> Record:
    record = line.record
    session, task = str(record.get("session_id")), record.get("task")
    match record.get("event"):
        case "session_start" | "session_set" if isinstance(task, str):
            state["open"].setdefault(session, [task, None])[0] = task
        case "error" if session in state["open"]:
            state["open"][session][1] = record.get("message")
        case "session_end":
            _end(state, record, session)
        case "task_added" if isinstance(task, str):
            state["highest"] = max(state["highest"], number_of(task))
        case "edited_by_hand" | "text_imported":
            # Also of what they took out: what had a number once may have failed under it.
            ids = _ID_BY_HAND.findall(str(record.get("patch")))
            state["highest"] = max(state["highest"], *map(number_of, ids), 0)
        case "task_parked" if task in state["failed"]:
            state["parked"][task] = state["failed"][task][0]
        case "task_reopened" | "task_completed" | "task_dropped":
            _forget(state, task)
        case _:
            pass
    return state


def _end(state: Record, record: Record, session: str) -> None:
    ended: Record = state["ended"]
    if session in ended:
        return  # a session has one end
    ended[session] = record.get("outcome")
    if len(ended) > _SESSIONS_KEPT:
        del ended[next(iter(ended))]
    task, why = state["open"].pop(session, (None, None))
    if task is None:
        return
    if record.get("outcome") == "completed":
        _forget(state, task)
        return
    times = state["failed"].get(task, [0])[0] + 1
    said = record.get("summary") or why or record.get("cause") or record.get("outcome")
    state["failed"][task] = [times, " ".join(str(said or "it failed").split())[:_LONGEST]]


def _forget(state: Record, task: object) -> None:
    state["failed"].pop(task, None)
    state["parked"].pop(task, None)

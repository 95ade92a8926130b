"""What an agent did, folded from its journal: the truth behind report and session.

Pure: lines in, plain values out.  A session is open from its `session_start` until its one
`session_end`; lines of an owner who had lost the lease never get here (`store.fence`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from holdfast.agents import tools
from holdfast.agents.document import as_object
from holdfast.clock import instant, utc_stamp
from holdfast.codec import Record
from holdfast.errors import BadName, BadValue, Retired, UsageError
from holdfast.ids import session_id
from holdfast.store.primitives import Line

State = dict[str, Any]
Session = dict[str, Any]

DAY = 86_400
DAYS_KEPT, _NAMES_KEPT, _COSTS_KEPT = 32, 200, 200
RECENT = 6
"""How many of the newest sessions tell whether an agent does well."""
_QUARTER, _SPENT_KEPT = 900, 3 * DAY // 900
Type = Literal["research", "extract", "evaluate", "ad-hoc"]
STATUS_OF_TYPE = {
    "research": "researching",
    "extract": "extracting",
    "evaluate": "evaluating",
    "ad-hoc": "working",
}
SESSION_FIELDS = (
    *("domain", "branch", "model", "timeout_seconds"),
    *("research_question", "belief_targeted", "disconfirmation_target"),
    *("sources_archived", "sources_expected", "tokens_used", "cost_usd", "handoff_notes"),
)
"""What may be said of a session at its start, later and at its end, under the same names."""
AFTERWARDS = ("pr_number", "summary", "next_priority", "blocked_by", "task", "error")
"""What may be said of it beside that; all but `error`, one more of its errors, replace."""
LONG_NAMES = {
    "question": "research_question",
    "belief": "belief_targeted",
    "disconfirm": "disconfirmation_target",
    "sources": "sources_archived",
    "pr": "pr_number",
    "next": "next_priority",
    "tokens": "tokens_used",
    "cost": "cost_usd",
    "handoff": "handoff_notes",
}
"""The names on the command line and in reports of what has a longer one in the journal."""
SETTABLE = frozenset((*SESSION_FIELDS, *AFTERWARDS))
OUTCOMES = ("completed", "timeout", "error")
_LEFT = ("next_priority", "blocked_by")
_SAID = ("summary", *_LEFT)
"""What is said of the agent, not of a session."""


# --- sessions -------------------------------------------------------------------------------


def initial(agent: str) -> State:
    return {
        "agent": agent,
        "updated_at": None,
        "numbers": {},
        # The newest session of each role, and which of them was newest of all.
        "sessions": {},
        "newest": None,
        # What the one that began last was to know of the one before it.
        "before": None,
        "summary": None,
        "next_priority": None,
        "blocked_by": None,
        # Report and session of another system, shown until the agent does something here.
        "imported": {},
        # How the newest sessions ended, and what those of the last days cost, by quarters of
        # an hour: days begin at one in every zone.
        "recent": [],
        "spent": {},
        # When the newest sessions ended and what each cost, since that may be told later.
        "costs": {},
        # Which session it is that others, such as the hooks of Claude Code, call by their name.
        "known_as": {},
        # Since when no more sessions are begun, and why.
        "retired": None,
    }


def fold(state: State, line: Line) -> State:
    """One line more; a line that tells nothing of sessions changes nothing."""
    record = line.record
    event, stamp = record.get("event"), record.get("ts")
    if not (isinstance(event, str) and isinstance(stamp, str)):
        return state
    match event:
        case "session_start":
            _begin(state, record, stamp)
        case "session_set":
            _say(state, _session_of(state, record), record, stamp)
        case "session_end":
            _finish(state, record, stamp)
        case "error":
            _note_error(state, _session_of(state, record), record, stamp)
        case "import":
            _take_in(state, documents_in(record))
        case "joined":
            _know(state, record)
        case "retired":
            state["retired"] = {"at": stamp, "reason": record.get("reason")}
        case "reinstated":
            state["retired"] = None
        case "tool_use":
            if (used_in := _session_of(state, record)) is not None:
                used_in["tools"] = tools.counted(used_in["tools"], record)
        case _:
            _note(state, _session_of(state, record), record, stamp)
    return state


def _begin(state: State, record: Record, stamp: str) -> None:
    role = str(record.get("role") or "")
    session: Session = {
        "session_id": record.get("session_id"),
        "started_at": stamp,
        "ended_at": None,
        "type": record.get("type"),
        "status": "running",
        **dict.fromkeys(SESSION_FIELDS),
        "errors": [],
        "role": role,
        "fence": record.get("fence"),
        "tree": record.get("tree"),
        "task": None,
        "pr_number": None,
        "known_as": record.get("known_as"),
        "tools": None,
    }
    session.update({name: record[name] for name in SETTABLE & record.keys() if name in session})
    state["before"] = last_session(state)
    state["sessions"][role], state["newest"], brought = session, role, state["imported"]
    state["imported"] = {"before": brought.get("report", brought.get("before", {}))}
    state["summary"] = record.get("summary") or f"{session['type']} session is running"
    state["updated_at"] = stamp
    _note_number(state["numbers"], session["session_id"])
    _know(state, record)


def _know(state: State, record: Record) -> None:
    """Note what others call a session; the newest names are kept."""
    name, known = record.get("known_as"), state["known_as"]
    if isinstance(name, str):
        known.pop(name, None)
        known[name] = record.get("session_id")
        if len(known) > _NAMES_KEPT:
            del known[next(iter(known))]


def documents_in(record: Record) -> dict[str, Record]:
    """Report, session and metrics that an `import` line brought from another system."""
    found = as_object(as_object(record.get("imported")).get("documents"))
    return {name: cast("Record", each) for name, each in found.items() if isinstance(each, dict)}


def _take_in(state: State, documents: dict[str, Record]) -> None:
    if state["newest"] is not None:
        return  # what the agent did here is newer
    state["imported"].update(documents)
    for name in ("updated_at", *_SAID):
        text = documents.get("report", {}).get(name)
        state[name] = text if isinstance(text, str) else state[name]


def open_sessions(state: State) -> list[Session]:
    return [each for each in state["sessions"].values() if each["ended_at"] is None]


def check_in_service(state: State) -> None:
    """Refuse to begin a session of an agent that is retired."""
    retired, agent = state["retired"], state["agent"]
    if retired is not None:
        why = f": {retired['reason']}" if retired["reason"] else ""
        raise Retired(
            f"{agent} is retired since {retired['at']}{why}",
            hint=f"`holdfast agent retire {agent} --undo` takes it back into service",
        )


def newest_session(state: State) -> Session | None:
    return None if state["newest"] is None else state["sessions"][state["newest"]]


def _session_of(state: State, record: Record) -> Session | None:
    """The session a line belongs to: the one it names, else the one that is open."""
    named = record.get("session_id")
    if named is None:
        return next(iter(open_sessions(state)), None)
    known = state["sessions"].values()
    return next((each for each in known if each["session_id"] == named), None)


def _say(state: State, session: Session | None, record: Record, stamp: str) -> None:
    said = {name: record[name] for name in SETTABLE & record.keys()}
    if "cost_usd" in said:
        _correct(state, str(record.get("session_id")), said["cost_usd"])
    if session is None and record.get("session_id") is not None:
        return  # of an older session; what is said of the agent is newer
    for name in _SAID:
        if name in said:
            state[name] = said.pop(name)
    if session is not None:
        _tell(session, said)
    state["updated_at"] = stamp


def _correct(state: State, session: str, usd: object) -> None:
    """What one of the last sessions cost turns out to be something else."""
    if session in state["costs"]:
        ended, before = state["costs"][session]
        _spend(state, ended, before, -1)
        _spend(state, ended, usd, 1)
        state["costs"][session] = [ended, usd]


def _tell(session: Session, said: Record) -> None:
    if (error := said.pop("error", None)) is not None:
        session["errors"].append(error)
    session.update(said)


def every_session(agent: str, lines: Iterable[Line]) -> list[Session]:
    """All sessions that a journal tells of, oldest first, with what was said of them later."""
    state, found = initial(agent), dict[str, Session]()
    for line in lines:
        state = fold(state, line)
        found.update({str(each["session_id"]): each for each in state["sessions"].values()})
        record, named = line.record, str(line.record.get("session_id"))
        older = _session_of(state, record) is None and named in found
        if record.get("event") == "session_set" and older:
            said = SETTABLE & record.keys() - set(_SAID)
            _tell(found[named], {name: record[name] for name in said})
    return list(found.values())


def _note(state: State, session: Session | None, record: Record, stamp: str) -> None:
    """An event in the course of a session, such as `sources_archived` or `finding`."""
    text = record.get("text")
    if isinstance(text, str) and text:
        state["summary"] = text
        state["updated_at"] = stamp
    count = record.get("count")
    if record["event"] == "sources_archived" and type(count) is int and session is not None:
        session["sources_archived"] = (session["sources_archived"] or 0) + count
        state["updated_at"] = stamp


def _note_error(state: State, session: Session | None, record: Record, stamp: str) -> None:
    message = str(record.get("message") or record.get("kind") or "error")
    if session is not None:
        session["errors"].append(message)
    state["summary"], state["updated_at"] = message, stamp


def _finish(state: State, record: Record, stamp: str) -> None:
    session = _session_of(state, record)
    if session is None or session["ended_at"] is not None:
        return  # whose start nobody wrote, or whose end was written before
    outcome = record.get("outcome")
    session["ended_at"] = stamp
    session["status"] = outcome if outcome in OUTCOMES else "error"
    for name in ("cause", "exit_code", "signal", "duration_seconds", "measured", "claimed"):
        if name in record:
            session[name] = record[name]
    state["newest"] = session["role"]
    if session["status"] == "completed":
        state["summary"] = f"{session['type']} session completed"
    recent = {"session_id": session["session_id"], "outcome": session["status"], "ended_at": stamp}
    state["recent"] = [*state["recent"], {**recent, "cause": record.get("cause")}][-RECENT:]
    cost = record["cost_usd"] if "cost_usd" in record else session["cost_usd"]
    _spend(state, stamp, cost, 1)
    state["costs"][str(session["session_id"])] = [stamp, cost]
    if len(state["costs"]) > _COSTS_KEPT:
        del state["costs"][next(iter(state["costs"]))]
    _say(state, session, record, stamp)


def _spend(state: State, stamp: str, usd: object, times: int) -> None:
    """Add what a session cost to the quarter in which it ended, or take it back."""
    if (at := instant(stamp)) is None:
        return
    quarter = utc_stamp(at // _QUARTER * _QUARTER)
    spent: dict[str, list[float]] = state["spent"]
    known, unknown = spent.pop(quarter, [0.0, 0])
    if isinstance(usd, int | float) and not isinstance(usd, bool):
        known = round(known + times * usd, 6)
    else:
        unknown += times
    spent[quarter] = [known, unknown]
    while len(spent) > _SPENT_KEPT:
        del spent[min(spent)]


def spent_since(state: State, instant: float) -> tuple[float, int]:
    """What sessions that ended since then cost in USD, and of how many it is unknown."""
    since = utc_stamp(instant)
    found = [each for quarter, each in state["spent"].items() if quarter >= since]
    return round(sum(known for known, _ in found), 6), sum(int(count) for _, count in found)


def _note_number(numbers: dict[str, int], text: object) -> None:
    try:
        found = session_id(str(text))
    except BadName:
        return
    numbers[found.day] = max(found.number, numbers.get(found.day, 0))
    if len(numbers) > DAYS_KEPT:
        del numbers[min(numbers)]


# --- what is shown --------------------------------------------------------------------------


Born = Callable[[], str | None]
"""Since when there is the agent: the time of what is shown before it did anything."""


def report(state: State, born: Born = lambda: None) -> Record:
    if (brought := state["imported"].get("report")) is not None:
        said = {name: state[name] for name in ("updated_at", *_SAID)}
        return {**brought, **{name: each for name, each in said.items() if each is not None}}
    last = newest_session(state)
    shown: Record = {
        "schema_version": "1.0",
        "agent": state["agent"],
        "updated_at": state["updated_at"] or born(),
        "status": _status(state),
        "summary": state["summary"] or "no session yet",
        "current_task": next((each["task"] for each in open_sessions(state) if each["task"]), None),
        "last_session": None if last is None else _last_session(last),
        "blocked_by": state["blocked_by"],
        "next_priority": state["next_priority"],
    }
    theirs = state["imported"].get("before", {})  # what only another system knows stays
    shown |= {name: theirs[name] for name in theirs if name not in (*shown, "roles")}
    roles = {role: _role(each) for role, each in state["sessions"].items() if role}
    return {**shown, "roles": roles} if roles else shown


def _status(state: State) -> str:
    for session in open_sessions(state):
        return _status_of(session)
    last = newest_session(state)
    return "idle" if last is None else _status_of(last)


def _status_of(session: Session) -> str:
    if session["ended_at"] is None:
        return STATUS_OF_TYPE.get(str(session["type"]), "working")
    return "error" if session["status"] in ("error", "timeout") else "idle"


def _role(session: Session) -> Record:
    return {
        "status": _status_of(session),
        "updated_at": session["ended_at"] or session["started_at"],
        "current_task": session["task"] if session["ended_at"] is None else None,
        "last_session": _last_session(session),
    }


def _last_session(session: Session) -> Record:
    return {
        "id": session["session_id"],
        "started_at": session["started_at"],
        "ended_at": session["ended_at"],
        "outcome": None if session["ended_at"] is None else session["status"],
        "sources_archived": session["sources_archived"],
        "branch": session["branch"],
        "pr_number": session["pr_number"],
    }


def session(state: State, role: str = "") -> Record:
    """The newest session of a role, in the documented fields and a few of ours."""
    newest = state["sessions"].get(role) if role else newest_session(state)
    if newest is None and not role and "session" in state["imported"]:
        return state["imported"]["session"]
    fields = ("session_id", "started_at", "ended_at", "type", "domain", "branch", "status")
    fields = (*fields, *(name for name in SESSION_FIELDS if name not in fields))
    found: Record = {"schema_version": "1.0", "agent": state["agent"]}
    if newest is None:
        return {**found, **dict.fromkeys(fields), "errors": []}
    found.update({name: newest[name] for name in fields})
    found["errors"] = newest["errors"]
    ours = ("role", "task", "pr_number", "cause", "exit_code", "signal", "duration_seconds")
    for name in (*ours, "measured", "claimed"):
        if newest.get(name) not in (None, ""):
            found[name] = newest[name]
    if newest["tools"] is not None:
        found["tools"] = tools.shown(newest["tools"])
    return found


def last_session(state: State) -> Record | None:
    """How the last session ended and what it left to say; of one that is under way, the one
    before it."""
    told, newest = report(state), session(state)
    last = as_object(told.get("last_session"))
    if not last.get("outcome"):
        return state["before"]
    found = {"id": last.get("id"), "outcome": last["outcome"], "cause": newest.get("cause")}
    said = {name: told.get(name) for name in _SAID}
    return {**found, **said, "handoff_notes": newest.get("handoff_notes")}


def left_so_far(state: State) -> Record:
    """What the session under way has left to say until now; empty if there is none."""
    newest = newest_session(state)
    if newest is None or newest["ended_at"] is not None:
        return {}
    before: Record = state["before"] or {}
    said = {name: state[name] for name in _LEFT if state[name] != before.get(name)}
    found = {"id": newest["session_id"], "handoff_notes": newest["handoff_notes"], **said}
    return found if newest["handoff_notes"] or said else {}


# --- what can be true of a session -----------------------------------------------------------

# A negative cost would give money back to a budget, and a negative count take sources away.
_NUMBERS = frozenset({"sources_archived", "sources_expected", "tokens_used", "pr_number"})


def is_credible(name: str, value: object) -> bool:
    from holdfast.models.report import count, usd  # noqa: PLC0415 - a heartbeat needs none of it

    if name == "cost_usd":
        return usd(value) is not None
    if name in _NUMBERS:
        return count(value) is not None
    return isinstance(value, str)


def check_fields(fields: Record) -> None:
    """Refuse what no session has, and what cannot be."""
    if unknown := fields.keys() - SETTABLE:
        raise UsageError(
            f"a session has no {min(unknown)!r}", hint=f"one of {', '.join(sorted(SETTABLE))}"
        )
    for name, value in fields.items():
        if not is_credible(name, value):
            from holdfast.models.report import MOST_COUNTED, MOST_USD  # noqa: PLC0415 - as above

            most = f"{MOST_USD:.0f} USD" if name == "cost_usd" else MOST_COUNTED
            raise BadValue(f"{name} cannot be {str(value)[:80]}", hint=f"from 0 to {most}")

"""What is counted for an agent, folded from its journal: in its life, and in the last thirty days.

Counted, never incremented: the window is made anew whenever somebody looks.  Pure.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast.agents.document import as_object, objects_in
from holdfast.agents.history import (
    DAY,
    DAYS_KEPT,
    OUTCOMES,
    Born,
    State,
    documents_in,
)
from holdfast.clock import instant, utc_stamp
from holdfast.codec import Record
from holdfast.store.primitives import Line

ROLLING_DAYS = 30
_PAST_KEPT, _ENDED_KEPT = 500, 200
COUNTERS = (
    *("claims_proposed", "claims_accepted", "claims_challenged", "claims_rejected"),
    *("cross_agent_flags_sent", "cross_agent_flags_received"),
)
"""What others count for an agent, by lines of their own."""


def initial(agent: str) -> State:
    return {
        "agent": agent,
        "updated_at": None,
        "lifetime": dict.fromkeys(
            (
                *("sessions_total", "sessions_completed", "sessions_timeout", "sessions_error"),
                *("sessions_crashed", "sources_archived", *COUNTERS),
                *("disconfirmation_attempts", "disconfirmation_hits"),
            ),
            0,
        ),
        "running": {},
        # What was counted of sessions that ended lately, for what is said of them afterwards.
        "ended": {},
        "recent": [],
        # Metrics of another system, shown until something is counted here; what they added to
        # the counters above; and its sessions, by when they ended.
        "shown": None,
        "brought": {},
        "past": {},
    }


def fold(state: State, line: Line) -> State:
    record = line.record
    event, stamp = record.get("event"), record.get("ts")
    if not (isinstance(event, str) and isinstance(stamp, str)):
        return state
    match event:
        case "session_start":
            target = bool(record.get("disconfirmation_target"))
            state["running"][str(record.get("session_id"))] = {"sources": 0, "target": target}
        case "session_set":
            _say_more(state, record, stamp)
        case "sources_archived":
            running = state["running"].get(str(record.get("session_id")))
            if running is not None and type(record.get("count")) is int:
                running["sources"] += record["count"]
        case "session_end":
            _count_session(state, record, stamp)
        case "count":
            _count(state, record, stamp)
        case "import":
            _bring(state, record)
        case _:
            pass
    return state


def _say_more(state: State, record: Record, stamp: str) -> None:
    """What was said of a session in its course, or after its end, counts as said at its end."""
    named, stated = str(record.get("session_id")), record.get("sources_archived")
    target = bool(record.get("disconfirmation_target"))
    if (running := state["running"].get(named)) is not None:
        running["target"] = running["target"] or target
        running["sources"] = stated if type(stated) is int else running["sources"]
    elif (ended := state["ended"].get(named)) is not None:
        lifetime = state["lifetime"]
        if type(stated) is int and stated != ended["sources"]:
            more, ended["sources"] = stated - ended["sources"], stated
            lifetime["sources_archived"] += more
            _recent(state, stamp, {"sources_archived": more})
        if target and not ended["target"]:
            ended["target"] = True
            lifetime["disconfirmation_attempts"] += 1


def _bring(state: State, record: Record) -> None:
    """Add what another system counted; of what was brought before, only the difference."""
    found = documents_in(record).get("metrics", {})
    lifetime, brought = state["lifetime"], state["brought"]
    for name, value in _counters(found.get("lifetime")).items():
        if name in lifetime:
            lifetime[name] += value - brought.get(name, 0)
            brought[name] = value
    if found and not state["recent"]:
        state["shown"] = found
    for past in objects_in(as_object(record.get("imported")).get("sessions")):
        ended = past.get("ended_at")
        if isinstance(ended, str):
            key = f"{ended} {past.get('session_id')}"
            counts = _counters({"sources_archived": past.get("sources_archived")})
            state["past"][key] = {"sessions": 1, **counts}
    state["past"] = dict(sorted(state["past"].items())[-_PAST_KEPT:])


def _counters(value: object) -> dict[str, int]:
    return {name: each for name, each in as_object(value).items() if type(each) is int}


def _count_session(state: State, record: Record, stamp: str) -> None:
    running = state["running"].pop(str(record.get("session_id")), None)
    if running is None:
        return
    outcome = record.get("outcome")
    outcome = outcome if outcome in OUTCOMES else "error"
    stated = record.get("sources_archived")
    sources = stated if type(stated) is int else running["sources"]
    lifetime = state["lifetime"]
    lifetime["sessions_total"] += 1
    lifetime[f"sessions_{outcome}"] += 1
    lifetime["sessions_crashed"] += record.get("cause") == "crashed"
    lifetime["sources_archived"] += sources
    lifetime["disconfirmation_attempts"] += running["target"]
    _recent(state, stamp, {"sessions": 1, "sources_archived": sources})
    ended = state["ended"]
    ended[str(record.get("session_id"))] = {"sources": sources, "target": running["target"]}
    if len(ended) > _ENDED_KEPT:
        del ended[next(iter(ended))]


def _count(state: State, record: Record, stamp: str) -> None:
    counters = record.get("counters")
    if not isinstance(counters, dict):
        return
    lifetime, known = state["lifetime"], Record()
    for name, value in cast("dict[str, Any]", counters).items():
        if name in lifetime and type(value) is int:
            lifetime[name] += value
            known[name] = value
    _recent(state, stamp, known)


def _recent(state: State, stamp: str, counts: Record) -> None:
    """Keep what a rolling window needs; what is older than any window can go."""
    state["updated_at"], state["shown"] = stamp, None
    recent: list[Any] = state["recent"]
    recent.append([stamp, counts])
    if (at := instant(stamp)) is not None:
        oldest = utc_stamp(at - DAYS_KEPT * DAY)
        state["recent"] = [each for each in recent if each[0] >= oldest]


def metrics(state: State, now: float, born: Born = lambda: None) -> Record:
    """The counters, and the last thirty days counted anew from `now`."""
    if state["shown"] is not None:
        return state["shown"]
    since, until = utc_stamp(now - ROLLING_DAYS * DAY), utc_stamp(now)
    known = [*state["recent"], *state["past"].items()]
    window = [counts for stamp, counts in known if since <= stamp[:20] <= until]

    def total(name: str) -> int:
        return sum(counts.get(name, 0) for counts in window)

    sessions, proposed = total("sessions"), total("claims_proposed")
    return {
        "schema_version": "1.0",
        "agent": state["agent"],
        "updated_at": state["updated_at"] or born(),
        "lifetime": state["lifetime"],
        "rolling_30d": {
            "sessions": sessions,
            "sources_archived": total("sources_archived"),
            "claims_proposed": proposed,
            "acceptance_rate": round(total("claims_accepted") / proposed, 4) if proposed else None,
            "avg_sources_per_session": (
                round(total("sources_archived") / sessions, 4) if sessions else None
            ),
        },
    }

"""The state of an agent's journal, folded once, the documents that show it, and what other logs
get of its lines; what was said in conversations they get from `chat`.

Lines of an owner who had lost the lease never get here (`store.fence`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast.agents import endings, history, metrics
from holdfast.agents.history import Born
from holdfast.clock import instant
from holdfast.codec import Record, pretty
from holdfast.layout import Part
from holdfast.ledger.entry import entry
from holdfast.store.fence import Fences, fenced
from holdfast.store.primitives import Line
from holdfast.store.view import Render, Shape

# --- words of its lines that agents may not use ----------------------------------------

# What is known of sessions, tasks and money is made of them: a line that an agent made up would
# retire it, give a number twice or pay for what was not done.
OWN_EVENTS = frozenset(
    {
        *("session_start", "session_set", "session_end", "error", "count", "lease", "joined"),
        *("tool_use", "import", "retired", "reinstated", "forked", "persona_changed"),
        *("task_added", "task_started", "task_completed", "task_dropped", "task_reopened"),
        *("task_parked", "noted", "text_imported", "edited_by_hand"),
    }
)
SOURCES = "sources_archived"
"""The one word of everybody's that is added up."""


# --- the fold -------------------------------------------------------------------------------

State = list[Any]
"""What the lines say of leases, and `history`, `metrics` and `endings` of the rest."""


def shape(agent: str) -> Shape[State]:
    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        history.fold(state["history"], line)
        metrics.fold(state["metrics"], line)
        endings.fold(state["endings"], line)
        return state

    initial = {"history": history.initial, "metrics": metrics.initial, "endings": endings.initial}
    return fenced(
        Shape(
            version=9,
            initial=lambda: {part: made(agent) for part, made in initial.items()},
            fold=fold,
        )
    )


def history_in(state: State) -> history.State:
    return state[1]["history"]


def fences_in(state: State) -> Fences:
    return state[0]


def lease_of(role: str) -> str:
    """The lease of the session of a role."""
    return f"session.{role}" if role else "session"


def views(
    key: Callable[[Part], str], now: Callable[[], float], born: Born = lambda: None
) -> dict[str, Render[State]]:
    """The documents of an agent by their keys.

    `now` is asked when the metrics are written; whoever reads through the API counts again.
    """
    return {
        key("report"): lambda state: pretty(history.report(history_in(state), born)),
        key("metrics"): lambda state: pretty(metrics.metrics(state[1]["metrics"], now(), born)),
        key("session"): session_of(""),
    }


def session_of(role: str) -> Render[State]:
    """The newest session of all, or of a role."""
    return lambda state: pretty(history.session(history_in(state), role))


# --- what other logs get of it: the ledger, and the topics of the memory -----------------------

SOURCE = "holdfast"
SUMMARIES = "chat/assistant/summaries"


def tell(line: Line) -> Record | None:
    """The entry of the ledger for a line of the journal."""
    record = line.record
    session = record.get("session_id")
    if not isinstance(session, str):
        return None
    agent = session.split("_", 1)[-1].rpartition("_")[0]
    task = str(record.get("task") or session)

    def made(event: str, summary: str, data: dict[str, Any], keep: str = "") -> Record:
        data = {name: value for name, value in data.items() if value is not None or name == keep}
        which = {"agent": agent, "session": session, "event": event, "task": task}
        return entry(**which, source=SOURCE, summary=summary, data=data)

    match record.get("event"):
        case "session_start":
            kind = str(record.get("type"))
            return made("task_start", f"{kind} session began", {"task_type": kind})
        case "error":
            message = str(record.get("message") or "error")
            return made("error", message, {"error": message, "kind": record.get("kind")})
        case "session_end":
            good = record.get("outcome") == "completed"
            data = {
                "status": "success" if good else "failure",
                "cause": record.get("cause"),
                "duration_sec": record.get("duration_seconds"),
                "exit_code": record.get("exit_code"),
            }
            summary = record.get("summary") or f"session ended: {record.get('outcome')}"
            # Null is unknown: after a crash, or of a session without a command.
            return made("task_result", str(summary), data, keep="exit_code")
        case _:
            return None


def in_topics(agent: str, line: Line) -> Record | None:
    """The entry of the agent's topics for a line of its journal."""
    record, meta = line.record, dict[str, object]()
    match record.get("event"):
        case "session_end":
            topic, meta["session_id"] = SUMMARIES, record.get("session_id")
            text = record.get("summary") or f"session ended: {record.get('outcome')}"
        case "persona_changed" if isinstance(goals := record.get("goals"), list):
            topic = f"goals/{agent}"
            text = "\n".join(map(str, cast("list[object]", goals))) or "none any more"
        case "forked" if (reach := _topics_before(record)) is not None:
            topic, meta["forked_from"] = "ancestry", reach
            text = f"What was known before stands in {reach['log']}, up to line {reach['seq']}."
        case _:
            return None
    at = instant(record.get("ts"))
    line_of_topic = {"topic": topic, "text": str(text), "meta": meta}
    return line_of_topic if at is None else {"ts": at, **line_of_topic}


def _topics_before(record: Record) -> Record | None:
    """How far back into the topics of its parent a fork reaches."""
    match record.get("forked_from"):
        case {"topics": {"log": str(), "seq": int()} as reach}:
            return cast("Record", reach)
        case _:
            return None

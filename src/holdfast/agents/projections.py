"""What other logs get of an agent's journal: its ledger, and the topics of its memory.

Projections, so each line is written there once, and what a dead process left is written by the next
one.  What was said in conversations goes there from `chat`.
"""

from __future__ import annotations

from typing import Any, cast

from holdfast.clock import instant_or_none
from holdfast.codec import Record
from holdfast.ledger.entry import entry
from holdfast.store.primitives import Line

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

    def told(event: str, summary: str, data: dict[str, Any], keep: str = "") -> Record:
        data = {name: value for name, value in data.items() if value is not None or name == keep}
        which = {"agent": agent, "session": session, "event": event, "task": task}
        return entry(**which, source=SOURCE, summary=summary, data=data)

    match record.get("event"):
        case "session_start":
            kind = str(record.get("type"))
            return told("task_start", f"{kind} session began", {"task_type": kind})
        case "error":
            message = str(record.get("message") or "error")
            return told("error", message, {"error": message, "kind": record.get("kind")})
        case "session_end":
            good = record.get("outcome") == "completed"
            data = {
                "status": "success" if good else "failure",
                "cause": record.get("cause"),
                "duration_sec": record.get("duration_seconds"),
                "exit_code": record.get("exit_code"),
            }
            summary = record.get("summary") or f"session ended: {record.get('outcome')}"
            # Null says that nobody knows it: of a crash, or of a session without a command.
            return told("task_result", str(summary), data, keep="exit_code")
        case _:
            return None


def told_in_topics(agent: str, line: Line) -> Record | None:
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
    at = instant_or_none(record.get("ts"))
    told = {"topic": topic, "text": str(text), "meta": meta}
    return told if at is None else {"ts": at, **told}


def _topics_before(record: Record) -> Record | None:
    """How far back into the topics of its parent a fork reaches."""
    match record.get("forked_from"):
        case {"topics": {"log": str(), "seq": int()} as reach}:
            return cast("Record", reach)
        case _:
            return None

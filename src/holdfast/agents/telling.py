"""What the ledger of an agent is told of its journal."""

from __future__ import annotations

from typing import Any

from holdfast.codec import Record
from holdfast.ledger.entry import entry
from holdfast.store.primitives import Line

SOURCE = "holdfast"


def tell(line: Line) -> Record | None:
    """The entry of the ledger for a line of the journal."""
    record = line.record
    session = record.get("session_id")
    if not isinstance(session, str):
        return None
    agent = session.split("_", 1)[-1].rpartition("_")[0]
    task = str(record.get("task") or session)

    def told(event: str, summary: str, data: dict[str, Any], keep: str = "") -> Record:
        return entry(
            agent=agent,
            session=session,
            event=event,
            task=task,
            source=SOURCE,
            summary=summary,
            data={name: value for name, value in data.items() if value is not None or name == keep},
        )

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

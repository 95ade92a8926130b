"""What other logs get of an agent's journal: its ledger, and the topics of its memory.

Projections, so each line is written there once, and what a dead process left is written by the next
one.  What was said in conversations goes there from `chat`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast.clock import instant_of
from holdfast.codec import Record
from holdfast.layout import retold
from holdfast.ledger.entry import entry
from holdfast.state.followed import Followed
from holdfast.state.spared import Spared
from holdfast.store.primitives import Cursor, Line, Log
from holdfast.store.projection import Projection

if TYPE_CHECKING:
    from holdfast.layout import Part
    from holdfast.store.home import Home

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


class Topics:
    """Opens nothing before there is something to tell."""

    def __init__(self, home: Home, agent: str, key: Callable[[Part], str], journal: Log) -> None:
        self._home, self._agent, self._key, self._journal = home, agent, key, journal

    def catch_up(self, acked: Cursor | None = None) -> None:
        """Have the topics say what the journal says."""
        topics = Followed(self._home.log(self._key("topics")))
        cell = Spared(self._home.cell(retold(self._agent, "journal")))
        projection = Projection(self._journal, topics, cell, self._tell)
        try:
            projection.catch_up(acked)
        finally:
            projection.close()
            topics.close()

    def _tell(self, line: Line) -> Record | None:
        record, meta = line.record, dict[str, object]()
        match record.get("event"):
            case "session_end":
                topic, meta["session_id"] = SUMMARIES, record.get("session_id")
                text = record.get("summary") or f"session ended: {record.get('outcome')}"
            case "persona_changed" if isinstance(goals := record.get("goals"), list):
                topic = f"goals/{self._agent}"
                text = "\n".join(map(str, cast("list[object]", goals))) or "none any more"
            case "forked" if (reach := _topics_before(record)) is not None:
                topic, meta["forked_from"] = "ancestry", reach
                text = f"What was known before stands in {reach['log']}, up to line {reach['seq']}."
            case _:
                return None
        told = {"topic": topic, "text": str(text), "meta": meta}
        try:
            return {"ts": instant_of(str(record.get("ts"))), **told}
        except ValueError:
            return told  # somebody edited the stamp


def _topics_before(record: Record) -> Record | None:
    """How far back into the topics of its parent a fork reaches."""
    match record.get("forked_from"):
        case {"topics": {"log": str(), "seq": int()} as reach}:
            return cast("Record", reach)
        case _:
            return None

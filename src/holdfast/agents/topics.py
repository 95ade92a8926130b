"""What the journal has to say to the topics of an agent's memory: ends of sessions, and goals.

A projection, so each line is told once, and what a dead process left untold is told by whoever
comes next.  What was said in conversations is told by `retold`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from holdfast.clock import instant_of
from holdfast.codec import Record
from holdfast.layout import retold
from holdfast.store.primitives import Cursor, Line, Log
from holdfast.store.projection import Projection

if TYPE_CHECKING:
    from holdfast.layout import Part
    from holdfast.store.home import Home

SUMMARIES = "chat/assistant/summaries"


class Topics:
    """Opens nothing before there is something to tell."""

    def __init__(self, home: Home, agent: str, key: Callable[[Part], str], journal: Log) -> None:
        self._home, self._agent, self._key, self._journal = home, agent, key, journal

    def catch_up(self, acked: Cursor | None = None) -> None:
        """Have the topics say what the journal says."""
        topics = self._home.log(self._key("topics"))
        cell = self._home.cell(retold(self._agent, "journal"))
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

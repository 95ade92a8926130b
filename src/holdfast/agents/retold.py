"""What the conversation is told again in: the ledger, and the topics of the agent's memory.

Both are projections, caught up when somebody has finished talking and outside of every turn; what a
dead process left untold is told by the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.calls.sealing import MARK, meta_of
from holdfast.codec import Record
from holdfast.layout import retold
from holdfast.ledger.entry import NO_TASK, entry
from holdfast.store.primitives import Line, Log
from holdfast.store.projection import Projection

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.layout import Part
    from holdfast.ledger.book import Ledger
    from holdfast.store.home import Home

SOURCE = "holdfast"


def tell_again(
    home: Home, agent: str, key: Callable[[Part], str], said: Log, ledger: Ledger
) -> None:
    """Have ledger and topics say what the conversation says."""
    topics = home.log(key("topics"))
    both = (
        ledger.told_by(said, home.cell(retold(agent, "ledger")), _in_ledger(agent)),
        Projection(said, topics, home.cell(retold(agent, "topics")), _as_topic),
    )
    acked = said.settle()
    try:
        for each in both:
            each.catch_up(acked)
        ledger.refresh()
    finally:
        for each in both:
            each.close()
        topics.close()


def _in_ledger(agent: str) -> Callable[[Line], Record | None]:
    def tell(line: Line) -> Record | None:
        meta = meta_of(line.record)
        session = meta.get("session_id")
        if "turn" not in meta or "request" in meta or not isinstance(session, str):
            return None
        model, error = meta.get("model"), meta.get("error")
        names = ("model", "input_tokens", "output_tokens", "cost_usd", "seconds", "error")
        data: dict[str, Any] = {name: meta[name] for name in names if name in meta}
        summary = f"no reply: {error}" if error else f"{model} replied"
        return entry(
            agent=agent,
            session=session,
            event="info",
            task=NO_TASK,
            source=SOURCE,
            summary=summary,
            data=data | {"turn": meta["turn"]},
        )

    return tell


def _as_topic(line: Line) -> Record | None:
    """What was said, under who said it and its first word."""
    record = line.record
    role, text, meta = record.get("role"), record.get("content"), meta_of(record)
    if "turn" not in meta or role not in ("user", "assistant") or not isinstance(text, str):
        return None
    if MARK in meta:
        # As it is: it opens with the place that the projection's `ref` names.
        told, first = {"turn": meta["turn"], MARK: meta[MARK]}, MARK
    else:
        told = {"turn": meta["turn"]}
        first = text.split(maxsplit=1)[0].lower()[:64] if text.strip() else "-"
    topic = f"chat/{role}/{first.replace('/', '-')}"
    return {"ts": record.get("ts"), "topic": topic, "text": text, "meta": told}

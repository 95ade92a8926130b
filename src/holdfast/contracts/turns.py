"""What the turns of an agent's sessions came to."""

from __future__ import annotations

from holdfast.contracts.agents import SessionIdText, Usd
from holdfast.contracts.kind import Form, Kind, has_fields
from holdfast.contracts.record import Count, Document, NonEmpty, Record


class SessionTurns(Record):
    turns: Count
    failed: Count
    usd: Usd
    unknown: Count
    """Turns of which nobody told what they cost."""
    assumed_usd: Usd
    """What had been set aside for those."""
    reserved_usd: Usd
    """For questions that wait for their answers."""
    tokens: Count
    over_usd: Usd
    """By how much calls cost more than was set aside for them."""


class WaitingTurn(Record):
    """A question without an answer."""

    session_id: SessionIdText
    model: NonEmpty | None
    reserved_usd: Usd | None


class Turns(Document):
    turns: Count
    sessions: dict[SessionIdText, SessionTurns]
    """The latest ones."""
    waiting: dict[str, WaitingTurn]


KINDS: tuple[Kind, ...] = (
    Kind(
        name="turns",
        what="What an agent asked models lately, and what that cost",
        shape="document",
        forms=(Form("1.0", Turns),),
        paths=(r"(?:^|/)turns\.json$",),
        looks=lambda value: has_fields(value, "turns", "sessions", "waiting"),
    ),
)

"""The book of money that sessions reserve and spend, and its view."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.contracts.agents import SessionIdText, Usd
from holdfast.contracts.kind import Form, Kind, has_fields
from holdfast.contracts.loglines import LOG_FORM, Digest
from holdfast.contracts.record import Count, Document, NonEmpty, OffsetTime, Record

Sum = Annotated[float, Field(allow_inf_nan=False)]
"""In USD; a correction may have taken a little more than was there."""


class SpendLine(Record):
    """Money set aside for a session, what became of it, or what somebody corrected later."""

    ts: OffsetTime
    event: Literal["reserve", "settle", "correct"]
    session_id: SessionIdText
    usd: Usd | None
    """None is unknown."""
    owner: list[str | int] | None = None
    """The process that reserved it."""
    tokens: Count | None = None
    was_usd: Usd | None = None
    reserved_usd: Usd | None = None
    summary: str | None = None
    ref: NonEmpty | None = None
    seq: Count | None = None
    hash: Digest | None = None


class SpentByAgent(Record):
    usd: Sum
    unknown: int
    """Sessions of which nobody told what they cost."""
    assumed_usd: Sum
    """What had been set aside for those."""
    reserved_usd: Sum
    tokens: Count
    sessions: Count


class Spent(Document):
    """What agents have spent, by the day on which their sessions began."""

    days: dict[str, dict[str, SpentByAgent]]
    reserved: dict[str, Usd]
    """For sessions that are under way."""


def _looks_like_line(value: Any) -> bool:
    return has_fields(value, "session_id", "event", "usd")


KINDS: tuple[Kind, ...] = (
    Kind(
        name="spend",
        what="Money that sessions reserved and spent",
        shape="lines",
        forms=(LOG_FORM, Form("1.0", SpendLine)),
        paths=(r"(?:^|/)spend/[0-9-]+(?:\.[^/]+)?\.jsonl$",),
        looks=_looks_like_line,
    ),
    Kind(
        name="spent",
        what="What agents have spent in the last days",
        shape="document",
        forms=(Form("1.0", Spent),),
        paths=(r"(?:^|/)spend\.json$",),
        looks=lambda value: has_fields(value, "days", "reserved"),
    ),
)

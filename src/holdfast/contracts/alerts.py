"""What somebody had to be told of agents, and what of it lasts."""

from __future__ import annotations

from typing import Literal

from holdfast.contracts.kind import Form, Kind, has_fields
from holdfast.contracts.loglines import LOG_FORM, Digest
from holdfast.contracts.record import Count, Document, NonEmpty, OffsetTime, Record, Seconds


class AlertLine(Record):
    """A trouble that began, lasts, was acknowledged or is over."""

    ts: OffsetTime
    event: Literal["raised", "again", "acked", "cleared"]
    id: NonEmpty
    agent: NonEmpty
    kind: NonEmpty
    """The word for the trouble, which stays while it lasts."""
    says: str
    told: bool | None = None
    """Whether somebody was told; the same is not told twice in a short time."""
    at: Seconds | None = None
    """Since the epoch: by this the time until it is told again is counted."""
    by: str | None = None
    note: str | None = None
    seq: Count | None = None
    hash: Digest | None = None


class OpenAlert(Record):
    since: OffsetTime
    agent: NonEmpty
    kind: NonEmpty
    says: str
    times: Count
    """How often it was told."""
    acked_by: str | None


class OpenAlerts(Document):
    open: dict[str, OpenAlert]


KINDS: tuple[Kind, ...] = (
    Kind(
        name="alert",
        what="What somebody had to be told",
        shape="lines",
        forms=(LOG_FORM, Form("1.0", AlertLine)),
        paths=(r"(?:^|/)alerts/[0-9-]+(?:\.[^/]+)?\.jsonl$",),
        looks=lambda value: has_fields(value, "event", "id", "agent", "kind", "says"),
    ),
    Kind(
        name="alerts",
        what="Troubles that are not over",
        shape="document",
        forms=(Form("1.0", OpenAlerts),),
        paths=(r"(?:^|/)state/alerts\.json$",),
        looks=lambda value: has_fields(value, "open") and "reserved" not in value,
    ),
)

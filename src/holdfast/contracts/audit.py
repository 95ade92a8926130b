"""What broke the rules, was refused, was taken out, or is odd."""

from __future__ import annotations

from typing import Annotated, Any

from holdfast.contracts.kind import Form, Kind, has_fields
from holdfast.contracts.loglines import LOG_FORM, Digest
from holdfast.contracts.record import Count, Free, NonEmpty, OffsetTime, Record


class AuditLine(Record):
    ts: OffsetTime
    event: NonEmpty
    """The kind of entry; what the store itself noticed has words of its own."""
    detail: str
    job_id: NonEmpty | None = None
    agent: NonEmpty | None = None
    sequence: Count | None = None
    """Of the call of the job that it is about."""
    ref: NonEmpty | None = None
    """What it was told about, such as a line of another log: told once, however often it is met."""
    data: Annotated[dict[str, Any], Free("what there is to add depends on the event")] | None = None
    seq: Count | None = None
    hash: Digest | None = None


KINDS: tuple[Kind, ...] = (
    Kind(
        name="audit",
        what="Rules that were broken, what was refused, and other odd things",
        shape="lines",
        forms=(LOG_FORM, Form("1.0", AuditLine)),
        paths=(r"(?:^|/)audit/[0-9-]+(?:\.[^/]+)?\.jsonl$",),
        looks=lambda value: has_fields(value, "ts", "event", "detail"),
    ),
)

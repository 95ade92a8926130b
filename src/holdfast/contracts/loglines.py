"""Lines that a log or a lease writes about itself, between the lines of whoever uses it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, model_validator

from holdfast.contracts.kind import Form
from holdfast.contracts.record import (
    Count,
    NonEmpty,
    Number,
    OffsetTime,
    Record,
    UtcTime,
    broken_rule,
)

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Fence = Annotated[int, Field(ge=1)]


class LogLine(Record):
    """A lease that was taken, renewed or released; a cut or failed segment; a redacted line."""

    ts: OffsetTime | None = None  # by the zone of the home
    lease: NonEmpty | None = None
    fence: Fence | None = None
    purpose: str | None = None
    since: UtcTime | None = None
    owner: list[str | int] | None = None
    host: str | None = None
    boot: str | None = None
    deadline: Number | None = None
    until: UtcTime | None = None
    released: bool | None = None
    log: Literal["segment_failed", "cut_tail"] | None = Field(default=None, alias="_log")
    segment: str | None = None
    error: str | None = None
    lost: Count | None = None
    hash_of_lost: Digest | None = None
    redacted: Digest | None = None
    seq: Count | None = None
    hash: Digest | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        said = [each for each in (self.lease, self.log, self.redacted) if each is not None]
        if len(said) != 1:
            raise broken_rule("a line of the log itself has one of lease, _log and redacted")
        if self.lease is not None and self.fence is None:
            raise broken_rule("a lease has a fence")
        return self


def is_log_line(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    line = cast("dict[str, Any]", value)
    return "event" not in line and any(name in line for name in ("lease", "_log", "redacted"))


LOG_FORM = Form("log", LogLine, matches=is_log_line)

"""Records that a home adds to those of its agents.

The logs and views of money, alerts and the audit; an agent's turns; and what lines of the journal
say of a session that was measured, of files that were imported, of an agent that was forked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from holdfast.contracts.kind import Kind, has_fields
from holdfast.contracts.record import (
    AgentName,
    ChainedLine,
    Count,
    Digest,
    Document,
    Free,
    NonEmpty,
    Number,
    OffsetTime,
    Record,
    Seconds,
    SessionIdText,
    Usd,
    UtcTime,
)


class SpendLine(ChainedLine):
    """Money reserved for a session, settled, or corrected later."""

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


class SpentByAgent(Record):
    usd: Number
    """A correction may have taken a little more than was there."""
    unknown: int
    """Sessions with an unreported cost."""
    assumed_usd: Number
    """What had been reserved for those."""
    reserved_usd: Number
    tokens: Count
    sessions: Count


class Spent(Document):
    """What agents have spent, by the day on which their sessions began."""

    days: dict[str, dict[str, SpentByAgent]]
    reserved: dict[str, Usd]
    """For sessions that are under way."""


class AlertLine(ChainedLine):
    """A trouble that began, lasts, was acknowledged or is over."""

    ts: OffsetTime
    event: Literal["raised", "again", "acked", "cleared"]
    id: NonEmpty
    agent: NonEmpty
    kind: NonEmpty
    """The word for the trouble, which stays while it lasts."""
    says: str
    told: bool | None = None
    """Whether it was sent; the same alert is not sent twice in a short time."""
    at: Seconds | None = None
    """Since the epoch: the time until it is sent again is counted from here."""
    by: str | None = None
    note: str | None = None


class OpenAlert(Record):
    since: OffsetTime
    agent: NonEmpty
    kind: NonEmpty
    says: str
    times: Count
    """How often it was sent."""
    acked_by: str | None


class OpenAlerts(Document):
    open: dict[str, OpenAlert]


class AuditLine(ChainedLine):
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


class SessionTurns(Record):
    turns: Count
    failed: Count
    usd: Usd
    unknown: Count
    """Turns with an unreported cost."""
    assumed_usd: Usd
    """What had been reserved for those."""
    reserved_usd: Usd
    """For questions that wait for their answers."""
    tokens: Count
    over_usd: Usd
    """By how much calls cost more than was reserved for them."""


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


class Measured(Record):
    """What the wrapper of a session saw for itself."""

    files_touched: list[str] | None = None
    """The first of them, below the folder in which the command ran."""
    files_touched_count: Count | None = None
    sources_archived: Count | None = None
    cpu_seconds: Seconds | None = None
    peak_memory_bytes: Count | None = None
    output_bytes: Count | None = None
    survivors_killed: Count | None = None
    tool_calls: Count | None = None
    tool_failures: Count | None = None


class Tools(Record):
    """What hooks told of the tools that an agent used."""

    calls: Count
    failed: Count
    by_name: dict[str, Count]
    wrote: list[str]


class Claimed(Record):
    """What the agent reports, where it was measured as well."""

    sources_archived: Count | None = None


class ImportedFile(Record):
    path: NonEmpty
    """Where it was, below what was imported."""
    sha256: Digest
    bytes: Count
    name: NonEmpty | None = None
    """Of the copy that is kept of it, in the folder `imported`."""
    text_sha256: Digest | None = None
    """Of the text that was made of it, for one that people edit."""


class PastSession(Record):
    """A session as far as the other system wrote it down."""

    session_id: str | None
    started_at: UtcTime | None
    ended_at: UtcTime | None
    type: str | None = None
    outcome: str | None = None
    sources_archived: Count | None = None
    status: str | None = None
    stops: Count | None = None
    """How often a hook wrote that it ended."""


class Imported(Record):
    layout: NonEmpty
    name: str
    """What the agent is called there."""
    files: list[ImportedFile]
    documents: (
        Annotated[dict[str, Any], Free("report, session and metrics as the other system had them")]
        | None
    ) = None
    sessions: list[PastSession] | None = None


class Reach(Record):
    """How far into a log of another agent an agent's own memory reaches back."""

    log: NonEmpty
    seq: Count
    hash: Digest
    after: list[int | str] | None = None
    """From where it is read for what was said last, as a place in that log."""


class ForkedFrom(Record):
    """The agent that an agent began as, and what it knew then."""

    agent: AgentName
    conversation: Reach | None = None
    topics: Reach | None = None


KINDS: tuple[Kind, ...] = (
    Kind.of(
        "spend",
        "Money that sessions reserved and spent",
        SpendLine,
        r"spend/[0-9-]+(?:\.[^/]+)?\.jsonl",
        ("session_id", "event", "usd"),
        shape="lines",
    ),
    Kind.of(
        "spent",
        "What agents have spent in the last days",
        Spent,
        r"spend\.json",
        ("days", "reserved"),
    ),
    Kind.of(
        "alert",
        "Alerts",
        AlertLine,
        r"alerts/[0-9-]+(?:\.[^/]+)?\.jsonl",
        ("event", "id", "agent", "kind", "says"),
        shape="lines",
    ),
    Kind.of(
        "alerts",
        "Troubles that are not over",
        OpenAlerts,
        r"state/alerts\.json",
        lambda value: has_fields(value, "open") and "reserved" not in value,
    ),
    Kind.of(
        "audit",
        "Rules that were broken, what was refused, and other odd things",
        AuditLine,
        r"audit/[0-9-]+(?:\.[^/]+)?\.jsonl",
        ("ts", "event", "detail"),
        shape="lines",
    ),
    Kind.of(
        "turns",
        "What an agent asked models lately, and what that cost",
        Turns,
        r"turns\.json",
        ("turns", "sessions", "waiting"),
    ),
)

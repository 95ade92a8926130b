"""An agent's own files: report, tasks, session, inbox, journal, metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from holdfast.contracts import notes
from holdfast.contracts.kind import (
    LOG_FORM,
    Finding,
    Form,
    Kind,
    Level,
    Origin,
    has_fields,
    objects_in,
    of_each,
)
from holdfast.contracts.own import Claimed, ForkedFrom, Imported, Measured, Tools
from holdfast.contracts.record import (
    AgentName,
    Also,
    ChainedLine,
    Count,
    Document,
    Doubt,
    Fence,
    Free,
    NonEmpty,
    Record,
    Seconds,
    SessionIdText,
    Usd,
    UtcTime,
    broken_rule,
)
from holdfast.errors import BadName
from holdfast.ids import is_message_id, session_id

SessionType = Literal["research", "extract", "evaluate", "ad-hoc"]
Outcome = Literal["completed", "timeout", "error"]
ReportStatus = Literal["idle", "researching", "extracting", "evaluating", "working", "error"]
Share = Annotated[float, Field(ge=0, le=1)]


def _odd_id(text: str | None, field: str) -> Iterator[Doubt]:
    if text is not None:
        try:
            session_id(text)
        except BadName:
            yield Doubt("old_id", field, f"{text!r} is not of the form YYYY-MM-DD_agent_001")


class LastSession(Record):
    id: SessionIdText
    started_at: UtcTime | None = None
    ended_at: UtcTime | None = None
    outcome: Outcome | None = None
    sources_archived: Count | None = None
    branch: str | None = None
    pr_number: Count | None = None
    cause: NonEmpty | None = None


class RoleReport(Record):
    """What one role of the agent does; several can be at work at once."""

    status: ReportStatus
    updated_at: UtcTime
    summary: str | None = None
    current_task: str | None = None
    last_session: LastSession | None = None


class Report(Document):
    agent: AgentName
    updated_at: UtcTime
    status: ReportStatus
    summary: str
    current_task: str | None = None
    last_session: LastSession | None = None
    blocked_by: str | None = None
    next_priority: str | None = None
    roles: dict[str, RoleReport] | None = None
    often_missing = frozenset({"current_task", "last_session", "blocked_by", "next_priority"})

    def doubts(self) -> Iterator[Doubt]:
        if self.last_session:
            yield from _odd_id(self.last_session.id, "last_session.id")
        for name, role in (self.roles or {}).items():
            if role.last_session:
                yield from _odd_id(role.last_session.id, f"roles.{name}.last_session.id")


class Parked(Record):
    """Why a task is handed out no more, until it is reopened."""

    reason: NonEmpty
    attempts: Count
    since: UtcTime


class Task(Record):
    id: NonEmpty
    type: Literal["research", "extract", "evaluate", "follow-up", "disconfirm"]
    description: NonEmpty
    status: Literal["pending", "active", "completed", "dropped"]
    priority: Annotated[
        Literal["high", "medium", "low"],
        Also(medium=("normal",), low=("routine",), high=("time-sensitive", "blocking")),
    ]
    created_at: UtcTime
    context: str | None = None
    follow_up_from: NonEmpty | None = None
    completed_at: UtcTime | None = None
    outcome: str | None = None
    parked: Parked | None = None
    from_message: NonEmpty | None = None
    """The message it was made of."""

    @model_validator(mode="after")
    def _only_what_waits_is_parked(self) -> Self:
        if self.parked is not None and self.status != "pending":
            raise broken_rule(f"a parked task is pending, not {self.status}")
        return self


class Tasks(Document):
    agent: AgentName
    updated_at: UtcTime
    tasks: list[Task]

    def doubts(self) -> Iterator[Doubt]:
        for number, task in enumerate(self.tasks):
            ended = task.status in ("completed", "dropped")
            if ended and task.completed_at is None:
                reason = f"missing, though the task is {task.status}"
                yield Doubt("missing", f"tasks[{number}].completed_at", reason)
            elif task.completed_at is not None and not ended:
                reason = f"set, though the task is {task.status}"
                yield Doubt("contradiction", f"tasks[{number}].completed_at", reason)


class SessionError(Record):
    kind: NonEmpty
    message: str
    at: UtcTime | None = None


class _AboutSession(Record):
    """What a session is known by, in its document and in the lines of the journal."""

    role: AgentName | None = None
    domain: str | None = None
    branch: str | None = None
    model: str | None = None
    timeout_seconds: Count | Seconds | None = None
    research_question: str | None = None
    belief_targeted: str | None = None
    disconfirmation_target: str | None = None
    sources_archived: Count | None = None
    sources_expected: Count | None = None
    tokens_used: Count | None = None
    cost_usd: Usd | None = None
    handoff_notes: str | None = None
    task: NonEmpty | None = None
    pr_number: Count | None = None
    cause: NonEmpty | None = None
    exit_code: int | None = None
    signal: Count | None = None
    duration_seconds: Seconds | None = None
    measured: Measured | None = None
    claimed: Claimed | None = None


class Session(_AboutSession, Document):
    """The newest session of an agent, or of one of its roles.  All null before the first one."""

    agent: AgentName
    session_id: SessionIdText | None
    started_at: UtcTime | None
    ended_at: UtcTime | None
    type: SessionType | None
    status: Literal["running", "completed", "timeout", "error"] | None
    errors: list[str | SessionError] | None = None
    tools: Tools | None = None
    often_missing: ClassVar[frozenset[str]] = frozenset(
        {
            *("domain", "branch", "model", "timeout_seconds", "research_question"),
            *("belief_targeted", "disconfirmation_target", "sources_archived", "sources_expected"),
            *("tokens_used", "cost_usd", "errors", "handoff_notes"),
        }
    )

    def doubts(self) -> Iterator[Doubt]:
        yield from _odd_id(self.session_id, "session_id")
        if self.status is None:
            return
        for name in ("session_id", "started_at", "type"):
            if getattr(self, name) is None:
                yield Doubt("missing", name, f"null, though the session is {self.status}")
        if self.status == "running" and self.ended_at is not None:
            yield Doubt("contradiction", "ended_at", "set, though the session is running")
        if self.status != "running" and self.ended_at is None:
            yield Doubt("missing", "ended_at", f"null, though the session is {self.status}")


class LegacySession(Document):
    """What a stop hook wrote: neither when a session began nor its agent."""

    id: NonEmpty
    ended: UtcTime
    status: Outcome


def _names_a_message(text: str) -> str:
    if not is_message_id(text):
        raise broken_rule("not a message id")
    return text


class Message(Document):
    id: Annotated[NonEmpty, AfterValidator(_names_a_message)]
    from_: AgentName = Field(alias="from")
    to: AgentName
    created_at: UtcTime
    type: Literal["flag", "task", "question", "cascade"]
    priority: Annotated[
        Literal["high", "normal"],
        Also(normal=("medium", "low", "routine"), high=("time-sensitive", "blocking")),
    ]
    subject: str
    body: str
    source_ref: str | None = None
    expires_at: UtcTime | None = None
    thread: NonEmpty | None = None
    sent_by: AgentName | None = None
    """The agent in whose session it was sent; `from` is the sender's claim."""
    proof: str | None = None
    """Over the whole message, under a key of the home: without it `sent_by` is a claim."""
    often_missing = frozenset({"source_ref", "expires_at"})


EVENTS: dict[str, tuple[str, ...]] = {
    "session_start": ("session_id", "type"),
    "orient_complete": ("files_read",),
    "sources_archived": ("count",),
    "session_set": ("session_id",),
    "session_end": ("outcome",),
    "count": ("source", "counters"),
    "error": ("message",),
    "joined": ("session_id", "known_as"),
    "tool_use": ("session_id", "tool"),
    "edited_by_hand": ("file", "new", "patch"),
    "text_imported": ("file", "new", "patch"),
    "import": ("imported",),
    "persona_changed": ("file", "new", "patch"),
    "forked": ("forked_from",),
    "retired": (),
    "reinstated": (),
}
"""The events we know, and what a line of each has to say."""


class JournalLine(_AboutSession, ChainedLine):
    """What happened in a session, or to a document.  Ended only by `session_end`."""

    ts: UtcTime
    event: NonEmpty
    agent: AgentName | None = None
    session_id: SessionIdText | None = None
    type: SessionType | None = None
    files_read: list[str] | None = None
    count: Count | None = None
    outcome: Outcome | None = None
    handoff: str | None = None
    kind: NonEmpty | None = None
    message: str | None = None
    output_tail: str | None = None
    tree: Annotated[dict[str, Any], Free("the mark of the session's processes")] | None = None
    known_as: NonEmpty | None = None
    tool: NonEmpty | None = None
    input: str | None = None
    wrote: str | None = None
    failed: str | None = None
    call: NonEmpty | None = None
    reason: str | None = None
    text: str | None = None
    was_usd: Usd | None = None
    """The reported cost of an ended session before it was corrected."""
    budget_usd: Usd | None = None
    """What was reserved for it."""
    summary: str | None = None
    next_priority: str | None = None
    blocked_by: str | None = None
    source: NonEmpty | None = None
    counters: dict[str, int] | None = None
    file: NonEmpty | None = None
    old: str | None = None
    new: str | None = None
    theirs: str | None = None
    base: str | None = None
    patch: list[list[int | list[str]]] | None = None
    saved: list[list[int | list[str]]] | None = None
    imported: Imported | None = None
    goals: list[str] | None = None
    """What the agent is for, where a line changes it."""
    forked_from: ForkedFrom | None = None
    swapped: dict[str, str] | None = None
    """The agents of the old and the new persona, and the reason."""
    ref: NonEmpty | None = None
    fence: Fence | None = None

    def doubts(self) -> Iterator[Doubt]:
        yield from _odd_id(self.session_id, "session_id")
        needed = EVENTS.get(self.event)
        # Whoever uses `session note` has words of his own; a line of others may be of another kind.
        if needed is None and self.seq is None:
            yield Doubt("unknown_event", "event", f"{self.event!r} is not an event we know")
        for name in needed or ():
            if getattr(self, name) is None:
                yield Doubt("missing", name, f"missing in a line of {self.event}")


class Lifetime(Record):
    sessions_total: Count
    sessions_completed: Count
    sessions_timeout: Count
    sessions_error: Count
    sources_archived: Count
    claims_proposed: Count
    claims_accepted: Count
    claims_challenged: Count
    claims_rejected: Count
    disconfirmation_attempts: Count
    disconfirmation_hits: Count
    cross_agent_flags_sent: Count
    cross_agent_flags_received: Count
    sessions_crashed: Count | None = None

    @model_validator(mode="after")
    def _sessions_add_up(self) -> Self:
        ended = self.sessions_completed + self.sessions_timeout + self.sessions_error
        if self.sessions_total != ended:
            raise broken_rule(
                f"sessions_total is {self.sessions_total}, "
                f"but completed, timeout and error add up to {ended}"
            )
        if (self.sessions_crashed or 0) > self.sessions_error:
            raise broken_rule("sessions_crashed counts some of sessions_error, and exceeds it")
        return self


class Rolling(Record):
    sessions: Count
    sources_archived: Count
    claims_proposed: Count
    acceptance_rate: Share | None
    avg_sources_per_session: Seconds | None


class Metrics(Document):
    agent: AgentName
    updated_at: UtcTime
    lifetime: Lifetime
    rolling_30d: Rolling


# --- what one record cannot show ------------------------------------------------------------


_OF_AGENTS = {"state", "agent-state", "agents"}
_OWN_FILE = re.compile(r"(?:report|tasks|metrics|session(?:\.[^.]+)?)\.json|journal.*\.jsonl")
"""The names that files have in the directory of an agent."""
_SESSION_FILE = re.compile(r"session(?:\.([A-Za-z0-9][A-Za-z0-9_-]{0,63}))?\.json")
_AFTER_ID = re.compile(r"\.json~|~\d{1,2}\.json$|\.json$")


def _whose(value: dict[str, Any], field: str, origin: Origin, up: int) -> Iterator[Finding]:
    """The agent that a file names is the one whose directory it lies in."""
    named, directory = value.get(field), origin.parent(up)
    if isinstance(named, str) and directory and named.casefold() != directory.casefold():
        level: Level = "error" if origin.parent(up + 1) in _OF_AGENTS else "warning"
        reason = f"{named!r}, but it lies in the directory {directory!r}"
        yield Finding(level, "place", field, reason)


def _check_place(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    if _OWN_FILE.fullmatch(origin.name):
        yield from _whose(value, "agent", origin, 1)


def _check_session(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    yield from _check_place(value, origin)
    named, role = _SESSION_FILE.fullmatch(origin.name), value.get("role")
    if named and named[1] and isinstance(role, str) and role != named[1]:
        yield Finding("error", "place", "role", f"{role!r}, but the file is {origin.name}")


def _check_tasks(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    yield from _check_place(value, origin)
    tasks = list(objects_in(value.get("tasks")))
    known = {str(task.get("id")) for task in tasks}
    seen: set[str] = set()
    for number, task in enumerate(tasks):
        id, before = str(task.get("id")), task.get("follow_up_from")
        if id in seen:
            reason = f"{id!r} is the id of another task too"
            yield Finding("error", "duplicate", f"tasks[{number}].id", reason)
        seen.add(id)
        if before is not None and str(before) not in known:
            reason = f"there is no task {before!r} here"
            yield Finding("warning", "unknown_id", f"tasks[{number}].follow_up_from", reason)


def _check_message(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    above = origin.path.split("/")[::-1]
    if "inbox" not in above:
        return
    stem = _AFTER_ID.split(origin.name, maxsplit=1)[0]
    if value.get("id") != stem:
        reason = f"{value.get('id')!r}, but a message is known by its file, {stem!r}"
        yield Finding("warning", "identity", "id", reason)
    yield from _whose(value, "to", origin, above.index("inbox") + 1)


def _check_legacy(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    digits, named = (re.sub(r"\D", "", str(text)) for text in (value.get("ended"), origin.name))
    if len(named) == len(digits) == 14 and named != digits:
        reason = f"{value.get('ended')!r}, but the file is {origin.name}"
        yield Finding("warning", "place", "ended", reason)


def _looks_like_journal(value: Any) -> bool:
    if not has_fields(value, "ts", "event") or has_fields(value, "task_id"):
        return False
    said, when = value["event"], value["ts"]
    return isinstance(when, str) and isinstance(said, str) and said in EVENTS


KINDS: tuple[Kind, ...] = (
    Kind.of(
        "report",
        "What an agent is doing and what it did last",
        Report,
        r"report\.json",
        ("agent", "status", "summary", "last_session"),
        _check_place,
    ),
    Kind.of(
        "tasks",
        "The tasks of an agent",
        Tasks,
        r"tasks\.json",
        lambda value: has_fields(value, "agent", "tasks") and isinstance(value["tasks"], list),
        _check_tasks,
    ),
    Kind.of(
        "session",
        "The newest session of an agent or of one of its roles",
        Session,
        r"session(?:\.[A-Za-z0-9][A-Za-z0-9_-]*)?\.json",
        ("agent", "session_id", "started_at", "status"),
        _check_session,
    ),
    Kind.of(
        "message",
        "A message to an agent",
        Message,
        r"inbox/(?:\.\w+/)?[^/]+\.json(?:~[^/]*)?",
        ("id", "from", "to", "body"),
        _check_message,
    ),
    Kind(
        name="journal",
        what="What happened in the sessions of an agent",
        shape="lines",
        forms=(LOG_FORM, Form("1.0", JournalLine)),
        paths=(r"^(?!(?:.*/)?improve/).*(?:^|/)journal(?:\.[^/]+)?\.jsonl$",),
        looks=_looks_like_journal,
        cross_check=of_each(_check_place),
    ),
    Kind.of(
        "metrics",
        "What an agent has done since the beginning and in the last 30 days",
        Metrics,
        r"metrics\.json",
        ("agent", "lifetime"),
        _check_place,
    ),
    Kind.of(
        "legacy-session",
        "When a session ended, as a stop hook wrote it down",
        LegacySession,
        r"ops/sessions/[^/]+\.json",
        lambda value: has_fields(value, "id", "ended", "status") and not has_fields(value, "agent"),
        _check_legacy,
    ),
    notes.NOTES,
)

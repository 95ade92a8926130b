"""The lines of a job's history, and the manifest that is made from them; the queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from holdfast.contracts.job_exchange import Cents, JobId, Minutes
from holdfast.contracts.job_states import Action, Cause, Hold, Outcome, State
from holdfast.contracts.kind import (
    Finding,
    Form,
    Kind,
    Origin,
    has_fields,
    object_of,
    objects_in,
    of_each,
)
from holdfast.contracts.record import (
    ChainedLine,
    Count,
    Digest,
    Document,
    Fence,
    Free,
    NonEmpty,
    Number,
    OffsetTime,
    OneOf,
    Record,
    Seconds,
    Usd,
    UtcTime,
    broken_rule,
)

Tree = Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
_Open = Annotated[dict[str, Any], Free("what another format describes")]

NEEDS: dict[str, tuple[str, ...]] = {
    "new": ("job_id", "spec", "created_at"),
    "set": ("spec",),
    "move": ("cause", "status"),
    "hold": ("hold",),
    "part": ("part", "text"),
    "call": ("sequence", "phase", "model", "state_before", "parts", "request", "sent"),
    "reply": ("sequence", "outcome", "raw_response", "execution_time_seconds", "cost_usd"),
    "judged": ("sequence", "outcome", "action", "status", "next_phase"),
    "point": ("point",),
    "attach": ("path",),
    "note": (),
    "told": ("interaction",),
    "imported": ("status", "imported"),
    "archived": ("archived",),
}
"""For each event what its line has to say."""


class Complaint(Record):
    kind: NonEmpty
    reason: str


class GateRun(Record):
    name: str
    run: str
    exit_code: int
    seconds: Seconds
    output: str


class GateResult(Record):
    ok: bool
    seconds: Seconds
    runs: list[GateRun]


class Counts(Record):
    added: Count
    changed: Count
    removed: Count


class Changes(Record):
    """Of each kind the first 1,000 at most."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    counts: Counts | None = None
    """How many there are of each kind, where not all are listed."""


class JobLine(ChainedLine):
    """One thing that happened to a job."""

    ts: OffsetTime
    event: Annotated[str, OneOf(tuple(NEEDS))]
    job_id: JobId | None = None
    created_at: UtcTime | None = None
    spec: _Open | None = None
    origin: _Open | None = None
    cause: Cause | None = None
    status: State | None = None
    hold: Hold | None = None
    reason: str | None = None
    guidance: str | None = None
    by: str | None = None
    approved: Digest | None = None
    """The hash of what was approved."""
    phase: str | int | None = None
    previous_phase: str | None = None
    limits: _Open | None = None
    former: _Open | None = None
    start: bool | None = None
    part: NonEmpty | None = None
    text: str | None = None
    sequence: Count | None = None
    role: str | None = None
    model: NonEmpty | None = None
    state_before: State | None = None
    preceded_by: list[Cause] | None = None
    sent: Literal["json", "chat"] | None = None
    parts: list[NonEmpty] | None = None
    request: _Open | None = None
    reserved_usd: Usd | None = None
    charge: NonEmpty | None = None
    """What the call is called in the book of money."""
    temperature: Number | None = None
    max_tokens: Count | None = None
    tree: Tree | None = None
    by_budget: bool | None = None
    outcome: Outcome | None = None
    raw_response: str | None = None
    execution_time_seconds: Seconds | None = None
    cost_usd: Usd | None = None
    error: str | None = None
    retryable: bool | None = None
    is_simulated: bool | None = None
    answered_by: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    first_text_seconds: Seconds | None = None
    action: Action | None = None
    evidence_files: list[str] | None = None
    summary_for_supervisor: str | None = None
    complaint: str | None = None
    violations: list[Complaint] | None = None
    warnings: list[Complaint] | None = None
    measured_files: Changes | None = None
    gate: GateResult | None = None
    next_phase: Count | None = None
    restore: Tree | None = None
    not_before: UtcTime | None = None
    point: _Open | None = None
    place: Count | None = None
    path: NonEmpty | None = None
    interaction: _Open | None = None
    """A call of another system, as its history tells it."""
    imported: _Open | None = None
    """What such a job had come to."""
    archived: _Open | None = None
    """The files that a job was packed into: `name`, `sha256`, `bytes` of each."""
    copied_from: OffsetTime | None = None
    """When the line was written in the job that this one goes on with."""
    sealed: NonEmpty | None = None
    """The id of the key that the texts of the line are sealed with."""
    fence: Fence | None = None

    @model_validator(mode="after")
    def _says_what_its_event_needs(self) -> Self:
        missing = [name for name in NEEDS[self.event] if name not in self.model_fields_set]
        if missing:
            raise broken_rule(f"a line of {self.event} says {', '.join(missing)}")
        return self


LOG = Kind.of(
    "job-log",
    "What happened to a job, line by line",
    JobLine,
    r"jobs/[^/]+/history(?:\.[^/]+)?\.jsonl",
    lambda value: (
        has_fields(value, "event", "sequence", "outcome") or has_fields(value, "event", "spec")
    ),
    shape="lines",
)


class QueueLine(ChainedLine):
    """A job that was made, chosen or put in its place."""

    ts: OffsetTime
    event: Literal["new", "use", "enqueue", "rank", "dequeue"]
    job_id: JobId | None
    created_at: UtcTime | None = None
    rank: Annotated[int, Field(ge=-1)] | None = None


class Listed(Record):
    created_at: UtcTime | None = None


class JobIndex(Document):
    """Which jobs there are, in which order they wait, and which is meant when none is named."""

    current_job_id: JobId | None
    jobs: dict[JobId, Listed]
    queue: list[JobId]


QUEUE = Kind.of(
    "job-queue",
    "Jobs that were made, chosen and put in their places",
    QueueLine,
    r"jobs/queue(?:\.[^/]+)?\.jsonl",
    ("event", "job_id", "rank"),
    shape="lines",
)
INDEX = Kind.of(
    "job-index",
    "Which jobs there are, and the queue",
    JobIndex,
    r"jobs/index\.json",
    ("current_job_id", "jobs", "queue"),
)


HOLDABLE: tuple[State, ...] = ("PENDING", "REVIEWING", "INTERVENTION_REQUIRED")


class JobMetrics(Record):
    cumulative_cost: Cents = 0.0
    cumulative_time_seconds: Seconds = 0.0
    current_action_count: Count = 0


class Step(Record):
    """A line of the audit trail."""

    timestamp: UtcTime
    role: str | None = None
    action: str | None = None
    evidence_files: list[str] = Field(default_factory=list[str])
    summary: str | None = None
    event: str | None = None
    description: str | None = None
    new_status: str | None = None


class Phase(Record):
    name: NonEmpty
    description: str | None = None
    role: str | None = None
    worker_instructions: str | None = None


_Status = TypeVar("_Status", bound=str)


class _Manifest(Document, Generic[_Status]):
    job_id: JobId
    description: str | None = None
    status: _Status
    current_phase: str | None = None
    metrics: JobMetrics
    history: list[Step] = Field(default_factory=list[Step])
    phases: list[Phase] | None = None
    prompt: str | None = None
    objective: str | None = None
    details: str | None = None
    acceptance: str | None = None
    files: list[str] | None = None
    roles: dict[str, str] | None = None
    cost_threshold: Cents | None = None
    time_threshold_minutes: Minutes | None = None


class JobManifest(_Manifest[State]):
    hold: Hold | None = None
    """Additive: why a job that could go on does not."""
    foreign_status: str | None = None
    """Additive: the state's name in the system that it was brought from."""

    @model_validator(mode="after")
    def _held_where_it_could_go_on(self) -> Self:
        if self.hold is not None and self.status not in HOLDABLE:
            raise broken_rule(f"a job is held only while {' or '.join(HOLDABLE)}")
        return self


# --- what other systems call them -----------------------------------------------------------

FOREIGN_STATES: dict[str, tuple[State, Hold | None]] = {
    "SUSPENDED": ("PENDING", "suspended"),
    "PAUSED": ("PENDING", "suspended"),
    "APPROVAL_REQUIRED": ("REVIEWING", "approval"),
    "HALTED_ITERATION": ("INTERVENTION_REQUIRED", "iterations"),
    "REVIEW_REQUIRED": ("REVIEWING", None),
    "FAILED": ("INTERVENTION_REQUIRED", None),
    "PROVISIONING": ("RUNNING", None),
    "EXECUTING": ("RUNNING", None),
    "RECOVERING": ("RUNNING", None),
    "HARVESTING": ("RUNNING", None),
    "ATTACHED": ("RUNNING", None),
    "DETACHED": ("RUNNING", None),
}


class ForeignManifest(_Manifest[Annotated[str, OneOf(tuple(FOREIGN_STATES))]]):
    """A manifest of a system with other states."""


def _is_foreign(value: Any) -> bool:
    status = object_of(value).get("status")
    return isinstance(status, str) and status in FOREIGN_STATES


def _in_our_states(value: dict[str, Any]) -> dict[str, Any]:
    if not _is_foreign(value):
        return value
    status, hold = FOREIGN_STATES[value["status"]]
    ours = {"status": status, "hold": hold, "foreign_status": value["status"]}
    return {**value, **ours, "schema_version": "1.0"}


def check_directory(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    """A job's files lie in the directory of its name."""
    name = value.get("job_id")
    if origin.parent(2) == "jobs" and isinstance(name, str) and name != origin.parent():
        reason = f"{name!r} in the directory of {origin.parent()!r}"
        yield Finding("warning", "path", "job_id", reason)


def _check_manifest(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    yield from check_directory(value, origin)
    phase, phases = value.get("current_phase"), value.get("phases")
    known = [each.get("name") for each in objects_in(phases)]
    if isinstance(phase, str) and isinstance(phases, list) and phase not in known:
        yield Finding("error", "phase", "current_phase", f"{phase!r} is none of its phases")


MANIFEST = Kind(
    "job-manifest",
    "The state of a job, its limits and its audit trail",
    "document",
    (
        Form(
            "0.9",
            ForeignManifest,
            matches=_is_foreign,
            upgrade=_in_our_states,
            warning="a state that is not one of the nine",
        ),
        Form("1.0", JobManifest),
    ),
    paths=(r"(^|/)jobs/[^/]+/manifest\.json$", r"(^|/)job_manifest\.json$"),
    looks=lambda value: has_fields(value, "job_id", "status", "metrics"),
    cross_check=of_each(_check_manifest),
)

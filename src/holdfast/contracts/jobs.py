"""Jobs: their manifest; and all kinds of files that a job has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import Field, model_validator

from holdfast.contracts.job_events import INDEX, LOG, QUEUE
from holdfast.contracts.job_exchange import REQUEST, RESPONSE, Cents, JobId, Minutes
from holdfast.contracts.job_history import HISTORY
from holdfast.contracts.job_spec import SPEC
from holdfast.contracts.job_states import Hold, State
from holdfast.contracts.kind import (
    Finding,
    Form,
    Kind,
    Located,
    Origin,
    has_fields,
    object_of,
    objects_in,
)
from holdfast.contracts.record import (
    Count,
    Document,
    NonEmpty,
    Record,
    Seconds,
    UtcTime,
    broken_rule,
)

HOLDABLE: tuple[State, ...] = ("PENDING", "REVIEWING", "INTERVENTION_REQUIRED")


class JobMetrics(Record):
    cumulative_cost: Cents = 0.0
    """In cents."""
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

ForeignState = Literal[
    "SUSPENDED",
    "PAUSED",
    "APPROVAL_REQUIRED",
    "HALTED_ITERATION",
    "REVIEW_REQUIRED",
    "FAILED",
    "PROVISIONING",
    "EXECUTING",
    "RECOVERING",
    "HARVESTING",
    "ATTACHED",
    "DETACHED",
]

FOREIGN_STATES: dict[ForeignState, tuple[State, Hold | None]] = {
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


class ForeignManifest(_Manifest[ForeignState]):
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


def _check_manifest(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    for line, reading in found:
        value = object_of(reading.value)
        name, phase, phases = value.get("job_id"), value.get("current_phase"), value.get("phases")
        if origin.parent(2) == "jobs" and isinstance(name, str) and name != origin.parent():
            reason = f"{name!r} in the directory of {origin.parent()!r}"
            yield Finding("warning", "path", "job_id", reason, line)
        if isinstance(phase, str) and isinstance(phases, list):
            known = [each.get("name") for each in objects_in(phases)]
            if phase not in known:
                reason = f"{phase!r} is none of its phases"
                yield Finding("error", "phase", "current_phase", reason, line)


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
    cross_check=_check_manifest,
)

KINDS: tuple[Kind, ...] = (REQUEST, RESPONSE, MANIFEST, HISTORY, SPEC, LOG, QUEUE, INDEX)

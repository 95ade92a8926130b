"""`jobHistory.json`: every call of a job, and the points from which it can go on.

Three forms are read: a bare array of calls, the object that the format describes, and the one
that is written, with a version, a sequence from zero and recovery points that carry the fields
of both shapes that were met.  What an older form did not record is null in the newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar, cast

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from holdfast.contracts.job_check import check_history
from holdfast.contracts.job_exchange import REQUEST, RESPONSE, Cents, JobId, Minutes
from holdfast.contracts.job_lines import INDEX, LOG, MANIFEST, QUEUE, Changes, Complaint, GateResult
from holdfast.contracts.job_spec import SPEC
from holdfast.contracts.job_states import ACTIONS, Action, Cause, Outcome, State
from holdfast.contracts.kind import Form, Kind, has_fields, object_of
from holdfast.contracts.record import (
    Count,
    Document,
    Free,
    NonEmpty,
    Number,
    Record,
    Seconds,
    Usd,
    UtcTime,
    broken_rule,
)

Json = dict[str, Any]


class CallSettings(Record):
    role: str | None
    phase: str | None
    model: str | None
    temperature: Number | None
    max_tokens: Count | None
    cost_threshold: Cents | None = None
    time_threshold_minutes: Minutes | None = None
    accepted_formats: list[Action] | None = None


class Sent(Record):
    prompt: str | None
    files_context: list[str]
    metadata: CallSettings


class ReplyMetrics(Record):
    """Additive: what was measured about a call."""

    cost_usd: Usd | None = None
    duration_seconds: Seconds | None = None
    token_input: Count | None = None
    token_output: Count | None = None
    token_cache_read: Count | None = None
    total_tokens: Count | None = None
    cache_hit: bool | None = None
    ttft_seconds: Seconds | None = None
    throughput_tokens_per_second: Seconds | None = None


class _Answered(Record):
    status: Outcome
    action: Action
    """What is done about the answer: one that breaks the rules is STUCK, whatever it said."""
    evidence_files: list[str]
    """As the agent named them, be they inside of the workspace or not."""
    summary_for_supervisor: str
    raw_response: str | None
    execution_time_seconds: Seconds
    cost_usd: Usd | None
    """None if the price is unknown."""
    metrics: ReplyMetrics | None = None


class ToldReply(_Answered):
    """An answer as the format describes it."""

    new_status: State | None = None


class Reply(_Answered):
    """An answer as it is written."""

    new_status: State | None
    """The state of the job afterwards."""
    overruled: str | None = None
    """Additive: why what was said is not what is done about it, such as a gate that failed."""
    error: str | None = None
    violations: list[Complaint] | None = None
    warnings: list[Complaint] | None = None
    measured_files: Changes | None = None
    """Additive: what the call changed, as it was measured."""
    gate: GateResult | None = None


_Reply = TypeVar("_Reply", bound=_Answered)


class _Interaction(Record, Generic[_Reply]):
    sequence: Count
    timestamp: UtcTime
    state_before: State | None
    """The state in which the job was claimed for this call."""
    workspace_path: str | None
    request: Sent
    response: _Reply
    is_simulated: bool | None = None
    """Additive: the answer was given by a person or a script."""


class ToldInteraction(_Interaction[ToldReply]):
    """A call as the format describes it."""


class Interaction(_Interaction[Reply]):
    """A call as it is written."""

    preceded_by: list[Cause] | None = None
    """Additive: what happened to the job since the call before."""


class PointDetails(Record):
    confidence: str | None = None
    evidence_count: Count | None = None
    test_pass_rate: str | None = None


class ToldPoint(Record):
    """A recovery point in either of its shapes."""

    id: NonEmpty | None = None
    checkpoint_id: NonEmpty | None = None
    sequence: Count
    can_resume_from: bool | None = None
    description: str | None = None
    resume_phase: str | None = None
    rollback_files: list[str] | None = None
    metadata: PointDetails | None = None

    @model_validator(mode="after")
    def _has_one_id(self) -> Self:
        ids = {self.id, self.checkpoint_id} - {None}
        if len(ids) != 1:
            raise broken_rule("a recovery point has one id, as id, as checkpoint_id or as both")
        return self


class RecoveryPoint(Record):
    """A recovery point with the fields of both shapes."""

    id: NonEmpty
    checkpoint_id: NonEmpty
    sequence: Count
    can_resume_from: bool
    description: str
    resume_phase: str | None
    rollback_files: list[str]
    """At most 1,000 of them; the snapshot has all."""
    rollback_count: Count | None = None
    """Additive: how many there are, where not all are listed."""
    metadata: PointDetails

    @model_validator(mode="after")
    def _has_one_id(self) -> Self:
        if self.id != self.checkpoint_id:
            raise broken_rule("id and checkpoint_id are the same")
        return self


class ToldHistory(Record):
    """A history as the format describes it, counted from 0 or from 1."""

    job_id: JobId
    created_at: UtcTime | None
    interactions: list[ToldInteraction]
    recovery_points: list[ToldPoint] = Field(default_factory=list[ToldPoint])
    set_aside: Annotated[list[Any], Free("what a bare array held that was no call")] | None = None
    often_missing: ClassVar[frozenset[str]] = frozenset({"job_id", "created_at", "interactions"})


class JobHistory(Document):
    """A history as it is written."""

    job_id: JobId
    created_at: UtcTime | None
    interactions: list[Interaction]
    recovery_points: list[RecoveryPoint]
    archives: list[NonEmpty] | None = None
    """Additive: the files that hold the calls before the first one here, oldest first."""
    set_aside: Annotated[list[Any], Free("what a bare array held that was no call")] | None = None


# --- a bare array ---------------------------------------------------------------------------


class BareRequest(Record):
    operation: str | None = None
    job_id: str | None = None
    phase: str | None = None
    role: str | None = None
    detailed: bool | None = None
    simulation: bool | None = None
    description: str | None = None
    prompt: str | None = None
    files_context: list[str] | None = None


class BareReply(Record):
    action: str | None = None
    evidence_files: list[str] | None = None
    summary_for_supervisor: str | None = None
    processed_at: UtcTime | None = None
    metrics: ReplyMetrics | None = None
    cline_task_id: str | None = None
    raw_cline_output: str | None = None


class BareInteraction(Record):
    timestamp: UtcTime
    model: str | None
    cost: Usd
    execution_time_seconds: Seconds
    request: BareRequest
    response: BareReply
    is_simulated: bool | None = None


class BareHistory(Record):
    interactions: list[BareInteraction]
    array_in: ClassVar[str] = "interactions"

    @model_validator(mode="before")
    @classmethod
    def _in_its_field(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {cls.array_in: cast("list[Any]", value)}
        raise PydanticCustomError("not_an_array", "not an array")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler.resolve_ref_schema(handler(schema))["properties"][cls.array_in]

    def value(self) -> Any:
        return super().value()[self.array_in]

    def all_records(self, path: str = "") -> Iterator[tuple[str, Record]]:
        for inner, record in super().all_records(path):
            yield inner.removeprefix(f".{self.array_in}"), record


# --- from form to form ----------------------------------------------------------------------


def _from_array(value: list[Any]) -> Json:
    calls: list[Json] = [entry for entry in value if _is_call(entry)]
    others = [entry for entry in value if not _is_call(entry)]
    named = [name for call in calls if (name := call["request"].get("job_id"))]
    return {
        **({"job_id": named[0]} if named else {}),
        "created_at": None,
        "interactions": [_told(number, call) for number, call in enumerate(calls)],
        "recovery_points": list[Json](),
        **({"set_aside": others} if others else {}),
    }


def _is_call(entry: Any) -> bool:
    """Whether an entry tells what an agent answered; a preview calls no agent."""
    if not has_fields(entry, "request", "response"):
        return False
    action = object_of(entry["response"]).get("action")
    return isinstance(entry["request"], dict) and action in ACTIONS


def _told(number: int, entry: Json) -> Json:
    rest, request, response = dict(entry), dict(entry["request"]), dict(entry["response"])
    for name in ("request", "response"):
        del rest[name]
    settings: Json = {
        "role": request.pop("role", None),
        "phase": request.pop("phase", None),
        "model": rest.pop("model", None),
        "temperature": None,
        "max_tokens": None,
    }
    asked: Json = {
        **request,
        "prompt": request.get("prompt"),
        "files_context": request.get("files_context") or [],
        "metadata": settings,
    }
    answered: Json = {
        "status": "SUCCESS",
        "raw_response": None,
        **response,
        "evidence_files": response.get("evidence_files") or [],
        "summary_for_supervisor": response.get("summary_for_supervisor") or "",
        "execution_time_seconds": rest.pop("execution_time_seconds", 0.0),
        "cost_usd": rest.pop("cost", None),
    }
    return {
        "sequence": number,
        "timestamp": rest.pop("timestamp", None),
        "state_before": None,
        "workspace_path": None,
        "request": asked,
        "response": answered,
        **rest,
    }


def _with_all_fields(value: Json) -> Json:
    calls: list[Json] = value.get("interactions", [])
    points: list[Json] = value.get("recovery_points", [])
    base = 1 if calls and min(call["sequence"] for call in calls) == 1 else 0
    return {
        "schema_version": "1.0",
        **value,
        "interactions": [
            _rebased(call, base) | {"response": {"new_status": None, **call["response"]}}
            for call in calls
        ],
        "recovery_points": [_point(_rebased(point, base)) for point in points],
    }


def _rebased(numbered: Json, base: int) -> Json:
    return {**numbered, "sequence": max(0, numbered["sequence"] - base)}


def _point(point: Json) -> Json:
    name, phase, can = (
        point.get("id") or point.get("checkpoint_id"),
        point.get("resume_phase"),
        point.get("can_resume_from"),
    )
    return {
        **point,
        "id": name,
        "checkpoint_id": name,
        # A shape that names the phase to go on with says so by naming it.
        "can_resume_from": phase is not None if can is None else can,
        "description": point.get("description") or "",
        "resume_phase": phase,
        "rollback_files": point.get("rollback_files") or [],
        "metadata": point.get("metadata") or {},
    }


def _looks(value: Any) -> bool:
    if isinstance(value, list):
        entries = cast("list[Any]", value)
        return bool(entries) and _is_bare(entries[0])
    return (
        _is_bare(value) or has_fields(value, "interactions") or has_fields(value, "recovery_points")
    )


def _is_bare(value: Any) -> bool:
    return has_fields(value, "timestamp", "model", "cost", "request", "response")


HISTORY = Kind(
    "job-history",
    "Every call of a job, and its recovery points",
    "document",
    (
        Form("0.8", BareHistory, lambda value: isinstance(value, list), _from_array),
        Form(
            "0.9",
            ToldHistory,
            lambda value: isinstance(value, dict) and "schema_version" not in value,
            _with_all_fields,
        ),
        Form("1.0", JobHistory),
    ),
    paths=(r"(^|/)jobHistory(\.\d+)?\.json$",),
    looks=_looks,
    cross_check=check_history,
)

KINDS: tuple[Kind, ...] = (REQUEST, RESPONSE, MANIFEST, HISTORY, SPEC, LOG, QUEUE, INDEX)

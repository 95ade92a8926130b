"""What is said to an agent that works on a job, and what it answers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from holdfast.contracts.job_states import Action
from holdfast.contracts.kind import Form, Kind, has_fields
from holdfast.contracts.record import Document, Record

SUMMARY_LIMIT = 500
LONG_SUMMARY_LIMIT = 1000

_BETWEEN = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")


def escapes(path: str) -> bool:
    """Whether a path names anything but a file below the directory it is relative to."""
    parts = _BETWEEN.split(path)
    absolute = not parts[0] or _DRIVE.match(path) is not None
    return absolute or ".." in parts or "\0" in path


def _inside(path: str) -> str:
    if escapes(path):
        raise PydanticCustomError("escaping_path", "not a path inside of the job's workspace")
    return path


_INSIDE = r"^(?![/\\])(?![A-Za-z]:)(?!([\s\S]*[/\\])?\.\.([/\\]|(?![\s\S])))[^\0]+$"
"""The same for the schema; the models' own engine knows no looking ahead."""

JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$")]
WorkspacePath = Annotated[
    str, AfterValidator(_inside), Field(json_schema_extra={"pattern": _INSIDE})
]
Cents = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Hundredths of a US dollar; a fraction is a fraction of a cent."""

Minutes = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Limits(Record):
    cost_threshold: Cents
    time_threshold_minutes: Minutes
    accepted_formats: list[Action]
    """The actions that an answer may have."""


class AgentRequest(Document):
    job_id: JobId
    phase: str
    context_files: list[WorkspacePath]
    system_prompt: str
    task_description: str
    metadata: Limits


class AgentResponse(Document):
    action: Annotated[
        Action,
        Field(
            description="COMPLETED: this phase is done. RETRY: it has to be done again. "
            "STUCK: a person has to decide."
        ),
    ]
    evidence_files: Annotated[
        list[WorkspacePath],
        Field(description="Every file made, changed or relied on, relative to the workspace"),
    ]
    summary_for_supervisor: Annotated[
        str,
        Field(
            max_length=SUMMARY_LIMIT,
            description="Two or three sentences for whoever goes on with the job",
        ),
    ]
    summary_full: str | None = None
    """Additive: what an older form said at greater length."""


TOLD_TO_AGENTS = ("action", "evidence_files", "summary_for_supervisor")
"""The fields that an agent is asked for; the others are added by us."""


# --- older forms ----------------------------------------------------------------------------


class LongResponse(Document):
    """With room for twice the summary."""

    action: Action
    evidence_files: list[WorkspacePath]
    summary_for_supervisor: Annotated[str, Field(max_length=LONG_SUMMARY_LIMIT)]
    job_manifest_url: str | None = None


class WrappedResponse(Record):
    response: LongResponse


class CommandOptions(Record):
    resume: bool = False
    model: str | None = None
    clean_git: bool = False
    keep_files: bool = False


class Command(Record):
    action: Literal["run", "step", "rerun", "restep"]
    job_id: JobId
    options: CommandOptions = Field(default_factory=CommandOptions)


class WrappedRequest(Record):
    """Not what is said to an agent, but what a person told the engine to do."""

    request: Command


def _is_wrapped(name: str, value: Any) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, Any]", value).get(name), dict)


def _is_long(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    summary = cast("dict[str, Any]", value).get("summary_for_supervisor")
    return isinstance(summary, str) and len(summary) > SUMMARY_LIMIT


def _shortened(value: dict[str, Any]) -> dict[str, Any]:
    told = {**value, "schema_version": "1.0"} if "schema_version" in value else value
    if not _is_long(value):
        return told
    summary = value["summary_for_supervisor"]
    short = summary[: SUMMARY_LIMIT - 1] + "…"
    return {**told, "summary_for_supervisor": short, "summary_full": summary}


REQUEST = Kind(
    "agent-request",
    "What an agent that works on a job is asked",
    "document",
    (
        Form(
            "0.9",
            WrappedRequest,
            matches=lambda value: _is_wrapped("request", value),
            warning="a command to the engine, not a request to an agent",
        ),
        Form("1.0", AgentRequest),
    ),
    paths=(r"(^|/)(agent|llm)[-_]request[^/]*\.json$",),
    looks=lambda value: (
        has_fields(value, "job_id", "task_description", "context_files")
        # A line of a job's history has a request too, among much else.
        or (_is_wrapped("request", value) and not has_fields(value, "event"))
    ),
)

RESPONSE = Kind(
    "agent-response",
    "What an agent that works on a job answers",
    "document",
    (
        Form(
            "0.8",
            WrappedResponse,
            matches=lambda value: _is_wrapped("response", value),
            upgrade=lambda value: value["response"],
            warning="the answer is wrapped in an object of its own",
        ),
        Form(
            "0.9",
            LongResponse,
            matches=_is_long,
            upgrade=_shortened,
            warning=f"the previous version, whose summary may have {LONG_SUMMARY_LIMIT} characters",
        ),
        Form("1.0", AgentResponse),
    ),
    paths=(r"(^|/)(agent|llm)[-_]response[^/]*\.json$",),
    looks=lambda value: (
        (has_fields(value, "action", "evidence_files") or _is_wrapped("response", value))
        and not has_fields(value, "event")
    ),
)

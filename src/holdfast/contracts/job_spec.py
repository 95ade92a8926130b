"""The specification of a job: `job.yaml`, or the same as JSON.

A spec is written by hand and read with care: what is misspelt would be a limit that does not hold,
so a field that is not known is an error and not kept.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from holdfast.contracts.job_exchange import JobId, WorkspacePath
from holdfast.contracts.job_states import ACTIONS, Action
from holdfast.contracts.kind import Kind, has_fields
from holdfast.contracts.record import (
    Count,
    Document,
    NonEmpty,
    NotNegative,
    Number,
    Record,
    Seconds,
    broken_rule,
)

Isolation = Literal["none", "directory", "worktree", "sandbox"]
ISOLATIONS: tuple[Isolation, ...] = get_args(Isolation)
Preset = Literal["seed", "logist"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
WORKER, SUPERVISOR = "worker", "supervisor"
DEFAULT_PHASE = "default"
MOST_USD, MOST_SECONDS, MOST_ITERATIONS, MOST_RETRIES = 10.0, 3600.0, 100, 3
"""What a job may use by default."""


class Gate(Record):
    """A command that has to exit with 0 before a phase counts as done."""

    run: NonEmpty
    """As for a shell, which never sees it unless it is named."""
    name: NonEmpty | None = None
    timeout_seconds: Positive = 600.0


class EvidenceRules(Record):
    required: list[WorkspacePath] = Field(default_factory=list[str])
    """Files that have to be there and named when a phase is COMPLETED."""
    at_least: Count = 0


class PhaseSpec(Record):
    name: NonEmpty
    role: NonEmpty = WORKER
    description: str | None = None
    instructions: str | None = None
    model: NonEmpty | None = None
    """Else the one of its role."""
    accepts: list[Action] = Field(default_factory=lambda: list(ACTIONS))
    evidence: EvidenceRules = Field(default_factory=EvidenceRules)
    gates: list[Gate] = Field(default_factory=list[Gate])
    approval: bool = False
    """Whether a person has to agree before the job goes on behind it."""
    repeatable: bool | None = None
    """Whether a call with an unknown outcome may be repeated; None: if the model only answers."""
    max_retries: Count = MOST_RETRIES
    timeout_seconds: Positive = 600.0
    temperature: Number | None = None
    max_tokens: Annotated[int, Field(gt=0)] | None = None

    @property
    def reviews(self) -> bool:
        return self.role.lower() == SUPERVISOR


class Budget(Record):
    max_cost_usd: NotNegative = MOST_USD
    max_seconds: Seconds = MOST_SECONDS
    max_iterations: Annotated[int, Field(gt=0)] = MOST_ITERATIONS


class ReplyRules(Record):
    preset: Preset = "seed"
    tolerant: bool = False


class JobSpec(Document):
    job_id: JobId | None = None
    description: str | None = None
    prompt: str | None = None
    objective: str | None = None
    details: str | None = None
    acceptance: str | None = None
    files: list[WorkspacePath] = Field(default_factory=list[str])
    """Of the workspace, for every agent to read."""
    attachments: list[NonEmpty] = Field(default_factory=list[str])
    """Paths of files to be copied into the workspace."""
    phases: list[PhaseSpec] = Field(default_factory=list[PhaseSpec])
    models: dict[str, NonEmpty] = Field(default_factory=dict[str, str])
    """By role."""
    budget: Budget = Field(default_factory=Budget)
    reply: ReplyRules = Field(default_factory=ReplyRules)
    isolation: Isolation = "directory"
    source: NonEmpty | None = None
    """The folder or repository that the work is about."""
    base: NonEmpty | None = None
    """The commit or branch of the source that a work tree begins with."""
    sensitive: bool = False
    """Whether prompts and replies are recorded sealed."""

    @model_validator(mode="after")
    def _phases_have_names_of_their_own(self) -> Self:
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise broken_rule("each phase has a name of its own")
        if self.isolation in ("none", "worktree") and self.source is None:
            raise broken_rule(f"isolation {self.isolation} needs a source")
        return self

    @property
    def task(self) -> str:
        """What is wanted, in words; empty if unspecified."""
        told = [("", self.prompt), ("Objective", self.objective), ("Details", self.details)]
        told.append(("Accepted when", self.acceptance))
        return "\n\n".join(f"{head}: {text}" if head else text for head, text in told if text)

    def model_of(self, phase: PhaseSpec) -> str | None:
        return phase.model or self.models.get(phase.role.lower())


SPEC = Kind.of(
    "job-spec",
    "The specification of a job",
    JobSpec,
    r"(job|job-spec|sample-job)\.json",
    lambda value: has_fields(value, "phases") and not has_fields(value, "status"),
)

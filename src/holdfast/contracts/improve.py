"""The improvement loop: plans, results, briefs, histories, merge reports, events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from holdfast.contracts import goal, harness, improve_state
from holdfast.contracts.improve_state import ExecutorId, FamilyName, PlanId, PlannerId
from holdfast.contracts.kind import Finding, Form, Kind, Located, Origin, has_fields, objects_in
from holdfast.contracts.record import (
    Also,
    AtLeastOne,
    Count,
    Digest,
    Document,
    Doubt,
    Free,
    NonEmpty,
    Number,
    Record,
    UtcTime,
    broken_rule,
)

APPROACH_FAMILIES = {
    "architecture": "the structure of a model or its components",
    "training_config": "optimizer, learning rate, schedule, batch size, epochs",
    "data": "loading, augmentation and preparation of data",
    "infrastructure": "mixed precision, distribution, checkpoints",
    "optimization": "a better algorithm or better numerics",
    "testing": "how things are evaluated",
    "documentation": "documentation only",
    "other": "none of these; the evidence says what",
}
"""What a plan can be about; a harness may add families of its own."""

FailureCategory = Literal[
    "oom",
    "timeout",
    "regression",
    "logic_error",
    "scope_error",
    "infrastructure",
    "benchmark_parse_error",
    "sealed_file_violation",
]
RoundName = Annotated[str, Field(pattern=r"^round_[0-9]+$")]
SubScores = dict[str, Number | None]
PassFail = Annotated[
    Literal["pass", "fail"], Also(**{"pass": (True, "passed"), "fail": (False, "failed")})
]
_ROUND_NAMES = {"iteration": ("round",)}

_ROUND = re.compile(r"round_(\d{1,9})(?:_.*|\.json)?")


def _round_in(name: str) -> int | None:
    found = _ROUND.fullmatch(name)
    return int(found[1]) if found else None


def _odd_round(name: str | None, number: int, field: str) -> Iterator[Doubt]:
    if name is not None and _round_in(name) != number:
        yield Doubt("contradiction", field, f"{name!r} in round {number}")


class PlanStep(Record):
    step: AtLeastOne
    file: NonEmpty
    change: NonEmpty


class ExpectedOutcome(Record):
    metric: NonEmpty
    estimated_impact: str
    rationale: str
    sub_score_expectations: dict[str, Number | str | None] | None = None


class HistoryReference(Record):
    """`none` where there is nothing to build on or to avoid."""

    builds_on: NonEmpty
    avoids: NonEmpty


class CriticReview(Record):
    h001_hypothesis_count: PassFail
    h002_family_streak: PassFail
    h003_intra_round_diversity: PassFail
    schema_valid: PassFail
    history_aware: PassFail
    verdict: Annotated[
        Literal["approved", "rejected"], Also(approved=(True, "pass"), rejected=(False, "fail"))
    ]
    rejection_reason: str | None = None


class ArchitectReview(Record):
    """Advice; only the critic's verdict binds."""

    verdict: Literal["approve", "reject"]
    feedback: str
    structural_concerns: list[str]


class Plan(Document):
    plan_id: PlanId
    planner_id: PlannerId
    round: AtLeastOne
    hypothesis: NonEmpty
    approach_family: FamilyName
    critic_approved: bool
    target_files: list[NonEmpty]
    steps: Annotated[list[PlanStep], Field(min_length=1)]
    expected_outcome: ExpectedOutcome
    history_reference: HistoryReference
    critic_review: CriticReview | None = None
    architect_review: ArchitectReview | None = None

    def doubts(self) -> Iterator[Doubt]:
        if self.plan_id != f"round_{self.round}_{self.planner_id}":
            reason = f"{self.plan_id!r} of {self.planner_id} in round {self.round}"
            yield Doubt("contradiction", "plan_id", reason)
        review = self.critic_review
        if review and review.verdict == "rejected" and not review.rejection_reason:
            yield Doubt("missing", "critic_review.rejection_reason", "rejected without a reason")


class FailureAnalysis(Record):
    what: NonEmpty
    why: NonEmpty
    category: FailureCategory
    lesson: NonEmpty


class RawRest(Record):
    """Where the part of an output lies that is too long for a record, compressed with zstd."""

    path: NonEmpty
    sha256: Digest
    bytes: Count

    @property
    def marker(self) -> str:
        """The last line of an output that was cut."""
        return f"[{self.bytes} bytes more in {self.path}, sha256 {self.sha256}]"


class BenchmarkResult(Document):
    executor_id: ExecutorId
    plan_id: PlanId
    benchmark_score: Number | None
    benchmark_raw: str
    status: Literal["success", "regression", "error", "timeout"]
    sub_scores: SubScores
    failure_analysis: FailureAnalysis | None = None
    timestamp: UtcTime
    benchmark_raw_rest: RawRest | None = None

    @model_validator(mode="after")
    def _failure_is_explained_and_cut_is_marked(self) -> Self:
        if self.status != "success" and self.failure_analysis is None:
            raise broken_rule(f"{self.status} needs a failure_analysis")
        rest = self.benchmark_raw_rest
        if rest is not None and not self.benchmark_raw.endswith(rest.marker):
            raise broken_rule(f"benchmark_raw was cut and has to end in {rest.marker!r}")
        return self

    def doubts(self) -> Iterator[Doubt]:
        if self.status == "success" and self.benchmark_score is None:
            yield Doubt("missing", "benchmark_score", "null, though the status is success")


class Idea(Record):
    title: NonEmpty
    source: str
    evidence: str
    approach_family: FamilyName
    confidence: Literal["high", "medium", "low"]
    estimated_impact: str

    @model_validator(mode="after")
    def _other_is_explained(self) -> Self:
        if self.approach_family == "other" and not self.evidence.strip():
            raise broken_rule("of the family other, and the evidence does not say what it is")
        return self


class ResearchBrief(Document):
    other_names: ClassVar[dict[str, tuple[str, ...]]] = _ROUND_NAMES

    iteration: AtLeastOne
    researcher_id: NonEmpty
    repo_analysis_summary: str
    ideas: list[Idea]


class _Entrant(Record):
    other_names: ClassVar[dict[str, tuple[str, ...]]] = {
        "score": ("benchmark_score", "score_after")
    }

    plan_id: PlanId
    score: Any
    approach_family: FamilyName
    hypothesis: NonEmpty
    sub_scores: SubScores


class Candidate(_Entrant):
    score: Number


class Loser(_Entrant):
    score: Number | None
    failure_analysis: FailureAnalysis | None = None


class IterationHistory(Document):
    other_names: ClassVar[dict[str, tuple[str, ...]]] = _ROUND_NAMES

    iteration: AtLeastOne
    baseline_score: Number | None
    winner: Candidate | None
    losers: list[Loser]
    research_brief_id: RoundName | None
    stacked: list[Candidate] | None = None
    """Runners-up that were merged on top of the winner."""

    def doubts(self) -> Iterator[Doubt]:
        yield from _odd_round(self.research_brief_id, self.iteration, "research_brief_id")
        for path, record in self.all_records():
            if isinstance(record, _Entrant):
                yield from _odd_round(record.plan_id, self.iteration, f"{path[1:]}.plan_id")


class RawRow(Record):
    """One candidate, for plots."""

    other_names: ClassVar[dict[str, tuple[str, ...]]] = {
        **_ROUND_NAMES,
        "benchmark_score": ("score",),
    }

    iteration: Count
    plan_id: PlanId
    benchmark_score: Number | None
    is_winner: bool
    approach_family: FamilyName
    sub_scores: SubScores

    def doubts(self) -> Iterator[Doubt]:
        yield from _odd_round(self.plan_id, self.iteration, "plan_id")


class Merged(Record):
    executor_id: ExecutorId
    branch: NonEmpty
    hypothesis: NonEmpty
    score_before: Number | None
    score_after: Number
    sub_scores: SubScores


class MergeReport(Document):
    other_names: ClassVar[dict[str, tuple[str, ...]]] = {
        **_ROUND_NAMES,
        "archived": ("losers_archived",),
        "re_benchmark_score": ("score_after_merge",),
    }

    iteration: AtLeastOne
    goal_slug: NonEmpty
    winner: Merged | None
    archived: list[NonEmpty]
    regressions_detected: bool
    re_benchmark_score: Number | None
    status: Literal["merged", "no_improvement", "no_winner", "all_rejected"]
    reason: str | None
    stacked: list[Merged] | None = None
    """Runners-up that were merged on top of the winner."""

    @model_validator(mode="after")
    def _reason_unless_merged(self) -> Self:
        if self.status == "merged":
            if self.reason is not None:
                raise broken_rule("reason is null where something was merged")
            if self.winner is None:
                raise broken_rule("merged without a winner")
        elif not self.reason:
            raise broken_rule(f"{self.status} needs a reason")
        elif self.stacked:
            raise broken_rule(f"{self.status}, and yet something was stacked on a winner")
        return self


class ChangeDetails(Record):
    """A phase is the setting `current_phase`."""

    field: NonEmpty
    old_value: Annotated[Any, Free("event log: a setting may be of any type")]
    new_value: Annotated[Any, Free("event log: a setting may be of any type")]
    source: NonEmpty


class ImproveEvent(Record):
    timestamp: UtcTime
    event_type: Literal["config_change", "phase_transition"]
    iteration: Count
    details: ChangeDetails


# --- what one record cannot show ------------------------------------------------------------


def _misplaced(
    value: dict[str, Any], field: str, wanted: int | str | None, where: str
) -> Iterator[Finding]:
    """A field that does not say what the place of its file says."""
    if wanted is not None and value.get(field) != wanted:
        yield Finding("error", "place", field, f"{value.get(field)!r}, but {where}")


def _check_round(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    """`round_3.json` is of iteration 3."""
    number = _round_in(origin.name)
    return _misplaced(value, "iteration", number, f"the file is {origin.name}")


def _check_plan(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    """`round_3/plan_planner_a.json` is the plan of planner_a for round 3."""
    named, folder = re.fullmatch(r"plan_(planner_\w+)\.json", origin.name), origin.parent()
    yield from _misplaced(value, "round", _round_in(folder), f"it lies in {folder}")
    its = named and named[1]
    yield from _misplaced(value, "planner_id", its, f"the file is {origin.name}")


def _check_result(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    """`round_3/executor_2.json` is the result of executor_2 for a plan of round 3."""
    named, folder = re.fullmatch(r"(executor_\w+)\.json", origin.name), origin.parent()
    number, plan = _round_in(folder), value.get("plan_id")
    if number is not None and _round_in(str(plan)) != number:
        yield Finding("error", "place", "plan_id", f"{plan!r}, but it lies in {folder}")
    its = named and named[1]
    yield from _misplaced(value, "executor_id", its, f"the file is {origin.name}")


def _check_rows(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    """A plan has one row for each iteration."""
    seen: dict[tuple[str, str], int] = {}
    for number, (line, reading) in enumerate(found):
        for value in objects_in([reading.value]):
            if "iteration" not in value or "plan_id" not in value:
                continue
            row = (str(value.get("iteration")), str(value.get("plan_id")))
            if row in seen:
                reason = f"{row[1]!r} of iteration {row[0]} is row {seen[row]} too"
                yield Finding("error", "duplicate", "plan_id", reason, line)
            seen.setdefault(row, number)


KINDS: tuple[Kind, ...] = (
    Kind.of(
        "plan",
        "What a planner wants to try, and what its reviewers say",
        Plan,
        r"(?:plans|plan_archive)/round_\d+/[^/]+\.json",
        ("plan_id", "planner_id", "hypothesis"),
        _check_plan,
    ),
    Kind.of(
        "benchmark-result",
        "What the benchmark says of what an executor made",
        BenchmarkResult,
        r"benchmark_results/round_\d+/[^/]+\.json",
        ("executor_id", "plan_id", "benchmark_score"),
        _check_result,
    ),
    Kind.of(
        "research-brief",
        "What a researcher suggests to try in a round",
        ResearchBrief,
        r"research_briefs/round_\d+\.json",
        ("iteration", "researcher_id", "ideas"),
        _check_round,
    ),
    Kind.of(
        "iteration-history",
        "Who won and who lost a round",
        IterationHistory,
        r"iteration_history/round_\d+\.json",
        ("iteration", "winner", "losers"),
        _check_round,
    ),
    Kind(
        name="raw-data",
        what="One row for each candidate of all rounds",
        shape="array",
        forms=(Form("1.0", RawRow),),
        paths=(r"(?:^|/)raw_data\.json$",),
        looks=lambda value: has_fields(value, "iteration", "plan_id", "is_winner"),
        cross_check=_check_rows,
    ),
    Kind.of(
        "merge-report",
        "What a round's tournament merged, or why nothing",
        MergeReport,
        r"merge_reports/round_\d+\.json",
        ("iteration", "goal_slug", "archived"),
        _check_round,
    ),
    Kind.of(
        "improve-events",
        "Changes of settings and phases",
        ImproveEvent,
        r"tracking/events\.json",
        ("timestamp", "event_type", "iteration", "details"),
        shape="array",
    ),
    *improve_state.KINDS,
    goal.GOAL,
    harness.HARNESS,
)

"""Where the improvement loop stands: the round under way, its settings, and its own flags."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from holdfast.contracts.kind import Kind
from holdfast.contracts.record import (
    Also,
    AtLeastOne,
    Count,
    Document,
    Formed,
    NonEmpty,
    NotNegative,
    Number,
    Record,
    Seconds,
    UtcTime,
)

PlannerId = Annotated[str, Field(pattern=r"^planner_[A-Za-z0-9_]+$")]
ExecutorId = Annotated[str, Field(pattern=r"^executor_[A-Za-z0-9_]+$")]
PlanId = Annotated[str, Field(pattern=r"^round_[0-9]+_planner_[A-Za-z0-9_]+$")]
Direction = Annotated[
    Literal["higher_is_better", "lower_is_better"],
    Also(
        higher_is_better=("higher", "maximize", "max"), lower_is_better=("lower", "minimize", "min")
    ),
]
FamilyName = Annotated[str, Formed(r"^[a-z0-9][a-z0-9_-]{0,63}$", "training_config")]
Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$")]

StepStatus = Literal["pending", "in_progress", "completed"]
AttemptStatus = Literal["pending", "in_progress", "completed", "failed"]


class ResearchProgress(Record):
    status: AttemptStatus
    output_path: str | None
    completed_at: UtcTime | None


class PlanProgress(Record):
    status: AttemptStatus
    output_path: str | None
    critic_approved: bool | None


class PlanningProgress(Record):
    status: StepStatus
    plans: dict[PlannerId, PlanProgress]
    approved_count: Count
    completed_at: UtcTime | None


class ExecutorProgress(Record):
    status: Annotated[
        Literal["pending", "running", "completed", "failed"], Also(running=("in_progress",))
    ]
    plan_id: PlanId
    output_path: str | None
    benchmark_score: Number | None


class ExecutionProgress(Record):
    status: StepStatus
    executors: dict[ExecutorId, ExecutorProgress]
    completed_at: UtcTime | None


class TournamentProgress(Record):
    status: StepStatus
    winner: NonEmpty | None
    winner_score: Number | None
    completed_at: UtcTime | None


class RecordingProgress(Record):
    status: StepStatus
    history_path: str | None
    visualization_updated: bool
    cleanup_done: bool


class IterationState(Document):
    iteration: AtLeastOne
    status: Literal["in_progress", "completed", "failed", "interrupted"]
    current_step: Literal[
        "research",
        "planning",
        "critic_review",
        "execution",
        "tournament",
        "recording",
        "stop_check",
    ]
    started_at: UtcTime
    updated_at: UtcTime
    research: ResearchProgress
    planning: PlanningProgress
    execution: ExecutionProgress
    tournament: TournamentProgress
    recording: RecordingProgress
    user_ideas_consumed: list[str]


class Settings(Document):
    """What the user decides.  A file holds what differs from the defaults, or all of it."""

    si_claude_setting: bool = False
    number_of_agents: AtLeastOne = 3
    number_of_max_critics: Count = 3
    current_repo_url: str = ""
    fork_url: str = ""
    upstream_url: str = ""
    topic_slug: Slug = "default"
    target_branch: NonEmpty = "main"
    benchmark_command: str = ""
    benchmark_format: Literal["json", "number", "pass_fail", "metric", "python"] = "json"
    benchmark_direction: Direction = "higher_is_better"
    max_iterations: AtLeastOne = 50
    plateau_threshold: NotNegative = 0.01
    """An absolute difference of scores."""
    plateau_window: AtLeastOne = 3
    target_value: Number | None = None
    primary_metric: NonEmpty = "primary"
    sealed_files: list[NonEmpty] = Field(default_factory=list[str])
    regression_threshold: NotNegative = 0.05
    circuit_breaker_threshold: AtLeastOne = 3
    auto_push: bool = False
    auto_pr: bool = False
    benchmark_timeout_s: Seconds | None = None
    benchmark_repeats: AtLeastOne | None = None
    budget_wall_s: Seconds | None = None
    budget_evaluations: Count | None = None
    budget_cost_usd: NotNegative | None = None
    deadline: UtcTime | None = None
    seed: int | None = None
    repo_path: str = ""
    objective: str = ""
    scope: list[NonEmpty] = Field(default_factory=list[str])
    """Patterns of paths that plans may change; empty is everything that is not sealed."""
    families: list[FamilyName] = Field(default_factory=list[str])
    constants: list[NonEmpty] = Field(default_factory=list[str])
    """Numbers to search over, as `PATH:NAME LOW..HIGH`, beside those that files declare."""
    holdout_command: str = ""
    screen_command: str = ""
    researcher: str = ""
    planner: str = ""
    architect: str = ""
    critic: str = ""
    executor: str = ""
    population: AtLeastOne = 1
    role_timeout_s: Seconds = 1800.0
    memory_mb: AtLeastOne = 4096
    pass_env: list[NonEmpty] = Field(default_factory=list[str])
    plateau_relative: NotNegative | None = None
    """A share of the best score, in place of `plateau_threshold`."""
    archive_tags: bool = True


class Baseline(Document):
    """What the unchanged repository scores."""

    baseline_score: Number | None
    recorded_at: UtcTime
    noise_sd: NotNegative | None = None
    """The standard deviation of repeated runs."""
    runs: Count | None = None


class AgentSettings(Document):
    """What the loop keeps about itself."""

    trust_confirmed: bool = False
    si_setting_goal: bool = False
    si_setting_benchmark: bool = False
    si_setting_harness: bool = False
    iterations: Count = 0
    best_score: Number | None = None
    current_milestone: str | None = None
    current_phase: str | None = None
    plateau_consecutive_count: Count = 0
    circuit_breaker_count: Count = 0
    status: Literal[
        "idle",
        "running",
        "user_stopped",
        "target_reached",
        "plateau",
        "max_iterations",
        "circuit_breaker",
        "budget",
        "error",
    ] = "idle"
    goal_slug: NonEmpty | None = None


KINDS: tuple[Kind, ...] = (
    Kind.of(
        "iteration-state",
        "How far the round under way has come",
        IterationState,
        r"iteration_state\.json",
        ("iteration", "current_step"),
    ),
    Kind.of(
        "settings",
        "What the user decides about an improvement loop",
        Settings,
        r"config/settings\.json",
        ("benchmark_command",),
    ),
    Kind.of(
        "baseline",
        "What the unchanged repository scores, and how much that varies",
        Baseline,
        r"tracking/baseline\.json",
        ("baseline_score", "recorded_at"),
    ),
    Kind.of(
        "agent-settings",
        "What an improvement loop keeps about itself",
        AgentSettings,
        r"agent-settings\.json",
        ("trust_confirmed", "si_setting_goal"),
    ),
)

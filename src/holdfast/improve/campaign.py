"""Set-up and opening of a campaign: trust, noise, baseline, the parts of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256

from holdfast.clock import utc_stamp
from holdfast.codec import Record, encode, pretty
from holdfast.contracts.improve import APPROACH_FAMILIES
from holdfast.errors import ConfigError, Conflict, UsageError
from holdfast.git.source import Source, source_of
from holdfast.improve.acceptance import LEAST_RUNS, noise_of
from holdfast.improve.candidates import Workshop
from holdfast.improve.evaluator import LIMITS, Benchmark, Evaluation, Evaluator
from holdfast.improve.files import (
    FIXED,
    GOAL,
    HARNESS,
    HARNESS_TEMPLATE,
    IDEA,
    IDEA_TEMPLATE,
    ROLES,
    SETTINGS,
    Settings,
    changes,
    checked,
    new_goal,
    read_goal,
    read_settings,
)
from holdfast.improve.journal import Journal, State, goal_slug
from holdfast.improve.roles import check_role, is_built_in
from holdfast.improve.sealing import sealed_paths
from holdfast.improve.views import Views
from holdfast.text import clip, plural
from holdfast.workspace.repo import Sealed

_FILES = ".files"
_STEADY = 0.05
"""A spread of the runs, relative to their mean, above which a benchmark is worth a warning."""
_FEW = 3
"""Proposals below which a budget is worth a warning."""
Confirm = Callable[[str], bool]


def trust_digest(settings: Settings) -> str:
    """What trust is bound to: the commands that a campaign runs by itself."""
    commands = [settings.benchmark_command, settings.holdout_command, settings.screen_command]
    return sha256(encode([settings.repo_path, *commands])).hexdigest()


def check_trust(state: State, settings: Settings, confirm: Confirm | None) -> Record | None:
    """The line that records trust, if it was given now; ConfigError if it was not."""
    digest = trust_digest(settings)
    if digest in state["trusted"]:
        return None
    others = [each for each in (settings.screen_command, settings.holdout_command) if each]
    commands = "\n  ".join([settings.benchmark_command, *others])
    question = (
        f"Improve will run this again and again, with candidates of {settings.repo_path}:\n"
        f"  {commands}\nIt executes arbitrary code. Confirm? [yes/no] "
    )
    if confirm is None:
        raise ConfigError(
            f"the benchmark command is not trusted: {settings.benchmark_command[:200]}",
            hint="--trust, if you want it to be run",
        )
    if not confirm(question):
        raise ConfigError("the benchmark command was declined", hint="nothing was run")
    return {"event": "trusted", "digest": digest}


class Parts:
    """What measures and keeps the candidates of a campaign."""

    def __init__(self, journal: Journal, settings: Settings, base: str) -> None:
        home = journal.home
        folder = f"{home.scratch(journal.place.root)}/{_FILES}"
        self.settings = settings
        self.workshop = Workshop(folder, settings.repo_path, base)
        tree = self.workshop.git.tree(base)
        self.sealed = Sealed(base, sealed_paths(settings.sealed_files, tree))
        self._folder, self.clock = folder, home.clock

    def evaluator(self, command: str) -> Evaluator:
        s = self.settings
        timeout = s.benchmark_timeout_s or LIMITS.time
        limits = replace(LIMITS, time=timeout, memory=s.memory_mb << 20)
        benchmark = Benchmark(
            command, s.benchmark_format, s.primary_metric, limits, tuple(s.pass_env)
        )
        return Evaluator(self.workshop.repo, self._folder, benchmark, self.sealed, self.clock)

    @property
    def benchmark(self) -> Evaluator:
        return self.evaluator(self.settings.benchmark_command)

    @property
    def screen(self) -> Evaluator | None:
        command = self.settings.screen_command
        return self.evaluator(command) if command else None


# --- set-up ---------------------------------------------------------------------------------


def set_up(
    journal: Journal,
    values: Record,
    confirm: Confirm | None,
    tell: Callable[[str], None],
) -> list[str]:
    """Make a campaign: files, trust, branch, noise and baseline; what is worth a warning."""
    source, home, place = _source(values["repo_path"]), journal.home, journal.place
    branch = source.branch() or "HEAD"
    settings = _whole(checked({"target_branch": branch, **values}))
    if journal.state()["campaign"]:
        raise Conflict(
            f"campaign {place.name} already exists",
            hint="`holdfast improve run` goes on with it; --topic names another one",
        )
    base = _base_of(source, settings)
    trusted = check_trust(journal.state(), settings, confirm)
    branch = f"improve/{goal_slug(settings.objective, place)}"
    parts = Parts(journal, settings, base)
    found = _matched(parts, settings)
    there = parts.workshop.repo.adopt(branch)
    if there is not None:
        raise Conflict(
            f"the repository has a branch {branch} already",
            hint="it is of another campaign: give another --objective, or rename it",
        )
    tell(f"measuring the noise: {LEAST_RUNS} runs of {settings.benchmark_command}\n")
    baseline = measured(parts, base, max(LEAST_RUNS, settings.benchmark_repeats or 0))
    parts.workshop.repo.publish(base, branch, expected=None)
    goal, harness = _texts(journal, settings)
    line: Record = {"event": "campaign", "campaign": place.name, "settings": settings.whole()}
    line |= {"goal_slug": branch.removeprefix("improve/"), "branch": branch, "base": base}
    phases = read_goal(goal).phases
    active = [each.phase for each in phases if each.status == "active"]
    line |= {"goal": goal, "harness": harness, "phase": (active or [None])[0]}
    journal.write(line, *([trusted] if trusted else []), baseline)
    journal.put(SETTINGS, pretty(settings.whole()).decode())
    Views(home, place).show(journal.known())
    return [*found, *warnings(settings, baseline, parts.benchmark.isolation)]


def _whole(settings: Settings) -> Settings:
    """With the defaults of roles: parameter search where no model is named."""
    if not settings.benchmark_command.strip():
        raise UsageError("which benchmark?", hint="--benchmark 'python bench.py'")
    if not settings.executor and not settings.planner:
        settings = settings.model_copy(update={"planner": "search", "executor": "search"})
    elif not settings.planner:
        built = is_built_in(settings.executor)
        chosen = settings.executor if built else "direct"
        settings = settings.model_copy(update={"planner": chosen})
    elif not settings.executor:
        settings = settings.model_copy(update={"executor": settings.planner})
    if is_built_in(settings.executor) and settings.executor != settings.planner:
        raise UsageError(
            f"{settings.executor} carries out its own plans only, not those of {settings.planner}",
            hint="leave --planner out",
        )
    for role in ROLES:
        check_role(role, getattr(settings, role))
    return settings


def with_roles(settings: Settings, given: Record) -> Record:
    """The changes of settings that new roles mean; a planner that was not named follows."""
    if "executor" in given and "planner" not in given:
        given = {**given, "planner": ""}
    made, old = _whole(checked({**settings.whole(), **given})), settings.whole()
    return {name: value for name, value in made.whole().items() if value != old[name]}


def _source(path: str) -> Source:
    source = source_of(path)
    if source is None:
        hint = "`git init` and commit there"
        raise ConfigError(f"not in a git repository: {path}", hint=hint, path=path)
    return source


def _base_of(source: Source, settings: Settings) -> str:
    """The commit that everything is measured against."""
    for name in (f"refs/heads/{settings.target_branch}", settings.target_branch):
        if (commit := source.commit_of(name)) is not None:
            return commit
    raise ConfigError(
        f"no such branch or commit: {settings.target_branch[:80]}",
        hint="--target-branch, such as main; a repository without a commit cannot be improved",
        path=settings.repo_path,
    )


def _matched(parts: Parts, settings: Settings) -> list[str]:
    """Warnings about seals that match nothing."""
    tree = parts.workshop.git.tree(parts.sealed.base)
    return [
        f"sealed {entry} matches no file of {settings.target_branch}"
        for entry in settings.sealed_files
        if not any(Sealed("", sealed_paths([entry], tree)).covers(path) for path in tree)
    ]


def _texts(journal: Journal, settings: Settings) -> tuple[str, str]:
    """goal.md and harness.md as they are, or made from the settings; idea.md beside them."""
    harness = HARNESS_TEMPLATE + "".join(f"- `{each}`\n" for each in settings.families)
    made = {GOAL: new_goal(settings), HARNESS: harness, IDEA: IDEA_TEMPLATE}
    for name, text in made.items():
        if known := journal.text(name):
            made[name] = known
        else:
            journal.put(name, text)
    read_goal(made[GOAL])
    return made[GOAL], made[HARNESS]


def measured(parts: Parts, commit: str, runs: int) -> Record:
    """The line of a baseline: so many runs of unchanged files, each with a seed of its own.

    The hold-out is run too, to see that it works; its score is kept from everybody.
    """
    if parts.settings.holdout_command:
        _runs(parts.evaluator(parts.settings.holdout_command), commit, 1, "hold-out")
    found = _runs(parts.benchmark, commit, runs, "benchmark")
    noise = noise_of([score for _, score in found])
    line: Record = {"event": "baseline", "score": noise.mean, "sd": noise.sd, "runs": runs}
    line |= {"scores": [score for _, score in found], "sub_scores": found[0][0].sub_scores}
    line["seconds"] = round(sum(each.seconds for each, _ in found) / runs, 6)
    line["recorded_at"] = utc_stamp(parts.clock.now())
    line["screen"] = None
    if parts.screen is not None:
        cheap = noise_of([score for _, score in _runs(parts.screen, commit, LEAST_RUNS, "screen")])
        line["screen"] = {"score": cheap.mean, "sd": cheap.sd}
    return line


def _runs(
    evaluator: Evaluator, commit: str, runs: int, name: str
) -> list[tuple[Evaluation, float]]:
    found: list[tuple[Evaluation, float]] = []
    for number in range(runs):
        each = evaluator.evaluate(commit, seed=number)
        if each.score is None:
            failed = each.failure or {}
            raise ConfigError(
                f"the {name} does not work on the unchanged repository: "
                f"{failed.get('what')}; {failed.get('why')}",
                hint="run it in a fresh checkout: uncommitted and ignored files are not there",
            )
        found.append((each, each.score))
    return found


def warnings(settings: Settings, baseline: Record, isolation: str) -> list[str]:
    """What is worth knowing before a run."""
    found: list[str] = []
    mean, sd, scores = baseline["score"], baseline["sd"], baseline["scores"]
    if sd and mean and (max(scores) - min(scores)) / abs(mean) > _STEADY:
        shown = ", ".join(f"{each:g}" for each in scores)
        found.append(f"the benchmark varies: {shown}; candidates are measured in pairs")
    if isolation == "none":
        found.append("no bubblewrap: benchmarks run without a sandbox and with network")
    families = len(APPROACH_FAMILIES) + len(settings.families)
    if settings.number_of_agents > families - 1:
        found.append(
            f"{plural(settings.number_of_agents, 'planner')} and {families} families: no two plans "
            "of a round are of one family, so some will be rejected"
        )
    most = settings.budget_evaluations
    if most is not None and proposals(most, sd) < _FEW:
        found.append(bought(most, sd))
    return found


def proposals(evaluations: int, sd: float) -> int:
    """How many proposals a number of evaluations is worth: one run each, and pairs where noisy."""
    return int(evaluations / (1.5 if sd == 0 else 9))


def bought(evaluations: int, sd: float) -> str:
    many = plural(proposals(evaluations, sd), "proposal")
    return f"{plural(evaluations, 'evaluation')} buy about {many}"


# --- opening --------------------------------------------------------------------------------


def check_unchanged(journal: Journal, state: State) -> None:
    """Conflict naming a setting that scores depend on and that settings.json has otherwise."""
    given = read_settings(journal)
    for field in sorted(FIXED | set(ROLES)):
        old = state["settings"].get(field)
        if field in given and given[field] != old and not (old is None and not given[field]):
            raise Conflict(
                f"settings.json has another {field}: {clip(str(given[field]), 60)!r}, "
                f"and this campaign was begun with {clip(str(old), 60)!r}",
                hint=f"put it back, or `holdfast improve set {field} …`",
                path=journal.place.key(SETTINGS),
            )


def change_settings(journal: Journal, given: Record, source: str) -> None:
    """Write settings to the journal and to settings.json."""
    old = journal.known()["settings"]
    new = checked({**old, **given}).whole()
    if lines := changes(old, new, source):
        journal.write(*lines)
    journal.put(SETTINGS, pretty({**read_settings(journal), **given}).decode())


def forecast(
    settings: Settings, state: State, evaluations: int | None, seconds: float | None
) -> Iterable[str]:
    """What a budget buys, before it is spent."""
    baseline = state["baseline"]
    limits = [each for each in (evaluations, settings.budget_evaluations) if each is not None]
    if limits:
        yield f"{bought(min(limits), baseline['sd'])}\n"
    times = [each for each in (seconds, settings.budget_wall_s) if each is not None]
    if times and baseline["seconds"]:
        many = proposals(int(min(times) / baseline["seconds"]), baseline["sd"])
        yield f"{min(times):.4g} s buy about {plural(many, 'proposal')}\n"

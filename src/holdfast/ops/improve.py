"""The verbs of campaigns: a loop that makes a repository measurably better."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack

from holdfast.codec import Record
from holdfast.errors import ConfigError, Conflict, UsageError
from holdfast.improve.journal import Journal, campaigns, place_of
from holdfast.improve.overview import blocks, control, curve_of, overview
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, moment
from holdfast.text import duration, plural

if TYPE_CHECKING:
    from holdfast.improve.steps import Limits
    from holdfast.store.home import Home

_STOPPED = 130
"""As of a program that Ctrl-C ended."""
Campaign = Annotated[str | None, Arg("Which campaign; the only one unless given", positional=True)]
Session = Annotated[str | None, Arg("A session of the campaign, with files of its own")]
Trust = Annotated[bool, Arg("Let the benchmark command be run without a question")]


class RoleFields(TypedDict, total=False):
    """Who plans and edits: a model, `command:PROGRAM`, or a built-in."""

    researcher: Annotated[str | None, Arg("Who suggests ideas before plans are made")]
    planner: Annotated[
        str | None, Arg("Who plans: a model, command:…, or search, mutate, patches:FILE")
    ]
    architect: Annotated[str | None, Arg("Who advises on plans; code unless given")]
    critic: Annotated[str | None, Arg("Who may reject plans that the rules let pass")]
    executor: Annotated[str | None, Arg("Who edits: command:claude -p, a model, or a built-in")]


class InitFields(RoleFields, total=False):
    """Settings of a campaign, as `improve init` takes them."""

    objective: Annotated[str | None, Arg("What is to become better")]
    metric: Annotated[str | None, Arg("The name of the score in what the benchmark prints")]
    format: Annotated[
        Literal["json", "number", "pass_fail", "metric", "python"] | None,
        Arg("What the benchmark prints; json unless given"),
    ]
    direction: Annotated[Literal["higher", "lower"] | None, Arg("Which scores are better")]
    target: Annotated[float | None, Arg("The score at which the campaign is done")]
    sealed: Annotated[
        Sequence[str], Arg("What candidates must not change; repeatable", metavar="PATH")
    ]
    scope: Annotated[
        Sequence[str], Arg("The only paths that they may change; repeatable", metavar="PATH")
    ]
    family: Annotated[Sequence[str], Arg("A family of plans beyond the known ones; repeatable")]
    bench_timeout: Annotated[str | None, Arg("The most that one run may take", metavar="D")]
    repeats: Annotated[int | None, Arg("Runs by which noise is measured, 5 at least")]
    holdout: Annotated[str | None, Arg("A benchmark that no decision reads", metavar="COMMAND")]
    screen: Annotated[
        str | None, Arg("A cheap benchmark that stands before the full one", metavar="COMMAND")
    ]
    target_branch: Annotated[str | None, Arg("The branch to improve; that of HEAD unless given")]
    max_iterations: Annotated[int | None, Arg("The most rounds; 50 unless given")]
    planners: Annotated[int | None, Arg("Plans of a round; 3 unless given")]
    population: Annotated[int | None, Arg("Candidates that others may be built on; 1 unless given")]
    seed: Annotated[int | None, Arg("Of what is drawn at random")]
    pass_env: Annotated[Sequence[str], Arg("A variable that the benchmark gets; repeatable")]
    wall: Annotated[str | None, Arg("The most that one run of the loop may take", metavar="D")]
    eval_budget: Annotated[int | None, Arg("The most evaluations in all")]
    max_cost: Annotated[
        float | None, Arg("What all calls may cost together, in USD", metavar="USD")
    ]


_NAMES = {
    "metric": "primary_metric",
    "format": "benchmark_format",
    "target": "target_value",
    "sealed": "sealed_files",
    "family": "families",
    "repeats": "benchmark_repeats",
    "holdout": "holdout_command",
    "screen": "screen_command",
    "planners": "number_of_agents",
    "eval_budget": "budget_evaluations",
    "max_cost": "budget_cost_usd",
}
"""Settings by the flags that set them, where the names differ."""


@example(
    "holdfast improve init --topic sort --repo . --benchmark 'python3 bench/run.py' "
    "--sealed bench/ --objective 'Sort faster' --direction lower --trust"
)
def init(
    call: Context,
    *,
    repo: Annotated[str, Arg("The repository that is to become better", metavar="DIR")],
    benchmark: Annotated[str, Arg("Prints the score; run in a checkout", metavar="COMMAND")],
    topic: Annotated[str | None, Arg("A name for the campaign, any text")] = None,
    session_id: Session = None,
    trust: Trust = False,
    **given: Unpack[InitFields],
) -> Change:
    """Measures the unchanged repository five times, so that noise is known, and makes the branch
    `improve/OBJECTIVE`. The user's checkout is never touched.
    """
    from holdfast.improve.campaign import set_up

    fields = {name: value for name, value in given.items() if value not in (None, (), [])}
    values: Record = {_NAMES.get(name, name): value for name, value in fields.items()}
    for name, to in (("bench_timeout", "benchmark_timeout_s"), ("wall", "budget_wall_s")):
        if name in values:
            values[to] = duration(values.pop(name))
    if "direction" in values:
        values["benchmark_direction"] = f"{values.pop('direction')}_is_better"
    for name in ("sealed_files", "scope", "families", "pass_env"):
        if name in values:
            values[name] = list(values[name])
    values |= {"repo_path": os.path.abspath(repo), "benchmark_command": benchmark}
    home = call.home_to_change()
    place = place_of(topic, session_id)
    values["topic_slug"] = place.slug
    with Journal(home, place) as journal:
        for text in set_up(journal, values, confirm(call, trust=trust), _telling(call)):
            call.warn(text)
        journal.lines.flush()
        data = overview(journal.state())
    noise = f"noise {data['noise_sd']:g}" if data["noise_sd"] else "no noise"
    detail = (
        f"campaign {place.name}: baseline {data['baseline']:g}, {noise}, branch {data['branch']}"
    )
    return Change(place.name, applied=True, detail=detail, data=short(data))


@example("holdfast improve run sort --rounds 2 --executor 'command:claude -p'")
def run(
    call: Context,
    campaign: Campaign = None,
    *,
    rounds: Annotated[int | None, Arg("So many rounds, and then stop")] = None,
    planners: Annotated[int | None, Arg("Plans of a round, in this run")] = None,
    seed: Annotated[int | None, Arg("Of what is drawn at random")] = None,
    resume: Annotated[bool, Arg("Go on after a stop, with counters at zero")] = False,
    session_id: Session = None,
    max_cost: Annotated[
        float | None, Arg("What all calls may cost together", metavar="USD")
    ] = None,
    deadline: Annotated[str | None, Arg("Begin nothing after: 8h, or a time", metavar="T")] = None,
    eval_budget: Annotated[int | None, Arg("The most evaluations of this run")] = None,
    smoke: Annotated[bool, Arg("One round of one planner, to see that all works")] = False,
    trust: Trust = False,
    **roles: Unpack[RoleFields],
) -> Show:
    """Ctrl-C ends it with what runs; --resume goes on with the round, and nothing that was
    measured is measured again. Exits with 0 when the target or the rounds are reached, with 130
    when it was stopped, with 1 for any other end.
    """
    from holdfast.improve.steps import Limits

    if (planners is not None and planners < 1) or (rounds is not None and rounds < 1):
        raise UsageError("--planners and --rounds begin at 1", hint="leave them out")
    if (max_cost or 0) < 0 or (eval_budget or 0) < 0:
        raise UsageError("--max-cost and --eval-budget begin at 0", hint="leave them out")
    home = call.home_to_change()
    when = None
    if deadline is not None:
        relative = deadline[-1:] in ("s", "m", "h", "d", "w")
        when = call.clock.now() + duration(deadline) if relative else moment(deadline, home)
    limits = Limits(max_cost, eval_budget, when, planners)
    changes: Record = {name: value for name, value in roles.items() if value is not None}
    if seed is not None:
        changes["seed"] = seed
    with open_campaign(call, home, campaign, session_id) as journal:
        journal.own()
        try:
            state = _go(
                call, home, journal, changes, limits, 1 if smoke else rounds,
                resume=resume, smoke=smoke, trust=trust,
            )  # fmt: skip
        finally:
            journal.lines.flush()
            journal.disown()
        data = overview(state)
    fine = data["status"] in ("idle", "target_reached", "max_iterations")
    code = _STOPPED if data["status"] == "user_stopped" else 0 if fine else ATTENTION
    return Show(data, text=summary(data), exit_code=code)


def _go(
    call: Context,
    home: Home,
    journal: Journal,
    changes: Record,
    limits: Limits,
    rounds: int | None,
    *,
    resume: bool,
    smoke: bool,
    trust: bool,
) -> Any:
    from holdfast.improve import campaign as campaigns_
    from holdfast.improve.files import checked
    from holdfast.improve.loop import Engine
    from holdfast.improve.steps import Steps
    from holdfast.ops.swarm import stoppable

    tell = _telling(call)
    state = journal.state()
    _check_open(journal, state, resume=resume)
    campaigns_.check_unchanged(journal, state)
    settings = checked(state["settings"])
    if "seed" in changes and changes["seed"] != settings.seed and state["rounds"]:
        raise Conflict(
            f"seed is {settings.seed} in this campaign, and --seed {changes['seed']} was given",
            hint="leave --seed out; another seed is another campaign",
        )
    changed = campaigns_.with_roles(settings, changes)
    if changed:
        campaigns_.change_settings(journal, changed, "improve run")
        settings = checked(journal.state()["settings"])
    line = campaigns_.check_trust(state, settings, confirm(call, trust=trust))
    journal.write(
        *([line] if line else []), {"event": "status", "status": "running", "anew": resume}
    )
    parts = campaigns_.Parts(journal, settings, state["base"])
    left = None if limits.deadline is None else max(0.0, limits.deadline - call.clock.now())
    for text in campaigns_.forecast(settings, state, limits.evaluations, left):
        tell(text)
    with stoppable() as stopping:
        steps = Steps(home, journal, settings, parts.benchmark, parts.screen, limits, stopping)
        try:
            with _chart(call, journal, tell) as echo:
                return Engine(steps, parts.workshop, echo).run(rounds, smoke=smoke)
        finally:
            steps.close()


@contextmanager
def _chart(
    call: Context, journal: Journal, tell: Callable[[str], None]
) -> Generator[Callable[[str], None]]:
    """The scores so far, drawn again after each round at the foot of a terminal."""
    if call.live is None:
        yield tell
        return
    from holdfast.improve.pictures import terminal

    drawn = [terminal(curve_of(overview(journal.known())))]

    def echo(text: str) -> None:
        tell(text)
        drawn[0] = terminal(curve_of(overview(journal.known())))

    with call.live(lambda: drawn[0]):
        yield echo


def _check_open(journal: Journal, state: Any, *, resume: bool) -> None:
    name = journal.place.name
    if state["finalized"]:
        holdout = state["finalized"]["holdout"]
        raise Conflict(
            f"{name} is finalized" + (": its hold-out was opened" if holdout else ""),
            hint="begin another campaign; `holdfast improve report` shows this one",
        )
    if state["baseline"] is None:
        raise ConfigError(f"{name} has no baseline", hint="`holdfast improve init` measures it")
    ended = state["status"] not in ("idle", "running", "target_reached", "budget")
    if ended and not resume:
        raise Conflict(
            f"{name} ended: {state['status']}, {state['why']}",
            hint=f"`holdfast improve run {name} --resume` goes on, with counters at zero",
        )


@example("holdfast improve status sort")
def status(call: Context, campaign: Campaign = None, *, session_id: Session = None) -> Show:
    """Opens with what blocks, and what can be done next."""
    with open_campaign(call, call.home(), campaign, session_id) as journal:
        data = overview(journal.state(), alive=journal.holder() is not None)
    return Show(short(data), text=summary(data))


@example("holdfast improve stop sort")
def stop(call: Context, campaign: Campaign = None, *, session_id: Session = None) -> Change:
    """What runs is ended at once; what was measured is kept."""
    with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
        state, name = journal.state(), journal.place.name
        if state["status"] != "running":
            return Change(name, applied=False, detail=f"{name} is {state['status']}")
        if journal.holder() is None:
            journal.write({"event": "status", "status": "user_stopped", "why": "`improve stop`"})
            return Change(name, applied=True, detail=f"{name} is stopped")
        journal.write({"event": "stop"})
    return Change(name, applied=True, detail=f"{name} stops now")


@example("holdfast improve set sort number_of_agents 2")
def set_(
    call: Context,
    campaign: Annotated[str, Arg("Which campaign", positional=True)],
    key: Annotated[str, Arg("A setting, as in settings.json", positional=True)],
    value: Annotated[str, Arg("Its new value; lists with commas", positional=True)],
    *,
    session_id: Session = None,
    trust: Trust = False,
) -> Change:
    """Counts from the next round. What scores depend on can be set only before the first round, and
    is measured again.
    """
    from holdfast.improve import campaign as campaigns_
    from holdfast.improve.files import FIXED, PLACED, ROLES, checked, parsed_setting

    with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
        state = journal.state()
        new = parsed_setting(key, value)
        settings = checked({**state["settings"], key: new})
        if key in PLACED or (key in FIXED and state["round"] is not None):
            raise Conflict(
                f"the scores of this campaign depend on {key}",
                hint="begin another campaign: `holdfast improve init`",
            )
        if state["settings"].get(key) == getattr(settings, key):
            return Change(journal.place.name, applied=False, detail=f"{key} is {value} already")
        if key in FIXED:
            line = campaigns_.check_trust(state, settings, confirm(call, trust=trust))
            parts = campaigns_.Parts(journal, settings, state["base"])
            runs = max(5, settings.benchmark_repeats or 0)
            baseline = campaigns_.measured(parts, state["base"], runs)
            journal.write(*([line] if line else []), baseline)
        changes = {key: new}
        if key in ROLES:
            changes = campaigns_.with_roles(checked(state["settings"]), changes)
        campaigns_.change_settings(journal, changes, "user")
        journal.lines.flush()
    return Change(journal.place.name, applied=True, detail=f"{key} is {value} from the next round")


@example('holdfast improve edit sort idea --text "Sort in place"')
def edit(
    call: Context,
    campaign: Annotated[str, Arg("Which campaign", positional=True)],
    what: Annotated[Literal["goal", "harness", "idea"], Arg("Which file", positional=True)],
    *,
    text: Annotated[str | None, Arg("The new text, instead of an editor", or_file=True)] = None,
    session_id: Session = None,
) -> Change:
    """In $EDITOR; counts from the next round."""
    from holdfast.improve.files import families_in, read_goal

    if call.edit is None and text is None:
        raise UsageError("no terminal to edit in", hint="--text @FILE")
    with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
        path = f"config/{what}.md"
        key = journal.place.key(path)
        if text is None and call.edit is not None:
            text = call.edit(journal.text(path))
        if text is None:
            return Change(key, applied=False, detail=f"{what}.md is as it was")
        if what == "goal":
            read_goal(text)
        elif what == "harness":
            families_in(text)
        journal.put(path, text)
    return Change(key, applied=True, detail=f"{what}.md counts from the next round")


@example("holdfast improve idea sort 'Cache the parsed rows'")
def idea(
    call: Context,
    campaign: Annotated[str, Arg("Which campaign", positional=True)],
    text: Annotated[str, Arg("What to try", positional=True, or_file=True)],
    *,
    session_id: Session = None,
) -> Change:
    """The first planner of the next round takes it up; ideas in config/idea.md as well."""
    if not text.strip():
        raise UsageError("an idea without a text", hint="`improve idea sort 'Cache the rows'`")
    with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
        journal.write({"event": "idea", "text": text.strip()})
        waiting = len(journal.state()["ideas"])
    return Change(journal.place.name, applied=True, detail=f"{plural(waiting, 'idea')} waiting")


@example("holdfast improve finalize sort")
def finalize(
    call: Context,
    campaign: Campaign = None,
    *,
    branch: Annotated[str | None, Arg("Its name; review/OBJECTIVE unless given")] = None,
    skip_control: Annotated[
        bool, Arg("Do not measure random search with as many evaluations")
    ] = False,
    session_id: Session = None,
    trust: Trust = False,
) -> Change:
    """Makes a branch with one commit upon the target branch, and opens the hold-out: base and
    result are measured by it once. After that the campaign is over.
    """
    from holdfast.improve.finalizing import finalized

    with open_campaign(call, call.home_to_change(), campaign, session_id) as journal:
        journal.own()
        try:
            tell = None if skip_control else _telling(call)
            found = finalized(journal, branch, confirm(call, trust=trust), tell)
            journal.lines.flush()
        finally:
            journal.disown()
    opened = ""
    if (held := found["holdout"]) is not None:
        opened = f"; hold-out {held['failure'] or '{base} → {result}'.format(**held)}"
    detail = (
        f"{found['branch']} has it all in one commit{opened}; look: git log -p {found['branch']}"
    )
    return Change(journal.place.name, applied=True, detail=detail, data=found)


# --- shared ---------------------------------------------------------------------------------


def open_campaign(call: Context, home: Home, name: str | None, session: str | None) -> Journal:
    if name is None and session is None:
        known = campaigns(home)
        if len(known) > 1:
            names = ", ".join(each.name for each in known)
            raise UsageError("which campaign?", hint=names)
        name = known[0].name if known else None
    journal = Journal(home, place_of(name, session))
    try:
        journal.check_exists()
    except BaseException:
        journal.close()
        raise
    return journal


def _telling(call: Context) -> Callable[[str], None]:
    return call.tell or (lambda _: None)


def confirm(call: Context, *, trust: bool) -> Callable[[str], bool] | None:
    if trust:
        call.check_person()
        return lambda _: True
    listen = call.listen
    if listen is None or call.from_afar:
        return None
    return lambda question: (listen(question) or "").strip().lower() in ("y", "yes")


def short(data: Record) -> Record:
    """An overview without what grows."""
    return {
        name: value for name, value in data.items() if name not in ("rounds", "rows", "population")
    }


def summary(data: Record) -> str:
    lines = [blocks(data), f"next: {data['next']}"]
    if data["baseline"] is not None:
        percent = data["gain_percent"]
        gained = f" ({percent:+.3g} %)" if percent is not None else ""
        noise = f", noise {data['noise_sd']:g}" if data["noise_sd"] else ""
        lines.append(f"{data['metric']} {data['baseline']:g} → {data['best']:g}{gained}{noise}")
    if (n := data["best_of_n"]) is not None:
        lines.append(f"best of {plural(n['n'], 'candidate')} made from the base: {n['score']:g}")
    lines.append(f"random search with as many evaluations: {control(data)}")
    target = "" if data["target"] is None else f", target {data['target']:g}"
    cost = f", {data['cost_usd']:.4f} USD" if data["calls"] else ""
    if data["unknown_costs"]:
        cost += f" (unknown for {plural(data['unknown_costs'], 'call')})"
    lines.append(
        f"{data['iterations']}/{data['max_iterations']} rounds, {data['merged']} merged, "
        f"{plural(data['evaluations'], 'evaluation')}{cost}{target}"
    )
    if data["round"] is not None:
        lines.append(f"in round {data['round']}: {data['step']}")
    lines.append(f"branch {data['branch']}")
    return "\n".join(lines) + "\n"

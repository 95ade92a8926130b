"""The verbs of swarms: several agents at one goal, tick by tick."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, cast, get_args

from holdfast import userfile
from holdfast.agents.history import check_in_service
from holdfast.clock import utc_stamp
from holdfast.codec import Record
from holdfast.errors import Conflict, Corrupt, NotFound, UsageError
from holdfast.ids import agent_id
from holdfast.layout import ROUTER_WEIGHTS
from holdfast.models.registry import acts, open_model
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show, tally
from holdfast.ops.model import chosen, unsaid
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.ops.swarm_study import BASELINE
from holdfast.swarm.file import SwarmFile, read_swarm
from holdfast.swarm.prompts import expert_prompt, goal_text, priming
from holdfast.swarm.router import Router
from holdfast.swarm.run import Run, run_names
from holdfast.swarm.runner import Runner, first_plan, weights_in
from holdfast.swarm.spec import RouterName, Spec, Topology, check, roles_in, spec_of, summarizer
from holdfast.swarm.state import DONE, State
from holdfast.text import clip, duration, one_line, plural

if TYPE_CHECKING:
    from holdfast.models.protocol import Model
    from holdfast.store.home import Home

_LARGEST = 1 << 20
_SHOWN, _NAMED = 76, 3
Id = Annotated[str, Arg("Which run", positional=True, metavar="RUN")]
Ticks = Annotated[int | None, Arg("Ticks of the whole run; 10 unless given")]
MaxCost = Annotated[float | None, Arg("Most that all calls may cost, in USD", metavar="USD")]


class SwarmFields(TypedDict, total=False):
    """How a swarm runs: flags of `swarm run`, over what its file says."""

    topology: Annotated[Topology | None, Arg("How agents take turns; moe unless given")]
    topk: Annotated[int | None, Arg("Experts of a tick of moe; 2 unless given")]
    seed: Annotated[int | None, Arg("Seed of random draws")]
    model: Annotated[str | None, Arg("Model of agents without one of their own")]
    cooldown: Annotated[int | None, Arg("Ticks for which an expert is not chosen again")]
    explore: Annotated[
        float | None, Arg("Share of ticks in which one expert is drawn at random, 0 to 1")
    ]
    router: Annotated[RouterName | None, Arg("Choose experts by shared words or by meaning")]
    summarizer_model: Annotated[str | None, Arg("Model that writes the baton", metavar="MODEL")]
    baton_chars: Annotated[int | None, Arg("Most characters of a baton")]
    baton_sentences: Annotated[int | None, Arg("Most sentences of a baton")]
    switch_after: Annotated[int | None, Arg("Ticks of mesh before moe, in mixed")]
    max_messages: Annotated[int | None, Arg("Most calls of a tick; 100 unless given")]


@example(
    "holdfast swarm run --name week --agents rio,leo --goal 'Plan the week' --ticks 2 "
    "--model scripted:echo"
)
def run(
    call: Context,
    *,
    agents: Annotated[str | None, Arg("Agents, separated by commas", metavar="A,B")] = None,
    goal: Annotated[str | None, Arg("Goal of all agents", or_file=True)] = None,
    goal_file: Annotated[
        str | None, Arg("Read the goal from a file", metavar="FILE", is_path=True)
    ] = None,
    agent_goal: Annotated[
        Sequence[str], Arg("Goal of one agent; repeatable", metavar="A=TEXT")
    ] = (),
    agent_model: Annotated[
        Sequence[str], Arg("Model of one agent; repeatable", metavar="A=MODEL")
    ] = (),
    summarizer: Annotated[
        str | None, Arg("Who writes the baton: an agent, its place from 0, or a role", metavar="A")
    ] = None,
    file: Annotated[
        str | None, Arg("Read the swarm from YAML, JSON or YSON", metavar="FILE", is_path=True)
    ] = None,
    name: Annotated[str | None, Arg("Name of the run; its start time unless given")] = None,
    ticks: Ticks = None,
    max_cost: MaxCost = None,
    timeout: Annotated[str | None, Arg("Timeout of one call", metavar="D")] = None,
    baseline: Annotated[
        bool, Arg("Then run the best agent alone on as many tokens, and compare")
    ] = False,
    dry_run: DryRun = False,
    **given: Unpack[SwarmFields],
) -> Show:
    """Ctrl-C stops the run after the calls in progress; `swarm resume` continues it. Exits with 0
    if all ticks are done, with 1 if the run was stopped.
    """
    home = call.home() if dry_run else call.home_to_change()
    from_file = SwarmFile({"goals": {}, "models": {}}, (), None, [])
    if file is not None:
        from_file = read_swarm(userfile.text(file, "--file", _LARGEST), file)
    for warning in from_file.warnings:
        call.warn(warning)
    fields = {
        **from_file.fields,
        **{key: value for key, value in given.items() if value is not None},
    }
    if goal_file is not None:
        fields["goal"] = userfile.text(goal_file, "--goal-file", _LARGEST).strip()
    more = {"goal": goal, "ticks": ticks, "max_cost_usd": max_cost}
    fields |= {key: value for key, value in more.items() if value is not None}
    if timeout is not None:
        fields["timeout"] = duration(timeout)
    fields["goals"] = {**from_file.fields["goals"], **_pairs("--agent-goal", agent_goal)}
    fields["models"] = {**from_file.fields["models"], **_pairs("--agent-model", agent_model)}
    names = tuple(filter(None, (each.strip() for each in (agents or "").split(","))))
    spec = _spec(call, home, names or from_file.agents, fields, summarizer or from_file.summarizer)
    router = _router(home, spec)
    if dry_run:
        return _would_run(spec, router)
    if baseline and name and f"{name}{BASELINE}" in run_names(home, call.layout):
        raise Conflict(f"run {name}{BASELINE} already exists", hint="choose another --name")
    if baseline and name:
        Run(home, f"{name}{BASELINE}", call.layout).close()  # BadName before anything is paid
    with _created(call, home, name, spec, first_plan(spec, router)) as made:
        state = _go(call, made, router)
    if baseline and state["status"] == DONE:
        return _compared(call, home, made.name, state)
    return _ended(made, state)


@example("holdfast swarm resume week --ticks 3")
def resume(call: Context, id: Id, *, ticks: Ticks = None, max_cost: MaxCost = None) -> Show:
    """Continues at the first incomplete tick; recorded replies are not requested again. `--ticks`
    extends a finished run; without it, resuming one completes its files.
    """
    home = call.home_to_change()
    with Run(home, id, call.layout) as one:
        state = one.check_exists()
        changes = {"ticks": ticks, "max_cost_usd": max_cost}
        changes = {key: value for key, value in changes.items() if value is not None}
        spec = spec_of(state)._replace(**cast("Any", changes))
        check(spec)
        if ticks is not None and ticks <= state["tick"]:
            raise UsageError(
                f"{id} has done {plural(state['tick'], 'tick')}",
                hint=f"--ticks {state['tick'] + 1} or more, of all that it has",
            )
        over = state["status"] == DONE and ticks is None
        return _ended(one, _go(call, one, _router(home, spec), None if over else changes))


@example("holdfast swarm list", columns="run status topology ticks agents cost_usd errors goal")
def list_(call: Context) -> Rows:
    home = call.home()
    rows: list[Record] = []
    for name in run_names(home, call.layout):
        with Run(home, name, call.layout) as one:
            try:
                rows.append(_row(one, one.check_exists()))
            except Corrupt as error:
                call.warn(error.message)
            except NotFound:
                pass  # it was not begun
    rows.sort(key=lambda row: row["created"], reverse=True)
    return Rows(rows, tally(rows, "status"))


@example("holdfast swarm show week")
def show(call: Context, id: Id) -> Show:
    with Run(call.home(), id, call.layout) as one:
        state = one.check_exists()
        data = {**_row(one, state), **_details(one, state)}
    return Show(data)


@example("holdfast swarm stop week")
def stop(call: Context, id: Id) -> Change:
    """Waits for the calls of the current tick."""
    with Run(call.home_to_change(), id, call.layout) as one:
        state = one.check_exists()
        if one.status(state) not in ("running", "interrupted"):
            return Change(id, applied=False, detail=f"{id} is {state['status']}")
        one.stop("stopped by `swarm stop`")
        state = one.state()
        stopped = state["status"] != "running"
        if stopped:
            one.show()
    detail = f"{id} is stopped" if stopped else f"{id} stops after tick {state['tick'] + 1}"
    return Change(id, applied=True, detail=detail)


# --- making a run ---------------------------------------------------------------------------


def _spec(
    call: Context, home: Home, names: tuple[str, ...], fields: Record, writes: str | None
) -> Spec:
    agents = tuple(agent_id(name).lower() for name in names)
    roles: dict[str, list[str]] = {}
    for name in agents:
        with call.agent(name) as one:
            check_in_service(one.state())
            roles[name] = roles_in(one.persona.look())
    model, models = fields.get("model"), dict(fields["models"])
    for name in agents:
        named = models.get(name) or model
        _opened(call, home, name, named).close()
        if (ref := named or unsaid(home, name)) is not None:
            models[name] = ref
    if names and (ref := fields.get("summarizer_model")):
        _opened(call, home, agents[0], ref).close()
    model = model or next(iter(models.values()), "")
    if fields.get("topology", "moe") not in get_args(Topology):
        raise UsageError(f"no topology {fields['topology']!r}", hint=", ".join(get_args(Topology)))
    if fields.get("router", "tfidf") not in get_args(RouterName):
        raise UsageError(f"no router {fields['router']!r}", hint=", ".join(get_args(RouterName)))
    fields = {"topk": min(2, len(agents)), "goal": "", **fields}
    known = home.document(ROUTER_WEIGHTS).read()
    weights = weights_in(known.data if known else None)
    fields |= {
        "agents": agents,
        "model": model,
        "models": {name: ref for name, ref in models.items() if ref != model},
        "roles": roles,
        "weights": {name: weights[name] for name in agents if name in weights},
        "summarizer": summarizer(agents, roles, writes) if agents else "",
    }
    spec = Spec(**fields)
    check(spec)
    return spec


def _created(call: Context, home: Home, name: str | None, spec: Spec, plan: Record) -> Run:
    """A run under the name that was given, else under one that no run has."""
    stamp = utc_name(call.clock.now())
    number = 1
    while True:
        called = name or (stamp if number == 1 else f"{stamp}-{number}")
        made = Run(home, called, call.layout)
        try:
            made.create(spec, plan)
            return made
        except Conflict:
            made.close()
            if name:
                raise
            number += 1


def utc_name(instant: float) -> str:
    """`20261119-064402`."""
    return utc_stamp(instant)[:19].replace("-", "").replace(":", "").replace("T", "-")


def _router(home: Home, spec: Spec) -> Router:
    if spec.router == "tfidf":
        return Router(spec)
    from holdfast.models.embedders import open_embedder

    return Router(spec, open_embedder(home.settings.embedder).embed)


def _pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not text:
            raise UsageError(f"{flag} {each[:80]!r} has no value", hint=f"{flag} rio='…'")
        pairs[name.strip().lower()] = text
    return pairs


def _would_run(spec: Spec, router: Router) -> Show:
    """The plan of the first tick, and what it would ask."""
    plan = first_plan(spec, router)
    primed = priming(spec.goal, {})
    first = plan["experts"][0]
    prompt = expert_prompt(plan["kind"], plan["from"], first, primed, goal_text(spec, first))
    data = {
        "spec": spec._asdict(),
        "plan": {name: value for name, value in plan.items() if name != "event"},
        "calls_a_tick": spec.messages(1),
        "prompt": prompt,
    }
    lines = [
        f"{spec.topology}, {plural(spec.ticks, 'tick')}, {plural(len(spec.agents), 'agent')}, "
        f"up to {plural(spec.messages(1), 'call')} in tick 1",
        f"tick 1: {', '.join(plan['experts'])} ({plan['reason']})",
        f"summariser: {spec.summarizer}",
        "",
        prompt,
    ]
    return Show(data, text="\n".join(lines) + "\n")


# --- running --------------------------------------------------------------------------------


def _go(call: Context, one: Run, router: Router, changes: Record | None = None) -> State:
    """Run until it is done or stopped, telling each tick."""
    telling = _Telling(call, one)
    live = nullcontext() if call.live is None else call.live(telling.now)
    one.own()
    try:
        if changes is not None:
            one.write({"event": "go", "changes": changes})
        with stoppable() as stop, live:
            runner = Runner(
                one,
                partial(_opened, call, one.home),
                layout=call.layout,
                router=router,
                watch=telling.tick,
                stopping=stop,
            )
            with closing(runner):
                return runner.go()
    finally:
        one.disown()


def _opened(call: Context, home: Home, agent: str, ref: str | None) -> Model:
    # A program may have had an effect: it is not asked again by itself.
    return open_model(ref) if ref and acts(ref) else chosen(call, home, agent, ref)


@contextmanager
def stoppable() -> Generator[Callable[[], str]]:
    """Says why to stop once Ctrl-C was pressed or SIGTERM came; the second one ends us at once."""
    asked: list[str] = []

    def ask(number: int, frame: object) -> None:
        asked.append(signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)

    main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, ask)
        for number in ((signal.SIGINT, signal.SIGTERM) if main else ())
    }
    try:
        yield lambda: f"stopped by {asked[0]}" if asked else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if "SIGTERM" in asked and before[signal.SIGTERM] == signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)


class _Telling:
    """Two lines for each tick; at a terminal one more, which says who is asked and for how long."""

    def __init__(self, call: Context, one: Run) -> None:
        self._tell, self._clock = call.tell, call.clock
        self._note(one.state())

    def _note(self, state: State) -> None:
        self._since, self._plan = self._clock.boottime(), state["plan"]
        self._used = f"{state['tokens']:,} tokens, {state['cost_usd']:.4f} USD"
        self._ticks = spec_of(state).ticks if state["run"] else 0

    def tick(self, line: Record, state: State) -> None:
        self._note(state)
        errors = sum(each["errors"] for each in state["counts"].values())
        wrong = f", {plural(errors, 'error')}" if errors else ""
        head = f"tick {line['tick']}/{self._ticks}  {line['seconds']:.2f} s  {line['kind']}: "
        asked = _names(state["previous"]) or "no expert"
        if self._tell is not None:
            baton = clip(one_line(line["baton"]), _SHOWN)
            self._tell(f"{head}{asked}  ({self._used}{wrong})\n  {baton}\n")

    def now(self) -> str:
        plan = self._plan
        if plan is None:
            return ""
        passed = self._clock.boottime() - self._since
        head = f"tick {plan['tick']}/{self._ticks}  {plan['kind']} for {passed:.0f} s"
        return f"{head}  ({self._used})  asking {_names(plan['experts'])}"


def _names(agents: Sequence[str]) -> str:
    more = f" and {len(agents) - _NAMED} more" if len(agents) > _NAMED else ""
    return ", ".join(agents[:_NAMED]) + more


def _row(one: Run, state: State) -> Record:
    spec = spec_of(state)
    return {
        "run": state["run"],
        "status": one.status(state),
        "topology": spec.topology,
        "ticks": f"{state['tick']}/{spec.ticks}",
        "agents": len(spec.agents),
        "cost_usd": round(state["cost_usd"], 6),
        "unknown_costs": state["unknown"],
        "tokens": state["tokens"],
        "errors": sum(each["errors"] for each in state["counts"].values()),
        "goal": clip(one_line(spec.goal), 60),
        "created": utc_stamp(state["created"]),
    }


def _details(one: Run, state: State) -> Record:
    spec = spec_of(state)
    calls = [
        {
            "agent": agent,
            **counts,
            "model": spec.model_of(agent),
            "weight": spec.weights.get(agent, 0.0),
        }
        for agent, counts in state["counts"].items()
    ]
    return {
        "why": state["why"],
        "seed": spec.seed,
        "router": spec.router,
        "summarizer": spec.summarizer,
        "summaries": state["aggregate"]["calls"],
        "lost_calls": state["lost_calls"],
        "elapsed_sec": round(state["elapsed"], 3),
        "next": state["plan"],
        "calls": calls,
        "goal": spec.goal,
        "baton": state["baton"],
        "document": one.document,
        "compared_with": spec.compared_with or None,
    }


def _ended(one: Run, state: State) -> Show:
    data = {**_row(one, state), **_details(one, state)}
    done = state["status"] == DONE
    lines = [f"{one.name} is {state['status']}: {state['why']}", f"baton: {state['baton']}"]
    lines.append(f"document: {one.document}")
    if not done:
        lines.append(f"next: holdfast swarm resume {one.name}")
    return Show(data, text="\n".join(lines) + "\n", exit_code=0 if done else ATTENTION)


# --- the best agent alone -------------------------------------------------------------------


def _compared(call: Context, home: Home, name: str, state: State) -> Show:
    """Run the agent that was asked most often alone on as many tokens, and show both."""
    spec = spec_of(state)
    weigh = state["chosen"] or {each: counts["chat"] for each, counts in state["counts"].items()}
    best = max(spec.agents, key=lambda agent: weigh.get(agent, 0))
    calls = sum(each["chat"] for each in state["counts"].values()) + state["aggregate"]["calls"]
    alone = spec._replace(
        agents=(best,),
        topology="ring",
        topk=1,
        summarizer=best,
        goals={agent: goal for agent, goal in spec.goals.items() if agent == best},
        models={best: spec.model_of(best)},
        max_tokens=state["tokens"],
        ticks=max(4 * calls, 1),
        compared_with=name,
    )
    router = Router(alone)
    with _created(call, home, f"{name}{BASELINE}", alone, first_plan(alone, router)) as made:
        after = _go(call, made, router)
        rows = [_side(name, "swarm", state), _side(made.name, f"{best} alone", after)]
    lines = [
        f"{row['who']}: {row['calls']} calls, {row['tokens']} tokens, {row['cost_usd']:.4f} USD, "
        f"{row['seconds']:.2f} s, {row['goal_terms']:.0%} of the goal's words\n  {row['result']}"
        for row in rows
    ]
    return Show({"run": name, "compared": rows}, text="\n".join(lines) + "\n")


def _side(name: str, who: str, state: State) -> Record:
    from holdfast.swarm.router import tokens

    goal = {word for word in tokens(spec_of(state).goal) if "_" not in word}
    found = goal & set(tokens(state["baton"]))
    return {
        "run": name,
        "who": who,
        "calls": sum(state["asked"].values()),
        "tokens": state["tokens"],
        "cost_usd": round(state["cost_usd"], 9),
        "unknown_costs": state["unknown"],
        "seconds": round(state["elapsed"], 3),
        "errors": sum(each["errors"] for each in state["counts"].values()),
        "goal_terms": round(len(found) / len(goal), 4) if goal else 0.0,
        "result": state["baton"],
    }

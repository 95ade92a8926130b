"""A swarm in a home, the world that its agents change, and what has to hold whoever died.

The world is a folder outside of the home.  An agent that is asked looks up in its own conversation
which call it is, and writes that into `effects.jsonl`: so whatever is asked twice is seen twice,
and a call without an intent on disk is seen at once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from holdfast.errors import Unavailable
from holdfast.models.protocol import Reply, Request, Usage
from holdfast.spend.book import Spend
from holdfast.store.failpoints import hit
from holdfast.store.home import Home
from holdfast.swarm.router import Router
from holdfast.swarm.run import Run
from holdfast.swarm.runner import Runner, first_plan
from holdfast.swarm.spec import Spec
from prove import frame
from prove.job_scene import Ticks, Unsynced, different

AGENTS = ("ada", "ben", "cleo", "dia")
NAME = "proof"
COST, MOST = 0.01, 0.05
LOST = "interrupted:"
"""How the error of a program begins whose process died while it was asked."""
BUDGET = "\n[budget]\nfleet_day_usd = 1000.0\n"


class Plan(NamedTuple):
    number: int
    spec: Spec
    acts: frozenset[str]
    """Agents that may have an effect, so that they are not asked again by themselves."""
    failing: float
    """The share of questions that nobody answers."""
    budget: bool
    """Whether the fleet has one, so that money is reserved in the book."""

    @property
    def repeatable(self) -> bool:
        """Whether the end is that of the run which nobody disturbed."""
        return not self.acts or self.spec.repeatable


def plan_of(seed: int, number: int) -> Plan:
    rng = Random(frame.seed_of(f"{seed} swarm {number}"))
    agents = tuple(rng.sample(AGENTS, rng.randint(2, 4)))
    acts = frozenset(agent for agent in agents if number % 3 == 2 and rng.random() < 0.7)
    spec = Spec(
        agents=agents,
        goal="Plan the garden: water, seeds and a budget",
        topology=rng.choice(["ring", "mesh", "moe", "moe", "mixed"]),
        ticks=rng.randint(3, 6),
        topk=rng.randint(1, len(agents)),
        seed=rng.randrange(1_000),
        model="scripted:one",
        models={agent: f"command:{agent}" for agent in acts},
        goals={agents[0]: "Choose the seeds"},
        summarizer=rng.choice(agents),
        cooldown=rng.choice([0, 0, 1]),
        explore=rng.choice([0.0, 0.5]),
        baton_chars=rng.choice([60, 4_000]),
        switch_after=rng.randint(1, 3),
        max_cost_usd=rng.choice([None, 100.0]),
        repeatable=bool(acts) and rng.random() < 0.3,
    )
    return Plan(number, spec, acts, rng.choice([0.0, 0.0, 0.15]), rng.random() < 0.5)


class Scene:
    """The places of one case."""

    def __init__(self, place: Path, plan: Plan, template: Path) -> None:
        self.plan, self.place, self.home = plan, place, place / "home"
        self.effects = place / "effects.jsonl"
        self.seen: list[Seen] = []
        """What was on disk at each death."""
        shutil.copytree(template, self.home)
        if plan.budget:
            with (self.home / "holdfast.toml").open("a", encoding="utf-8") as file:
                file.write(BUDGET)

    def open(self) -> Home:
        return Home.open(str(self.home), clock=Ticks(), vfs=Unsynced())

    def read(self, key: str) -> list[dict[str, Any]]:
        """The records of a log, without the line that its writer died over."""
        path = self.home / key
        if not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.strip()]

    def asked(self) -> list[str]:
        """The turn of each call, as the agents noted it."""
        if not self.effects.exists():
            return []
        return [json.loads(line) for line in self.effects.read_bytes().splitlines()]

    def turns(self) -> tuple[set[str], set[str]]:
        """The turns that are answered in the conversations, and those that wait."""
        asked, given_up, answered = set[str](), set[str](), set[str]()
        for agent in self.plan.spec.agents:
            for line in self.read(f"state/{agent}/memory.jsonl"):
                meta: dict[str, Any] = line.get("meta") or {}
                kind = asked if line.get("role") == "user" else answered
                if "turn" in meta:
                    (given_up if meta.get("error") == "interrupted" else kind).add(meta["turn"])
        return answered, asked - answered - given_up

    def look(self) -> None:
        """Note what a process that died has left."""
        answered, waiting = self.turns()
        self.seen.append(Seen(answered, waiting, Counter(map(call_of, self.asked()))))


class Seen(NamedTuple):
    answered: set[str]
    waiting: set[str]
    effects: Counter[str]


def call_of(turn: str) -> str:
    """The call that a turn belongs to: one that was lost is asked again in the next turn."""
    parts = turn.split("/")
    return "/".join(parts[:-1] if parts[-1].isdecimal() and len(parts) > 3 else parts)


class Agent:
    """A model in our own process; what it says follows from what it is asked."""

    def __init__(self, scene: Scene, agent: str, ref: str) -> None:
        self.ref = ref
        self._scene, self._agent = scene, agent

    def ask(self, request: Request, on_text: object = None) -> Reply:
        lines = self._scene.read(f"state/{self._agent}/memory.jsonl")
        turn = [line for line in lines if line.get("role") == "user"][-1]["meta"]["turn"]
        effects = os.open(self._scene.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(effects, (json.dumps(turn) + "\n").encode())
        finally:
            os.close(effects)
        hit("agent.acted")
        digest = sha256(request.text.encode()).hexdigest()
        if int(digest[:4], 16) < self._scene.plan.failing * 0x10000:
            raise Unavailable(f"{self._agent} is not there", hint="ask again")
        text = f"{self._agent} would water {digest[:6]} first. Then the seeds."
        return Reply(text, self.ref, usage=Usage(100, 10), cost_usd=COST)

    def most_usd(self, request: Request) -> float | None:
        return MOST

    def close(self) -> None:
        """Nothing is open."""


def live(scene: Scene) -> None:
    """Take the run from wherever it is to its end; one process, unless it is killed on the way."""
    with scene.open() as home, Run(home, NAME) as run:
        begun = bool(run.state()["run"])
        if not begun:
            spec = scene.plan.spec
            run.create(spec, first_plan(spec, Router(spec)))
        run.own()
        if begun and run.state()["status"] == "running":
            run.write({"event": "go", "changes": {}})
        runner = Runner(run, lambda agent, ref: Agent(scene, agent, ref))
        try:
            runner.go()
        finally:
            runner.close()
            run.disown()


# --- what came of it ------------------------------------------------------------------------


class End(NamedTuple):
    """All that has to be the same, whoever died on the way."""

    document: dict[str, Any]
    batons: list[list[Any]]
    goals: list[list[Any]]
    calls: list[str]
    """That were answered."""
    weights: str


_TIMES = ("t", "seconds", "elapsed_sec", "unknown_costs")


def end_of(scene: Scene) -> End:
    logs = scene.home / "logs"
    document = json.loads((logs / f"cluster_run_{NAME}.json").read_bytes())
    head = {name: value for name, value in document.items() if name not in _TIMES}
    head["events"] = [
        {name: value for name, value in event.items() if name not in _TIMES}
        for event in document["events"]
    ]
    told: dict[str, list[list[Any]]] = {"moe/baton": [], f"goals/runs/{NAME}": []}
    for agent in sorted(scene.plan.spec.agents):
        for line in scene.read(f"state/{agent}/topics.jsonl"):
            if line.get("topic") in told:
                told[line["topic"]].append([agent, line["text"], line["fields"]])
    batons, goals = told.values()
    weights = scene.home / "state/router_weights.json"
    text = weights.read_text(encoding="utf-8") if weights.exists() else ""
    calls = sorted(map(call_of, scene.turns()[0]))
    return End(head, batons, goals, calls, text)


def complaints(scene: Scene, expected: End | None) -> list[str]:
    """What does not hold; with `expected`, also where the end differs from that one."""
    found = end_of(scene)
    says = [*ticks_of(scene, found), *paid(scene), *money_of(scene, found)]
    if expected is not None and scene.plan.repeatable:
        missing = len(expected.document["events"]) - len(found.document["events"])
        if missing > 0:
            says.append(f"P1: the run lacks {missing} events")
        for name in End._fields:
            says += different(name, getattr(expected, name), getattr(found, name))
    return says


def ticks_of(scene: Scene, found: End) -> list[str]:
    """Each tick once and in order, and what is counted is what there is."""
    says: list[str] = []
    document = found.document
    ticks = [line["tick"] for line in scene.read(f"swarms/{NAME}.jsonl") if is_tick(line)]
    if ticks != list(range(1, document["ticks"] + 1)):
        says.append(f"P2: ticks {ticks} of {document['ticks']}")
    names = [
        (event["tick"], event["type"], event.get("expert") or event.get("to"))
        for event in document["events"]
        if event["type"] in ("moe", "handoff", "broadcast", "aggregate")
    ]
    says += [f"P2: {name} is there {n} times" for name, n in Counter(names).items() if n > 1]
    counted = {agent: {"chat": 0, "errors": 0} for agent in document["agents"]}
    for event in document["events"]:
        agent = event.get("expert") or event.get("to") or event.get("agent")
        if agent is not None:
            counted[agent]["errors" if event["type"] == "error" else "chat"] += 1
    says += different("counts", counted, document["counts"])
    batons = [fields["tick"] for _, _, fields in found.batons]
    if batons != sorted(set(batons)):
        says.append(f"P2: the batons of ticks {batons}")
    return says


def is_tick(line: dict[str, Any]) -> bool:
    return line.get("event") == "tick"


def paid(scene: Scene) -> list[str]:
    """No call is made again whose answer was recorded, nor one that may have had an effect."""
    says: list[str] = []
    plan, asked = scene.plan, scene.asked()
    says += [f"P3: {turn} was asked {n} times" for turn, n in Counter(asked).items() if n > 1]
    effects = Counter(map(call_of, asked))
    lost = Counter(
        f"{NAME}/{line['call']}"
        for line in scene.read(f"swarms/{NAME}.jsonl")
        if line.get("event") == "lost"
    )
    for call, times in effects.items():
        acted = call.split("/")[2] in plan.acts and not plan.spec.repeatable
        if times > (1 if acted else 1 + lost[call]):
            says.append(f"P3: {call} was made {times} times, {lost[call]} were lost")
    for seen in scene.seen:
        for call in map(call_of, seen.answered):
            if effects[call] != seen.effects[call]:
                says.append(f"P3: {call} was answered, and made again")
    waited = Counter(call_of(turn) for seen in scene.seen for turn in seen.waiting)
    says += [f"P3: {call} was never open, and counts as lost" for call in lost - waited]
    return says


def money_of(scene: Scene, found: End) -> list[str]:
    """What answers cost is in the book once, and nothing stays reserved."""
    if not scene.plan.budget:
        return []
    with scene.open() as home, Spend(home) as book:
        held, days = book.open(), book.days()
        usd = sum(tally.usd for day in days for tally in book.agents(day).values())
    says = [f"money: {each.usd} USD stay reserved for {each.session}" for each in held]
    if round(usd, 6) != round(found.document["cost_usd"], 6):
        says.append(f"money: {usd} USD in the book, {found.document['cost_usd']} in the run")
    return says

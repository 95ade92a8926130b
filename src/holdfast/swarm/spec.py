"""The settings of a swarm: checked once, and recorded whole in the first line of its run."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

from holdfast.codec import Record
from holdfast.errors import UsageError

Topology = Literal["ring", "mesh", "moe", "mixed"]
RouterName = Literal["tfidf", "embedding"]
MOST_AGENTS, MOST_TICKS, MOST_BATON = 1_000, 1_000_000, 100_000
_SUMMARIZERS = ("observer", "coordinator", "weaver", "summarizer")
"""Roles of an agent that is taken for the summariser where none is named."""


class Spec(NamedTuple):
    agents: tuple[str, ...]
    goal: str
    topology: Topology = "moe"
    ticks: int = 10
    topk: int = 2
    """Experts of a tick of moe."""
    seed: int = 0
    model: str = ""
    """Of agents that have no model of their own in `models`."""
    models: dict[str, str] = {}  # noqa: RUF012 - never changed
    goals: dict[str, str] = {}  # noqa: RUF012 - the same
    """Subgoals of agents."""
    roles: dict[str, list[str]] = {}  # noqa: RUF012 - the same
    weights: dict[str, float] = {}  # noqa: RUF012 - the same
    """Of the router, as they were when the run began."""
    summarizer: str = ""
    summarizer_model: str = ""
    cooldown: int = 0
    """Ticks for which an expert is not chosen again."""
    explore: float = 0.0
    """The share of ticks in which one expert is drawn at random."""
    router: RouterName = "tfidf"
    baton_chars: int = 4_000
    baton_sentences: int | None = None
    switch_after: int = 3
    """Ticks of mesh before moe, in mixed."""
    max_cost_usd: float | None = None
    timeout: float = 600.0
    """Seconds of one call."""
    max_messages: int = 100
    """Calls of one tick."""
    max_tokens: int | None = None
    """The run ends with the tick that reaches it."""
    repeatable: bool = False
    """Whether a program that was interrupted may be asked again."""
    compared_with: str = ""
    """The run that this one is the baseline of."""

    def model_of(self, agent: str) -> str:
        return self.models.get(agent, self.model)

    def kind(self, tick: int) -> Literal["handoff", "broadcast", "moe"]:
        """What the experts of a tick are asked by."""
        match self.topology:
            case "ring":
                return "handoff"
            case "mesh":
                return "broadcast"
            case "mixed" if tick <= self.switch_after:
                return "broadcast"
            case _:
                return "moe"

    def messages(self, tick: int) -> int:
        """The most calls of a tick."""
        return {"handoff": 1, "broadcast": len(self.agents), "moe": self.topk + 1}[self.kind(tick)]


def spec_of(record: Record) -> Spec:
    """The spec in a state, as an older or newer Holdfast may have written it."""
    known: Record = {name: value for name, value in record["spec"].items() if name in Spec._fields}
    known["agents"] = tuple(known["agents"])
    return Spec(**known)


def check(spec: Spec) -> None:
    """UsageError for what cannot be run."""
    count = len(spec.agents)
    _refuse(not spec.agents, "a swarm has no agents", "name them: --agents rio,kim,ada")
    _refuse(len(set(spec.agents)) < count, "an agent is named twice", "each agent takes part once")
    _refuse(count > MOST_AGENTS, f"{count} agents", f"{MOST_AGENTS} is the most")
    _refuse(not spec.goal.strip(), "a swarm has no goal", "--goal TEXT, or --goal-file FILE")
    for name, least, most in (
        ("ticks", 1, MOST_TICKS),
        ("topk", 1, count),
        ("cooldown", 0, MOST_TICKS),
        ("baton_chars", 1, MOST_BATON),
        ("baton_sentences", 1, MOST_BATON),
        ("switch_after", 0, MOST_TICKS),
        ("max_messages", 1, MOST_AGENTS + 1),
    ):
        value = getattr(spec, name)
        flag = "--" + name.replace("_", "-")
        wrong = value is not None and not least <= value <= most
        _refuse(wrong, f"{flag} is {value}", f"{least} to {most}")
    _refuse(not 0 <= spec.explore <= 1, f"--explore is {spec.explore:g}", "a share from 0 to 1")
    cost = spec.max_cost_usd
    wrong = cost is not None and not 0 < cost < 1e9
    _refuse(wrong, f"--max-cost is {cost}", "in USD, above 0")
    _refuse(not spec.timeout > 0, f"--timeout is {spec.timeout:g}", "seconds, above 0")
    for agent in {*spec.goals, *spec.models, spec.summarizer} - {*spec.agents}:
        _refuse(bool(agent), f"{agent} is not in the swarm", f"one of {', '.join(spec.agents)}")
    most = max(spec.messages(1), spec.messages(spec.ticks))
    _refuse(
        most > spec.max_messages,
        f"a tick of {spec.topology} has {most} calls, {spec.max_messages} are allowed",
        f"--max-messages {most}, or fewer agents",
    )


def _refuse(wrong: bool, message: str, hint: str) -> None:
    if wrong:
        raise UsageError(message, hint=hint)


def summarizer(agents: tuple[str, ...], roles: dict[str, list[str]], named: str | None) -> str:
    """Which agent writes the baton: by its name, its place or a role; else by its own roles."""
    places = {str(place): agent for place, agent in enumerate(agents)}
    if found := named if named in agents else places.get(named or ""):
        return found
    wanted = (named.lower(),) if named else _SUMMARIZERS
    for agent in agents:
        if any(word in role.lower() for role in roles.get(agent, ()) for word in wanted):
            return agent
    _refuse(
        bool(named), f"no agent {named!r} in the swarm", "an agent, its place from 0, or a role"
    )
    return agents[0]


def roles_in(manifest: Record) -> list[str]:
    roles: Any = manifest.get("roles")
    return [str(each) for each in cast("list[object]", roles)] if isinstance(roles, list) else []

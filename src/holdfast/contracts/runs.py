"""What a swarm leaves behind: the run of one agent under test, and the run of a cluster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field

from holdfast.contracts.kind import (
    Finding,
    Form,
    Kind,
    Located,
    Origin,
    has_fields,
    object_of,
    objects_in,
)
from holdfast.contracts.record import (
    AtLeastOne,
    Count,
    Document,
    EpochTime,
    NonEmpty,
    Number,
    Record,
    Seconds,
)

AgentMention = NonEmpty
"""An agent of the run; not the name of a file, so that other systems' names are right too."""
_SLACK = 1.0
"""Seconds that two clocks of a run may differ by."""


class Chatted(Record):
    t: EpochTime
    type: Literal["chat"]
    prompt: str
    reply: str


class Stated(Record):
    t: EpochTime
    type: Literal["status"]
    tail_mem: Count
    tail_ev: Count


class Forked(Record):
    t: EpochTime
    type: Literal["fork"]
    child_id: AgentMention


class TestFailed(Record):
    t: EpochTime
    type: Literal["error"]
    error: str


class TestCounts(Record):
    chat: Count
    fork: Count
    status: Count
    errors: Count


class TestLogs(Record):
    txt: NonEmpty
    json_: NonEmpty = Field(alias="json")
    log: NonEmpty


class TestRun(Document):
    agent_id: AgentMention
    start_ts: EpochTime
    end_ts: EpochTime
    elapsed_sec: Seconds
    counts: TestCounts
    events: list[Annotated[Chatted | Stated | Forked | TestFailed, Field(discriminator="type")]]
    logs: TestLogs
    often_missing: ClassVar[frozenset[str]] = frozenset({"logs"})


class Asked(Record):
    """Additive: what is known of the call behind an event."""

    model: str | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cost_usd: Number | None = None
    """Absent is unknown."""
    seconds: Seconds | None = None


class Passed(Asked):
    """From one agent to the next, or from one to each."""

    t: EpochTime
    type: Literal["handoff", "broadcast"]
    from_: AgentMention = Field(alias="from")
    to: AgentMention
    prompt: str
    reply: str
    tick: AtLeastOne


class Moe(Asked):
    t: EpochTime
    type: Literal["moe"]
    expert: AgentMention
    prompt: str
    reply: str
    tick: AtLeastOne
    router_scores: dict[str, Number]
    """Of every agent; far below zero for one that is cooling."""
    reason: str | None = None
    """Additive: why this expert was chosen."""
    often_missing: ClassVar[frozenset[str]] = frozenset({"prompt", "router_scores"})


class Aggregate(Asked):
    t: EpochTime
    type: Literal["aggregate"]
    summarizer: AgentMention
    prompt: str
    reply: str
    tick: AtLeastOne
    often_missing: ClassVar[frozenset[str]] = frozenset({"prompt"})


class InputGoal(Record):
    t: EpochTime
    type: Literal["input_goal"]
    text: str


class Failed(Asked):
    t: EpochTime
    type: Literal["error"]
    agent: AgentMention
    error: str
    tick: AtLeastOne | None = None
    """Additive: when it happened."""
    summary: bool | None = None
    """Additive: whether it was asked for the baton."""
    often_missing: ClassVar[frozenset[str]] = frozenset({"agent"})


ClusterEvent = Annotated[Passed | Moe | Aggregate | InputGoal | Failed, Field(discriminator="type")]


class AgentCounts(Record):
    chat: Count
    errors: Count
    often_missing: ClassVar[frozenset[str]] = frozenset({"errors"})


class AggregateCounts(Record):
    calls: Count
    errors: Count


class ClusterRun(Document):
    agents: list[AgentMention]
    model: str
    use_ollama: bool
    ticks: Count
    elapsed_sec: Seconds
    counts: dict[str, AgentCounts]
    events: list[ClusterEvent]
    run: str | None = None
    """Additive, as all that follow."""
    status: str | None = None
    why: str | None = None
    topology: str | None = None
    topk: Count | None = None
    seed: int | None = None
    router: str | None = None
    models: dict[str, str] | None = None
    """Of each agent."""
    summarizer: str | None = None
    aggregate: AggregateCounts | None = None
    """Calls of the summariser, which are not in `counts`."""
    baton: str | None = None
    tokens: Count | None = None
    cost_usd: Number | None = None
    unknown_costs: Count | None = None
    """Calls of which no cost is known."""
    compared_with: str | None = None
    """The run that this one is the baseline of."""
    often_missing: ClassVar[frozenset[str]] = frozenset({"use_ollama", "elapsed_sec"})


def _check_test(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    del origin
    for line, reading in found:
        value = object_of(reading.value)
        seen = Counter(str(event.get("type")) for event in objects_in(value.get("events")))
        real = {"chat": seen["chat"], "fork": seen["fork"], "status": seen["status"]}
        yield from _recounted("counts", value.get("counts"), real | {"errors": seen["error"]}, line)
        start, end, told = (_number(value, name) for name in ("start_ts", "end_ts", "elapsed_sec"))
        if abs(end - start - told) > _SLACK:
            reason = f"{told:g} where {end - start:g} passed between start_ts and end_ts"
            yield Finding("warning", "elapsed", "elapsed_sec", reason, line)


def _check_cluster(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    del origin
    for line, reading in found:
        value = object_of(reading.value)
        events = list(objects_in(value.get("events")))
        for finding in (
            *_counted(value, events),
            *_in_their_ticks(value, events),
            *_of_the_run(value, events),
        ):
            yield finding._replace(line=line)


_COUNTED = {"handoff": "to", "broadcast": "to", "moe": "expert", "error": "agent"}
"""The events that are counted, and the field that names the agent they count for."""
_NAMES = ("from", "to", "expert", "summarizer", "agent")


def _counted(value: dict[str, Any], events: list[dict[str, Any]]) -> Iterator[Finding]:
    chats, errors = Counter[str](), Counter[str]()
    for event in events:
        kind = event.get("type")
        field = _COUNTED.get(kind) if isinstance(kind, str) else None
        name = event.get(field) if field else None
        if isinstance(name, str):
            (errors if kind == "error" else chats)[name] += 1
    counts = object_of(value.get("counts"))
    for name, told in counts.items():
        real = {"chat": chats[name], "errors": errors[name]}
        yield from _recounted(f"counts.{name}", told, real, 0)
    for name in sorted((chats.keys() | errors.keys()) - counts.keys()):
        yield Finding("warning", "counts", f"counts.{name}", "has events, but no counts")


def _recounted(where: str, told: Any, real: Mapping[str, int], line: int) -> Iterator[Finding]:
    counts = object_of(told)
    for name, number in real.items():
        if abs(_number(counts, name) - number) > 0:
            reason = f"{counts[name]} where the events have {number}"
            yield Finding("warning", "counts", f"{where}.{name}", reason, line)


def _in_their_ticks(value: dict[str, Any], events: list[dict[str, Any]]) -> Iterator[Finding]:
    ticks = _number(value, "ticks")
    for number, event in enumerate(events):
        if _number(event, "tick") > ticks:
            where = f"events[{number}].tick"
            yield Finding("warning", "tick", where, f"{event['tick']} of {ticks:g} ticks")
            return


def _of_the_run(value: dict[str, Any], events: list[dict[str, Any]]) -> Iterator[Finding]:
    agents = value.get("agents")
    if not isinstance(agents, list):
        return
    known = {agent for agent in cast("list[Any]", agents) if isinstance(agent, str)}
    for number, event in enumerate(events):
        for name in _NAMES:
            mentioned = event.get(name)
            if isinstance(mentioned, str) and mentioned not in known:
                known.add(mentioned)  # told once
                reason = f"{mentioned!r} is no agent of this run"
                yield Finding("warning", "agent", f"events[{number}].{name}", reason)


def _number(value: dict[str, Any], name: str) -> float:
    """Not a number if it is none, so that it differs from nothing."""
    found = value.get(name)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else math.nan


TEST_RUN = Kind(
    "test-run",
    "The run of one agent under test",
    "document",
    (Form("1.0", TestRun),),
    paths=(r"(^|/)test_run_[^/]*\.json$",),
    looks=lambda value: has_fields(value, "agent_id", "start_ts", "events"),
    cross_check=_check_test,
)

CLUSTER_RUN = Kind(
    "cluster-run",
    "The run of several agents, event by event",
    "document",
    (Form("1.0", ClusterRun),),
    paths=(r"(^|/)cluster_run_[^/]*\.json$",),
    looks=lambda value: has_fields(value, "agents", "ticks", "events"),
    cross_check=_check_cluster,
)

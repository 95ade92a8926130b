"""All kinds of files of swarms: what agents said, what happened to them, their runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from holdfast import codec
from holdfast.contracts.fractal import FMM, IvfIndex
from holdfast.contracts.kind import (
    LOG_FORM,
    Finding,
    Form,
    Kind,
    Origin,
    has_fields,
    object_of,
    objects_in,
)
from holdfast.contracts.persona import MANIFEST
from holdfast.contracts.record import (
    AtLeastOne,
    ChainedLine,
    Count,
    Document,
    EpochTime,
    Fence,
    Free,
    NonEmpty,
    Number,
    Record,
    Seconds,
    broken_rule,
)
from holdfast.ids import is_agent_id, mapped_agent_id

Json = dict[str, Any]


class MemoryLine(ChainedLine):
    ts: EpochTime
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    meta: Annotated[Json, Free("where a message is from, how its model was asked")] | None = None
    ref: str | None = None
    """Additive: the line of another log that it is a projection of."""
    fence: Fence | None = None
    """Additive: of the lease under which it was written."""


class TopicLine(ChainedLine):
    """Something said or noted, and the topic it belongs to."""

    ts: EpochTime | None = None
    topic: NonEmpty
    text: str
    meta: Annotated[Json, Free("which turn it is from, what a tool adds")] | None = None
    data: Annotated[Any, Free("any value that was given with it")] = None
    tags: list[str] | None = None
    supersedes: NonEmpty | list[NonEmpty] | None = None
    """The id of the datum that it corrects, or of several: an agent, `#`, the number of a line."""
    source: NonEmpty | None = None
    valid_until: Number | None = None
    fields: Annotated[Json, Free("what its datum in fmm.json has besides")] | None = None
    ref: str | None = None
    fence: Fence | None = None


class TopicProposal(TopicLine):
    """A datum that counts once it is accepted."""

    event: Literal["propose"]


class TopicAct(ChainedLine):
    """Data that memory shows no more, what became of a proposal, or what an index is like."""

    ts: EpochTime
    event: Literal["forget", "decide", "index"]
    id: NonEmpty | None = None
    accepted: bool | None = None
    by: NonEmpty | None = None
    ids: list[NonEmpty] | None = None
    why: Literal["asked", "duplicate", "superseded"] | None = None
    index: IvfIndex | None = None


class AgentEvent(ChainedLine):
    ts: EpochTime
    type: NonEmpty
    meta: Annotated[Json, Free("each type of event has its own")] | None = None
    ref: str | None = None
    fence: Fence | None = None


MEMORY_LINE = Kind.of(
    "memory-line",
    "What was said to an agent and by it",
    MemoryLine,
    r"memory(\.\d+)?\.jsonl",
    ("ts", "role", "content"),
    shape="lines",
)


def _is_proposal(value: Any) -> bool:
    return object_of(value).get("event") == "propose"


TOPIC_LINE = Kind(
    "topic-line",
    "What an agent's memory was told, by topic",
    "lines",
    (
        LOG_FORM,
        Form("act", TopicAct, matches=lambda value: "event" in object_of(value)),
        Form("proposal", TopicProposal, matches=_is_proposal),
        Form("1.0", TopicLine),
    ),
    paths=(r"(^|/)topics(\.\d+)?\.jsonl$",),
    looks=lambda value: (
        has_fields(value, "topic", "text")
        or has_fields(value, "event", "ids", "why")
        or has_fields(value, "event", "index")
        or has_fields(value, "event", "accepted")
    ),
)

AGENT_EVENT = Kind.of(
    "agent-event",
    "What happened to an agent",
    AgentEvent,
    r"events(\.\d+)?\.jsonl",
    ("ts", "type", "meta"),
    shape="lines",
)


class Counters(Record):
    memory_lines: Count
    events_lines: Count


class IndexEntry(Record):
    parent_id: NonEmpty | None = None
    manifest_path: str | None = None
    created_ts: EpochTime | None = None
    counters: Counters


class Index(Document):
    updated: EpochTime
    agents: dict[str, IndexEntry]


def _check_index(value: Json, origin: Origin) -> Iterator[Finding]:
    del origin
    agents = object_of(value.get("agents"))
    yield from _odd_names(agents)
    yield from _odd_parents(agents)


def _odd_names(agents: Json) -> Iterator[Finding]:
    for name, entry in agents.items():
        where = f"agents.{name}"
        if not is_agent_id(name):
            reason = f"cannot be an id; {mapped_agent_id(name)} when imported"
            yield Finding("warning", "name", where, reason)
        path = object_of(entry).get("manifest_path")
        if isinstance(path, str) and path.startswith("/"):
            reason = f"{path!r} holds on one machine only"
            yield Finding("warning", "path", f"{where}.manifest_path", reason)


def _odd_parents(agents: Json) -> Iterator[Finding]:
    given = {name: object_of(entry).get("parent_id") for name, entry in agents.items()}
    parents = {name: parent for name, parent in given.items() if isinstance(parent, str)}
    for name, parent in parents.items():
        if parent == name:
            reason = "an agent that is its own parent"
        elif parent not in agents:
            reason = f"{parent!r} is not among the agents"
        elif _comes_back(name, parents):
            reason = "its line of parents leads back to itself"
        else:
            continue
        yield Finding("warning", "parent", f"agents.{name}.parent_id", reason)


def _comes_back(name: str, parents: dict[str, str]) -> bool:
    seen, at = {name}, parents.get(name)
    while at is not None and at not in seen:
        seen.add(at)
        at = parents.get(at)
    return at == name


class RouterWeights(Record):
    """How much more, or less, a router likes each agent."""

    if not TYPE_CHECKING:  # a checker takes it for an argument
        __pydantic_extra__: dict[str, Number]
    open_ended = True


class _Row(Record):
    """A text that can be found by its meaning, as it stands in a database of them."""

    id: Count | None = None
    agent_id: NonEmpty | None = None
    ts: EpochTime
    text: str
    meta: Any
    freq: AtLeastOne
    """How often the same text was stored."""
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None


class RetrievalRow(_Row):
    meta: Annotated[Json, Free("what the tool that stored it wanted to keep")] | None = None


class StoredRow(_Row):
    """The same with `meta` as the JSON text of its column."""

    meta: str

    @model_validator(mode="after")
    def _holds_an_object(self) -> Self:
        if _decoded(self.meta) is None:
            raise broken_rule("meta is the JSON text of an object")
        return self


def _decoded(text: str) -> Json | None:
    try:
        return codec.decode_record(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


INDEX = Kind.of(
    "index",
    "All agents, their parents and counters",
    Index,
    r"state/index\.json",
    ("updated", "agents"),
    _check_index,
)

ROUTER_WEIGHTS = Kind.of(
    "router-weights", "How much a router likes each agent", RouterWeights, r"router_weights\.json"
)

RETRIEVAL_ROW = Kind(
    "retrieval-row",
    "A row of a database of texts that are found by meaning",
    "lines",
    (
        Form(
            "0.9",
            StoredRow,
            matches=lambda value: isinstance(object_of(value).get("meta"), str),
            upgrade=lambda row: {**row, "meta": _decoded(row["meta"])},
        ),
        Form("1.0", RetrievalRow),
    ),
    looks=lambda value: has_fields(value, "ts", "text", "freq"),
)


# --- runs: of one agent under test, and of several -------------------------------------------

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


class _Answered(Asked):
    t: EpochTime
    prompt: str
    reply: str
    tick: AtLeastOne


class Passed(_Answered):
    """From one agent to the next, or from one to each."""

    type: Literal["handoff", "broadcast"]
    from_: AgentMention = Field(alias="from")
    to: AgentMention


class Moe(_Answered):
    type: Literal["moe"]
    expert: AgentMention
    router_scores: dict[str, Number]
    """Of every agent; far below zero for one that is cooling."""
    reason: str | None = None
    """Additive: why this expert was chosen."""
    often_missing: ClassVar[frozenset[str]] = frozenset({"prompt", "router_scores"})


class Aggregate(_Answered):
    type: Literal["aggregate"]
    summarizer: AgentMention
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


def _check_test(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    del origin
    seen = Counter(str(event.get("type")) for event in objects_in(value.get("events")))
    real = {"chat": seen["chat"], "fork": seen["fork"], "status": seen["status"]}
    yield from _recounted("counts", value.get("counts"), real | {"errors": seen["error"]})
    start, end, told = (_number(value, name) for name in ("start_ts", "end_ts", "elapsed_sec"))
    if abs(end - start - told) > _SLACK:
        reason = f"{told:g} where {end - start:g} passed between start_ts and end_ts"
        yield Finding("warning", "elapsed", "elapsed_sec", reason)


def _check_cluster(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    del origin
    events = list(objects_in(value.get("events")))
    yield from _counted(value, events)
    yield from _in_their_ticks(value, events)
    yield from _of_the_run(value, events)


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
        yield from _recounted(f"counts.{name}", told, real)
    for name in sorted((chats | errors).keys() - counts.keys()):
        yield Finding("warning", "counts", f"counts.{name}", "has events, but no counts")


def _recounted(where: str, told: Any, real: Mapping[str, int]) -> Iterator[Finding]:
    counts = object_of(told)
    for name, number in real.items():
        if abs(_number(counts, name) - number) > 0:
            reason = f"{counts[name]} where the events have {number}"
            yield Finding("warning", "counts", f"{where}.{name}", reason)


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


TEST_RUN = Kind.of(
    "test-run",
    "The run of one agent under test",
    TestRun,
    r"test_run_[^/]*\.json",
    ("agent_id", "start_ts", "events"),
    _check_test,
)

CLUSTER_RUN = Kind.of(
    "cluster-run",
    "The run of several agents, event by event",
    ClusterRun,
    r"cluster_run_[^/]*\.json",
    ("agents", "ticks", "events"),
    _check_cluster,
)


KINDS: tuple[Kind, ...] = (
    FMM,
    TEST_RUN,
    CLUSTER_RUN,
    MANIFEST,
    MEMORY_LINE,
    TOPIC_LINE,
    AGENT_EVENT,
    INDEX,
    ROUTER_WEIGHTS,
    RETRIEVAL_ROW,
)

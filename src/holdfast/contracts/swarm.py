"""Swarms: what their agents said, what happened to them; and all kinds of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from holdfast import codec
from holdfast.contracts.fractal import FMM, IvfIndex
from holdfast.contracts.kind import Finding, Form, Kind, Located, Origin, has_fields, object_of
from holdfast.contracts.loglines import LOG_FORM, Digest, Fence
from holdfast.contracts.persona import MANIFEST
from holdfast.contracts.record import (
    AtLeastOne,
    Count,
    Document,
    EpochTime,
    Free,
    NonEmpty,
    Number,
    Record,
    broken_rule,
)
from holdfast.contracts.runs import CLUSTER_RUN, TEST_RUN
from holdfast.ids import is_agent_id, mapped_agent_id

Json = dict[str, Any]


class MemoryLine(Record):
    ts: EpochTime
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    meta: Annotated[Json, Free("where a message is from, how its model was asked")] | None = None
    ref: str | None = None
    """Additive: the line of another log that it is a projection of."""
    fence: Fence | None = None
    """Additive: of the lease under which it was written."""
    seq: Count | None = None
    """Additive, as `hash`: the line's place in a log of ours."""
    hash: Digest | None = None


class TopicLine(Record):
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
    seq: Count | None = None
    hash: Digest | None = None


class TopicProposal(TopicLine):
    """A datum that counts once it is accepted."""

    event: Literal["propose"]


class TopicAct(Record):
    """Data that memory shows no more, what became of a proposal, or what an index is like."""

    ts: EpochTime
    event: Literal["forget", "decide", "index"]
    id: NonEmpty | None = None
    accepted: bool | None = None
    by: NonEmpty | None = None
    ids: list[NonEmpty] | None = None
    why: Literal["asked", "duplicate", "superseded"] | None = None
    index: IvfIndex | None = None
    seq: Count | None = None
    hash: Digest | None = None


class AgentEvent(Record):
    ts: EpochTime
    type: NonEmpty
    meta: Annotated[Json, Free("each type of event has its own")] | None = None
    ref: str | None = None
    fence: Fence | None = None
    seq: Count | None = None
    hash: Digest | None = None


MEMORY_LINE = Kind(
    "memory-line",
    "What was said to an agent and by it",
    "lines",
    (LOG_FORM, Form("1.0", MemoryLine)),
    paths=(r"(^|/)memory(\.\d+)?\.jsonl$",),
    looks=lambda value: has_fields(value, "ts", "role", "content"),
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
    ),
)

AGENT_EVENT = Kind(
    "agent-event",
    "What happened to an agent",
    "lines",
    (LOG_FORM, Form("1.0", AgentEvent)),
    paths=(r"(^|/)events(\.\d+)?\.jsonl$",),
    looks=lambda value: has_fields(value, "ts", "type", "meta"),
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


def _check_index(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    del origin
    for line, reading in found:
        agents = object_of(object_of(reading.value).get("agents"))
        for finding in (*_odd_names(agents), *_odd_parents(agents)):
            yield finding._replace(line=line)


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


class RetrievalRow(Record):
    """A text that can be found by its meaning, as it stands in a database of them."""

    id: Count | None = None
    agent_id: NonEmpty | None = None
    ts: EpochTime
    text: str
    meta: Annotated[Json, Free("what the tool that stored it wanted to keep")] | None = None
    freq: AtLeastOne
    """How often the same text was stored."""
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None


class StoredRow(Record):
    """The same with `meta` as the JSON text of its column."""

    id: Count | None = None
    agent_id: NonEmpty | None = None
    ts: EpochTime
    text: str
    meta: str
    freq: AtLeastOne
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None

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


INDEX = Kind(
    "index",
    "All agents, their parents and counters",
    "document",
    (Form("1.0", Index),),
    paths=(r"(^|/)state/index\.json$",),
    looks=lambda value: has_fields(value, "updated", "agents"),
    cross_check=_check_index,
)

ROUTER_WEIGHTS = Kind(
    "router-weights",
    "How much a router likes each agent",
    "document",
    (Form("1.0", RouterWeights),),
    paths=(r"(^|/)router_weights\.json$",),
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

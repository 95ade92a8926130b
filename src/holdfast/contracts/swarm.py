"""Swarms: who an agent is, what it said, what happened to it; and all kinds of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from pydantic import Field, model_validator

from holdfast import codec
from holdfast.contracts.fractal import FMM
from holdfast.contracts.kind import Finding, Form, Kind, Located, Origin, has_fields
from holdfast.contracts.record import (
    AgentName,
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
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


# --- who an agent is ------------------------------------------------------------------------


class Features(Record):
    recursive_memory: bool = True
    fractal_state: bool = True
    autonomous_reflection: bool = True
    emergent_behavior: str = ""
    chaos_alignment: str = ""
    symbolic_interface: str = ""
    open_ended = True


class Runtime(Record):
    model: str | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    top_k: Count | None = None
    num_ctx: Count | None = None
    repeat_penalty: Number | None = None
    num_predict: int | None = None
    summarizer_model: str | None = None
    baton_chars: Count | None = None
    baton_sentences: Count | None = None
    open_ended = True


class Ancestry(Record):
    parent_id: NonEmpty | None = None


class Note(Record):
    ts: EpochTime
    note: str


class EvolutionRules(Record):
    if_entropy_above: Number | None = None
    if_user_submits_custom_core_directive: bool | None = None
    mutate_features: list[str] = Field(default_factory=list[str])


class Goals(Record):
    global_: str | None = Field(default=None, alias="global")
    local: list[str] = Field(default_factory=list[str])


class Logic(Record):
    """Code that a persona names.  Kept, never executed."""

    entrypoints: dict[str, str] = Field(default_factory=dict[str, str])
    requires: list[str] = Field(default_factory=list[str])


class _Persona(Document):
    display_name: NonEmpty | None = None
    """Additive: the name of an agent whose name cannot be an id."""
    origin: str | None = None
    creator: str | None = None
    roles: list[str] = Field(default_factory=list[str])
    features: Features = Field(default_factory=Features)
    core_directives: list[str] = Field(default_factory=list[str])
    runtime: Runtime = Field(default_factory=Runtime)
    ancestry: Ancestry = Field(default_factory=Ancestry)
    parent_id: NonEmpty | None = None
    persona_tags: list[str] = Field(default_factory=list[str])
    swap_conditions: list[str] = Field(default_factory=list[str])
    evolution_rules: EvolutionRules = Field(default_factory=EvolutionRules)
    evolution_stage: str | None = None
    notes: list[Note] = Field(default_factory=list[Note])
    goals: Goals = Field(default_factory=Goals)
    logic: Logic = Field(default_factory=Logic)
    qjson_version: str | None = None

    @property
    def parent(self) -> str | None:
        return self.ancestry.parent_id or self.parent_id


class Persona(_Persona):
    """The manifest of an agent."""

    agent_id: AgentName

    @model_validator(mode="after")
    def _has_another_parent(self) -> Self:
        if self.agent_id in (self.ancestry.parent_id, self.parent_id):
            raise broken_rule("an agent is not its own parent")
        return self


class ForeignPersona(_Persona):
    """With any name at all, and perhaps as its own parent."""

    agent_id: NonEmpty


def _name_of(value: Any) -> str | None:
    name = _object(value).get("agent_id")
    return name if isinstance(name, str) and name else None


def _has_foreign_name(value: Any) -> bool:
    name = _name_of(value)
    return name is not None and not is_agent_id(name)


def _is_own_parent(value: Any) -> bool:
    parents = (
        _object(value).get("parent_id"),
        _object(_object(value).get("ancestry")).get("parent_id"),
    )
    return _name_of(value) in [each for each in parents if each is not None]


def _with_mapped_agent_ids(value: Json) -> Json:
    found = dict(value)
    if _has_foreign_name(value):
        found |= {"agent_id": mapped_agent_id(value["agent_id"]), "display_name": value["agent_id"]}
    for holder in (found, ancestry := dict(_object(value.get("ancestry")))):
        parent = holder.get("parent_id")
        if isinstance(parent, str) and not is_agent_id(parent):
            holder["parent_id"] = mapped_agent_id(parent)
    return found | ({"ancestry": ancestry} if "ancestry" in value else {})


def _without_itself_as_parent(value: Json) -> Json:
    found, name = dict(value), value["agent_id"]
    ancestry = dict(_object(value.get("ancestry")))
    for holder in (found, ancestry):
        if holder.get("parent_id") == name:
            holder["parent_id"] = None
    return found | ({"ancestry": ancestry} if "ancestry" in value else {})


def _check_persona(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    for line, reading in found:
        names = [_object(reading.value).get(name) for name in ("agent_id", "display_name")]
        known = origin.parent(2) == "state" and isinstance(names[0], str)
        if known and origin.parent() not in names:
            reason = f"{names[0]!r} in the directory of {origin.parent()!r}"
            yield Finding("error", "path", "agent_id", reason, line)


MANIFEST = Kind(
    "manifest",
    "Who an agent is: persona, model, parent",
    "document",
    (
        Form(
            "0.8",
            ForeignPersona,
            matches=_has_foreign_name,
            upgrade=_with_mapped_agent_ids,
            warning="a name that cannot be an id; becomes the display_name of one that can",
        ),
        Form(
            "0.9",
            ForeignPersona,
            matches=_is_own_parent,
            upgrade=_without_itself_as_parent,
            warning="an agent that is its own parent; read as one without a parent",
        ),
        Form("1.0", Persona),
    ),
    paths=(
        r"(^|/)state/[^/]+/manifest\.json$",
        r"(^|/)(personas|manifests)/[^/]+\.q?json$",
    ),
    looks=lambda value: (
        has_fields(value, "agent_id", "roles")
        or has_fields(value, "agent_id", "core_directives")
        or has_fields(value, "agent_id", "ancestry")
    ),
    cross_check=_check_persona,
)


# --- what it said, what happened to it ------------------------------------------------------


class Line(Record):
    """A line of a log.  The last two fields are there if the log is one of ours."""

    seq: Count | None = None
    hash: Digest | None = None
    fence: Count | None = None
    ref: str | None = None


class MemoryLine(Line):
    ts: EpochTime
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    meta: Annotated[Json, Free("where a message is from, and how its model was asked")] | None = (
        None
    )


class AgentEvent(Line):
    ts: EpochTime
    type: NonEmpty
    meta: Annotated[Json, Free("each type of event has its own")] | None = None


MEMORY_LINE = Kind(
    "memory-line",
    "What was said to an agent and by it",
    "lines",
    (Form("1.0", MemoryLine),),
    paths=(r"(^|/)memory(\.\d+)?\.jsonl$",),
    looks=lambda value: has_fields(value, "ts", "role", "content"),
)

AGENT_EVENT = Kind(
    "agent-event",
    "What happened to an agent",
    "lines",
    (Form("1.0", AgentEvent),),
    paths=(r"(^|/)events(\.\d+)?\.jsonl$",),
    looks=lambda value: has_fields(value, "ts", "type", "meta"),
)


# --- all of them ----------------------------------------------------------------------------


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
        agents = _object(_object(reading.value).get("agents"))
        parents = {name: _object(entry).get("parent_id") for name, entry in agents.items()}
        for finding in (
            *_odd_names(agents),
            *_odd_parents(parents),
        ):
            yield finding._replace(line=line)


def _odd_names(agents: Json) -> Iterator[Finding]:
    for name, entry in agents.items():
        where = f"agents.{name}"
        if not is_agent_id(name):
            reason = f"cannot be an id; {mapped_agent_id(name)} when imported"
            yield Finding("warning", "name", where, reason)
        path = _object(entry).get("manifest_path")
        if isinstance(path, str) and path.startswith("/"):
            reason = f"{path!r} holds on one machine only"
            yield Finding("warning", "path", f"{where}.manifest_path", reason)


def _odd_parents(parents: dict[str, Any]) -> Iterator[Finding]:
    for name, parent in parents.items():
        if parent is None:
            continue
        if parent == name:
            reason = "an agent that is its own parent"
        elif parent not in parents:
            reason = f"{parent!r} is not among the agents"
        elif _comes_back(name, parents):
            reason = "its line of parents leads back to itself"
        else:
            continue
        yield Finding("warning", "parent", f"agents.{name}.parent_id", reason)


def _comes_back(name: str, parents: dict[str, Any]) -> bool:
    seen, at = {name}, parents[name]
    while isinstance(at, str) and at not in seen:
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
    freq: Annotated[int, Field(ge=1)]
    """How often the same text was stored."""
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None


class StoredRow(Record):
    """The same with `meta` as the JSON text of its column."""

    id: Count | None = None
    agent_id: NonEmpty | None = None
    ts: EpochTime
    text: str
    meta: str
    freq: Annotated[int, Field(ge=1)]
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


def _with_meta(row: Json) -> Json:
    return {**row, "meta": _decoded(row["meta"])}


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
            matches=lambda value: isinstance(_object(value).get("meta"), str),
            upgrade=_with_meta,
        ),
        Form("1.0", RetrievalRow),
    ),
    looks=lambda value: has_fields(value, "ts", "text", "freq"),
)


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


KINDS: tuple[Kind, ...] = (
    FMM,
    TEST_RUN,
    CLUSTER_RUN,
    MANIFEST,
    MEMORY_LINE,
    AGENT_EVENT,
    INDEX,
    ROUTER_WEIGHTS,
    RETRIEVAL_ROW,
)

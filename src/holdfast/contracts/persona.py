"""`manifest.json`: who an agent is.

An agent whose name cannot be an id (`Lila-v∞`) is read under one that can, by the rule of
`ids.mapped_agent_id`, and keeps its name as `display_name`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from pydantic import Field, model_validator

from holdfast.contracts.kind import Finding, Form, Kind, Origin, has_fields, object_of, of_each
from holdfast.contracts.record import (
    AgentName,
    Count,
    Document,
    EpochTime,
    NonEmpty,
    Number,
    Record,
    UtcTime,
    broken_rule,
)
from holdfast.ids import is_agent_id, mapped_agent_id

Json = dict[str, Any]


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


_Name = TypeVar("_Name", bound=str)


class _Persona(Document, Generic[_Name]):
    agent_id: _Name
    display_name: NonEmpty | None = None
    """Additive: the name of an agent whose name cannot be an id."""
    description: str | None = None
    """Additive: who it is, in a few sentences that a model is told."""
    created_at: UtcTime | None = None
    """Additive: since when there is the agent."""
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


class Persona(_Persona[AgentName]):
    """The manifest of an agent."""

    @model_validator(mode="after")
    def _has_another_parent(self) -> Self:
        if self.agent_id in (self.ancestry.parent_id, self.parent_id):
            raise broken_rule("an agent is not its own parent")
        return self


class ForeignPersona(_Persona[NonEmpty]):
    """With any name at all, and perhaps as its own parent."""


def _name_of(value: Any) -> str | None:
    name = object_of(value).get("agent_id")
    return name if isinstance(name, str) and name else None


def _has_foreign_name(value: Any) -> bool:
    name = _name_of(value)
    return name is not None and not is_agent_id(name)


def _is_own_parent(value: Any) -> bool:
    name, found = _name_of(value), object_of(value)
    parents = [each.get("parent_id") for each in (found, object_of(found.get("ancestry")))]
    return name is not None and name in parents


def _with_mapped_agent_ids(value: Json) -> Json:
    found = dict(value)
    if _has_foreign_name(value):
        found |= {"agent_id": mapped_agent_id(value["agent_id"]), "display_name": value["agent_id"]}
    return _with_parents(found, lambda name: name if is_agent_id(name) else mapped_agent_id(name))


def _without_itself_as_parent(value: Json) -> Json:
    return _with_parents(value, lambda name: None if name == value["agent_id"] else name)


def _with_parents(value: Json, renamed: Callable[[str], str | None]) -> Json:
    found, ancestry = dict(value), dict(object_of(value.get("ancestry")))
    for holder in (found, ancestry):
        if isinstance(name := holder.get("parent_id"), str):
            holder["parent_id"] = renamed(name)
    return found | ({"ancestry": ancestry} if "ancestry" in value else {})


def _check_persona(value: Json, origin: Origin) -> Iterator[Finding]:
    names = [value.get(name) for name in ("agent_id", "display_name")]
    known = origin.parent(2) == "state" and isinstance(names[0], str)
    if known and origin.parent().casefold() not in [str(name).casefold() for name in names]:
        reason = f"{names[0]!r} in the directory of {origin.parent()!r}"
        yield Finding("error", "path", "agent_id", reason)


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
            matches=lambda value: _is_own_parent(value) and not _has_foreign_name(value),
            upgrade=_without_itself_as_parent,
            warning="an agent that is its own parent; read as one without a parent",
        ),
        Form("1.0", Persona),
    ),
    paths=(r"(^|/)state/[^/]+/manifest\.json$", r"(^|/)(personas|manifests)/[^/]+\.q?json$"),
    looks=lambda value: (
        has_fields(value, "agent_id", "roles")
        or has_fields(value, "agent_id", "core_directives")
        or has_fields(value, "agent_id", "ancestry")
    ),
    cross_check=of_each(_check_persona),
)

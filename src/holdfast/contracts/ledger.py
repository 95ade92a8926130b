"""The ledger: entries in the form we write and in two older ones, and an agent's status.

A day may hold very many entries, so the model of an entry is a quick yes-or-no too: derived from
the schema that pydantic made of it, so that the two cannot differ.  Objects are checked as they
are and nothing is built.  A yes means that reading would have nothing to tell; a no means nothing,
the value then has to be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, cast

import orjson
from pydantic import (
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic_core import CoreConfig, CoreSchema, SchemaValidator
from pydantic_core import core_schema as core

from holdfast.contracts.formats import read_moment
from holdfast.contracts.kind import LOG_FORM, Finding, Form, Kind, Origin, object_of
from holdfast.contracts.record import (
    AtLeastOne,
    Digest,
    Document,
    Doubt,
    Fence,
    Formed,
    Free,
    NonEmpty,
    OffsetTime,
    Record,
    Seconds,
    Time,
)
from holdfast.contracts.summary import DAY, NAME, SUMMARY, SessionIdText
from holdfast.errors import BadName
from holdfast.ids import session_id

Fields = dict[str, core.TypedDictField]

_STRICT = CoreConfig(strict=True)  # each object by itself: it is not handed down
_LONG = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP = "[12](?:[0-9](?:0[48]|[2468][048]|[13579][26])|[048]00)-02-29"
_REAL_DAY = f"(?:[12][0-9]{{3}}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP})"
_CLOCK = r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ENDS = {"utc": "Z", "offset": "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"}
_AS_THEY_ARE = frozenset({"str", "int", "float", "bool", "literal", "none", "any"})


def decider(schema: CoreSchema) -> Callable[[Any], bool]:
    """Whether a value surely fits."""
    return SchemaValidator(schema).isinstance_python


def fields(model: type[Record], *, without: str = "") -> Fields:
    """What the object of a model may hold, by the names in the file."""
    found: Fields = {}
    whole: Any = model.__pydantic_core_schema__
    shared = {each["ref"]: each for each in whole.get("definitions", ())}
    inner: Any = whole["schema"] if whole["type"] == "definitions" else whole
    if inner["type"] != "model" or inner["schema"]["type"] != "model-fields":
        raise TypeError(f"rules across fields have no lean form: {inner['type']}")
    for name, field in inner["schema"]["fields"].items():
        if name == without:
            continue
        schema, required = field["schema"], True
        if schema["type"] == "default":
            schema, required = schema["schema"], False
        alias = cast("str", field.get("validation_alias", name))
        found[alias] = core.typed_dict_field(_lean(schema, shared), required=required)
    return found


def objects(known: Fields) -> CoreSchema:
    """Objects with these fields, and perhaps others: to look for those apart is quicker."""
    return core.typed_dict_schema(known, extra_behavior="ignore", config=_STRICT)


def lean(model: type[Record]) -> CoreSchema:
    """The objects of a model that leave nothing to tell."""
    if model.open_ended:
        return objects(fields(model))
    return core.typed_dict_schema(fields(model), extra_behavior="forbid", config=_STRICT)


def _lean(schema: Any, shared: Mapping[str, Any]) -> CoreSchema:
    kind: str = schema["type"]
    if kind in _AS_THEY_ARE:
        return schema
    match kind:
        case "nullable":
            return core.nullable_schema(_lean(schema["schema"], shared))
        case "list":
            items = _lean(schema["items_schema"], shared)
            return cast("Any", {**schema, "items_schema": items})
        case "custom-error":
            return _lean(schema["schema"], shared)
        case "definition-ref":
            return _lean(shared[schema["schema_ref"]], shared)
        case "model":
            return lean(schema["cls"])
        case "function-plain":
            owner = getattr(schema["function"]["function"], "__self__", None)
            if not isinstance(owner, Time) or owner.wanted not in _ENDS:
                raise TypeError("a function has no lean form")
            # Years outside of two millennia are left to the reading.
            return core.str_schema(pattern=f"^{_REAL_DAY}{_CLOCK}{_ENDS[owner.wanted]}$")
        case _:
            raise TypeError(f"{kind} has no lean form")


LowerName = Annotated[str, Formed(f"^{NAME}$", "rio, in lower case")]


class EventData(Record):
    """What an event says beyond its summary; the named fields are only the usual ones."""

    open_ended = True


class TaskStartData(EventData):
    task_type: str | None = None
    target_files: list[str] | None = None


class TaskResultData(EventData):
    status: Literal["success", "failure"] | None = None
    duration_sec: Seconds | None = None
    files_touched: list[str] | None = None
    exit_code: int | None = None
    cause: str | None = None


class ErrorData(EventData):
    error: str | None = None
    stack: str | None = None
    task_id: str | None = None
    cause: str | None = None


class InfoData(EventData):
    message: str | None = None


DATA: dict[str, type[EventData]] = {
    "heartbeat": EventData,
    "task_start": TaskStartData,
    "task_result": TaskResultData,
    "error": ErrorData,
    "info": InfoData,
}


class LedgerEntry(Record):
    """What an agent did, at one moment."""

    open_choices = frozenset({"event"})
    other_names: ClassVar[dict[str, tuple[str, ...]]] = {"ts": ("timestamp",)}

    ts: OffsetTime
    agent: LowerName
    session_id: SessionIdText
    event: Literal["heartbeat", "task_start", "task_result", "error", "info"]
    task_id: NonEmpty
    source: NonEmpty
    summary: str
    data: SerializeAsAny[EventData]
    fence: Fence | None = None
    ref: NonEmpty | None = None
    seq: AtLeastOne | None = None
    hash: Digest | None = None

    @field_validator("data", mode="plain")
    @classmethod
    def _by_event(cls, value: Any, info: ValidationInfo) -> EventData:
        return DATA.get(info.data.get("event", ""), EventData).model_validate(value)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core_schema))
        schema["properties"]["data"] = {"type": "object"}
        schema["allOf"] = [
            {
                "if": {"properties": {"event": {"const": event}}},
                "then": {"properties": {"data": handler(model.__pydantic_core_schema__)}},
            }
            for event, model in DATA.items()
            if model.model_fields
        ]
        return schema


def _is_plain() -> Callable[[Any], bool]:
    known = fields(LedgerEntry, without="data")
    of_each: dict[Any, CoreSchema] = {
        event: objects(known | {"data": core.typed_dict_field(lean(model), required=True)})
        for event, model in DATA.items()
    }
    fits = decider(core.tagged_union_schema(of_each, discriminator="event"))
    names = {*known, "data"}
    return lambda value: fits(value) and value.keys() <= names


class ApIoEvent(Record):
    open_choices = frozenset({"type"})

    type: Literal[
        "heartbeat",
        "task_start",
        "task_result",
        "error",
        "info",
        "routing_request",
        "correlation_query",
    ]
    task_id: str | None = None
    source: str | None = None
    summary: str | None = None
    data: Annotated[dict[str, Any], Free("AP/IO: the payload depends on the event")] | None = None


class ApIoRouting(Record):
    targets: list[str] | None = None
    broadcast: bool | None = None
    priority: Literal["critical", "high", "normal", "low"] | None = None
    delivered_to: list[str] | None = None


class ApIoEntry(Record):
    """An entry of the AP/IO protocol, whose event is an object."""

    other_names: ClassVar[dict[str, tuple[str, ...]]] = {"ts": ("timestamp",)}

    protocol: Literal["AP/IO"]
    version: Literal["3.1"]
    ledger_id: NonEmpty | None = None
    parent_id: str | None = None
    ts: OffsetTime
    agent: LowerName
    correlation_id: str | None = None
    session_id: SessionIdText | None = None
    event: ApIoEvent
    data: Annotated[dict[str, Any], Free("AP/IO: the payload depends on the event")] | None = None
    execution_duration_ms: Seconds | None = None
    routing: ApIoRouting | None = None


class FlatApIoEntry(Record):
    """An entry of the same protocol as a later writer laid it out: flat, without a session."""

    open_choices = frozenset({"event"})
    often_missing = frozenset({"ledger_id", "event", "data"})

    ledger_id: NonEmpty
    parent_id: str | None = None
    correlation_id: str | None = None
    timestamp: OffsetTime
    agent: LowerName
    event: Literal["heartbeat", "task_start", "task_result", "error", "info"]
    data: Annotated[dict[str, Any], Free("AP/IO: the payload depends on the event")]
    execution_duration_ms: Seconds | None = None


def _is_nested(value: Any) -> bool:
    return object_of(value).get("protocol") == "AP/IO"


def _is_flat(value: Any) -> bool:
    found = object_of(value)
    return (
        "timestamp" in found
        and not _is_nested(value)
        and ("ledger_id" in found or "event_type" in found)
    )


def _nested(value: Any) -> Any:
    """A flat entry with its event as an object."""
    found = dict(object_of(value))
    for name in ("event", "event_type"):
        if name in found:
            event = found.pop(name)
            return {**found, "event": {"type": event}}
    return found or value


def _unfolded(value: Any) -> Any:
    """A nested entry with the columns of ours; every other key is kept."""
    outer = dict(object_of(value))
    if not isinstance(outer.get("event"), dict):
        return value
    event = dict(object_of(outer.pop("event")))
    if "timestamp" in outer:
        outer.setdefault("ts", outer.pop("timestamp"))
    data = {**object_of(event.pop("data", None)), **object_of(outer.pop("data", None))}
    columns: dict[str, Any] = {}
    for holder, name, column in _COLUMNS:
        source = outer if holder == "entry" else event
        if name in source:
            columns[column] = source.pop(name)
    if isinstance(agent := columns.get("agent"), str):
        columns["agent"] = agent.lower()
    return {**columns, "data": {**event, **data}, **outer}


_COLUMNS = (
    ("entry", "ts", "ts"),
    ("entry", "agent", "agent"),
    ("entry", "session_id", "session_id"),
    ("event", "type", "event"),
    ("event", "task_id", "task_id"),
    ("event", "source", "source"),
    ("event", "summary", "summary"),
)


class Status(Document):
    """How an agent stands, folded from its ledger."""

    agent: LowerName
    state: Literal["idle", "busy", "error", "offline"]
    last_heartbeat: OffsetTime
    last_task_id: str | None = None
    session_id: SessionIdText | None = None
    last_error: str | None = None

    def doubts(self) -> Iterator[Doubt]:
        if self.state == "error" and self.last_error is None:
            yield Doubt("rule", "last_error", "missing, though state is error")


def _check_status(value: dict[str, Any], origin: Origin) -> Iterator[Finding]:
    agent, told = origin.parent(), value.get("agent")
    if origin.parent(2) in ("agents", "state") and told != agent.lower():
        reason = f"{told!r} in the directory of {agent}"
        yield Finding("warning", "agent_path", "agent", reason)
    session = value.get("session_id")
    if isinstance(session, str) and told != agent_of(session):
        reason = f"{session!r} is no session of {told!r}"
        yield Finding("warning", "session_agent", "session_id", reason)


# --- what the entries of a file say of each other -------------------------------------------

_ANY_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DAY_FILE = re.compile(rf"({_ANY_DAY})(?:\.[0-9]+)?\.jsonl(?:\.zst)?")
_DAY_LENGTH, _STAMP = 10, 19
"""How long a time is: only the day, and without fractions and zone."""


def content(entry: dict[str, Any]) -> bytes:
    """What makes two entries the same one: everything but their place in a chain."""
    bare = entry.copy()
    bare.pop("seq", None)
    bare.pop("hash", None)
    return orjson.dumps(bare, option=orjson.OPT_SORT_KEYS)


def agent_of(session: str) -> str | None:
    """Whose session it is; None if the id is none."""
    try:
        return session_id(session).agent
    except BadName:
        return None


class LedgerWatch:
    """Called for every entry of files with very many: most of it is for what is as it should be."""

    def __init__(self, origin: Origin) -> None:
        named = _DAY_FILE.fullmatch(origin.name)
        self._day = named[1] if named else None
        inside = origin.parent(2) == "ledger"
        self._agent = origin.parent().lower() if named and inside else None
        self._latest, self._today, self._zone = "", "", ""
        """The last time; a day that is as it should be; fractions and zone of the last time."""
        self._owner = cache(agent_of)
        self._seen: dict[int, int] = {}
        """The line of each content; of that only a hash, for a day can have very many."""
        self._ids: dict[str, int] = {}
        self._open: dict[tuple[str, str], int] = {}

    def see(self, line: int, value: Any, written: Any) -> list[Finding]:
        found: list[Finding] = []
        if not isinstance(value, dict):
            return found
        entry = cast("dict[str, Any]", value)
        agent, session, ts = entry.get("agent"), entry.get("session_id"), entry.get("ts")
        if type(ts) is str:
            if ts < self._latest or ts[:_DAY_LENGTH] != self._today or ts[_STAMP:] != self._zone:
                self._look_at_time(line, ts, found)
            self._latest = ts
        if type(agent) is str:
            if agent != self._agent and self._agent is not None:
                reason = f"{agent!r} in the ledger of {self._agent}"
                found.append(Finding("warning", "agent_path", "agent", reason, line))
            if type(session) is str and self._owner(session) != agent:
                reason = f"{session!r} is no session of {agent!r}"
                found.append(Finding("warning", "session_agent", "session_id", reason, line))
        if "ledger_id" in entry:
            self._see_id(line, entry["ledger_id"], found)
        event = entry.get("event")
        if event == "task_start" or event == "task_result":
            task = str(agent), str(entry.get("task_id", ""))
            self._open.pop(task, None)
            if event == "task_start" and task[1]:
                self._open[task] = line
        first = self._seen.setdefault(hash(content(written)), line)
        if first != line:
            reason = f"the same entry as in line {first}"
            found.append(Finding("warning", "duplicate", "", reason, line))
        return found

    def end(self) -> Iterator[Finding]:
        for (_, task), line in self._open.items():
            reason = f"{task!r} was started, and has no task_result in this file"
            yield Finding("warning", "orphan", "task_id", reason, line)

    def _look_at_time(self, line: int, ts: str, found: list[Finding]) -> None:
        today = ts[:_DAY_LENGTH]
        if self._day is not None and today != self._day and re.fullmatch(_ANY_DAY, today):
            reason = f"ts date {today} != file date {self._day}"
            found.append(Finding("warning", "date", "ts", reason, line))
            today = ""
        if self._latest and _is_before(ts, self._latest):
            reason = f"goes back, after {self._latest}"
            found.append(Finding("warning", "time_order", "ts", reason, line))
        self._today, self._zone = today, ts[_STAMP:]

    def _see_id(self, line: int, name: Any, found: list[Finding]) -> None:
        if isinstance(name, str):
            first = self._ids.setdefault(name, line)
            if first != line:
                reason = f"{name!r} stands in line {first} already"
                found.append(Finding("warning", "id", "ledger_id", reason, line))


def _is_before(ts: str, other: str) -> bool:
    if len(ts) == len(other) and ts[_STAMP:] == other[_STAMP:]:
        return ts < other
    try:
        return read_moment(ts).instant < read_moment(other).instant
    except ValueError:
        return False


# --- kinds ----------------------------------------------------------------------------------


def _looks_like_an_entry(value: Any) -> bool:
    found = object_of(value).keys()
    ours = {"agent", "event", "task_id"} <= found or {"event", "source", "summary"} <= found
    return ours or _is_nested(value) or (_is_flat(value) and "event" in found)


LEDGER = Kind(
    name="ledger",
    what="What an agent did, an entry a line, a file a day",
    shape="lines",
    forms=(
        LOG_FORM,
        Form("3.1_flat", FlatApIoEntry, _is_flat, _nested, "an entry of AP/IO 3.1, laid out flat"),
        Form("3.1", ApIoEntry, _is_nested, _unfolded, "an entry of AP/IO 3.1"),
        Form("1.0", LedgerEntry, plain=_is_plain()),
    ),
    paths=(
        rf"(?:^|/)ledger/(?:[^/]+/)?{DAY}(?:\.[0-9]+)?\.jsonl(?:\.zst)?$",
        r"(?:^|/)ap_io_v31\.jsonl$",
    ),
    looks=_looks_like_an_entry,
    watch=LedgerWatch,
)


def with_events(extra: Sequence[str]) -> Kind:
    """The ledger with event types beside the built-in ones."""
    allowed = cast("Any", Literal)[(*DATA, *extra)]
    model = create_model("LedgerEntry", __base__=LedgerEntry, event=(allowed, ...))
    *older, _ = LEDGER.forms
    return replace(LEDGER, forms=(*older, Form("1.0", model, plain=_is_plain())))


KINDS: tuple[Kind, ...] = (
    LEDGER,
    Kind.of(
        "status",
        "How an agent stands: idle, busy, error or offline, and since when",
        Status,
        r"status\.json",
        ("agent", "state", "last_heartbeat"),
        _check_status,
    ),
    SUMMARY,
)

"""The ledger: entries in the form we write and in two older ones, and an agent's status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic_core import CoreSchema
from pydantic_core import core_schema as core

from holdfast.contracts.kind import Finding, Form, Kind, Located, Origin, object_of
from holdfast.contracts.lean import decider, fields, lean, objects
from holdfast.contracts.ledger_watch import LedgerWatch, agent_of
from holdfast.contracts.loglines import LOG_FORM, Digest, Fence
from holdfast.contracts.record import (
    Document,
    Doubt,
    Formed,
    Free,
    NonEmpty,
    OffsetTime,
    Record,
    Seconds,
)
from holdfast.contracts.summary import SUMMARY

_DAY = "[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_NAME = "[a-z0-9][a-z0-9_-]{0,63}"

LowerName = Annotated[str, Formed(f"^{_NAME}$", "rio, in lower case")]
SessionIdText = Annotated[
    str,
    Formed(f"^{_DAY}_{_NAME}_(?:[0-9]{{3}}|[1-9][0-9]{{3,17}})$", "2026-11-15_rio_001"),
]


# --- what may stand in `data` -----------------------------------------------------------------


class EventData(Record):
    """What an event says beyond its summary; the named fields are only the usual ones."""

    open_ended = True


class HeartbeatData(EventData):
    pass


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
    "heartbeat": HeartbeatData,
    "task_start": TaskStartData,
    "task_result": TaskResultData,
    "error": ErrorData,
    "info": InfoData,
}


# --- entries ----------------------------------------------------------------------------------


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
    seq: Annotated[int, Field(ge=1)] | None = None
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
    fits, names = (
        decider(core.tagged_union_schema(of_each, discriminator="event")),
        {*known, "data"},
    )
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


# --- status -----------------------------------------------------------------------------------


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


def _check_status(found: Sequence[Located], origin: Origin) -> Iterator[Finding]:
    for line, reading in found:
        value = object_of(reading.value)
        agent, told = origin.parent(), value.get("agent")
        if origin.parent(2) in ("agents", "state") and told != agent.lower():
            reason = f"{told!r} in the directory of {agent}"
            yield Finding("warning", "agent_path", "agent", reason, line)
        session = value.get("session_id")
        if isinstance(session, str) and told != agent_of(session):
            reason = f"{session!r} is no session of {told!r}"
            yield Finding("warning", "session_agent", "session_id", reason, line)


# --- kinds ------------------------------------------------------------------------------------


def _looks_like_an_entry(value: Any) -> bool:
    found = object_of(value).keys()
    ours = {"agent", "event", "task_id"} <= found or {"event", "source", "summary"} <= found
    return ours or _is_nested(value) or (_is_flat(value) and "event" in found)


def _looks_like_a_status(value: Any) -> bool:
    return {"agent", "state", "last_heartbeat"} <= object_of(value).keys()


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
        rf"(?:^|/)ledger/(?:[^/]+/)?{_DAY}(?:\.[0-9]+)?\.jsonl(?:\.zst)?$",
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
    Kind(
        name="status",
        what="How an agent stands: idle, busy, error or offline, and since when",
        shape="document",
        forms=(Form("1.0", Status),),
        paths=(r"(?:^|/)status\.json$",),
        looks=_looks_like_a_status,
        cross_check=_check_status,
    ),
    SUMMARY,
)

"""Spans of OpenTelemetry: one for each turn, and below it one for each call of a model.

They are named by OpenTelemetry's conventions for generative AI, where a turn is `invoke_agent` and
a call is `chat`.  Neither what was asked nor what was answered goes into them, nor the text of an
error, which may repeat it.

Nothing is imported unless it is wanted: by a program that has loaded OpenTelemetry itself, or by
`OTEL_TRACES_EXPORTER`, which names where spans go.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING

from holdfast.errors import BadName, HoldfastError
from holdfast.ids import session_id
from holdfast.models.protocol import Around, Model, OnText, Reply, Request

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, Tracer

EXPORTER = "OTEL_TRACES_EXPORTER"
_API = "opentelemetry.trace"
_EXPORTERS = "opentelemetry_traces_exporter"
_PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_CALLED = {"google": "gcp.gemini"}
"""Providers that the conventions call otherwise than we do; all others have our name."""
_PROGRAMS, _FILES = frozenset({"command", "acp"}), frozenset({"scripted"})

Told = Callable[[Reply], Reply]
"""Takes in what is known of a reply, and hands it on."""
_lock = Lock()
_tried = False


def of_turn(session: str | None, ref: str, request: Request) -> AbstractContextManager[Told]:
    """The span of a turn of a session, for the time of a block, if spans are collected."""
    tracer = _tracer()
    if tracer is None or session is None:
        return nullcontext(lambda reply: reply)
    known = {"gen_ai.conversation.id": session}
    with suppress(BadName):
        known["gen_ai.agent.name"] = session_id(session).agent
    whom = known.get("gen_ai.agent.name", session)
    return _span(tracer, "invoke_agent", whom, ref, request, known)


def traced(model: Model) -> Model:
    """The model, each of whose calls is a span if spans are collected."""
    return model if _tracer() is None else _Traced(model)


class _Traced(Around):
    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        tracer = _tracer()
        if tracer is None:
            return self._model.ask(request, on_text)
        name = names(self.ref)[1]
        with _span(tracer, "chat", name, self.ref, request, {}) as record:
            return record(self._model.ask(request, on_text))


@contextmanager
def _span(
    tracer: Tracer, does: str, whom: str, ref: str, request: Request, known: Mapping[str, str]
) -> Generator[Told]:
    from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415

    provider, name = names(ref)
    attributes: dict[str, str | int | float] = {
        "gen_ai.operation.name": does,
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": name,
        **known,
    }
    if request.max_tokens is not None:
        attributes["gen_ai.request.max_tokens"] = request.max_tokens
    if request.temperature is not None:
        attributes["gen_ai.request.temperature"] = request.temperature
    if request.schema is not None:
        attributes["gen_ai.output.type"] = "json"
    with tracer.start_as_current_span(
        f"{does} {whom}",
        kind=SpanKind.CLIENT if does == "chat" else SpanKind.INTERNAL,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield lambda reply: _tell(span, reply, name if reply.model == ref else reply.model)
        except BaseException as error:
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            span.set_attribute("error.type", code)
            span.set_status(Status(StatusCode.ERROR))
            raise


def _tell(span: Span, reply: Reply, who: str) -> Reply:
    ours = who.partition(":")[0] in _PROGRAMS | _FILES
    span.set_attribute("gen_ai.response.model", names(who)[1] if ours else who)
    span.set_attribute("gen_ai.response.finish_reasons", [reply.finish])
    usage = reply.usage
    for name, count in (
        ("gen_ai.usage.input_tokens", usage.input_tokens),
        ("gen_ai.usage.output_tokens", usage.output_tokens),
        ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens),
        ("holdfast.cost_usd", reply.cost_usd),
        ("holdfast.failed_calls", len(reply.tries) or None),
    ):
        if count is not None:
            span.set_attribute(name, count)
    return reply


def names(ref: str) -> tuple[str, str]:
    """Provider and model; of a command line only the program, which tells no secret."""
    provider, _, name = ref.partition(":")
    if provider in _PROGRAMS:
        name = next((word for word in name.split() if "=" not in word), "")
    if provider in _PROGRAMS | _FILES:
        name = PurePath(name).name
    return _CALLED.get(provider, provider), name.partition("@http")[0]


# --- whether anybody collects them ----------------------------------------------------------


def _tracer() -> Tracer | None:
    if not _tried and os.environ.get(EXPORTER, "none") not in ("", "none"):
        _set_up(os.environ[EXPORTER])
    if _API not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415

    # Libraries load it as well; only who collects spans puts a provider of his own there.
    collected = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return trace.get_tracer("holdfast") if collected else None


def _set_up(names: str) -> None:
    """Send spans where the environment says, unless the program has arranged for them itself."""
    global _tried
    with _lock:
        if _tried:
            return
        _tried = True
        try:
            from opentelemetry import trace  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ModuleNotFoundError:
            _complain(f"{EXPORTER} is set, but there are no spans without `holdfast[otel]`")
            return
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        provider = TracerProvider(
            resource=Resource.create({} if named else {"service.name": "holdfast"})
        )
        for name in filter(None, map(str.strip, names.split(","))):
            if (exporter := _exporter(name)) is not None:
                provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)


def _exporter(name: str) -> SpanExporter | None:
    from importlib.metadata import entry_points  # noqa: PLC0415

    known = (name,)
    if name == "otlp":  # packages have one for each protocol
        chosen = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
        chosen = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", chosen)
        known = (_PROTOCOLS[chosen],) if chosen in _PROTOCOLS else (name, *_PROTOCOLS.values())
    for each in known:
        for entry in entry_points(group=_EXPORTERS, name=each):
            # Our standard output is for answers.
            return entry.load()(**({"out": sys.stderr} if name == "console" else {}))
    _complain(f"{EXPORTER} names {name!r}, of which no package here knows anything")
    return None


def _complain(text: str) -> None:
    from logging import getLogger  # noqa: PLC0415

    getLogger("holdfast").warning(text)

"""Models behind an HTTP interface: hosted ones, and servers that speak the protocol of OpenAI.

The libraries of the providers are reached through pydantic-ai.  They do not retry here: that is
for `asking.Retrying`, which tells of it.  What fails becomes one of our errors by this rule: if no
complete answer came, whatever the reason, it is Unavailable and may be asked again; if a complete
answer came that is not what was asked for, it is InvalidOutput.  docs/models-hosted.md has the
table.  No key is ever part of an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import httpx2
from pydantic_ai import exceptions as theirs
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    SystemPromptPart,
    TextPart,
    TextPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import Model as TheirModel
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings

from holdfast.clock import SystemClock
from holdfast.errors import (
    ConfigError,
    Declined,
    HoldfastError,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    TooLong,
    Unavailable,
)
from holdfast.mask.shown import beginning
from holdfast.models.loop import Late, wait_for
from holdfast.models.output import Pieces, checked, too_late, unusable
from holdfast.models.places import SERVICES, Flood, Place, model_at, place_of
from holdfast.models.protocol import MOST_OUTPUT, Message, OnText, Reply, Request, Usage

_TRANSIENT = frozenset((408, 409, 425, 429))
_TURNED_AWAY = frozenset((401, 403, 404, 413, 429, 503))
_SERVER_ERROR = 500
_SHOWN = 300
_GOODBYE = 2.0
_BYTES_PER_TOKEN = 2
"""A token has at least so many bytes in almost any text: for the most that a question can cost."""
_OVERHEAD = 64
"""Tokens that a provider adds to each message at most."""
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_IN_FULL = re.compile(r"context.{0,20}(size|length|window)|too many tokens", re.IGNORECASE)


class Hosted:
    def __init__(self, place: Place, model: TheirModel, *, ref: str) -> None:
        self.ref, self._place, self._model = ref, place, model
        self._native = bool(model.profile.get("supports_json_schema_output"))
        self._clock = SystemClock()

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        pieces = Pieces(on_text, self._clock)

        async def ask(on_piece: OnText) -> ModelResponse | HoldfastError:
            try:
                return await self._ask(request, None if on_text is None else on_piece)
            except Exception as error:
                # Theirs knows the request with its headers: ours must not hang on to it.
                return self._typed(error, request)

        try:
            answer = wait_for(ask, request.timeout, pieces.add)
        except Late:
            answer = too_late(self.ref, request.timeout)
        if isinstance(answer, ModelResponse):
            return self._reply(request, answer, pieces)
        if isinstance(answer, ModelError) and pieces.text:
            answer.reply = pieces.reply(pieces.text, self._place.model, Usage(), None, "stop")
        raise answer

    async def _ask(self, request: Request, on_piece: OnText | None) -> ModelResponse:
        settings = ModelSettings(timeout=max(0.001, request.timeout), max_retries=0)
        if request.max_tokens is not None:
            settings["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        wanted = ModelRequestParameters()
        if request.schema is not None:
            wanted = ModelRequestParameters(
                output_mode="native" if self._native else "prompted",
                output_object=OutputObjectDefinition(
                    json_schema=dict(request.schema), name="reply"
                ),
            )
        messages = conversation(request.messages)
        terms: dict[str, Any] = {
            "model_settings": settings,
            "model_request_parameters": wanted,
            "instrument": False,
        }
        if on_piece is None:
            return await model_request(self._model, messages, **terms)
        async with model_request_stream(self._model, messages, **terms) as stream:
            async for event in stream:
                match event:
                    case PartStartEvent(part=TextPart(content=text)) if text:
                        on_piece(text)
                    case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
                        on_piece(text)
                    case _:
                        pass
            return stream.get()

    def _reply(self, request: Request, answer: ModelResponse, pieces: Pieces) -> Reply:
        text = "".join(part.content for part in answer.parts if isinstance(part, TextPart))
        if request.schema is not None and not self._native and (inner := _FENCED.fullmatch(text)):
            text = inner[1]
        used, usage = answer.usage, Usage()
        if used.input_tokens or used.output_tokens:
            usage = Usage(used.input_tokens, used.output_tokens, used.cache_read_tokens)
        called = answer.model_name or self._place.model
        cost = self._cost(usage, called, self._place.model)
        finish = "length" if answer.finish_reason == "length" else "stop"
        reply = pieces.reply(text, called, usage, cost, finish)
        match answer.finish_reason:
            case "content_filter":
                why = (answer.provider_details or {}).get("refusal") or text or "no reason given"
                failed = Declined(
                    f"{self.ref} declined to answer: {self._shown(why)}",
                    hint="ask it differently, or ask another model",
                )
            case "error":
                failed = Unavailable(
                    f"{self.ref} stopped with an error of its own", hint="try again later"
                )
            case reason if not text and reason != "length":
                raise unusable(reply, "with no text", "ask it for words; it was given no tools")
            case _:
                return checked(request, reply)
        failed.reply = reply
        raise failed

    def most_usd(self, request: Request) -> float | None:
        if request.max_tokens is None:
            return None
        size = len(request.text.encode("utf-8", "surrogatepass"))
        tokens = size // _BYTES_PER_TOKEN + _OVERHEAD * len(request.messages)
        return self._cost(Usage(tokens, request.max_tokens), self._place.model)

    def _cost(self, usage: Usage, *models: str) -> float | None:
        """By the public price lists in `genai-prices` and the first of the names that is there.

        Unknown where the price or the tokens are not known, never 0.
        """
        if not self._place.priced or None in (usage.input_tokens, usage.output_tokens):
            return None
        from genai_prices import Usage as Tokens  # noqa: PLC0415 - a third of a second
        from genai_prices import calc_price  # noqa: PLC0415

        tokens = Tokens(**usage._asdict())
        for model in models:
            with suppress(LookupError):
                return float(
                    calc_price(tokens, model, provider_id=self._place.service.name).total_price
                )
        return None

    def close(self) -> None:
        async def close(_: OnText) -> None:
            client = cast("Any", self._model).client
            # Google's has its asynchronous half apart; the others are asynchronous altogether.
            await (client.aio.aclose() if hasattr(client, "aio") else client.close())

        try:
            wait_for(close, _GOODBYE)
        except Exception:
            pass  # whatever it says, it is not asked again

    # --- what went wrong --------------------------------------------------------------------

    def _typed(self, error: Exception, request: Request) -> HoldfastError:
        if _caused_by(error, Flood):
            return InvalidOutput(
                f"{self.ref} sent more than {MOST_OUTPUT >> 20} MiB", hint="ask it for less"
            )
        match error:
            case HoldfastError():
                return error
            case theirs.ModelAPIError():
                failed = self._api_error(error, request)
                if isinstance(failed, ModelError):
                    failed.free = isinstance(failed, TooLong) or _turned_away(error)
                return failed
            case TimeoutError():
                return too_late(self.ref, request.timeout)
            case theirs.UnexpectedModelBehavior():
                return Unavailable(
                    f"{self.ref} sent no answer: {self._shown(error.message)}",
                    hint="is this the address of a chat completions server?",
                )
            case LookupError() | TypeError() | AttributeError() | ValueError():
                return Unavailable(
                    f"{self.ref} sent what its library cannot read: {type(error).__name__}",
                    hint="is this the address of a chat completions server?",
                )
            case theirs.UserError():
                return ConfigError(
                    f"{self.ref} cannot be asked that: {self._shown(error.message)}",
                    hint="see docs/models-hosted.md",
                )
            case _:
                return ModelError(
                    f"{self.ref}: {type(error).__name__}: {self._shown(str(error))}",
                    hint="its library failed; ask another model",
                )

    def _api_error(self, error: theirs.ModelAPIError, request: Request) -> HoldfastError:
        status = error.status_code if isinstance(error, theirs.ModelHTTPError) else None
        text, keys = self._message(error, status), " or ".join(self._place.service.keys)
        match error:
            case theirs.ModelRequestTimeout():
                return too_late(self.ref, request.timeout)
            case theirs.ModelTimeoutError() if error.phase not in ("connect", "pool"):
                return too_late(self.ref, request.timeout)
            case theirs.ModelContextWindowExceededError():
                return self._too_long(text)
            case theirs.ModelAuthenticationError():
                return NotAuthorised(text, hint=f"is the key in {keys} right?")
            case theirs.ModelNotFoundError():
                return ModelError(text, hint=self._not_found())
            case theirs.ModelQuotaExceededError():
                return ModelError(text, hint="the account has no credit left; waiting is no help")
            case theirs.ModelRequestRejectedError() if status not in _TRANSIENT:
                return self._rejected(error, text)
            case _:
                return self._unavailable(error, status, text)

    def _unavailable(
        self, error: theirs.ModelAPIError, status: int | None, text: str
    ) -> HoldfastError:
        if status is not None and status not in _TRANSIENT and status < _SERVER_ERROR:
            return ModelError(text, hint="see what the provider says about this status")
        silent = status is None and self._place.url is not None
        unavailable = Unavailable(
            text, hint=f"is {self._place.url} up?" if silent else "try again later"
        )
        unavailable.after = error.retry_after
        return unavailable

    def _rejected(self, error: theirs.ModelAPIError, text: str) -> HoldfastError:
        if (error.provider_error_code or "").startswith("content_"):
            return Declined(text, hint="ask it differently, or ask another model")
        if _IN_FULL.search(text):
            return self._too_long(text)
        return ModelError(text, hint="the model cannot be asked like this; try a simpler schema")

    def _too_long(self, text: str) -> TooLong:
        return TooLong(text, hint="ask with less, or a model with a larger context window")

    def _not_found(self) -> str:
        if self._place.url is None:
            return f"does {self._place.service.name} still have {self._place.model!r}?"
        return f"see {self._place.url}/models for its models; is the address right?"

    def _message(self, error: theirs.ModelAPIError, status: int | None) -> str:
        body: object = error.body
        unread = status is None and (body is None or isinstance(body, str))
        found = error.message if unread else body
        for name, otherwise in (("error", body), ("message", "")):
            if isinstance(found, dict):
                found = cast("dict[str, object]", found).get(name, otherwise)
        text = str(found or "")
        answered = f"{self.ref} answered {status}" if status is not None else f"{self.ref}"
        return f"{answered}: {self._shown(text)}" if text else answered

    def _shown(self, text: object) -> str:
        """In one line, not too much of it, and without the key, which some servers repeat."""
        line = " ".join(str(text).split())
        if self._place.key:
            line = line.replace(self._place.key, "[key]")
        return beginning(line, _SHOWN)


def _turned_away(error: theirs.ModelAPIError) -> bool:
    """Whether the request was not taken, so that nothing was paid for."""
    if isinstance(error, theirs.ModelHTTPError):
        return error.status_code in _TURNED_AWAY
    return _caused_by(error, ConnectionRefusedError, httpx2.ConnectError)


def _caused_by(error: BaseException | None, *kinds: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


def conversation(messages: Sequence[Message]) -> list[ModelMessage]:
    """Ours as theirs: what is asked in one message, what was answered in another."""
    turns: list[ModelMessage] = []
    for role, content in messages:
        text = content.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
        if role == "assistant":
            turns.append(ModelResponse(parts=[TextPart(text)]))
            continue
        part = SystemPromptPart(text) if role == "system" else UserPromptPart(text)
        last = turns[-1] if turns else None
        if isinstance(last, ModelRequest):
            last.parts = [*last.parts, part]
        else:
            turns.append(ModelRequest(parts=[part]))
    return turns


# --- by name --------------------------------------------------------------------------------


def open_hosted(service: str, name: str) -> Hosted:
    place = place_of(SERVICES[service], name, os.environ)
    try:
        model = model_at(place)
    except ImportError as error:
        raise ConfigError(
            f"models of {service} need {error.name or 'a library'}, which is not installed",
            hint='`pip install "holdfast[llm]"`',
        ) from None
    return Hosted(place, model, ref=f"{service}:{name}")

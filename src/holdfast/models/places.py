"""Where the models of a provider are asked, with which key, and over which connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx2
from pydantic_ai.models import create_async_httpx2_client

from holdfast.errors import ConfigError, NotAuthorised
from holdfast.models.protocol import MOST_OUTPUT

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.models import Model as TheirModel

_NO_KEY = "none"
"""For a library that wants one although the server does not."""
_MOST_TIMES_PACKED = 1032
"""What gzip can make of a byte."""


class Service(NamedTuple):
    """A provider, or a kind of server."""

    name: str
    keys: tuple[str, ...]
    """Variables of the environment that may hold the key."""
    url_variable: str
    url: str | None = None
    """Where it is, unless the variable says otherwise."""
    priced: bool = False
    """Hosted by the provider itself: it needs a key, and has a public price."""


SERVICES = {
    each.name: each
    for each in (
        Service("openai", ("OPENAI_API_KEY",), "OPENAI_BASE_URL", priced=True),
        Service("anthropic", ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", priced=True),
        Service(
            "google", ("GOOGLE_API_KEY", "GEMINI_API_KEY"), "GOOGLE_GEMINI_BASE_URL", priced=True
        ),
        Service("ollama", ("OLLAMA_API_KEY",), "OLLAMA_BASE_URL", "http://127.0.0.1:11434/v1"),
        Service("vllm", ("VLLM_API_KEY",), "VLLM_BASE_URL", "http://127.0.0.1:8000/v1"),
        Service("llamacpp", ("LLAMACPP_API_KEY",), "LLAMACPP_BASE_URL", "http://127.0.0.1:8080/v1"),
        Service("openai-compatible", ("OPENAI_COMPATIBLE_API_KEY",), "OPENAI_COMPATIBLE_BASE_URL"),
    )
}


class Place(NamedTuple):
    """A model of a service at an address."""

    service: Service
    model: str
    url: str | None
    key: str | None

    @property
    def priced(self) -> bool:
        """Elsewhere the same name may cost anything."""
        return self.service.priced and self.url is None


def place_of(service: Service, name: str, environ: Mapping[str, str]) -> Place:
    """`NAME`, or `NAME@URL` where it is a server of one's own.

    A key goes only to the address that the environment names, or to the provider itself: never to
    one that stands in the name of a model, which may come from anywhere.
    """
    at = max(name.find("@http://"), name.find("@https://"))
    model, url = (name, None) if at < 0 else (name[:at], name[at + 1 :])
    known = environ.get(service.url_variable) or service.url
    if url is not None and service.priced:
        raise ConfigError(
            f"{service.name}:{name} names an address, which {service.name} has itself",
            hint=f"set {service.url_variable}, or use openai-compatible:{model}@URL",
        )
    url = url or known
    if not model or (url is None and not service.priced):
        raise ConfigError(
            f"{service.name}:{name} says not which model where",
            hint=f"{service.name}:NAME@http://HOST:PORT/v1, or set {service.url_variable}",
        )
    if url is not None and "@" in url:
        raise ConfigError(
            f"the address of {service.name}:{model} has a password in it",
            hint=f"put it into {service.keys[0]}",
        )
    found = next((environ[each] for each in service.keys if environ.get(each)), None)
    if found is None and service.priced and url is None:
        raise NotAuthorised(
            f"no key for {service.name}:{model}", hint=f"set {' or '.join(service.keys)}"
        )
    trusted = url is None or (known is not None and url.rstrip("/") == known.rstrip("/"))
    return Place(service, model, url, found if trusted else None)


def model_at(place: Place) -> TheirModel:
    name, url, key = place.model, place.url, place.key or _NO_KEY
    match place.service.name:
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415
            from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415

            anthropic = AnthropicProvider(api_key=key, base_url=url, http_client=bounded_client())
            return AnthropicModel(name, provider=anthropic)
        case "google":
            from pydantic_ai.models.google import GoogleModel  # noqa: PLC0415
            from pydantic_ai.providers.google import GoogleProvider  # noqa: PLC0415

            google = GoogleProvider(api_key=key, base_url=url, http_client=bounded_client())
            return GoogleModel(name, provider=google)
        case _:
            return _chat_model(place)


def _client_at(place: Place) -> AsyncOpenAI:
    from openai import AsyncOpenAI  # noqa: PLC0415

    class Elsewhere(AsyncOpenAI):
        """Sends nothing of what the variables of OpenAI hold but the key it was given.

        The library takes organisation, project and headers from the environment wherever the
        server is, and again in each copy that it makes of a client.
        """

        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.organization = self.project = self.admin_api_key = self.webhook_secret = None
            self._custom_headers = {}

    client = AsyncOpenAI if place.service.name == "openai" else Elsewhere
    key = place.key or _NO_KEY
    return client(base_url=place.url, api_key=key, http_client=bounded_client())


def _chat_model(place: Place) -> TheirModel:
    """One that is asked by chat completions, which keep nothing at the provider."""
    from pydantic_ai.models.ollama import OllamaModel  # noqa: PLC0415
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415
    from pydantic_ai.profiles.openai import OpenAIModelProfile  # noqa: PLC0415
    from pydantic_ai.providers.ollama import OllamaProvider  # noqa: PLC0415
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415
    from pydantic_ai.providers.vllm import VLLMProvider  # noqa: PLC0415

    client, name = _client_at(place), place.model
    # A stream that ends without saying why was cut.
    profile = OpenAIModelProfile(openai_chat_streaming_requires_finish_reason=True)
    match place.service.name:
        case "openai":
            provider = OpenAIProvider(openai_client=client)
        case "vllm":
            provider = VLLMProvider(openai_client=client)
        case "ollama":
            ollama = OllamaProvider(openai_client=client)
            # Theirs knows that Ollama's cloud does not keep to a schema, if it is given no profile.
            native = OllamaModel(name, provider=ollama).profile.get("supports_json_schema_output")
            profile["supports_json_schema_output"] = bool(native)
            return OllamaModel(name, provider=ollama, profile=profile)
        case other:
            provider = OpenAICompatibleProvider(other, openai_client=client)
            # Older servers know the limit by its older name only, and newer ones by both.
            profile["openai_chat_supports_max_completion_tokens"] = False
            # A grammar keeps the reply to the schema, but the model knows only what it is shown.
            profile["native_output_requires_schema_in_instructions"] = True
    return OpenAIChatModel(name, provider=provider, profile=profile)


# --- the connection: it sends no more than an answer may have ----------------------------------


class Flood(Exception):
    """The server sent more than it may."""


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream, self._left = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._left -= len(data)
            if self._left < 0:
                raise Flood
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


def bounded_client() -> httpx2.AsyncClient:
    """For the libraries of the providers."""
    client = create_async_httpx2_client()
    # What is packed is unpacked before we can count it; so it is not asked for.
    client.headers["Accept-Encoding"] = "identity"
    # A hook and no transport: with one, proxies of the environment would not be used.
    client.event_hooks = {**client.event_hooks, "response": [_bound]}
    return client


async def _bound(response: httpx2.Response) -> None:
    match response.headers.get("Content-Encoding", "identity").lower():
        case "identity":
            most = MOST_OUTPUT
        case "gzip" | "deflate":
            most = MOST_OUTPUT // _MOST_TIMES_PACKED
        case _:
            most = 0
    response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), most)

"""Opens a model by its name, `provider:name`.

A provider is a function that makes a model of a name; it is imported when one of its models is
opened.  Other packages add theirs through the entry point group `holdfast.models`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple

from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.models.protocol import Model
from holdfast.models.spans import traced

GROUP = "holdfast.models"
_ONLY_ANSWER = frozenset(
    [
        "scripted",
        "embedded",
        "replay",
        "openai",
        "anthropic",
        "google",
        "ollama",
        "vllm",
        "llamacpp",
        "openai-compatible",
    ]
)


class Provider(NamedTuple):
    name: str
    what: str
    example: str
    where: str
    """`module:function`."""
    extra: str | None = None
    """What has to be installed for it."""


BUILT_IN = (
    Provider(
        "scripted",
        "says what a file tells it to say, or repeats the question",
        "scripted:echo",
        "holdfast.models.scripted:open_scripted",
    ),
    Provider(
        "command",
        "any CLI agent or script: what it prints is the answer",
        "command:claude --model sonnet",
        "holdfast.models.command:open_command",
    ),
    Provider(
        "acp",
        "any agent that speaks the Agent Client Protocol",
        "acp:gemini --experimental-acp",
        "holdfast.models.acp:open_acp",
        extra="acp",
    ),
    Provider(
        "embedded",
        "a small real model on the processor, in this process",
        "embedded:smollm2",
        "holdfast.models.embedded:open_embedded",
        "embedded",
    ),
    Provider("openai", "OpenAI", "openai:gpt-5-mini", "holdfast.models.hosted:open_openai", "llm"),
    Provider(
        "anthropic",
        "Anthropic",
        "anthropic:claude-haiku-4-5",
        "holdfast.models.hosted:open_anthropic",
        "llm",
    ),
    Provider(
        "google", "Gemini", "google:gemini-2.5-flash", "holdfast.models.hosted:open_google", "llm"
    ),
    Provider("ollama", "Ollama", "ollama:qwen3", "holdfast.models.hosted:open_ollama", "llm"),
    Provider("vllm", "vLLM", "vllm:qwen3-8b", "holdfast.models.hosted:open_vllm", "llm"),
    Provider(
        "llamacpp",
        "the server of llama.cpp",
        "llamacpp:any",
        "holdfast.models.hosted:open_llamacpp",
        "llm",
    ),
    Provider(
        "openai-compatible",
        "any server that speaks OpenAI's chat completions",
        "openai-compatible:NAME@http://127.0.0.1:8080/v1",
        "holdfast.models.hosted:open_compatible",
        "llm",
    ),
)


def open_model(ref: str) -> Model:
    """The model called `ref`; ConfigError if what it needs is not installed."""
    provider_name, colon, name = ref.partition(":")
    if not colon or not provider_name or not name:
        raise UsageError(
            f"{ref!r} names no model", hint="provider:name, such as scripted:echo; see `model list`"
        )
    provider = providers().get(provider_name)
    if provider is None:
        raise NotFound(
            f"no provider {provider_name!r} for {ref!r}",
            hint=f"one of {', '.join(sorted(providers()))}; see `holdfast model list`",
        )
    return traced(_function(provider)(name))


def acts(ref: str) -> bool:
    """Whether asking a model can have an effect beside its answer; of an unknown one, yes."""
    return ref.partition(":")[0] not in _ONLY_ANSWER


def _function(provider: Provider) -> Callable[[str], Model]:
    module, _, function = provider.where.partition(":")
    try:
        return getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        install = f'`pip install "holdfast[{provider.extra}]"`' if provider.extra else "install it"
        raise ConfigError(
            f"models of {provider.name} need {error.name}, which is not installed", hint=install
        ) from error


def providers() -> dict[str, Provider]:
    """Ours and those that other packages bring; a name of ours stays ours."""
    found = {
        entry.name: Provider(entry.name, f"from {entry.value}", f"{entry.name}:…", entry.value)
        for entry in entry_points(group=GROUP)
    }
    return found | {each.name: each for each in BUILT_IN}

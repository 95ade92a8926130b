"""Opens a model by its name, `provider:name`.

A provider is a function that makes a model of a name; it is imported when one of its models is
opened.  Other packages add theirs through the entry point group `holdfast.models`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.models.protocol import Model
from holdfast.models.spans import traced

GROUP = "holdfast.models"


class Provider(NamedTuple):
    name: str
    what: str
    example: str
    where: str
    """`module:function`, or `module:function:PROVIDER` for one that serves several."""
    extra: str | None = None
    """What has to be installed for it."""
    acts: bool = False
    """Whether asking can have an effect beside the answer."""


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
        acts=True,
    ),
    Provider(
        "acp",
        "any agent that speaks the Agent Client Protocol",
        "acp:gemini --experimental-acp",
        "holdfast.models.acp:open_acp",
        extra="acp",
        acts=True,
    ),
    Provider(
        "embedded",
        "a small real model on the processor, in this process",
        "embedded:smollm2",
        "holdfast.models.embedded:open_embedded",
        "embedded",
    ),
    *(
        Provider(name, what, f"{name}:{model}", f"holdfast.models.hosted:open_hosted:{name}", "llm")
        for name, what, model in (
            ("openai", "OpenAI", "gpt-5-mini"),
            ("anthropic", "Anthropic", "claude-haiku-4-5"),
            ("google", "Gemini", "gemini-2.5-flash"),
            ("ollama", "Ollama", "qwen3"),
            ("vllm", "vLLM", "qwen3-8b"),
            ("llamacpp", "the server of llama.cpp", "any"),
            (
                "openai-compatible",
                "any server that speaks OpenAI's chat completions",
                "NAME@http://127.0.0.1:8080/v1",
            ),
        )
    ),
)
_ONLY_ANSWER = frozenset({"replay", *(each.name for each in BUILT_IN if not each.acts)})


def open_model(ref: str, **where: Any) -> Model:
    """The model called `ref`; ConfigError if what it needs is not installed.

    `where` is for programs: what `open_command` and `open_acp` take.
    """
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
    module, function, *of = provider.where.split(":")
    try:
        make: Callable[..., Model] = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        install = f'`pip install "holdfast[{provider.extra}]"`' if provider.extra else "install it"
        raise ConfigError(
            f"models of {provider.name} need {error.name}, which is not installed", hint=install
        ) from error
    return traced(make(*of, name, **where))


def acts(ref: str) -> bool:
    """Whether asking a model can have an effect beside its answer; of an unknown one, yes."""
    return ref.partition(":")[0] not in _ONLY_ANSWER


def providers() -> dict[str, Provider]:
    """Ours and those that other packages bring; a name of ours stays ours."""
    found = {
        entry.name: Provider(entry.name, f"from {entry.value}", f"{entry.name}:…", entry.value)
        for entry in entry_points(group=GROUP)
    }
    return found | {each.name: each for each in BUILT_IN}

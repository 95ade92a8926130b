"""How known CLI agents are asked: what makes them answer once, in JSON, and where that says what.

Written from their public documentation.  `RECIPES` is found by the name of the program; whoever
needs another one gives `Command` a `Recipe` of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import ModelError, NotAuthorised
from holdfast.models.report import At, Form


class Option(NamedTuple):
    """An option that is added unless it is there."""

    spellings: tuple[str, ...]
    value: str | None = None
    unless: tuple[str, ...] = ()
    """Others that make it needless."""


class Recipe(NamedTuple):
    verb: tuple[str, ...] = ()
    """What has to follow the program, in its spellings; the first is added."""
    options: tuple[Option, ...] = ()
    prompt: tuple[str, ...] = ()
    """What is added to give it the prompt, unless the command line does; by stdin if nothing."""
    format: Option | None = None
    """What chooses the output; other values than those of `structured` mean plain text."""
    structured: tuple[str | None, ...] = ()
    form: Form | None = None
    """None is plain text."""
    cost_line: str | None = None
    """A pattern for the cost in plain text; the last one counts."""
    most_usd: str | None = None
    """The option that limits what a call may cost."""
    exits: Mapping[int, type[ModelError]] = {}
    """Exit codes that say what failed."""

    def arguments(self, given: Sequence[str], *, has_prompt: bool) -> list[str]:
        """The arguments as they were given, with what is missing to be answered once."""
        words = list(given)
        if self.verb and not any(word in self.verb for word in words):
            words.insert(0, self.verb[0])
        end = words.index("--") if "--" in words else len(words)
        added = list[str]()
        for option in (*self.options, *((self.format,) if self.format else ())):
            if value_of(words, (*option.spellings, *option.unless)) is None:
                added += [option.spellings[0], *([] if option.value is None else [option.value])]
        words[end:end] = added
        return words if has_prompt else [*words, *self.prompt]

    def form_for(self, words: Sequence[str]) -> Form | None:
        """How the output is read for these arguments; None is plain text."""
        if self.format is None:
            return self.form
        given = value_of(words, self.format.spellings)
        flag = self.format.value is None and given is not None
        return self.form if flag or given in self.structured else None


def value_of(words: Sequence[str], spellings: Sequence[str]) -> str | None:
    """What an option is set to, empty if it is a flag at the end; None if it is not there."""
    for number, word in enumerate(words):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if word in spellings:
            return words[number + 1] if number + 1 < len(words) else ""
        if equals and name in spellings:
            return value
    return None


CLAUDE = Form(
    text=At("result", "result"),
    input_tokens=(
        At("usage.input_tokens", "result"),
        At("usage.cache_creation_input_tokens", "result"),
        At("usage.cache_read_input_tokens", "result"),
    ),
    output_tokens=(At("usage.output_tokens", "result"),),
    cache_read_tokens=(At("usage.cache_read_input_tokens", "result"),),
    cost=(At("total_cost_usd", "result"), At("cost_usd", "result")),
    session=At("session_id", "result"),
    model=At("modelUsage", "result"),
    is_error=At("is_error", "result"),
    errors=(At("result", "result"), At("subtype", "result")),
    finish=At("stop_reason", "result"),
)
CODEX = Form(
    text=At("item.text", "item.completed", ("item.type", "agent_message")),
    input_tokens=(At("usage.input_tokens", "turn.completed"),),
    output_tokens=(At("usage.output_tokens", "turn.completed"),),
    cache_read_tokens=(At("usage.cached_input_tokens", "turn.completed"),),
    adds_up=True,
    session=At("thread_id", "thread.started"),
    errors=(
        At("error.message", "turn.failed"),
        At("message", "error"),
        At("type", "turn.failed"),
    ),
    done="turn.completed",
)
_GEMINI_TOKENS = "stats.models.*.tokens"
GEMINI = Form(
    text=At("response"),
    input_tokens=(At(f"{_GEMINI_TOKENS}.prompt"),),
    output_tokens=(At(f"{_GEMINI_TOKENS}.candidates"), At(f"{_GEMINI_TOKENS}.thoughts")),
    cache_read_tokens=(At(f"{_GEMINI_TOKENS}.cached"),),
    session=At("session_id"),
    model=At("stats.models"),
    errors=(At("error.message"),),
)
OPENCODE = Form(
    text=At("part.text", "text"),
    input_tokens=(
        At("part.tokens.input", "step_finish"),
        At("part.tokens.cache.read", "step_finish"),
        At("part.tokens.cache.write", "step_finish"),
    ),
    output_tokens=(
        At("part.tokens.output", "step_finish"),
        At("part.tokens.reasoning", "step_finish"),
    ),
    cache_read_tokens=(At("part.tokens.cache.read", "step_finish"),),
    cost=(At("part.cost", "step_finish"),),
    adds_up=True,
    session=At("sessionID"),
    errors=(At("error.data.message", "error"), At("error.name", "error")),
    done="step_finish",
    finish=At("part.reason", "step_finish"),
)

RECIPES: dict[str, Recipe] = {
    "claude": Recipe(
        options=(Option(("-p", "--print")),),
        format=Option(("--output-format",), "json"),
        structured=("json", "stream-json"),
        form=CLAUDE,
        most_usd="--max-budget-usd",
    ),
    "codex": Recipe(
        verb=("exec", "e"),
        prompt=("-",),
        format=Option(("--json", "--experimental-json")),
        form=CODEX,
    ),
    "gemini": Recipe(
        format=Option(("--output-format", "-o"), "json"),
        structured=("json",),
        form=GEMINI,
        exits={41: NotAuthorised},
    ),
    "opencode": Recipe(
        verb=("run",),
        format=Option(("--format",), "json"),
        structured=("json",),
        form=OPENCODE,
    ),
    "aider": Recipe(
        options=(
            Option(("--yes-always", "--yes")),
            Option(("--no-pretty",), unless=("--pretty",)),
            Option(("--no-stream",), unless=("--stream",)),
        ),
        prompt=("--message-file", "{prompt_file}"),
        cost_line=r"Cost: .{0,60}?\$([0-9]+(?:\.[0-9]+)?) session",
    ),
}
PLAIN = Recipe()

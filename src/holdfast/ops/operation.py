"""What a verb is: its name, its effect, which faces offer it, and where its function is.

A row of the table imports no verb; `load` does.  The function carries its example and columns
(`@example`) and its parameters (`parameter.parameters`).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from keyword import iskeyword
from typing import Any, Literal, NamedTuple, TypeVar, cast

from holdfast.clock import utc_stamp
from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Result, Stream
from holdfast.ops.parameter import Parameter, parameters

Effect = Literal["read", "append", "change", "destroy"]
Face = Literal["cli", "http", "mcp"]
Verb = Callable[..., Result]
_Function = TypeVar("_Function", bound=Verb)

EVERYWHERE: frozenset[Face] = frozenset({"cli", "http", "mcp"})
CLI: frozenset[Face] = frozenset({"cli"})


def example(line: str, *, columns: str = "") -> Callable[[_Function], _Function]:
    """Beside a verb: a shell line that works, and the keys that its table shows (else all)."""

    def described(function: _Function) -> _Function:
        vars(function).update(example=line, columns=tuple(columns.split()))
        return function

    return described


class Operation(NamedTuple):
    effect: Effect
    name: str
    """`status`, or noun and verb: `ledger write`."""
    summary: str
    """One line, without a full stop: what it does."""
    at: str = ""
    """`MODULE` or `MODULE:FUNCTION`, below `holdfast.ops` if there is no dot in it; what is left
    out is derived from the name: `job queue` is `job:queue`."""
    faces: frozenset[Face] = EVERYWHERE
    spares_caller: bool = False
    """Whether it exits with 0 even if it failed, unless it has `--strict`: for callers that
    take an exit code for an order."""

    @property
    def noun(self) -> str | None:
        noun, space, _ = self.name.partition(" ")
        return noun if space else None

    @property
    def verb(self) -> str:
        return self.name.rpartition(" ")[2]

    @property
    def example(self) -> str:
        """A line for the shell, beginning with `holdfast `."""
        return vars(self.load())["example"]

    @property
    def columns(self) -> tuple[str, ...]:
        """The keys of a row that a table for people shows; all of them if none is named."""
        return vars(self.load())["columns"]

    def load(self) -> Verb:
        """The function, importing its module."""
        module, _, name = self.at.partition(":")
        module = module or self.noun or self.verb
        name = name or self.verb.replace("-", "_")
        if iskeyword(name) or hasattr(builtins, name):
            name += "_"
        path = module if "." in module else f"holdfast.ops.{module}"
        return cast("Verb", getattr(import_module(path), name))

    def call(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Run the verb; an argument that is left out has the default of its signature."""
        return self.load()(context, **arguments)

    # -- faces whose callers send JSON -------------------------------------------------

    def remote(self) -> list[Parameter]:
        """The parameters of a remote caller, who can name no file of this machine."""
        return [each for each in parameters(self.load()) if not each.is_path]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        taken = self.remote()
        needed = [each.name for each in taken if each.required]
        return {
            "type": "object",
            "properties": {each.name: each.schema() for each in taken},
            **({"required": needed} if needed else {}),
            "additionalProperties": False,
        }

    def accepted(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by their schema, as `call` takes them; UsageError if they do not fit it."""
        taken = self.remote()
        names = ", ".join(each.name for each in taken) or "no arguments"
        if unknown := given.keys() - {each.name for each in taken}:
            raise UsageError(f"no such argument: {min(unknown)[:80]!r}", hint=f"it takes {names}")
        for each in taken:
            if each.required and each.name not in given:
                raise UsageError(f"{each.name} is missing", hint=each.help)
        return {
            each.keyword: each.accepted(given[each.name]) for each in taken if each.name in given
        }

    def answer(
        self,
        context: Context,
        arguments: Mapping[str, Any],
        tell: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """The envelope of a call, with its warnings; `tell` gets text as it comes."""
        context.tell = tell
        as_of = utc_stamp(context.clock.now())  # what it shows is at least as new as this
        result = self.call(context, arguments)
        if isinstance(result, Stream):
            raise UsageError(f"{self.name} has no end", hint="call it at a command line")
        envelope = result.as_dict(as_of)
        if warnings := context.take_warnings():
            envelope["warnings"] = warnings
        return envelope


read = partial(Operation, "read")
append = partial(Operation, "append")
change = partial(Operation, "change")
destroy = partial(Operation, "destroy")


class Table:
    """Operations in the order in which people should meet them, and what each noun is."""

    def __init__(self, operations: Iterable[Operation], nouns: Mapping[str, str]) -> None:
        self.operations = tuple(operations)
        self.nouns = dict(nouns)
        self._verbs: dict[str | None, dict[str, Operation]] = {}
        for each in self.operations:
            noun, _, verb = each.name.rpartition(" ")
            self._verbs.setdefault(noun or None, {})[verb] = each

    def seen_by(self, face: Face) -> Table:
        """The part that a face may offer."""
        seen = [each for each in self.operations if face in each.faces]
        part = Table(seen, self.nouns)
        part.nouns = {noun: what for noun, what in self.nouns.items() if noun in part._verbs}
        return part

    def of_noun(self, noun: str | None) -> dict[str, Operation]:
        """Verb to operation; `None` for the verbs that need no noun."""
        return self._verbs.get(noun, {})

    def names(self) -> list[str]:
        return [each.name for each in self.operations]

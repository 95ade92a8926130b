"""What a verb is: its name, its effect, who may call it, and where its function lives.

An `Operation` names its function by text, so that the table can be listed without importing
a single verb.  It does not know its arguments (`parameter` reads them off the function), nor
how a face shows its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast

from holdfast.ops.context import Context
from holdfast.ops.envelope import Result

Effect = Literal["read", "append", "change", "destroy"]
Face = Literal["cli", "http", "mcp"]
Verb = Callable[..., Result]

EVERYWHERE: frozenset[Face] = frozenset({"cli", "http", "mcp"})
CLI_ONLY: frozenset[Face] = frozenset({"cli"})


class Operation(NamedTuple):
    name: str
    """`status`, or noun and verb: `ledger write`."""
    summary: str
    """One line, without a full stop: what it does."""
    function: str
    """`holdfast.ops.ledger:write`."""
    effect: Effect
    example: str
    """A line for the shell, beginning with `holdfast `."""
    faces: frozenset[Face] = EVERYWHERE
    columns: tuple[str, ...] = ()
    """The keys of a row that people see in a table; all of them when none is named."""
    spares_caller: bool = False
    """Whether even a call that makes no sense is told and not failed, unless it has `--strict`:
    for callers that take an exit code for an order."""

    @property
    def noun(self) -> str | None:
        noun, space, _ = self.name.partition(" ")
        return noun if space else None

    @property
    def verb(self) -> str:
        return self.name.rpartition(" ")[2]

    def load(self) -> Verb:
        """The function, importing its module."""
        module, _, name = self.function.partition(":")
        return cast("Verb", getattr(import_module(module), name))

    def call(self, context: Context, arguments: Mapping[str, Any]) -> Result:
        """Run the verb; an argument that is left out has the default of its signature."""
        return self.load()(context, **arguments)


class Table:
    """Operations in the order in which people should meet them, and what each noun is."""

    def __init__(self, operations: Iterable[Operation], nouns: Mapping[str, str]) -> None:
        self.operations = tuple(operations)
        self.nouns = dict(nouns)

    def seen_by(self, face: Face) -> Table:
        """The part that a face may offer."""
        seen = [each for each in self.operations if face in each.faces]
        used = {each.noun for each in seen}
        return Table(seen, {noun: what for noun, what in self.nouns.items() if noun in used})

    def of_noun(self, noun: str | None) -> dict[str, Operation]:
        """Verb to operation; `None` for the verbs that need no noun."""
        return {each.verb: each for each in self.operations if each.noun == noun}

    def names(self) -> list[str]:
        return [each.name for each in self.operations]

"""Click's complaints about a command line, in our words: what is wrong, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.errors import UsageError
from holdfast.ops.operation import Operation, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_SHOWN = 300
"""An argument may be a whole book; the message about it is not."""


class NoVerb(UsageError):
    """Nothing was asked for; `help` says what could have been."""

    def __init__(self, command: str, help: str) -> None:
        super().__init__(f"`{command}` needs a verb", hint=f"`{command} --help` lists the verbs")
        self.help = help


def translated(error: click.UsageError, table: Table) -> UsageError:
    message, hint = _explain(error, table)
    return UsageError(message[:MOST_SHOWN], hint=hint)


def _explain(error: click.UsageError, table: Table) -> tuple[str, str]:
    command = error.ctx.command_path if error.ctx else "holdfast"
    operation: Operation | None = getattr(error.cmd, "operation", None)
    see_help = f"`{command} --help` explains it"
    match error:
        case click.NoSuchCommand():
            return _unknown_verb(command, error.command_name, table)
        case click.NoSuchOption():
            message = f"`{command}` has no option {error.option_name}"
            if error.possibilities:
                return message, f"did you mean {error.possibilities[0]}?"
            if operation:
                return message, f"text that begins with a dash goes after `--`; {see_help}"
            return message, see_help
        case click.MissingParameter(param=click.Parameter() as missing):
            name = missing.opts[0] if isinstance(missing, click.Option) else missing.metavar
            example = f"for example: {operation.example}" if operation else see_help
            return f"`{command}` needs {name}", example
        case click.BadParameter(param=click.Parameter(type=click.Choice() as choice)):
            return _plain(error.format_message()), _close(choice, error.message) or see_help
        case click.UsageError() if "unexpected extra argument" in error.message:
            example = f"for example: {operation.example}" if operation else see_help
            hint = f"put text of several words in quotes; {example}"
            return _plain(error.format_message()), hint
        case _:
            return _plain(error.format_message()), see_help


def _unknown_verb(command: str, word: str, table: Table) -> tuple[str, str]:
    program, _, noun = command.partition(" ")
    message = f"there is no verb `{command} {word}`"
    if noun:
        meant = [f"{noun} {verb}" for verb in _close_to(word, table.of_noun(noun))]
    else:
        meant = _close_to(word, [*table.names(), *table.nouns])
    meant = meant or [each.name for each in table.operations if each.verb == word]
    if meant:
        return message, f"did you mean {' or '.join(f'`{program} {name}`' for name in meant)}?"
    return message, f"`{command} --help` lists the verbs"


def _close(choice: click.Choice[str], message: str) -> str | None:
    # The value itself is only in the message, quoted.
    value = message.split("'")[1] if message.count("'") > 1 else ""
    meant = _close_to(value, choice.choices)
    return f"did you mean {' or '.join(meant)}?" if meant else None


def _close_to(word: str, known: Iterable[str]) -> list[str]:
    # Only a mistake pays for difflib.
    from difflib import get_close_matches

    return get_close_matches(word[:80], list(known), n=1)


def _plain(message: str) -> str:
    """Click's sentence as one of ours: one line, no capital, no full stop."""
    line = " ".join(message.split()).removesuffix(".")
    return line[:1].lower() + line[1:]

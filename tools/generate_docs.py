"""Write docs/cli.md from the table of verbs and their own help.

python tools/generate_docs.py            write it
python tools/generate_docs.py --check    exit 1 if it is not what would be written
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast import errors
from holdfast.cli import failure
from holdfast.cli.commands import PROGRAM, Verb, tree
from holdfast.ops.operation import Table
from holdfast.ops.table import TABLE

REPO = Path(__file__).resolve().parent.parent
TARGET = REPO / "docs" / "cli.md"
WIDTH = 100

HEAD = """\
# The command line

Written by `tools/generate_docs.py` from the table of verbs: do not edit, run `make fix`.

Data goes to standard output, talk to standard error; an error ends with a `hint:`. `--home DIR` and
`--json` are accepted before and after the verb. Text that begins with a dash goes after `--`.
"""
ENVELOPE = """\
## Answers in JSON

With `--json` a verb answers with one line, in one of these shapes:

| Answer | Shape |
|---|---|
| a list | `{"schema":1,"as_of":…,"counts":{…},"rows":[…],"truncated":false,"next":null}` |
| one thing | `{"schema":1,"as_of":…,"data":{…}}` |
| a change | `{"schema":1,"target":…,"applied":true,"dry_run":false,"detail":…,"data":{…}}` |
| an error, on standard error | `{"error":{"code":…,"message":…,"hint":…,"retryable":…,"path":…}}` |

A stream (`tail --follow`) is one row per line. A warning on standard error is `{"warning":…}`.
"""
EXITS = """\
## Exit codes

0 is success; 1 is also the code of a verb that found something to look at.

| Code | Exit | Try again |
|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if stale")
    parser.add_argument("--target", type=Path, default=TARGET, help="another file than docs/cli.md")
    chosen = parser.parse_args()
    wanted = document(TABLE)
    there = chosen.target.read_text("utf-8") if chosen.target.exists() else None
    if there == wanted:
        return 0
    if chosen.check:
        print(f"{chosen.target} is stale: run `make fix`", file=sys.stderr)
        return 1
    chosen.target.parent.mkdir(parents=True, exist_ok=True)
    chosen.target.write_text(wanted, encoding="utf-8")
    print(f"wrote {chosen.target}")
    return 0


def document(table: Table) -> str:
    root = tree(table)
    top = click.Context(root, info_name=PROGRAM, terminal_width=WIDTH)
    parts = [HEAD, _help(top), *_commands(root, top), ENVELOPE, EXITS + "".join(_exits())]
    return "\n".join(parts)


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, below)
        elif isinstance(command, Verb):
            yield f"## {below.command_path}\n\n{_help(below)}"


def _help(context: click.Context) -> str:
    return f"```\n{context.get_help()}\n```\n"


def _exits() -> Iterator[str]:
    for kind in [*_tree_of(errors.HoldfastError), failure.Bug, failure.Stopped]:
        again = "yes" if kind.retryable else "no"
        yield f"| `{kind.code}` | {kind.exit_code} | {again} |\n"


def _tree_of(kind: type[errors.HoldfastError]) -> Iterator[type[errors.HoldfastError]]:
    # Only what errors.py draws: other modules may have been imported, and have kinds of their own.
    if kind.__module__ == errors.__name__:
        yield kind
        for below in kind.__subclasses__():
            yield from _tree_of(below)


if __name__ == "__main__":
    sys.exit(main())

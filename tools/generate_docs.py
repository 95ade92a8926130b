"""Write the pages that the code can tell: the verbs, the schemas, the fields that are open.

python tools/generate_docs.py            write them below docs
python tools/generate_docs.py --check    exit 1 if one is not what would be written
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from holdfast import errors
from holdfast.cli import failure
from holdfast.cli.commands import PROGRAM, Verb, tree
from holdfast.ops.operation import Table
from holdfast.ops.table import TABLE
from holdfast.ops.validate import schema_files

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from tools import free_fields  # noqa: E402 - found only from the root of the repository

DOCS = REPO / "docs"
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


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if stale")
    parser.add_argument("--into", type=Path, default=DOCS, help="another directory than docs")
    chosen = parser.parse_args(words)
    stale = list(stale_pages(chosen.into))
    for path, wanted in stale:
        if chosen.check:
            print(f"{path} is stale: run `make fix`", file=sys.stderr)
        elif wanted is None:
            path.unlink()
            print(f"removed {path}")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {path}")
    return 1 if stale and chosen.check else 0


def stale_pages(into: Path) -> Iterator[tuple[Path, str | None]]:
    """Pages that are not what would be written; None for a schema that is no more."""
    wanted = {into / name: text for name, text in pages().items()}
    for path, text in wanted.items():
        if not path.exists() or path.read_text("utf-8") != text:
            yield path, text
    for path in sorted((into / "schemas").glob("*.json")):
        if path not in wanted:
            yield path, None


def pages() -> dict[str, str]:
    """The text of every page by its name below docs."""
    found = {"cli.md": document(TABLE), "open-fields.md": free_fields.page()}
    for name, content in schema_files():
        found[f"schemas/{name}"] = content.decode()
    return found


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

"""Toy verbs behind the real command line; `python -m tests.cli.toys ARGS` is a real process."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from holdfast import errors
from holdfast.cli.main import main
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show, Stream
from holdfast.ops.operation import CLI, Operation, Table, example, read
from holdfast.ops.parameter import Arg

Text = Annotated[str, Arg("Any text at all", positional=True)]


@example("holdfast toy write x")
def write(
    context: Context,
    text: Text,
    *,
    agent: Annotated[str, Arg("Who did it")],
    event: Annotated[Literal["info", "task_start", "error"], Arg("What kind of event")] = "info",
    tag: Annotated[Sequence[str], Arg("A label; may be repeated")] = (),
    data: Annotated[str | None, Arg("More, as JSON", metavar="JSON", or_file=True)] = None,
    limit: Annotated[int | None, Arg("How many")] = None,
    cost: Annotated[float | None, Arg("How much")] = None,
    from_: Annotated[str | None, Arg("Who asked for it")] = None,
    dry_run: Annotated[bool, Arg("Only say what would be done")] = False,
) -> Change:
    """Nothing is kept: the arguments come back as they were understood."""
    seen = {
        "text": text,
        "agent": agent,
        "event": event,
        "tag": list(tag),
        "data": data,
        "limit": limit,
        "cost": cost,
        "from": from_,
        "home": context.home_path,
    }
    return Change(agent, not dry_run, f"wrote {text}", data=seen, dry_run=dry_run)


@example("holdfast toy list", columns="seq agent summary missing")
def rows(context: Context, *, found: Annotated[bool, Arg("Exit with 1")] = False) -> Rows:
    """List two rows."""
    return Rows(
        [
            {"seq": 9, "agent": "rio", "secret": "hidden", "summary": "first"},
            {"seq": 10, "agent": "clay", "secret": "hidden", "summary": "two\nlines"},
        ],
        counts={"events": 2},
        exit_code=ATTENTION if found else 0,
    )


@example("holdfast echo x")
def echo(context: Context, text: Text) -> Rows:
    """List one row that holds the text."""
    return Rows([{"agent": "rio", "summary": text}])


@example("holdfast document x")
def document(context: Context, text: Text) -> Show:
    """Show a document that holds the text."""
    return Show({"name": text, "inner": {text: 1}, "items": [{"a": text}], "flags": [True, None]})


@example("holdfast quote x")
def quote(context: Context, text: Text) -> Show:
    """Show the text as the verb's own text."""
    return Show({"text": text}, text=text)


@example("holdfast payload x")
def payload(context: Context, text: Text) -> Show:
    """Show the text as something that another program reads."""
    return Show({"text": text}, text=text, exact=True)


@example("holdfast many x")
def many(context: Context, n: Annotated[int, Arg("How many rows", positional=True)]) -> Rows:
    """List so many rows."""
    return Rows([{"n": number, "pad": "x" * 100} for number in range(n)])


@example("holdfast fail x")
def fail(context: Context, kind: Annotated[str, Arg("Which error", positional=True)]) -> Show:
    """Fail in one of many ways."""
    context.warn("about to fail")
    match kind:
        case "bug":
            raise ZeroDivisionError("division by\nzero")
        case "interrupt":
            raise KeyboardInterrupt
        case "stop":
            raise errors.Interrupted
        case "os":
            raise PermissionError(13, "Permission denied", "/some/where")
        case "no-hint":
            raise errors.NotFound("nothing there", path="/some/where")
        case _:
            raise getattr(errors, kind)(f"{kind} happened", hint="try something else")


@example("holdfast warn x")
def warn(context: Context, text: Text) -> Show:
    """Warn, and work."""
    context.warn(text)
    return Show({"fine": True})


@example("holdfast toy follow x", columns="seq summary")
def follow(context: Context, first: Text) -> Stream:
    """Give a row for the text, then one for each line of the standard input."""

    def flow() -> Iterator[dict[str, Any]]:
        try:
            yield {"seq": 1, "summary": first, "secret": "hidden"}
            for number, line in enumerate(sys.stdin, 2):
                context.warn(f"line {number}")
                yield {"seq": number, "summary": line.rstrip("\n"), "secret": "hidden"}
        finally:
            print("stream closed", file=sys.stderr)

    return Stream(flow())


@example("holdfast collector x")
def collector(context: Context) -> Show:
    """Say whether garbage is collected while a verb runs."""
    return Show({"enabled": gc.isenabled()})


@example("holdfast descriptors x")
def descriptors(context: Context) -> Show:
    """Say which number the next opened file gets."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return Show({"next": number})


def _toy(name: str, function: str) -> Operation:
    return read(name, f"Toy {function}", f"tests.cli.toys:{function}", CLI)


TABLE = Table(
    [
        *(
            _toy(each, each)
            for each in ("document", "quote", "payload", "many", "fail", "warn", "collector")
        ),
        _toy("descriptors", "descriptors"),
        _toy("toy write", "write"),
        _toy("toy list", "rows"),
        _toy("toy echo", "echo"),
        _toy("toy follow", "follow"),
        _toy("toy remote", "rows")._replace(faces=frozenset({"http"})),
        _toy("web only", "rows")._replace(faces=frozenset({"http", "mcp"})),
        read("toy absent", "A verb whose module cannot be imported", "tests.cli.no_such_module"),
    ],
    {"toy": "Things to play with", "web": "Things of another face"},
)

if __name__ == "__main__":
    # `-m` made this module `__main__`; the verbs come from the one that is imported.
    sys.exit(main(table=TABLE))

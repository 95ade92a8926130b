"""The verb that brings the trees of other systems into a home."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

from holdfast.errors import NotFound
from holdfast.interop.recognise import recognise
from holdfast.interop.run import Import
from holdfast.interop.tree import Tree
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.store.home import Home

_LEASE = "import"
_PATIENCE = 10.0
_OUTCOMES = ("taken", "repaired", "quarantined", "known", "skipped")


@example(
    "holdfast import /opt/agents/agent-state --dry-run",
    columns="agent part file state entries detail",
)
def import_(
    context: Context,
    src: Annotated[str, Arg("A tree of agents' state or of ledgers, or a part", positional=True)],
    *,
    dry_run: DryRun = False,
) -> Rows:
    """SRC is only read. --layout names its format (teleo: agents' state; luka: ledgers; logist:
    jobs); without it, the content decides. Files are kept byte for byte under `imported`, each with
    its sha256 in a chained line; a file that cannot be read is kept too, and not used
    (`quarantined`). A file that was imported before is left out, so that a second import adds
    nothing, and an import that was cut off is completed by running it again.

    Flags that agents left for each other in a shared folder (`collective/flag-SENDER-TOPIC.md`)
    become messages in the inboxes of the agents they name, each once.

    A job comes with its calls and its state; a job that was running there waits for a decision
    here. Amounts of its manifest are cents. Its workspace is left where it is.

    An agent or job with a name that is not allowed gets another: accents dropped, other characters
    replaced by dashes, and 8 digits of the sha256 of its name appended. An agent's manifest keeps
    the name as `display_name`, a job's history as its origin.
    """
    said = context.take_layout()
    with Tree(src) as tree:
        found = recognise(tree, said)
        with _home(context, dry_run=dry_run) as home:
            run = Import(home, tree, found, dry_run=dry_run)
            rows = list(run.rows())
    states = Counter(row["state"] for row in rows)
    counts: dict[str, Any] = {state: states[state] for state in _OUTCOMES}
    counts |= {"entries": sum(row["entries"] for row in rows), "ignored": run.ignored}
    counts |= {"layout": found.layout.name, "dry_run": dry_run}
    if dry_run:
        context.warn("a dry run: nothing was written")
    unread = any(row["part"] == "flags" and row["state"] == "skipped" for row in rows)
    return Rows(rows, counts, exit_code=ATTENTION if states["quarantined"] or unread else 0)


@contextmanager
def _home(context: Context, *, dry_run: bool) -> Generator[Home]:
    """The home, for one import at a time; for a dry run perhaps one that is thrown away."""
    try:
        home = context.home(create=not dry_run)
    except NotFound:
        with tempfile.TemporaryDirectory() as scratch, Home.open(scratch, create=True) as home:
            yield home
        return
    context.own_home(" itself", hint="name a home of Holdfast's own with --home")
    if dry_run:
        yield home
        return
    lease = home.lease(_LEASE)
    lease.acquire("import", patience=_PATIENCE)
    try:
        yield home
    finally:
        lease.release()
        lease.close()

"""`doctor`: examine a home and what it stands on, and mend what loses nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from holdfast.agents.agent import Agent
from holdfast.agents.lifecycle import bootstrap, missing, name_of
from holdfast.agents.standing import fleet
from holdfast.errors import NotFound, NotOurs
from holdfast.jobs.queue import list_them, rebuilt, unlisted
from holdfast.layout import HOLDFAST
from holdfast.ledger.book import Ledger
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Rows
from holdfast.ops.examine import examine, has_state
from holdfast.ops.home import own_home
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.ops.status import now
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.sweep import sweep

Row = dict[str, Any]


@example("holdfast doctor --fix", columns="check state detail fix")
def doctor(
    context: Context,
    *,
    fix: Annotated[bool, Arg("Mend what can be mended without losing anything")] = False,
    dry_run: Annotated[bool, Arg("With --fix: only say what would be done")] = False,
) -> Rows:
    home = _opened(context)
    mended = list(_mend(home, dry_run=dry_run)) if fix else []
    rows = [*mended, *(each._asdict() for each in examine(home))]
    states = [row["state"] for row in rows]
    counts = {state: states.count(state) for state in ("ok", "warning", "broken", "mended")}
    bad = counts["broken"] + counts["warning"]
    return Rows(rows, counts, exit_code=ATTENTION if bad else 0)


def _opened(context: Context) -> Home:
    try:
        return own_home(context)
    except NotFound as error:
        if error.path is not None and os.path.islink(error.path):
            raise NotFound(
                f"{error.path} is a symbolic link to {os.readlink(error.path)}, which is not there",
                hint="put back what it leads to, or name another home with --home",
                path=error.path,
            ) from None
        raise


def _mend(home: Home, *, dry_run: bool) -> Iterator[Row]:
    def mended(key: str, what: str) -> Row:
        word = "would be mended" if dry_run else "mended"
        return {"check": key, "state": word, "detail": what, "fix": ""}

    for key in sweep(home, dry_run=dry_run):
        would = ", would be removed" if dry_run else ""
        yield mended(key, f"left behind by a writer that died{would}")
    wrong = {each.key for each in check(home) if each.kind in ("view", "stale")}
    for one in list(fleet(home, now(home))):
        # One file that is none of ours keeps no other agent from being mended.
        with suppress(NotOurs), Agent(home, one.agent) as agent:
            dead = [str(each["session_id"]) for each in one.crashed]
            for session in dead if dry_run else agent.bury():
                yield mended(session, "put on record as crashed")
            lacks = missing(home, agent) if has_state(one) else []
            if lacks and not dry_run:
                bootstrap(home, agent, one.agent)
            for part in lacks:
                yield mended(agent.key(part), f"made: {name_of(agent, part)} was missing")
            done = {agent.key(part) for part in lacks}
            for key, what in _views(home, agent, wrong - done, dry_run=dry_run):
                yield mended(key, what)
    for key, what in _jobs(home, wrong, dry_run=dry_run):
        yield mended(key, what)


def _jobs(home: Home, wrong: set[str], *, dry_run: bool) -> Iterator[tuple[str, str]]:
    """List jobs that are not, and make anew what does not show what their history says."""
    for name in unlisted(home) if dry_run else list_them(home):
        yield f"job {name}", "put on the list of jobs"
    if any(key.startswith(f"{HOLDFAST.above('job')}/") for key in wrong):
        for key, aside in rebuilt(home, dry_run=dry_run):
            if key in wrong:
                yield key, _folded(aside)


def _views(
    home: Home, agent: Agent, wrong: set[str], *, dry_run: bool
) -> Iterator[tuple[str, str]]:
    """Rebuild the views that do not show what their log says."""
    with Ledger(home, agent.name) as ledger:
        if ledger.status_key in wrong:
            yield ledger.status_key, _folded([] if dry_run else ledger.rebuild())
    for key, aside in agent.rebuild(wrong, dry_run=dry_run):
        yield key, _folded(aside)


def _folded(aside: list[str]) -> str:
    kept = f"; what was edited by hand is kept as {', '.join(aside)}" if aside else ""
    return f"rebuilt{kept}"

"""What `doctor` asks of every agent.  Looks only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.agent import Agent
from holdfast.agents.lifecycle import missing, name_of
from holdfast.agents.standing import CLOCKS_DIFFER, REPORT, Standing, fleet
from holdfast.errors import NotOurs
from holdfast.ops.status import now

if TYPE_CHECKING:
    from holdfast.store.home import Home

NEXT = {
    "missing": "`holdfast doctor --fix` makes them, and overwrites nothing",
    "unreadable": "`holdfast doctor --fix` folds it anew from the journal",
    "crashed": "`holdfast doctor --fix` puts it on record; so would the next start",
    "lost": "compare with a backup: `holdfast check` names the place",
    "stale": "wake it with `holdfast run`, or raise stale_after in holdfast.toml",
    "silent": "look for its process; `holdfast ledger orphans` lists what it left undone",
    "blocked": "help it, then `holdfast session set --agent {agent} --blocked-by ''`",
    "clock": "set the clock of this machine, or of the one that wrote it",
    "parked": "see why, then `holdfast task reopen|drop --agent {agent} ID`",
    "alien": "look at it, then move it away",
    "empty": "restore it from a backup, or remove it: `holdfast doctor --fix` makes a new one",
}


class Answer(NamedTuple):
    """An answer of `doctor`."""

    check: str
    state: str
    """ok, warning or broken."""
    detail: str
    fix: str = ""


def examine_fleet(home: Home) -> Iterator[Answer]:
    """What is wrong with each agent, or that nothing is."""
    count = troubled = 0
    for one in fleet(home, now(home)):
        count += 1
        try:
            files = list(_files(home, one))
        except NotOurs as error:
            files = [("broken", f"alien: {error.message}", "alien")]
        found = [*files, *_conduct(one)]
        troubled += bool(found)
        for state, detail, what in found:
            yield Answer(one.agent, state, detail, NEXT[what].format(agent=one.agent))
    if not troubled:
        yield Answer("agents", "ok", f"{count} agents, none of them in trouble")


def has_state(one: Standing) -> bool:
    """Whether an agent has more than a ledger, and so should have all files of its folder."""
    return one.report.state is not None


def _files(home: Home, one: Standing) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the folder of an agent: how bad, what, and what to do about it."""
    if has_state(one):
        with Agent(home, one.agent) as agent:
            lacks = [name_of(agent, part) for part in missing(home, agent)]
            if lacks:
                yield "warning", f"missing: {', '.join(lacks)}", "missing"
            notes = home.document(agent.key("notes")).read()
            if notes is not None and not notes.data.strip():
                yield "warning", "memory.md is empty", "empty"
    if one.report.state == "unreadable":
        yield "broken", f"{REPORT} is unreadable: {one.report.detail}", "unreadable"
    for what in one.lost:
        yield "broken", what, "lost"


def _conduct(one: Standing) -> Iterator[tuple[str, str, str]]:
    """What is wrong with what an agent does.  That its last task failed is for `status` to tell."""
    for session in one.crashed:
        role = f" as {session['role']}" if session["role"] else ""
        yield "warning", f"session {session['session_id']}{role} crashed", "crashed"
    if one.report.state == "stale":
        yield "warning", f"stale: {one.report.detail}", "stale"
    note = one.complaint
    if "in the future" in note or (one.report.age or 0.0) < -CLOCKS_DIFFER:
        yield "warning", note or f"{REPORT} is from the future", "clock"
    elif note.startswith("offline while"):
        yield "warning", note, "silent"
    if one.blocked_by:
        yield "warning", f"blocked by {one.blocked_by}", "blocked"
    for task, reason in one.parked:
        yield "warning", f"{task} is parked: {reason}", "parked"

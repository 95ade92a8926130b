"""The verbs with which people step in."""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from typing import Annotated, Literal

from holdfast.errors import StorageError, UsageError
from holdfast.jobs import history, steward
from holdfast.jobs.job import Job
from holdfast.jobs.packing import check_kept
from holdfast.jobs.place import put_back
from holdfast.jobs.runner import account_of
from holdfast.jobs.spec import check_amount
from holdfast.jobs.state import check
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change
from holdfast.ops.jobs import Id, details, held, opened, put_in_line, workspace_of
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.text import duration

Decision = Literal["continue", "halt", "approve", "reject", "answer"]
Reason = Annotated[str | None, Arg("Why, in a line")]


@example('holdfast job steward hello continue --guidance "Use the other port"')
def decide(
    call: Context,
    id: Annotated[str, Arg("Which job", positional=True)],
    decision: Annotated[Decision, Arg("What to do", positional=True)],
    *,
    guidance: Annotated[str | None, Arg("What the agents are told with it", or_file=True)] = None,
    shown: Annotated[
        str | None, Arg("The hash of what was shown; refused if that has changed", metavar="HASH")
    ] = None,
    by: Annotated[str | None, Arg("Who decides", metavar="NAME")] = None,
) -> Change:
    """continue and halt answer a worker that is stuck, approve and reject a phase that waits for
    approval; answer is continue with an answer to the question.
    """
    if decision in ("answer", "reject") and not guidance:
        raise UsageError(f"{decision} without a word", hint="say --guidance TEXT")
    call.check_person()
    with opened(call, id, change=True) as job:
        _DECIDE.get(decision, steward.go_on)(job, guidance, by, shown)
        return _done(call, job, decision)


_DECIDE = {"halt": steward.halt, "approve": steward.approve, "reject": steward.reject}


@example("holdfast job suspend hello")
def suspend(call: Context, id: Id = None, *, reason: Reason = None) -> Change:
    """A model call in flight is not ended."""
    with opened(call, id, change=True) as job:
        steward.suspend(job, reason)
        return _done(call, job, "suspend")


@example("holdfast job resume hello")
def resume(
    call: Context,
    id: Id = None,
    *,
    max_cost: Annotated[float | None, Arg("What it may spend from now on, in all, in USD")] = None,
    max_time: Annotated[
        str | None, Arg("What it may take from now on, in all: 2h", metavar="D")
    ] = None,
    max_iterations: Annotated[int | None, Arg("How many calls it may make in all")] = None,
) -> Change:
    call.check_person()
    with opened(call, id, change=True) as job:
        steward.resume(
            job,
            max_cost=check_amount("--max-cost", max_cost),
            max_seconds=None if max_time is None else duration(max_time),
            max_iterations=max_iterations,
        )
        return _done(call, job, "resume")


@example("holdfast job cancel hello")
def cancel(
    call: Context, id: Id = None, *, reason: Reason = None, dry_run: DryRun = False
) -> Change:
    """A model call in flight is ended too."""
    with opened(call, id, change=not dry_run, blind=reason is None) as job:
        runs = job.holder()
        if dry_run:
            check(job.state(), "cancel")
            ends = f" and end process {runs.owner.pid}" if runs is not None else ""
            return Change(job.name, False, f"would cancel {job.name}{ends}", dry_run=True)
        asked = job.state()["call"] is not None
        steward.cancel(job, reason)
        if asked:
            with closing(account_of(job)) as account:
                account.settle()
        # On another host that number is another process; its runner reads that it is cancelled.
        if runs is not None and runs.owner.pid != os.getpid() and job.home.alive(runs.owner):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(runs.owner.pid, signal.SIGTERM)
        return _done(call, job, "cancel")


@example("holdfast job rewind hello --phase 0")
def rewind(
    call: Context,
    id: Id = None,
    *,
    phase: Annotated[
        str | None, Arg("To the phase of this name, or with this number, from 0", metavar="PHASE")
    ] = None,
    point: Annotated[
        str | None, Arg("To this recovery point, with its files", metavar="ID")
    ] = None,
    start: Annotated[bool, Arg("To the start; cost and time are counted anew")] = False,
    dry_run: DryRun = False,
) -> Change:
    """The history keeps every call."""
    if (phase is None) + (point is None) + (not start) == 3 or (
        point and (start or phase is not None)
    ):
        raise UsageError("where to?", hint="one of --phase PHASE, --point ID and --start")
    with opened(call, id, change=not dry_run) as job:
        line = steward.rewind(job, phase=phase, point=point, start=start, dry_run=dry_run)
        if dry_run:
            return Change(job.name, False, f"would go {line['reason']}", line, dry_run=True)
        files = "the files as they are"
        if line.get("tree") is not None:
            done = put_back(job, workspace_of(job))
            files = "the files of then" + ("" if done else " when its runner goes on")
        return _done(call, job, f"rewind, with {files}")


@example("holdfast job checkpoint hello before-lunch")
def checkpoint(
    call: Context,
    id: Annotated[str, Arg("Which job", positional=True)],
    name: Annotated[str, Arg("What to call the recovery point", positional=True)],
    *,
    description: Annotated[str | None, Arg("What it is")] = None,
) -> Change:
    with opened(call, id, change=True) as job:
        if job.state()["status"] == "RUNNING":
            job.own(f"checkpoint of {job.name}")  # Busy: files that change cannot be kept
        steward.check_checkpoint(job.state(), name)
        check_kept(job)
        workspace = workspace_of(job)
        workspace.make()
        if not put_back(job, workspace):
            job.own(f"checkpoint of {job.name}")  # likewise
        tree = workspace.snapshot(f"checkpoint {name}")
        steward.checkpoint(job, name, description, tree)
        return _done(call, job, f"checkpoint {name}")


def _done(call: Context, job: Job, what: str) -> Change:
    job.conceal()
    state = job.state()
    try:
        put_in_line(call, job)
        history.show(job)
    except StorageError as error:
        # It is decided and on record: who is told that it failed would decide again.
        call.warn(f"the queue or jobHistory.json is behind: {error.message}")
    now = held(state)
    if state["suspending"] and state["status"] == "RUNNING":
        now = "RUNNING; it is suspended when the call has ended"
    return Change(job.name, True, f"{what}: {job.name} is {now}", details(job))

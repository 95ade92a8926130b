"""The verbs that have agents asked, and that derive again what came of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Annotated

from holdfast.codec import Record
from holdfast.contracts.job_states import FINAL
from holdfast.errors import HoldfastError, recorded
from holdfast.jobs import history
from holdfast.jobs.job import RUN, Job
from holdfast.jobs.packing import check_kept
from holdfast.jobs.request import model_request, prompt_of
from holdfast.jobs.runner import Runner, Watch, asking_of, check_length, is_ready
from holdfast.jobs.state import phase_of, refusal, spec_of
from holdfast.jobs.steward import activate, check_activates
from holdfast.jobs.verdict import Call, given, verdict_on
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Show
from holdfast.ops.job_damage import warn_of_damage
from holdfast.ops.job_watch import watching
from holdfast.ops.jobs import (
    Id,
    details,
    held,
    indented,
    opened,
    put_in_line,
    queue_of,
    workspace_of,
)
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun

_STEPS = ("DRAFT", "PENDING", "REVIEWING", "RUNNING")
"""RUNNING is refused by who runs it, and gone on with if he is dead."""


@example("holdfast job run hello")
def run(
    call: Context,
    id: Annotated[
        str | None, Arg("Which job; else the first in the queue", positional=True)
    ] = None,
) -> Show | Change:
    """Shows each call as it happens. Exits with 0 if the job succeeded, 1 if it waits for a
    decision or was cancelled, 5 if another process runs it.
    """
    if id is None:
        return _run_next(call)
    return _run(call, id)


def _run_next(call: Context) -> Show | Change:
    """Run the first of the queue that can be; one that cannot is told, and keeps its place."""
    with queue_of(call) as queue:
        waiting = queue.waiting()
    if not waiting:
        detail = "no job waits in the queue; `holdfast job run ID` runs one that is not in it"
        return Change("queue", applied=False, detail=detail)
    first: HoldfastError | None = None
    for name in waiting:
        before = _calls_of(call, name)
        try:
            return _run(call, name)
        except HoldfastError as error:
            if _calls_of(call, name) != before:
                raise
            first = first or error
            call.warn(f"{name} could not be run: {error.message}")
    assert first is not None
    raise first


def _calls_of(call: Context, name: str) -> int:
    with Job(call.home(), name, call.layout) as job:
        return job.state()["sequence"]


def _run(call: Context, id: str) -> Show | Change:
    with opened(call, id, change=True) as job:
        warn_of_damage(call, job)
        state = job.state()
        if state["status"] in FINAL:
            _leave(call, job)  # whoever took it there may have died before he did
            detail = f"{job.name} is already in terminal state {state['status']}"
            return Change(job.name, False, detail, exit_code=_exit(state))
        with running(call, job) as runner:
            runner.run()
        return _ended(job)


@example("holdfast job step hello --dry-run")
def step(
    call: Context,
    id: Id = None,
    *,
    response: Annotated[
        str | None, Arg("Take this for the answer instead of asking", or_file=True, bare_file=True)
    ] = None,
    dry_run: DryRun = False,
) -> Show | Change:
    """--response FILE reads the reply from a file or a pipe, - from standard input. With --dry-run
    the prompt is shown, or the state that the reply would lead to; nothing is changed.
    """
    check_length(response or "")
    with opened(call, id, change=not dry_run) as job:
        if dry_run:
            job.reveal()
            return _rehearsed(call, job, response)
        state = job.state()
        if state["status"] not in _STEPS or state["hold"] is not None:
            raise refusal(state, "step")
        with running(call, job) as runner:
            runner.step() if response is None else runner.respond(response)
        return _ended(job, one=True)


@contextmanager
def running(call: Context, job: Job, watch: Watch | None = None) -> Generator[Runner]:
    """A runner that has the job's lease; a draft is activated first."""
    if job.state()["status"] == "DRAFT":
        check_activates(job.state())
    with _cancellable(job), watching(call, watch) as steps:
        job.own(f"{RUN} {job.name}")
        try:
            check_kept(job)
            workspace, state = workspace_of(job), job.state()
            known = () if state["status"] == "DRAFT" else workspace.notes
            workspace.make()
            for note in workspace.notes:
                if note not in known:
                    call.warn(note)
            runner = Runner(job, workspace, watch=steps)
            closing = suppress(HoldfastError)  # the first error says what was not done
            try:
                if state["status"] == "DRAFT":
                    runner.models.check(spec_of(state))
                    activate(job)
                try:
                    yield runner
                finally:
                    _leave(call, job)
                how_far = f"`holdfast job show {job.name}` tells how far it came"
                closing = recorded("what the job did", how_far)
            finally:
                with closing:
                    runner.close()
        finally:
            job.disown()


class _Terminated(KeyboardInterrupt):
    """Somebody asked us to end, as `job cancel` does."""


@contextmanager
def _cancellable(job: Job) -> Generator[None]:
    """Let a run end in good order when its job is cancelled; whatever else ends us still does."""

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise _Terminated

    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    )
    if ours:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        if job.state()["status"] != "CANCELED":
            os.kill(os.getpid(), signal.SIGTERM)
            raise
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(call: Context, job: Job) -> None:
    """Bring what others look at into line with the history: the queue, and the views."""
    put_in_line(call, job, left=True)
    job.catch_up()
    history.show(job)
    if len(job.log.segments()) > 1:
        job.log.archive()


def _ended(job: Job, *, one: bool = False) -> Show:
    """How a job was left, and what a person would type now."""
    job.conceal()  # what is printed ends up in the logs of whoever runs it
    shown = details(job)
    lines = [f"{job.name} is {held(shown)}"]
    if shown["why"]:
        lines.append(f"why: {indented(shown['why'])}")
    lines += [f"{'or' if at else 'next'}: {each}" for at, each in enumerate(shown["next"])]
    return Show(shown, text="\n".join(lines) + "\n", exit_code=_exit(job.state(), one=one))


def _exit(state: Record, *, one: bool = False) -> int:
    if state["status"] == "SUCCESS" or (one and is_ready(state)):
        return 0
    return ATTENTION


def _rehearsed(call: Context, job: Job, response: str | None) -> Show:
    """What would be asked, or where an answer would lead."""
    state = job.state()
    if state["status"] not in ("DRAFT", "PENDING", "REVIEWING") or state["hold"] is not None:
        raise refusal(state, "step")
    phase, ref = phase_of(state), spec_of(state).model_of(phase_of(state)) or ""
    workspace = workspace_of(job)
    asked = asking_of(state, ref, workspace)
    prompt = prompt_of(model_request(asked, phase, timeout=1.0, ordinal=0))
    before = "PENDING" if state["status"] == "DRAFT" else state["status"]
    about: Record = {"job": job.name, "from": before, "phase": phase.name, "model": ref}
    if response is None:
        data = {**about, "request": asked.request.value(), "prompt": prompt}
        return Show(data, text=f"{prompt}\n")
    one = Call(state["sequence"], phase.model_copy(update={"gates": []}), ref, before, None, prompt)
    verdict = verdict_on(one, given(response), state, workspace, call.clock)
    line = verdict.line(state, state["sequence"], "")
    data = {**about, "to": line["status"], "action": line["action"], "hold": line.get("hold")}
    data["violations"] = [each._asdict() for each in [*verdict.violations, *verdict.warnings]]
    said = [f"{job.name}: {before} → {line['status']} ({line['action']})"]
    if line.get("complaint"):
        said.append(f"  why: {indented(line['complaint'])}")
    said += [f"  refused: {each.reason}" for each in verdict.violations]
    said += [f"  warning: {each.reason}" for each in verdict.warnings]
    if phase.gates:
        said.append("  the gates of the phase were not tried")
    return Show(data, text="\n".join(said) + "\n")

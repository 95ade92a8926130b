"""What all verbs of jobs share: finding the one that is meant, and opening it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, NamedTuple

from holdfast.codec import Record
from holdfast.errors import NotFound, UsageError
from holdfast.jobs.job import Job, check_not_lost, job_id
from holdfast.jobs.packing import packed_in
from holdfast.jobs.place import workspace_of as workspace_of
from holdfast.jobs.queue import Queue, has_history, known
from holdfast.jobs.report import in_words, known_usd, meaning, places, used
from holdfast.jobs.runner import is_ready
from holdfast.jobs.state import phase_of, spec_of
from holdfast.jobs.steward import could, next_commands, shown_now, waits_for
from holdfast.ops.context import Context
from holdfast.ops.parameter import Arg
from holdfast.text import clip, one_line

Id = Annotated[
    str | None, Arg("Which job; else HOLDFAST_JOB_ID, else the one in use", positional=True)
]
Decrypt = Annotated[bool, Arg("Open what is sealed, with the keys at hand")]
ENVIRONMENT = "HOLDFAST_JOB_ID"


@contextmanager
def queue_of(call: Context, *, change: bool = False) -> Generator[Queue]:
    home = call.home_to_change() if change else call.home()
    with Queue(home, call.layout) as queue:
        yield queue


def held(state: Record) -> str:
    """A state, and why the job stays there."""
    return f"{state['status']} (held: {state['hold']})" if state["hold"] else state["status"]


def put_in_line(call: Context, job: Job, *, left: bool = False) -> None:
    """Let the queue have a job that can go on, or was `left` while a model was asked."""
    state = job.state()
    with queue_of(call, change=True) as queue:
        if is_ready(state) or (left and state["status"] == "RUNNING"):
            queue.enqueue(job.name)
        elif state["status"] != "RUNNING":
            queue.dequeue(job.name)


def meant(call: Context, id: str | None) -> str:
    """The job that is meant: said, in the environment, or in use."""
    named = id or (None if call.from_afar else os.environ.get(ENVIRONMENT))
    if named:
        return job_id(named)
    with queue_of(call) as queue:
        current = queue.state()["current_job_id"]
    if current is None:
        what = "no job is named and none is in use"
        raise UsageError(what, hint="name one, or choose it with `holdfast job use ID`")
    return current


@contextmanager
def opened(
    call: Context,
    id: str | None,
    *,
    change: bool = False,
    decrypt: bool = False,
    blind: bool = False,
) -> Generator[Job]:
    """The job that is meant; NotFound if there is none.

    The texts of a sensitive one are open to who changes it, unless that can be done `blind`, and to
    who asks at a terminal.
    """
    if decrypt and call.from_afar:
        what = "what is sealed is opened at a terminal only"
        raise UsageError(what, hint="holdfast job history --decrypt")
    name = meant(call, id)
    home = call.home_to_change() if change else call.home()
    key = call.layout.path("job", name)
    if not has_history(home, key):
        check_not_lost(home, key, name)
        raise NotFound(f"there is no job {name}", hint="`holdfast job list` shows them")
    with Job(home, name, call.layout) as job:
        job.check_exists()
        if (change and not blind) or decrypt:
            job.reveal()
        yield job


def row(job: Job, rank: int | None = None, state: Record | None = None) -> Record:
    """A job in a line."""
    state = job.state() if state is None else state
    spec = spec_of(state)
    runs = job.holder()
    gone = runs is None and is_abandoned(job, state)
    about = shown_now(job)
    hash = about.hash[:16]
    commands = [f"holdfast job run {job.name}"] if gone else next_commands(state, hash)
    return {
        "job": job.name,
        "status": state["status"],
        "hold": state["hold"],
        "meaning": "bad" if gone else meaning(state),
        "in_words": "its runner is gone" if gone else in_words(state),
        "phase": phase_of(state).name if spec.phases else None,
        "calls": state["steps"],
        "cost_usd": known_usd(state),
        "seconds": round(state["seconds"], 3),
        "used": used(state),
        "rank": rank,
        "runner": runs.owner.pid if runs else None,
        "runner_gone": gone,
        "suspending": state["suspending"],
        "waits_for": waits_for(state),
        "why": state["why"],
        "could": could(state),
        "next": commands,
        "shown": hash,
        "changed_files": list(about.changed.files),
        "files_note": about.changed.note,
        "unknown_costs": state["unknown"],
        "description": spec.description or clip(one_line(spec.task), 80),
        "updated_at": state["updated_at"],
    }


class Summary(NamedTuple):
    over: bool
    asks: bool
    """Whether it waits for a decision."""
    running: bool


def summaries(call: Context) -> dict[str, Summary]:
    """Every job, oldest first; a server reads only those that changed."""
    home, layout = call.home(), call.layout

    def summary(name: str) -> Summary:
        with Job(home, name, layout) as job:
            state = job.state()
        status = state["status"]
        asks = waits_for(state) is not None
        return Summary(status in ("SUCCESS", "CANCELED"), asks, status == "RUNNING")

    with Queue(home, layout) as queue:
        listed = call.once("jobs", layout.path("queue"), lambda: [*queue.state()["jobs"]])
    names = known(home, layout, listed)
    logs = [f"{layout.path('job', name)}/history.jsonl" for name in names]
    return {
        name: call.once("job", log, partial(summary, name))
        for name, log in zip(names, logs, strict=True)
    }


def decisions(call: Context) -> int:
    """How many jobs wait for a decision, or have lost their runner."""
    found = 0
    for name, summary in summaries(call).items():
        asks = summary.asks
        if summary.running and not asks:  # no log says whether its runner lives
            with Job(call.home(), name, call.layout) as job:
                state = job.state()
                asks = job.holder() is None and is_abandoned(job, state)
        found += asks
    return found


def is_abandoned(job: Job, state: Record) -> bool:
    """Whether a job that was seen running, and then without a runner, was left by him so."""
    if state["status"] != "RUNNING":
        return False
    # Who ended in good order between the two looks left something else behind.
    now = job.state()
    return now["status"] == "RUNNING" and now["sequence"] == state["sequence"]


def details(job: Job) -> Record:
    """A job with everything that a decision needs."""
    state = job.state()
    spec = spec_of(state)
    return {
        **row(job, state=state),
        "created_at": state["created_at"],
        "task": spec.task,
        "run": state["run"],
        "limits": state["limits"],
        "phases": places(state),
        "call": state["call"] if state["status"] == "RUNNING" else None,
        "former": state["former"],
        "guidance": state["guidance"],
        "attachments": state["attachments"],
        "points": [each["id"] for each in state["points"]],
        "isolation": spec.isolation,
        "workspace": job.workspace_shown(),
        "packed": packed_in(job),
        "origin": state["origin"],
        "spec": state["spec"],
    }


def indented(text: str) -> str:
    """A text of several lines, such as what a gate printed, behind a word."""
    return text.rstrip().replace("\n", "\n    ")

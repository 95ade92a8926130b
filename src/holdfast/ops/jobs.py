"""What all verbs of jobs share: finding the one that is meant, and opening it."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from holdfast.codec import Record
from holdfast.errors import NotFound, UsageError
from holdfast.jobs.job import Job, job_id
from holdfast.jobs.place import workspace_of as workspace_of
from holdfast.jobs.queue import Queue
from holdfast.jobs.state import phase_of, spec_of
from holdfast.jobs.steward import could, shown_hash, waits_for
from holdfast.jobs.timeline import in_words, meaning, places, used
from holdfast.jobs.upkeep import has_history, known
from holdfast.ops.context import Context
from holdfast.ops.parameter import Arg

if TYPE_CHECKING:
    pass

Id = Annotated[
    str | None, Arg("Which job; else HOLDFAST_JOB_ID, else the one in use", positional=True)
]
Decrypt = Annotated[bool, Arg("Open what is sealed, with the keys at hand")]
DryRun = Annotated[bool, Arg("Only say what would be done")]
ENVIRONMENT = "HOLDFAST_JOB_ID"


@contextmanager
def queue_of(call: Context, *, change: bool = False) -> Generator[Queue]:
    home = call.home_to_change() if change else call.home()
    with Queue(home, call.layout) as queue:
        yield queue


def meant(call: Context, id: str | None) -> str:
    """The job that is meant: said, in the environment, or in use."""
    named = id or (None if call.from_afar else os.environ.get(ENVIRONMENT))
    if named:
        return job_id(named)
    with queue_of(call) as queue:
        current = queue.current()
    if current is None:
        raise UsageError(
            "no job is named and none is in use",
            hint="name one, or choose it with `holdfast job use ID`",
        )
    return current


@contextmanager
def opened(
    call: Context, id: str | None, *, change: bool = False, decrypt: bool = False
) -> Generator[Job]:
    """The job that is meant; NotFound if there is none.

    The texts of a sensitive one are open to who changes it, and to who asks at a terminal.
    """
    if decrypt and call.from_afar:
        raise UsageError(
            "what is sealed is opened at a terminal only", hint="holdfast job history --decrypt"
        )
    name = meant(call, id)
    home = call.home_to_change() if change else call.home()
    if not has_history(home, call.layout.path("job", name)):
        raise NotFound(f"there is no job {name}", hint="`holdfast job list` shows them")
    with Job(home, name, call.layout) as job:
        job.check_exists()
        if change or decrypt:
            job.reveal()
        yield job


def names(call: Context) -> list[str]:
    """Every job, oldest first; also one whose maker died before it was listed."""
    return known(call.home(), call.layout)


def row(job: Job, rank: int | None = None) -> Record:
    """A job in a line."""
    state = job.state()
    spec = spec_of(state)
    held = job.holder()
    return {
        "job": job.name,
        "status": state["status"],
        "hold": state["hold"],
        "meaning": meaning(state),
        "in_words": in_words(state),
        "phase": phase_of(state).name if spec.phases else None,
        "calls": state["steps"],
        "cost_usd": round(state["cost_usd"], 6),
        "seconds": round(state["seconds"], 3),
        "used": used(state),
        "rank": rank,
        "runner": held.owner.pid if held else None,
        "waits_for": waits_for(state),
        "could": could(state),
        "shown": shown_hash(job)[:16],
        "description": spec.description or _short(spec.task),
        "updated_at": state["updated_at"],
    }


def details(job: Job) -> Record:
    """A job with everything that a decision needs."""
    state = job.state()
    spec = spec_of(state)
    return {
        **row(job),
        "created_at": state["created_at"],
        "task": spec.task,
        "why": state["why"],
        "run": state["run"],
        "limits": state["limits"],
        "unknown_costs": state["unknown"],
        "phases": places(state),
        "call": state["call"] if state["status"] == "RUNNING" else None,
        "former": state["former"],
        "guidance": state["guidance"],
        "attachments": state["attachments"],
        "points": [each["id"] for each in state["points"]],
        "isolation": spec.isolation,
        "workspace": job.workspace_shown(),
        "origin": state["origin"],
        "spec": state["spec"],
    }


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else f"{line[:79]}…"


def indented(text: str) -> str:
    """A text of several lines, such as what a gate printed, behind a word."""
    return text.rstrip().replace("\n", "\n    ")

"""Re-run a job from call N in a new job, optionally with another model.

The new job begins with the lines of the old one, so that it is in the same state.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record
from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import UsageError, typed
from holdfast.jobs.job import Job
from holdfast.jobs.packing import has_files
from holdfast.jobs.place import workspace_of
from holdfast.jobs.state import FINAL, fold, initial, spec_of
from holdfast.layout import JOB_FILES
from holdfast.store.primitives import Line
from holdfast.text import plural
from holdfast.workspace.attachment import ATTACHMENTS
from holdfast.workspace.safedir import Folder
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.jobs.job import State

_LOGS_OWN = ("seq", "hash", "ts", "fence")
_OLD_ONES = ("tree", "restore", "charge")
"""Trees belong to the repository of the job that made them; its calls are paid for."""


class Beginning(NamedTuple):
    """What a new job starts with."""

    spec: JobSpec
    lines: list[Record]
    """Those of the old job after the first, which says what is wanted."""
    state: State
    """That they leave the job in."""
    tree: str | None
    """The files that go with it, as the old job kept them; None if nothing was kept."""


def beginning_of(job: Job, after: int, model: str | None) -> Beginning:
    """The job up to the end of so many calls; nothing is written."""
    lines, tree, called = _lines(job, after)
    state = initial()
    for line in lines:
        state = fold(state, Line(None, None, line, "", 0, 0))
    if not called and has_files(job):
        tree = job.state()["restore"] or workspace_of(job).snapshot()
    spec = spec_of(state)
    if model is not None:
        value = spec.value()
        phases = [{**each, "model": model} for each in value["phases"]]
        spec = JobSpec.model_validate({**value, "phases": phases})
    # The branch that it began with may have moved on since.
    spec = spec.model_copy(update={"base": workspace_of(job).base or spec.base})
    rest = [each for each in lines if each.get("event") not in ("new", "set")]
    return Beginning(spec, rest, state, tree)


def _lines(job: Job, after: int) -> tuple[list[Record], str | None, bool]:
    """The lines, the files kept last, and whether a call was made after that."""
    lines: list[Record] = []
    ended, tree = 0, None
    reached = after == 0
    for line in job.lines():
        record = {name: each for name, each in line.record.items() if name not in _LOGS_OWN}
        if reached and record.get("event") in ("call", "part", "judged", "reply"):
            if record.get("event") == "call":
                return lines, record.get("tree") or tree, True
            continue
        if reached and record.get("event") == "move" and record.get("status") in FINAL:
            break
        kept = {name: each for name, each in record.items() if name not in _OLD_ONES}
        if isinstance(point := kept.get("point"), dict):
            kept["point"] = {**point, "can_resume_from": False}
        lines.append(kept | {"copied_from": line.record.get("ts")})
        tree = record.get("tree") or tree
        if record.get("event") == "judged":
            ended += 1
            reached = ended >= after
    if ended < after:
        raise UsageError(
            f"{job.name} has {plural(ended, 'call')} that ended, not {after}",
            hint=f"--from 0 to --from {ended}",
        )
    return lines, tree, False


@contextmanager
def files_in_place(job: Job, begun: Beginning, name: str, key: str) -> Generator[Workspace]:
    """The files of a job that does not exist yet; removed again if it does not come to be.

    A kill in between leaves a folder without a job, and never a job without its files.
    """
    spec, above = begun.spec, f"{job.home.path}/{key}"
    workspace = Workspace(
        f"{above}/{JOB_FILES}", spec.isolation, job=name, source=spec.source, base=spec.base
    )
    try:
        given: dict[str, str] = {}
        if spec.isolation != "none" and has_files(job):  # the attachments that it still has
            there = workspace_of(job).path
            with Folder(there) as files:
                inside = [each for each in begun.state["attachments"] if files.kind(each) == "file"]
            given = {os.path.basename(each): f"{there}/{each}" for each in inside}
        workspace.make(given)
        if begun.tree is not None:
            workspace_of(job).export(begun.tree, workspace.path)
        for attached, path in given.items():
            if not os.path.lexists(f"{workspace.path}/{ATTACHMENTS}/{attached}"):
                workspace.attach(attached, path)
        yield workspace
    except BaseException:
        with typed("removing the files of no job", above), suppress(FileNotFoundError):
            with Folder(above) as files:
                files.empty()
            os.rmdir(above)  # noqa: TID251 - scratch: there is no job
        raise


def begin_again(job: Job, new: Job, begun: Beginning, origin: Record) -> None:
    """Write the beginning of a new job."""

    def decide(state: State) -> Sequence[Record]:
        if state["job_id"]:
            raise UsageError(f"there is a job {new.name} already", hint="try again")
        made: Record = {"event": "new", "job_id": new.name, "created_at": new.now()}
        made |= {"spec": begun.spec.value(), "origin": {"replayed_from": job.name, **origin}}
        return [made, *begun.lines]

    new.decide(decide)

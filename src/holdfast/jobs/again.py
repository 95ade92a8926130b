"""The rest of a job once more, behind some of its calls, perhaps with another model.

The new job begins with the lines of the old one, so that it is in the very state in which the old
one was; from there on it goes its own way.
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
from holdfast.jobs.verdict import many
from holdfast.layout import JOB_FILES
from holdfast.store.primitives import Line
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
    """The old ones behind the first, which says what is wanted."""
    state: State
    """That they leave the job in."""
    tree: str | None
    """The files that go with it, as the old job kept them; None if nothing was kept."""


def beginning_of(job: Job, behind: int, model: str | None) -> Beginning:
    """The job up to the end of so many calls; nothing is written."""
    lines, tree, asked_on = _lines(job, behind)
    state = initial()
    for line in lines:
        state = fold(state, Line(None, None, line, "", 0, 0))
    if not asked_on and has_files(job):
        tree = job.state()["restore"] or workspace_of(job).snapshot()
    # The branch that it began with may have moved on since.
    base = workspace_of(job).base
    spec = _with_model(spec_of(state), model)
    spec = spec.model_copy(update={"base": base or spec.base})
    rest = [each for each in lines if each.get("event") not in ("new", "set")]
    return Beginning(spec, rest, state, tree)


def _lines(job: Job, behind: int) -> tuple[list[Record], str | None, bool]:
    """The lines, the files kept last, and whether somebody was asked after that."""
    lines: list[Record] = []
    ended, tree = 0, None
    reached = behind == 0
    for line in job.lines():
        record = {name: each for name, each in line.record.items() if name not in _LOGS_OWN}
        if reached and record.get("event") in ("call", "part", "judged", "reply"):
            if record.get("event") == "call":
                return lines, record.get("tree") or tree, True
            continue
        if reached and record.get("event") == "move" and record.get("status") in FINAL:
            break
        lines.append(_taken_over(record) | {"copied_from": line.record.get("ts")})
        tree = record.get("tree") or tree
        if record.get("event") == "judged":
            ended += 1
            reached = ended >= behind
    if ended < behind:
        raise UsageError(
            f"{job.name} has {many(ended, 'call')} that ended, not {behind}",
            hint=f"--from 0 to --from {ended}",
        )
    return lines, tree, False


def _taken_over(record: Record) -> Record:
    kept = {name: each for name, each in record.items() if name not in _OLD_ONES}
    if isinstance(point := kept.get("point"), dict):
        kept["point"] = {**point, "can_resume_from": False}
    return kept


def _with_model(spec: JobSpec, model: str | None) -> JobSpec:
    if model is None:
        return spec
    value = spec.value()
    value["phases"] = [{**each, "model": model} for each in value["phases"]]
    return JobSpec.model_validate(value)


# --- the new job ----------------------------------------------------------------------------


@contextmanager
def files_in_place(job: Job, begun: Beginning, name: str, key: str) -> Generator[Workspace]:
    """The files of a job that is not there yet; they are gone again if it does not come to be.

    Whoever is killed meanwhile leaves a folder without a job, and never a job without its files.
    """
    spec, above = begun.spec, f"{job.home.path}/{key}"
    workspace = Workspace(
        f"{above}/{JOB_FILES}", spec.isolation, job=name, source=spec.source, base=spec.base
    )
    try:
        given = _attachments(job, begun)
        workspace.make(given)
        if begun.tree is not None:
            workspace_of(job).export(begun.tree, workspace.path)
        for name, path in given.items():
            if not os.path.lexists(f"{workspace.path}/{ATTACHMENTS}/{name}"):
                workspace.attach(name, path)
        yield workspace
    except BaseException:
        _remove(above)
        raise


def _attachments(job: Job, begun: Beginning) -> dict[str, str]:
    """What the old job was given and still has, by name: no change of the new one's."""
    if begun.spec.isolation == "none" or not has_files(job):
        return {}
    there = workspace_of(job).path
    with Folder(there) as files:
        inside: list[str] = [
            each for each in begun.state["attachments"] if files.kind(each) == "file"
        ]
    return {os.path.basename(each): f"{there}/{each}" for each in inside}


def _remove(above: str) -> None:
    with typed("removing the files of no job", above), suppress(FileNotFoundError):
        with Folder(above) as files:
            files.empty()
        os.rmdir(above)  # noqa: TID251 - scratch: there is no job


def begin_again(job: Job, new: Job, begun: Beginning, origin: Record) -> None:
    """Write the beginning of a new job."""

    def decide(state: State) -> Sequence[Record]:
        if state["job_id"]:
            raise UsageError(f"there is a job {new.name} already", hint="try again")
        made: Record = {"event": "new", "job_id": new.name, "created_at": new.now()}
        made |= {"spec": begun.spec.value(), "origin": {"replayed_from": job.name, **origin}}
        return [made, *begun.lines]

    new.decide(decide)

"""The rest of a job once more, behind some of its calls, perhaps with another model.

The new job begins with the lines of the old one, so that it is in the very state in which the old
one was; from there on it goes its own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.codec import Record
from holdfast.contracts.job_spec import JobSpec
from holdfast.errors import UsageError
from holdfast.jobs.job import Job
from holdfast.jobs.state import FINAL

if TYPE_CHECKING:
    from holdfast.jobs.job import State

_LOGS_OWN = ("seq", "hash", "ts", "fence")


def begin_again(job: Job, new: Job, behind: int, model: str | None, base: str | None) -> str | None:
    """Write the beginning of `new`; the tree of the files that it goes on with, if any.

    `base` is the commit that the old one began with: its branch may have moved on since.
    """
    lines, tree = _beginning(job, behind)
    first, *rest = lines
    spec = _with_model(JobSpec.model_validate(first["spec"]), model)
    spec = spec.model_copy(update={"base": base or spec.base})
    origin = {"replayed_from": job.name, "calls": behind, "model": model}
    made: Record = {**first, "job_id": new.name, "spec": spec.value(), "origin": origin}

    def decide(state: State) -> Sequence[Record]:
        if state["job_id"]:
            raise UsageError(f"there is a job {new.name} already", hint="try again")
        return [{**made, "created_at": new.now()}, *rest]

    new.decide(decide)
    return tree


def _beginning(job: Job, behind: int) -> tuple[list[Record], str | None]:
    """The lines up to the end of a call, and the files at that point."""
    lines: list[Record] = []
    ended, tree = 0, None
    reached = behind == 0
    for line in job.lines():
        record = {name: each for name, each in line.record.items() if name not in _LOGS_OWN}
        if reached and record.get("event") in ("call", "part", "judged", "reply"):
            if record.get("event") == "call":
                tree = record.get("tree") or tree
                break
            continue
        if reached and record.get("event") == "move" and record.get("status") in FINAL:
            break
        lines.append(_without_files(record) | {"copied_from": line.record.get("ts")})
        tree = record.get("tree") or tree
        if record.get("event") == "judged":
            ended += 1
            reached = ended >= behind
    if ended < behind:
        raise UsageError(
            f"{job.name} has {ended} calls that ended, not {behind}",
            hint=f"--from 0 to --from {ended}",
        )
    return lines, tree


def _without_files(record: Record) -> Record:
    """Trees belong to the repository of the job that made them."""
    return {name: each for name, each in record.items() if name not in ("tree", "restore")}


def _with_model(spec: JobSpec, model: str | None) -> JobSpec:
    if model is None:
        return spec
    value = spec.value()
    value["phases"] = [{**each, "model": model} for each in value["phases"]]
    return JobSpec.model_validate(value)

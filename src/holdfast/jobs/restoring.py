"""Files that the history says are to be what they were, put back by whoever comes first.

A line says so before anything is touched, so that a kill in between is made good: by the next call
of an agent, or by whoever wants to keep, compare or take over the files before that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.errors import Busy, StorageError

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.workspace.workspace import Workspace


def put_back(job: Job, workspace: Workspace) -> bool:
    """Put back what is to be put back; whether nothing is left to be.

    Somebody who runs the job does it himself before he asks, and must not have it done behind him.
    """
    if job.state()["restore"] is None:
        return True
    if job.fence:
        return _put_back(job, workspace)
    try:
        job.own(f"putting back the files of {job.name}")
    except Busy:
        return False
    try:
        return _put_back(job, workspace)
    finally:
        job.disown()


def _put_back(job: Job, workspace: Workspace) -> bool:
    tree: str | None = job.state()["restore"]
    if tree is not None:
        with suppress(StorageError):
            # What somebody changed by hand is not lost over it.
            workspace.snapshot("before files were put back")
        workspace.restore(tree)
        job.decide(
            lambda now: (
                [{"event": "note", "reason": "the files are put back", "tree": tree}]
                if now["restore"] == tree
                else []
            )
        )
    return True

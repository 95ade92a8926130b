"""Where the files of a job are.

They lie in a hidden folder, since whatever stands in the visible ones is taken for ours: an agent's
`.draft.tmp` is no temporary that a writer of the store left behind.  For people there is a link,
`jobs/<id>/workspace`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from holdfast import keys
from holdfast.errors import typed
from holdfast.layout import CACHE, JOB_FILES, JOB_LINK
from holdfast.store.home import MASK_KEY
from holdfast.workspace.workspace import Workspace

if TYPE_CHECKING:
    from holdfast.jobs.job import Job


def workspace_of(job: Job) -> Workspace:
    """The files of a job; nothing is made yet but the folder for them."""
    spec = job.spec
    above = f"{job.home.path}/{job.key}"
    if spec.isolation != "none" and os.path.isdir(above):
        _make(above)
    return Workspace(
        f"{above}/{JOB_FILES}",
        spec.isolation,
        job=job.name,
        source=spec.source,
        base=spec.base,
        hidden=partial(_authority, job),
    )


def _authority(job: Job) -> list[str]:
    """What gives its reader the rights of the user: the dashboard's token and all keys.

    Folders where there is one: a file that is replaced while a program runs loses its cover.
    """
    job.home.secret()  # made now: what is not there yet cannot be covered
    found = [f"{job.home.path}/{CACHE}", f"{job.home.path}/{MASK_KEY}", keys.folder()]
    where = keys.kept(job.home.clock).where
    return [*found, where] if os.path.isabs(where) else found


def _make(above: str) -> None:
    with typed("making the folder for the job's files", above):
        with suppress(FileExistsError, PermissionError):
            os.mkdir(f"{above}/{JOB_FILES}", 0o700)  # noqa: TID251 - scratch
        with suppress(FileExistsError, PermissionError):
            os.symlink(f"{JOB_FILES}/{JOB_LINK}", f"{above}/{JOB_LINK}")  # noqa: TID251 - for people

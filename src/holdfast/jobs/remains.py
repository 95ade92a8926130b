"""Processes of a job: found by its name when whoever ran it is gone, and ended.

Nothing is written down for it.  All that is started for a job has a name in its environment that
follows from the job alone, and its control group is called after that.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.proc.around import Around
from holdfast.proc.survivors import end_around

if TYPE_CHECKING:
    from holdfast.jobs.job import Job


def around(job: Job) -> Around:
    """What is started in its block belongs to the job."""
    return Around(_name(job))


def end_remains(job: Job) -> str:
    """End what a runner that is gone left running; what to tell of it, empty if there was nothing.

    Busy if some of it does not end: nobody may go on with the job beside it.
    """
    count = end_around(_name(job))
    if count == 0:
        return ""
    if count == 1:
        return "1 process of it still ran and was ended"
    return f"{count} processes of it still ran and were ended"


def _name(job: Job) -> str:
    place = f"{job.home.path}\0{job.key}"
    return f"job-{sha256(place.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

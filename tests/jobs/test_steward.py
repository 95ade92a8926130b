"""What people decide, and what they cannot."""

from __future__ import annotations

from typing import Any

from holdfast.jobs.job import Job
from holdfast.store.home import Home
from tests.jobs.desk import Desk


def folded(desk: Desk, id: str = "demo") -> dict[str, Any]:
    """The state of a job, all of it."""
    with Home.open(str(desk.home)) as home, Job(home, id) as job:
        return job.state()

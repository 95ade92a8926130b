"""The files of a job that waits for a decision, beside those that its last call left.

Who decides has looked at the files, which are not part of the history: whatever somebody made of
them since belongs to what is decided on.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record, encode
from holdfast.errors import HoldfastError
from holdfast.jobs.doable import waits_for_approval
from holdfast.jobs.state import capped
from holdfast.layout import JOB_FILES

if TYPE_CHECKING:
    from holdfast.jobs.job import Job
    from holdfast.jobs.state import Job as JobState


class Touched(NamedTuple):
    """What became of the files, where there is something to compare them with."""

    mark: str | None = None
    """Names what they are now; None if they are what the history says, or it says nothing."""
    files: tuple[str, ...] = ()
    """Those that somebody changed since the agent ended."""
    note: str | None = None
    """Why they are not what they were, where that is no matter of single files."""

    @property
    def after_the_agent(self) -> bool:
        return bool(self.files or self.note)

    @property
    def told(self) -> str:
        if self.note is not None:
            return self.note
        some = ", ".join(self.files[:5])
        more = f" and {len(self.files) - 5} more" if len(self.files) > 5 else ""
        return f"{some}{more} changed since the agent ended" if self.files else ""


def touched(job: Job, state: JobState) -> Touched:
    """Look at the files, if a decision waits that is about them."""
    approval = waits_for_approval(state)
    tree = _left_by(state) if approval else _begun_with(state)
    # Who runs a job with a workspace of his own making has its files elsewhere, and we none.
    if tree is None or not os.path.isdir(f"{job.home.path}/{job.key}/{JOB_FILES}"):
        return Touched()
    from holdfast.jobs.place import workspace_of  # noqa: PLC0415 - only where a decision waits
    from holdfast.workspace.snapshots import difference, printable  # noqa: PLC0415 - likewise

    try:
        workspace = workspace_of(job)
        if workspace.isolation == "none":
            return Touched()
        if os.path.islink(workspace.path) or not os.path.isdir(workspace.path):
            return Touched("gone", note="the workspace is gone; it will be as it was last kept")
        former, now = workspace.since(tree)
    except HoldfastError as error:
        return Touched("unknown", note=f"the files could not be compared: {error.message}")
    differ = {path: each for path, each in difference(former, now).items() if path[-1] != "/"}
    if not differ:
        return Touched()
    names = sorted((printable(path), path) for path in differ)
    mark = sha256()
    for name, path in names:
        mark.update(encode([name, *(differ[path] or ("gone",))]) + b"\n")
    # Of a job that is stuck it is not on record how the agent left the files.
    found = tuple(capped([name for name, _ in names])) if approval else ()
    return Touched(mark.hexdigest(), found)


def _left_by(state: JobState) -> str | None:
    """The snapshot behind the call that is to be approved; points made by hand come after it."""
    last = state["sequence"] - 1
    points: list[Record] = state["points"]
    return next((each.get("tree") for each in points if each.get("sequence") == last), None)


def _begun_with(state: JobState) -> str | None:
    asks = state["status"] == "INTERVENTION_REQUIRED" and state["restore"] is None
    return state["tree"] if asks else None

"""What the verbs of jobs say where a history is not what was written."""

from __future__ import annotations

import os
from contextlib import suppress

from holdfast.codec import Record
from holdfast.jobs.job import Job, is_lost
from holdfast.jobs.queue import damage, folders, spoilt_views
from holdfast.ops.context import Context

DAMAGED = "DAMAGED"
MOST_VERIFIED = 16 << 20
"""Bytes of a history that are verified for a page, which is asked for again and again: 5 ms a MiB,
beside the 15 that reading it takes."""
_PACKED, _TIMES = ".zst", 10


def looked_for_damage(call: Context, job: Job) -> list[str] | None:
    """Tell what is not as it was written, and return it; None if to look takes too long."""
    if call.from_afar and _length(job) > MOST_VERIFIED:
        return None
    return warn_of_damage(call, job)


def _length(job: Job) -> int:
    """Bytes of a history, or more: how much is in a packed file is not known before it is read."""
    folder, size = os.path.join(job.home.path, job.key), 0
    for name in job.log.segments():
        for ending, times in (("", 1), (_PACKED, _TIMES)):
            with suppress(OSError):
                size += times * os.path.getsize(os.path.join(folder, name + ending))
    return size


def warn_of_damage(call: Context, job: Job) -> list[str]:
    """Tell that something is left out; each place where it is."""
    found = damage(job)
    if found:
        more = f" and {len(found) - 1} more" if found[1:] else ""
        call.warn(
            f"the history of {job.name} is damaged: {found[0]}{more}; bad lines are left out, "
            f"see `holdfast check` and `holdfast job replay {job.name}`"
        )
    return found


def warn_of_views(call: Context, job: Job) -> None:
    """Tell that files made from the history are not what was made of it."""
    if job.holder() is not None:
        return  # who writes one stamps it first
    for each in spoilt_views(job):
        call.warn(
            f"{each} is not what was written: cut off, or edited by somebody; the history is what "
            "counts, and `holdfast rebuild` makes it anew"
        )


def lost_rows(call: Context, but: set[str]) -> list[Record]:
    """A line for each job whose history is gone."""
    home = call.home()
    names = [each for each in folders(home, call.layout) if each not in but]
    return [_row(each) for each in names if is_lost(home, call.layout.path("job", each))]


def _row(name: str) -> Record:
    """With the fields of every other row: lists and pages look at them without asking."""
    unused = {kind: {"share": None, "level": "green"} for kind in ("cost", "time", "iterations")}
    unknown = "hold phase cost_usd rank runner waits_for why files_note updated_at"
    return {
        **dict.fromkeys(unknown.split()),
        **{"calls": 0, "unknown_costs": 0, "seconds": 0.0, "used": unused},
        **{"runner_gone": False, "suspending": False, "could": [], "changed_files": []},
        **{"job": name, "status": DAMAGED, "meaning": "bad", "in_words": "damaged", "shown": ""},
        "next": ["holdfast check"],
        "description": "its history is damaged or gone: see `holdfast check`",
    }

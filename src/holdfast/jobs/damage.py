"""Whether the history of a job is what was written.

Everybody else reads the lines that are there and leaves out the rest, so that a job can still be
looked at; here is told that something is left out.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from holdfast.calls.sealing import MARK
from holdfast.errors import Corrupt
from holdfast.jobs.reply import TAG
from holdfast.jobs.request import hash_of
from holdfast.jobs.sealed import SPOILT

if TYPE_CHECKING:
    from holdfast.codec import Record
    from holdfast.jobs.job import Job

_BACKUP = "`holdfast check` names every line; compare with a backup"


def damage(job: Job) -> list[str]:
    """Each place where the history is not what was written.

    What a crash left is none: a last line in progress, bytes that no line counts on.
    """
    found = [f"{each.segment}:{each.line}: {each.detail}" for each in job.log.verify().problems]
    if found:
        return found
    # Lines that are gone from the end leave a chain that holds; what is shown had seen them.
    with_stamp = job.home.cell(f"{job.key}/manifest.json")
    try:
        stamp = with_stamp.peek()
    finally:
        with_stamp.close()
    if stamp is None or job.log.contains(stamp.cursor):
        return []
    return [f"{job.log.key}: line {stamp.cursor.seq} was there and is not there any more"]


def spoilt_views(job: Job) -> list[str]:
    """The files made from the history that hold something else, or are gone."""
    found: list[str] = []
    for name in ("manifest.json", "jobHistory.json"):
        with closing(job.home.cell(f"{job.key}/{name}")) as cell:
            stamp = cell.peek()
        if stamp is not None and not stamp.shown:
            found.append(f"{job.key}/{name}")
    return found


def check_undamaged(job: Job) -> None:
    """Corrupt, naming the line, if the history is not what was written; or the part of a prompt."""
    if found := damage(job):
        more = f", and {len(found) - 1} more" if found[1:] else ""
        raise Corrupt(
            f"the history of {job.name} is damaged: {found[0]}{more}",
            hint=_BACKUP,
            path=job.log.key,
        )
    for line in job.lines():
        if line.record.get("event") == "part" and not _is_named_right(job, line.record):
            raise Corrupt(
                f"the history of {job.name} is damaged: {line.segment}: line {line.seq}: "
                f"part {str(line.record.get('part'))[:16]} is another text than its name says",
                hint=_BACKUP,
                path=job.log.key,
            )


def _is_named_right(job: Job, part: Record) -> bool:
    text, name = str(part.get("text")), part.get("part")
    if MARK not in part:
        # Named before its secrets were masked, it has a name that nobody can make again.
        return hash_of(text) == name or TAG.search(text) is not None
    if text == SPOILT:
        return False
    # By another key, or taken over from another job, it was named with a key that is not ours now.
    theirs = part[MARK] != job.seals.ring.current.id or "copied_from" in part
    return theirs or TAG.search(text) is not None or job.seals.ring.digest(text) == name

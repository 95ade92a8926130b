"""The jobs of a home: listing, rebuilding what is shown of them, finding what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from holdfast.calls.sealing import MARK
from holdfast.codec import Record
from holdfast.errors import Corrupt
from holdfast.jobs import history
from holdfast.jobs.job import Job, is_lost
from holdfast.jobs.queue import Queue, folders
from holdfast.jobs.reply import TAG
from holdfast.jobs.request import hash_of
from holdfast.jobs.sealed import SPOILT
from holdfast.layout import HOLDFAST, Layout

if TYPE_CHECKING:
    from holdfast.store.home import Home

_LONG_IN_THE_MAKING = 3600.0
_BACKUP = "`holdfast check` names every line; compare with a backup"


def known(home: Home, layout: Layout = HOLDFAST, listed: Sequence[str] | None = None) -> list[str]:
    """Every job, oldest first; also one whose maker died before it was listed."""
    if listed is None:
        with Queue(home, layout) as queue:
            listed = queue.jobs()
    there = _there(home, layout)
    return [*(each for each in listed if each in there), *sorted(there - set(listed))]


def unlisted(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    with Queue(home, layout) as queue:
        return sorted(_there(home, layout) - set(queue.jobs()))


def list_them(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    """Put those on the list that are not; their names."""
    names = unlisted(home, layout)
    for name in names:
        with Job(home, name, layout) as job, Queue(home, layout) as queue:
            queue.register(name, job.state()["created_at"], use=False)
    return names


def _there(home: Home, layout: Layout) -> set[str]:
    return {name for name in folders(home, layout) if has_history(home, layout.path("job", name))}


def has_history(home: Home, key: str) -> bool:
    with home.opened_dir(key) as directory:
        names = directory.names() if directory is not None else []
    return any(name.startswith("history.") for name in names)


def rebuilt(
    home: Home, layout: Layout = HOLDFAST, *, dry_run: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Rewrite every file that shows jobs; its key, and the names of edited ones that were kept."""
    if not dry_run:
        list_them(home, layout)
    for name in sorted(_there(home, layout)):
        with Job(home, name, layout) as job:
            if not job.exists() and is_lost(home, job.key):
                continue  # what is shown is all that is left of it
            yield f"{job.key}/manifest.json", [] if dry_run else job.rebuild()
            yield f"{job.key}/jobHistory.json", [] if dry_run else history.show(job, anew=True)
    with Queue(home, layout) as queue:
        if queue.log.log.segments():
            yield queue.key, [] if dry_run else queue.log.rebuild()


# --- what is wrong --------------------------------------------------------------------------


class Trouble(NamedTuple):
    job: str
    what: str
    fix: str


def troubles(home: Home, layout: Layout = HOLDFAST) -> Iterator[Trouble]:
    """What a person should look at; a job that waits in the queue is none, however long."""
    there = _there(home, layout)
    for name in unlisted(home, layout):
        fix = "`holdfast doctor --fix` lists it"
        yield Trouble(name, "not listed: whoever made it was ended", fix)
    for name in folders(home, layout):
        lost = is_lost(home, layout.path("job", name))
        if name in there and lost:  # unless the history that is there still says something
            with Job(home, name, layout) as job:
                lost = not job.exists()
        if lost:
            fix = "bring history.jsonl back from a backup; manifest.json shows where the job was"
            yield Trouble(name, "its history is damaged or gone", fix)
        elif name not in there and _is_old(home, layout, name):
            where = f"{home.path}/{layout.path('job', name)}"
            yield Trouble(name, "files without a job: whoever made it was ended", f"remove {where}")
    for name in known(home, layout):
        with Job(home, name, layout) as job:
            state = job.state()
            if job.holder() is not None:
                continue
            if state["status"] == "RUNNING":
                call: Record = state["call"] or {}
                model = f" while {call['model']} was asked" if call else ""
                fix = f"`holdfast job run {name}` goes on, or asks you whether to"
                yield Trouble(name, f"its runner died{model}", fix)
            for key in spoilt_views(job):
                fix = "`holdfast rebuild` makes it anew from the history, which counts"
                yield Trouble(name, f"{key.rpartition('/')[2]} is not what was written", fix)


def _is_old(home: Home, layout: Layout, name: str) -> bool:
    """Whether no process can still be about to fill a folder."""
    with home.opened_dir(layout.above("job")) as directory:
        found = directory.stat(name) if directory is not None else None
    newest = home.clock.now() - _LONG_IN_THE_MAKING
    return found is not None and found.kind == "dir" and found.mtime < newest


# --- damage ---------------------------------------------------------------------------------


def damage(job: Job) -> list[str]:
    """Each place where the history is not what was written; other readers leave bad lines out.

    What a crash left is none: a last line in progress, bytes that no line counts on.
    """
    found = [f"{each.segment}:{each.line}: {each.detail}" for each in job.log.verify().problems]
    if found:
        return found
    # Lines that are gone from the end leave a chain that holds; what is shown had seen them.
    with closing(job.home.cell(f"{job.key}/manifest.json")) as cell:
        stamp = cell.peek()
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
    found = damage(job)
    if not found:
        wrong = (
            f"{line.segment}: line {line.seq}: part {str(line.record.get('part'))[:16]} is another "
            "text than its name says"
            for line in job.lines()
            if line.record.get("event") == "part" and not _is_named_right(job, line.record)
        )
        found = [*islice(wrong, 1)]
    if found:
        more = f", and {len(found) - 1} more" if found[1:] else ""
        what = f"the history of {job.name} is damaged: {found[0]}{more}"
        raise Corrupt(what, hint=_BACKUP, path=job.log.key)


def _is_named_right(job: Job, part: Record) -> bool:
    text, name = str(part.get("text")), part.get("part")
    if MARK not in part:
        # Named before its secrets were masked, it has a name that cannot be made again.
        return hash_of(text) == name or TAG.search(text) is not None
    if text == SPOILT:
        return False
    # By another key, or copied from another job, it was named with a key that is not the current.
    other = part[MARK] != job.seals.ring.current.id or "copied_from" in part
    return other or TAG.search(text) is not None or job.seals.ring.digest(text) == name

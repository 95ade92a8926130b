"""All jobs of a home: which there are, what is shown of them made again, and what is amiss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record
from holdfast.jobs import history
from holdfast.jobs.damage import spoilt_views
from holdfast.jobs.job import Job, is_job_id
from holdfast.jobs.lost import is_lost
from holdfast.jobs.queue import Queue, folders
from holdfast.layout import HOLDFAST, Layout

if TYPE_CHECKING:
    from holdfast.store.home import Home

_LONG_IN_THE_MAKING = 3600.0


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
    with home.opened_dir(layout.above("job")) as directory:
        names = [name for name in directory.names() if is_job_id(name)] if directory else []
    return {name for name in names if has_history(home, layout.path("job", name))}


def _unmade(home: Home, layout: Layout) -> list[str]:
    """Folders in which nothing is told, and that nobody can still be about to fill."""
    there, newest = _there(home, layout), home.clock.now() - _LONG_IN_THE_MAKING
    with home.opened_dir(layout.above("job")) as directory:
        if directory is None:
            return []
        names = sorted(name for name in directory.names() if is_job_id(name) and name not in there)
        found = [(name, directory.stat(name)) for name in names]
    old = [name for name, it in found if it and it.kind == "dir" and it.mtime < newest]
    return [name for name in old if not is_lost(home, layout.path("job", name))]


def _lost(home: Home, layout: Layout) -> list[str]:
    """Jobs whose history is emptied or gone; what was shown of them is still there."""
    there, found = _there(home, layout), list[str]()
    for name in folders(home, layout):
        key = layout.path("job", name)
        if name in there:
            with Job(home, name, layout) as job:
                if job.exists():
                    continue
        if is_lost(home, key):
            found.append(name)
    return found


def has_history(home: Home, key: str) -> bool:
    with home.opened_dir(key) as directory:
        names = directory.names() if directory is not None else []
    return any(name.startswith("history.") for name in names)


# --- shown ----------------------------------------------------------------------------------


def rebuilt(
    home: Home, layout: Layout = HOLDFAST, *, dry_run: bool = False
) -> Iterator[tuple[str, list[str]]]:
    """Make every file anew that shows jobs; its key, and the names of edited ones kept aside."""
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


# --- amiss ----------------------------------------------------------------------------------


class Trouble(NamedTuple):
    job: str
    what: str
    fix: str


def troubles(home: Home, layout: Layout = HOLDFAST) -> Iterator[Trouble]:
    """What somebody should look at; a job that waits in the queue is none, however long."""
    for name in unlisted(home, layout):
        fix = "`holdfast doctor --fix` lists it"
        yield Trouble(name, "not listed: whoever made it was ended", fix)
    for name in _lost(home, layout):
        fix = "bring history.jsonl back from a backup; manifest.json shows where the job was"
        yield Trouble(name, "its history is damaged or gone", fix)
    for name in _unmade(home, layout):
        where = f"{home.path}/{layout.path('job', name)}"
        yield Trouble(name, "files without a job: whoever made it was ended", f"remove {where}")
    for name in known(home, layout):
        with Job(home, name, layout) as job:
            state = job.state()
            if state["status"] == "RUNNING" and job.holder() is None:
                call: Record = state["call"] or {}
                whom = f" while {call['model']} was asked" if call else ""
                fix = f"`holdfast job run {name}` goes on, or asks you whether to"
                yield Trouble(name, f"its runner died{whom}", fix)
            if job.holder() is None:
                for key in spoilt_views(job):
                    file = key.rpartition("/")[2]
                    fix = "`holdfast rebuild` makes it anew from the history, which counts"
                    yield Trouble(name, f"{file} is not what was written", fix)

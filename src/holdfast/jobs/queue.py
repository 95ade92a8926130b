"""The jobs of a home: their list, the queue, the default job, and what is wrong with them.

`jobs/queue.jsonl` is the truth, `jobs/index.json` its view.  The state of a job is in its history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.calls.sealing import MARK
from holdfast.codec import Record, pretty
from holdfast.errors import Corrupt, NotFound, UsageError, typed
from holdfast.jobs import history
from holdfast.jobs.job import Job, is_job_id, is_lost
from holdfast.jobs.request import hash_of
from holdfast.jobs.sealed import SPOILT
from holdfast.jobs.verdict import TAG
from holdfast.layout import HOLDFAST, Layout
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Line, Stamp
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = dict[str, Any]
END = -1
_LONG_IN_THE_MAKING = 3600.0
_VIEWS = ("manifest.json", "jobHistory.json")


def folders(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    """What may be jobs, listed or not."""
    above = layout.above("job")
    with typed("listing", above), home.opened_dir(above) as directory:
        return sorted(filter(is_job_id, directory.names())) if directory is not None else []


class Queue:
    def __init__(self, home: Home, layout: Layout = HOLDFAST) -> None:
        self.key = layout.path("jobs")
        self.log = StateLog(home, layout.path("queue"), SHAPE, {self.key: SHAPE.render})

    def state(self) -> State:
        """`jobs`, oldest first, `queue` and `current_job_id`, of one moment."""
        return self.log.state()

    def waiting(self) -> list[str]:
        return list(self.state()["queue"])

    def _decide(self, decide: Callable[[State], list[Record]]) -> bool:
        """Write the lines; whether there were any."""
        return bool(self.log.decide(lambda state: (decide(state), None)).lines)

    def register(self, job: str, created_at: str, *, use: bool) -> None:
        line: Record = {"event": "new", "job_id": job, "created_at": created_at}
        self._decide(
            lambda state: [
                *([] if job in state["jobs"] else [line]),
                *(_use(state, job) if use else []),
            ]
        )

    def use(self, job: str | None) -> bool:
        """Set the default job."""
        return self._decide(lambda state: _use(state, job))

    def enqueue(self, job: str, rank: int | None = None) -> bool:
        """Put a job into the queue, at its end or at a rank, where 0 is the front."""
        if rank is not None and rank < 0:
            raise UsageError(f"rank {rank} is before the front", hint="0 is the front")

        line: Record = {"event": "enqueue", "job_id": job}
        line |= {} if rank is None else {"rank": rank}
        return self._decide(lambda state: [] if job in state["queue"] else [line])

    def move(self, job: str, rank: int) -> bool:
        """Move a job that waits; -1 is the end."""
        if rank < END:
            raise UsageError(f"there is no rank {rank}", hint="0 is the front, -1 the end")

        def decide(state: State) -> list[Record]:
            if job not in state["queue"]:
                raise NotFound(f"{job} is not in the queue", hint=f"`holdfast job activate {job}`")
            if _placed(state["queue"], job, rank) == state["queue"]:
                return []
            return [{"event": "rank", "job_id": job, "rank": rank}]

        return self._decide(decide)

    def dequeue(self, job: str) -> bool:
        line: Record = {"event": "dequeue", "job_id": job}
        return self._decide(lambda state: [line] if job in state["queue"] else [])

    def close(self) -> None:
        self.log.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- the fold -------------------------------------------------------------------------------


def _fold(state: State, line: Line) -> State:
    record = line.record
    job, rank = record.get("job_id"), record.get("rank")
    match record.get("event"):
        case "new" if isinstance(job, str):
            state["jobs"].setdefault(job, {"created_at": record.get("created_at")})
        case "use":
            state["current_job_id"] = job if isinstance(job, str) else None
        case "enqueue" | "rank" if isinstance(job, str):
            state["queue"] = _placed(state["queue"], job, rank if isinstance(rank, int) else END)
        case "dequeue":
            state["queue"] = [each for each in state["queue"] if each != job]
        case _:
            pass
    return state


def _use(state: State, job: str | None) -> list[Record]:
    return [] if state["current_job_id"] == job else [{"event": "use", "job_id": job}]


def _placed(queue: Sequence[str], job: str, rank: int) -> list[str]:
    others = [each for each in queue if each != job]
    at = len(others) if rank == END else min(rank, len(others))
    return [*others[:at], job, *others[at:]]


SHAPE: Shape[State] = Shape(
    version=1,
    initial=lambda: {"current_job_id": None, "jobs": {}, "queue": []},
    fold=_fold,
    render=lambda state: pretty({"schema_version": "1.0", **state}),
)


# --- all of them ----------------------------------------------------------------------------


def known(home: Home, layout: Layout = HOLDFAST, listed: Sequence[str] | None = None) -> list[str]:
    """Every job, oldest first; also one whose maker died before it was listed."""
    if listed is None:
        with Queue(home, layout) as queue:
            listed = [*queue.state()["jobs"]]
    there = _there(home, layout)
    return [*(each for each in listed if each in there), *sorted(there - set(listed))]


def unlisted(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    with Queue(home, layout) as queue:
        return sorted(_there(home, layout) - queue.state()["jobs"].keys())


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
    stamp = _stamp(job, _VIEWS[0])
    if stamp is None or job.log.contains(stamp.cursor):
        return []
    return [f"{job.log.key}: line {stamp.cursor.seq} was there and is not there any more"]


def spoilt_views(job: Job) -> list[str]:
    """The files made from the history that hold something else, or are gone."""
    found = {name: _stamp(job, name) for name in _VIEWS}
    return [f"{job.key}/{name}" for name, at in found.items() if at is not None and not at.shown]


def _stamp(job: Job, view: str) -> Stamp | None:
    with closing(job.home.cell(f"{job.key}/{view}")) as cell:
        return cell.peek()


def check_undamaged(job: Job) -> None:
    """Corrupt, naming the line, if the history is not what was written; or the part of a prompt."""
    wrong = (
        f"{line.segment}: line {line.seq}: part {str(line.record.get('part'))[:16]} is another "
        "text than its name says"
        for line in job.lines()
        if line.record.get("event") == "part" and not _is_named_right(job, line.record)
    )
    if found := damage(job) or [*islice(wrong, 1)]:
        more = f", and {len(found) - 1} more" if found[1:] else ""
        what = f"the history of {job.name} is damaged: {found[0]}{more}"
        hint = "`holdfast check` names every line; compare with a backup"
        raise Corrupt(what, hint=hint, path=job.log.key)


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

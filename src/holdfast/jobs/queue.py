"""Which jobs there are, in which order they wait, and which one is meant when none is named.

`jobs/queue.jsonl` is the truth, `jobs/index.json` its view.  What a job is doing stands in its own
history: here it is only listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.codec import Record, pretty
from holdfast.errors import NotFound, UsageError, typed
from holdfast.jobs.job import is_job_id
from holdfast.layout import HOLDFAST, Layout
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Decision, Line
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = dict[str, Any]
END = -1


def folders(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    """What may be jobs, listed or not; what is in them is not looked at: they may be large."""
    above = layout.above("job")
    with typed("listing", above), home.opened_dir(above) as directory:
        return sorted(filter(is_job_id, directory.names())) if directory is not None else []


class Queue:
    def __init__(self, home: Home, layout: Layout = HOLDFAST) -> None:
        self.key = layout.path("jobs")
        self.log = StateLog(home, layout.path("queue"), SHAPE, {self.key: SHAPE.render})

    # -- reading -----------------------------------------------------------------------

    def state(self) -> State:
        """`jobs`, `queue` and `current_job_id`, of one moment."""
        return self.log.state()

    def jobs(self) -> list[str]:
        """Every job that was made, oldest first."""
        return list(self.log.state()["jobs"])

    def waiting(self) -> list[str]:
        return list(self.log.state()["queue"])

    def current(self) -> str | None:
        return self.log.state()["current_job_id"]

    # -- writing -----------------------------------------------------------------------

    def register(self, job: str, created_at: str, *, use: bool) -> None:
        def decide(state: State) -> Decision[None]:
            lines: list[Record] = []
            if job not in state["jobs"]:
                lines.append({"event": "new", "job_id": job, "created_at": created_at})
            if use and state["current_job_id"] != job:
                lines.append({"event": "use", "job_id": job})
            return lines, None

        self.log.decide(decide)

    def use(self, job: str | None) -> bool:
        """Mean this one when none is named."""

        def decide(state: State) -> Decision[None]:
            line: Record = {"event": "use", "job_id": job}
            return [] if state["current_job_id"] == job else [line], None

        return bool(self.log.decide(decide).lines)

    def enqueue(self, job: str, rank: int | None = None) -> bool:
        """Put a job into the queue, at its end or at a rank, where 0 is the front."""
        if rank is not None and rank < 0:
            raise UsageError(f"rank {rank} is before the front", hint="0 is the front")

        def decide(state: State) -> Decision[None]:
            if job in state["queue"]:
                return [], None
            line: Record = {"event": "enqueue", "job_id": job}
            return [line if rank is None else {**line, "rank": rank}], None

        return bool(self.log.decide(decide).lines)

    def move(self, job: str, rank: int) -> bool:
        """Move a job that waits; -1 is the end."""
        if rank < END:
            raise UsageError(f"there is no rank {rank}", hint="0 is the front, -1 the end")

        def decide(state: State) -> Decision[None]:
            if job not in state["queue"]:
                raise NotFound(f"{job} is not in the queue", hint=f"`holdfast job activate {job}`")
            if _placed(state["queue"], job, rank) == state["queue"]:
                return [], None
            return [{"event": "rank", "job_id": job, "rank": rank}], None

        return bool(self.log.decide(decide).lines)

    def dequeue(self, job: str) -> bool:
        def decide(state: State) -> Decision[None]:
            line: Record = {"event": "dequeue", "job_id": job}
            return [line] if job in state["queue"] else [], None

        return bool(self.log.decide(decide).lines)

    def close(self) -> None:
        self.log.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- the fold -------------------------------------------------------------------------------


def _initial() -> State:
    return {"current_job_id": None, "jobs": {}, "queue": []}


def _fold(state: State, line: Line) -> State:
    record = line.record
    job, rank = record.get("job_id"), record.get("rank")
    place = rank if isinstance(rank, int) else END
    match record.get("event"):
        case "new" if isinstance(job, str):
            state["jobs"].setdefault(job, {"created_at": record.get("created_at")})
        case "use":
            state["current_job_id"] = job if isinstance(job, str) else None
        case "enqueue" | "rank" if isinstance(job, str):
            state["queue"] = _placed(state["queue"], job, place)
        case "dequeue":
            state["queue"] = [each for each in state["queue"] if each != job]
        case _:
            pass
    return state


def _placed(queue: Sequence[str], job: str, rank: int) -> list[str]:
    others = [each for each in queue if each != job]
    at = len(others) if rank == END else min(rank, len(others))
    return [*others[:at], job, *others[at:]]


def _shown(state: State) -> bytes:
    return pretty({"schema_version": "1.0", **state})


SHAPE: Shape[State] = Shape(version=1, initial=_initial, fold=_fold, render=_shown)

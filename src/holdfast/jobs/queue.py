"""The list of jobs, the queue, and the default job.

`jobs/queue.jsonl` is the truth, `jobs/index.json` its view.  The state of a job is in its history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.codec import Record, pretty
from holdfast.errors import NotFound, UsageError, typed
from holdfast.jobs.job import is_job_id
from holdfast.layout import HOLDFAST, Layout
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Line
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = dict[str, Any]
END = -1


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
        """`jobs`, `queue` and `current_job_id`, of one moment."""
        return self.log.state()

    def jobs(self) -> list[str]:
        """Every job that was made, oldest first."""
        return list(self.state()["jobs"])

    def waiting(self) -> list[str]:
        return list(self.state()["queue"])

    def current(self) -> str | None:
        return self.state()["current_job_id"]

    def _decide(self, decide: Callable[[State], list[Record]]) -> bool:
        """Write the lines; whether there were any."""
        return bool(self.log.decide(lambda state: (decide(state), None)).lines)

    def register(self, job: str, created_at: str, *, use: bool) -> None:
        def decide(state: State) -> list[Record]:
            line: Record = {"event": "new", "job_id": job, "created_at": created_at}
            return [] if job in state["jobs"] else [line]

        self._decide(lambda state: decide(state) + (_use(state, job) if use else []))

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

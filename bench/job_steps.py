"""One job whose worker says two kilobytes of new text at each step, and asks for another try.

    python -m bench.job_steps HOME STEPS     goes on with it: as a process, for strace and a clock

A step is all that lies between two questions.  Each stands between marks, so that a trace shows it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Semaphore, Thread

from bench.material import home_in
from bench.trace import mark
from holdfast.codec import Record
from holdfast.jobs.job import Job
from holdfast.jobs.runner import Runner
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.jobs.steward import activate, go_on
from holdfast.models.protocol import Request
from holdfast.models.scripted import Scripted
from holdfast.store.vfs import RealVfs
from holdfast.workspace.workspace import Workspace

NAME, MODEL = "long", "scripted:instant"
TEXT = 2_000
WARM = 12
_MANY = 1_000_000_000
SPEC: Record = {
    "job_id": NAME,
    "prompt": "Go on until it is done.",
    "models": {"worker": MODEL},
    "phases": [{"name": "work", "max_retries": _MANY}],
    "budget": {"max_iterations": _MANY, "max_seconds": 1e8, "max_cost_usd": 1e6},
    "isolation": "directory",
}


def reply(text: str, number: int, action: str = "RETRY") -> str:
    """An answer of which all but the frame is new."""
    summary = f"Step {number} is done; there are more."
    said = {"action": action, "evidence_files": [], "summary_for_supervisor": summary}
    return json.dumps({**said, "notes": text})


def new_text(number: int) -> str:
    """Nothing that was there before."""
    return f"{number:08d} ".ljust(TEXT, "abcdefghijklmnopqrstuvwxyz"[number % 26])


Asked = Callable[[int], bool]
"""Is told the number of each question before it is answered; False ends the run with it."""


@contextmanager
def running(
    place: Path, asked: Asked, vfs: RealVfs | None = None, text: Callable[[int], str] = new_text
) -> Generator[Runner]:
    """The job's runner; the job is made if there is none."""

    def answer(request: Request) -> str:
        number = request.ordinal or 0
        action = "RETRY" if asked(number) else "STUCK"
        return reply(text(number), number, action)

    with home_in(place, vfs) as home, Job(home, NAME) as job:
        if not job.exists():
            job.create(settled(spec_from(SPEC).spec, Options()))
            activate(job)
        if job.state()["status"] == "INTERVENTION_REQUIRED":
            go_on(job)
        job.own("bench")
        workspace = Workspace(f"{place}/{job.key}", "directory", job=NAME)
        workspace.make()
        runner = Runner(job, workspace, given={MODEL: Scripted(answer, ref=MODEL)})
        yield runner
        runner.close()
        job.disown()


class Lockstep:
    """A run in a thread of its own that takes as many steps as it is let."""

    def __init__(self, place: Path, vfs: RealVfs | None = None) -> None:
        self._place, self._vfs = place, vfs
        self._left, self._over = 0, False
        self._let, self._stands = Semaphore(0), Semaphore(0)
        self._failed: BaseException | None = None
        self._thread = Thread(target=self._run)

    def _run(self) -> None:
        try:
            with running(self._place, self._asked, self._vfs) as runner:
                runner.run()
        except BaseException as error:
            self._failed = error
        self._stands.release()

    def _asked(self, number: int) -> bool:
        if self._left == 0:
            self._stands.release()
            self._let.acquire()
        self._left -= 1
        return not self._over

    def take(self, count: int) -> int:
        """Let it take so many steps: from one question to the next."""
        self._left = count
        self._let.release()
        self._stands.acquire()
        if self._failed is not None:
            raise self._failed
        return count

    def __enter__(self) -> Lockstep:
        self._thread.start()
        self._stands.acquire()
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *exc: object) -> None:
        self._over, self._left = True, 1
        self._let.release()
        self._thread.join()
        if self._failed is not None:
            raise self._failed


def main(place: Path, steps: int) -> None:
    began, first = time.perf_counter(), True
    count = 0

    def asked(number: int) -> bool:
        nonlocal count, first
        if first:
            print(time.perf_counter() - began, flush=True)
            first = False
        if count > WARM:  # what is loaded on the way is not the cost of a step
            mark(f"{count - WARM - 1}")
        count += 1
        if WARM < count <= steps + WARM:
            mark(f"{count - WARM - 1}")
        return bool(steps) and count <= steps + WARM

    with running(place, asked) as runner:
        runner.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

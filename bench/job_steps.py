"""One job whose worker says two kilobytes of new text at each step, and asks for another try.

    python -m bench.job_steps HOME STEPS     goes on with it: as a process, for strace and a clock

Steps stand between marks, so that a trace shows each of them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from bench.material import home_in
from bench.trace import mark
from holdfast.codec import Record
from holdfast.jobs.job import Job
from holdfast.jobs.runner import Runner
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.jobs.steward import activate
from holdfast.jobs.workspace import Workspace
from holdfast.models.protocol import Request
from holdfast.models.scripted import Scripted
from holdfast.store.vfs import RealVfs

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


def reply(text: str, number: int) -> str:
    """An answer of which all but the frame is new."""
    summary = f"Step {number} is done; there are more."
    said = {"action": "RETRY", "evidence_files": [], "summary_for_supervisor": summary}
    return json.dumps({**said, "notes": text})


def new_text(number: int) -> str:
    """Nothing that was there before."""
    return f"{number:08d} ".ljust(TEXT, "abcdefghijklmnopqrstuvwxyz"[number % 26])


@contextmanager
def running(
    place: Path, vfs: RealVfs | None = None, text: Callable[[int], str] = new_text
) -> Generator[Runner]:
    """The job's runner; the job is made if there is none."""

    def answer(request: Request) -> str:
        number = request.ordinal or 0
        return reply(text(number), number)

    with home_in(place, vfs) as home, Job(home, NAME) as job:
        if not job.exists():
            job.create(settled(spec_from(SPEC).spec, Options()))
            activate(job)
        job.own("bench")
        workspace = Workspace(f"{place}/{job.key}", "directory", job=NAME)
        workspace.make()
        runner = Runner(job, workspace, given={MODEL: Scripted(answer, ref=MODEL)})
        yield runner
        runner.close()
        job.disown()


def main(place: Path, steps: int) -> None:
    began = time.perf_counter()
    with running(place) as runner:
        runner.job.state()
        print(time.perf_counter() - began, flush=True)
        for number in range(steps + WARM):
            if number < WARM:  # what is loaded on the way is not the cost of a step
                runner.step()
                continue
            mark(f"{number - WARM}")
            runner.step()
            mark(f"{number - WARM}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

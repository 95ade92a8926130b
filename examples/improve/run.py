"""Run a task of this folder: a repository of it in a scratch directory, a campaign, a report.

python examples/improve/run.py bin_packing [--rounds N] [--keep DIR]
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Task(NamedTuple):
    init: tuple[str, ...]
    """Words of `improve init`."""
    rounds: int


PYTHON = shlex.quote(sys.executable)
MOVE = shlex.quote(str(HERE / "circle_packing/move.py"))
LONG = ("--max-iterations", "200")
TASKS = {
    "bin_packing": Task(
        (
            *("--objective", "Pack with fewer bins", "--direction", "lower", *LONG),
            *("--benchmark", f"{PYTHON} bench/measure.py", "--sealed", "bench/"),
            *("--holdout", f"{PYTHON} bench/measure.py holdout", "--executor", "search"),
        ),
        30,
    ),
    "circle_packing": Task(
        (
            *("--objective", "Pack 26 circles", "--direction", "higher", *LONG),
            *("--benchmark", f"{PYTHON} bench/measure.py", "--sealed", "bench/"),
            *(
                "--executor",
                f"command:{PYTHON} {shlex.quote(str(HERE / 'circle_packing/move.py'))}",
            ),
        ),
        20,
    ),
    "wall_clock": Task(
        (
            *("--objective", "Blur faster", "--direction", "lower", "--metric", "seconds"),
            *("--format", "metric", "--benchmark", f"{PYTHON} bench/measure.py"),
            *("--sealed", "bench/"),
            *("--executor", f"patches:{HERE / 'wall_clock/patches.json'}"),
        ),
        1,
    ),
    "small_repo": Task(
        (
            *("--objective", "Pass every test", "--direction", "higher", "--target", "5"),
            *("--benchmark", f"{PYTHON} bench/gate.py", "--sealed", "bench/", "--sealed", "tests/"),
            *("--executor", f"patches:{HERE / 'small_repo/patches.json'}"),
        ),
        3,
    ),
    "openevolve": Task(
        (
            *("--objective", "Find the least value", "--format", "python", "--direction", "higher"),
            *("--benchmark", "evaluator.py initial_program.py", "--sealed", "evaluator.py"),
            *("--metric", "combined_score", "--executor", "search", *LONG),
        ),
        10,
    ),
}
ENDLESS = ("circuit_breaker_threshold", "plateau_window")


def repository(task: str, place: Path, change: Callable[[Path], None] | None = None) -> Path:
    """The files of a task as a git repository, changed before they are committed."""
    shutil.copytree(HERE / task, place, ignore=shutil.ignore_patterns("__pycache__"))
    if change is not None:
        change(place)
    who = ("-c", "user.name=Example", "-c", "user.email=example@localhost")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-qm", "Start")):
        subprocess.run(["git", "-C", str(place), *words], check=True)
    return place


def holdfast(home: Path, *words: str, quiet: bool = False) -> int:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), *words]
    out = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, stdout=out, check=False).returncode


def campaign(
    task: str, place: Path, *more: str, change: Callable[[Path], None] | None = None
) -> Path:
    """A home with a campaign of the task, not yet begun."""
    home = place / "home"
    holdfast(home, "init", quiet=True)
    source = repository(task, place / task, change)
    words = ("--topic", task, "--repo", str(source), *TASKS[task].init, *more, "--trust")
    if holdfast(home, "improve", "init", *words):
        raise SystemExit(f"{task} could not be set up")
    for key in ENDLESS:  # a search has rounds without a gain, and goes on
        holdfast(home, "improve", "set", task, key, "1000", quiet=True)
    return home


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="use this directory, and leave it there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = given.keep or Path(scratch)
        home = campaign(given.task, place, "--seed", str(given.seed))
        rounds = given.rounds or TASKS[given.task].rounds
        holdfast(home, "improve", "run", given.task, "--rounds", str(rounds))
        holdfast(home, "improve", "finalize", given.task)
        holdfast(home, "improve", "report", given.task)


if __name__ == "__main__":
    main()

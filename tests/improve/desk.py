"""A user's repository with a benchmark, and candidates for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.clock import SystemClock
from holdfast.improve.evaluator import Benchmark, Evaluator
from holdfast.improve.sealing import sealed_paths
from holdfast.workspace.repo import Repo, Sealed
from tests.jobs.desk import PYTHON
from tests.workspace.test_workspace import git

SOLVE = (
    "FACTOR = 3\n\n\ndef solve(x):\n    return FACTOR * x\n\n\ndef unused(x):\n    return x + 1\n"
)
BENCH = """\
import json, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import solve
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data.json")) as file:
    data = json.load(file)
value = sum(solve.solve(each) for each in data)
print(json.dumps({"primary": value, "sub_scores": {"first": solve.solve(data[0])}}))
"""
COMMAND = f"{PYTHON} bench/run.py"
Change = Callable[[Path], object]


def make_source(at: Path, files: Mapping[str, str] | None = None) -> Path:
    """A repository whose benchmark gives 18."""
    at.mkdir()
    git(at, "init", "-q", "-b", "main")
    told = {"solve.py": SOLVE, "bench/run.py": BENCH, "bench/data.json": "[1, 2, 3]\n"}
    for name, text in {**told, **(files or {})}.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    git(at, "add", "-A")
    git(at, "commit", "-qm", "start")
    return at


def writing(name: str, text: str) -> Change:
    def change(at: Path) -> None:
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)

    return change


class Bench:
    """A repository of ours of a user's repository, to measure candidates in."""

    def __init__(self, place: Path, source: Path, **fields: Any) -> None:
        self.place, self.source = place, source
        (place / "ours").mkdir(parents=True)
        self.repo = Repo.of(str(place / "ours"), str(source))
        assert self.repo.base is not None
        self.base: str = self.repo.base
        entries = fields.pop("sealed", ("bench/",))
        self.sealed = Sealed(self.base, sealed_paths(entries, self.repo.git.tree(self.base)))
        benchmark = Benchmark(**{"command": COMMAND, **fields})
        self.evaluator = Evaluator(self.repo, str(place), benchmark, self.sealed, SystemClock())

    def candidate(self, change: Change, upon: str | None = None) -> str:
        """A commit of what an executor leaves in a checkout."""
        folder = str(self.place / "candidate")
        shutil.rmtree(folder, ignore_errors=True)
        checkout = self.repo.checkout(upon or self.base, folder)
        change(Path(checkout.path))
        return self.repo.take(checkout, upon or self.base, "candidate")


def marked(name: str) -> list[int]:
    """Processes that have a variable of this name."""
    found: list[int] = []
    for each in filter(str.isdigit, os.listdir("/proc")):
        try:
            if f"{name}=".encode() in Path(f"/proc/{each}/environ").read_bytes():
                found.append(int(each))
        except OSError:
            continue
    return found

"""The benchmarks still run: their quick form judges counts only."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from bench import frame
from tests.ledger.shell import REPO

DEAR = {"append", "turn", "mask", "jobs"}
"""Their quick form takes seconds of CPU time; `make bench` runs them."""


@pytest.mark.parametrize("name", sorted({*frame.NAMES} - DEAR))
def test_a_benchmark_runs_its_quick_form(name: str) -> None:
    words = [sys.executable, "-m", "bench", name, "--quick"]
    ran = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ", 0 failed" in ran.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(DEAR))
def test_a_dear_benchmark_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__

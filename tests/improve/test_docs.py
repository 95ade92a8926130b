"""What docs/improve.md shows works as it says, and the examples run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.improve.proposers import NAMES
from holdfast.improve.search import constants
from tests.improve.test_proposers import Texts
from tests.ledger.shell import PROGRAM, REPO, Shell
from tests.workspace.test_workspace import git

PAGE = (REPO / "docs/improve.md").read_text(encoding="utf-8")
EXAMPLES = REPO / "examples/improve"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_session_of_the_page_happens_like_that(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    words = shell.cwd / "words"
    shutil.copytree(EXAMPLES / "small_repo", words)
    shutil.move(words / "patches.json", shell.cwd / "patches.json")
    for command in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "start")):
        git(words, *command)
    assert shell("init").code == 0
    [session] = blocks("console")
    for step in session.split("$ ")[1:]:
        command, *shown = step.splitlines()
        ran = subprocess.run(
            command.replace("holdfast", f"{PROGRAM} --home {shell.home}", 1),
            shell=True,
            cwd=shell.cwd,
            env=shell.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == shown, command
    assert (shell.cwd / "words.svg").read_bytes().startswith(b"<svg ")
    assert "text.split()" in git(words, "show", "review/pass_every_test:words.py")


def test_the_page_names_every_built_in_and_the_declarations_are_read() -> None:
    assert all(f"`{name}`" in PAGE for name in NAMES)
    [declared] = blocks("python")
    found = constants(Texts({"a.py": declared}))
    assert [each.name for each in found] == [
        *("a.py:WEIGHTS[0]", "a.py:WEIGHTS[1]", "a.py:RATE", "a.py:DEPTH"),
    ]


@pytest.mark.parametrize(
    ("task", "rounds"), [("bin_packing", 2), ("circle_packing", 1), ("openevolve", 3)]
)
def test_an_example_runs_offline_from_a_task_to_a_report(
    task: str, rounds: int, tmp_path: Path
) -> None:
    if task != "circle_packing":
        pytest.importorskip("cmaes", reason="the extra `search` is not installed")
    words = [task, "--rounds", str(rounds), "--keep", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "run.py"), *words],
        env=Shell(tmp_path).environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"{rounds} round" in ran.stdout and "| random search, same budget |" in ran.stdout
    baseline = json.loads(
        next((tmp_path / "home/improve").glob("*/tracking/baseline.json")).read_bytes()
    )
    assert baseline["runs"] == 5 and baseline["noise_sd"] == 0


def test_circles_that_overlap_by_the_last_bit_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "circles"
    shutil.copytree(EXAMPLES / "circle_packing", place)
    (place / "bench/circles.txt").write_text("2\n")
    for gap, code in ((0.0, 0), (1e-16, 1)):
        (place / "pack.py").write_text(
            f"def pack():\n    return [(0.25, 0.5, 0.25), (0.75, 0.5, 0.25 + {gap})]\n"
        )
        measure = [sys.executable, str(place / "bench/measure.py")]
        ran = subprocess.run(measure, capture_output=True, env=os.environ, check=False)
        assert (ran.returncode != 0) == bool(code), ran.stderr

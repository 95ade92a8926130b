"""The README shows what happens: its snippets are run, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
README = (REPO / "README.md").read_text(encoding="utf-8")
PROGRAM = Path(sys.executable).with_name("holdfast")


def _blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_first_thirty_lines_say_what_it_is_show_it_and_give_two_commands() -> None:
    first = "\n".join(README.splitlines()[:30])
    assert "Durable state" in first
    assert "$ holdfast ledger write" in first
    assert "make run" in first
    assert "make test" in first


@pytest.mark.parametrize("code", _blocks("python"))
def test_python_in_the_readme_runs(code: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "read 12 files" in ran.stdout


def test_python_for_programs_runs(tmp_path: Path) -> None:
    page = (REPO / "docs/python.md").read_text(encoding="utf-8")
    blocks = _blocks("python", page)
    assert len(blocks) == 2
    code = "\n".join(blocks)
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_session_in_the_readme_happens_like_that(tmp_path: Path) -> None:
    [session] = _blocks("console")
    environment = os.environ | {"HOLDFAST_HOME": str(tmp_path / "home"), "TZ": "UTC"}
    for step in session.split("$ ")[1:]:
        command, *shown = step.splitlines()
        if not command.startswith("holdfast "):
            continue
        ran = subprocess.run(
            command.replace("holdfast", str(PROGRAM), 1),
            shell=True,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        # Dates, ages and hashes differ; the words and the columns may not.
        assert [_words(line) for line in ran.stdout.splitlines()] == [_words(s) for s in shown]


def _words(line: str) -> list[str]:
    return re.findall(r"[A-Za-z_]{3,}", re.sub(r"\d{4}-\d{2}-\d{2}|\b[0-9a-f]{16}\b", "", line))


@pytest.mark.parametrize("page", ["README.md", "AGENTS.md", "CHANGELOG.md", "prove/README.md"])
def test_links_lead_to_files_that_are_there(page: str) -> None:
    file = REPO / page
    links = re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8"))
    gone = [to for to in links if "://" not in to and not (file.parent / to).exists()]
    assert gone == []

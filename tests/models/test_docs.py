"""What docs/models.md shows works as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.models.recipes import RECIPES
from holdfast.models.registry import BUILT_IN
from holdfast.models.scripted import FAILURES, open_scripted
from tests.models.programs import question

PAGE = (Path(__file__).resolve().parents[2] / "docs/models.md").read_text(encoding="utf-8")
HOSTED = (Path(__file__).resolve().parents[2] / "docs/models-hosted.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINT = [
    "You said: Hello?",
    "Hi. 0.5\n",
    "You said: Hello? ['unavailable', 'unavailable', 'unavailable', 'unavailable']\n",
    "",
]


@pytest.mark.parametrize(("number", "prints"), list(enumerate(PRINT)))
def test_a_program_in_the_page_runs(tmp_path: Path, number: int, prints: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[number]],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(prints)


def test_there_is_no_other_program_in_the_page() -> None:
    assert len(PROGRAMS) == len(PRINT)


def test_the_suite_in_the_page_passes(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(PROGRAMS[-1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE)


def test_the_script_in_the_page_is_one(tmp_path: Path) -> None:
    script = tmp_path / "replies.yaml"
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    script.write_text(text, encoding="utf-8")
    model = open_scripted(str(script))
    assert model.ask(question()).text == "Hello."
    assert model.ask(question("Is there a budget of rio?")).text == "None for rio."


def test_the_page_knows_every_provider_program_and_error() -> None:
    for name in [each.name for each in BUILT_IN]:
        assert f"\n## {name}\n" in PAGE or f"`{name}" in HOSTED, name
    assert "models-hosted.md" in PAGE
    for program, recipe in RECIPES.items():
        [row] = re.findall(rf"^\| `{program}` \| (.*)$", PAGE, re.MULTILINE)
        added = recipe.arguments([], has_prompt=False)
        assert re.findall(r"[^` |,]+", row)[: len(added)] == added
    for code, kind in FAILURES.items():
        assert f"| `{kind.__name__}` | `{code}` |" in PAGE

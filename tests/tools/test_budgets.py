"""A room of the package stays within its lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/budgets.py"


@pytest.mark.parametrize(
    ("budgets", "code", "says"),
    [
        ("total = 5\nstore = 3\nleaves = 2", 0, ""),
        ("total = 9\nstore = 2\nleaves = 2", 1, "over by 1"),
        ("total = 4\nstore = 3\nleaves = 2", 1, "over by 1"),
        ("total = 5\nstore = 3", 1, "give it one in tools/budgets.toml"),
        ("total = 5\nstore = 3\nleaves = 2\ncalls = 9", 0, ""),
    ],
    ids=["within", "a room is over", "all are over", "a room has none", "a room to come"],
)
def test_a_room_over_its_budget_is_red(tmp_path: Path, budgets: str, code: int, says: str) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/budgets.toml").write_text(f"[lines]\n{budgets}\n")
    (tmp_path / "src/holdfast/store").mkdir(parents=True)
    (tmp_path / "src/holdfast/ids.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "src/holdfast/store/log.py").write_text("a = 1\nb = 2\n")
    (tmp_path / "src/holdfast/store/page.html").write_text("<p>\n")
    (tmp_path / "src/holdfast/store/log.pyc").write_text("\n" * 100)
    ran = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True)
    assert (ran.returncode, says in ran.stdout) == (code, True), ran

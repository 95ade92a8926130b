"""A campaign whose process dies goes on as if it had not, and nobody's files are touched."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.improve.campaigns import Campaigns
from tests.improve.desk import marked
from tests.jobs.desk import PYTHON
from tests.ledger.shell import PATIENCE, on_its_own
from tests.workspace.test_workspace import git

CALC = """\
def add(a, b):
    return a - b


def times(a, b):
    return a + b


def power(a, b):
    return a * b
"""
TESTS = """\
import unittest
from calc import add, power, times


class TestCalc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(2, 3), 5)

    def test_times(self):
        self.assertEqual(times(2, 3), 6)

    def test_power(self):
        self.assertEqual(power(2, 3), 8)
"""
GATE = """\
import json, unittest
found = unittest.TestResult()
unittest.defaultTestLoader.discover("tests", top_level_dir=".").run(found)
print(json.dumps({"primary": found.testsRun - len(found.failures) - len(found.errors)}))
"""
FIXES = {"add": "a - b/a + b", "times": "a + b/a * b", "power": "a [*] b/a ** b"}


def fix(name: str, *, slow: float = 0.0) -> dict[str, object]:
    """Correct one function, and only that."""
    return {"sh": f"sed -i '/def {name}/,/return/ s/{FIXES[name]}/' calc.py", "sleep": slow}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Campaigns:
    """A small library with tests, and a user in the middle of other work."""
    on_its_own(monkeypatch, tmp_path)
    files = {"calc.py": CALC, "tests/__init__.py": "", "tests/test_calc.py": TESTS, "gate.py": GATE}
    desk = Campaigns(tmp_path, {**files, ".gitignore": "*.log\n"})
    at = desk.source
    (at / "solve.py").write_text("stashed\n")
    git(at, "stash", "push", "-q")
    git(at, "checkout", "-q", "-b", "dev")
    (at / "solve.py").write_text("staged\n")
    git(at, "add", "solve.py")
    (at / "calc.py").write_text(CALC + "# not staged\n")
    (at / "new.txt").write_text("not tracked\n")
    (at / "x.log").write_text("ignored\n")
    return desk


def test_a_run_that_is_killed_twice_improves_the_repository_all_the_same(
    repository: Campaigns,
) -> None:
    desk, mark = repository, f"MARK_{repository.source.stat().st_ino}"
    desk.init("--sealed", "tests/", "--sealed", "gate.py", "--planners", "2", "--target", "3",
              benchmark=f"{PYTHON} gate.py")  # fmt: skip
    before = desk.seen()
    desk.play(
        {
            "1/executor_1": fix("add"),
            "1/executor_2": {"sh": "true"},
            "2/executor_1": fix("times"),
            "2/executor_2": fix("power", slow=0.2),
        }
    )
    # In the middle of an executor, and right after the branch was moved but not recorded.
    for at in ("improve.acting=kill@2", "improve.writing=kill@30"):
        process = desk.started(env={mark: "1", "HOLDFAST_FAILPOINTS": at})
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL, (out, err)
    process = desk.started(env={mark: "1"})
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, (out, err)
    changed = git(desk.source, "diff", "-U0", "main", "improve/sort_faster")
    lines = [line for line in changed.splitlines() if line[0] in "+-"]
    assert lines == [
        "--- a/calc.py",
        "+++ b/calc.py",
        *("-    return a - b", "+    return a + b"),
        *("-    return a + b", "+    return a * b"),
        *("-    return a * b", "+    return a ** b"),
    ]
    merges = git(desk.source, "log", "--first-parent", "--format=%s", "improve/sort_faster")
    assert [line.split(":")[0] for line in merges.splitlines()] == [
        *("Iteration 2", "Iteration 2", "Iteration 1", "start"),
    ]
    assert desk.file("state/agent-settings.json")["status"] == "target_reached"
    assert desk.seen() == before
    assert marked(mark) == []
    assert len(desk.file("tracking/raw_data.json")) == 4
    left = [each.name for each in (desk.home / "improve/sort/.files").iterdir()]
    assert not [name for name in left if name.startswith(("round_", "measured"))]

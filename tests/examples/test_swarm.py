"""`examples/swarm`, run as it is: from personas to a decision, a picture and a test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.jobs.desk import Desk
from tests.ledger.shell import PATIENCE, PROGRAM, REPO, on_its_own

EXAMPLE = REPO / "examples" / "swarm"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    monkeypatch.chdir(made.cwd)
    return made


def test_four_personas_decide_a_question_without_a_model(desk: Desk, tmp_path: Path) -> None:
    found = os.pathsep.join([str(Path(PROGRAM).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["sh", str(EXAMPLE / "run.sh"), str(tmp_path / "out")],
        cwd=desk.cwd,
        env=desk.shell.environment({"HOLDFAST_HOME": str(desk.home), "PATH": found}),
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran
    assert "warning" not in ran.stderr, ran.stderr
    assert (tmp_path / "out" / "cache.svg").read_bytes().startswith(b"<svg ")
    run = json.loads((desk.home / "logs" / "cluster_run_cache.json").read_text(encoding="utf-8"))
    kinds = [event["type"] for event in run["events"]]
    assert kinds[1:9] == ["broadcast"] * 8
    assert kinds[9:] == ["moe", "moe", "aggregate"] * 4
    shown = desk.ok("swarm", "show", "cache")["data"]
    assert shown["status"] == "done" and shown["baton"].startswith("Decided: the cache goes")
    # What they were asked for is in it: figures, the counter-example, steps.
    said = " ".join(event.get("reply", "") for event in run["events"])
    assert all(words in said for words in ("31 %", "busy week", "Step 3", "on Monday"))
    judged = desk("validate", "--strict", str(desk.home / "logs"), "--json")
    assert judged.code == 0, judged.out

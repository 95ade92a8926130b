"""`improve run --executor "command:claude -p"`, and others that people use, by stand-ins."""

from __future__ import annotations

import json
import os

import pytest

from tests.improve.campaigns import Campaigns
from tests.improve.test_planning import CHEAP
from tests.jobs.desk import PYTHON
from tests.workspace.test_workspace import git

STAND_IN = """#!%s -S
import json, os, re, sys
text = sys.stdin.read()
assert json.loads(text)["role"] == "executor", text
assert json.load(open(os.environ["HOLDFAST_REQUEST"])) == json.loads(text)
assert os.path.isdir(".git") and not os.path.exists("../../.git")
with open("solve.py") as file:
    program = file.read()
with open("solve.py", "w") as file:
    file.write(program.replace("FACTOR = 3", "FACTOR = 8"))
reply = json.dumps({"hypothesis": "Eight is more than three"})
for line in json.loads(%r):
    print(json.dumps(line).replace("REPLY", json.dumps(reply)[1:-1]))
"""
"""An agent that edits a file, and reports it in the way of a program of that name."""
PROTOCOLS = {
    "claude -p": [
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "I changed it.\nREPLY",
            "total_cost_usd": 0.0573,
            "usage": {"input_tokens": 90, "output_tokens": 10},
        }
    ],
    "codex exec --full-auto": [
        {"type": "thread.started", "thread_id": "t"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "REPLY"}},
        {"type": "turn.completed", "usage": {"input_tokens": 90, "output_tokens": 10}},
    ],
    "gemini --yolo": [
        {
            "response": "```json\nREPLY\n```",
            "stats": {"models": {"g": {"tokens": {"prompt": 90, "candidates": 10}}}},
        }
    ],
}


@pytest.mark.parametrize("command", PROTOCOLS)
def test_known_agents_edit_the_repository(
    desk: Campaigns, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = desk.place / command.split()[0]
    program.write_text(STAND_IN % (PYTHON, json.dumps(PROTOCOLS[command])))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{desk.place}{os.pathsep}{os.environ['PATH']}")
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    data = desk.loop("--rounds", "1", "--executor", f"command:{command}")
    assert "FACTOR = 8" in desk.solve(), desk.result(1, 1)
    assert (data["tokens"], data["calls"]) == (100, 1)
    assert data["cost_usd"] == (0.0573 if "claude" in command else 0)
    assert data["unknown_costs"] == (0 if "claude" in command else 1)
    assert desk.history(1)["winner"]["hypothesis"] == "Eight is more than three"


PRICED = {"reply": '{"edits": []}', "cost_usd": 0.5}


def test_what_models_cost_is_in_the_book_and_bounded(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "2", benchmark=CHEAP)
    model = desk.script(PRICED, PRICED, PRICED)
    data = desk.loop("--rounds", "1", "--executor", model)
    assert (data["cost_usd"], data["calls"]) == (1.0, 2)
    assert "improve-sort  1.0 " in desk("budget", "show").out
    with (desk.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write("\n[budget]\nfleet_day_usd = 1.0\n")
    data = desk.loop("--rounds", "1", code=1)
    assert (data["status"], data["cost_usd"]) == ("budget", 1.0)
    assert "fleet" in data["why"]


def test_what_agents_may_cost_is_counted_with_what_is_unknown(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 4}})
    data = desk.loop("--rounds", "1", "--max-cost", "0.5")
    assert (data["cost_usd"], data["unknown_costs"]) == (0, 1)


@pytest.mark.parametrize("alive", [True, False])
def test_a_branch_is_pushed_only_if_asked_and_a_dead_remote_is_a_warning(
    desk: Campaigns, alive: bool
) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    remote = desk.place / "remote.git"
    if alive:
        git(desk.place, "init", "-q", "--bare", str(remote))
    git(desk.source, "remote", "add", "origin", str(remote))
    desk.play({"1/executor_1": {"factor": 4}, "2/executor_1": {"factor": 5}})
    desk.loop("--rounds", "1")
    if alive:
        assert git(remote, "branch") == ""
    assert desk("improve", "set", "sort", "auto_push", "true").code == 0
    assert desk.loop("--rounds", "1")["best"] == 5
    if alive:
        assert "improve/sort_faster" in git(remote, "branch")


def test_documents_that_are_lost_are_made_again(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=CHEAP)
    desk.play({"1/executor_1": {"factor": 4}, "2/executor_1": {"factor": 5}})
    desk.loop("--rounds", "2")
    top = desk.home / "improve/sort"
    files = [*(top / "state").glob("*/round_?.json"), top / "state/iteration_state.json"]
    before = {file: file.read_bytes() for file in files}
    for file in files[:-1]:
        file.unlink()
    files[-1].write_text("garbage")
    assert desk("rebuild").code == 0
    assert {file: file.read_bytes() for file in files} == before
    # As a kill between two documents of a round leaves them.
    (top / "state/merge_reports/round_1.json").unlink()
    desk.loop("--rounds", "1")
    assert all(file.read_bytes() == before[file] for file in files[:-1])
    assert desk.file("state/iteration_state.json")["iteration"] == 3

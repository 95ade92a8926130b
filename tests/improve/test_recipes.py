"""The command lines of known agents as executors, with stand-ins that speak the same protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.improve.campaigns import Campaigns
from tests.jobs.desk import PYTHON
from tests.workspace.test_workspace import git

STAND_IN = """\
#!{python} -S
import json, os, re, sys
said = sys.stdin.read()
request = json.loads(said[said.index("{{"):])
assert request == json.load(open(os.environ["HOLDFAST_REQUEST"]))
assert os.path.isdir(".git") and os.path.isfile("solve.py")
given = {{"argv": sys.argv[1:], **request["input"]}}
with open({told!r}, "w") as file:
    json.dump(given, file)
with open("solve.py") as file:
    text = file.read()
with open("solve.py", "w") as file:
    file.write(text.replace("FACTOR = 3", "FACTOR = 7"))
reply = json.dumps({{"hypothesis": "A larger factor sorts faster"}})
for line in json.loads({printed!r}):
    print(json.dumps(line).replace('"REPLY"', json.dumps("I changed it.\\n" + reply)))
"""
CLAUDE: list[Any] = [
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "REPLY",
        "total_cost_usd": 0.25,
        "usage": {"input_tokens": 40, "output_tokens": 2},
    }
]
CODEX: list[Any] = [
    {"type": "thread.started", "thread_id": "0199a213"},
    {"type": "item.completed", "item": {"id": "1", "type": "agent_message", "text": "REPLY"}},
    {"type": "turn.completed", "usage": {"input_tokens": 40, "output_tokens": 2}},
]
GEMINI: list[Any] = [
    {
        "session_id": "6f1c",
        "response": "REPLY",
        "stats": {"models": {"gemini-2.5-pro": {"tokens": {"prompt": 40, "candidates": 2}}}},
    }
]


@pytest.mark.parametrize(
    ("line", "printed", "argv", "cost"),
    [
        (
            "claude -p --permission-mode acceptEdits",
            CLAUDE,
            ["-p", "--permission-mode", "acceptEdits", "--output-format", "json"],
            0.25,
        ),
        (
            "codex exec --sandbox workspace-write",
            CODEX,
            ["exec", "--sandbox", "workspace-write", "--json", "-"],
            None,
        ),
        (
            "gemini --approval-mode auto_edit",
            GEMINI,
            ["--approval-mode", "auto_edit", "--output-format", "json"],
            None,
        ),
    ],
    ids=["claude", "codex", "gemini"],
)
def test_a_known_agent_edits_the_repository_and_its_tokens_and_cost_are_recorded(
    desk: Campaigns,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    line: str,
    printed: list[Any],
    argv: list[str],
    cost: float | None,
) -> None:
    told, programs = tmp_path / "told.json", tmp_path / "programs"
    programs.mkdir()
    program = programs / line.split()[0]
    program.write_text(STAND_IN.format(python=PYTHON, told=str(told), printed=json.dumps(printed)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    desk.init("--planners", "1", "--direction", "higher", "--executor", f"command:{line}")
    found = desk.loop("--rounds", "1")
    asked = json.loads(told.read_text())
    assert asked["argv"] == argv
    assert asked["plan"]["critic_review"]["verdict"] == "approved"
    assert asked["plan"]["architect_review"] and "editing files" in asked["task"]
    diff = git(desk.source, "diff", "main", "improve/sort_faster")
    assert "-FACTOR = 3\n+FACTOR = 7" in diff
    assert (found["best"], found["calls"], found["tokens"]) == (42, 1, 42)
    assert (found["cost_usd"], found["unknown_costs"]) == ((cost, 0) if cost else (0, 1))
    assert found["rounds"][0]["winner"]["hypothesis"] == "A larger factor sorts faster"

"""What executors do wrong, and what is wrong around them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.improve.campaigns import Campaigns
from tests.improve.desk import BENCH, marked
from tests.improve.test_planning import CHEAP
from tests.workspace.test_workspace import git


def begun(desk: Campaigns, *words: str) -> None:
    desk.init("--format", "number", *words, benchmark=CHEAP)


@pytest.mark.parametrize(
    "act",
    [{"exit": 1}, {"sh": "kill -SEGV $PPID"}, {"sh": "kill -KILL $PPID"}, {"factor": 9, "exit": 2}],
)
def test_an_executor_that_fails_does_not_hurt_the_others(
    desk: Campaigns, act: dict[str, Any]
) -> None:
    begun(desk, "--planners", "2")
    desk.play({"executor_1": act, "executor_2": {"factor": 4}})
    desk.loop("--rounds", "1")
    found = desk.result(1, 1)
    assert (found["status"], found["benchmark_score"]) == ("error", None)
    assert set(found["failure_analysis"]) == {"what", "why", "category", "lesson"}
    assert found["failure_analysis"]["why"] in found["failure_analysis"]["what"]
    assert desk.report(1)["winner"]["executor_id"] == "executor_2"


@pytest.mark.parametrize(
    "reply",
    ['{"hypothesis": "\\ud800"}', "[" * 100_000, '{"hypothesis":' + "[" * 100_000, '{"a": NaN}'],
    ids=["half a character", "deep", "deep object", "not a number"],
)
def test_a_reply_that_is_no_strict_json_is_none_and_the_edits_count(
    desk: Campaigns, reply: str
) -> None:
    begun(desk, "--planners", "1")
    desk.play({"executor_1": {"factor": 4, "reply": reply}})
    data = desk.loop("--rounds", "1")
    assert (data["best"], data["iterations"]) == (4, 1)


def test_what_is_in_the_folder_counts_whatever_was_done_to_the_index(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    hidden = (
        "git update-index --assume-unchanged solve.py; sed -i 's/FACTOR = 3/FACTOR = 5/' solve.py"
    )
    staged = (
        "echo x > new.txt; git add new.txt; git commit -qm mine; "
        "sed -i 's/FACTOR = 3/FACTOR = 4/' solve.py"
    )
    desk.play({"executor_1": {"sh": hidden}, "executor_2": {"sh": staged}})
    desk.loop("--rounds", "1")
    assert desk.report(1)["winner"]["executor_id"] == "executor_1"
    assert "FACTOR = 5" in desk.solve()
    assert git(desk.source, "show", "archive/sort_faster/round_1_executor_2:new.txt") == "x"


def test_no_change_is_no_candidate(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    desk.loop("--rounds", "1")
    found = desk.result(1, 1)
    assert (found["status"], found["failure_analysis"]["lesson"]) == ("error", "no change")
    assert desk.report(1)["status"] == "no_winner"
    assert desk.report(1)["archived"] == []


@pytest.mark.parametrize(
    ("act", "category"),
    [
        (
            {"write": {"bench/run.py": BENCH.replace("= sum", "= 1000 + sum")}},
            "sealed_file_violation",
        ),
        ({"sh": "rm bench/data.json"}, "sealed_file_violation"),
        ({"write": {"bench/json.py": "1 / 0\n"}}, "sealed_file_violation"),
        ({"write": {"conftest.py": ""}}, "sealed_file_violation"),
        ({"write": {"docs/x.md": "out of scope\n"}}, "scope_error"),
    ],
)
def test_a_candidate_out_of_bounds_is_not_measured(
    desk: Campaigns, act: dict[str, Any], category: str
) -> None:
    begun(desk, "--planners", "1", "--scope", "*.py", "--scope", "lib/")
    desk.play({"executor_1": {"factor": 100, **act}})
    data = desk.loop("--rounds", "1")
    assert (data["best"], data["evaluations"]) == (3, 5)
    found = desk.result(1, 1)
    assert (found["failure_analysis"]["category"], found["benchmark_score"]) == (category, None)
    assert desk.report(1)["archived"] == ["archive/sort_faster/round_1_executor_1"]


def test_what_the_benchmark_leaves_behind_is_not_part_of_a_candidate(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=f"echo x > left; {CHEAP}")
    desk.play({"executor_1": {"factor": 4}})
    desk.loop("--rounds", "1")
    assert "left" not in git(desk.source, "ls-tree", "--name-only", "improve/sort_faster")


def test_what_a_crash_left_behind_is_made_anew(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    left = desk.home / "improve/sort/.files/round_1_executor_1"
    left.mkdir()
    (left / "junk").write_text("junk")
    for branch in ("experiment/round_1_executor_1", "mine"):
        git(desk.source, "branch", branch)
    git(desk.source, "tag", "archive/sort_faster/round_1_executor_1")
    git(desk.source, "worktree", "add", "-q", str(desk.place / "tree"), "mine")
    desk.play({"executor_1": {"factor": 1}})
    desk.loop("--rounds", "1")
    assert "FACTOR = 1" in desk.solve("archive/sort_faster/round_1_executor_1")
    assert {"refs/heads/mine", "refs/heads/experiment/round_1_executor_1"} <= desk.refs()
    assert (desk.place / "tree/solve.py").exists()
    assert not left.exists()


def test_equal_files_are_measured_once_and_failures_every_time(desk: Campaigns) -> None:
    begun(desk, "--planners", "3")
    desk.play({f"executor_{at}": {"factor": 2} for at in (1, 2, 3)})
    assert desk.loop("--rounds", "1")["evaluations"] == 5 + 1
    assert desk.loop("--rounds", "1")["evaluations"] == 5 + 1
    desk.play({f"executor_{at}": {"factor": "oops"} for at in (1, 2, 3)})
    assert desk.loop("--rounds", "1", code=1)["evaluations"] == 5 + 1 + 3
    assert desk.result(3, 1)["failure_analysis"]["category"] == "benchmark_parse_error"


def test_hooks_of_the_user_are_not_run(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    hooks = desk.source / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-merge", "commit-msg"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {desk.place}/hooked\nexit 1\n")
        (hooks / name).chmod(0o755)
    desk.play({"executor_1": {"factor": 4}})
    assert desk.loop("--rounds", "1")["merged"] == 1
    assert not (desk.place / "hooked").exists()


def test_benchmarks_never_run_at_the_same_time(desk: Campaigns) -> None:
    watched = f"date +%s%N; sleep 0.05; date +%s%N; {CHEAP}"
    desk.init("--format", "number", "--planners", "3", benchmark=watched)
    desk.play({f"executor_{at}": {"factor": at + 3} for at in (1, 2, 3)})
    desk.loop("--rounds", "1")
    raws = [desk.result(1, at)["benchmark_raw"].split() for at in (1, 2, 3)]
    times = [int(each) for raw in raws for each in raw[:2]]
    assert len(times) == 6 and times == sorted(times)


def test_a_folder_that_cannot_be_written_ends_the_run_and_it_goes_on_later(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    desk.play({"executor_1": {"factor": 4}})
    lock = desk.source / ".git/refs/heads/improve/sort_faster.lock"
    lock.write_text("")
    error = desk.loop("--rounds", "1", code=5)
    assert "lock" in error["message"] + error["hint"]
    assert desk.file("state/agent-settings.json")["status"] == "error"
    lock.unlink()
    data = desk.loop("--rounds", "1", "--resume")
    assert (data["merged"], data["iterations"]) == (1, 1)
    assert desk.asked() == ["1/executor_1"], "what an executor did was kept"


@pytest.mark.parametrize("place", ["päth with spaces", "a'b"])
def test_odd_paths_work(tmp_path: Path, place: str) -> None:
    desk = Campaigns(tmp_path / place, {"ein Ä.txt": "x", "dir with space/f.txt": "y"})
    begun(desk, "--planners", "1")
    desk.play({"executor_1": {"factor": 4, "write": {"dir with space/ü.txt": "z"}}})
    assert desk.loop("--rounds", "1")["best"] == 4
    assert git(desk.source, "show", "improve/sort_faster:dir with space/ü.txt") == "z"


def test_an_executor_out_of_time_is_ended_with_all_it_started(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    assert desk("improve", "set", "sort", "role_timeout_s", "1").code == 0
    mark = f"MARK_{os.getpid()}_EXECUTOR"
    desk.play({"executor_1": {"sh": f"export {mark}=1; setsid sleep 1000 & sleep 1000"}})
    desk.loop("--rounds", "1")
    assert desk.result(1, 1)["failure_analysis"]["category"] == "timeout"
    assert marked(mark) == []


def test_a_long_output_is_kept_beside_the_journal(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "1", benchmark=f"seq 1 4000; {CHEAP}")
    desk.play({"executor_1": {"factor": 4}})
    desk.loop("--rounds", "1")
    raw = desk.result(1, 1)["benchmark_raw"]
    (kept,) = (desk.home / "improve/sort/outputs").glob("*.txt")
    assert kept.name in raw and len(raw) < 10_000
    assert kept.read_text().splitlines()[-1] == "4"


def test_strayed_changes_are_noted(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    plan = {"hypothesis": "h", "approach_family": "data", "target_files": ["solve.py"],
            "steps": [{"step": 1, "file": "solve.py", "change": "x"}],
            "expected_outcome": {"metric": "primary", "estimated_impact": "", "rationale": "r"},
            "history_reference": {"builds_on": "none", "avoids": "none"}}  # fmt: skip
    desk.play(
        {
            "planner_a": {"reply": json.dumps(plan)},
            "executor_1": {"factor": 4, "write": {"b.txt": ""}},
        }
    )
    desk.loop("--rounds", "1", "--planner", desk.agent)
    (done,) = [each for each in desk.journal("done") if each["step"] == "execute/executor_1"]
    assert done["result"]["strayed"] == ["b.txt"]

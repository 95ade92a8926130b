"""Counters, stops, settings, phases, and what a run says of them."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.agents.world import until
from tests.improve.campaigns import Campaigns
from tests.improve.desk import marked
from tests.improve.test_planning import CHEAP
from tests.ledger.shell import PATIENCE
from tests.workspace.test_workspace import git


def begun(desk: Campaigns, *words: str) -> None:
    desk.init("--format", "number", "--planners", "1", *words, benchmark=CHEAP)


def winning(*factors: object) -> dict[str, Any]:
    """What the one executor of each round sets."""
    return {f"{at}/executor_1": {"factor": value} for at, value in enumerate(factors, 1) if value}


def counters(desk: Campaigns) -> tuple[int, int]:
    found = desk.file("state/agent-settings.json")
    return found["plateau_consecutive_count"], found["circuit_breaker_count"]


def test_wins_and_losses_count_as_documented(desk: Campaigns) -> None:
    begun(desk)
    # Big, small, nothing, small.
    desk.play(winning(4, 4.001, None, 4.002))
    for expected in ((0, 0), (1, 0), (1, 1), (2, 0)):
        desk.loop("--rounds", "1")
        assert counters(desk) == expected
    assert desk.file("state/agent-settings.json")["best_score"] == 4.002


def test_small_gains_in_a_row_are_a_plateau(desk: Campaigns) -> None:
    begun(desk)
    desk.play(winning(3.001, 3.002, 3.003, 3.004))
    data = desk.loop(code=1)
    assert (data["status"], data["iterations"]) == ("plateau", 3)
    refused = desk.loop(code=1)
    assert "plateau" in refused["message"] and "--resume" in refused["hint"]
    data = desk.loop("--resume", "--rounds", "1")
    assert (data["iterations"], data["best"]) == (4, 3.004)


def test_rounds_without_a_winner_break_the_circuit(desk: Campaigns) -> None:
    begun(desk)
    data = desk.loop(code=1)
    assert (data["status"], data["iterations"], data["merged"]) == ("circuit_breaker", 3, 0)


def test_a_plateau_can_be_relative(desk: Campaigns) -> None:
    begun(desk)
    desk("improve", "set", "sort", "plateau_relative", "0.1")
    desk.play(winning(3.1, 3.9))
    desk.loop("--rounds", "1")
    assert counters(desk) == (1, 0)
    desk.loop("--rounds", "1")
    assert counters(desk) == (0, 0)


@pytest.mark.parametrize(
    ("words", "factor", "status"),
    [
        (("--target", "5"), 5, "target_reached"),
        (("--target", "5", "--max-iterations", "1"), 6, "target_reached"),
        (("--max-iterations", "1"), 5, "max_iterations"),
        (("--target", "2", "--direction", "lower"), 2, "target_reached"),
    ],
)
def test_a_campaign_ends_at_its_target_or_its_last_round(
    desk: Campaigns, words: tuple[str, ...], factor: int, status: str
) -> None:
    begun(desk, *words)
    desk.play(winning(factor))
    data = desk.loop()
    assert (data["status"], data["iterations"]) == (status, 1)
    history = desk.home / "improve/sort/state/iteration_history"
    assert [each.name for each in history.glob("r*")] == ["round_1.json"]


def test_a_target_that_is_met_already_takes_no_round(desk: Campaigns) -> None:
    begun(desk, "--target", "3")
    data = desk.loop()
    assert (data["status"], data["iterations"], desk.asked()) == ("target_reached", 0, [])
    assert data["next"] == "holdfast improve set sort target_value VALUE"


@pytest.mark.parametrize("limit", ["--max-cost", "--eval-budget"])
def test_a_budget_below_nothing_is_refused(desk: Campaigns, limit: str) -> None:
    begun(desk)
    assert limit in desk.loop(limit, "-1", code=2)["message"]


def test_no_more_evaluations_are_made_than_allowed_and_none_is_lost(desk: Campaigns) -> None:
    desk.init("--format", "number", "--planners", "3", benchmark=CHEAP)
    desk.play({f"executor_{at}": {"factor": at + 3} for at in (1, 2, 3)})
    data = desk.loop("--eval-budget", "2", code=1)
    assert (data["status"], data["evaluations"]) == ("budget", 7)
    assert desk.file("state/iteration_state.json")["status"] == "interrupted"
    data = desk.loop("--rounds", "1")
    assert (data["best"], data["evaluations"]) == (6, 9), "the third, and what would be merged"
    assert len(desk.asked()) == 3


def test_nothing_is_begun_after_the_deadline(desk: Campaigns) -> None:
    begun(desk)
    data = desk.loop("--deadline", "2026-01-01", code=1)
    assert (data["status"], desk.asked()) == ("budget", [])


def test_what_a_model_may_cost_is_kept_to(desk: Campaigns) -> None:
    begun(desk)
    data = desk.loop("--max-cost", "0", "--executor", desk.script("{}"), code=1)
    assert data["status"] in ("budget", "circuit_breaker")


def test_a_run_tells_what_its_budget_buys(desk: Campaigns) -> None:
    ran = desk(
        "improve", "init", "--repo", str(desk.source), "--benchmark", CHEAP, "--format", "number",
        "--trust", "--topic", "sort", "--eval-budget", "2", "--executor", desk.agent,
    )  # fmt: skip
    assert "2 evaluations buy about 1 proposal\n" in ran.err
    ran = desk("improve", "run", "sort", "--eval-budget", "30")
    assert "2 evaluations buy about 1 proposal\n" in ran.out + ran.err


@pytest.mark.parametrize("how", ["signal", "verb"])
def test_a_run_that_is_stopped_leaves_no_process_and_goes_on(desk: Campaigns, how: str) -> None:
    begun(desk)
    mark = f"MARK_{os.getpid()}_{how}"
    go = desk.place / "go"
    os.mkfifo(go)
    desk.play({"executor_1": {"factor": 4, "sh": f"export {mark}=1; echo > {go}; sleep 1000"}})
    process = desk.started("--rounds", "1")
    go.read_text()  # until the executor is there
    if how == "signal":
        process.send_signal(signal.SIGINT)
    else:
        assert desk("improve", "stop", "sort").code == 0
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, (out, err)
    assert marked(mark) == []
    state = desk.file("state/iteration_state.json")
    assert (state["status"], state["current_step"]) == ("interrupted", "execution")
    assert desk.file("state/agent-settings.json")["status"] == "user_stopped"
    assert "--resume" in desk.loop("--rounds", "1", code=1)["hint"]
    desk.play({"executor_1": {"factor": 4}})
    assert desk.loop("--rounds", "1", "--resume")["best"] == 4


def test_a_benchmark_that_runs_is_ended_by_a_stop_and_made_again(desk: Campaigns) -> None:
    slow = f"test -e slow && sleep 1000; {CHEAP}"
    desk.init("--format", "number", "--planners", "2", benchmark=slow)
    desk.play({"executor_1": {"factor": 4}, "executor_2": {"factor": 5, "write": {"slow": ""}}})
    process = desk.started("--rounds", "1")
    wanted = "evaluate/executor_2"
    until(lambda: any(wanted in each["steps"] for each in desk.journal("intent")))
    assert desk("improve", "stop", "sort").code == 0
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    done = [each["step"] for each in desk.journal("done")]
    assert "evaluate/executor_1" in done and wanted not in done


def test_a_setting_counts_from_the_next_round_and_is_an_event(desk: Campaigns) -> None:
    begun(desk)
    desk.loop("--rounds", "1")
    assert desk("improve", "set", "sort", "number_of_agents", "2").code == 0
    settings = json.loads(desk.settings().read_text())
    desk.settings().write_text(json.dumps({**settings, "plateau_window": 7}))
    desk.loop("--rounds", "1")
    assert sorted(desk.asked()) == ["1/executor_1", "2/executor_1", "2/executor_2"]
    events = desk.file("tracking/events.json")
    told = {each["details"]["field"]: each["details"] for each in events}
    assert (told["number_of_agents"]["old_value"], told["number_of_agents"]["new_value"]) == (1, 2)
    assert told["plateau_window"]["source"] == "settings.json"


@pytest.mark.parametrize(
    ("field", "value"),
    [("benchmark_command", "echo 1000"), ("primary_metric", "x"), ("sealed_files", []),
     ("benchmark_direction", "lower_is_better"), ("executor", "command:rm -rf /")],
)  # fmt: skip
def test_a_run_refuses_settings_that_scores_do_not_belong_to(
    desk: Campaigns, field: str, value: object
) -> None:
    begun(desk)
    settings = json.loads(desk.settings().read_text())
    desk.settings().write_text(json.dumps({**settings, field: value}))
    error = desk.loop("--rounds", "1", code=1)
    assert field in error["message"]
    assert desk.asked() == []


def test_a_setting_that_is_not_there_is_answered_with_the_nearest(desk: Campaigns) -> None:
    begun(desk)
    for wrong, near in (("nothing", ""), ("plateau_windw", "did you mean plateau_window? ")):
        error = desk("improve", "set", "sort", wrong, "1", "--json").error()
        assert error["hint"] == f"{near}`holdfast schema settings` lists them"


def test_roles_are_set_together_and_places_not_at_all(desk: Campaigns) -> None:
    begun(desk)
    assert desk("improve", "set", "sort", "executor", "null").code == 0
    found = json.loads(desk.settings().read_text())
    assert (found["executor"], found["planner"]) == ("null", "null")
    for key, value in (("repo_path", "/tmp"), ("target_branch", "dev")):
        assert desk("improve", "set", "sort", key, value).code == 1
    data = desk.loop(code=1)
    assert (data["status"], data["merged"], desk.asked()) == ("circuit_breaker", 0, [])


def test_a_branch_that_is_checked_out_is_not_moved_until_it_is_left(desk: Campaigns) -> None:
    begun(desk)
    desk.play(winning(4))
    git(desk.source, "checkout", "-q", "improve/sort_faster")
    assert "checked out" in desk.loop("--rounds", "1", code=1)["message"]
    assert (desk.source / "solve.py").read_text().startswith("FACTOR = 3")
    git(desk.source, "checkout", "-q", "main")
    assert desk.loop("--rounds", "1", "--resume")["best"] == 4
    assert desk.asked() == ["1/executor_1"]


def test_broken_settings_stop_everything_and_are_left_alone(desk: Campaigns) -> None:
    begun(desk)
    desk.settings().write_text("not json")
    assert "settings.json" in desk.loop("--rounds", "1", code=3)["message"]
    assert desk.settings().read_text() == "not json"
    assert desk.asked() == []


PHASES = """
## Phases

| Phase | Focus | Sub-Score Targets | Status |
|-------|-------|-------------------|--------|
| one   | first | primary >= 4.5    | active |
| two   | later | primary >= 9      | pending |
"""


def test_a_phase_whose_targets_are_met_is_followed_by_the_next(desk: Campaigns) -> None:
    begun(desk)
    goal = desk.home / "improve/sort/config/goal.md"
    goal.write_text(goal.read_text().replace("## Phases\n", PHASES))
    assert desk("improve", "set", "sort", "current_phase", "one").code == 2
    desk.play(winning(4, 5))
    desk.loop("--rounds", "1")
    assert desk.file("state/agent-settings.json")["current_phase"] == "one"
    desk.loop("--rounds", "1")
    assert desk.file("state/agent-settings.json")["current_phase"] == "two"
    lines = [line for line in goal.read_text().splitlines() if line.startswith(("| one", "| two"))]
    assert lines == [
        "| one   | first | primary >= 4.5    | completed |",
        "| two   | later | primary >= 9      | active |",
    ]
    (event,) = [
        each
        for each in desk.file("tracking/events.json")
        if each["event_type"] == "phase_transition"
    ][1:]
    assert event["details"]["new_value"] == "two"


def test_a_target_of_a_phase_that_is_no_comparison_is_refused_with_its_line(
    desk: Campaigns,
) -> None:
    begun(desk)
    goal = desk.home / "improve/sort/config/goal.md"
    goal.write_text(goal.read_text().replace("## Phases\n", PHASES.replace(">= 4.5", "better")))
    line = next(
        at
        for at, text in enumerate(goal.read_text().splitlines(), 1)
        if "better" in text and "|" in text
    )
    assert f"line {line}" in desk.loop("--rounds", "1", code=3)["message"]


def test_a_branch_that_the_user_moved_is_measured_anew(desk: Campaigns) -> None:
    begun(desk)
    desk.play(winning(4, 5))
    desk.loop("--rounds", "1")
    git(desk.source, "checkout", "-q", "-b", "mine", "improve/sort_faster")
    (desk.source / "solve.py").write_text("FACTOR = 4.5\n")
    git(desk.source, "commit", "-qam", "by hand")
    git(desk.source, "branch", "-f", "improve/sort_faster", "mine")
    data = desk.loop("--rounds", "1")
    assert data["best"] == 5
    assert desk.report(2)["winner"]["score_before"] == 4.5
    assert [each["score"] for each in desk.journal("moved")] == [4.5]


def test_a_smoke_run_is_one_round_of_one_planner(desk: Campaigns) -> None:
    desk.init("--format", "number", benchmark=CHEAP)
    desk.play({"executor_1": {"factor": 4}})
    data = desk.loop("--smoke")
    assert (data["iterations"], desk.asked()) == (1, ["1/executor_1"])


def test_status_names_what_is_next(desk: Campaigns) -> None:
    begun(desk)
    ran = desk("improve", "status")
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "next: holdfast improve run sort"

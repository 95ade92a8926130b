"""Campaigns are listed, shown, drawn, reported on, and measured again, ours and foreign ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.charts import svg
from holdfast.improve.overview import Curve, Point, families
from holdfast.improve.pictures import scores, terminal
from tests.improve.campaigns import Campaigns
from tests.workspace.test_workspace import git


@pytest.fixture
def run(desk: Campaigns) -> Campaigns:
    """Two rounds: 18 → 24 by the second executor, then nothing better."""
    desk.init("--planners", "2", "--direction", "higher", "--target", "60")
    script = {"1/executor_1": {"factor": 2}, "1/executor_2": {"factor": 4}}
    desk.play(script)
    desk.loop("--rounds", "2", code=0)
    return desk


def asked(desk: Campaigns, *words: str, code: int = 0) -> Any:
    ran = desk("improve", *words)
    assert ran.code == code, (ran.code, ran.out, ran.err)
    return ran.out


# --- ours -----------------------------------------------------------------------------------


def test_list_and_show_tell_of_every_campaign_and_of_a_round_in_full(run: Campaigns) -> None:
    (row,) = json.loads(asked(run, "list", "--json"))["rows"]
    assert (row["campaign"], row["merged"], row["baseline"], row["best"]) == ("sort", 1, 18, 24)
    found = json.loads(asked(run, "show", "--round", "1", "--json"))["data"]
    assert [plan["critic_review"]["verdict"] for plan in found["plans"]] == ["approved"] * 2
    assert all("verdict" in plan["architect_review"] for plan in found["plans"])
    assert {each["status"] for each in found["results"]} == {"success", "regression"}
    lessons = [each["failure_analysis"]["lesson"] for each in found["history"]["losers"]]
    assert lessons and found["merge_report"]["status"] == "merged"
    text = asked(run, "show", "--round", "1")
    for wanted in ("round 1 of sort: merged", "  critic: approved", "  architect: approve"):
        assert wanted in text
    assert "  executor_1: regression 12\n  regression: the benchmark gives 12" in text
    assert "  executor_2: merged 24" in text
    assert "round 1    merged          24" in asked(run, "show")
    run.play({"executor_2": {"factor": 4, "write": {"notes.txt": "even"}}})
    run.loop("--rounds", "1")
    even = asked(run, "show", "--round", "3")
    assert "executor_2: not merged 24\n  regression: 24 against 24 in 1 pair: tie" in even
    assert "no such round: 9" in run("improve", "show", "--round", "9").err


def test_a_report_opens_with_what_blocks_and_what_to_do_next_above_the_chart(
    run: Campaigns,
) -> None:
    text = asked(run, "report")
    state, following, chart = (
        text.index(each) for each in ("**State:**", "**Next:**", "## Scores")
    )
    assert state < following < chart
    assert "holdfast improve run sort" in text[:chart]
    assert "| random search, same budget | not measured" in text
    assert "| best of N made from the base | 24, N = 2 |" in text
    assert "best of 2 candidates made from the base" in asked(run, "status")
    assert "- round 1, " in text[text.index("## Lessons") :]


def test_random_search_is_measured_with_as_many_evaluations_and_stands_beside_the_result(
    run: Campaigns,
) -> None:
    spent = json.loads(asked(run, "status", "--json"))["data"]["evaluations"] - 5
    text = asked(run, "report", "--control", "--trust")
    told = json.loads(asked(run, "status", "--json"))["data"]["control"]
    assert told["n"] == spent and 0 < told["best"] <= 6 * 12
    assert f"| random search, same budget | {told['best']:.6g} in {spent} evaluation" in text
    assert len(run.journal("control")) == spent
    asked(run, "report", "--control", "--trust")
    assert len(run.journal("control")) == spent, "what was measured is kept"
    assert f"random search with as many evaluations: {told['best']:g}" in asked(run, "status")


@pytest.mark.parametrize("kind", ["svg", "png", "html"])
def test_plot_draws_a_campaign(run: Campaigns, kind: str) -> None:
    out = run.place / f"sort.{kind}"
    asked(run, "plot", "--out", str(out))
    data = out.read_bytes()
    if kind == "png":
        assert data.startswith(b"\x89PNG")
        return
    text = data.decode()
    for wanted in ("baseline 18", "target 60", "winners, round 1: 24", "losers, round 1: 12"):
        assert wanted in text
    assert "architecture" in text or "optimization" in text
    assert "not a picture" in run("improve", "plot", "--out", "x.txt").err


def test_diff_prints_the_campaign_a_round_or_a_candidate_as_git_would(run: Campaigns) -> None:
    whole = asked(run, "diff")
    assert "-FACTOR = 3\n+FACTOR = 4\n" in whole
    assert whole.strip() == git(run.source, "diff", "--no-renames", "main", "improve/sort_faster")
    assert asked(run, "diff", "--round", "1") == whole
    assert "+FACTOR = 2\n" in asked(run, "diff", "--round", "1", "--executor", "executor_1")
    assert "merged nothing" in run("improve", "diff", "--round", "2").err


def test_replay_measures_a_candidate_again_and_says_if_the_outcome_is_another(
    run: Campaigns,
) -> None:
    before = run.journal()
    found = json.loads(asked(run, "replay", "--round", "1", "--json"))["data"]
    assert (found["recorded"], found["now"], found["base_now"]) == (24, 24, 18)
    assert found["same_outcome"] and found["better_now"]
    text = asked(run, "replay", "--round", "1")
    assert text == (
        "executor_2 of round 1: better, 24 against 18 in 1 pair; recorded 24, the same outcome\n"
    )
    lost = ("replay", "--round", "1", "--executor", "executor_1", "--json")
    assert json.loads(asked(run, *lost))["data"]["better_now"] is False
    assert run.journal() == before


# --- another system's -----------------------------------------------------------------------


def foreign(place: Path) -> Path:
    """A loop as another tool leaves it: names have drifted from round to round."""
    top = place / "project" / ".omc" / "self-improve"
    rows = [
        {"round": 1, "executor_id": "executor_a", "approach_family": "data", "score": 900.0},
        {"round": 1, "executor_id": "executor_b", "approach_family": "other", "score": None},
        {"round": 2, "executor_id": "executor_a", "approach_family": "data", "score": 1100.5},
        {"round": 2, "executor_id": "executor_b", "approach_family": "data", "score": 9.0},
    ]
    winner = {"executor_id": "executor_b", "plan_id": "round_3_planner_b", "score_after": 0.5}
    losers = [{"executor_id": "executor_a", "approach_family": "data", "reason": "no gain"}]
    files: dict[str, Any] = {
        "tracking/raw_data.json": rows,
        "tracking/baseline.json": {"baseline_score": 1000.0, "recorded_at": "2026-04-19T17:15:40Z"},
        "config/settings.json": {"benchmark_direction": "lower_is_better"},
        "state/agent-settings.json": {"iterations": 3, "best_score": 0.9, "status": "running"},
        "state/iteration_history/round_1.json": {
            "iteration": 1,
            "winner": {"executor_id": "executor_a", "benchmark_score": 900.0},
            "losers": losers,
        },
        "state/iteration_history/round_2.json": {
            "round": 2,
            "winner": {"plan_id": "round_2_planner_b", "score": 9.0},
        },
        "state/iteration_history/round_3.json": {"round": 3, "winner": winner},
        "state/merge_reports/round_3.json": {"round": 3, "winner": "executor_b"},
    }
    for name, value in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(json.dumps(value, indent=2))
    return place / "project"


def test_a_foreign_loop_is_drawn_from_where_it_lies(desk: Campaigns, tmp_path: Path) -> None:
    place = foreign(tmp_path)
    out = tmp_path / "loop.svg"
    told = json.loads(asked(desk, "plot", str(place), "--out", str(out), "--json"))
    assert (told["data"]["candidates"], told["data"]["best"]) == (5, 0.5)
    text = out.read_text()
    for wanted in ("lower is better, logarithmic, 1 without a score", "winners, round 3: 0.5"):
        assert wanted in text
    assert "no campaigns in" in desk("improve", "plot", str(desk.source), "--out", str(out)).err


def test_the_drift_of_a_foreign_loop_is_named_once_for_each_field(
    desk: Campaigns, tmp_path: Path
) -> None:
    place = foreign(tmp_path)
    lines = desk("validate", str(place)).out.splitlines()
    named = [line for line in lines if "raw_data.json" in line and "'benchmark_score'" in line]
    assert len(named) == 1 and "3 more" in named[0]
    every = desk("validate", str(place), "--all").out.splitlines()
    assert len(every) > len(lines)


# --- pictures -------------------------------------------------------------------------------


def curve(*scores: float | None, sd: float | None = None, higher: bool = True) -> Curve:
    points = [
        Point(at, score, at % 2 == 0, "data" if at % 2 else "other")
        for at, score in enumerate(scores, 1)
    ]
    return Curve(points, higher, "speed", 10.0, 20.0, sd)


def test_the_terminal_shows_the_scale_of_the_scores_and_every_kind_of_candidate() -> None:
    drawn = terminal(curve(8.0, 12.0, None, 14.0), width=40, height=7).splitlines()
    assert drawn[0].split() == ["20", "=" * 28]
    assert drawn[6].startswith("         8") and "." in drawn[6] and "x" in drawn[6]
    assert sum(line.count("#") for line in drawn[:7]) == 2
    assert "4 candidates, best 14" in drawn[7]
    assert terminal(Curve([], True, "speed", None, None, None)) == "no score yet"


def test_a_chart_without_a_gain_one_row_or_only_failures_is_drawn() -> None:
    for each in (curve(), curve(None), curve(10.0), curve(float("1e-300"), 1e300)):
        assert svg([scores(each)]).startswith("<svg") and terminal(each)


def test_the_noise_of_the_baseline_is_a_band() -> None:
    assert "fill-opacity='0.15'" in svg([scores(curve(9.0, 12.0, sd=0.5))])
    assert "fill-opacity='0.15'" not in svg([scores(curve(9.0, 12.0, sd=0.0))])


def test_families_are_ranked_by_what_they_gained_in_the_direction_that_is_better() -> None:
    first, second = families(curve(9.0, 12.0, 8.0, 15.0))
    assert (first["family"], second["family"]) == ("other", "data")
    assert (first["tried"], first["won"], first["gain"]) == (2, 2, 5.0)

"""Rounds from ideas to the merge, as the documents and the user's repository show them."""

from __future__ import annotations

from holdfast.improve.rules import CHECKS
from tests.improve.campaigns import Campaigns
from tests.workspace.test_workspace import git


def factors(*values: object) -> dict[str, dict[str, object]]:
    """What the executors of every round set, in their order."""
    return {f"executor_{at}": {"factor": value} for at, value in enumerate(values, 1)}


def test_the_best_candidate_is_merged_and_the_others_are_kept_as_tags(desk: Campaigns) -> None:
    desk.init()
    before = desk.seen()
    desk.play(factors(4, 6, 5))
    data = desk.loop("--rounds", "1")
    assert (data["status"], data["baseline"], data["best"], data["merged"]) == ("idle", 18, 36, 1)
    report = desk.report(1)
    assert report["status"] == "merged" and report["reason"] is None
    assert report["winner"]["executor_id"] == "executor_2"
    assert (report["winner"]["score_before"], report["winner"]["score_after"]) == (18, 36)
    assert report["re_benchmark_score"] == 36
    tags = [f"archive/sort_faster/round_1_executor_{at}" for at in (1, 3)]
    assert report["archived"] == tags
    assert "FACTOR = 6" in desk.solve()
    for tag, factor in zip(tags, (4, 5), strict=True):
        assert f"FACTOR = {factor}\n" in desk.solve(tag)
    message = git(desk.source, "log", "-1", "--format=%s%n%P", "improve/sort_faster").splitlines()
    assert message[0].startswith("Iteration 1: ") and message[0].endswith("(score: 18 → 36)")
    assert len(message[1].split()) == 2, "a merge is never a fast forward"
    assert {ref for ref in desk.refs() if "archive" not in ref} == {
        "refs/heads/main",
        "refs/heads/improve/sort_faster",
    }
    assert desk.seen() == before
    rows = desk.file("tracking/raw_data.json")
    assert [(row["benchmark_score"], row["is_winner"]) for row in rows] == [
        (24, False),
        (36, True),
        (30, False),
    ]
    assert desk("validate", "--strict", *map(str, documents(desk))).code == 0


def documents(desk: Campaigns) -> list[str]:
    """Every documented file of the campaign."""
    top = desk.home / "improve/sort"
    kinds = ("config", "state", "plans", "tracking")
    found = [str(each) for kind in kinds for each in (top / kind).rglob("*.[jm][sd]*")]
    return [each for each in found if "/." not in each and "idea.md" not in each]


def test_where_lower_is_better_the_lowest_wins(desk: Campaigns) -> None:
    desk.init("--direction", "lower")
    desk.play(factors(2, 1, 4))
    assert desk.loop("--rounds", "1")["best"] == 6
    assert desk.report(1)["winner"]["executor_id"] == "executor_2"


def test_a_tie_is_not_merged_and_counts_for_the_breaker(desk: Campaigns) -> None:
    desk.init()
    desk.play(
        {
            "executor": {
                "write": {"solve.py": "FACTOR = 3\n\n\ndef solve(x):\n    return x * FACTOR\n"}
            }
        }
    )
    data = desk.loop("--rounds", "1")
    report = desk.report(1)
    assert report["status"] == "no_improvement"
    assert report["reason"].startswith("tie")
    assert (data["breaker"], data["plateau"], data["best"]) == (1, 0, 18)
    assert desk.solve() == git(desk.source, "show", "main:solve.py")


def test_of_equal_candidates_the_first_wins(desk: Campaigns) -> None:
    desk.init()
    desk.play(factors(2, 6, 6))
    desk.loop("--rounds", "1")
    assert desk.report(1)["winner"]["executor_id"] == "executor_2"


def test_compatible_candidates_are_stacked_on_the_winner(desk: Campaigns) -> None:
    desk.init()
    desk.play(
        {
            "executor_1": {"factor": 6},
            "executor_2": {"sh": "sed -i 's/return FACTOR . x/return FACTOR * x + 1/' solve.py"},
            "executor_3": {"factor": 2},
        }
    )
    data = desk.loop("--rounds", "1")
    report = desk.report(1)
    assert report["winner"]["score_after"] == 36
    assert [each["executor_id"] for each in report.get("stacked", [])] == ["executor_2"]
    assert data["best"] == 39
    assert "FACTOR = 6" in desk.solve() and "FACTOR * x + 1" in desk.solve()
    assert [each["score"] for each in desk.history(1)["stacked"]] == [39]


def test_rounds_go_on_where_the_last_one_ended(desk: Campaigns) -> None:
    desk.init()
    desk.play({**factors(4, 2, 1), "2/executor_1": {"factor": 5}})
    desk.loop("--rounds", "1")
    data = desk.loop("--rounds", "1")
    assert (data["iterations"], data["best"]) == (2, 30)
    everyone = [f"{number}/executor_{at}" for number in (1, 2) for at in (1, 2, 3)]
    assert sorted(desk.asked()) == everyone
    assert desk.history(2)["baseline_score"] == 24
    log = git(desk.source, "log", "--first-parent", "--format=%s", "improve/sort_faster")
    assert [line.split(":")[0] for line in log.splitlines()] == [
        "Iteration 2",
        "Iteration 1",
        "start",
    ]


def test_reviews_are_stored_with_the_plan(desk: Campaigns) -> None:
    desk.init("--planners", "1")
    desk.play(factors(4))
    desk.loop("--rounds", "1")
    plan = desk.file("plans/round_1/plan_planner_a.json")
    assert [plan["critic_review"][name] for name in CHECKS] == ["pass"] * 5
    assert plan["critic_approved"] is True
    assert plan["architect_review"]["verdict"] == "approve"
    archived = (
        desk.home / "improve/sort/state/plan_archive/round_1/plan_planner_a.json"
    ).read_bytes()
    assert archived == (desk.home / "improve/sort/plans/round_1/plan_planner_a.json").read_bytes()

"""Ideas, research, plans and reviews, by commands that follow a script."""

from __future__ import annotations

import json
from typing import Any

from tests.improve.campaigns import Campaigns
from tests.workspace.test_workspace import git

CHEAP = "sed -n 's/FACTOR = //p' solve.py"


def plan(family: str, factor: int = 4, **fields: Any) -> dict[str, Any]:
    """A reply of a planner, in form."""
    made: dict[str, Any] = {
        "hypothesis": f"Factor {factor} is better, by {family}",
        "approach_family": family,
        "target_files": ["solve.py"],
        "steps": [{"step": 1, "file": "solve.py", "change": f"FACTOR = {factor}"}],
        "expected_outcome": {"metric": "primary", "estimated_impact": "1", "rationale": "more"},
        "history_reference": {"builds_on": "none", "avoids": "none"},
    }
    return {"reply": made | fields}


def planned(desk: Campaigns, script: dict[str, Any], *words: str) -> Any:
    """One round with planners of their own."""
    desk.play({"executor_1": {"factor": 4}, "executor_2": {"factor": 5}, **script})
    return desk.loop("--rounds", "1", "--planner", desk.agent, *words)


def begun(desk: Campaigns, *words: str) -> None:
    desk.init("--format", "number", *words, benchmark=CHEAP)


def inputs(desk: Campaigns, role: str, id: str) -> Any:
    """What somebody was asked last, found by the hash in its intent."""
    lines = (desk.home / "improve/sort/inputs.jsonl").read_bytes().splitlines()
    found = {each["input"]: each["question"] for each in map(json.loads, lines) if "input" in each}
    named = {
        args["input"]
        for each in desk.journal("intent")
        for args in each["steps"].values()
        if "input" in args
    }
    wanted = [
        found[name] for name in named if (found[name]["role"], found[name]["id"]) == (role, id)
    ]
    return max(wanted, key=lambda each: each["round"])


def test_each_role_has_what_it_needs(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    assert desk("improve", "idea", "sort", "Try a prime factor").code == 0
    idea = {"title": "Prime", "source": "s", "evidence": "e", "approach_family": "data"}
    idea |= {"confidence": "high", "estimated_impact": "1"}
    brief = {"repo_analysis_summary": "small", "ideas": [idea]}
    script = {
        "researcher": {"reply": brief},
        "planner_a": plan("data"),
        "planner_b": plan("optimization", 5),
    }
    planned(desk, script, "--researcher", desk.agent)
    asked = inputs(desk, "planner", "planner_a")
    given = asked["input"]
    assert (asked["round"], asked["slug"], given["objective"]) == (1, "sort", "Sort faster")
    assert given["ideas"] == ["Try a prime factor"]
    assert given["brief"]["ideas"][0]["title"] == "Prime"
    assert {"phase", "harness", "history", "family_statistics", "families", "goal"} <= given.keys()
    assert inputs(desk, "planner", "planner_b")["input"]["ideas"] == []
    approved = inputs(desk, "executor", "executor_1")["input"]["plan"]
    assert approved["critic_review"]["verdict"] == "approved" and "architect_review" in approved
    assert desk.file("state/research_briefs/round_1.json")["ideas"][0]["title"] == "Prime"
    planned(desk, {**script, "planner_a": plan("architecture", 6)})
    later = inputs(desk, "planner", "planner_a")["input"]
    assert later["ideas"] == [] and later["history"][0]["winner"]["hypothesis"]
    assert desk.file("state/iteration_state.json")["user_ideas_consumed"] == []


def test_an_idea_in_the_file_is_used_once_and_then_gone(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    file = desk.home / "improve/sort/config/idea.md"
    template = file.read_text()
    file.write_text(f"{template}\n## Prime\nUse a prime factor.\n")
    desk.play({"executor_1": {"factor": 5}})
    desk.loop("--rounds", "1")
    assert desk.file("state/iteration_state.json")["user_ideas_consumed"] == [
        "Prime: Use a prime factor."
    ]
    assert "Prime" not in file.read_text()
    assert desk.history(1)["winner"]["hypothesis"] == "Prime: Use a prime factor."


def test_where_all_plans_are_rejected_nothing_is_run(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    data = planned(desk, {"planner_a": plan("data", hypothesis=""), "planner_b": plan("magic")})
    report = desk.report(1)
    assert report["status"] == "all_rejected"
    assert "H001" in report["reason"] and "magic" in report["reason"]
    assert (data["breaker"], data["plateau"], data["iterations"]) == (1, 0, 1)
    assert desk.history(1)["winner"] is None
    assert desk.asked("executor") == []
    archived = desk.home / "improve/sort/state/plan_archive/round_1"
    assert [each.name for each in sorted(archived.glob("plan_*"))] == ["plan_planner_b.json"]


def test_only_plans_that_are_alive_take_a_family(desk: Campaigns) -> None:
    begun(desk, "--planners", "3")
    script = {"planner_a": plan("data", target_files=["bench/run.py"]), "planner_b": plan("data"),
              "planner_c": plan("data", 5)}  # fmt: skip
    planned(desk, script)
    plans = [desk.file(f"plans/round_1/plan_planner_{each}.json") for each in "abc"]
    assert [each["critic_approved"] for each in plans] == [False, True, False]
    assert "H003" in plans[2]["critic_review"]["rejection_reason"]


def test_a_planner_that_fails_twice_is_left_out(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    planned(desk, {"planner_a": {"exit": 3}, "planner_b": plan("data")})
    assert desk.asked("planner").count("1/planner_a") == 2
    assert desk.file("state/iteration_state.json")["planning"]["approved_count"] == 1
    assert desk.report(1)["status"] == "merged"


def test_no_plan_at_all_is_a_round_without_a_winner(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    planned(desk, {"planner_a": {"reply": "I would rather not."}})
    assert desk.report(1)["status"] == "all_rejected"
    assert "no plans produced" in desk.report(1)["reason"]


def test_a_researcher_that_fails_twice_leaves_an_empty_brief(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    planned(
        desk, {"researcher": {"exit": 1}, "planner_a": plan("data")}, "--researcher", desk.agent
    )
    assert desk.asked("researcher") == ["1/researcher"] * 2
    assert desk.file("state/research_briefs/round_1.json")["ideas"] == []
    assert desk.file("state/iteration_state.json")["research"]["status"] == "failed"
    assert desk.report(1)["status"] == "merged"


def test_the_architect_advises_and_the_critic_binds(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    script = {
        "planner_a": plan("data"),
        "planner_b": plan("optimization", 5),
        "architect/planner_a": {
            "reply": {"verdict": "reject", "feedback": "no", "structural_concerns": []}
        },
        "architect/planner_b": {
            "reply": {"verdict": "approve", "feedback": "", "structural_concerns": []}
        },
        "critic/planner_a": {"reply": {"verdict": "approved", "rejection_reason": None}},
        "critic/planner_b": {
            "reply": {"verdict": "rejected", "rejection_reason": "two ideas in one"}
        },
    }
    planned(desk, script, "--architect", desk.agent, "--critic", desk.agent)
    first, second = (desk.file(f"plans/round_1/plan_planner_{each}.json") for each in "ab")
    assert (first["architect_review"]["verdict"], first["critic_approved"]) == ("reject", True)
    assert second["critic_review"]["rejection_reason"] == "two ideas in one"
    assert desk.asked("executor") == ["1/executor_1"]


def test_families_of_the_harness_are_known_and_its_example_is_not(desk: Campaigns) -> None:
    begun(desk, "--planners", "2")
    harness = desk.home / "improve/sort/config/harness.md"
    harness.write_text(
        harness.read_text() + "\n- `caching` — keep results\n\n<!--\n- `example`\n-->\n"
    )
    planned(desk, {"planner_a": plan("caching"), "planner_b": plan("example")})
    assert desk.file("plans/round_1/plan_planner_a.json")["critic_approved"] is True
    assert desk.file("plans/round_1/plan_planner_b.json")["critic_approved"] is False


def test_a_model_without_hands_edits_by_its_reply(desk: Campaigns) -> None:
    begun(desk, "--planners", "1")
    edit = {"edits": [{"file": "solve.py", "old": "FACTOR = 3", "new": "FACTOR = 7"}]}
    model = desk.script(json.dumps(edit))
    data = desk.loop("--rounds", "1", "--executor", model)
    assert data["best"] == 7
    assert "FACTOR = 7" in git(desk.source, "show", "improve/sort_faster:solve.py")

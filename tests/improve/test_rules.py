"""What code decides about a plan, before anybody else is asked."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.contracts.improve import APPROACH_FAMILIES
from holdfast.improve.rules import Bounds, advice, likeness, rejected_by, review
from holdfast.workspace.repo import Sealed

PATHS = ["solve.py", "lib/sort.py", "bench/run.py", "out/x"]


def plan(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "plan_id": "round_3_planner_a",
        "planner_id": "planner_a",
        "round": 3,
        "hypothesis": "A heap is faster than a sorted list",
        "approach_family": "data",
        "critic_approved": False,
        "target_files": ["solve.py"],
        "steps": [{"step": 1, "file": "solve.py", "change": "use heapq"}],
        "expected_outcome": {
            "metric": "primary",
            "estimated_impact": "5 %",
            "rationale": "O(log n)",
        },
        "history_reference": {"builds_on": "none", "avoids": "none"},
    }
    return made | fields


def bounds(**fields: Any) -> Bounds:
    made = Bounds(
        [*APPROACH_FAMILIES, "caching"],
        [],
        {likeness("Use a heap!"): "regression"},
        Sealed("", ("bench", "data.json")),
        [],
        lambda path: path.startswith("out"),
    )
    return made._replace(**fields)


def failed(
    made: dict[str, Any], within: Bounds | None = None, taken: tuple[str, ...] = ()
) -> list[str]:
    """The checks that a plan fails, and that it says why."""
    found = review(made, within or bounds(), taken)
    assert (found["verdict"] == "rejected") == bool(found["rejection_reason"])
    return [name for name, value in found.items() if value == "fail"]


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in plan().items() if key != name}


def test_a_plan_in_form_is_approved() -> None:
    assert failed(plan()) == []
    assert failed(plan(approach_family="caching")) == []
    assert failed(plan(approach_family="other")) == []


@pytest.mark.parametrize("hypothesis", ["", "  ", ["one", "two"], None, 3])
def test_a_plan_has_exactly_one_hypothesis(hypothesis: object) -> None:
    assert "h001_hypothesis_count" in failed(plan(hypothesis=hypothesis))
    assert "h001_hypothesis_count" in failed(without("hypothesis"))


@pytest.mark.parametrize(
    ("winners", "rejected"),
    [
        (["data", "data"], True),
        (["data", "optimization"], False),
        (["data"], False),
        (["data", None, "data"], False),
        (["optimization", "data", "data"], True),
        (["data", "data", None], False),
        ([], False),
    ],
)
def test_no_family_wins_three_rounds_in_a_row(winners: list[str | None], *, rejected: bool) -> None:
    assert ("h002_family_streak" in failed(plan(), bounds(winners=winners))) is rejected


def test_no_two_plans_of_a_round_are_of_one_family() -> None:
    assert failed(plan(), taken=("data",)) == ["h003_intra_round_diversity"]
    assert failed(plan(), taken=("optimization",)) == []


@pytest.mark.parametrize(
    "broken",
    [
        without("steps"),
        plan(steps=[]),
        plan(steps="abc"),
        plan(target_files="solve.py"),
        plan(approach_family="magic"),
        plan(
            approach_family="other",
            expected_outcome={**plan()["expected_outcome"], "rationale": " "},
        ),
        without("history_reference"),
    ],
)
def test_a_plan_out_of_form_is_rejected(broken: dict[str, Any]) -> None:
    assert failed(broken) == ["schema_valid"]


@pytest.mark.parametrize(
    "path", ["bench/run.py", "./bench/x", "data.json", "../x", "/etc/passwd", "a/../../x", "out/x"]
)
def test_a_plan_keeps_to_what_it_may_change(path: str) -> None:
    assert failed(plan(target_files=[path])) == ["schema_valid"]
    assert failed(plan(steps=[{"step": 1, "file": path, "change": "x"}])) == ["schema_valid"]
    assert advice(plan(target_files=[path]), bounds(), PATHS)["verdict"] == "reject"


def test_a_scope_bounds_what_plans_touch() -> None:
    within = bounds(scope=["lib/"])
    assert failed(plan(), within) == ["schema_valid"]
    inside = plan(
        target_files=["lib/sort.py"], steps=[{"step": 1, "file": "lib/new.py", "change": "x"}]
    )
    assert failed(inside, within) == []


def test_a_failure_is_repeated_only_with_a_reason() -> None:
    again = plan(hypothesis="use a HEAP")
    assert failed(again) == ["history_aware"]
    again["history_reference"] = {
        "builds_on": "none",
        "avoids": "it was pushed one by one; now heapify",
    }
    assert failed(again) == []


def test_a_model_can_reject_and_cannot_approve() -> None:
    fine, bad = review(plan(), bounds(), ()), review(plan(hypothesis=""), bounds(), ())
    said = {"verdict": "rejected", "rejection_reason": "it would change the benchmark"}
    assert rejected_by(fine, said)["rejection_reason"] == "it would change the benchmark"
    assert rejected_by(bad, {"verdict": "approved"}) == bad
    assert rejected_by(fine, {"verdict": "approved"}) == fine

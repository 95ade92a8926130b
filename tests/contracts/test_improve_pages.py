"""goal.md and harness.md: parsed for what they say, told where they are odd, rendered anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import goal, harness
from holdfast.contracts.goal import Goal, Phase, SubScoreTarget
from holdfast.contracts.harness import CustomFamily, Harness
from holdfast.contracts.kind import Finding, Kind
from holdfast.contracts.kinds import kind
from tests.contracts.fixtures import FOLDER, Fixture, fixtures
from tests.contracts.rounds import alike, assert_strict_round
from tests.contracts.strategies import Json, values_of

PAGES = [each for each in fixtures() if each.kind.name in ("goal", "harness")]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


GOAL = text_of("goal/1.0-with-phases")
HARNESS = text_of("harness/1.0-with-families")


def the_goal(text: str) -> Goal:
    record = goal.parse(text).record
    assert isinstance(record, Goal)
    return record


def the_harness(text: str) -> Harness:
    record = harness.parse(text).record
    assert isinstance(record, Harness)
    return record


def replaced(text: str, old: str, new: str) -> tuple[str, int]:
    """The text with a change, and the line that it is in."""
    assert text.count(old) == 1
    above = text.partition(old)[0]
    return text.replace(old, new), above.count("\n") + 1


def odd(findings: list[Finding]) -> list[tuple[str, str, str, int]]:
    return [(each.level, each.code, each.field, each.line) for each in findings]


# --- both -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", PAGES, ids=lambda fixture: fixture.name)
def test_a_fixture_says_nothing_odd_and_a_goal_is_rendered_without_loss(fixture: Fixture) -> None:
    assert fixture.kind.parse is not None
    found = fixture.kind.parse(fixture.path.read_text(encoding="utf-8"))
    assert found.findings == []
    assert found.record is not None
    if isinstance(found.record, Goal):
        again = goal.parse(goal.render(found.record))
        assert (again.findings, again.record) == ([], found.record)
    assert_strict_round(fixture.kind, found.value)


@pytest.mark.parametrize("fixture", PAGES, ids=lambda fixture: fixture.name)
def test_a_fixture_is_known_by_its_content(fixture: Fixture) -> None:
    assert alike(fixture.path.read_text(encoding="utf-8")) == [fixture.kind.name]


pieces = st.sampled_from(
    [
        "# Improvement Goal\n",
        "# Second\n",
        "## Objective\n",
        "## objective (again)\r\n",
        "## Target Metric\n",
        "## Scope\n",
        "## Milestones (optional)\n",
        "## Experiment Ideas\n",
        "## Phases\n",
        "## Budget\n",
        "## \n",
        "## H001 — One\n",
        "## H007\n",
        "## Custom Rules\n",
        "## Custom Approach Families\n",
        "- **Metric name**: `p95`\n",
        "- **Target value**: 12\n",
        "* **Target value:** soon\n",
        "**Direction**: Higher is better\n",
        "**In scope**:\n",
        "- **Out of scope**:\n  - a\n    - b\n",
        "- **Unit**: ms\n",
        "| Phase | Focus | Sub-Score Targets | Status |\n|---|---|---|---|\n",
        "| phase_1 | a \\| b | dim_a >= 90.0, dim_b < 3 and fast | active |\n",
        "| phase_2 | c | — | Done\n",
        "| Milestone | Target | Strategy Focus | Extra |\n",
        "| m | 1 | x | y | z |\n",
        "| --- |\n",
        "- `caching` — keeps\n  results\n",
        "- caching\n",
        "* Not A Slug\n",
        "<!-- hidden\n## Scope\n-->\n",
        "<!-- open\n",
        "-->\n",
        "```\n## no section\n```\n",
        "text\n",
        "  indented\n",
        "### deeper\n",
        "- bullet\n",
        "1. one\n",
        "\n",
        "\t\n",
    ]
)
texts = st.lists(pieces | st.text(max_size=5), max_size=25).map("".join)


@pytest.mark.parametrize("its", [kind("goal"), kind("harness")], ids=lambda its: its.name)
@given(text=texts)
def test_any_text_is_read_and_a_goal_again_after_it_was_rendered(its: Kind, text: str) -> None:
    assert its.parse is not None
    found = its.parse(text)
    assert found.record is not None or [each for each in found.findings if each.level == "error"]
    assert all(0 <= each.line <= text.count("\n") + 1 for each in found.findings)
    if isinstance(found.record, Goal):
        assert the_goal(goal.render(found.record)) == found.record


def test_comments_are_no_part_of_it_and_move_no_line() -> None:
    text = GOAL.replace("## Scope", "<!-- a\n## Phases\nlong one -->\n## Reach")
    found = goal.parse(text)
    assert odd(found.findings) == [
        ("warning", "missing", "Scope", 0),
        ("warning", "unknown_section", "Reach", 15),
    ]
    assert "<!--" not in str(found.value)


def test_a_comment_that_is_never_closed_hides_the_rest() -> None:
    assert (
        the_harness("## H001 — One\ntext\n<!-- open\n## Custom Rules\nhidden\n").custom_rules == ""
    )


# --- goal -----------------------------------------------------------------------------------


def test_a_goal_is_read_into_its_parts() -> None:
    record = the_goal(GOAL)
    assert record.title == "Improvement Goal"
    assert record.objective.startswith("Pack the items")
    metric = record.target_metric
    assert (metric.name, metric.target_value, metric.direction) == (
        "bins",
        207.5,
        "lower_is_better",
    )
    assert record.scope.in_scope == "`src/pack.py`"
    assert record.scope.out_of_scope == "- the benchmark\n- anything that needs a network"
    assert [each.strategy_focus for each in record.milestones] == ["sort | group", "tables"]
    assert record.experiment_ideas == "- a table of gaps\n- random restarts"
    first, second = record.phases
    assert (first.phase, first.focus, first.status) == ("phase_1", "the large set", "active")
    assert [(each.dimension, each.comparison, each.bound) for each in second.targets] == [
        ("dim_b", "<=", 50.0),
        ("dim_c", "<", 3.0),
    ]


@pytest.mark.parametrize(
    ("text", "targets", "unread"),
    [
        ("dim_a >= 90.0", [("dim_a", ">=", 90.0)], []),
        ("`dim_a`>=90", [("dim_a", ">=", 90.0)], []),
        ("dim_a ≥ 90; dim_b ≤ -1.5e3", [("dim_a", ">=", 90.0), ("dim_b", "<=", -1500.0)], []),
        ("a = 1<br>b == 2 and c > .5", [("a", "==", 1), ("b", "==", 2), ("c", ">", 0.5)], []),
        ("fast enough, dim_a >= 90%", [], ["fast enough", "dim_a >= 90%"]),
        ("dim_a >= nan", [], ["dim_a >= nan"]),
        ("—", [], []),
        ("", [], []),
    ],
)
def test_targets_of_a_phase_are_read(
    text: str, targets: list[tuple[str, str, float]], unread: list[str]
) -> None:
    changed, line = replaced(GOAL, "dim_a >= 90.0", text)
    found = goal.parse(changed)
    assert isinstance(found.record, Goal)
    phase = found.record.phases[0]
    assert [(each.dimension, each.comparison, each.bound) for each in phase.targets] == targets
    assert phase.unread == unread
    assert odd(found.findings) == [("warning", "target", "phases[0].targets", line)] * len(unread)
    assert the_goal(goal.render(found.record)).phases[0] == phase


def test_the_labels_of_a_scope_may_stand_on_lines_of_their_own() -> None:
    text = "## Scope\n**In scope**:\n\n- a\n  - nested\n* b\n\nmore\n\n**Out of Scope:** c\n"
    scope = the_goal(text).scope
    assert scope.in_scope == "- a\n  - nested\n- b\n\nmore"
    assert scope.out_of_scope == "c"


def test_what_else_stands_in_a_section_is_kept() -> None:
    text = GOAL.replace("- **Direction**", "- **Unit**: pieces\n- **Direction**")
    text = text.replace("## Phases\n", "## Phases\nOne after the other.\n\n")
    record = the_goal(text)
    assert record.remarks == {
        "Target Metric": "- **Unit**: pieces",
        "Phases": "One after the other.",
    }
    rendered = goal.render(record)
    assert "- **Unit**: pieces" in rendered
    assert the_goal(rendered) == record


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("207.5", "as few as possible", ("error", "type", "target_metric.target_value")),
        ("lower_is_better", "Lower is better", ("warning", "choice", "target_metric.direction")),
        ("lower_is_better", "sideways", ("error", "choice", "target_metric.direction")),
        ("| active |", "| ACTIVE |", ("warning", "choice", "phases[0].status")),
        ("| pending |", "| later |", ("error", "choice", "phases[1].status")),
        ("dim_c < 3 | pending |", "dim_c < 3 | active |", ("error", "rule", "")),
        ("| phase_2 |", "|  | the", ("error", "type", "phases[1].phase")),
        ("| tables |", "| tables | and more |", ("warning", "table", "Milestones (optional)")),
        ("| Status |", "| Status | Who |", ("warning", "table", "Phases")),
        ("## Objective\n", "## Purpose\n", ("warning", "unknown_section", "Purpose")),
        ("## Experiment Ideas", "## scope", ("warning", "duplicate", "scope (optional)")),
    ],
)
def test_what_is_odd_is_told_with_its_line(
    old: str, new: str, finding: tuple[str, str, str]
) -> None:
    text, line = replaced(GOAL, old, new)
    assert (*finding, line) in odd(goal.parse(text).findings)


def test_a_goal_that_cannot_be_read_gives_its_value_all_the_same() -> None:
    found = goal.parse(GOAL.replace("| pending |", "| active |"))
    assert found.record is None
    assert found.value["phases"][1]["phase"] == "phase_2"


def test_the_phases_alone_are_a_goal_of_which_the_rest_is_missing() -> None:
    text = "## Phases" + GOAL.partition("## Phases")[2]
    found = goal.parse(text)
    assert isinstance(found.record, Goal)
    assert len(found.record.phases) == 2
    assert {(each.level, each.code) for each in found.findings} == {("warning", "missing")}


def test_a_table_without_a_heading_is_read_by_its_columns() -> None:
    found = goal.parse("## Phases\n| p | f | a > 1 | pending |\n")
    assert isinstance(found.record, Goal)
    assert found.record.phases[0].targets == [
        SubScoreTarget(dimension="a", comparison=">", bound=1.0)
    ]
    assert ("warning", "table", "Phases", 2) in odd(found.findings)


@pytest.mark.parametrize("text", ["a\n## Phases\n| x |", "<!-- a -->", "\na"])
def test_no_text_can_smuggle_in_a_section(text: str) -> None:
    value = goal.parse(GOAL).value | {"objective": text}
    (finding,) = kind("goal").read(value).findings
    assert (finding.code, finding.field) == ("rule", "objective")


def _plain_phase(value: Json) -> Json:
    return value | {"unread": [], "status": "pending"}


def _readable_goal(value: Json) -> Json:
    """Without what a text cannot tell from something else."""
    metric = dict.fromkeys(("name", "target_value", "direction"))
    metric |= {name: each for name, each in value["target_metric"].items() if name != "name"}
    plain = {"title": "Improvement Goal", "intro": "", "remarks": {}, "other": []}
    return value | plain | {"target_metric": metric, "scope": {"in_scope": "", "out_of_scope": ""}}


@given(values_of(Goal, keeping={Goal: _readable_goal, Phase: _plain_phase}))
def test_a_goal_that_was_made_here_is_read_back_from_its_text(value: Json) -> None:
    record = Goal.model_validate(value)
    again = the_goal(goal.render(record))
    assert again.phases == record.phases
    assert again.milestones == record.milestones
    assert again.target_metric == record.target_metric
    assert again.objective == record.objective


# --- harness --------------------------------------------------------------------------------


def test_a_harness_is_read_into_its_parts() -> None:
    record = the_harness(HARNESS)
    assert [(rule.id, rule.title) for rule in record.rules] == [
        ("H001", "One Hypothesis Per Plan"),
        ("H002", "No Approach Family Streak"),
        ("H003", "Intra-Round Diversity"),
        ("H016", "Seeds Stay As They Are"),
    ]
    assert '{"harness_error": "seed"}' in record.rules[3].text
    assert record.custom_rules == "- Nothing is installed."
    assert record.custom_families == [
        CustomFamily(name="test_repair", description="mends a test, and nothing else"),
        CustomFamily(name="prompt_engineering", description=""),
        CustomFamily(name="caching", description="keeps results\nbetween runs"),
    ]
    assert record.families_remark == "Beside the known ones:"


def test_an_example_inside_a_comment_is_no_family() -> None:
    text = "## Custom Approach Families\n<!-- Example: -->\n<!-- - `prompt_engineering` -->\n"
    assert the_harness(text).custom_families == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("* prompt_engineering", "* Prompt Engineering", ("warning", "family")),
        ("* prompt_engineering", "* `test_repair`", ("warning", "family")),
        ("## H003", "## Rule 3", ("warning", "unknown_section")),
        ("## H016", "## H002", ("warning", "duplicate")),
        ("## Custom Rules", "## Customs", ("warning", "unknown_section")),
    ],
)
def test_what_is_odd_in_a_harness_is_told_with_its_line(
    old: str, new: str, finding: tuple[str, str]
) -> None:
    text, line = replaced(HARNESS, old, new)
    found = harness.parse(text)
    assert isinstance(found.record, Harness)
    assert (*finding, line) in [(each.level, each.code, each.line) for each in found.findings]


def test_a_harness_without_one_of_the_three_rules_is_told() -> None:
    text, _ = replaced(HARNESS, "## H003", "## H004")
    assert odd(harness.parse(text).findings) == [("warning", "missing", "H003", 0)]


@pytest.mark.parametrize("heading", ["H001 — One", "H001: One", "H001 - One", "H001 One"])
def test_a_rule_is_known_by_its_number(heading: str) -> None:
    (rule,) = the_harness(f"## {heading}\ntext\n").rules
    assert (rule.id, rule.title, rule.text) == ("H001", "One", "text")

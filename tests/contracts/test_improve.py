"""The records of the improvement loop: what may be written, and what each rule refuses."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import improve, improve_state
from holdfast.contracts.kind import Located, Origin
from holdfast.contracts.kinds import kind
from tests.contracts.fixtures import FOLDER, Fixture, fixtures
from tests.contracts.rounds import alike, assert_strict_round, assert_written_as_read, by_path
from tests.contracts.strategies import Json, Keeping, values_of
from tests.contracts.test_agents import changed, crossed, told

OURS = [each for each in fixtures() if each.kind in improve.KINDS and each.kind.shape != "markdown"]


def example(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


PLAN = example("plan/1.0-approved")
RESULT = example("benchmark-result/1.0-success")
CUT = example("benchmark-result/1.0-cut-and-failed")
BRIEF = example("research-brief/1.0-two-ideas")
HISTORY = example("iteration-history/1.0-a-win")
ROWS = example("raw-data/1.0-two-rounds")
STATE = example("iteration-state/1.0-executing")
MERGED = example("merge-report/1.0-merged")
NO_WINNER = example("merge-report/1.0-no-winner")
EVENTS = example("improve-events/1.0-both")
SETTINGS = example("settings/1.0-all")
AGENT_SETTINGS = example("agent-settings/1.0-at-the-target")


# --- drift ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [(True, "pass"), (1, "pass"), (False, "fail"), (0, "fail"), ("Passed", "pass")],
)
def test_reviews_that_say_yes_and_no_otherwise_are_read(given: object, meant: str) -> None:
    review = PLAN["critic_review"] | {"schema_valid": given}
    reading = kind("plan").read(PLAN | {"critic_review": review})
    assert reading.value["critic_review"]["schema_valid"] == meant
    assert [found[:3] for found in reading.findings] == [
        ("warning", "choice", "critic_review.schema_valid")
    ]


@pytest.mark.parametrize("given", ["infrastructure after two of data", 2, None])
def test_a_review_that_says_neither_is_refused(given: object) -> None:
    review = PLAN["critic_review"] | {"schema_valid": given}
    reading = kind("plan").read(PLAN | {"critic_review": review})
    assert reading.record is None
    assert [found.level for found in reading.findings] == ["error"]


def test_rounds_and_scores_are_read_under_other_names() -> None:
    row = {name: value for name, value in ROWS[0].items() if name != "iteration"}
    row["score"] = row.pop("benchmark_score")
    reading = kind("raw-data").read(row | {"round": ROWS[0]["iteration"]})
    assert reading.record is not None
    assert {found.code for found in reading.findings} == {"renamed"}
    winner = HISTORY["winner"]
    drifted = {name: value for name, value in winner.items() if name != "score"}
    reading = kind("iteration-history").read(HISTORY | {"winner": drifted | {"score_after": 1.5}})
    assert reading.record is not None and reading.value["winner"]["score"] == 1.5


# --- every fixture --------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_what_a_fixture_holds_is_strictly_right_and_written_back_as_it_was(
    fixture: Fixture,
) -> None:
    for value in fixture.values():
        assert_strict_round(fixture.kind, value)


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_a_fixture_is_known_by_its_content(fixture: Fixture) -> None:
    assert alike(fixture.values()[0]) == [fixture.kind.name]


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_a_field_nobody_knows_is_a_warning_and_survives(fixture: Fixture) -> None:
    for value in fixture.values():
        odd = value | {"x-new": {"deep": [1.5, None, "é"]}}
        found = fixture.kind.read(odd)
        assert [finding[:3] for finding in found.findings] == [
            ("warning", "unknown_field", "x-new")
        ]
        assert_written_as_read(fixture.kind, odd)


def test_there_is_a_fixture_of_every_form() -> None:
    of_kinds = {(each.name, form.version) for each in improve.KINDS for form in each.forms}
    assert {(each.kind.name, each.form.version) for each in fixtures()} >= of_kinds


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("improve/bins/plans/round_1/plan_planner_a.json", "plan"),
        ("state/plan_archive/round_1/plan_planner_a.json", "plan"),
        ("state/benchmark_results/round_12/executor_1.json", "benchmark-result"),
        ("state/research_briefs/round_1.json", "research-brief"),
        ("state/iteration_history/round_1.json", "iteration-history"),
        ("tracking/raw_data.json", "raw-data"),
        ("state/iteration_state.json", "iteration-state"),
        ("state/merge_reports/round_3.json", "merge-report"),
        ("tracking/events.json", "improve-events"),
        ("config/settings.json", "settings"),
        ("state/agent-settings.json", "agent-settings"),
        ("config/goal.md", "goal"),
        ("config/harness.md", "harness"),
    ],
)
def test_a_file_is_known_by_its_path(path: str, name: str) -> None:
    assert by_path(path) == [name]


@pytest.mark.parametrize("path", [".claude/settings.json", "events.json", "round_1.json"])
def test_a_file_of_another_place_is_not(path: str) -> None:
    assert by_path(path) == []


# --- every model ----------------------------------------------------------------------------


def _explained(value: Json) -> Json:
    if value["status"] != "success" and value.get("failure_analysis") is None:
        analysis = {"what": "a", "why": "b", "category": "oom", "lesson": "c"}
        value = value | {"failure_analysis": analysis}
    rest = value.get("benchmark_raw_rest")
    if rest is not None:
        marker = improve.RawRest.model_validate(rest).marker
        value = value | {"benchmark_raw": f"{value['benchmark_raw']}\n{marker}"}
    return value


def _with_reason(value: Json) -> Json:
    if value["winner"] is None and value["status"] == "merged":
        value = value | {"status": "no_winner"}
    if value["status"] == "merged":
        return value | {"reason": None}
    rest = {name: each for name, each in value.items() if name != "stacked"}
    return rest | {"reason": value["reason"] or "nothing was better"}


def _with_evidence(value: Json) -> Json:
    return value | {"evidence": f"because {value['evidence']}"}


KEEPING: Keeping = {
    improve.BenchmarkResult: _explained,
    improve.MergeReport: _with_reason,
    improve.Idea: _with_evidence,
}
MODELS = {
    each.name: (each, values_of(each.current.model, keeping=KEEPING))
    for each in improve.KINDS
    if each.shape != "markdown"
}


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_whatever_a_model_accepts_is_written_back_as_it_was(name: str, data: st.DataObject) -> None:
    its, values = MODELS[name]
    value = data.draw(values)
    assert {finding.level for finding in its.read(value).findings} <= {"warning"}
    assert_written_as_read(its, value)


@given(values_of(improve.Plan, unknown=True))
def test_fields_nobody_knows_survive_beside_any_others(value: Json) -> None:
    assert_written_as_read(kind("plan"), value)


# --- drift and refusal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "path", "given", "meant"),
    [
        ("plan", PLAN, "critic_review.verdict", "Approved", "approved"),
        ("plan", PLAN, "approach_family", "Training_Config", "training_config"),
        ("plan", PLAN, "critic_review.history_aware", "PASS", "pass"),
        ("benchmark-result", RESULT, "benchmark_score", "85.2", 85.2),
        ("benchmark-result", CUT, "failure_analysis.category", "Timeout", "timeout"),
        ("benchmark-result", RESULT, "timestamp", "2026-11-14 20:30:00", "2026-11-14T20:30:00Z"),
        ("research-brief", BRIEF, "ideas.1.confidence", "Low (a guess)", "low"),
        ("raw-data", ROWS[0], "benchmark_score", "n/a", None),
        ("iteration-state", STATE, "current_step", "critic review", "critic_review"),
        (
            "iteration-state",
            STATE,
            "execution.executors.executor_1.status",
            "in_progress",
            "running",
        ),
        ("merge-report", MERGED, "status", "MERGED", "merged"),
        ("settings", SETTINGS, "benchmark_direction", "Higher is better", "higher_is_better"),
        ("settings", SETTINGS, "benchmark_direction", "minimize", "lower_is_better"),
        ("settings", SETTINGS, "max_iterations", "12", 12),
        ("agent-settings", AGENT_SETTINGS, "status", "Circuit-Breaker", "circuit_breaker"),
    ],
)
def test_drift_is_read_with_one_warning_and_refused_where_we_are_strict(
    name: str, value: Json, path: str, given: Any, meant: Any
) -> None:
    drifted = changed(value, path, given)
    found = kind(name).read(drifted)
    assert [finding.level for finding in found.findings] == ["warning"]
    assert found.record is not None
    assert found.record.value() == changed(value, path, meant)
    assert {finding.level for finding in kind(name).read(drifted, strict=True).findings} == {
        "error"
    }


@pytest.mark.parametrize(
    ("name", "value", "path", "given"),
    [
        ("plan", PLAN, "hypothesis", ""),
        ("plan", PLAN, "hypothesis", ["one", "two"]),
        ("plan", PLAN, "steps", []),
        ("plan", PLAN, "steps", "abc"),
        ("plan", PLAN, "steps.0.file", ""),
        ("plan", PLAN, "round", 0),
        ("plan", PLAN, "plan_id", "round_{N}_{planner_id}"),
        ("plan", PLAN, "planner_id", "planner_a|planner_b"),
        ("plan", PLAN, "approach_family", "<taxonomy value>"),
        ("plan", PLAN, "approach_family", ""),
        ("plan", PLAN, "critic_approved", "yes"),
        ("plan", PLAN, "target_files", "x"),
        ("benchmark-result", RESULT, "benchmark_score", "abc"),
        ("benchmark-result", RESULT, "benchmark_score", float("inf")),
        ("benchmark-result", RESULT, "benchmark_score", True),
        ("benchmark-result", RESULT, "benchmark_score", [85.2]),
        ("benchmark-result", RESULT, "sub_scores.dim_a", "high"),
        ("benchmark-result", RESULT, "timestamp", "ISO 8601 UTC"),
        ("benchmark-result", CUT, "failure_analysis.category", "bad luck"),
        ("benchmark-result", CUT, "failure_analysis.lesson", ""),
        ("research-brief", BRIEF, "ideas.0.confidence", "high|medium|low"),
        ("research-brief", BRIEF, "iteration", 0),
        ("iteration-history", HISTORY, "winner.score", None),
        ("iteration-history", HISTORY, "research_brief_id", "1"),
        ("raw-data", ROWS[0], "is_winner", "true"),
        ("iteration-state", STATE, "status", "in_progress|completed"),
        ("iteration-state", STATE, "planning.approved_count", -1),
        ("merge-report", MERGED, "status", "merged|no_improvement"),
        ("improve-events", EVENTS[0], "event_type", "winner_merged"),
        ("improve-events", EVENTS[0], "details.source", ""),
        ("settings", SETTINGS, "benchmark_direction", "sideways"),
        ("settings", SETTINGS, "benchmark_format", "xml"),
        ("settings", SETTINGS, "plateau_window", -1),
        ("settings", SETTINGS, "number_of_agents", 0),
        ("settings", SETTINGS, "target_value", "abc"),
        ("settings", SETTINGS, "topic_slug", "../../evil"),
        ("settings", SETTINGS, "plateau_threshold", -0.5),
        ("agent-settings", AGENT_SETTINGS, "status", "finished"),
        ("agent-settings", AGENT_SETTINGS, "iterations", -1),
    ],
)
def test_what_nobody_can_read_is_refused_with_its_field(
    name: str, value: Json, path: str, given: Any
) -> None:
    found = kind(name).read(changed(value, path, given))
    assert found.record is None
    errors = [finding for finding in found.findings if finding.level == "error"]
    (where,) = {finding.field.replace("[", ".").replace("]", "") for finding in errors}
    assert where == path


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        *(
            ("plan", PLAN, name)
            for name in (
                *("plan_id", "planner_id", "round", "hypothesis", "approach_family"),
                *("critic_approved", "target_files", "steps"),
                *("expected_outcome", "history_reference"),
            )
        ),
        ("benchmark-result", RESULT, "benchmark_score"),
        ("merge-report", MERGED, "reason"),
        ("iteration-history", HISTORY, "winner"),
    ],
)
def test_a_field_that_has_to_be_there_may_not_be_missing(
    name: str, value: Json, field: str
) -> None:
    rest = {key: each for key, each in value.items() if key != field}
    assert told(name, rest) == [("error", "missing", field)]


def test_the_score_of_a_result_may_be_null() -> None:
    value = CUT | {"status": "error"}
    assert value["benchmark_score"] is None
    assert_strict_round(kind("benchmark-result"), value)


# --- rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["regression", "error", "timeout"])
def test_what_is_no_success_needs_an_analysis(status: str) -> None:
    assert told("benchmark-result", RESULT | {"status": status}) == [("error", "rule", "")]
    analysed = RESULT | {"status": status, "failure_analysis": CUT["failure_analysis"]}
    assert_strict_round(kind("benchmark-result"), analysed)


@pytest.mark.parametrize("category", get_args(improve.FailureCategory))
def test_every_category_of_failure_is_known(category: str) -> None:
    assert len(get_args(improve.FailureCategory)) == 8
    value = changed(CUT, "failure_analysis.category", category)
    assert_strict_round(kind("benchmark-result"), value)


def test_an_output_that_was_cut_says_so_in_its_last_line() -> None:
    assert told("benchmark-result", CUT | {"benchmark_raw": "many lines"}) == [
        ("error", "rule", "")
    ]
    other = changed(CUT, "benchmark_raw_rest.bytes", 4097)
    assert told("benchmark-result", other) == [("error", "rule", "")]


def test_a_success_without_a_score_is_told() -> None:
    value = RESULT | {"benchmark_score": None}
    assert told("benchmark-result", value) == [("warning", "missing", "benchmark_score")]


@pytest.mark.parametrize("status", ["no_improvement", "no_winner", "all_rejected"])
def test_a_report_needs_a_reason_unless_something_was_merged(status: str) -> None:
    value = NO_WINNER | {"status": status}
    assert_strict_round(kind("merge-report"), value)
    for reason in (None, ""):
        assert told("merge-report", value | {"reason": reason}) == [("error", "rule", "")]
    assert told("merge-report", value | {"stacked": MERGED["stacked"]}) == [("error", "rule", "")]


def test_a_report_of_a_merge_has_a_winner_and_no_reason() -> None:
    assert told("merge-report", MERGED | {"reason": "it was better"}) == [("error", "rule", "")]
    assert told("merge-report", MERGED | {"winner": None}) == [("error", "rule", "")]


@pytest.mark.parametrize("family", [*improve.APPROACH_FAMILIES, "prompt_engineering", "x-1"])
def test_the_eight_families_and_those_of_a_harness_are_accepted(family: str) -> None:
    assert len(improve.APPROACH_FAMILIES) == 8
    assert_strict_round(kind("plan"), PLAN | {"approach_family": family})


def test_an_idea_of_the_family_other_explains_itself() -> None:
    value = changed(BRIEF, "ideas.1.evidence", " ")
    assert told("research-brief", value) == [("error", "rule", "ideas[1]")]


def test_a_plan_is_named_after_its_round_and_planner() -> None:
    for change in ({"round": 2}, {"planner_id": "planner_b"}):
        assert told("plan", PLAN | change) == [("warning", "contradiction", "plan_id")]
        assert told("plan", PLAN | change, strict=True) == [("error", "contradiction", "plan_id")]


def test_a_rejected_plan_says_why() -> None:
    value = changed(PLAN, "critic_review.verdict", "rejected")
    assert told("plan", value) == [("warning", "missing", "critic_review.rejection_reason")]


def test_plans_and_briefs_of_another_round_are_told() -> None:
    value = HISTORY | {"iteration": 2}
    assert {finding[:2] for finding in told("iteration-history", value)} == {
        ("warning", "contradiction")
    }
    assert [field for *_, field in told("iteration-history", value)] == [
        "research_brief_id",
        "winner.plan_id",
        "losers[0].plan_id",
        "losers[1].plan_id",
        "stacked[0].plan_id",
    ]
    assert told("raw-data", ROWS[0] | {"iteration": 2}) == [("warning", "contradiction", "plan_id")]


def test_settings_and_flags_have_the_documented_defaults() -> None:
    settings = improve_state.Settings.model_validate({})
    documented = {
        "si_claude_setting": False,
        "number_of_agents": 3,
        "number_of_max_critics": 3,
        "current_repo_url": "",
        "fork_url": "",
        "upstream_url": "",
        "topic_slug": "default",
        "target_branch": "main",
        "benchmark_command": "",
        "benchmark_format": "json",
        "benchmark_direction": "higher_is_better",
        "max_iterations": 50,
        "plateau_threshold": 0.01,
        "plateau_window": 3,
        "primary_metric": "primary",
        "sealed_files": [],
        "regression_threshold": 0.05,
        "circuit_breaker_threshold": 3,
        "auto_push": False,
        "auto_pr": False,
    }
    whole = settings.model_dump(exclude_none=True)
    assert {name: whole[name] for name in documented} == documented
    assert settings.target_value is None
    flags = improve_state.AgentSettings.model_validate({})
    assert flags.model_dump(exclude={"schema_version"}) == example("agent-settings/1.0-new")
    assert settings.value() == {}, "what nobody set is not written"


# --- what one record cannot show ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "folder"),
    [
        ("research-brief", BRIEF, "research_briefs"),
        ("iteration-history", HISTORY, "iteration_history"),
        ("merge-report", MERGED, "merge_reports"),
    ],
)
def test_an_iteration_agrees_with_its_file(name: str, value: Json, folder: str) -> None:
    number = value["iteration"]
    assert crossed(name, value, f"state/{folder}/round_{number}.json") == []
    assert crossed(name, value, f"{name}.json") == []
    assert crossed(name, value, f"state/{folder}/round_{number}0.json") == [
        ("error", "place", "iteration")
    ]


def test_a_plan_agrees_with_its_file() -> None:
    assert crossed("plan", PLAN, "plans/round_1/plan_planner_a.json") == []
    assert crossed("plan", PLAN, "plans/round_1/any.json") == []
    assert crossed("plan", PLAN, "plans/round_2/plan_planner_b.json") == [
        ("error", "place", "round"),
        ("error", "place", "planner_id"),
    ]


def test_a_result_agrees_with_its_file() -> None:
    assert crossed("benchmark-result", RESULT, "benchmark_results/round_1/executor_1.json") == []
    assert crossed("benchmark-result", RESULT, "benchmark_results/round_2/executor_2.json") == [
        ("error", "place", "plan_id"),
        ("error", "place", "executor_id"),
    ]


def test_a_plan_has_one_row_in_an_iteration() -> None:
    its = kind("raw-data")
    assert its.cross_check is not None
    rows = [*ROWS, ROWS[0] | {"is_winner": False}]
    found = [Located(number + 1, its.read(row)) for number, row in enumerate(rows)]
    (finding,) = its.cross_check(found, Origin("tracking/raw_data.json"))
    assert finding[:3] == ("error", "duplicate", "plan_id")
    assert finding.line == 3
    assert crossed("raw-data", ROWS, "tracking/raw_data.json") == []


@given(
    st.sampled_from(improve.KINDS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["iteration", "plan_id", "round"]), inner)
        ),
        max_leaves=10,
    ),
)
def test_no_value_at_all_breaks_a_cross_check(its: Any, value: Any) -> None:
    assert isinstance(its.looks(value), bool)
    if its.cross_check and its.shape != "markdown":
        found = [Located(1, its.read(value))]
        for finding in its.cross_check(found, Origin("plans/round_1/plan_planner_a.json")):
            assert finding.level == "error"

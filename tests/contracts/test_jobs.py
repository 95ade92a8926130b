"""Requests, responses and manifests of jobs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import job_exchange, job_history, job_lines
from holdfast.contracts.job_exchange import RESPONSE, escapes
from holdfast.contracts.job_lines import FOREIGN_STATES, HOLDABLE, MANIFEST
from holdfast.contracts.kinds import kind
from holdfast.contracts.record import Record
from holdfast.contracts.schema import schema_of
from tests.contracts.fixtures import Fixture, fixtures
from tests.contracts.rounds import alike, by_path
from tests.contracts.saying import (
    changed,
    cross_findings,
    crossed,
    errors,
    example,
    garbled,
    told,
    without,
)
from tests.contracts.strategies import Json, Keeping, values_of

OURS = [each for each in fixtures() if each.kind in job_history.KINDS]
OLDER = [each for each in OURS if each.form.upgrade is not None]
REQUEST = example("agent-request/1.0-an-implementation.json")
COMPLETED = example("agent-response/1.0-completed.json")
REVIEWED = example("job-manifest/1.0-in-review.json")


def named(fixture: Fixture) -> str:
    return fixture.name


@pytest.mark.parametrize("fixture", OURS, ids=named)
def test_every_kept_file_is_right_in_its_form_and_written_as_it_was_read(fixture: Fixture) -> None:
    for value in fixture.values():
        assert fixture.kind.form_of(value) is fixture.form
        found = fixture.kind.read(value, strict=True, form=fixture.form)
        assert found.findings == []
        assert found.record is not None
        assert found.record.value() == value
        assert cross_findings(fixture.kind, [value]) == []
        # Lines of logs are known by the names of their files; few say alone what they are.
        known = (
            [[fixture.kind.name]] if fixture.kind.shape == "document" else [[], [fixture.kind.name]]
        )
        assert alike(value) in known


@pytest.mark.parametrize("fixture", OLDER, ids=named)
def test_every_older_form_is_brought_to_the_one_that_is_written(fixture: Fixture) -> None:
    for value in fixture.values():
        new = fixture.kind.upgraded(value)
        assert fixture.kind.form_of(new) is fixture.kind.current
        found = fixture.kind.read(new)
        assert found.record is not None
        assert {finding.code for finding in found.findings} <= {"unknown_field"}
        assert fixture.kind.upgraded(new) == new
        assert texts_in(value) <= texts_in(new), "something was lost on the way"


def texts_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return {text for inner in value.values() for text in texts_in(inner)}
    if isinstance(value, list):
        return {text for inner in value for text in texts_in(inner)}
    return {value} if isinstance(value, str) and value != "0.9" else set()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("jobs/j1/manifest.json", "job-manifest"),
        ("test-jobs/j1/job_manifest.json", "job-manifest"),
        ("jobs/j1/jobHistory.json", "job-history"),
        ("jobHistory.0001.json", "job-history"),
        ("examples/valid-llm-response.json", None),
        ("examples/llm-response.json", "agent-response"),
        ("agent_request_7.json", "agent-request"),
    ],
)
def test_files_are_known_by_their_names(path: str, name: str | None) -> None:
    assert by_path(path) == ([name] if name else [])


# --- requests -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", REQUEST)
def test_a_request_has_all_of_its_fields(field: str) -> None:
    assert told("agent-request", without(REQUEST, field)) == [("error", "missing", field)]


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("job_id", "a.b", "type"),
        ("job_id", "../x", "type"),
        ("context_files[0]", "../../etc/hostname", "escaping_path"),
        ("metadata.cost_threshold", -1, "type"),
        ("metadata.time_threshold_minutes", -1, "type"),
        ("metadata.accepted_formats[1]", "FINISHED", "choice"),
    ],
)
def test_a_request_is_held_to_its_rules(path: str, new: Any, code: str) -> None:
    assert told("agent-request", changed(REQUEST, path, new)) == [("error", code, path)]


def test_a_command_to_the_engine_is_read_but_is_no_request() -> None:
    value = example("agent-request/0.9-a-command.json")
    assert told("agent-request", value) == [("warning", "form", "")]
    assert told("agent-request", value, strict=True) == [("error", "form", "")]
    bad = changed(value, "request.job_id", "a.b")
    assert errors(told("agent-request", bad)) == [("error", "type", "request.job_id")]


# --- responses ------------------------------------------------------------------------------


@pytest.mark.parametrize("field", COMPLETED)
def test_a_response_has_all_of_its_fields(field: str) -> None:
    assert told("agent-response", without(COMPLETED, field)) == [("error", "missing", field)]


@pytest.mark.parametrize("action", ["COMPLETED", "STUCK", "RETRY"])
def test_each_of_the_three_actions_is_right(action: str) -> None:
    assert told("agent-response", COMPLETED | {"action": action}, strict=True) == []


@pytest.mark.parametrize("action", ["FINISHED", "", None, ["COMPLETED"], "COMPLETED | STUCK"])
def test_any_other_action_is_refused(action: Any) -> None:
    for strict in (True, False):
        found = told("agent-response", COMPLETED | {"action": action}, strict=strict)
        assert [field for _, _, field in errors(found)] == ["action"]


def test_an_action_in_another_spelling_is_read_and_never_written() -> None:
    value = COMPLETED | {"action": "completed"}
    assert told("agent-response", value) == [("warning", "choice", "action")]
    assert told("agent-response", value, strict=True) == [("error", "choice", "action")]


@pytest.mark.parametrize(
    ("length", "liberal", "strict"),
    [
        (0, set(), set()),
        (500, set(), set()),
        (501, {"warning"}, {"error"}),
        (1000, {"warning"}, {"error"}),
        (1001, {"warning", "error"}, {"error"}),
    ],
)
def test_a_summary_has_500_characters_and_1000_in_the_version_before(
    length: int, liberal: set[str], strict: set[str]
) -> None:
    value = COMPLETED | {"summary_for_supervisor": "é" * length}
    assert {level for level, _, _ in told("agent-response", value)} == liberal
    assert {level for level, _, _ in told("agent-response", value, strict=True)} == strict
    before = RESPONSE.form("0.9")
    assert before is not None
    asked = RESPONSE.read(value, strict=True, form=before)
    assert (asked.record is None) == (length > 1000)


def test_the_version_before_is_accepted_with_a_warning_and_a_newer_one_is_not() -> None:
    assert told("agent-response", COMPLETED | {"schema_version": "0.9"}) == [
        ("warning", "form", "")
    ]
    assert told("agent-response", COMPLETED | {"schema_version": "1.1"}) == [
        ("error", "newer", "schema_version")
    ]


def test_a_summary_that_is_cut_is_kept_whole_beside_it() -> None:
    value = example("agent-response/0.9-a-long-summary.json")
    new = RESPONSE.upgraded(value)
    assert len(new["summary_for_supervisor"]) == 500
    assert new["summary_for_supervisor"][:-1] == value["summary_for_supervisor"][:499]
    assert new["summary_full"] == value["summary_for_supervisor"]


def test_a_wrapped_response_is_read_with_a_warning() -> None:
    value = example("agent-response/0.8-wrapped.json")
    assert told("agent-response", value) == [("warning", "form", "")]
    bad = {"response": {"action": "FINISHED", "evidence_files": []}}
    assert errors(told("agent-response", bad)) == [
        ("error", "choice", "response.action"),
        ("error", "missing", "response.summary_for_supervisor"),
    ]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a\\..\\x",
        "\\\\host\\x",
        "C:\\x",
        "c:x",
        "",
        "a\0",
    ],
)
def test_evidence_outside_of_the_workspace_is_refused_however_it_is_read(path: str) -> None:
    value = COMPLETED | {"evidence_files": ["fine.txt", path]}
    for strict in (True, False):
        assert told("agent-response", value, strict=strict) == [
            ("error", "escaping_path", "evidence_files[1]")
        ]


@pytest.mark.parametrize("path", ["a", "a/b.txt", "tests/", "./a", "..a", "a..", "a/...", "ä ö"])
def test_evidence_inside_is_right(path: str) -> None:
    assert told("agent-response", COMPLETED | {"evidence_files": [path]}, strict=True) == []


@given(st.text(st.sampled_from("./\\:aC\0\n"), max_size=8))
def test_the_schema_and_the_rule_agree_about_paths(path: str) -> None:
    pattern = schema_of(RESPONSE)["properties"]["evidence_files"]["items"]["pattern"]
    assert (re.search(pattern, path) is None) == escapes(path)


def test_what_agents_are_told_is_in_the_schema_and_required() -> None:
    schema = schema_of(RESPONSE, draft="7")
    assert tuple(schema["required"]) == job_exchange.TOLD_TO_AGENTS
    for name in job_exchange.TOLD_TO_AGENTS:
        assert schema["properties"][name]["description"]
    assert schema["properties"]["summary_for_supervisor"]["maxLength"] == 500
    assert schema["properties"]["action"]["enum"] == ["COMPLETED", "STUCK", "RETRY"]


# --- manifests ------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["job_id", "status", "metrics"])
def test_a_manifest_has_an_id_a_status_and_metrics(field: str) -> None:
    assert told("job-manifest", without(REVIEWED, field)) == [("error", "missing", field)]


@pytest.mark.parametrize(
    "status",
    [
        "DRAFT",
        "PENDING",
        "RUNNING",
        "REVIEWING",
        "SUCCESS",
        "CANCELED",
        "INTERVENTION_REQUIRED",
        "HALTED_COST",
        "HALTED_TIME",
    ],
)
def test_each_of_the_nine_states_is_right_and_only_some_can_be_held(status: str) -> None:
    value = REVIEWED | {"status": status, "hold": None}
    assert told("job-manifest", value, strict=True) == []
    held = told("job-manifest", value | {"hold": "suspended"})
    assert held == ([] if status in HOLDABLE else [("error", "rule", "")])


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("status", "DONE", "choice"),
        ("status", "DRAFT | PENDING", "choice"),
        ("job_id", "a/b", "type"),
        ("metrics.cumulative_cost", -0.01, "type"),
        ("metrics.cumulative_time_seconds", -1, "type"),
        ("history[0].timestamp", "yesterday", "time"),
        ("history[0].evidence_files", "a.txt", "type"),
        ("current_phase", 3, "type"),
        ("hold", "tired", "choice"),
    ],
)
def test_a_manifest_is_held_to_its_rules(path: str, new: Any, code: str) -> None:
    assert errors(told("job-manifest", changed(REVIEWED, path, new))) == [("error", code, path)]


def test_local_times_in_the_trail_are_read_with_a_warning() -> None:
    value = changed(REVIEWED, "history[0].timestamp", "2026-11-15T08:48:46.165520")
    found = MANIFEST.read(value)
    assert [finding[:3] for finding in found.findings] == [
        ("warning", "time", "history[0].timestamp")
    ]
    assert found.value["history"][0]["timestamp"] == "2026-11-15T08:48:46.165520Z"


@pytest.mark.parametrize("status", FOREIGN_STATES)
def test_states_of_other_systems_become_ours_with_a_hold(status: str) -> None:
    value = example("job-manifest/0.9-suspended.json") | {"status": status}
    assert told("job-manifest", value) == [("warning", "form", "")]
    assert told("job-manifest", value, strict=True) == [("error", "form", "")]
    new = MANIFEST.upgraded(value)
    assert told("job-manifest", new, strict=True) == []
    assert new["foreign_status"] == status


@pytest.mark.parametrize(
    ("status", "ours", "hold"),
    [
        ("SUSPENDED", "PENDING", "suspended"),
        ("APPROVAL_REQUIRED", "REVIEWING", "approval"),
        ("HALTED_ITERATION", "INTERVENTION_REQUIRED", "iterations"),
        ("EXECUTING", "RUNNING", None),
    ],
)
def test_what_other_systems_call_a_state_is_a_hold_of_ours(
    status: str, ours: str, hold: str | None
) -> None:
    new = MANIFEST.upgraded(example("job-manifest/0.9-suspended.json") | {"status": status})
    assert (new["status"], new["hold"]) == (ours, hold)


def test_a_manifest_belongs_to_its_directory_and_its_phase_to_its_phases() -> None:
    assert crossed("job-manifest", REVIEWED, "home/jobs/port-parser-7/manifest.json") == []
    assert crossed("job-manifest", REVIEWED, "home/jobs/other/manifest.json") == [
        ("warning", "path", "job_id")
    ]
    lost = REVIEWED | {"current_phase": "deploy"}
    assert crossed("job-manifest", lost) == [("error", "phase", "current_phase")]


# --- all of them ----------------------------------------------------------------------------


def held_where_it_may(value: Json) -> Json:
    return value if value["status"] in HOLDABLE else value | {"hold": None}


KEEPING: Keeping = {job_lines.JobManifest: held_where_it_may}
MODELS = [
    (its, form.model) for its in (job_exchange.REQUEST, RESPONSE, MANIFEST) for form in its.forms
]


@pytest.mark.parametrize(("its", "model"), MODELS, ids=lambda each: getattr(each, "__name__", ""))
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_and_written_the_same(
    its: Any, model: type[Record], data: st.DataObject
) -> None:
    value = data.draw(values_of(model, keeping=KEEPING, unknown=True))
    form = next(form for form in its.forms if form.model is model)
    found = its.read(value, form=form)
    assert found.record is not None
    assert {finding.code for finding in found.findings} == {"unknown_field"}
    written = found.record.value()
    assert written == value
    again = its.read(written, form=form).record
    assert again is not None
    assert again.value() == written
    if form.upgrade is not None:
        assert its.read(its.upgraded(value)).record is not None


@pytest.mark.parametrize("fixture", OURS, ids=named)
@settings(max_examples=25)
@given(data=st.data())
def test_no_file_at_all_breaks_the_reading(fixture: Fixture, data: st.DataObject) -> None:
    broken = data.draw(garbled(fixture.values()[0]))
    for strict in (True, False):
        found = fixture.kind.read(broken, strict=strict)
        assert found.record is not None or found.findings
    cross_findings(fixture.kind, [broken])
    assert fixture.kind.looks(broken) in (True, False)


def test_the_kinds_of_jobs_are_those_that_scripts_rely_on() -> None:
    names = ["agent-request", "agent-response", "job-manifest", "job-history"]
    assert [each.name for each in job_history.KINDS][:4] == names
    assert [kind(name).current.version for name in names] == ["1.0"] * 4

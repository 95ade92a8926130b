"""Histories of jobs: three forms, and what only the whole of one can show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import job_history
from holdfast.contracts.job_history import HISTORY, JobHistory
from holdfast.contracts.kind import read
from tests.contracts.rounds import alike
from tests.contracts.saying import changed, crossed, errors, example, told, without
from tests.contracts.strategies import Json, Keeping, values_of

FROM_ONE = example("job-history/0.9-counted-from-one.json")
WHOLE = example("job-history/1.0-with-a-steward.json")
BARE = example("job-history/0.8-a-bare-array.json")


def calls(value: Any, *wanted: int) -> Any:
    """The history with some of its calls only."""
    return value | {"interactions": [value["interactions"][each] for each in wanted]}


# --- one call -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "job_id",
        "created_at",
        "recovery_points",
        "interactions[0].sequence",
        "interactions[0].timestamp",
        "interactions[0].state_before",
        "interactions[0].workspace_path",
        "interactions[0].request.prompt",
        "interactions[0].request.files_context",
        "interactions[0].request.metadata.role",
        "interactions[0].request.metadata.phase",
        "interactions[0].request.metadata.model",
        "interactions[0].request.metadata.temperature",
        "interactions[0].request.metadata.max_tokens",
        "interactions[0].response.status",
        "interactions[0].response.action",
        "interactions[0].response.evidence_files",
        "interactions[0].response.summary_for_supervisor",
        "interactions[0].response.raw_response",
        "interactions[0].response.execution_time_seconds",
        "interactions[0].response.cost_usd",
        "interactions[0].response.new_status",
        "recovery_points[0].id",
        "recovery_points[0].checkpoint_id",
        "recovery_points[0].sequence",
        "recovery_points[0].can_resume_from",
        "recovery_points[0].description",
        "recovery_points[0].resume_phase",
        "recovery_points[0].rollback_files",
        "recovery_points[0].metadata",
    ],
)
def test_what_is_written_has_every_field(path: str) -> None:
    assert told("job-history", without(WHOLE, path)) == [("error", "missing", path)]


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("interactions[0].sequence", -1, "type"),
        ("interactions[0].sequence", 0.5, "type"),
        ("interactions[0].timestamp", "soon", "time"),
        ("interactions[0].state_before", "READY", "choice"),
        ("interactions[0].response.status", "FAILED", "choice"),
        ("interactions[0].response.action", "FINISHED", "choice"),
        ("interactions[0].response.new_status", "DONE", "choice"),
        ("interactions[0].response.cost_usd", -0.5, "type"),
        ("interactions[0].response.execution_time_seconds", -0.5, "type"),
        ("interactions[0].request.metadata.max_tokens", -1, "type"),
        ("interactions[2].preceded_by", ["sleep"], "choice"),
    ],
)
def test_a_call_is_held_to_its_rules(path: str, new: Any, code: str) -> None:
    found = errors(told("job-history", changed(WHOLE, path, new)))
    assert [(level, what) for level, what, _ in found] == [("error", code)]
    assert found[0][2].startswith(path)


@pytest.mark.parametrize("status", ["SUCCESS", "ERROR", "TIMEOUT"])
def test_a_call_ends_in_one_of_three_ways(status: str) -> None:
    value = changed(WHOLE, "interactions[0].response.status", status)
    assert told("job-history", value, strict=True) == []


def test_a_time_with_an_offset_is_read_as_the_same_time_in_utc() -> None:
    value = changed(WHOLE, "interactions[0].timestamp", "2026-11-15T15:48:46+07:00")
    found = HISTORY.read(value)
    assert [finding[:3] for finding in found.findings] == [
        ("warning", "time", "interactions[0].timestamp")
    ]
    assert found.value["interactions"][0]["timestamp"] == "2026-11-15T08:48:46Z"


def test_a_price_that_nobody_knows_is_null() -> None:
    value = changed(WHOLE, "interactions[0].response.cost_usd", None)
    assert told("job-history", value, strict=True) == []


# --- recovery points ------------------------------------------------------------------------

CHECKPOINT = FROM_ONE["recovery_points"][0]
RESUME = example("job-history/0.9-the-other-recovery-point.json")["recovery_points"][0]
POINT = WHOLE["recovery_points"][0]


@pytest.mark.parametrize("point", [CHECKPOINT, RESUME, POINT], ids=["one", "the other", "both"])
def test_both_shapes_of_a_recovery_point_are_right_and_become_one(point: Json) -> None:
    first = FROM_ONE | {"recovery_points": [point | {"sequence": 1}]}
    assert told("job-history", first, strict=True) == []
    (new,) = HISTORY.upgraded(first)["recovery_points"]
    assert new["id"] == new["checkpoint_id"]
    assert new["sequence"] == 0
    assert read(job_history.RecoveryPoint, new, strict=True).findings == []
    assert point | {"sequence": 0} == {name: new[name] for name in point}


def test_a_point_that_names_its_phase_can_be_resumed_from() -> None:
    (new,) = HISTORY.upgraded(FROM_ONE | {"recovery_points": [RESUME | {"sequence": 1}]})[
        "recovery_points"
    ]
    assert (new["can_resume_from"], new["resume_phase"]) == (True, "review")


@pytest.mark.parametrize("ids", [{}, {"id": "a", "checkpoint_id": "b"}])
def test_a_recovery_point_has_one_id(ids: Json) -> None:
    point = {"sequence": 1, **ids}
    found = told("job-history", FROM_ONE | {"recovery_points": [point]})
    assert found == [("error", "rule", "recovery_points[0]")]
    both = changed(WHOLE, "recovery_points[0].checkpoint_id", "another")
    assert told("job-history", both) == [("error", "rule", "recovery_points[0]")]


def test_an_excerpt_of_a_history_is_read_with_warnings() -> None:
    assert told("job-history", {"recovery_points": [RESUME]}) == [
        ("warning", "missing", "job_id"),
        ("warning", "missing", "created_at"),
        ("warning", "missing", "interactions"),
    ]
    assert crossed("job-history", {"recovery_points": [RESUME]}) == []
    assert alike({"recovery_points": [RESUME]}) == ["job-history"]


# --- a bare array ---------------------------------------------------------------------------


def test_local_times_of_a_bare_array_are_told_and_taken_as_utc() -> None:
    value = changed(BARE, "[1].timestamp", "2026-11-15T08:48:46.102450")
    found = HISTORY.read(value)
    assert [finding[:3] for finding in found.findings] == [("warning", "time", "[1].timestamp")]
    assert "no time zone" in found.findings[0].reason
    assert found.value[1]["timestamp"] == "2026-11-15T08:48:46.102450Z"
    assert told("job-history", value, strict=True) == [("error", "time", "[1].timestamp")]


def test_a_bare_array_becomes_a_history_without_inventing_anything() -> None:
    new = HISTORY.upgraded(BARE)
    assert new["job_id"] == "port-parser-7"
    assert [call["sequence"] for call in new["interactions"]] == [0, 1]
    first = new["interactions"][0]
    assert (first["state_before"], first["request"]["prompt"]) == (None, None)
    assert first["request"]["metadata"] == {
        "role": "Worker",
        "phase": "default",
        "model": "small-1",
        "temperature": None,
        "max_tokens": None,
    }
    assert first["response"]["cost_usd"] == 0.01
    assert first["response"]["execution_time_seconds"] == 3.5
    assert new["interactions"][1]["is_simulated"] is True
    assert new["set_aside"] == [BARE[0]], "a preview asked nobody, but is kept"


def test_a_bare_array_and_the_same_calls_as_an_object_are_one_history() -> None:
    new = HISTORY.upgraded(BARE)
    assert HISTORY.upgraded(without(new, "schema_version")) == new


def test_fields_that_a_bare_array_has_and_nobody_knows_survive() -> None:
    value = changed(BARE, "[1].trace", {"id": [1, None]})
    found = HISTORY.read(value)
    assert [finding[:3] for finding in found.findings] == [
        ("warning", "unknown_field", "[1].trace")
    ]
    assert found.record is not None
    assert found.record.value() == value
    assert HISTORY.upgraded(value)["interactions"][0]["trace"] == {"id": [1, None]}


def test_what_is_neither_an_array_nor_an_object_is_refused() -> None:
    for value in ("text", 3, None, True):
        assert [level for level, _, _ in told("job-history", value)] == ["error"]


def test_a_job_that_a_bare_array_does_not_name_is_not_invented() -> None:
    unnamed = [without(entry, "request.job_id") for entry in BARE]
    assert told("job-history", unnamed) == []
    new = HISTORY.upgraded(unnamed)
    assert errors(told("job-history", new)) == [("error", "missing", "job_id")]


# --- sequence -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [FROM_ONE, calls(WHOLE, 0, 1, 2, 3, 4)])
def test_a_sequence_without_gaps_says_nothing(value: Any) -> None:
    assert crossed("job-history", value) == []


@pytest.mark.parametrize(
    ("numbers", "where"),
    [((0, 2), 1), ((0, 0), 1), ((1, 0), 1), ((5, 6), 0), ((1, 3), 1)],
)
def test_a_sequence_with_a_gap_names_the_place(numbers: tuple[int, ...], where: int) -> None:
    value = FROM_ONE | {"recovery_points": []}
    for place, number in enumerate(numbers):
        value = changed(value, f"interactions[{place}].sequence", number)
    assert crossed("job-history", value) == [
        ("error", "sequence", f"interactions[{where}].sequence")
    ]


def test_what_we_write_begins_with_zero_unless_the_rest_is_archived() -> None:
    later = calls(WHOLE, 4, 5)
    assert ("error", "sequence", "interactions[0].sequence") in crossed("job-history", later)
    archived = later | {"archives": ["jobHistory.0001.json.zst"]}
    assert crossed("job-history", archived) == []
    assert told("job-history", archived, strict=True) == []
    lost = changed(archived, "recovery_points[0].sequence", 7)
    assert crossed("job-history", lost) == [
        ("error", "recovery_point", "recovery_points[0].sequence")
    ]
    early = changed(archived, "recovery_points[0].sequence", 1)
    assert crossed("job-history", early) == []


# --- states ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(6))
def test_another_state_before_any_call_is_found_and_named(place: int) -> None:
    right = WHOLE["interactions"][place]["state_before"]
    for state in ("PENDING", "REVIEWING", "RUNNING", "SUCCESS", "DRAFT"):
        value = changed(WHOLE, f"interactions[{place}].state_before", state)
        found = [finding for finding in crossed("job-history", value) if finding[1] == "state"]
        if state == right or (place == 0 and state == "REVIEWING"):
            continue  # the first phase may be a supervisor's
        assert ("error", "state", f"interactions[{place}].state_before") in found


@pytest.mark.parametrize("place", range(6))
def test_another_action_of_any_call_is_found_and_named(place: int) -> None:
    right = WHOLE["interactions"][place]["response"]["action"]
    for action in ("COMPLETED", "STUCK", "RETRY"):
        if action != right:
            value = changed(WHOLE, f"interactions[{place}].response.action", action)
            found = crossed("job-history", value)
            assert any(field.startswith(f"interactions[{place}].response") for _, _, field in found)


@pytest.mark.parametrize(
    ("status", "action"), [("TIMEOUT", "RETRY"), ("TIMEOUT", "COMPLETED"), ("ERROR", "COMPLETED")]
)
def test_a_call_that_failed_completes_nothing(status: str, action: str) -> None:
    value = changed(FROM_ONE, "interactions[0].response.status", status)
    value = changed(value, "interactions[0].response.action", action)
    assert ("error", "state", "interactions[0].response.action") in crossed("job-history", value)


@pytest.mark.parametrize("status", ["DRAFT", "RUNNING", "REVIEWING", "PENDING"])
def test_a_new_status_that_does_not_follow_is_found(status: str) -> None:
    value = changed(WHOLE, "interactions[1].response.new_status", status)
    assert ("error", "state", "interactions[1].response.new_status") in crossed(
        "job-history", value
    )


def test_no_call_follows_the_end_of_a_job() -> None:
    value = changed(WHOLE, "interactions[4].response.new_status", "SUCCESS")
    assert crossed("job-history", value) == [("error", "state", "interactions[5].state_before")]


def test_a_rewind_has_to_be_told() -> None:
    value = calls(WHOLE, 0, 1, 2, 3, 4, 5)
    value = changed(value, "interactions[5].state_before", "PENDING")
    value = changed(value, "interactions[5].response.new_status", "SUCCESS")
    assert crossed("job-history", value) == [("error", "state", "interactions[5].state_before")]
    assert crossed("job-history", changed(value, "interactions[5].preceded_by", ["rewind"])) == []


def test_without_a_recorded_status_the_answer_tells_what_may_follow() -> None:
    assert crossed("job-history", FROM_ONE) == []
    stuck = changed(FROM_ONE, "interactions[0].response.action", "STUCK")
    stuck = changed(stuck, "interactions[0].response.raw_response", None)
    assert crossed("job-history", stuck) == [("error", "state", "interactions[1].state_before")]


# --- what was said --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("evidence_files", ["another.py"]),
        ("summary_for_supervisor", "All is well."),
        ("action", "RETRY"),
    ],
)
def test_parsed_fields_that_differ_from_what_was_said_are_found(field: str, new: Any) -> None:
    value = changed(FROM_ONE, f"interactions[1].response.{field}", new)
    assert crossed("job-history", value) == [
        ("error", "raw_response", f"interactions[1].response.{field}")
    ]


SAID = json.dumps(
    {
        "action": "COMPLETED",
        "evidence_files": ["src/parser.py"],
        "summary_for_supervisor": "Done.",
    }
)


@pytest.mark.parametrize(
    "raw",
    [
        SAID,
        f"```json\n{SAID}\n```",
        f"Here it is: {SAID} Bye.",
        json.dumps({"response": json.loads(SAID)}),
    ],
)
def test_what_was_said_is_found_in_fences_and_prose_too(raw: str) -> None:
    value = changed(FROM_ONE, "interactions[1].response.raw_response", raw)
    assert crossed("job-history", value) == []
    other = changed(value, "interactions[1].response.summary_for_supervisor", "Not done.")
    assert errors(crossed("job-history", other)) != []


@pytest.mark.parametrize(
    "raw", ["", "I am done.", "{", "[1]", '{"action": "COMPLETED", "x": [...]}']
)
def test_what_cannot_be_compared_is_told(raw: str) -> None:
    value = changed(FROM_ONE, "interactions[1].response.raw_response", raw)
    assert crossed("job-history", value) == [
        ("warning", "raw_response", "interactions[1].response.raw_response")
    ]


@pytest.mark.parametrize("raw", ["I am done.", '{"action": "FINISHED"}'])
def test_an_answer_that_breaks_the_rules_is_stuck_whatever_it_said(raw: str) -> None:
    value = calls(WHOLE, 0)
    value = changed(value, "interactions[0].response.action", "STUCK")
    value = changed(value, "interactions[0].response.status", "SUCCESS")
    value = changed(value, "interactions[0].response.new_status", "INTERVENTION_REQUIRED")
    value = changed(value, "interactions[0].response.raw_response", raw)
    assert crossed("job-history", value | {"recovery_points": []}) == []


def test_evidence_that_leads_out_of_the_workspace_is_recorded_and_told() -> None:
    value = changed(FROM_ONE, "interactions[1].response.evidence_files", ["../../etc/hostname"])
    value = changed(value, "interactions[1].response.raw_response", None)
    assert told("job-history", value, strict=True) == []
    assert crossed("job-history", value) == [
        ("warning", "escaping_path", "interactions[1].response.evidence_files[0]")
    ]


# --- the whole ------------------------------------------------------------------------------


def test_recovery_points_have_ids_of_their_own_and_lead_somewhere() -> None:
    twice = WHOLE | {"recovery_points": [POINT, POINT]}
    assert crossed("job-history", twice) == [("error", "duplicate", "recovery_points[1].id")]
    nowhere = changed(WHOLE, "recovery_points[0].sequence", 99)
    assert crossed("job-history", nowhere) == [
        ("error", "recovery_point", "recovery_points[0].sequence")
    ]


def test_a_history_belongs_to_its_directory() -> None:
    assert crossed("job-history", WHOLE, "jobs/port-parser-7/jobHistory.json") == []
    assert crossed("job-history", WHOLE, "jobs/other/jobHistory.json") == [
        ("warning", "path", "job_id")
    ]


def with_one_id(value: Json) -> Json:
    name = value.get("id") or value.get("checkpoint_id") or "a"
    return value | {"id": name, "checkpoint_id": name}


def versioned(value: Json) -> Json:
    return value | {"schema_version": "1.0"}


KEEPING: Keeping = {job_history.RecoveryPoint: with_one_id, job_history.ToldPoint: with_one_id}


@settings(max_examples=25)
@given(values_of(JobHistory, keeping={JobHistory: versioned, **KEEPING}, unknown=True))
def test_a_history_is_read_and_written_the_same(value: Json) -> None:
    found = HISTORY.read(value)
    assert found.record is not None
    assert {finding.code for finding in found.findings} == {"unknown_field"}
    assert found.record.value() == value
    assert HISTORY.upgraded(value) == value


@settings(max_examples=25)
@given(values_of(job_history.ToldHistory, keeping=KEEPING))
def test_every_history_of_the_described_form_becomes_one_that_is_written(value: Json) -> None:
    found = HISTORY.read(value, strict=True)
    assert (found.findings, found.record and found.record.value()) == ([], value)
    assert told("job-history", HISTORY.upgraded(value), strict=True) == []


def with_a_job(value: Json) -> Json:
    return value | {"job_id": "j-1"}


@settings(max_examples=25)
@given(values_of(job_history.BareHistory, keeping={job_history.BareRequest: with_a_job}))
def test_every_bare_array_becomes_a_history_that_is_written(value: Json) -> None:
    array = value["interactions"]
    found = HISTORY.read(array, strict=True)
    assert (found.findings, found.record and found.record.value()) == ([], array)
    for entry in array:
        entry["response"]["action"] = "COMPLETED"
    new = HISTORY.upgraded(array)
    assert len(new["interactions"]) == len(array)
    if array:
        assert errors(told("job-history", new)) == []


@given(st.lists(st.sampled_from(["COMPLETED", "STUCK", "RETRY"]), max_size=6))
def test_numbers_stay_in_order_from_form_to_form(actions: list[str]) -> None:
    array = [changed(BARE[1], "response.action", action) for action in actions]
    numbers = [call["sequence"] for call in HISTORY.upgraded(array)["interactions"]]
    assert numbers == list(range(len(actions)))

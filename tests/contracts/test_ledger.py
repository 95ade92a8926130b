"""The ledger's entries in every form, and an agent's status."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import ledger
from holdfast.contracts.kind import Kind, Located, Origin
from holdfast.contracts.kinds import kind
from holdfast.contracts.ledger import DATA, ApIoEntry, FlatApIoEntry, LedgerEntry, Status, content
from holdfast.contracts.schema import schema_of
from tests.contracts.fixtures import Fixture, fixtures
from tests.contracts.rounds import alike, assert_strict_round, assert_written_as_read, by_path
from tests.contracts.strategies import Json, anything, values_of

OURS = [each for each in fixtures() if each.kind.name in ("ledger", "status", "summary")]
LEDGER = kind("ledger")
ENTRY: Json = {
    "ts": "2026-11-15T08:48:46+07:00",
    "agent": "rio",
    "session_id": "2026-11-15_rio_001",
    "event": "task_result",
    "task_id": "wo-1",
    "source": "dispatcher",
    "summary": "Done",
    "data": {"status": "success", "duration_sec": 132, "files_touched": ["a", "b"]},
}
STATUS: Json = {
    "agent": "rio",
    "state": "idle",
    "last_heartbeat": "2026-11-15T08:48:46+07:00",
}


def told(name: str, value: Any, *, strict: bool = False) -> list[tuple[str, str, str]]:
    return [each[:3] for each in kind(name).read(value, strict=strict).findings]


# --- fixtures -------------------------------------------------------------------------------


def test_there_is_a_fixture_of_every_form() -> None:
    of_kinds = {(each.name, form.version) for each in ledger.KINDS for form in each.forms}
    assert {(each.kind.name, each.form.version) for each in fixtures()} >= of_kinds


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_what_a_fixture_holds_is_right_and_written_back_as_it_was(fixture: Fixture) -> None:
    for value in fixture.values():
        assert fixture.kind.form_of(value) is fixture.form
        assert fixture.kind.read(value, strict=True, form=fixture.form).findings == []
        assert_written_as_read(fixture.kind, value)
        if fixture.form is fixture.kind.current:
            assert_strict_round(fixture.kind, value)


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_a_fixture_is_known_by_its_content(fixture: Fixture) -> None:
    if fixture.form.version != "log" and fixture.kind.shape != "markdown":
        assert alike(fixture.values()[0]) == [fixture.kind.name]


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_a_field_nobody_knows_is_a_warning_and_survives(fixture: Fixture) -> None:
    for value in fixture.values():
        odd = value | {"x-new": {"deep": [1.5, None, "é"]}}
        found = fixture.kind.read(odd, form=fixture.form)
        assert [each[:3] for each in found.findings] == [("warning", "unknown_field", "x-new")]
        assert_written_as_read(fixture.kind, odd)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("ledger/rio/2026-11-15.jsonl", ["ledger"]),
        ("/x/g/ledger/cls/2025-11-16.jsonl", ["ledger"]),
        ("ledger/rio/2026-11-15.2.jsonl", ["ledger"]),
        ("mls/ledger/2025-11-13.jsonl", ["ledger"]),
        ("ledger/rio/2026-11-15.jsonl.zst", ["ledger"]),
        ("g/ledger/ap_io_v31.jsonl", ["ledger"]),
        ("ledger/rio/notes.jsonl", []),
        ("agents/cls/status.json", ["status"]),
        ("state/rio/status.json", ["status"]),
        ("old-status.json", []),
        ("memory/rio/sessions/2026-11-15_rio_001.md", ["summary"]),
        ("memory/rio/sessions/README.txt", []),
    ],
)
def test_a_file_is_known_by_its_path(path: str, names: list[str]) -> None:
    assert by_path(path) == names


# --- entries ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ENTRY])
def test_every_field_of_an_entry_is_required(name: str) -> None:
    value = {field: given for field, given in ENTRY.items() if field != name}
    for strict in (True, False):
        assert told("ledger", value, strict=strict) == [("error", "missing", name)]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"ts": "yesterday"}, "time", "ts"),
        ({"ts": "2026-02-30T08:48:46Z"}, "time", "ts"),
        ({"ts": "$(date -u +%Y-%m-%d)"}, "time", "ts"),
        ({"ts": "rio heartbeat 2026-10-31 05:55:53 #2036"}, "time", "ts"),
        ({"agent": "rio clay"}, "type", "agent"),
        ({"agent": ""}, "type", "agent"),
        ({"agent": 7}, "type", "agent"),
        ({"session_id": "1761779481"}, "type", "session_id"),
        ({"session_id": "2026-11-15_rio_1"}, "type", "session_id"),
        ({"session_id": "2026-11-15_rio_0001"}, "type", "session_id"),
        ({"session_id": "2026-13-15_rio_001"}, "type", "session_id"),
        ({"session_id": "20260331-220000"}, "type", "session_id"),
        ({"event": {"type": "task_start"}}, "choice", "event"),
        ({"event": None}, "choice", "event"),
        ({"task_id": ""}, "type", "task_id"),
        ({"source": {"producer": "clc"}}, "type", "source"),
        ({"summary": None}, "type", "summary"),
        ({"data": []}, "type", "data"),
        ({"data": "x"}, "type", "data"),
        ({"data": None}, "type", "data"),
        ({"seq": 0}, "type", "seq"),
        ({"hash": "00"}, "type", "hash"),
        ({"fence": 0}, "type", "fence"),
        ({"ref": ""}, "type", "ref"),
        ({"data": {"status": "done"}}, "choice", "data.status"),
        ({"data": {"duration_sec": -1}}, "type", "data.duration_sec"),
        ({"data": {"files_touched": "a"}}, "type", "data.files_touched"),
        ({"data": {"files_touched": [1]}}, "type", "data.files_touched[0]"),
        ({"data": {"exit_code": "no"}}, "type", "data.exit_code"),
        ({"event": "task_start", "data": {"task_type": 1}}, "type", "data.task_type"),
        ({"event": "task_start", "data": {"target_files": {}}}, "type", "data.target_files"),
        ({"event": "error", "data": {"error": 1}}, "type", "data.error"),
        ({"event": "error", "data": {"stack": []}}, "type", "data.stack"),
        ({"event": "info", "data": {"message": 1}}, "type", "data.message"),
    ],
)
def test_what_the_format_forbids_is_refused_where_it_stands(
    change: Json, code: str, field: str
) -> None:
    for strict in (True, False):
        assert told("ledger", ENTRY | change, strict=strict) == [("error", code, field)]


@pytest.mark.parametrize(
    ("change", "code", "field", "meant"),
    [
        ({"ts": "2026-11-15T08:48:46+0700"}, "time", "ts", "2026-11-15T08:48:46+07:00"),
        ({"ts": 1794707326}, "time", "ts", "2026-11-15T01:48:46Z"),
        ({"ts": 1794707326000}, "time", "ts", "2026-11-15T01:48:46Z"),
        ({"ts": "2026-11-15T08:48:46"}, "time", "ts", "2026-11-15T08:48:46Z"),
        ({"agent": "Rio"}, "spelling", "agent", "rio"),
        ({"event": "Task-Result"}, "choice", "event", "task_result"),
    ],
)
def test_what_is_plainly_meant_is_read_with_a_warning(
    change: Json, code: str, field: str, meant: str
) -> None:
    found = LEDGER.read(ENTRY | change)
    assert [each[:3] for each in found.findings] == [("warning", code, field)]
    assert found.value[field] == meant
    assert {level for level, *_ in told("ledger", ENTRY | change, strict=True)} == {"error"}


@pytest.mark.parametrize("ts", ["2026-11-15T08:48:46Z", "2026-11-15T08:48:46.123456+07:00"])
def test_a_time_has_an_offset_or_z_and_perhaps_fractions(ts: str) -> None:
    assert told("ledger", ENTRY | {"ts": ts}, strict=True) == []


def test_an_event_nobody_listed_is_kept_with_a_warning_and_refused_strictly() -> None:
    value = ENTRY | {"event": "deploy", "data": {"status": "anything at all"}}
    assert told("ledger", value) == [("warning", "choice", "event")]
    assert told("ledger", value, strict=True) == [("error", "choice", "event")]
    assert LEDGER.read(value).value == value
    listed = ledger.with_events(["deploy", "review"])
    assert listed.read(value, strict=True).findings == []
    assert listed.read(ENTRY, strict=True).findings == []
    (refused,) = listed.read(ENTRY | {"event": "dance"}, strict=True).findings
    assert "info, deploy, review" in refused.reason


def test_data_may_hold_more_than_the_usual_fields() -> None:
    more = {"status": "failure", "cause": "signal", "tokens": 12, "nested": {"a": [None]}}
    assert_strict_round(LEDGER, ENTRY | {"data": more})


def test_sessions_beyond_the_999th_of_a_day_are_sessions() -> None:
    assert told("ledger", ENTRY | {"session_id": "2026-11-15_rio_1000"}, strict=True) == []


def entries() -> st.SearchStrategy[Json]:
    def with_data(value: Json) -> st.SearchStrategy[Json]:
        data = values_of(DATA[value["event"]])
        more = st.dictionaries(st.sampled_from(["x", "é"]), anything, max_size=1)
        return st.builds(lambda one, two: value | {"data": one | two}, data, more)

    return values_of(LedgerEntry).flatmap(with_data)


@given(entries())
def test_any_entry_is_written_back_as_it_was_read(value: Json) -> None:
    assert_strict_round(LEDGER, value)


# --- the quick yes ------------------------------------------------------------------------------


def is_plain(value: Any) -> bool:
    assert LEDGER.current.plain is not None
    return LEDGER.current.plain(value)


@given(entries())
def test_every_entry_that_is_as_it_should_be_gets_a_quick_yes(value: Json) -> None:
    assert is_plain(value)


changes = st.dictionaries(
    st.sampled_from([*LedgerEntry.model_fields, "x"]),
    anything | st.sampled_from(["Rio", True, 1.0, 1, {"exit_code": True}, {"duration_sec": "1"}]),
    max_size=3,
)
times = st.builds(
    "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}".format,
    st.integers(0, 2500),
    st.integers(0, 13),
    st.integers(0, 32),
    st.integers(0, 25),
    st.integers(0, 61),
    st.integers(0, 61),
    st.sampled_from(["Z", "+07:00", "-23:59", "+24:00", "", ".5Z", "+0700", "Z\n"]),
)


@given(entries(), changes, st.none() | times, st.sets(st.sampled_from([*ENTRY]), max_size=1))
def test_a_quick_yes_is_never_wrong(
    value: Json, change: Json, ts: str | None, gone: set[str]
) -> None:
    odd = {name: given for name, given in (value | change).items() if name not in gone}
    if ts is not None:
        odd["ts"] = ts
    if is_plain(odd):
        assert told("ledger", odd, strict=True) == []


@pytest.mark.parametrize(
    "change", [{"seq": True}, {"seq": 1.0}, {"data": {"exit_code": True}}, {"x": 1}, {"ref": None}]
)
def test_what_only_resembles_a_value_gets_no_quick_yes(change: Json) -> None:
    odd = ENTRY | change
    assert is_plain(odd) is (told("ledger", odd, strict=True) == [])


@pytest.mark.parametrize("year", [1900, 1996, 2000, 2023, 2024, 2100])
def test_leap_days_are_known(year: int) -> None:
    value = ENTRY | {"ts": f"{year}-02-29T08:48:46Z"}
    assert is_plain(value) is (told("ledger", value, strict=True) == [])


# --- older forms ------------------------------------------------------------------------------


NESTED: Json = {
    "protocol": "AP/IO",
    "version": "3.1",
    "ledger_id": "ledger-20261115-014846-cls-1",
    "ts": "2026-11-15T08:48:46+07:00",
    "agent": "CLS",
    "correlation_id": "corr-20261115-115",
    "session_id": "2026-11-15_cls_001",
    "event": {
        "type": "task_result",
        "task_id": "wo-9",
        "source": "dispatcher",
        "summary": "Done",
        "data": {"status": "success"},
        "trace": 7,
    },
    "data": {"output": "…"},
    "execution_duration_ms": 1250,
    "routing": {"targets": ["cls"], "broadcast": False, "priority": "normal", "delivered_to": []},
}
FLAT: Json = {
    "ledger_id": "322a7c71-11ce-4d0d-a339-3281799953f4",
    "parent_id": None,
    "correlation_id": None,
    "timestamp": "2026-11-15T08:48:46.229880Z",
    "agent": "Liam",
    "event": "overseer_check",
    "data": {"intent": "refactor"},
    "execution_duration_ms": None,
}


def test_an_entry_of_ap_io_gets_our_columns_and_keeps_every_key() -> None:
    assert LEDGER.upgraded(NESTED) == {
        "ts": "2026-11-15T08:48:46+07:00",
        "agent": "cls",
        "session_id": "2026-11-15_cls_001",
        "event": "task_result",
        "task_id": "wo-9",
        "source": "dispatcher",
        "summary": "Done",
        "data": {"trace": 7, "status": "success", "output": "…"},
        "protocol": "AP/IO",
        "version": "3.1",
        "ledger_id": "ledger-20261115-014846-cls-1",
        "correlation_id": "corr-20261115-115",
        "execution_duration_ms": 1250,
        "routing": NESTED["routing"],
    }
    assert list(LEDGER.upgraded(NESTED))[:8] == list(ENTRY)


def test_an_upgraded_entry_is_one_of_ours_with_fields_that_are_kept() -> None:
    found = LEDGER.read(LEDGER.upgraded(NESTED), form=LEDGER.current)
    assert {each.code for each in found.findings} == {"unknown_field"}
    assert found.record is not None


def test_a_flat_entry_gets_our_columns_and_nothing_is_invented() -> None:
    found = LEDGER.upgraded(FLAT)
    assert found == {
        "ts": "2026-11-15T08:48:46.229880Z",
        "agent": "liam",
        "event": "overseer_check",
        "data": {"intent": "refactor"},
        "ledger_id": FLAT["ledger_id"],
        "parent_id": None,
        "correlation_id": None,
        "execution_duration_ms": None,
    }
    other = {"event_type": "key_rotated", "timestamp": "2026-11-15T08:48:46Z", "status": "ok"}
    assert LEDGER.upgraded(other) == {
        "ts": "2026-11-15T08:48:46Z",
        "event": "key_rotated",
        "data": {},
        "status": "ok",
    }


def test_an_entry_of_ours_needs_no_upgrade() -> None:
    assert LEDGER.upgraded(ENTRY) == ENTRY


@pytest.mark.parametrize(
    ("value", "findings"),
    [
        (NESTED, [("warning", "form", ""), ("warning", "spelling", "agent")]),
        (NESTED | {"agent": "cls", "version": "3.2"}, [("error", "choice", "version")]),
        (NESTED | {"agent": "cls", "event": "x"}, [("error", "type", "event")]),
        (
            NESTED | {"agent": "cls", "event": {"type": "dance"}},
            [("warning", "choice", "event.type")],
        ),
        (FLAT, [("warning", "spelling", "agent"), ("warning", "choice", "event")]),
        (
            {"event_type": "key_rotated", "timestamp": "2026-11-15T08:48:46Z"},
            [
                ("warning", "missing", "ledger_id"),
                ("error", "missing", "agent"),
                ("warning", "missing", "event"),
                ("warning", "missing", "data"),
            ],
        ),
    ],
)
def test_older_forms_are_told_and_read_as_they_were_meant(
    value: Json, findings: list[tuple[str, str, str]]
) -> None:
    found = [each for each in told("ledger", value) if each[1:] != ("unknown_field", "event.trace")]
    assert [each for each in found if each[1] != "form"] == [
        each for each in findings if each[1] != "form"
    ]
    assert ("warning", "form", "") in found
    assert ("error", "form", "") in told("ledger", value, strict=True)


@given(values_of(ApIoEntry))
def test_any_entry_of_ap_io_is_read_as_it_is(value: Json) -> None:
    assert LEDGER.read(value, form=LEDGER.form("3.1")).findings == []
    assert_written_as_read(LEDGER, value)
    assert set(value) - {"event"} <= set(LEDGER.upgraded(value))


@given(values_of(FlatApIoEntry))
def test_any_flat_entry_is_read_as_it_is(value: Json) -> None:
    assert LEDGER.read(value, form=LEDGER.form("3.1_flat")).findings == []
    assert_written_as_read(LEDGER, value)


@given(st.dictionaries(st.sampled_from([*NESTED, *FLAT, "event_type"]), anything) | anything)
def test_no_value_breaks_an_upgrade(value: Any) -> None:
    LEDGER.upgraded(value)
    for form in LEDGER.forms:
        if form.upgrade is not None:
            form.upgrade(value)


# --- what makes entries the same ------------------------------------------------------------------


def test_the_same_content_is_told_whatever_its_place_in_a_chain_and_its_order_of_keys() -> None:
    sealed = {**dict(reversed(ENTRY.items())), "seq": 7, "hash": "0" * 64}
    assert content(sealed) == content(ENTRY)
    assert content(ENTRY | {"summary": "Done "}) != content(ENTRY)


# --- status -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agent", "state", "last_heartbeat"])
def test_a_status_needs_agent_state_and_heartbeat(name: str) -> None:
    value = {field: given for field, given in STATUS.items() if field != name}
    assert told("status", value) == [("error", "missing", name)]


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"state": "idle | busy | error | offline"}, "choice", "state"),
        ({"state": "sleeping"}, "choice", "state"),
        ({"last_heartbeat": "long ago"}, "time", "last_heartbeat"),
        ({"last_heartbeat": None}, "time", "last_heartbeat"),
        ({"last_error": 7}, "type", "last_error"),
        ({"session_id": "now"}, "type", "session_id"),
        ({"schema_version": "9.0"}, "newer", "schema_version"),
    ],
)
def test_what_a_status_may_not_say_is_refused(change: Json, code: str, field: str) -> None:
    for strict in (True, False):
        assert told("status", STATUS | change, strict=strict) == [("error", code, field)]


def test_a_failing_agent_should_say_why() -> None:
    value = STATUS | {"state": "error"}
    assert told("status", value) == [("warning", "rule", "last_error")]
    assert told("status", value | {"last_error": None}) == [("warning", "rule", "last_error")]
    assert told("status", value | {"last_error": "no answer"}, strict=True) == []
    assert told("status", value, strict=True) == [("error", "rule", "last_error")]


@given(values_of(Status))
def test_any_status_is_written_back_as_it_was_read(value: Json) -> None:
    assert_written_as_read(kind("status"), value)


def checked(its: Kind, value: Json, path: str) -> list[tuple[str, str, str]]:
    assert its.cross_check is not None
    return [each[:3] for each in its.cross_check([Located(1, its.read(value))], Origin(path))]


def test_a_status_lies_with_its_agent_and_names_a_session_of_it() -> None:
    its, value = kind("status"), STATUS | {"session_id": "2026-11-15_rio_001"}
    assert checked(its, value, "home/state/rio/status.json") == []
    assert checked(its, value, "home/agents/Rio/status.json") == []
    assert checked(its, value, "somewhere/status.json") == []
    assert checked(its, value, "home/state/clay/status.json") == [
        ("warning", "agent_path", "agent")
    ]
    other = value | {"session_id": "2026-11-15_clay_001"}
    assert checked(its, other, "home/state/rio/status.json") == [
        ("warning", "session_agent", "session_id")
    ]


# --- schemas ----------------------------------------------------------------------------------


def test_the_schema_tells_what_may_stand_in_the_data_of_each_event() -> None:
    schema = schema_of(LEDGER)
    of_each = {
        rule["if"]["properties"]["event"]["const"]: rule["then"]["properties"]["data"]
        for rule in schema["allOf"]
    }
    assert set(of_each) == set(DATA) - {"heartbeat"}
    assert "duration_sec" in of_each["task_result"]["properties"]

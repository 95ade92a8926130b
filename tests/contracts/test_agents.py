"""The files of an agent: what may be written, what is read with a warning, what is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts import agents
from holdfast.contracts.kind import Finding, Located, LogLine, Origin
from holdfast.contracts.kinds import kind
from tests.contracts.fixtures import FOLDER, Fixture, fixtures
from tests.contracts.rounds import alike, assert_strict_round, assert_written_as_read, by_path
from tests.contracts.strategies import Json, Keeping, values_of

OURS = [each for each in fixtures() if each.kind in agents.KINDS and each.kind.shape != "markdown"]


def example(name: str) -> Json:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


REPORT = example("report/1.0-after-a-session")
TASKS = example("tasks/1.0-all-states")
SESSION = example("session/1.0-completed")
MESSAGE = example("message/1.0-flag")
METRICS = example("metrics/1.0-after-many")
START: Json = {
    "ts": "2026-11-14T20:30:00Z",
    "event": "session_start",
    "session_id": "2026-11-14_rio_002",
    "type": "research",
}


def changed(value: Json, path: str, new: Any) -> Json:
    """A copy with another value at `tasks.0.status`."""
    found = copy.deepcopy(value)
    *above, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    holder: Any = found
    for part in above:
        holder = holder[part]
    holder[last] = new
    return found


def told(name: str, value: Any, *, strict: bool = False) -> list[tuple[str, str, str]]:
    return [finding[:3] for finding in kind(name).read(value, strict=strict).findings]


def crossed(name: str, value: Any, path: str) -> list[tuple[str, str, str]]:
    """What the cross-check of a kind says of a file with this value."""
    its = kind(name)
    assert its.cross_check is not None
    values = value if its.shape in ("lines", "array") else [value]
    found = [Located(number + 1, its.read(each)) for number, each in enumerate(values)]
    return [finding[:3] for finding in its.cross_check(found, Origin(path))]


# --- every fixture --------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_what_a_fixture_holds_is_strictly_right_and_written_back_as_it_was(
    fixture: Fixture,
) -> None:
    for value in fixture.values():
        assert_strict_round(fixture.kind, value)


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_a_fixture_is_known_by_its_content(fixture: Fixture) -> None:
    if fixture.form.version != "log":
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
    of_kinds = {(each.name, form.version) for each in agents.KINDS for form in each.forms}
    assert {(each.kind.name, each.form.version) for each in fixtures()} >= of_kinds


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("state/rio/report.json", "report"),
        ("report.json", "report"),
        ("rio/tasks.json", "tasks"),
        ("state/rio/session.json", "session"),
        ("state/rio/session.extractor.json", "session"),
        ("state/rio/inbox/msg-7f3a.json", "message"),
        ("state/rio/inbox/.done/msg-7f3a.json", "message"),
        ("state/rio/inbox/.claimed/msg-7f3a.json~rio~7~1~0badcafe.99", "message"),
        ("state/rio/journal.jsonl", "journal"),
        ("journal.jsonl", "journal"),
        ("state/rio/metrics.json", "metrics"),
        ("ops/sessions/20260306-120716.json", "legacy-session"),
        ("state/rio/memory.md", "memory-md"),
    ],
)
def test_a_file_is_known_by_its_path(path: str, name: str) -> None:
    assert by_path(path) == [name]


@pytest.mark.parametrize("path", ["state/rio/old-report.json", "improve/x/journal.jsonl"])
def test_a_file_of_another_name_is_not(path: str) -> None:
    assert by_path(path) == []


# --- every model ----------------------------------------------------------------------------


def _adding_up(value: Json) -> Json:
    parts = ("sessions_completed", "sessions_timeout", "sessions_error")
    small = {name: value[name] % 2**40 for name in parts}
    crashed = value.get("sessions_crashed")
    more = {} if crashed is None else {"sessions_crashed": crashed % (small[parts[2]] + 1)}
    return value | small | more | {"sessions_total": sum(small.values())}


def _parked_while_pending(value: Json) -> Json:
    return value | {"status": "pending"} if value.get("parked") else value


def _of_the_log(value: Json) -> Json:
    rest = {name: each for name, each in value.items() if name not in ("_log", "redacted")}
    return rest | {"lease": "session", "fence": 7}


KEEPING: Keeping = {
    agents.Lifetime: _adding_up,
    agents.Task: _parked_while_pending,
    LogLine: _of_the_log,
}
MODELS = {
    f"{each.name}@{form.version}": (each, values_of(form.model, keeping=KEEPING))
    for each in agents.KINDS
    for form in each.forms
    if each.shape != "markdown"
}


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_whatever_a_model_accepts_is_written_back_as_it_was(name: str, data: st.DataObject) -> None:
    its, values = MODELS[name]
    value = data.draw(values)
    assert {finding.level for finding in its.read(value).findings} <= {"warning"}
    assert_written_as_read(its, value)


@given(values_of(agents.Tasks, keeping=KEEPING, unknown=True))
def test_fields_nobody_knows_survive_beside_any_others(value: Json) -> None:
    assert_written_as_read(kind("tasks"), value)


# --- drift ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "path", "given", "meant"),
    [
        ("report", REPORT, "status", "Researching", "researching"),
        ("report", REPORT, "status", '"idle"', "idle"),
        ("report", REPORT, "last_session.outcome", "complete (13 pages)", "completed"),
        ("report", REPORT, "last_session.pr_number", "unknown", None),
        ("report", REPORT, "last_session.pr_number", "247", 247),
        ("report", REPORT, "last_session.sources_archived", "0\n0", 0),
        ("report", REPORT, "updated_at", "2026-11-15T05:00:00+0700", "2026-11-14T22:00:00Z"),
        ("tasks", TASKS, "tasks.1.status", "ACTIVE", "active"),
        ("tasks", TASKS, "tasks.0.type", "follow_up", "follow-up"),
        ("tasks", TASKS, "tasks.0.priority", "normal", "medium"),
        ("tasks", TASKS, "tasks.0.priority", "blocking", "high"),
        ("session", SESSION, "type", "ad hoc", "ad-hoc"),
        ("session", SESSION, "started_at", 1794688200, "2026-11-14T20:30:00Z"),
        ("session", SESSION, "timeout_seconds", "5400", 5400),
        ("message", MESSAGE, "priority", "medium", "normal"),
        ("message", MESSAGE, "priority", "low", "normal"),
        ("message", MESSAGE, "priority", "routine", "normal"),
        ("message", MESSAGE, "priority", "Time_Sensitive", "high"),
        ("message", MESSAGE, "priority", "blocking", "high"),
        ("journal", START, "type", "Extract", "extract"),
        ("metrics", METRICS, "lifetime.claims_rejected", "6", 6),
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
        ("report", REPORT, "status", "idle | researching | extracting | evaluating | error"),
        ("report", REPORT, "status", "asleep"),
        ("report", REPORT, "agent", "../leo"),
        ("report", REPORT, "agent", ""),
        ("report", REPORT, "agent", "x" * 300),
        ("report", REPORT, "agent", "rio;rm"),
        ("report", REPORT, "last_session.id", "yesterday"),
        ("report", REPORT, "updated_at", "$(date -u)"),
        ("report", REPORT, "summary", None),
        ("tasks", TASKS, "tasks.0.status", "pending | active"),
        ("tasks", TASKS, "tasks.0.priority", "soon"),
        ("tasks", TASKS, "tasks", {}),
        ("tasks", TASKS, "tasks.2.parked.attempts", -1),
        ("session", SESSION, "cost_usd", -0.1),
        ("session", SESSION, "cost_usd", float("nan")),
        ("session", SESSION, "errors", "none"),
        ("message", MESSAGE, "type", "flag | task | question | cascade"),
        ("message", MESSAGE, "from", "../x"),
        ("message", MESSAGE, "id", "../../etc/passwd"),
        ("message", MESSAGE, "id", ""),
        ("message", MESSAGE, "expires_at", "2026-03"),
        ("journal", START, "event", ""),
        ("journal", START, "ts", "2025-00-00T00:00:00Z"),
        ("metrics", METRICS, "rolling_30d.acceptance_rate", 1.5),
        ("metrics", METRICS, "lifetime.claims_proposed", -1),
    ],
)
def test_what_nobody_can_read_is_refused_with_its_field(
    name: str, value: Json, path: str, given: Any
) -> None:
    found = kind(name).read(changed(value, path, given))
    assert found.record is None
    (error,) = [finding for finding in found.findings if finding.level == "error"]
    assert error.field.replace("[", ".").replace("]", "").startswith(path)


def test_a_refused_status_names_the_allowed_ones() -> None:
    (error,) = kind("report").read(changed(REPORT, "status", "idle | error")).findings
    assert error.reason.endswith(
        "is not one of idle, researching, extracting, evaluating, working, error"
    )


# --- rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize("old", ["20261114-220000", "2026-02-30_rio_001"])
def test_a_session_id_we_never_write_is_read_with_a_warning(old: str) -> None:
    for name, value, path in (
        ("session", SESSION, "session_id"),
        ("report", REPORT, "last_session.id"),
        ("journal", START, "session_id"),
    ):
        assert told(name, changed(value, path, old)) == [("warning", "old_id", path)]
        assert told(name, changed(value, path, old), strict=True) == [("error", "old_id", path)]
        assert_written_as_read(kind(name), changed(value, path, old))


def test_an_old_session_id_of_a_role_is_told_with_its_place() -> None:
    value = changed(example("report/1.0-two-roles"), "roles.extractor.last_session.id", "1")
    assert told("report", value) == [("error", "type", "roles.extractor.last_session.id")]
    value["roles"]["extractor"]["last_session"]["id"] = "20261114-220000"
    assert told("report", value) == [("warning", "old_id", "roles.extractor.last_session.id")]


@pytest.mark.parametrize("name", sorted(agents.Session.often_missing))
def test_a_session_without_one_of_its_lesser_fields_is_read_and_not_written(name: str) -> None:
    value = {key: each for key, each in SESSION.items() if key != name}
    found = kind("session").read(value)
    assert [finding[:3] for finding in found.findings] == [("warning", "missing", name)]
    assert found.record is not None
    assert told("session", value, strict=True) == [("error", "missing", name)]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"status": "running"}, ("warning", "contradiction", "ended_at")),
        ({"ended_at": None}, ("warning", "missing", "ended_at")),
        ({"session_id": None}, ("warning", "missing", "session_id")),
        ({"started_at": None}, ("warning", "missing", "started_at")),
        ({"type": None}, ("warning", "missing", "type")),
    ],
)
def test_a_session_that_contradicts_itself_is_read_with_a_warning(
    change: Json, finding: tuple[str, str, str]
) -> None:
    assert told("session", SESSION | change) == [finding]


def test_a_running_session_has_no_end() -> None:
    assert_strict_round(kind("session"), SESSION | {"status": "running", "ended_at": None})


@pytest.mark.parametrize("status", ["active", "completed", "dropped"])
def test_only_a_pending_task_is_parked(status: str) -> None:
    value = changed(TASKS, "tasks.2.status", status)
    assert ("error", "rule", "tasks[2]") in told("tasks", value)


def test_a_task_has_an_end_when_it_ended_and_no_other_has() -> None:
    value = changed(TASKS, "tasks.0.completed_at", None)
    assert told("tasks", value) == [("warning", "missing", "tasks[0].completed_at")]
    value = changed(TASKS, "tasks.1.completed_at", "2026-11-14T10:00:00Z")
    assert told("tasks", value) == [("warning", "contradiction", "tasks[1].completed_at")]


@pytest.mark.parametrize("total", [46, 48])
def test_the_sessions_of_a_life_add_up(total: int) -> None:
    value = changed(METRICS, "lifetime.sessions_total", total)
    assert told("metrics", value) == [("error", "rule", "lifetime")]


def test_crashed_sessions_are_some_of_those_with_an_error() -> None:
    lifetime = METRICS["lifetime"]
    value = METRICS | {"lifetime": lifetime | {"sessions_crashed": 3}}
    assert told("metrics", value) == [("error", "rule", "lifetime")]
    assert_strict_round(kind("metrics"), METRICS | {"lifetime": lifetime | {"sessions_crashed": 2}})


@pytest.mark.parametrize("name", [*METRICS["lifetime"], *METRICS["rolling_30d"]])
def test_no_counter_may_be_missing(name: str) -> None:
    for part in ("lifetime", "rolling_30d"):
        if name in METRICS[part]:
            rest = {key: each for key, each in METRICS[part].items() if key != name}
            assert told("metrics", METRICS | {part: rest}) == [
                ("error", "missing", f"{part}.{name}")
            ]


def test_an_event_nobody_knows_is_read_with_a_warning() -> None:
    line = {"ts": "2026-11-14T20:30:00Z", "event": "coffee_break", "minutes": 5}
    assert told("journal", line) == [
        ("warning", "unknown_event", "event"),
        ("warning", "unknown_field", "minutes"),
    ]
    assert_written_as_read(kind("journal"), line)


@pytest.mark.parametrize(
    ("event", "needed"), [(event, name) for event, names in agents.EVENTS.items() for name in names]
)
def test_a_line_says_what_its_event_needs(event: str, needed: str) -> None:
    line = {"ts": "2026-11-14T20:30:00Z", "event": event}
    assert ("warning", "missing", needed) in told("journal", line)
    assert ("error", "missing", needed) in told("journal", line, strict=True)


@pytest.mark.parametrize(
    "line",
    [
        {"lease": "session"},
        {"lease": "session", "fence": 1, "_log": "cut_tail"},
        {"_log": "something"},
        {"redacted": "short"},
    ],
)
def test_a_line_of_the_log_itself_has_its_own_form(line: Json) -> None:
    assert told("journal", line)[0][0] == "error"


# --- what one record cannot show ------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [("report", REPORT), ("tasks", TASKS), ("session", SESSION), ("metrics", METRICS)],
)
def test_an_agent_agrees_with_its_directory(name: str, value: Json) -> None:
    assert crossed(name, value, f"/home/state/rio/{name}.json") == []
    assert crossed(name, value, f"RIO/{name}.json") == []
    assert crossed(name, value, f"{name}.json") == []
    assert crossed(name, value, f"examples/rios-{name}.json") == []
    assert crossed(name, value, f"/home/state/leo/{name}.json") == [("error", "place", "agent")]
    assert crossed(name, value, f"leo/{name}.json") == [("warning", "place", "agent")]


def test_a_role_agrees_with_its_file() -> None:
    value = SESSION | {"role": "extractor"}
    assert crossed("session", value, "rio/session.extractor.json") == []
    assert crossed("session", value, "rio/session.json") == []
    assert crossed("session", value, "rio/session.critic.json") == [("error", "place", "role")]


def test_ids_of_tasks_are_unique() -> None:
    value = changed(TASKS, "tasks.3.id", "task-001")
    assert crossed("tasks", value, "tasks.json") == [("error", "duplicate", "tasks[3].id")]
    assert crossed("tasks", TASKS, "tasks.json") == []


def test_a_follow_up_of_an_unknown_task_is_told() -> None:
    value = changed(TASKS, "tasks.1.follow_up_from", "task-999")
    assert crossed("tasks", value, "tasks.json") == [
        ("warning", "unknown_id", "tasks[1].follow_up_from")
    ]


@pytest.mark.parametrize(
    "name",
    [
        "state/rio/inbox/msg-7f3a.json",
        "state/rio/inbox/msg-7f3a~2.json",
        "state/rio/inbox/.done/msg-7f3a.json",
        "state/rio/inbox/.claimed/msg-7f3a.json~rio@0badca.12.34~7~1~0badcafe.99",
        "inbox/msg-7f3a.json",
        "somewhere/else.json",
    ],
)
def test_a_message_in_the_file_of_its_name_says_nothing(name: str) -> None:
    assert crossed("message", MESSAGE, name) == []


def test_a_message_is_known_by_its_file_and_lies_with_its_receiver() -> None:
    assert crossed("message", MESSAGE, "state/rio/inbox/other.json") == [
        ("warning", "identity", "id")
    ]
    assert crossed("message", MESSAGE, "state/leo/inbox/.done/msg-7f3a.json") == [
        ("error", "place", "to")
    ]


def test_lines_of_another_agent_are_told_with_their_line() -> None:
    its = kind("journal")
    assert its.cross_check is not None
    lines = [START, START | {"agent": "leo"}]
    found = [Located(number + 1, its.read(line)) for number, line in enumerate(lines)]
    (finding,) = its.cross_check(found, Origin("state/rio/journal.jsonl"))
    assert finding[:3] == ("error", "place", "agent")
    assert finding.line == 2


def test_an_old_session_file_is_named_after_its_end() -> None:
    value = example("legacy-session/1.0-by-a-hook")
    assert crossed("legacy-session", value, "ops/sessions/20260306-120716.json") == []
    assert crossed("legacy-session", value, "ops/sessions/any.json") == []
    assert crossed("legacy-session", value, "ops/sessions/20260306-120717.json") == [
        ("warning", "place", "ended")
    ]


@given(
    st.sampled_from([each for each in agents.KINDS if each.cross_check]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["agent", "id", "to", "tasks", "role"]), inner)
        ),
        max_leaves=10,
    ),
)
def test_no_value_at_all_breaks_a_cross_check(its: Any, value: Any) -> None:
    found = [Located(1, its.read(value))]
    for finding in its.cross_check(found, Origin("state/rio/inbox/x.json")):
        assert isinstance(finding, Finding)
    assert all(isinstance(each.looks(value), bool) for each in agents.KINDS)

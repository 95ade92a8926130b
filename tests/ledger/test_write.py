"""Writing events: fields, data, what is refused, and what is said about it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadValue, ConfigError, UsageError
from holdfast.testing import refused
from tests.ledger.shell import (
    EVENTS,
    FIELDS,
    Shell,
    Verbs,
    day_files,
    entries_in,
    is_entry,
    lines_in,
    status_on_disk,
)

PATTERNS: list[tuple[str, dict[str, Any]]] = [
    ("heartbeat", {}),
    ("task_start", {"task_type": "code_review", "target_files": ["file1.js", "file2.js"]}),
    (
        "task_result",
        {
            "status": "success",
            "duration_sec": 120,
            "files_touched": ["path1", "path2"],
            "exit_code": 0,
        },
    ),
    ("task_result", {"status": "failure", "cause": "timeout", "duration_sec": 0.5}),
    (
        "error",
        {"error": "Task failed: timeout", "stack": "Traceback...\n  File", "task_id": "wo-123"},
    ),
    ("info", {"message": "…", "nested": {"list": [1, None, True, {"deep": []}]}}),
]
NO_OBJECTS = ["[1]", '"x"', "{bad", "", "null", "1", '{"a":1}x', '{"a":NaN}', '{"a":1,"a":2}']


def test_the_first_event_makes_everything_it_needs_and_has_the_eight_fields(shell: Shell) -> None:
    said = ("--task", "wo-1", "--source", "user", "--data", '{"task_type":"greeting"}')
    ran = shell.write("hello", *said, event="task_start")

    assert (ran.code, ran.err) == (0, "")
    [file] = day_files(shell.home, "cls")
    [record] = entries_in(shell.home, "cls")
    assert is_entry(record)
    assert list(record) == [*FIELDS, "seq", "hash"]
    assert file.name == f"{record['ts'][:10]}.jsonl"
    assert record | {"ts": "", "hash": ""} == {
        "ts": "",
        "agent": "cls",
        "session_id": f"{record['ts'][:10]}_cls_001",
        "event": "task_start",
        "task_id": "wo-1",
        "source": "user",
        "summary": "hello",
        "data": {"task_type": "greeting"},
        "seq": 1,
        "hash": "",
    }


def test_the_writer_is_told_session_number_event_and_task(shell: Shell) -> None:
    said = shell.write("hello", "--task", "wo-1", event="task_start").out
    [record] = entries_in(shell.home, "cls")
    assert said == f"{record['session_id']} #1 task_start wo-1\n"


def test_ledgers_are_for_the_owner_only(shell: Shell) -> None:
    shell.write("hello")
    for file in [shell.home, *shell.home.rglob("*")]:
        assert file.stat().st_mode & 0o077 == 0, file


@pytest.mark.parametrize(("event", "data"), PATTERNS)
def test_every_data_pattern_of_the_schema_comes_back_unchanged(
    verbs: Verbs, event: str, data: dict[str, Any]
) -> None:
    verbs.write("text", event=event, task="wo-123", data=json.dumps(data))

    [record] = entries_in(verbs.path, "rio")
    assert is_entry(record)
    assert (record["event"], record["task_id"], record["data"]) == (event, "wo-123", data)
    assert verbs.rows("ledger list")[0]["data"] == data


def test_the_patterns_above_cover_every_event_type() -> None:
    assert {event for event, _ in PATTERNS} == set(EVENTS)


def test_data_comes_from_the_argument_a_file_or_standard_input(
    shell: Shell, tmp_path: Path
) -> None:
    given = {"status": "success", "duration_sec": 120}
    file = tmp_path / "data.json"
    file.write_text(json.dumps(given, indent=2), encoding="utf-8")
    for source in (json.dumps(given), f"@{file}", "-"):
        said = file.read_bytes() if source == "-" else b""
        words = ("--agent", "cls", "--event", "task_result", "--task", "t", "--data", source, "x")
        assert shell("ledger", "write", *words, said=said).code == 0
    shell.write("no data")

    assert [each["data"] for each in entries_in(shell.home, "cls")] == [given, given, given, {}]


@pytest.mark.parametrize("data", NO_OBJECTS)
def test_data_that_is_no_object_is_refused_and_nothing_is_written(verbs: Verbs, data: str) -> None:
    verbs.write("before")
    before = lines_in(verbs.path, "rio")

    with refused(BadValue):
        verbs.write("text", data=data)

    assert lines_in(verbs.path, "rio") == before


def test_a_refused_call_exits_with_two_and_says_how_to_do_it_right(shell: Shell) -> None:
    ran = shell.write("text", "--data", "[1]")
    assert (ran.code, ran.out) == (2, "")
    assert "error: data has to be a JSON object\n" in ran.err
    assert "hint: " in ran.err


def test_the_reason_why_data_is_no_json_is_given_once(verbs: Verbs) -> None:
    with pytest.raises(BadValue) as caught:
        verbs.write("text", data="{bad")
    assert caught.value.message.count("not JSON") == 1


def test_a_result_is_a_success_or_a_failure(verbs: Verbs) -> None:
    with refused(BadValue, "done"):
        verbs.write("text", event="task_result", task="t", data='{"status":"done"}')
    assert not day_files(verbs.path, "rio")


def test_an_unknown_event_is_refused_naming_those_there_are(shell: Shell) -> None:
    ran = shell.write("text", "--json", event="deployed")
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["code"] == "usage"
    assert "deployed" in ran.error()["message"]
    assert all(event in ran.error()["hint"] for event in EVENTS)


def test_events_named_in_the_settings_are_written_and_named_beside_the_others(verbs: Verbs) -> None:
    verbs("init", timezone="UTC")
    with Path(verbs.path, "holdfast.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[ledger]\nextra_events = ["deploy", "review"]\n')

    verbs.write("out it goes", event="deploy", task="wo-1")

    assert verbs.rows("ledger list", event="deploy")[0]["task_id"] == "wo-1"
    with pytest.raises(UsageError) as caught:
        verbs.write("text", event="deployed")
    assert "info, deploy, review" in (caught.value.hint or "")


def test_an_event_of_our_own_leaves_the_state_as_it_was(verbs: Verbs) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    with Path(verbs.path, "holdfast.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[ledger]\nextra_events = ["deploy"]\n')
    verbs.write("out it goes", event="deploy", task="wo-2")
    status = status_on_disk(verbs.path, "rio")
    assert (status["state"], status["last_task_id"]) == ("busy", "wo-1")


@pytest.mark.parametrize("event", ["task_start", "task_result"])
def test_the_events_of_a_task_have_to_name_it(verbs: Verbs, event: str) -> None:
    with refused(UsageError, event):
        verbs.write("text", event=event)
    assert not day_files(verbs.path, "rio")


def test_events_of_no_task_belong_to_the_system(verbs: Verbs) -> None:
    for event in ("heartbeat", "error", "info"):
        verbs.write("text", event=event)
    assert {each["task_id"] for each in entries_in(verbs.path, "rio")} == {"system"}


def test_only_a_heartbeat_needs_no_text(verbs: Verbs) -> None:
    verbs.write("", event="heartbeat")
    with refused(UsageError, "info without a text"):
        verbs.write("", event="info")
    assert [each["summary"] for each in entries_in(verbs.path, "rio")] == ["Heartbeat"]


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "..", "-a", "a b", "é", "x" * 65, "a\n"])
def test_a_name_that_may_not_become_a_directory_is_refused(verbs: Verbs, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        verbs.write("text", agent=name)
    assert (caught.value.code, caught.value.exit_code) == ("bad_name", 2)
    assert not Path(verbs.path).exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"event": "deployed"},
        {"event": "task_start"},
        {"session": "yesterday"},
        {"session": "2023-11-14_clay_001"},
        {"data": "[]"},
    ],
)
def test_a_call_that_is_refused_touches_nothing(verbs: Verbs, wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        verbs.write("text", **wrong)
    assert not Path(verbs.path).exists()


# --- secrets --------------------------------------------------------------------------------


def test_what_stands_under_the_name_of_a_secret_never_reaches_the_disk(verbs: Verbs) -> None:
    given = {
        "password": "hunter2-a",
        "nested": {"api_key": "hunter2-b", "region": "eu"},
        "calls": [{"apiKey": "hunter2-c", "tokens": 5}],
        "cookies": ["hunter2-d", "hunter2-e"],
    }
    verbs.write("text", data=json.dumps(given))

    for file in Path(verbs.path).rglob("*"):
        assert file.is_dir() or b"hunter2" not in file.read_bytes(), file
    [record] = entries_in(verbs.path, "rio")
    data = record["data"]
    assert list(data) == list(given)
    assert data["nested"]["region"] == "eu"
    assert data["calls"][0]["tokens"] == 5
    assert data["password"].startswith("[SECRET:password:")
    assert data["nested"]["api_key"].startswith("[SECRET:api-key:")


def test_a_header_inside_a_command_and_nested_keys_are_masked_and_keys_stay(verbs: Verbs) -> None:
    data = {
        "password": "hunter2",
        "nested": {"api_key": "k-123", "deep": [{"access_token": "t-456"}]},
        "cmd": "curl -H 'Authorization: Bearer t0k3n' https://example.org",
    }
    verbs.write("call with Authorization: Bearer t0k3n", data=json.dumps(data))
    on_disk = lines_in(verbs.path, "rio")[-1].decode()
    for secret in ("hunter2", "k-123", "t-456", "t0k3n"):
        assert secret not in on_disk
    stored = json.loads(on_disk)["data"]
    assert list(stored) == list(data)
    assert list(stored["nested"]) == ["api_key", "deep"]
    assert stored["cmd"].startswith("curl -H 'Authorization: Bearer [SECRET:authorization:")
    assert stored["cmd"].endswith("]' https://example.org")


@pytest.mark.parametrize("name", ["stdout", "stderr", "output"])
def test_long_output_is_shortened_and_says_how_long_it_was(verbs: Verbs, name: str) -> None:
    text = "".join(f"line {number} of the output\n" for number in range(5000))
    data = {"result": {name: text, "exit_code": 0}, "notes": text}
    stored = verbs.write("ran", data=json.dumps(data)).data["data"]
    assert stored["notes"] == text
    assert stored["result"]["exit_code"] == 0
    short = stored["result"][name]
    assert len(short) < 20_000
    assert f"of {len(text)} characters left out]" in short
    assert short.startswith("line 0 of the output\n")
    assert short.endswith("\nline 4999 of the output\n")
    kept = short.partition("left out]\n")[2]
    assert text.endswith(f"\n{kept}")


def test_long_output_without_lines_keeps_its_beginning(verbs: Verbs) -> None:
    stored = verbs.write("ran", data=json.dumps({"stdout": "x" * 100_000})).data["data"]
    assert stored["stdout"].startswith("xxx")
    assert stored["stdout"].endswith(" of 100000 characters left out]\n")


def test_short_output_stays_as_it_is(verbs: Verbs) -> None:
    data = {"stdout": "x" * 16_000, "stderr": ""}
    assert verbs.write("ran", data=json.dumps(data)).data["data"] == data


def test_the_same_secret_shows_as_the_same_tag_and_another_as_another(verbs: Verbs) -> None:
    for secret in ("one", "one", "two"):
        verbs.write("text", data=json.dumps({"password": secret}))
    first, again, other = (each["data"]["password"] for each in entries_in(verbs.path, "rio"))
    assert first == again != other


def test_secrets_stay_masked_when_the_key_for_their_tags_is_gone(verbs: Verbs) -> None:
    verbs.write("before")
    Path(verbs.path, ".mask-key").unlink(missing_ok=True)
    with suppress(ConfigError):  # to refuse is right as well
        verbs.write("text", data='{"password": "hunter2"}')
    assert b"hunter2" not in b"".join(lines_in(verbs.path, "rio"))


# --- what is said ---------------------------------------------------------------------------


def test_the_answer_in_json_is_the_entry_as_it_was_written(verbs: Verbs) -> None:
    done = verbs.write("text", event="error", data='{"password": "hunter2", "n": 1}')

    [record] = entries_in(verbs.path, "rio")
    assert (done.target, done.applied, done.dry_run) == ("rio#1", True, False)
    assert {name: done.data.get(name) for name in record} == record
    assert done.data["file"] == day_files(verbs.path, "rio")[0].name


def test_the_envelope_of_a_change_has_the_documented_fields(shell: Shell) -> None:
    answer = shell.write("text", "--json").json()
    assert list(answer) == ["schema", "target", "applied", "dry_run", "detail", "data"]
    assert (answer["schema"], answer["target"], answer["applied"]) == (1, "cls#1", True)

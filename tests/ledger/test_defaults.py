"""What an entry says when its writer leaves it out."""

from __future__ import annotations

import json

import pytest

from tests.ledger.shell import PROGRAM, Shell, Verbs, entries_in


def test_source_is_the_user_and_task_the_system(shell: Shell) -> None:
    shell("ledger", "write", "--agent", "cls", "--event", "heartbeat")
    shell.write("hello")
    assert [(each["source"], each["task_id"]) for each in entries_in(shell.home, "cls")] == [
        ("user", "system")
    ] * 2


def session_of(shell: Shell, **env: str) -> str:
    words = ("ledger", "write", "--agent", "cls", "--event", "info", "--json", "x")
    return shell(*words, env=env).json()["data"]["session_id"]


def test_the_session_is_that_of_the_caller_else_the_open_one_else_one_of_the_day(
    shell: Shell,
) -> None:
    ad_hoc = session_of(shell)
    assert ad_hoc.endswith("_cls_001")
    start = shell("session", "start", "--agent", "cls", "--json")
    opened = start.json()["data"]["session_id"]
    assert opened.endswith("_cls_002")
    assert session_of(shell) == opened
    assert session_of(shell, HOLDFAST_SESSION=ad_hoc) == ad_hoc
    assert session_of(shell) in (opened, ad_hoc)
    assert shell("session", "end", "--agent", "cls", "--outcome", "completed").code == 0
    assert session_of(shell) == ad_hoc


def test_after_a_run_an_entry_does_not_go_to_the_session_that_ended(shell: Shell) -> None:
    assert shell("run", "--agent", "cls", "--", "true").code == 0
    (ran,) = {each["session_id"] for each in entries_in(shell.home, "cls")}
    first = session_of(shell)
    assert first != ran
    assert shell("run", "--agent", "cls", "--", "true").code == 0
    assert session_of(shell) == first


def test_a_command_of_a_run_writes_to_its_session(shell: Shell) -> None:
    write = f"{PROGRAM} ledger write --agent cls --event info inside"
    assert shell("run", "--agent", "cls", "--", "sh", "-c", write).code == 0
    found = entries_in(shell.home, "cls")
    assert "inside" in {each["summary"] for each in found}
    assert len({each["session_id"] for each in found}) == 1


@pytest.mark.parametrize(
    ("event", "data", "missing"),
    [
        ("task_start", "{}", "task_type"),
        ("task_start", '{"task_type":"review"}', ""),
        ("task_result", "{}", "status and duration_sec"),
        ("task_result", '{"status":"success"}', "duration_sec"),
        ("task_result", '{"status":"success","duration_sec":0}', ""),
        ("error", '{"stack":"…"}', "error"),
        ("error", '{"error":"Timeout"}', ""),
        ("heartbeat", "{}", ""),
        ("info", "{}", ""),
    ],
)
def test_data_that_readers_look_for_is_asked_for_and_the_event_is_written(
    verbs: Verbs, event: str, data: str, missing: str
) -> None:
    written = verbs.write("text", event=event, task="wo-1", data=data)
    assert written.applied
    assert written.data["data"] == json.loads(data)
    told = [each for each in verbs.warnings if "in its data" in each]
    assert [each.partition(";")[0] for each in told] == (
        [f"{event} without {missing} in its data"] * bool(missing)
    )
    for each in told:
        example = json.loads(each.partition("--data ")[2].strip("'"))
        better = json.dumps({**json.loads(data), **example})
        verbs.write("text", event=event, task="wo-1", data=better)
        assert [again for again in verbs.warnings if "in its data" in again] == []

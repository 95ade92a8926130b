"""The same event again and again: counted for a while, and no count is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, UsageError
from holdfast.testing import Turner, refused
from tests.ledger.shell import Shell, Verbs, entries_in


def say(verbs: Verbs, text: str = "same", **more: Any) -> bool:
    return verbs.write(text, throttle="30s", **more).applied


def told(verbs: Verbs) -> list[tuple[str, str, int | None]]:
    return [
        (each["event"], each["summary"], each["data"].get("repeated"))
        for each in entries_in(verbs.path, "rio")
    ]


def test_what_is_repeated_is_counted_and_the_next_event_brings_the_count(
    verbs: Verbs, clock: Turner
) -> None:
    assert [say(verbs) for _ in range(4)] == [True, False, False, False]
    assert verbs.write("same", throttle="30s").data == {"seq": 1, "repeated": 4}
    clock.advance(5)
    assert say(verbs, "other")
    assert told(verbs) == [
        ("info", "same", None),
        ("info", "4 more of info #1: same", 4),
        ("info", "other", None),
    ]
    assert verbs("ledger verify").exit_code == 0


def test_after_its_time_it_is_written_again_with_what_was_counted(
    verbs: Verbs, clock: Turner
) -> None:
    assert [say(verbs), say(verbs)] == [True, False]
    clock.advance(30)
    assert say(verbs)
    assert told(verbs) == [
        ("info", "same", None),
        ("info", "1 more of info #1: same", 1),
        ("info", "same", None),
    ]


def test_other_agents_tasks_events_texts_and_sessions_are_others(verbs: Verbs) -> None:
    assert say(verbs)
    assert say(verbs, agent="clay")
    assert say(verbs, task="wo-1")
    assert say(verbs, event="error")
    assert say(verbs, "Same")
    assert say(verbs, session="new")
    assert say(verbs, session="new")
    assert not say(verbs)


def test_what_begins_or_ends_a_task_is_never_held_back(verbs: Verbs) -> None:
    for event in ("task_start", "task_result", "task_start"):
        assert say(verbs, event=event, task="wo-1")
    assert verbs.rows("status")[0]["state"] == "busy"


def test_an_error_is_held_back_only_while_it_stands(verbs: Verbs) -> None:
    assert [say(verbs, event="error"), say(verbs, event="error")] == [True, False]
    verbs.write("again", event="task_start", task="wo-1")
    assert say(verbs, event="error")
    assert verbs.rows("status")[0]["state"] == "error"
    assert [each for *_, each in told(verbs)] == [None, None, 1, None]


def test_the_count_changes_no_status(verbs: Verbs) -> None:
    assert [say(verbs, event="error"), say(verbs, event="error")] == [True, False]
    verbs.write("go", event="task_start", task="wo-1")
    assert say(verbs, "news")
    assert verbs.rows("status")[0]["state"] == "busy"


def test_the_settings_can_ask_for_it(verbs: Verbs) -> None:
    verbs.write("first")
    settings = Path(verbs.path, "holdfast.toml")
    before = settings.read_text(encoding="utf-8")
    settings.write_text(before + '\n[ledger]\nthrottle = "1m"\n', encoding="utf-8")
    assert [verbs.write("x").applied, verbs.write("x").applied] == [True, False]
    settings.write_text(before + '\n[ledger]\nthrottle = "soon"\n', encoding="utf-8")
    with refused(ConfigError, "throttle"):
        verbs.write("x")
    with refused(UsageError):
        verbs.write("x", throttle="soon")


@pytest.mark.parametrize("content", ["", "[]", "{bad", '{"x": 1}', '{"x": {"count": "y"}}'])
def test_a_damaged_count_stops_nobody(verbs: Verbs, content: str) -> None:
    assert say(verbs)
    Path(verbs.path, "state/rio/repeats.json").write_text(content, encoding="utf-8")
    assert say(verbs)


def test_no_secret_gets_into_the_counts(verbs: Verbs) -> None:
    text = "curl -H 'Authorization: Bearer t0k3n'"
    assert [say(verbs, text), say(verbs, text)] == [True, False]
    kept = Path(verbs.path, "state/rio/repeats.json").read_text(encoding="utf-8")
    assert "t0k3n" not in kept
    assert next(iter(json.loads(kept).values()))["count"] == 1


def test_every_repetition_of_many_processes_is_counted(shell: Shell) -> None:
    words = ("ledger", "write", "--agent", "cls", "--event", "info", "--throttle", "1h", "same")
    running = [shell.start(*words) for _ in range(8)]
    assert [each.wait() for each in running if each.communicate() is not None] == [0] * 8
    assert shell(*words[:-1], "other").code == 0
    found = entries_in(shell.home, "cls")
    assert [each["data"].get("repeated") for each in found] == [None, 7, None]

"""`status`: who is busy, idle, failing, silent or unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, NotFound
from holdfast.testing import Turner, refused
from tests.ledger.shell import Shell, Verbs, on_its_own, status_on_disk


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    return made


def standing(verbs: Verbs, agent: str = "rio") -> dict[str, Any]:
    [row] = verbs.rows("status", agent=agent)
    return row


def test_a_row_has_the_fields_of_status_json_and_what_they_mean_now(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    clock.advance(30)
    row = standing(verbs)
    assert row == {
        "agent": "rio",
        "state": "busy",
        "last_heartbeat": "2023-11-14T12:00:00+00:00",
        "last_task_id": "wo-1",
        "session_id": "2023-11-14_rio_001",
        "last_error": None,
        "recorded_state": "busy",
        "age": 30,
        "note": row["note"],
    }


def test_an_agent_that_is_silent_too_long_is_offline_and_its_file_stays(
    verbs: Verbs, clock: Turner
) -> None:
    """L21"""
    verbs.write("fine")
    before = Path(verbs.path, "state/rio/status.json").read_bytes()
    clock.advance(300)
    assert standing(verbs)["state"] == "idle"
    clock.advance(300)
    row = standing(verbs)
    assert (row["state"], row["recorded_state"], row["age"]) == ("offline", "idle", 600)
    assert Path(verbs.path, "state/rio/status.json").read_bytes() == before
    verbs.write("", event="heartbeat")
    assert standing(verbs)["state"] == "idle"


def test_an_agent_that_fell_silent_at_work_is_offline_while_busy(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("go", event="task_start", task="wo-9")
    clock.advance(600)
    row = standing(verbs)
    assert (row["state"], row["note"]) == ("offline", "offline while busy on wo-9")
    assert status_on_disk(verbs.path, "rio")["state"] == "busy"


def test_an_agent_in_error_says_why_also_when_it_is_offline(verbs: Verbs, clock: Turner) -> None:
    verbs.write("x", event="error", data='{"error": "disk full"}')
    assert (standing(verbs)["state"], standing(verbs)["note"]) == ("error", "disk full")
    clock.advance(600)
    assert (standing(verbs)["state"], standing(verbs)["note"]) == ("offline", "disk full")


def test_an_agent_never_heard_of_is_unknown_not_offline(verbs: Verbs, clock: Turner) -> None:
    """L21"""
    verbs("init", agent=["rio"])
    clock.advance(1_000_000)
    row = standing(verbs)
    assert (row["state"], row["age"], row["note"]) == ("unknown", None, "no events yet")


def test_an_agent_heard_of_in_the_future_is_flagged(verbs: Verbs, clock: Turner) -> None:
    """L21"""
    verbs.write("go", event="task_start", task="wo-1")
    clock.step(-30)
    assert "future" not in standing(verbs)["note"], "clocks of machines differ a little"
    clock.step(-3600)
    row = standing(verbs)
    assert row["state"] == "busy"
    assert "in the future" in row["note"]
    assert "clock" in row["note"]


def test_the_settings_decide_how_long_silence_is_fine(verbs: Verbs, clock: Turner) -> None:
    settings = Path(verbs.path, "holdfast.toml")
    text = settings.read_text(encoding="utf-8")
    verbs.write("fine")
    clock.advance(3000)
    for value, state in (('"1h"', "idle"), ('"45m"', "offline"), ("3001", "idle")):
        settings.write_text(text.replace('"300s"', value), encoding="utf-8")
        assert standing(verbs)["state"] == state
    settings.write_text(text.replace('"300s"', '"soon"'), encoding="utf-8")
    with refused(ConfigError, "offline_after"):
        verbs("status")


def test_every_agent_has_a_row_and_states_are_counted(verbs: Verbs, clock: Turner) -> None:
    verbs.write("old", agent="silent")
    clock.advance(600)
    verbs("init", agent=["Newcomer"])
    verbs.write("go", agent="worker", event="task_start", task="wo-1")
    verbs.write("x", agent="failing", event="error")

    found = verbs("status")
    assert [(row["agent"], row["state"]) for row in found.rows] == [
        ("failing", "error"),
        ("newcomer", "unknown"),
        ("silent", "offline"),
        ("worker", "busy"),
    ]
    assert found.counts == {"agents": 4, "busy": 1, "error": 1, "offline": 1, "unknown": 1}
    assert found.exit_code == 0


def test_an_unknown_agent_is_not_found_and_those_there_are_are_named(verbs: Verbs) -> None:
    with pytest.raises(NotFound) as caught:
        verbs("status", agent="rio")
    assert "holdfast init" in (caught.value.hint or "")
    verbs.write("text", agent="clay")
    with pytest.raises(NotFound) as caught:
        verbs("status", agent="rio")
    assert "clay" in (caught.value.hint or "")


def test_a_status_edited_by_hand_is_kept_aside_and_does_not_count(verbs: Verbs, path: str) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    file = Path(path, "state/rio/status.json")
    edited = file.read_bytes().replace(b"busy", b"idle")
    file.write_bytes(edited)

    assert standing(verbs)["state"] == "busy"
    verbs.write("still at it", event="heartbeat")
    assert status_on_disk(path, "rio")["state"] == "busy"
    [aside] = file.parent.glob("status.json.edited-*")
    assert aside.read_bytes() == edited


def test_people_see_how_long_ago_in_words_and_no_raw_seconds(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    file = shell.home / "ledger/rio/2023-11-14.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(
        '{"ts":"2023-11-14T12:00:00Z","agent":"rio","event":"task_start","task_id":"wo-9"}\n',
        encoding="utf-8",
    )
    ran = shell("status")
    assert ran.code == 0
    header, line = ran.out.splitlines()
    assert header.split() == ["AGENT", "STATE", "AGE", "SESSION_ID", "LAST_TASK_ID", "NOTE"]
    assert line.split()[:2] == ["rio", "offline"]
    assert line.endswith("offline while busy on wo-9")
    assert line.split()[2].endswith("d"), "an age of years is told in days"

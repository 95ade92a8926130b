"""Lines that somebody else put into a ledger: read, counted, never fatal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Turner
from tests.ledger.shell import Verbs, entries_in, status_on_disk

NOON = "2023-11-14T12:00:00+00:00"


def foreign(verbs: Verbs, *records: dict[str, Any] | bytes) -> Path:
    """Append lines as an old script would, with `echo … >>`."""
    if not Path(verbs.path).exists():
        verbs("init", timezone="UTC")
    file = Path(verbs.path, "ledger/rio/2023-11-14.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as appended:
        for each in records:
            line = each if isinstance(each, bytes) else json.dumps(each).encode()
            appended.write(line + b"\n")
    return file


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "ts": NOON,
        "agent": "rio",
        "session_id": "2023-11-14_rio_004",
        "event": "task_start",
        "task_id": "wo-9",
        "source": "script",
        "summary": "by hand",
        "data": {},
        **changes,
    }


def test_a_line_without_number_and_hash_is_unchained_not_bad(verbs: Verbs) -> None:
    foreign(verbs, entry())
    verbs.write("ours", event="heartbeat")

    found = verbs("ledger verify")
    assert found.exit_code == 0
    assert (found.counts["unchained"], found.counts["bad_lines"]) == (1, 0)
    assert (found.rows[0]["state"], found.rows[0]["detail"]) == ("sound", "1 lines, 1 unchained")


def test_foreign_entries_are_listed_and_count_for_status_and_session(verbs: Verbs) -> None:
    foreign(verbs, entry())
    assert verbs.texts() == ["by hand"]
    row = verbs.rows("status")[0]
    assert (row["state"], row["last_task_id"]) == ("busy", "wo-9")

    assert verbs.write("ours").data["session_id"] == "2023-11-14_rio_004"
    status = status_on_disk(verbs.path, "rio")
    assert (status["state"], status["last_task_id"]) == ("busy", "wo-9")


def test_a_foreign_line_behind_ours_is_seen_at_once_and_sealed_by_the_next(verbs: Verbs) -> None:
    verbs.write("ours")
    file = foreign(verbs, entry(summary="between"))
    assert verbs.texts() == ["ours", "between"]
    verbs.write("ours again", event="heartbeat")
    assert verbs.texts() == ["ours", "between", "ours again"]
    assert verbs("ledger verify").exit_code == 0

    file.write_bytes(file.read_bytes().replace(b"between", b"BETWEEN"))
    assert verbs("ledger verify").exit_code == 6


@pytest.mark.parametrize(
    "stamp", ["$(date +%s)", "2023-11-14T11:00:00", "CLS heartbeat", "", "1700000000", "9e99"]
)
def test_a_stamp_that_cannot_be_read_spoils_neither_status_nor_list(
    verbs: Verbs, stamp: str
) -> None:
    foreign(verbs, entry(ts=stamp))
    verbs.write("ours", agent="clay")
    assert {row["agent"] for row in verbs.rows("status")} == {"rio", "clay"}
    assert "by hand" in verbs.texts()

    verbs.write("ours", event="heartbeat")
    assert status_on_disk(verbs.path, "rio")["last_heartbeat"] == NOON
    assert verbs.rows("status", agent="rio")[0]["state"] == "busy"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"event": "task_start"},
        {"agent": 1, "event": "task_start", "ts": NOON},
        {"agent": "rio", "event": ["task_start"], "ts": NOON},
        {"agent": "rio", "event": "task_start", "ts": 1700000000},
        entry(data=None),
        entry(data=[1]),
        entry(session_id=None),
        entry(session_id=12),
        entry(task_id=None),
        entry(task_id={"a": 1}),
        entry(summary=None, event="error", data={"error": {"deep": 1}}),
        b"not json",
        b"",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"a": NaN}',
    ],
)
def test_odd_lines_stop_no_verb(verbs: Verbs, odd: Any) -> None:
    foreign(verbs, odd)
    verbs.write("ours", event="heartbeat")
    foreign(verbs, odd)

    assert "ours" in verbs.texts()
    assert verbs.rows("status")[0]["last_heartbeat"] == NOON
    verbs("ledger tail")
    verbs("rebuild")
    assert verbs.rows("status")[0]["agent"] == "rio"
    assert verbs("ledger verify").exit_code in (0, 1)


def test_what_another_agent_did_in_this_file_is_not_taken_for_ours(verbs: Verbs) -> None:
    foreign(verbs, entry(agent="clay", session_id="2023-11-14_clay_007"))
    assert verbs.write("ours").data["session_id"] == "2023-11-14_rio_001"
    status = status_on_disk(verbs.path, "rio")
    assert (status["agent"], status["state"], status["last_task_id"]) == ("rio", "idle", None)


def test_a_session_of_another_agent_is_not_carried_on(verbs: Verbs) -> None:
    foreign(verbs, entry(session_id="2023-11-14_clay_007"))
    assert verbs.write("ours").data["session_id"] == "2023-11-14_rio_001"


def test_a_name_in_another_case_is_the_same_agent(verbs: Verbs) -> None:
    foreign(verbs, entry(agent="Rio"))
    assert verbs.rows("status", agent="RIO")[0]["state"] == "busy"


def test_a_foreign_session_with_an_impossible_date_does_not_disturb_ours(verbs: Verbs) -> None:
    foreign(verbs, entry(session_id="9999-99-99_rio_001", event="info"))
    given = [verbs.write("ours", session="new").data["session_id"] for _ in range(2)]
    assert given == ["2023-11-14_rio_001", "2023-11-14_rio_002"]


def test_a_foreign_line_that_names_a_spool_takes_nothing_from_ours(
    verbs: Verbs, clock: Turner
) -> None:
    foreign(verbs, entry(ref="spool#999999"), entry(ref="spool:0123456789abcdef#999999"))
    away = Path(f"{verbs.path}.away")
    Path(verbs.path).rename(away)
    Path(verbs.path).write_text("in the way", encoding="utf-8")
    assert not verbs.write("kept", best_effort=True).applied
    Path(verbs.path).unlink()
    away.rename(verbs.path)
    verbs.write("later")
    assert verbs.texts()[-2:] == ["kept", "later"]


@pytest.mark.parametrize("place", ["ledger/my notes", "ledger/x.d", "state/Ünïcode", "state/a.b"])
def test_a_stray_directory_stops_no_verb(verbs: Verbs, place: str) -> None:
    verbs.write("ours")
    stray = Path(verbs.path, place)
    stray.mkdir(parents=True)
    (stray / "x.txt").write_text("hello", encoding="utf-8")

    assert verbs.texts() == ["ours"]
    assert [row["agent"] for row in verbs.rows("status")] == ["rio"]
    assert verbs("ledger verify").exit_code == 0
    assert len(verbs("ledger tail")) == 1
    assert "rio" in verbs("path", id="rio").data["path"]
    verbs("rebuild")
    assert len(entries_in(verbs.path, "rio")) == 1


def test_damaged_lines_are_left_out_of_a_list_and_that_is_said(verbs: Verbs) -> None:
    verbs.write("one")
    file = next(Path(verbs.path, "ledger/rio").glob("*.jsonl"))
    with file.open("ab") as torn:
        torn.write(b"{ torn\n{ again\n")
    verbs.write("two")
    assert verbs.texts() == ["one", "two"]
    assert any("left out 2 damaged lines" in said for said in verbs.warnings)

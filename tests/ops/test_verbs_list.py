"""`ledger list`: filters, order over agents, limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing import DAY, Turner
from tests.ledger.shell import FIELDS, Shell, Verbs, on_its_own


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="+07:00")
    return made


@pytest.fixture
def busy_days(verbs: Verbs, clock: Turner) -> Verbs:
    """Two agents over three days, an event every six hours, in turn; the last one is now."""
    events = ["task_start", "heartbeat", "task_result", "error", "info"]
    for number in range(12):
        clock.advance(DAY / 4)
        agent = ("rio", "clay")[number % 2]
        verbs.write(
            f"{number}",
            agent=agent,
            event=events[number % 5],
            task=f"wo-{number % 3}",
            session="new" if number in (4, 5) else None,
        )
    return verbs


def numbers(verbs: Verbs, **filters: Any) -> list[int]:
    return [int(text) for text in verbs.texts(**filters)]


def test_all_events_of_all_agents_come_oldest_first(busy_days: Verbs) -> None:
    assert numbers(busy_days) == list(range(12))


def test_a_row_is_the_entry_with_its_number_hash_and_file(busy_days: Verbs) -> None:
    row = busy_days.rows("ledger list", agent="clay")[0]
    assert list(row)[:8] == FIELDS
    assert row["seq"] == 1
    assert row["file"] == f"{row['ts'][:10]}.jsonl"
    assert row["ts"].endswith("+07:00")
    assert len(row["hash"]) == 64


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"agent": "rio"}, [0, 2, 4, 6, 8, 10]),
        ({"agent": "RIO"}, [0, 2, 4, 6, 8, 10]),
        ({"event": "heartbeat"}, [1, 6, 11]),
        ({"task": "wo-2"}, [2, 5, 8, 11]),
        ({"agent": "rio", "event": "heartbeat"}, [6]),
        ({"task": "wo-2", "event": "heartbeat"}, [11]),
        ({"task": "wo-77"}, []),
        ({"since": "1d"}, [7, 8, 9, 10, 11]),
        ({"since": "24h"}, [7, 8, 9, 10, 11]),
        ({"since": "1439m"}, [8, 9, 10, 11]),
        ({"until": "2d"}, [0, 1, 2]),
        ({"since": "2d", "until": "1d"}, [3, 4, 5, 6]),
        ({"since": "2023-11-16"}, [4, 5, 6, 7, 8, 9, 10, 11]),
        ({"until": "2023-11-16"}, [0, 1, 2, 3]),
        ({"since": "2023-11-16T07:00"}, [5, 6, 7, 8, 9, 10, 11]),
        ({"since": "2023-11-16T00:00:00Z"}, [5, 6, 7, 8, 9, 10, 11]),
        ({"since": "2023-11-16T07:00+07:00"}, [5, 6, 7, 8, 9, 10, 11]),
        ({"since": "1d", "until": "2d"}, []),
        ({"since": "1w"}, list(range(12))),
        ({"limit": 3}, [9, 10, 11]),
        ({"limit": 0}, list(range(12))),
        ({"agent": "rio", "limit": 2}, [8, 10]),
        ({"event": "heartbeat", "limit": 1}, [11]),
        ({"until": "2023-11-16", "limit": 2}, [2, 3]),
    ],
)
def test_filters_choose_and_the_newest_of_them_are_shown(
    busy_days: Verbs, filters: dict[str, Any], expected: list[int]
) -> None:
    assert numbers(busy_days, **filters) == expected


def test_a_session_can_be_asked_for(busy_days: Verbs) -> None:
    first = busy_days.rows("ledger list", agent="rio")[0]["session_id"]
    later = busy_days.rows("ledger list", agent="rio")[2]["session_id"]
    assert numbers(busy_days, session=first) == [0, 2]
    assert numbers(busy_days, session=later)[0] == 4


def test_whether_there_is_more_is_said(busy_days: Verbs) -> None:
    assert busy_days("ledger list", limit=11).truncated is True
    assert busy_days("ledger list", limit=12).truncated is False
    assert busy_days("ledger list", limit=0).truncated is False
    assert busy_days("ledger list", agent="rio", limit=6).truncated is False
    assert busy_days("ledger list", agent="rio", limit=5).truncated is True
    assert busy_days("ledger list", limit=5).counts["shown"] == 5


@pytest.mark.parametrize(
    "wrong",
    [
        "yesterday",
        "",
        "2h30m",
        "-2h",
        "2023-13-01",
        "12:00",
        "h",
        "999999w",
        "0001-01-01T00:00+14:00",
        "9999-12-31T23:59-12:00",
    ],
)
def test_what_is_no_time_is_refused_with_examples(busy_days: Verbs, wrong: str) -> None:
    for name in ("since", "until"):
        with pytest.raises(UsageError) as caught:
            busy_days("ledger list", **{name: wrong})
        assert "2h" in (caught.value.hint or "")


def test_a_negative_limit_is_refused(busy_days: Verbs) -> None:
    for verb in ("ledger list", "ledger tail"):
        with pytest.raises(UsageError):
            busy_days(verb, limit=-1)


def test_events_of_one_agent_stay_in_the_order_of_writing_when_the_clock_went_back(
    verbs: Verbs, clock: Turner
) -> None:
    for number in range(3):
        verbs.write(str(number))
    clock.step(-3600)
    for number in range(3, 6):
        verbs.write(str(number))
    verbs.write("6", agent="clay")

    assert [n for n in numbers(verbs) if n < 6] == [0, 1, 2, 3, 4, 5]
    assert numbers(verbs, agent="rio", limit=2) == [4, 5]
    assert [row["seq"] for row in verbs("ledger tail", agent="rio")] == [1, 2, 3, 4, 5, 6]


def test_a_home_without_events_lists_nothing_and_that_is_no_failure(verbs: Verbs) -> None:
    found = verbs("ledger list")
    assert (found.rows, found.truncated, found.exit_code) == ([], False, 0)


def test_people_see_a_table_and_how_many_and_that_there_is_more(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    for number in range(3):
        shell.write(f"text {number}", "--task", "wo-1")
    ran = shell("ledger", "list", "--limit", "2")
    header, *lines = ran.out.splitlines()
    assert header.split() == ["SEQ", "TS", "AGENT", "EVENT", "TASK_ID", "SUMMARY"]
    assert [line.split()[-1] for line in lines] == ["1", "2"]
    assert ran.err == "shown 2\nthere is more\n"


def test_the_envelope_of_a_list_has_the_documented_fields(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("text")
    ran = shell("ledger", "list", "--json")
    assert list(ran.json()) == ["schema", "as_of", "counts", "rows", "truncated", "next"]
    assert ran.err == ""


def test_no_home_is_exit_four_and_says_how_to_make_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for words in (["ledger", "list"], ["status"], ["check"], ["doctor"], ["rebuild"], ["path"]):
        ran = shell(*words)
        assert (ran.code, ran.out) == (4, ""), words
        assert f"no Holdfast home at {shell.home}" in ran.err
        assert "holdfast init" in ran.err
        assert not shell.home.exists()

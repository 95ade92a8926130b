"""What the entries of a ledger say of each other and of their file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.kind import Finding, Origin
from holdfast.contracts.ledger import LedgerWatch
from tests.contracts.strategies import Json, anything

FILE = "home/ledger/rio/2026-11-15.jsonl"


def entry(**changes: Any) -> Json:
    return {
        "ts": "2026-11-15T08:48:46+07:00",
        "agent": "rio",
        "session_id": "2026-11-15_rio_001",
        "event": "info",
        "task_id": "system",
        "source": "cli",
        "summary": "x",
        "data": {},
    } | changes


def watched(*entries: Any, path: str = FILE) -> list[Finding]:
    watch = LedgerWatch(Origin(path))
    found = [
        each for line, value in enumerate(entries, 1) for each in watch.see(line, value, value)
    ]
    return [*found, *watch.end()]


def told(*entries: Any, path: str = FILE) -> list[tuple[str, str, int]]:
    return [(each.code, each.field, each.line) for each in watched(*entries, path=path)]


def at(clock: str, **changes: Any) -> Json:
    return entry(ts=f"2026-11-15T{clock}+07:00", **changes)


def test_a_ledger_that_is_as_it_should_be_says_nothing() -> None:
    assert (
        told(
            at("08:00:00", event="task_start", task_id="a"),
            at("08:00:01", event="heartbeat"),
            at("08:00:02", event="task_result", task_id="a"),
        )
        == []
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("home/ledger/rio/2026-11-15.jsonl", []),
        ("home/ledger/Rio/2026-11-15.jsonl", []),
        ("home/ledger/clay/2026-11-15.jsonl", [("agent_path", "agent", 1)]),
        ("home/ledger/2026-11-15.jsonl", []),
        ("elsewhere/clay/2026-11-15.jsonl", []),
        ("home/ledger/rio/2026-11-16.jsonl", [("date", "ts", 1)]),
        ("home/ledger/rio/2026-11-16.3.jsonl", [("date", "ts", 1)]),
        ("somewhere/else.jsonl", []),
        ("", []),
    ],
)
def test_an_entry_lies_with_its_agent_and_its_day(path: str, expected: list[Any]) -> None:
    assert told(entry(), path=path) == expected


def test_the_days_are_named() -> None:
    (finding,) = watched(entry(), path="home/ledger/rio/2026-11-16.jsonl")
    assert finding.reason == "ts date 2026-11-15 != file date 2026-11-16"


def test_every_entry_of_another_day_is_told() -> None:
    other = "home/ledger/rio/2026-11-16.jsonl"
    assert told(at("08:00:00"), at("08:00:01"), path=other) == [
        ("date", "ts", 1),
        ("date", "ts", 2),
    ]


@pytest.mark.parametrize("session", ["2026-11-15_clay_001", "2026-02-30_rio_001", "whatever"])
def test_a_session_of_somebody_else_is_told(session: str) -> None:
    assert told(entry(session_id=session)) == [("session_agent", "session_id", 1)]


@pytest.mark.parametrize(
    ("first", "second", "back"),
    [
        ("2026-11-15T08:00:01+07:00", "2026-11-15T08:00:00+07:00", True),
        ("2026-11-15T08:00:00+07:00", "2026-11-15T08:00:00+07:00", False),
        ("2026-11-15T08:00:00+07:00", "2026-11-15T00:59:59Z", True),
        ("2026-11-15T08:00:00+07:00", "2026-11-15T01:00:00Z", False),
        ("2026-11-15T08:00:00.5Z", "2026-11-15T08:00:00.25Z", True),
        ("2026-11-15T08:00:00.25Z", "2026-11-15T08:00:00.5Z", False),
        ("2026-11-15T08:00:00Z", "$(date)", False),
        ("$(date)", "2026-11-15T08:00:00Z", False),
    ],
)
def test_time_that_goes_back_is_told_by_instant(first: str, second: str, back: bool) -> None:
    found = told(entry(ts=first), entry(ts=second, summary="y"), path="x.jsonl")
    assert found == ([("time_order", "ts", 2)] if back else [])


def test_an_id_stands_once() -> None:
    entries = [at("08:00:00", ledger_id="a"), at("08:00:01", ledger_id="b")]
    assert told(*entries, at("08:00:02", ledger_id="a")) == [("id", "ledger_id", 3)]
    (finding,) = watched(*entries, at("08:00:02", ledger_id="a"))
    assert "line 1" in finding.reason


def test_the_same_entry_again_is_told_whatever_its_place_in_a_chain() -> None:
    one = entry(seq=1, hash="0" * 64)
    again = dict(reversed(entry(seq=2, hash="1" * 64).items()))
    assert told(one, again, entry(), entry(summary="y")) == [
        ("duplicate", "", 2),
        ("duplicate", "", 3),
    ]


def test_a_task_without_a_result_is_told_where_it_began() -> None:
    assert told(
        at("08:00:00", event="task_start", task_id="a"),
        at("08:00:01", event="task_start", task_id="b"),
        at("08:00:02", event="task_start", task_id="c"),
        at("08:00:03", event="error", task_id="b"),
        at("08:00:04", event="task_result", task_id="a"),
        at("08:00:05", event="task_start", task_id="c"),
    ) == [("orphan", "task_id", 2), ("orphan", "task_id", 6)]


def test_the_result_of_another_agent_ends_no_task() -> None:
    found = told(
        entry(event="task_start", task_id="a"),
        entry(event="task_result", task_id="a", agent="clay", session_id="2026-11-15_clay_001"),
        path="x.jsonl",
    )
    assert found == [("orphan", "task_id", 1)]


@given(st.lists(st.dictionaries(st.sampled_from([*entry(), "seq"]), anything) | anything))
def test_no_value_breaks_the_watch(values: list[Any]) -> None:
    watched(*(each for each in values if isinstance(each, dict)))
    watch = LedgerWatch(Origin(FILE))
    for each in values:
        if not isinstance(each, dict):
            assert watch.see(1, each, each) == []

"""Session ids: one for each session, never the same twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadName
from holdfast.ledger.book import NEW
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import PATIENCE, Shell, Verbs, entries_in


def session(verbs: Verbs, asked: str | None = None, **more: Any) -> str:
    """The session that an event is written to."""
    return verbs.write("text", session=asked, **more).data["session_id"]


def test_the_first_session_of_a_day_is_001_and_its_events_share_it(verbs: Verbs) -> None:
    assert [session(verbs) for _ in range(3)] == ["2023-11-14_rio_001"] * 3


def test_new_begins_the_next_session_and_later_events_belong_to_it(verbs: Verbs) -> None:
    asked = [None, NEW, None, NEW, None]
    assert [session(verbs, each)[-3:] for each in asked] == ["001", "002", "002", "003", "003"]


def test_the_first_session_may_be_asked_for_by_name_or_by_new(verbs: Verbs) -> None:
    assert session(verbs, NEW) == "2023-11-14_rio_001"
    assert session(verbs, "2023-11-14_clay_007", agent="clay") == "2023-11-14_clay_007"
    assert session(verbs, NEW, agent="clay") == "2023-11-14_clay_008"


def test_agents_count_their_sessions_independently(verbs: Verbs) -> None:
    session(verbs, NEW, agent="rio")
    assert session(verbs, NEW, agent="rio") == "2023-11-14_rio_002"
    assert session(verbs, NEW, agent="clay") == "2023-11-14_clay_001"


def test_every_day_begins_with_001(verbs: Verbs, clock: Turner) -> None:
    session(verbs, NEW)
    session(verbs, NEW)
    clock.advance(DAY)
    assert session(verbs) == "2023-11-15_rio_001"


def test_after_999_comes_1000_and_nothing_is_used_again(verbs: Verbs) -> None:
    given = [session(verbs, "2023-11-14_rio_998")]
    given += [session(verbs, NEW) for _ in range(4)]
    assert [each.rpartition("_")[2] for each in given] == ["998", "999", "1000", "1001", "1002"]
    assert session(verbs) == given[-1]


def test_a_session_named_on_purpose_does_not_set_the_count_back(verbs: Verbs) -> None:
    for asked in (None, NEW, NEW, "2023-11-14_rio_001"):
        session(verbs, asked)
    assert session(verbs, NEW) == "2023-11-14_rio_004"


def test_a_session_over_midnight_stays_one_while_its_task_runs(verbs: Verbs, clock: Turner) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    clock.advance(DAY)
    assert session(verbs, event="heartbeat") == "2023-11-14_rio_001"
    assert session(verbs, event="task_result", task="wo-1") == "2023-11-14_rio_001"
    assert session(verbs) == "2023-11-15_rio_001"
    assert [file.name for file in sorted(Path(verbs.path, "ledger/rio").glob("*.jsonl"))] == [
        "2023-11-14.jsonl",
        "2023-11-15.jsonl",
    ]


def test_an_idle_agent_begins_a_new_session_after_midnight(verbs: Verbs, clock: Turner) -> None:
    session(verbs)
    clock.advance(DAY / 2)
    assert session(verbs, event="heartbeat") == "2023-11-15_rio_001"


def test_a_clock_that_was_ahead_for_a_while_makes_no_session_id_twice(
    verbs: Verbs, clock: Turner
) -> None:
    given = [session(verbs, NEW), session(verbs, NEW)]
    clock.step(DAY)
    given += [session(verbs, NEW)]
    clock.step(-DAY)
    given += [session(verbs, NEW), session(verbs, NEW)]
    clock.step(DAY)
    given += [session(verbs, NEW)]
    assert len(set(given)) == len(given), given


def test_twenty_sessions_started_at_once_have_twenty_numbers(shell: Shell) -> None:
    words = ("ledger", "write", "--agent", "cls", "--event", "info", "--session", "new")
    running = [shell.start(*words, f"start {number}") for number in range(20)]
    assert [process.wait(PATIENCE) for process in running] == [0] * 20
    for process in running:
        process.communicate()

    records = entries_in(shell.home, "cls")
    assert {each["summary"] for each in records} == {f"start {number}" for number in range(20)}
    by_day: dict[str, list[str]] = {}
    for each in records:
        day, _, number = each["session_id"].split("_")
        by_day.setdefault(day, []).append(number)
    # One day, unless midnight came in between.
    for numbers in by_day.values():
        assert sorted(numbers) == [f"{number:03d}" for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize(
    "asked",
    [
        "2023-11-14_rio_1",
        "2023-11-14_rio",
        "20231114_rio_001",
        "2023-13-45_rio_001",
        "2023-02-29_rio_001",
        "2023-11-14_rio_001/../x",
        "2023-11-14_RIO_001",
        "news",
    ],
)
def test_what_is_no_session_id_is_refused(verbs: Verbs, asked: str) -> None:
    with refused(BadName):
        session(verbs, asked)
    assert not Path(verbs.path, "ledger").exists()


def test_the_session_of_another_agent_is_refused_with_a_way_out(verbs: Verbs) -> None:
    with pytest.raises(BadName) as caught:
        session(verbs, "2023-11-14_clay_001")
    assert "clay" in caught.value.message
    assert "--session new" in (caught.value.hint or "")


def test_the_session_of_a_wrapper_comes_from_the_environment(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SESSION", "2023-11-13_rio_007")
    assert session(verbs) == "2023-11-13_rio_007"
    assert session(verbs, "2023-11-14_rio_002") == "2023-11-14_rio_002"


@pytest.mark.parametrize(
    "other", ["2023-11-13_clay_007", "2023-11-13_x_rio_y_001", "junk_rio_junk", "_rio_", "1"]
)
def test_a_session_in_the_environment_that_is_not_of_this_agent_is_left_alone(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setenv("HOLDFAST_SESSION", other)
    assert session(verbs) == "2023-11-14_rio_001"

"""In which order agents are woken, and what is counted for them as days go by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents import history
from holdfast.agents.agent import Agent, End, Start
from holdfast.agents.history import RECENT
from holdfast.agents.standing import Moment, health, standing
from holdfast.clock import utc_stamp
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import DAY, Turner
from tests.ledger.shell import Verbs, on_its_own

GONE = this_process()._replace(started=1)


@pytest.fixture
def verbs(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    return Verbs(home.path, home.clock)


def past(home: Home, name: str, outcomes: Sequence[str], **fields: Any) -> None:
    """Sessions of an agent that ended like that."""
    with Agent(home, name) as one:
        for outcome in outcomes:
            begun = one.start(Start("research"))
            one.end("", begun.fence, End(outcome, fields=fields))


def order(verbs: Verbs) -> list[str]:
    return [row["agent"] for row in verbs.rows("agent list", by="health")]


def row_of(verbs: Verbs, agent: str) -> dict[str, Any]:
    [row] = [row for row in verbs.rows("agent list", by="health") if row["agent"] == agent]
    return row


FIVE_OF_SIX = ["completed", "error", "timeout", "error", "error", "error"]


def test_who_fails_most_of_the_time_comes_after_the_healthy_with_the_reason(
    verbs: Verbs, home: Home
) -> None:
    past(home, "bad", FIVE_OF_SIX)
    past(home, "good", ["completed"] * 6)
    verbs("init", agent=["new"])
    assert order(verbs) == ["new", "good", "bad"]
    row = row_of(verbs, "bad")
    assert (row["health"], row["failed"], row["recent"]) == ("failing", 5, 6)
    assert row["reason"] == "5 of its last 6 sessions failed"
    assert row_of(verbs, "new")["reason"] == "no sessions yet"
    assert row_of(verbs, "new")["health"] == "ready"


def test_only_the_newest_sessions_count(verbs: Verbs, home: Home) -> None:
    past(home, "rio", [*FIVE_OF_SIX, *["completed"] * RECENT])
    assert (row_of(verbs, "rio")["health"], row_of(verbs, "rio")["failed"]) == ("ready", 0)


def test_who_is_at_work_comes_last_and_who_is_blocked_before(verbs: Verbs, home: Home) -> None:
    past(home, "bad", FIVE_OF_SIX)
    past(home, "stuck", ["completed"], blocked_by="a key")
    with Agent(home, "busy") as busy:
        busy.start(Start("extract"), owner=this_process())
        past(home, "good", ["completed"])
        assert order(verbs) == ["good", "bad", "stuck", "busy"]
        assert "at work: extract session" in row_of(verbs, "busy")["reason"]
    assert "blocked by a key" in row_of(verbs, "stuck")["reason"]


def test_a_crash_that_nobody_has_put_on_record_counts_as_a_failure(
    verbs: Verbs, home: Home
) -> None:
    past(home, "rio", ["completed"])
    with Agent(home, "rio") as rio:
        dead = rio.start(Start("research"), owner=GONE).id
    row = row_of(verbs, "rio")
    assert (row["health"], row["failed"], row["recent"]) == ("failing", 1, 2)
    assert f"{dead} crashed" in row["reason"]


def test_of_equals_the_one_that_waited_longest_is_first_and_urgent_mail_before_that(
    verbs: Verbs, home: Home, clock: Turner
) -> None:
    for name in ("b", "c", "a"):
        past(home, name, ["completed"])
        clock.advance(60)
    assert order(verbs) == ["b", "c", "a"]
    box = home.mailbox("state/a/inbox")
    box.deliver({"from": "leo", "to": "a", "subject": "now"}, priority="high")
    box.close()
    assert order(verbs) == ["a", "b", "c"]
    assert "1 urgent message" in row_of(verbs, "a")["reason"]


def test_by_name_is_the_same_list_in_another_order(verbs: Verbs, home: Home) -> None:
    past(home, "a", FIVE_OF_SIX)
    past(home, "b", ["completed"])
    by_name = verbs.rows("agent list")
    assert [row["agent"] for row in by_name] == ["a", "b"]
    assert sorted(row["place"] for row in by_name) == [1, 2]


@settings(max_examples=12)
@given(st.lists(st.sampled_from(["completed", "error", "timeout"]), max_size=12))
def test_the_tally_is_that_of_the_newest_sessions(outcomes: list[str]) -> None:
    with TemporaryDirectory() as folder, Home.open(folder, create=True, timezone="UTC") as home:
        past(home, "rio", outcomes)
        moment = Moment(home.clock.now(), home.clock.now(), 300.0, DAY)
        found = health(standing(home, "rio", moment))
    newest = outcomes[-RECENT:]
    assert (found.recent, found.failed) == (len(newest), len(newest) - newest.count("completed"))


# --- agent show -----------------------------------------------------------------------------


def test_show_tells_what_is_counted_and_how_the_agent_stands(verbs: Verbs, home: Home) -> None:
    past(home, "rio", ["completed", "error"], cost_usd=0.5, sources_archived=4)
    shown = verbs("agent show", agent="Rio").data
    assert shown["metrics"]["lifetime"]["sessions_total"] == 2
    assert shown["metrics"]["lifetime"]["sources_archived"] == 8
    assert shown["cost_today_usd"] == 1.0
    assert [each["outcome"] for each in shown["recent"]] == ["completed", "error"]
    assert (shown["agent"], shown["state"], shown["health"]) == ("rio", "error", "failing")
    assert json.dumps(shown)


# --- the last thirty days -------------------------------------------------------------------


def rolling(verbs: Verbs) -> dict[str, Any]:
    return verbs("agent show", agent="rio").data["metrics"]["rolling_30d"]


def test_the_last_thirty_days_are_counted_when_somebody_looks(
    verbs: Verbs, home: Home, clock: Turner
) -> None:
    past(home, "rio", ["completed"], sources_archived=3)
    clock.advance(2 * DAY)
    past(home, "rio", ["completed"], sources_archived=5)
    clock.advance(29 * DAY)
    # Now they are 31 and 29 days old.
    assert (rolling(verbs)["sessions"], rolling(verbs)["sources_archived"]) == (1, 5)
    clock.advance(DAY)
    assert rolling(verbs)["sessions"] == 1
    clock.advance(DAY)
    assert (rolling(verbs)["sessions"], rolling(verbs)["sources_archived"]) == (0, 0)
    assert verbs("agent show", agent="rio").data["metrics"]["lifetime"]["sessions_total"] == 2


# --- what sessions cost ---------------------------------------------------------------------

COSTS = st.none() | st.integers(0, 400).map(lambda cents: cents / 100)


@given(
    st.lists(st.tuples(st.integers(0, 2 * 86400), COSTS, COSTS), max_size=20),
    st.integers(0, 192).map(lambda quarter: quarter * 900),
)
def test_what_was_spent_since_a_moment_is_the_sum_of_what_ended_since(
    told: list[tuple[int, float | None, float | None]], since: int
) -> None:
    """Each session ends with a cost or without; perhaps one is told afterwards."""
    state, first = history.initial("rio"), 1_700_006_400
    expected: list[float | None] = []
    for number, (at, cost, later) in enumerate(sorted(told, key=lambda each: each[0]), 1):
        what = {"ts": utc_stamp(first + at), "session_id": f"2023-11-15_rio_{number:03d}"}
        lines: list[dict[str, Any]] = [{"event": "session_start", "type": "research"}]
        lines.append({"event": "session_end", "outcome": "completed", "cost_usd": cost})
        if later is not None:
            lines.append({"event": "session_set", "cost_usd": later})
        for line in lines:
            said = {name: value for name, value in line.items() if value is not None}
            state = history.fold(state, Line(number, "", {**what, **said}, "", 0, 0))
        if at >= since:
            expected.append(cost if later is None else later)
    known, unknown = history.spent_since(state, first + since)
    assert known == pytest.approx(sum(each for each in expected if each is not None))
    assert unknown == expected.count(None)

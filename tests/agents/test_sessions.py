"""Sessions: one owner, one beginning, one end, whatever dies in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.agent import Agent, End, Start
from holdfast.clock import FakeClock
from holdfast.codec import decode
from holdfast.errors import Busy, LeaseLost
from holdfast.ledger.book import NEW, Event
from holdfast.process import this_process
from holdfast.store.home import Home
from tests.ledger.shell import Shell

DAY = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_795_000_000.0)


@pytest.fixture
def home(tmp_path: Path, clock: FakeClock) -> Iterator[Home]:
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC", clock=clock) as home:
        yield home


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


def events(agent: Agent) -> list[str]:
    return [line.record["event"] for line in agent.lines() if "event" in line.record]


def ledger(agent: Agent) -> list[tuple[str, str]]:
    return [(found.record["event"], found.record["session_id"]) for found in agent.ledger.read()]


def shown(home: Home, key: str) -> dict[str, Any]:
    text = home.document(key).read()
    assert text is not None
    value = decode(text.data)
    assert isinstance(value, dict)
    return value


def test_a_session_from_start_to_end(home: Home, rio: Agent, clock: FakeClock) -> None:
    opened = rio.start(Start("research", timeout=5400, fields={"domain": "finance"}))
    assert opened.id == f"{home.day()}_rio_001"
    session, report = shown(home, "state/rio/session.json"), shown(home, "state/rio/report.json")
    assert (session["status"], session["domain"], session["timeout_seconds"]) == (
        "running",
        "finance",
        5400,
    )
    assert report["status"] == "researching"
    clock.advance(60)
    rio.end("", opened.fence, End("completed", fields={"sources_archived": 8, "summary": "Done"}))
    assert events(rio) == ["session_start", "session_end"]
    session, report = shown(home, "state/rio/session.json"), shown(home, "state/rio/report.json")
    assert (session["status"], session["sources_archived"]) == ("completed", 8)
    assert session["ended_at"] > session["started_at"]
    assert (report["status"], report["summary"]) == ("idle", "Done")
    assert report["last_session"]["outcome"] == "completed"
    lifetime = shown(home, "state/rio/metrics.json")["lifetime"]
    assert (lifetime["sessions_total"], lifetime["sources_archived"]) == (1, 8)
    assert ledger(rio) == [("task_start", opened.id), ("task_result", opened.id)]


def test_a_second_start_is_refused_and_changes_nothing(home: Home, rio: Agent) -> None:
    rio.start(Start("research"), owner=this_process())
    before = {key: home.document(key).read() for key in home.keys("state")}
    with pytest.raises(Busy, match="research session"), Agent(home, "rio") as other:
        other.start(Start("research"))
    assert {key: home.document(key).read() for key in home.keys("state")} == before


def test_two_roles_run_at_once_and_neither_overwrites_the_other(home: Home, rio: Agent) -> None:
    one = rio.start(Start("research"))
    two = rio.start(Start("extract", role="extract"))
    assert one.id != two.id
    assert rio.report()["roles"]["extract"]["status"] == "extracting"
    assert shown(home, "state/rio/session.extract.json")["session_id"] == two.id
    rio.end("", one.fence, End("completed"))
    assert rio.open_session("extract") is not None
    rio.end("extract", two.fence, End("completed"))
    assert rio.metrics()["lifetime"]["sessions_total"] == 2


def test_a_session_whose_owner_is_gone_is_put_on_record_before_the_next(
    home: Home, rio: Agent
) -> None:
    gone = this_process()._replace(started=1)
    dead = rio.start(Start("research", fields={"disconfirmation_target": "x"}), owner=gone)
    with Agent(home, "rio") as next_one:
        opened = next_one.start(Start("research"), owner=this_process())
    assert opened.buried == [dead.id]
    assert events(rio) == ["session_start", "error", "session_end", "session_start"]
    lifetime = rio.metrics()["lifetime"]
    assert (lifetime["sessions_error"], lifetime["sessions_crashed"]) == (1, 1)
    assert lifetime["disconfirmation_attempts"] == 1
    assert [event for event, _ in ledger(rio)] == [
        "task_start",
        "error",
        "task_result",
        "task_start",
    ]
    with pytest.raises(LeaseLost):
        rio.end("", dead.fence, End("completed"))
    assert rio.metrics()["lifetime"]["sessions_total"] == 1


def test_a_crashed_session_of_another_role_is_buried_too(rio: Agent) -> None:
    gone = this_process()._replace(started=1)
    dead = rio.start(Start("extract", role="extract"), owner=gone)
    assert rio.start(Start("research"), owner=this_process()).buried == [dead.id]
    assert rio.bury() == []


def test_a_detached_session_that_outlives_its_time_is_crashed(rio: Agent, clock: FakeClock) -> None:
    dead = rio.start(Start("research", timeout=100))
    assert rio.bury() == []
    clock.advance(200)
    assert rio.bury() == [dead.id]
    assert rio.report()["status"] == "error"


def test_numbers_are_shared_with_the_ledger(home: Home, rio: Agent) -> None:
    first = rio.start(Start("research"))
    rio.end("", first.fence, End("completed"))
    rio.ledger.write(Event("info", "by hand", "user", session=NEW))
    second = rio.start(Start("research"))
    assert [first.id[-3:], second.id[-3:]] == ["001", "003"]


def test_what_the_ledger_was_not_told_is_told_by_the_next_one(home: Home, rio: Agent) -> None:
    opened = rio.start(Start("research"))
    lease = rio._lease("")
    lease.release(
        opened.fence, {"event": "session_end", "session_id": opened.id, "outcome": "completed"}
    )
    assert [event for event, _ in ledger(rio)] == ["task_start"]
    with Agent(home, "rio") as other:
        other.start(Start("extract"))
    assert [event for event, _ in ledger(rio)] == ["task_start", "task_result", "task_start"]


def test_a_start_costs_two_syncs_and_an_end_two_more_for_bill_and_topics(
    home: Home, rio: Agent, monkeypatch: Any
) -> None:
    for _ in range(2):
        opened = rio.start(Start("research"))
        rio.end("", opened.fence, End("completed"))
    syncs: list[int] = []
    real = home.vfs.sync
    monkeypatch.setattr(home.vfs, "sync", lambda fd: (syncs.append(fd), real(fd))[1])
    opened = rio.start(Start("research"))
    assert len(syncs) <= 2
    syncs.clear()
    rio.end("", opened.fence, End("completed"))
    assert len(syncs) <= 4


def test_thirty_days_are_counted_when_somebody_looks(rio: Agent, clock: FakeClock) -> None:
    for pause in (2 * DAY, 29 * DAY):
        opened = rio.start(Start("research"))
        rio.end("", opened.fence, End("completed", fields={"sources_archived": 3}))
        clock.advance(pause)
    assert rio.metrics()["rolling_30d"]["sessions"] == 1
    clock.advance(2 * DAY)
    assert rio.metrics()["rolling_30d"] == {
        "sessions": 0,
        "sources_archived": 0,
        "claims_proposed": 0,
        "acceptance_rate": None,
        "avg_sources_per_session": None,
    }


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["completed", "timeout", "error", "crash"]),
        st.sampled_from(["", "extract"]),
        st.booleans(),
    ),
    max_size=8,
)


@given(ACTS)
@settings(max_examples=25, deadline=None)
def test_counts_add_up_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, str, bool]]
) -> None:
    path = str(tmp_path_factory.mktemp("acts") / "home")
    clock = FakeClock(1_795_000_000.0)
    ids: list[str] = []
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home:
        for outcome, role, reopened in acts:
            with Agent(home, "rio") as rio:
                owner = this_process()._replace(started=1) if outcome == "crash" else None
                opened = rio.start(Start("research", role=role), owner=owner)
                ids.append(opened.id)
                if reopened:
                    rio.report()
                if outcome != "crash":
                    rio.end(role, opened.fence, End(outcome))
            clock.advance(7)
        with Agent(home, "rio") as rio:
            rio.bury()
            lifetime = rio.metrics()["lifetime"]
            lines = [line.record for line in rio.lines()]
    ends = [line["session_id"] for line in lines if line.get("event") == "session_end"]
    assert len(set(ids)) == len(ids)
    assert sorted(ends) == sorted(ids)
    assert (
        lifetime["sessions_total"]
        == len(ids)
        == sum(lifetime[f"sessions_{name}"] for name in ("completed", "timeout", "error"))
    )
    assert lifetime["sessions_crashed"] == sum(outcome == "crash" for outcome, _, _ in acts)


def test_what_an_older_session_of_today_cost_can_be_told_later(shell: Shell) -> None:
    ids = []
    for _ in range(3):
        begun = shell("session", "start", "--agent", "rio", "--json").json()["target"]
        shell("session", "end", "--agent", "rio", "--outcome", "completed")
        ids.append(begun)
    for cost, session in zip(("5", "2", "1"), ids, strict=True):
        shell("session", "set", "--agent", "rio", "--session", session, "--cost", cost)
    shell("session", "set", "--agent", "rio", "--session", ids[0], "--cost", "4")
    row = shell("status", "--json").json()["rows"][0]
    assert (row["cost_today_usd"], row["cost_today_unknown"]) == (7.0, 0)

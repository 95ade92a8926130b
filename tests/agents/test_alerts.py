"""Troubles are told once, and again only after a while."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents.alerts import EVERY, Alerts, Seen
from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, NotFound
from holdfast.store.home import Home
from holdfast.testing import Turner, refused
from tests.ledger.shell import Shell, Verbs

NOW = SystemClock().now()


@pytest.fixture
def verbs(path: str) -> Verbs:
    clock = Turner(NOW)
    Home.open(path, create=True, timezone="UTC", clock=clock).close()
    return Verbs(path, clock)


def busy(verbs: Verbs, agent: str = "rio") -> None:
    verbs("ledger write", agent=agent, event="task_start", task="wo-9", text="Begin")


def told(verbs: Verbs, **more: object) -> list[tuple[str, str]]:
    return [(row["agent"], row["says"]) for row in verbs("alerts check", **more).data["told"]]


def turn(verbs: Verbs, seconds: float) -> None:
    assert isinstance(verbs.clock, Turner)
    verbs.clock.advance(seconds)


def test_an_agent_silent_at_work_is_told_once_in_half_an_hour(verbs: Verbs) -> None:
    busy(verbs)
    assert told(verbs) == []
    turn(verbs, 600)
    assert told(verbs) == [("rio", "offline while busy on wo-9")]
    heard = 0
    for _ in range(58):
        turn(verbs, 60)
        heard += len(told(verbs))
    assert heard == 1
    assert told(verbs, every="1m") == [("rio", "offline while busy on wo-9")]


def test_it_is_silent_and_ends_well_when_there_is_nothing_new(verbs: Verbs) -> None:
    busy(verbs)
    turn(verbs, 600)
    first, second = verbs("alerts check"), verbs("alerts check")
    assert (first.exit_code, first.text) == (1, "rio: offline while busy on wo-9 (alert-1)")
    assert (second.exit_code, second.text) == (0, "")


def test_looking_without_telling_changes_nothing(verbs: Verbs) -> None:
    busy(verbs)
    turn(verbs, 600)
    assert told(verbs, dry_run=True) == [("rio", "offline while busy on wo-9")]
    assert not Path(verbs.path, "alerts").exists()
    assert len(told(verbs)) == 1


def test_who_was_idle_is_told_only_if_asked_for(verbs: Verbs) -> None:
    verbs.write("Hello", event="heartbeat")
    turn(verbs, 600)
    assert told(verbs) == []
    assert told(verbs, idle=True) == [("rio", "not heard of for 10m")]


def test_a_trouble_that_is_over_is_closed_and_one_that_flaps_is_not_told_more_often(
    verbs: Verbs,
) -> None:
    busy(verbs)
    turn(verbs, 600)
    assert len(told(verbs)) == 1
    verbs.write("Alive", event="heartbeat")
    assert told(verbs) == []
    assert verbs.rows("alerts list") == []
    turn(verbs, 600)
    assert told(verbs) == []
    assert [row["id"] for row in verbs.rows("alerts list")] == ["alert-2"]
    turn(verbs, 1260)
    assert len(told(verbs)) == 1


def test_an_acknowledged_one_is_silent_until_it_is_over(verbs: Verbs) -> None:
    busy(verbs)
    turn(verbs, 600)
    told(verbs)
    assert verbs("alerts ack", id="alert-1", by="kim", note="I see").applied
    assert not verbs("alerts ack", id="alert-1").applied
    turn(verbs, 10_000)
    assert told(verbs) == []
    assert [row["acked_by"] for row in verbs.rows("alerts list")] == ["kim"]
    with refused(NotFound):
        verbs("alerts ack", id="alert-7")


def test_a_pause_that_is_no_duration_is_refused(verbs: Verbs) -> None:
    file = Path(verbs.path, "holdfast.toml")
    before = file.read_text("utf-8")
    file.write_text(f'{before}\nalert_every = "5m"\n', "utf-8")
    busy(verbs)
    turn(verbs, 600)
    assert len(told(verbs)) == 1
    turn(verbs, 301)
    assert len(told(verbs)) == 1
    file.write_text(f'{before}\nalert_every = "often"\n', "utf-8")
    with refused(ConfigError, "alert_every"):
        told(verbs)


def test_the_files_are_of_a_kind_and_the_view_can_be_made_again(shell: Shell) -> None:
    report = shell.home / "state/rio/report.json"
    shell("init", "rio")
    report.write_text("")
    assert shell("alerts", "check").code == 1
    shown = shell.home / "state/alerts.json"
    before = shown.read_bytes()
    quiet = shell("alerts", "check")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    shown.unlink()
    assert "state/alerts.json" in shell("rebuild").out
    assert shown.read_bytes() == before
    assert shell("validate", str(shown), str(shell.home / "alerts"), "--strict").code == 0
    assert json.loads(before)["open"]["alert-1"]["agent"] == "rio"


TROUBLES = [Seen(agent, kind, "?") for agent in ("a", "b") for kind in ("x", "y")]
LOOK = st.tuples(st.floats(0, 4000), st.lists(st.sampled_from(TROUBLES), unique=True))


@given(looks=st.lists(LOOK, max_size=12))
def test_nothing_is_told_twice_within_the_pause_and_everything_new_is_open(
    looks: list[tuple[float, list[Seen]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = Turner(NOW)
    path = str(tmp_path_factory.mktemp("home"))
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home, Alerts(home) as alerts:
        last: dict[tuple[str, str], float] = {}
        for pause, seen in looks:
            clock.advance(pause)
            for line in alerts.look(seen):
                topic = line["agent"], line["kind"]
                assert clock.now() - last.get(topic, clock.now() - EVERY) >= EVERY - 0.001
                last[topic] = clock.now()
            open_now = {(each["agent"], each["kind"]) for each in alerts.open()}
            assert open_now == {(each.agent, each.kind) for each in seen}
            assert open_now <= last.keys()

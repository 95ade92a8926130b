"""The status of an agent: what each event makes of it, and what the file shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.clock import local_stamp, zone
from holdfast.ledger.book import Event, Ledger
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import Verbs, is_status, status_on_disk

START = ("task_start", "wo-1", {})
DONE = ("task_result", "wo-1", {"status": "success"})
UNTOLD = ("task_result", "wo-1", {})
FAILED = ("task_result", "wo-1", {"status": "failure", "cause": "timeout"})
ERROR = ("error", "wo-1", {"error": "disk full"})
BARE_ERROR = ("error", None, {})
BEAT = ("heartbeat", None, {})
NOTE = ("info", "wo-7", {})

TRANSITIONS = [
    # events, then state, last_task_id, last_error
    ([BEAT], "idle", None, None),
    ([NOTE], "idle", None, None),
    ([START], "busy", "wo-1", None),
    ([START, BEAT], "busy", "wo-1", None),
    ([START, NOTE], "busy", "wo-1", None),
    ([START, START], "busy", "wo-1", None),
    ([START, DONE], "idle", "wo-1", None),
    ([START, UNTOLD], "idle", "wo-1", None),
    ([START, DONE, BEAT], "idle", "wo-1", None),
    ([START, FAILED], "error", "wo-1", "timeout"),
    ([START, FAILED, BEAT], "error", "wo-1", "timeout"),
    ([START, FAILED, NOTE], "error", "wo-1", "timeout"),
    ([START, FAILED, START], "busy", "wo-1", None),
    ([START, ERROR], "error", "wo-1", "disk full"),
    ([START, ERROR, BEAT, NOTE], "error", "wo-1", "disk full"),
    ([START, ERROR, START], "busy", "wo-1", None),
    ([START, BARE_ERROR], "error", "wo-1", "said so"),
    ([ERROR], "error", "wo-1", "disk full"),
    ([BARE_ERROR], "error", None, "said so"),
    ([DONE], "idle", "wo-1", None),
]


def tell(ledger: Ledger, event: str, task: str | None, data: dict[str, Any]) -> None:
    ledger.write(Event(event, "said so", "test", task, None, data))


@pytest.mark.parametrize(("events", "state", "task", "error"), TRANSITIONS)
def test_each_transition_of_the_status(
    home: Home, events: list[Any], state: str, task: str | None, error: str | None
) -> None:
    with Ledger(home, "rio") as ledger:
        for event in events:
            tell(ledger, *event)
    shown = status_on_disk(home.path, "rio")
    assert (shown["state"], shown["last_task_id"], shown["last_error"]) == (state, task, error)
    assert is_status(shown)


def test_beats_and_notes_while_busy_only_make_the_heartbeat_newer(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    begun = status_on_disk(verbs.path, "rio")
    for event in ("heartbeat", "info"):
        clock.advance(30)
        before = status_on_disk(verbs.path, "rio")
        verbs.write("still there", event=event)
        after = status_on_disk(verbs.path, "rio")
        assert after["last_heartbeat"] > before["last_heartbeat"]
        assert after | {"last_heartbeat": ""} == begun | {"last_heartbeat": ""}
        assert after["state"] == "busy"


def test_the_file_is_written_again_when_it_shows_something_else_and_only_then(
    home: Home, clock: Turner
) -> None:
    file = Path(home.path, "state/rio/status.json")
    with Ledger(home, "rio") as ledger:
        tell(ledger, *NOTE)
        first = file.stat().st_ino
        for _ in range(3):
            clock.advance(0.2)
            tell(ledger, *NOTE)
        assert file.stat().st_ino == first
        tell(ledger, *START)
        assert status_on_disk(home.path, "rio")["state"] == "busy"
        begun = status_on_disk(home.path, "rio")["last_heartbeat"]
        clock.advance(1)
        tell(ledger, *NOTE)
        assert status_on_disk(home.path, "rio")["last_heartbeat"] > begun
        clock.advance(0.2)
        tell(ledger, *NOTE)
        newest = ledger.log.head()
    stamp = home.cell("state/rio/status.json").peek()
    assert stamp is not None
    assert stamp.cursor == newest


def test_the_next_start_clears_the_error_to_null(verbs: Verbs) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    verbs.write("it broke", event="error", task="wo-1", data='{"error":"Timeout after 300s"}')
    assert status_on_disk(verbs.path, "rio")["last_error"] == "Timeout after 300s"
    verbs.write("again", event="task_start", task="wo-2")
    shown = status_on_disk(verbs.path, "rio")
    assert (shown["state"], shown["last_task_id"], shown["last_error"]) == ("busy", "wo-2", None)


def test_status_json_is_the_documented_object_for_people(verbs: Verbs) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    text = Path(verbs.path, "state/rio/status.json").read_text(encoding="utf-8")
    assert text == (
        "{\n"
        '  "agent": "rio",\n'
        '  "state": "busy",\n'
        '  "last_heartbeat": "2023-11-14T12:00:00+00:00",\n'
        '  "last_task_id": "wo-1",\n'
        '  "session_id": "2023-11-14_rio_001",\n'
        '  "last_error": null\n'
        "}\n"
    )


def test_a_clock_that_goes_back_does_not_age_an_agent(verbs: Verbs, clock: Turner) -> None:
    verbs.write("now")
    before = status_on_disk(verbs.path, "rio")["last_heartbeat"]
    clock.step(-3600)
    verbs.write("an hour ago")
    assert status_on_disk(verbs.path, "rio")["last_heartbeat"] == before


@pytest.mark.parametrize("loss", ["file", "stamp", "both", "cut", "garbage"])
def test_a_lost_or_damaged_status_is_folded_again_from_the_ledger(verbs: Verbs, loss: str) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    verbs.write("it broke", event="error", task="wo-1")
    file = Path(verbs.path, "state/rio/status.json")
    stamp = file.with_name(".status.json.view")
    whole = file.read_bytes()
    match loss:
        case "file":
            file.unlink()
        case "stamp":
            stamp.unlink()
        case "both":
            file.unlink()
            stamp.unlink()
        case "cut":
            file.write_bytes(whole[:40])
        case _:
            stamp.write_bytes(b"\0" * 100)

    assert verbs.rows("status")[0]["recorded_state"] == "error"
    verbs.write("still broken", event="heartbeat")
    assert file.read_bytes() == whole


def test_two_agents_have_nothing_to_do_with_each_other(verbs: Verbs) -> None:
    verbs.write("go", agent="rio", event="task_start", task="wo-1")
    verbs.write("it broke", agent="clay", event="error")
    assert status_on_disk(verbs.path, "rio")["state"] == "busy"
    assert status_on_disk(verbs.path, "clay")["state"] == "error"


# --- against a model ------------------------------------------------------------------------

_data = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["success", "failure"]),
        "error": st.text(max_size=5),
        "cause": st.sampled_from(["timeout", "signal"]),
    },
)
_events = st.tuples(
    st.sampled_from(["heartbeat", "task_start", "task_result", "error", "info"]),
    st.sampled_from(["wo-1", "wo-2", "system"]),
    _data,
    st.integers(-100, 100),
)


def simply(events: list[Any], begun: float) -> dict[str, Any]:
    """What the status should be, worked out from the last event of each kind that matters."""
    telling = [each for each in events if each[0] in ("task_start", "task_result", "error")]
    named = [each[1] for each in telling if each[1] != "system"]
    moments = [begun + sum(each[3] for each in events[: n + 1]) for n in range(len(events))]
    state, error = "idle", None
    if telling:
        event, _, data, _ = telling[-1]
        bad = event == "error" or (event == "task_result" and data.get("status") == "failure")
        state = "error" if bad else "busy" if event == "task_start" else "idle"
        error = (data.get("error") or data.get("cause") or "said so") if bad else None
    return {
        "agent": "rio",
        "state": state,
        "last_heartbeat": local_stamp(max(moments), zone("UTC")),
        "last_task_id": named[-1] if named else None,
        "session_id": "2023-11-14_rio_001",
        "last_error": error,
    }


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[str]]:
    root = tmp_path_factory.mktemp("model")
    yield (str(root / str(number)) for number in range(1_000_000))


@settings(max_examples=40)
@given(events=st.lists(_events, min_size=1, max_size=8))
def test_the_status_is_what_a_simple_model_says(places: Iterator[str], events: list[Any]) -> None:
    clock = Turner()
    begun = clock.now()
    path = next(places)
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home:
        with Ledger(home, "rio") as ledger:
            for event, task, data, seconds in events:
                clock.step(seconds)
                tell(ledger, event, task, data)
        assert status_on_disk(path, "rio") == simply(events, begun)
        with Ledger(home, "rio") as again:
            again.rebuild()
        assert status_on_disk(path, "rio") == simply(events, begun)

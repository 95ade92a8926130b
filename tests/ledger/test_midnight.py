"""Days and zones: an event lies in the file of its own date, whatever clocks do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import DAY, Turner
from tests.ledger.shell import Shell, Verbs, day_files, entries_in, split

AT_MIDNIGHT = {
    # zone of the home: the last tenth of a second of a day there
    "UTC": "2023-11-14T23:59:59.9+00:00",
    "+07:00": "2023-11-14T23:59:59.9+07:00",
    "-09:30": "2023-11-14T23:59:59.9-09:30",
    "Europe/Berlin": "2023-11-14T23:59:59.9+01:00",
}


def at(clock: Turner, moment: str) -> None:
    clock.step(datetime.fromisoformat(moment).timestamp() - clock.now())


def by_file(home: str | Path, agent: str = "rio") -> dict[str, list[str]]:
    """The stamps in each day file."""
    return {
        file.name: [json.loads(line)["ts"] for line in split(file.read_bytes())]
        for file in day_files(home, agent)
    }


def audit(home: str) -> list[dict[str, Any]]:
    files = sorted(Path(home, "audit").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in split(file.read_bytes())]


@pytest.fixture
def lived(clock: Turner, path: str) -> Callable[[str], Verbs]:
    """A home in a zone."""

    def make(zone: str) -> Verbs:
        verbs = Verbs(path, clock)
        verbs("init", timezone=zone)
        return verbs

    return make


@pytest.mark.parametrize("zone", AT_MIDNIGHT)
def test_events_on_both_sides_of_midnight_go_to_their_own_days(
    lived: Callable[[str], Verbs], clock: Turner, zone: str
) -> None:
    verbs = lived(zone)
    at(clock, AT_MIDNIGHT[zone])
    verbs.write("before")
    clock.advance(0.2)
    verbs.write("after")

    offset = AT_MIDNIGHT[zone][-6:]
    assert by_file(verbs.path) == {
        "2023-11-14.jsonl": [f"2023-11-14T23:59:59{offset}"],
        "2023-11-15.jsonl": [f"2023-11-15T00:00:00{offset}"],
    }
    assert verbs("ledger verify").exit_code == 0


def test_the_zone_of_the_machine_changes_nothing_once_the_home_is_made(
    lived: Callable[[str], Verbs], clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = lived("+07:00")
    at(clock, "2023-11-14T23:30:00+07:00")
    for zone in ("UTC", "Pacific/Kiritimati", "Etc/GMT+12", "nonsense", ""):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            verbs.write(zone or "no zone")
    time.tzset()
    assert by_file(verbs.path) == {"2023-11-14.jsonl": ["2023-11-14T23:30:00+07:00"] * 5}


def test_two_processes_in_two_zones_agree_on_the_day(shell: Shell) -> None:
    words = ("ledger", "write", "--agent", "cls", "--event", "info")
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12", "America/New_York"):
        assert shell(*words, zone, env={"TZ": zone}).code == 0
    stamps = by_file(shell.home, "cls")
    assert all(ts[:10] == name[:10] for name, found in stamps.items() for ts in found)
    # The one who made the home decided.
    assert {ts[19:] for found in stamps.values() for ts in found} == {"+14:00"}


def test_a_clock_that_goes_back_over_midnight_writes_on_in_the_newest_day(
    lived: Callable[[str], Verbs], clock: Turner
) -> None:
    verbs = lived("UTC")
    verbs.write("today")
    clock.step(-DAY)
    for text in ("yesterday", "yesterday again"):
        verbs.write(text)
    clock.step(2 * DAY)
    verbs.write("tomorrow")

    assert by_file(verbs.path) == {
        "2023-11-14.jsonl": [
            "2023-11-14T12:00:00+00:00",
            "2023-11-13T12:00:00+00:00",
            "2023-11-13T12:00:00+00:00",
        ],
        "2023-11-15.jsonl": ["2023-11-15T12:00:00+00:00"],
    }
    assert verbs("ledger verify").exit_code == 0


def test_a_clock_that_goes_back_is_one_event_for_the_audit_however_many_are_written(
    lived: Callable[[str], Verbs], clock: Turner
) -> None:
    verbs = lived("UTC")
    verbs.write("today")
    assert audit(verbs.path) == []
    clock.step(-DAY)
    for number in range(5):  # each call opens the home anew
        verbs.write(f"yesterday {number}")

    [told] = audit(verbs.path)
    assert told["event"] == "clock_went_back"
    assert all(word in told["detail"] for word in ("ledger/rio", "2023-11-13", "2023-11-14"))


def test_a_clock_that_goes_back_within_a_day_is_no_event_for_the_audit(
    lived: Callable[[str], Verbs], clock: Turner
) -> None:
    verbs = lived("UTC")
    verbs.write("noon")
    clock.step(-3600)
    verbs.write("eleven")
    assert audit(verbs.path) == []
    assert [each["summary"] for each in entries_in(verbs.path, "rio")] == ["noon", "eleven"]


@pytest.mark.parametrize(
    ("begin", "day_of_change", "offsets"),
    [
        ("2023-10-28T20:00:00+02:00", "2023-10-29", ["+02:00", "+01:00"]),
        ("2023-03-25T20:00:00+01:00", "2023-03-26", ["+01:00", "+02:00"]),
    ],
    ids=["back to winter", "forth to summer"],
)
def test_the_change_of_the_clocks_in_berlin_mixes_up_neither_days_nor_order(
    lived: Callable[[str], Verbs],
    clock: Turner,
    begin: str,
    day_of_change: str,
    offsets: list[str],
) -> None:
    verbs = lived("Europe/Berlin")
    at(clock, begin)
    for number in range(24):
        verbs.write(str(number))
        clock.advance(1800)

    stamps = by_file(verbs.path)
    assert list(stamps)[1] == f"{day_of_change}.jsonl"
    assert all(ts[:10] == name[:10] for name, found in stamps.items() for ts in found)
    flat = [ts for found in stamps.values() for ts in found]
    moments = [datetime.fromisoformat(ts).timestamp() for ts in flat]
    assert [later - sooner for sooner, later in pairwise(moments)] == [1800.0] * 23
    assert list(dict.fromkeys(ts[19:] for ts in flat)) == offsets
    assert verbs.texts() == [str(number) for number in range(24)]
    assert audit(verbs.path) == []


def test_the_hour_that_comes_twice_can_be_asked_for_either_way(
    lived: Callable[[str], Verbs], clock: Turner
) -> None:
    verbs = lived("Europe/Berlin")
    for moment in ("2023-10-29T02:30:00+02:00", "2023-10-29T02:30:00+01:00"):
        at(clock, moment)
        verbs.write(moment)
    assert verbs.texts(since="2023-10-29T02:30:00+01:00") == ["2023-10-29T02:30:00+01:00"]
    assert verbs.texts(until="2023-10-29T02:30:00+01:00") == ["2023-10-29T02:30:00+02:00"]

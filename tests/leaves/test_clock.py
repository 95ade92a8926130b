"""Time comes from one place, and stamps name the instant they were made from."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import FakeClock, SystemClock, instant_of, local_stamp, utc_stamp, zone
from holdfast.errors import ConfigError

INSTANTS = st.integers(0, 4_102_444_800)


def test_the_system_clock_is_the_one_of_the_machine() -> None:
    clock = SystemClock()
    before = time.time()
    assert before <= clock.now() <= before + 60
    start = clock.boottime()
    clock.sleep(0.001)
    assert clock.boottime() >= start + 0.001


def test_a_fake_clock_moves_only_when_it_is_told_to() -> None:
    clock = FakeClock(100.0)
    assert (clock.now(), clock.now()) == (100.0, 100.0)
    boot = clock.boottime()
    clock.sleep(1.5)
    clock.advance(0.5)
    assert (clock.now(), clock.boottime()) == (102.0, boot + 2.0)


def test_stepping_the_wall_clock_leaves_the_boot_time_alone() -> None:
    clock = FakeClock(100.0)
    boot = clock.boottime()
    clock.step(-50.0)
    assert (clock.now(), clock.boottime()) == (50.0, boot)


@given(INSTANTS)
def test_a_stamp_names_its_instant(instant: int) -> None:
    assert instant_of(utc_stamp(instant + 0.9)) == instant
    for name in ("UTC", "+07:00", "-03:30", "Europe/Berlin"):
        stamp = local_stamp(instant + 0.9, zone(name))
        assert instant_of(stamp) == instant
        assert len(stamp) == len("2026-11-15T08:48:46+07:00")


def test_stamps_have_the_two_written_forms() -> None:
    instant = datetime(2026, 11, 15, 1, 48, 46, tzinfo=UTC).timestamp()
    assert utc_stamp(instant) == "2026-11-15T01:48:46Z"
    assert local_stamp(instant, zone("+07:00")) == "2026-11-15T08:48:46+07:00"
    assert local_stamp(instant, zone("UTC")) == "2026-11-15T01:48:46+00:00"


def test_a_named_zone_knows_its_summer() -> None:
    berlin = zone("Europe/Berlin")
    winter = datetime(2026, 1, 15, tzinfo=UTC).timestamp()
    summer = datetime(2026, 7, 15, tzinfo=UTC).timestamp()
    assert local_stamp(winter, berlin).endswith("+01:00")
    assert local_stamp(summer, berlin).endswith("+02:00")


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("+00:00", timedelta(0)),
        ("+14:00", timedelta(hours=14)),
        ("-23:59", -timedelta(hours=23, minutes=59)),
    ],
)
def test_an_offset_is_a_zone(name: str, offset: timedelta) -> None:
    assert zone(name) == timezone(offset)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "+24:00",
        "+99:99",
        "+07:60",
        "+7:00",
        "+0700",
        "+07:00\n",
        "+٠٧:٠٠",
        "utc+1",
        "America",
        "Nowhere/Land",
        "../../etc/passwd",
        "/etc/localtime",
        "a\0b",
        "x" * 5000,
        "\udcff",
    ],
)
def test_an_unknown_zone_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        zone(name)
    assert "Europe/Berlin" in (caught.value.hint or "")


@pytest.mark.parametrize("stamp", ["2026-11-15T08:48:46", "2026-11-15", "yesterday", ""])
def test_a_stamp_without_an_offset_names_no_instant(stamp: str) -> None:
    with pytest.raises(ValueError, match=r"offset|isoformat"):
        instant_of(stamp)

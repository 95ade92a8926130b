"""The only source of time, and the only place where instants become text.

Order never comes from here (logs order by sequence); this is for people, for day files and
for deadlines.  Deadlines use `boottime`, which neither steps with the wall clock nor stops
while the machine sleeps.
"""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Protocol

from holdfast.errors import ConfigError

FAR = 6e10
"""Seconds from 1970 that are no time of people: milliseconds, or an error."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, as the wall clock has it."""
        ...

    def boottime(self) -> float:
        """Seconds since this machine booted; never steps."""
        ...

    def boot(self) -> str:
        """Which boot of the machine this is."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; with 0 only let other threads that are ready run first."""
        ...


class SystemClock:
    now = staticmethod(time.time)

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot(self) -> str:
        return _boot_id()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
        else:
            os.sched_yield()


@lru_cache(maxsize=1)
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class FakeClock:
    """A clock that moves only when told to; sleeping moves it."""

    def __init__(
        self, now: float = 1_700_000_000.0, *, boottime: float = 1_000.0, name: str = "boot"
    ) -> None:
        self._now, self._boot, self._name = now, boottime, name
        self._boots = 1

    def now(self) -> float:
        return self._now

    def boottime(self) -> float:
        return self._boot

    def boot(self) -> str:
        return f"{self._name} {self._boots}"

    def reboot(self) -> None:
        self._boots += 1

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._boot += seconds

    def step(self, seconds: float) -> None:
        """Move the wall clock only, as an administrator or NTP does."""
        self._now += seconds


_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-5][0-9])")


def zone(name: str) -> tzinfo:
    """The zone called `name`: `UTC`, a fixed offset such as `+07:00`, or an IANA name."""
    if name == "UTC":
        return UTC
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        if offset < timedelta(hours=24):
            return timezone(offset if sign == "+" else -offset)
    else:
        # Loading the zone database costs milliseconds that a fixed offset need not pay.
        from zoneinfo import ZoneInfo  # noqa: PLC0415

        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    raise ConfigError(
        f"unknown time zone {name!r}",
        hint="use UTC, an offset such as +07:00, or a name such as Europe/Berlin",
    )


def local_stamp(instant: float, where: tzinfo) -> str:
    """`2026-11-15T08:48:46+07:00`: whole seconds and the offset of the home's zone."""
    return datetime.fromtimestamp(int(instant), where).isoformat()


def utc_stamp(instant: float) -> str:
    """`2026-11-15T08:48:46Z`."""
    return _utc_second(int(instant))


@lru_cache(maxsize=8)
def _utc_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant_of(stamp: str) -> float:
    """The instant that a stamp of ours names; ValueError for one without an offset."""
    moment = datetime.fromisoformat(stamp)
    if moment.tzinfo is None:
        raise ValueError("no UTC offset")
    return moment.timestamp()


def instant(stamp: object) -> float | None:
    """Seconds since the epoch of a number, a stamp or a date; None of what is no time of people."""
    if isinstance(stamp, str):
        try:
            stamp = instant_of(stamp if len(stamp) > 10 else f"{stamp}T00:00:00Z")
        except ValueError:
            return None
    if isinstance(stamp, bool) or not isinstance(stamp, int | float) or not abs(stamp) < FAR:
        return None
    return float(stamp)

"""What victims do to a home: the roles that a `Nursery` forks.

`writer` works on its own as fast as it can and reports every acknowledgement; `puppet` does
one thing after another as it is told.  Both run the public interface of the store, from the
tree that their nursery was started with.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

from holdfast.clock import SystemClock
from holdfast.errors import Busy, Conflict, HoldfastError
from holdfast.store import failpoints
from holdfast.store import vfs as files
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.store.view import Shape

SHARED = "state/all/journal.jsonl"
DAYS = "ledger/all"
COUNT = "state/all/count.json"
VIEWS = {SHARED: "state/all/report.json", DAYS: "state/all/days.json"}
LEASE = "state/all/turn"
ROTATE_AT = 48 << 10

ACK = struct.Struct("<BIqdd")
"""Kind, number of the attempt in this life, what the store answered, begin and end."""
KINDS = ("shared", "own", "days", "count", "lease", "freed")

FIRST_DAY = 1_800_000_000
_today = mmap.mmap(-1, 8)
"""Shared by all victims of a nursery: on which day they live."""


def own_log(me: int) -> str:
    return f"ledger/w{me}"


class Calendar(SystemClock):
    """A clock whose days pass when a victim says so."""

    def __init__(self, day: int | None = None) -> None:
        self.day = day

    def now(self) -> float:
        day = self.day if self.day is not None else struct.unpack("<q", _today[:])[0]
        return FIRST_DAY + 86_400.0 * day


def next_day(least: int = 0) -> None:
    day = struct.unpack("<q", _today[:])[0] + 1
    _today[:] = struct.pack("<q", max(day, least))


def newest_day(home: Path) -> int:
    """The day, by a Calendar, of the newest file in the log by days."""
    newest = max((home / DAYS).glob("*.jsonl"), default=None)
    if newest is None:
        return 0
    first = datetime.fromtimestamp(FIRST_DAY, UTC).date()
    return (date.fromisoformat(newest.name[:10]) - first).days


def tally() -> Shape[dict[str, Any]]:
    """A view that counts the lines of each writer."""

    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        who = str(line.record.get("id", "?")).partition(".")[0]
        state["by"][who] = state["by"].get(who, 0) + 1
        state["lines"] += 1
        return state

    return Shape(
        version=1,
        initial=lambda: {"lines": 0, "by": {}},
        fold=fold,
        render=lambda state: json.dumps(state, sort_keys=True).encode() + b"\n",
    )


# --- faults that a victim carries in itself -------------------------------------------------


class HalfVfs(files.RealVfs):
    """Writes a part of the `nth` write and is killed over it."""

    def __init__(self, nth: int, part: float) -> None:
        self._left, self._part = nth, part

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        self._left -= 1
        if self._left == 0:
            # 1.0 leaves out the last byte alone: a line that lacks only its end.
            os.write(fd, data[: min(int(len(data) * self._part), len(data) - 1)])
            os.kill(os.getpid(), signal.SIGKILL)
        return os.write(fd, data)


def sabotage(how: str) -> None:
    """Break the protocol in this process, for the controls."""
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    if "nolock" in how:
        files.RealVfs.try_lock = lambda *_: True
        files.RealVfs.unlock = nothing
    if "nosync" in how:
        files.RealVfs.sync = staticmethod(nothing)
    if "nosync" in how or "nodirsync" in how:
        files.RealDir.sync = nothing
    if "leak" in how:
        files.RealDir.close = nothing


# --- the writer -----------------------------------------------------------------------------


class _Writer:
    def __init__(
        self,
        channel: socket.socket,
        home: Home,
        me: int,
        life: int,
        rng: Random,
        rotate_at: int = ROTATE_AT,
    ) -> None:
        self._channel, self._home, self._rng = channel, home, rng
        self._me, self._life, self._n = me, life, 0
        self._shared = home.log(SHARED, rotate_at=rotate_at)
        self._days = home.log(DAYS)
        self._own = home.log(own_log(me))
        self._count = home.document(COUNT)
        self._view = home.view(VIEWS[SHARED], self._shared, tally())
        self.ack_first = False

    def _record(self) -> dict[str, Any]:
        self._n += 1
        record: dict[str, Any] = {"id": f"{self._me}.{self._life}.{self._n}"}
        if self._rng.random() < 0.3:
            # Now and then a line over several pages, which a fault can tear apart.
            record["pad"] = "ü€" * self._rng.randrange(3000 if self._rng.random() < 0.1 else 200)
        return record

    def _ack(self, kind: str, value: int, began: float) -> None:
        number = KINDS.index(kind)
        self._channel.send(ACK.pack(number, self._n, value, began, time.monotonic()))

    def _append(self, log: Any, kind: str) -> None:
        record, began = self._record(), time.monotonic()
        if self.ack_first:
            self._ack(kind, -1, began)
            log.append(record)
            return
        self._ack(kind, log.append(record).seq, began)

    def shared(self) -> None:
        self._append(self._shared, "shared")

    def own(self) -> None:
        if self._rng.random() < 0.02:
            next_day()
        self._append(self._own, "own")

    def days(self) -> None:
        if self._rng.random() < 0.2:
            next_day()
        self._append(self._days, "days")

    def batch(self) -> None:
        first = self._n + 1
        records, began = [self._record() for _ in range(3)], time.monotonic()
        cursors = self._shared.append_all(records)
        for number, cursor in enumerate(cursors, first):
            self._n = number
            self._ack("shared", cursor.seq, began)

    def transact(self) -> None:
        record, began = self._record(), time.monotonic()

        def decide(head: Any) -> Any:
            return [record | {"after": head.seq}], None

        self._ack("shared", self._shared.write(decide).lines[0].seq, began)

    def count(self) -> None:
        """Take the next number from a counter, by update or by compare-and-swap."""
        began, taken = time.monotonic(), 0
        self._n += 1
        pad = "x" * self._rng.randrange(6000)

        def change(old: bytes | None) -> bytes:
            nonlocal taken
            taken = (json.loads(old)["count"] if old else 0) + 1
            return json.dumps({"count": taken, "by": self._me, "pad": pad}).encode()

        if self._rng.random() < 0.5:
            self._count.update(change)
        else:
            old = self._count.read()
            try:
                new = change(old.data if old else None)
                self._count.replace(new, expected=old.revision if old else "")
            except Conflict:
                self._n -= 1  # nobody hears of it
                return
        self._ack("count", taken, began)

    def view(self) -> None:
        if self._rng.random() < 0.2:
            self._view.close()
            self._view = self._home.view(VIEWS[SHARED], self._shared, tally())
        self._view.refresh()

    def lease(self) -> None:
        lease, began = self._home.lease(LEASE), time.monotonic()
        self._n += 1
        try:
            fence = lease.acquire(f"life {self._life}", patience=0.02)
        except Busy:
            self._n -= 1  # nobody hears of it
            return
        self._ack("lease", fence, began)
        if self._rng.random() < 0.3:
            self.shared()
        self._ack("freed", fence, time.monotonic())
        lease.close()


def writer(
    channel: socket.socket,
    *,
    home: str,
    me: int,
    life: int,
    seed: int,
    mix: dict[str, int],
    day: int = 0,
    arm: str = "",
    half: tuple[int, float] | None = None,
    broken: str = "",
    rotate_at: int = ROTATE_AT,
    pause: float = 0.0,
) -> None:
    """Do what `mix` says, weighted, until the end; with `pause` seconds in between."""
    sabotage(broken)
    failpoints.arm_from(arm)
    if day:
        next_day(day)
    rng = Random(seed)
    vfs = HalfVfs(*half) if half else None
    opened = Home.open(home, clock=Calendar(), vfs=vfs)
    hand = _Writer(channel, opened, me, life, rng, rotate_at)
    hand.ack_first = "ackfirst" in broken
    acts = [getattr(hand, name) for name in mix]
    weights = list(mix.values())
    while True:
        for act in rng.choices(acts, weights, k=64):
            act()
            if pause:
                time.sleep(pause)


# --- the puppet -----------------------------------------------------------------------------


class _Puppet:
    """Everything one process holds of a home, and one method for each command."""

    def __init__(self, home: str) -> None:
        self._clock = Calendar(0)
        self._home = Home.open(home, clock=self._clock)
        self._logs: dict[str, Any] = {}
        self._view: Any = None
        self._leases: list[Any] = []

    def _log(self, key: str) -> Any:
        if key not in self._logs:
            self._logs[key] = self._home.log(key, rotate_at=ROTATE_AT)
        return self._logs[key]

    def append(self, log: str, record: dict[str, Any], day: int) -> int:
        self._clock.day = day
        return self._log(log).append(record).seq

    def replace(self, key: str, text: str) -> str:
        return self._home.document(key).replace(text.encode())

    def count(self, key: str) -> int:
        taken = 0

        def change(old: bytes | None) -> bytes:
            nonlocal taken
            taken = (json.loads(old)["count"] if old else 0) + 1
            return json.dumps({"count": taken}).encode()

        self._home.document(key).update(change)
        return taken

    def refresh(self, log: str, key: str) -> int:
        """Stamp a view with what can be seen now; without the pause between two refreshes."""
        view = self._home.view(key, self._log(log), tally())
        view.refresh()
        view.close()
        return 0

    def settle(self, log: str) -> int:
        return self._log(log).settle().seq

    def lease(self, key: str) -> int:
        held = self._home.lease(key)
        self._leases.append(held)
        return held.acquire("puppet")

    def free(self) -> int:
        while self._leases:
            self._leases.pop().close()
        return 0

    def make(self, path: str) -> int:
        Home.open(path, create=True, timezone="UTC").close()
        return 0

    def arm(self, text: str) -> int:
        failpoints.arm_from(text)
        return 0

    def fsync(self, path: str) -> int:
        """Something else on the same file system that makes its journal commit."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, b"unrelated\n")
        os.fsync(fd)
        os.close(fd)
        return 0


def puppet(channel: socket.socket, *, home: str, broken: str = "") -> None:
    """Do one command after another."""
    sabotage(broken)
    hand = _Puppet(home)
    while order := channel.recv(1 << 16):
        command = json.loads(order)
        began = time.monotonic()
        try:
            value = getattr(hand, command.pop("do"))(**command)
            answer = {"value": value, "began": began, "ended": time.monotonic()}
        except HoldfastError as error:
            answer = {"error": type(error).__name__, "says": str(error)}
        channel.send(json.dumps(answer).encode())

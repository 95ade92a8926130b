"""Processes that want one lease: the roles of `twodaemons`.

A contender does one thing after another as it is told, with a clock whose wall time the
harness steps.  For the controls there is a lease of the kinds that fail: a file with a number
of a process in it, and one that ends at an hour of the wall clock.
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import socket
import struct
import time
from pathlib import Path
from typing import Any, Protocol

from holdfast.clock import SystemClock
from holdfast.errors import Busy, HoldfastError
from holdfast.store.home import Home

KEY = "daemon/lead"
_TERM = 30.0
_offset = mmap.mmap(-1, 8)
"""Shared by all contenders of a nursery: by how much the wall clock is wrong."""


class SteppedClock(SystemClock):
    def now(self) -> float:
        return time.time() + struct.unpack("<d", _offset[:])[0]


class AnyLease(Protocol):
    def acquire(self, purpose: str, *, patience: float = 0.0) -> int: ...
    def release(self) -> None: ...


class PidFile:
    """What many daemons do: whoever's number is in the file and lives, leads."""

    def __init__(self, home: str) -> None:
        self._path = Path(home, "daemon.pid")

    def acquire(self, purpose: str, *, patience: float = 0.0) -> int:
        deadline = time.monotonic() + patience
        while (owner := self.owner()) is not None:
            if time.monotonic() >= deadline:
                raise Busy(f"held by process {owner}")
            time.sleep(0.01)
        self._path.write_text(str(os.getpid()), encoding="ascii")
        return time.monotonic_ns()

    def owner(self) -> int | None:
        try:
            pid = int(self._path.read_text(encoding="ascii") or "0")
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid or None

    def release(self) -> None:
        self._path.unlink(missing_ok=True)


class Expiring:
    """A lease until an hour of the wall clock; right as long as nobody sets the clock."""

    def __init__(self, home: str, clock: SteppedClock) -> None:
        self._path, self._clock = Path(home, "lead.until"), clock

    def acquire(self, purpose: str, *, patience: float = 0.0) -> int:
        deadline = time.monotonic() + patience
        while self._until() > self._clock.now():
            if time.monotonic() >= deadline:
                raise Busy("held until later")
            time.sleep(0.01)
        self._path.write_text(str(self._clock.now() + _TERM), encoding="ascii")
        return time.monotonic_ns()

    def _until(self) -> float:
        return float(self._path.read_text(encoding="ascii")) if self._path.exists() else 0.0

    def release(self) -> None:
        self._path.unlink(missing_ok=True)


class Contender:
    """One process of its own, and one method for each command."""

    def __init__(self, home: str, kind: str = "lease") -> None:
        self.clock = SteppedClock()
        self.home = Home.open(home, clock=self.clock)
        self._file = self.home.lease(KEY)
        others: dict[str, AnyLease] = {
            "pidfile": PidFile(home),
            "expiring": Expiring(home, self.clock),
        }
        self.lease: AnyLease = others.get(kind, self._file)

    def acquire(self, patience: float = 0.0) -> dict[str, Any]:
        began = time.monotonic()
        try:
            fence = self.lease.acquire(f"process {os.getpid()}", patience=patience)
        except Busy as error:
            return {"busy": str(error), "took": time.monotonic() - began}
        return {"fence": fence, "began": began, "took": time.monotonic() - began}

    def start(self, barrier: str, patience: float) -> dict[str, Any]:
        """Wait with all the others until the harness lets go, then want the lease."""
        fd = os.open(barrier, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            return self.acquire(patience)
        finally:
            os.close(fd)

    def release(self) -> dict[str, Any]:
        self.lease.release()
        return {"released": time.monotonic()}

    def step(self, seconds: float) -> dict[str, Any]:
        before = self.clock.now()
        _offset[:] = struct.pack("<d", struct.unpack("<d", _offset[:])[0] + seconds)
        return {"before": before, "after": self.clock.now()}

    def holder(self) -> dict[str, Any]:
        if isinstance(self.lease, PidFile):
            owner = self.lease.owner()
            return {"pid": owner, "alive": owner is not None}
        held = self._file.holder()
        if held is None:
            return {"pid": None, "alive": False}
        return {"pid": held.owner.pid, "alive": held.alive, "since": held.since}


def contender(channel: socket.socket, *, home: str, kind: str) -> None:
    hand = Contender(home, kind)
    while order := channel.recv(1 << 16):
        command = json.loads(order)
        try:
            answer = getattr(hand, command.pop("do"))(**command)
        except HoldfastError as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.send(json.dumps(answer).encode())

"""Which process an owner is, and whether it still runs on this machine.

A process is known by its number together with its boot and start time: numbers are used again.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import NamedTuple

from holdfast.clock import SystemClock

_TICK = 10**9 // os.sysconf("SC_CLK_TCK")
"""In nanoseconds: the kernel counts the start of a process in ticks."""

_NAMESPACE = "/proc/self/ns/pid"


class Owner(NamedTuple):
    """A process that cannot be mistaken for another with the same number."""

    host: str
    """Where its number counts: the machine, and after a slash the pid namespace, if known."""
    boot: str
    pid: int
    started: int


def this_process() -> Owner:
    """This process, so that a later one with its number is not taken for it."""
    return Owner(here(), SystemClock().boot(), os.getpid(), own_start())


@cache
def own_start() -> int:
    started = process_start(os.getpid())
    # A later process with our number starts after our end: let that be in another tick.
    while time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK == started:
        SystemClock().sleep(_TICK / 1e10)
    return started


os.register_at_fork(after_in_child=own_start.cache_clear)


def here() -> str:
    """Where process numbers count: this machine and its pid namespace."""
    machine = os.uname().nodename
    try:
        return f"{machine}/{os.stat(_NAMESPACE).st_ino}"
    except OSError:
        return machine


def process_start(pid: int) -> int:
    """Clock ticks after boot at which a living process started; 0 if there is none."""
    # The second field is the command in parentheses, which may hold spaces and parentheses.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    # Z and X: dead, but not yet waited for by its parent.
    return int(fields[19]) if len(fields) > 19 and fields[0] not in "ZX" else 0


def alive(owner: Owner, seen_from: str = "") -> bool | None:
    """Whether that very process still runs; None where that cannot be seen from this host.

    Another machine, or another pid namespace of this one, has numbers of its own.  Only of a
    machine of our name is an earlier boot known to be over.
    """
    machine, _, ours = (seen_from or here()).partition("/")
    named, _, theirs = owner.host.partition("/")
    boot = SystemClock().boot()
    if owner.boot != boot or not (boot or named == machine):
        return False if named == machine else None
    # A boot happens on one machine, which may be renamed.  Old records have no namespace.
    if ours and theirs and ours != theirs:
        return None
    return 0 < owner.started == process_start(owner.pid)


def lock_holder(inode: int) -> int | None:
    """The process that holds the lock of a file, where the kernel names exactly one."""
    rows = [row.split() for row in _read("/proc/locks").splitlines()]
    found = [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5].endswith(f":{inode}")]
    return found[0] if len(found) == 1 and found[0] > 0 else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""

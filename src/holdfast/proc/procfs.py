"""What the kernel says about processes in /proc, and signals that cannot hit a stranger.

A process is known by its number and its start time together, since numbers are used again.
Part of the keeper, so it imports next to nothing.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # a third of the keeper's start would go into importing this name
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator
else:
    # What `signal` is made of; giving the numbers their Python names takes another fourth.
    import _signal as signal

Process = tuple[int, int]
"""Number and start time, in clock ticks since boot."""

TREE = "HOLDFAST_TREE"
"""Names the trees that a process belongs to, outermost first, joined by `:`."""

KEEPER = "holdfast-keeper"
"""Stands before the id of its tree at the end of a keeper's command line."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Stat:
    """One line of /proc/PID/stat, as far as we need it."""

    __slots__ = ("cpu", "group", "parent", "pid", "reaped_cpu", "rss", "start", "state", "tasks")

    def __init__(self, pid: int, line: bytes) -> None:
        # The name may hold spaces and parentheses; the last one closes it.
        fields = line[line.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode()
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.cpu = (int(fields[11]) + int(fields[12])) / _TICKS
        self.reaped_cpu = (int(fields[13]) + int(fields[14])) / _TICKS
        """Of children it has waited for, and of theirs."""
        self.tasks = int(fields[17])
        self.start = int(fields[19])
        self.rss = int(fields[21]) * _PAGE

    @property
    def process(self) -> Process:
        return self.pid, self.start

    @property
    def alive(self) -> bool:
        return self.state not in "ZX"


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def stat(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        return Stat(pid, read(f"/proc/{pid}/stat"))
    except (OSError, ValueError):
        return None


def is_alive(process: Process) -> bool:
    found = stat(process[0])
    return found is not None and found.start == process[1] and found.alive


def everything() -> dict[int, Stat]:
    """Every process that this one can see."""
    found: dict[int, Stat] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := stat(int(name))) is not None:
            found[seen.pid] = seen
    return found


def newest() -> bytes:
    """The number given out last. If it did not change during a look at everything, no process
    was born meanwhile, and none can have been missed."""
    return read("/proc/loadavg").split()[-1]


def ancestors() -> Iterator[Stat]:
    """This process, its parent, and so on, up to the last that can be seen."""
    found = stat(int(os.readlink("/proc/self")))
    while found is not None:
        yield found
        found = stat(found.parent) if found.parent else None


def below(roots: Iterable[int], world: dict[int, Stat]) -> list[Stat]:
    """Everything in `world` that descends from `roots`, without the roots themselves."""
    children: dict[int, list[Stat]] = {}
    for one in world.values():
        children.setdefault(one.parent, []).append(one)
    found: list[Stat] = []
    queue = list(roots)
    known = set(queue)
    while queue:
        for child in children.get(queue.pop(), ()):
            if child.pid not in known:
                known.add(child.pid)
                found.append(child)
                queue.append(child.pid)
    return found


def descendants(root: int) -> list[Stat]:
    """What descends from `root`, by looking at the tree only; one that forks meanwhile is missed.

    Good for measuring. To end a tree, look at `everything` until nothing is left.
    """
    found: list[Stat] = []
    queue = [root]
    while queue:
        try:
            pids = _children(queue.pop())
        except FileNotFoundError:
            # The process has gone, or the kernel was built without this file.
            if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
                continue
            return below([root], everything())
        for pid in pids:
            if (seen := stat(pid)) is not None:
                found.append(seen)
                queue.append(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            found += map(int, read(f"/proc/{pid}/task/{task}/children").split())
        except ProcessLookupError:
            pass
    return found


def trees_of(pid: int) -> list[str]:
    """The trees that the environment of a process names; empty if it is not ours to read."""
    try:
        environment = read(f"/proc/{pid}/environ")
    except OSError:
        return []
    _, named, rest = (b"\0" + environment).partition(f"\0{TREE}=".encode())
    value = rest.split(b"\0", 1)[0] if named else b""
    return value.decode(errors="replace").split(":")


def kept_by(pid: int) -> str | None:
    """The tree whose keeper a process is, if it is one."""
    try:
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
    except OSError:
        return None
    return words[-2].decode(errors="replace") if words[-3:-2] == [KEEPER.encode()] else None


def shared_memory_counted_once(pid: int) -> int | None:
    """Bytes in memory, pages shared by n processes counted as one n-th; slow."""
    try:
        for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def send(process: Process, number: int) -> bool:
    """Signal this very process; False if it has gone, or is not ours to signal."""
    pid, start = process
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _send_without_handle(process, number)
    try:
        # Looked at after the handle was taken: from here on the number cannot change hands.
        found = stat(pid)
        if found is None or found.start != start:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def _send_without_handle(process: Process, number: int) -> bool:
    """For kernels before 5.3: the number could change hands within microseconds."""
    if not is_alive(process):
        return False
    try:
        os.kill(process[0], number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill(found: Iterable[Stat]) -> None:
    """SIGKILL for members of a tree, whose process groups are therefore the tree's as well."""
    found = list(found)
    # A group dies in one stroke, so that its members cannot fork away between two kills.
    for group in {one.group for one in found} - {os.getpgrp(), 0}:
        try:
            os.killpg(group, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    for one in found:
        send(one.process, signal.SIGKILL)

"""A control group of version 2 for one tree: what is in it, what it used, and its end.

The group lies below our own, so that whoever ends us ends it too.  Limits that the kernel
enforces need a place where controllers are switched on: `HOLDFAST_CGROUP` names one.  Without
it the group still holds every process of the tree, ends them in one stroke, and counts CPU.
Part of the keeper, so it imports next to nothing.
"""

from __future__ import annotations

import os

from holdfast.proc.procfs import read

PLACE = "HOLDFAST_CGROUP"
"""A directory in the cgroup file system that was delegated to us."""


def place() -> str | None:
    """Where groups of ours can be made, if anywhere."""
    given = os.environ.get(PLACE)
    found = given or _own()
    if found is None or not os.access(found, os.W_OK | os.X_OK):
        return None
    if not os.path.exists(f"{found}/cgroup.procs"):
        return None  # some other directory: we would make files in it
    if given:
        _write(f"{found}/cgroup.subtree_control", "+memory +pids")
    return found


def _own() -> str | None:
    try:
        lines = read("/proc/self/cgroup").decode().splitlines()
        mounts = read("/proc/self/mountinfo").decode().splitlines()
    except (OSError, ValueError):
        return None
    own = next((line[3:] for line in lines if line.startswith("0::")), None)
    if own is None or own.startswith("/.."):
        return None
    for root, point in _mounts(mounts):
        if own == root or root == "/" or own.startswith(f"{root}/"):
            inside = own.removeprefix(root.rstrip("/"))
            return f"{point}{inside}".rstrip("/")
    return None


def _mounts(lines: list[str]) -> list[list[str]]:
    """Of each cgroup file system what of it is seen, and where."""
    parted = [line.partition(" - ") for line in lines]
    return [before.split()[3:5] for before, _, after in parted if after.startswith("cgroup2 ")]


def named(prefix: str) -> list[str]:
    """All groups that we can see whose name begins so; slow, for use after a crash."""
    try:
        mounts = read("/proc/self/mountinfo").decode().splitlines()
    except (OSError, ValueError):
        return []
    found = [folder for _, point in _mounts(mounts) for folder in _folders(point)]
    return [folder for folder in found if os.path.basename(folder).startswith(prefix)]


def make(path: str, *, memory: int | None, tasks: int | None) -> bool:
    """Make the group; whether that was possible."""
    try:
        os.mkdir(path)  # noqa: TID251  # direct write: the kernel's tree, not a disk
    except OSError:
        return False
    if memory is not None and _write(f"{path}/memory.max", str(memory)):
        _write(f"{path}/memory.swap.max", "0")
        _write(f"{path}/memory.oom.group", "1")
    if tasks is not None:
        _write(f"{path}/pids.max", str(tasks))
    return True


def join(path: str) -> None:
    """Move the calling process into the group."""
    with open(f"{path}/cgroup.procs", "wb", buffering=0) as file:  # direct write: the kernel's tree
        file.write(b"0")


def members(path: str) -> list[int]:
    """The processes in the group and in groups made below it."""
    found: list[int] = []
    for folder in _folders(path):
        try:
            found += map(int, read(f"{folder}/cgroup.procs").split())
        except OSError:
            pass
    return found


def is_empty(path: str) -> bool:
    """Whether no living process is in the group or below it; True if there is no group."""
    return _fields(f"{path}/cgroup.events").get("populated", 0) == 0


def kill(path: str) -> bool:
    """SIGKILL for all in one stroke, forks under way included; False before Linux 5.14."""
    return _write(f"{path}/cgroup.kill", "1")


def remove(path: str) -> bool:
    """Take the group away; False if it is in use or not there."""
    done = False
    for folder in reversed(_folders(path)):
        try:
            os.rmdir(folder)  # noqa: TID251  # direct write: the kernel's tree, not a disk
            done = folder == path
        except OSError:
            pass
    return done


def cpu_seconds(path: str) -> float | None:
    used = _fields(f"{path}/cpu.stat").get("usage_usec")
    return None if used is None else used / 1e6


def memory_kills(path: str) -> int:
    """How often the kernel killed in the group because memory ran out."""
    return _fields(f"{path}/memory.events").get("oom_kill", 0)


def tasks_refused(path: str) -> int:
    return _fields(f"{path}/pids.events").get("max", 0)


def number(path: str, name: str) -> int | None:
    """What the kernel counts in the group; None if it does not count that here."""
    try:
        return int(read(f"{path}/{name}"))
    except (OSError, ValueError):
        return None


def _folders(path: str) -> list[str]:
    """The group and all below it, parents first."""
    found = [path]
    for folder in found:
        try:
            with os.scandir(folder) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            pass
    return found


def _fields(path: str) -> dict[str, int]:
    try:
        lines = read(path).decode().splitlines()
        return {name: int(value) for name, value in (line.split(None, 1) for line in lines)}
    except (OSError, ValueError):
        return {}


def _write(path: str, text: str) -> bool:
    try:
        with open(path, "wb", buffering=0) as file:  # direct write: the kernel's tree, not a disk
            file.write(text.encode())
    except OSError:
        return False
    return True

"""Trees that outlived both the wrapper and the keeper: found by their mark, and ended.

A member is told by its control group, or by its environment, which names every tree it is in;
and so are all that descend from one.  A process that emptied its environment and left its
parents is found by the control group only.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from holdfast.clock import SystemClock
from holdfast.errors import Busy, UsageError
from holdfast.proc import cgroup, procfs
from holdfast.proc.around import is_within
from holdfast.proc.procfs import Process

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
_LOOKS = 5
PATIENCE = 10.0
"""Seconds until a process that SIGKILL did not end is given up."""


@dataclass(frozen=True)
class Mark:
    """What to write down about a tree, to find it after a crash of ours."""

    id: str
    boot: str
    cgroup: str | None = None

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise UsageError(
                f"not the id of a tree: {self.id[:80]!r}", hint="1 to 64 of A-Z a-z 0-9 . _ -"
            )

    @property
    def own_group(self) -> str | None:
        # A mark is read back from a file: no other group is ended because of what stands there.
        named = self.cgroup is not None and os.path.basename(self.cgroup) == group_name(self.id)
        return self.cgroup if named else None

    def as_dict(self) -> dict[str, object]:
        return {"id": self.id, "boot": self.boot, "cgroup": self.cgroup}

    @staticmethod
    def of(record: object) -> Mark:
        """The mark in what was once `as_dict`."""
        if isinstance(record, dict):
            match cast("dict[str, object]", record):
                case {"id": str(id), "boot": str(boot), "cgroup": str() | None as group}:
                    return Mark(id, boot, group)
                case _:
                    pass
        raise UsageError("not the mark of a tree", hint="it has id, boot and cgroup")


def find_survivors(mark: Mark, *, known: Collection[Process] = ()) -> list[Process]:
    """Living members of the tree; `known` are some that were seen in it before."""
    here = SystemClock().boot() == mark.boot
    return [one.process for one in _members(mark, known)] if here else []


def _members(mark: Mark, known: Collection[Process]) -> list[procfs.Stat]:
    for _ in range(_LOOKS):
        newest = procfs.newest()
        if found := _look(mark, known):
            return found
        # One that forks and goes, over and over, could slip through a single look.
        if procfs.newest() == newest:
            break
    return []


def _look(mark: Mark, known: Collection[Process]) -> list[procfs.Stat]:
    world = procfs.everything()
    inside: set[int] = set()
    if group := mark.own_group:
        for pid in cgroup.members(group):
            if (one := world.get(pid) or procfs.stat(pid)) is not None:
                world[pid] = one
                inside.add(pid)
    for one in world.values():
        if one.process in known or mark.id in procfs.trees_of(one.pid):
            inside.add(one.pid)
    found = [world[pid] for pid in inside] + procfs.below(inside, world)
    return [one for one in found if one.alive]


def group_name(id: str) -> str:
    return f"holdfast-{id}"


def end(mark: Mark, *, known: Collection[Process] = ()) -> int:
    """End every member of the tree by SIGKILL and return how many there were.

    Busy if some cannot be ended. The keeper of a tree is no member: if it lives, it is at the
    same work, and goes when that is done. One that was stopped gets the signal to go on.
    """
    clock = SystemClock()
    if clock.boot() != mark.boot:
        return 0
    for one in procfs.everything().values():
        if one.state in "Tt" and is_within(procfs.kept_by(one.pid) or "", mark.id):
            procfs.send(one.process, signal.SIGCONT)
    group = mark.own_group
    met: set[Process] = set()
    pause, deadline = _PAUSE, clock.boottime() + PATIENCE
    while (found := _members(mark, {*known, *met})) or (group and not cgroup.is_empty(group)):
        if any(one.pid == os.getpid() for one in found):
            raise UsageError(
                f"this process is itself in the tree {mark.id}", hint="end it from outside"
            )
        if clock.boottime() >= deadline:
            some = ", ".join(str(one.pid) for one in found[:5])
            raise Busy(
                f"{len(found)} processes of the tree {mark.id} do not end: {some}",
                hint="they wait in the kernel or belong to another user; see `ps`",
            )
        new = {one.process for one in found} - met
        met |= new
        if group:
            cgroup.kill(group)
        procfs.kill(found)
        pause = _PAUSE if new else min(pause * 2, _LONGEST_PAUSE)
        clock.sleep(pause)
    if group:
        cgroup.remove(group)
    return len(met)


def end_around(id: str) -> int:
    """End every tree that was begun in the block of this `Around`; how many processes there were.

    What emptied its environment is found in the control group of its tree, wherever that is.
    """
    boot, prefix = SystemClock().boot(), group_name(f"{id}.")
    marks = [Mark(id, boot)]
    for path in cgroup.named(prefix):
        tree = os.path.basename(path).removeprefix(group_name(""))
        if _ID.fullmatch(tree):
            marks.append(Mark(tree, boot, path))
    return sum(map(end, marks))

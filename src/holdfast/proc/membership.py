"""Whether a process runs in a tree of Holdfast: it is then a program's, and no person's.

A tree is told by the environment that a process was started with, and by its keeper above it.
The first can be emptied; the second adopts whoever leaves its parent.
"""

from __future__ import annotations

from holdfast.proc import procfs


def tree_around(pid: int) -> str | None:
    """The tree that a process runs in; None if it is in none, or not seen from here."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        if found := _named_by(pid):
            return found
        seen.add(pid)
        above = procfs.stat(pid)
        pid = above.parent if above is not None else 0
    return None


def all_members(world: dict[int, procfs.Stat]) -> set[int]:
    """Those in `world` that run in some tree, and the keepers."""
    roots = {pid for pid in world if _named_by(pid)}
    return roots | {one.pid for one in procfs.below(roots, world)}


def _named_by(pid: int) -> str | None:
    return procfs.kept_by(pid) or next(filter(None, reversed(procfs.trees_of(pid))), None)

"""The system calls that Python 3.11 has no name for.

Part of the keeper, so it imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)

_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_NEW_MOUNTS, _NEW_USERS, _NEW_PIDS = 0x00020000, 0x10000000, 0x20000000
_NO_SUID, _NO_DEVICES, _NO_EXEC, _RECURSIVE, _PRIVATE = 2, 4, 8, 0x4000, 0x40000


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent goes."""
    _call("prctl", _SET_SUBREAPER, 1, 0, 0, 0)


def signal_when_parent_goes(number: int) -> None:
    """Get this signal when the parent goes, or the thread of it that made us; kept over exec."""
    _call("prctl", _SET_DEATH_SIGNAL, number, 0, 0, 0)


def new_namespaces(*, users: bool) -> None:
    """Children from now on live in a pid namespace of their own; mounts are our own at once."""
    _call("unshare", (_NEW_USERS if users else 0) | _NEW_PIDS | _NEW_MOUNTS)


def mount_proc() -> None:
    """A /proc of this pid namespace, seen by nobody outside the mount namespace."""
    _call("mount", b"none", b"/", None, ctypes.c_ulong(_RECURSIVE | _PRIVATE), None)
    flags = ctypes.c_ulong(_NO_SUID | _NO_DEVICES | _NO_EXEC)
    _call("mount", b"proc", b"/proc", b"proc", flags, None)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)

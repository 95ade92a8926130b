"""Whether files that an agent names are inside of its workspace, and there.

The names are hostile, and so may be the workspace: an agent can plant symbolic links, pipes and
devices, and replace a folder while we look.  So no path is ever resolved twice and nothing is
opened but as a place (O_PATH): a pipe cannot hang us, a device feels nothing.  The kernel resolves
a path beneath the workspace where it can (`openat2`); where it cannot, we go from component to
component.  Both answer the same.

A link may lead anywhere inside.  One that leads out is an escape even on the way to a file inside,
and so is one with an absolute target, wherever that is: it means another file elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

from holdfast.contracts.job_exchange import escapes
from holdfast.errors import from_os

Verdict = Literal["there", "missing", "escaping"]
Look = Callable[[int, str], Verdict]

_PLACE = os.O_PATH | os.O_CLOEXEC
_ROOT = _PLACE | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_LINKS = 40
"""The kernel's own limit, so that both ways give up at the same one."""
_LONGEST = 4095
"""Bytes of a path, by the kernel."""
_DEEPEST = 256
"""Folders that we hold open at most; only the kernel looks deeper."""
_NOT_THERE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP, errno.EINVAL}
)


class Examined(NamedTuple):
    missing: list[str]
    """Inside, but no file or folder is there."""
    escaping: list[str]


def examine(workspace: str, paths: Sequence[str], look: Look | None = None) -> Examined:
    """What of `paths` is not a file or folder inside of `workspace`, in their order, each once.

    The last component of `workspace` must not be a link: who replaced it by one has left.
    """
    found = Examined([], [])
    if not paths:
        return found
    # A slash at the end would have a link followed.
    workspace = workspace.rstrip("/") or "/"
    try:
        root = os.open(workspace, _ROOT)  # noqa: TID251 - a place to look from, nothing is written
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise from_os(error, "looking at the workspace", workspace) from error
        root = None
    gone: Verdict = "escaping" if root is None and os.path.islink(workspace) else "missing"
    looking = look or (beneath if _has_openat2() else walked)
    try:
        for path in dict.fromkeys(paths):
            verdict = _named(path) or (gone if root is None else looking(root, path))
            if verdict != "there":
                (found.missing if verdict == "missing" else found.escaping).append(path)
    except OSError as error:
        raise from_os(error, "looking for evidence", workspace) from error
    finally:
        if root is not None:
            os.close(root)
    return found


def _named(path: str) -> Verdict | None:
    """What the name alone tells."""
    if escapes(path):
        return "escaping"
    try:
        return "missing" if len(path.encode()) > _LONGEST else None
    except UnicodeEncodeError:
        return "missing"  # no text that could be put on record


def _kind(fd: int) -> Verdict:
    mode = os.fstat(fd).st_mode
    return "there" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "missing"


# --- by the kernel --------------------------------------------------------------------------

_OPENAT2 = 437
_SAME_NUMBER = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "armv7l", "i686")
_NO_MAGICLINKS, _BENEATH = 0x02, 0x08
_TRIES = 8


class _How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_CANNOT = frozenset(
    {errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EAGAIN, errno.ELOOP, errno.EINVAL}
)
"""No such call, or it is forbidden; somebody renames all the time; or too many links, which the
kernel does not tell from one of its own that leads anywhere: those have a text like all others."""


def beneath(root: int, path: str) -> Verdict:
    """Resolved in one call that cannot leave `root`."""
    error = errno.EAGAIN
    for _ in range(_TRIES):
        fd, error = _openat2(root, path)
        if not error:
            try:
                return _kind(fd)
            finally:
                os.close(fd)
        if error != errno.EAGAIN:
            break
    if error == errno.EXDEV:
        return "escaping"
    if error in _CANNOT:
        return walked(root, path)
    if error in _NOT_THERE:
        return "missing"
    raise OSError(error, os.strerror(error))


def _openat2(root: int, path: str) -> tuple[int, int]:
    """A descriptor, or an error that is not 0."""
    how = _How(_PLACE, 0, _BENEATH | _NO_MAGICLINKS)
    fd = _libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(path.encode()),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    return fd, ctypes.get_errno() if fd < 0 else 0


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


@cache
def _has_openat2() -> bool:
    return platform.system() == "Linux" and platform.machine() in _SAME_NUMBER


# --- by ourselves ---------------------------------------------------------------------------


def walked(root: int, path: str) -> Verdict:
    """From component to component, each opened where the one before is and never by its path."""
    folders = [root]
    """Those that we went down through: to go up is to be where we were."""
    try:
        return _walk(folders, path.split("/")[::-1])
    except OSError as error:
        if error.errno in _NOT_THERE:
            return "missing"
        raise
    finally:
        for fd in folders[1:]:
            os.close(fd)


def _walk(folders: list[int], ahead: list[str]) -> Verdict:
    links = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if len(folders) == 1:
                return "escaping"
            os.close(folders.pop())
            continue
        flags = _PLACE | os.O_NOFOLLOW
        found = os.open(name, flags, dir_fd=folders[-1])  # noqa: TID251 - nothing is written
        mode = os.fstat(found).st_mode
        if stat.S_ISDIR(mode):
            folders.append(found)
            if len(folders) > _DEEPEST:
                return "missing"
            continue
        try:
            if not stat.S_ISLNK(mode):
                return "there" if stat.S_ISREG(mode) and not ahead else "missing"
            target = os.readlink("", dir_fd=found)
        finally:
            os.close(found)
        links += 1
        if target.startswith("/"):
            return "escaping"
        if links > _MOST_LINKS:
            return "missing"
        ahead.extend(target.split("/")[::-1])
    return "there"

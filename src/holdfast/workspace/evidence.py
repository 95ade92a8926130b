"""Whether files that an agent names are inside of its workspace, and there.

The names are hostile, and so may be the workspace: an agent can plant symbolic links, pipes and
devices, and replace a folder while we look.  So each component is opened where the one before is,
never by its path, and only as a place (O_PATH): a pipe cannot hang us, a device feels nothing.

A link may lead anywhere inside.  One that leads out is an escape even on the way to a file inside,
and so is one with an absolute target, wherever that is: it means another file elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdfast.contracts.job_exchange import escapes
from holdfast.errors import from_os

Verdict = Literal["there", "missing", "escaping"]

_PLACE = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_LINKS = 40
"""The kernel's own limit."""
_LONGEST = 4095
"""Bytes of a path, by the kernel."""
_DEEPEST = 256
"""Folders held open at most; a workspace with deeper ones cannot be kept either."""
_NOT_THERE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP, errno.EINVAL}
)


class Examined(NamedTuple):
    missing: list[str]
    """Inside, but no file or folder is there."""
    escaping: list[str]


def examine(workspace: str, paths: Sequence[str]) -> Examined:
    """What of `paths` is not a file or folder inside of `workspace`, in their order, each once.

    The last component of `workspace` must not be a link: who replaced it by one has left.
    """
    found = Examined([], [])
    if not paths:
        return found
    # A slash at the end would have a link followed.
    workspace = workspace.rstrip("/") or "/"
    try:
        root = os.open(workspace, _PLACE | os.O_DIRECTORY)  # noqa: TID251 - a place to look from, nothing is written
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise from_os(error, "looking at the workspace", workspace) from error
        root = None
    gone: Verdict = "escaping" if root is None and os.path.islink(workspace) else "missing"
    try:
        for path in dict.fromkeys(paths):
            verdict = _named(path) or (gone if root is None else _walked(root, path))
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


def _walked(root: int, path: str) -> Verdict:
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
        found = os.open(name, _PLACE, dir_fd=folders[-1])  # noqa: TID251 - nothing is written
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

"""Files that agents name, and files that people give.

What an agent names may be hostile, and so may be the workspace: an agent can plant symbolic links,
pipes and devices, and replace a folder while we look.  So no link is ever followed by the system,
and nothing but folders is opened: a pipe cannot hang us, a device feels nothing.

A link may lead anywhere inside.  One that leads out is an escape even on the way to a file inside,
and so is one with an absolute target, wherever that is: it means another file elsewhere.

Files that people give to a job are copied into its workspace, under `attachments/`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import Literal, NamedTuple

from holdfast.contracts.job_exchange import escapes
from holdfast.errors import BadName, Conflict, NotFound, NotOurs, typed
from holdfast.git.repository import FILE, Repository
from holdfast.workspace.safedir import Folder, pieces

ATTACHMENTS = "attachments"
_MOST_NAME = 200
Verdict = Literal["there", "missing", "escaping"]

_MOST_LINKS = 40
"""The kernel's own limit."""
_LONGEST = 4095
"""Bytes of a path, by the kernel."""
_DEEPEST = 255
"""Folders in each other; a workspace with deeper ones cannot be kept either."""
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
    with typed("looking for evidence", workspace), ExitStack() as opened:
        files, gone = None, found.missing
        try:
            files = opened.enter_context(Folder(workspace, ours=False))
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            gone = found.escaping if os.path.islink(workspace) else gone
        for path in dict.fromkeys(paths):
            if escapes(path):
                found.escaping.append(path)
            elif files is None:
                gone.append(path)
            elif (verdict := _looked_at(files, path)) != "there":
                (found.missing if verdict == "missing" else found.escaping).append(path)
    return found


def _looked_at(files: Folder, path: str) -> Verdict:
    try:
        return _walked(files, path) if len(path.encode()) <= _LONGEST else "missing"
    except (UnicodeEncodeError, NotOurs):
        return "missing"  # no text that could be put on record, or closed to us
    except OSError as error:
        if error.errno in _NOT_THERE:
            return "missing"
        raise


def _walked(files: Folder, path: str) -> Verdict:
    inside, links = list[str](), 0
    """The folders that we went down through: to go up is to be where we were."""
    ahead = path.split("/")[::-1]
    while ahead:
        name = ahead.pop()
        if name == "..":
            if not inside:
                return "escaping"
            inside.pop()
        if name in ("", ".", ".."):
            continue
        here = "/".join((*inside, name))
        kind = files.kind(here)
        if kind == "folder" and len(inside) < _DEEPEST:
            inside.append(name)
        elif kind == "link":
            target, links = os.fsdecode(files.target(here)), links + 1
            if target.startswith("/"):
                return "escaping"
            if links > _MOST_LINKS:
                return "missing"
            ahead.extend(target.split("/")[::-1])
        else:
            return "there" if kind == "file" and not ahead else "missing"
    return "there"


# --- attachments ----------------------------------------------------------------------------


def check_name(name: str) -> None:
    fits = name.isprintable() and "/" not in name and len(name.encode()) <= _MOST_NAME
    if not (fits and name and name[0] not in ".-~%") or escapes(f"{ATTACHMENTS}/{name}"):
        raise BadName(
            f"not a name for an attachment: {name[:80]!r}",
            hint=f"at most {_MOST_NAME} printable bytes without /, not starting with . - ~ %, "
            "and none with a .. between backslashes",
        )


def copy_in(files: Folder, aside: Folder, name: str, source: str, *, may_replace: bool) -> None:
    """Copy a file of the user's to `attachments`, over nothing that is not ours."""
    path = f"{ATTACHMENTS}/{name}"
    above, _, last = os.path.abspath(source).rpartition("/")
    if not os.path.isfile(source):
        raise NotFound(f"no such file: {source}", hint="attach a regular file", path=source)
    with Folder(os.path.realpath(above or "/"), ours=False) as there:
        if there.kind(last) == "link":
            real = os.path.realpath(source)
            return copy_in(files, aside, name, real, may_replace=may_replace)
        if files.kind(ATTACHMENTS) not in ("", "folder"):
            raise Conflict(f"{ATTACHMENTS} is no folder here", hint="rename what stands there")
        if files.kind(path) == "file":
            with files.reading(path) as old, there.reading(last) as new:
                if all(a == b for a, b in zip_longest(pieces(old), pieces(new))):
                    return None
        if files.kind(path) and not may_replace:
            raise Conflict(f"{path} is there and differs", hint="attach it by another name")
        with there.reading(last) as fd:
            files.put(path, FILE, pieces(fd), aside)
    return None


def keep(ours: Repository, files: Folder, aside: Folder, name: str) -> str:
    """Keep in our repository what an attachment holds, so that it can be put back; its id."""
    copy = aside.fresh()
    with files.reading(f"{ATTACHMENTS}/{name}") as fd:
        aside.put(copy, FILE, pieces(fd), aside)
    words = ("hash-object", "-w", "--no-filters", "--", os.path.join(aside.path, copy))
    return ours.ask(*words).decode("ascii").strip()

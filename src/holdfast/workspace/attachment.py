"""Files that people give to a job: copied into its workspace, under `attachments/`."""

from __future__ import annotations

import os
from itertools import zip_longest

from holdfast.contracts.job_exchange import escapes
from holdfast.errors import BadName, Conflict, NotFound
from holdfast.git.repository import FILE, Repository
from holdfast.workspace.safedir import Folder, pieces

ATTACHMENTS = "attachments"
_MOST_NAME = 200


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
        if files.kind(path) == "file" and _same(files, path, there, last):
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


def _same(one: Folder, path: str, other: Folder, name: str) -> bool:
    with one.reading(path) as first, other.reading(name) as second:
        return all(a == b for a, b in zip_longest(pieces(first), pieces(second)))

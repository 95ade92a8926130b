"""Which paths of an agent's work tree count.

Git says what is ignored.  It opens whatever is called `.gitignore`, and waits for as long as a
pipe of that name has no writer; so it is called only after such are gone.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from holdfast.errors import StorageError
from holdfast.git.repository import Repository
from holdfast.jobs.checkout import GIT
from holdfast.jobs.scratch import Folder, leads_inside

_NONE = "holdfast.none"
"""An index that is not there, in our repository."""
_RULES = (".gitignore", ".gitattributes")
_LONGEST = 4096
"""Bytes of a path that git could open."""


def listed(ours: Repository, files: Folder, more: Collection[str]) -> set[str]:
    """The paths that git does not ignore, those of the agent's index, and `more` of them."""
    for path in blocking(files):
        files.remove(path, files)
    words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    nothing = os.path.join(ours.directory, _NONE)
    index = os.path.join(files.path, GIT, "index")
    try:
        if files.kind(f"{GIT}/index") != "file":
            index = nothing
        said = ours.ask(*words, index=index, files=files.path)
    except StorageError:
        said = ours.ask(*words, index=nothing, files=files.path)
    found = {os.fsdecode(path) for path in said.split(b"\0") if path} | set(more)
    # The agent wrote its index, and git believes what is in there: also `../../victim`.
    return {path for path in found if leads_inside(path) and path.partition("/")[0] != GIT}


def blocking(files: Folder) -> list[str]:
    """Pipes, sockets and devices that stand where git looks for rules."""
    found: list[str] = []

    def visit(here: str, kinds: dict[str, str]) -> bool:
        inside = f"{here}/" if here else ""
        found.extend(inside + name for name in _RULES if kinds.get(name) == "other")
        return here != GIT and len(here) < _LONGEST

    files.walk(visit)
    return found

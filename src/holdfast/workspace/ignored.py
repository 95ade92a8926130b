"""Which paths of an agent's work tree count.

Git says what is ignored, and is kept from two things.  It opens whatever is called `.gitignore`,
and waits for as long as a pipe of that name has no writer.  And it does not look into repositories
inside, or what it takes for one; there an agent could hide what it likes.  So those are looked at
by us, and count whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.errors import StorageError
from holdfast.git.repository import MODULE, Repository
from holdfast.workspace.agent_git import GIT
from holdfast.workspace.safedir import Folder, Unkept, folders_above, leads_inside

_RULES = (".gitignore", ".gitattributes")
_MOST_RULES = 16 << 20
"""Bytes; git reads them whole, whatever memory there is."""
_LONGEST = 4096 - 256
"""Bytes of the path of a folder in which git could open every file."""
_MOST_SAID = 1 << 20
"""Bytes that may be said to a program when it is started."""


class Surroundings(NamedTuple):
    blocking: list[str]
    """What git cannot read where it looks for rules: pipes, sockets, devices, huge files."""
    repositories: list[str]
    """Folders with something called `.git`; not those in one of them."""
    unreachable: list[str]
    """Folders that lie too deep for git, which leaves them out in silence."""


def surroundings(files: Folder) -> Surroundings:
    """What a work tree holds that git has to be kept from."""
    found, longest = Surroundings([], [], []), _LONGEST - len(os.fsencode(files.path))
    rules: list[str] = []

    def visit(here: str, kinds: dict[str, str]) -> bool:
        inside = f"{here}/" if here else ""
        found.blocking.extend(inside + name for name in _RULES if kinds.get(name) == "other")
        rules.extend(inside + name for name in _RULES if kinds.get(name) == "file")
        if here and here != GIT and GIT in kinds:
            found.repositories.append(here)
            return False
        if len(os.fsencode(here)) < longest:
            return here != GIT
        found.unreachable.append(here)
        return False

    files.walk(visit)
    found.blocking.extend(path for path, about in files.these(rules) if about.size > _MOST_RULES)
    return found


def listed(
    ours: Repository, files: Folder, more: Collection[str], modules: Callable[[], Collection[str]]
) -> set[str]:
    """The paths that git does not ignore, those of the agent's index, and `more` of them.

    As `path/` it has repositories inside, but for those of `modules`, the submodules of the base.
    """
    around = surroundings(files)
    for path in around.blocking:
        files.remove(path, files)
    if deep := _counting(ours, files, around.unreachable):
        what = f"folders are nested too deep for git: {deep[0][:80]}…"
        hint = "remove them, or name them in .gitignore; no program could work with such a path"
        raise Unkept(what, hint=hint, path=files.path)
    inner = set(around.repositories) - _ignored(ours, files, around.repositories)
    found, links = _said(ours, files, inner)
    # The agent wrote its index, and git believes what is in there: also `../../victim`.
    found = {path for path in found | set(more) if leads_inside(path)}
    whole = {path for path in inner | links if leads_inside(path)}
    if whole:
        theirs = set(modules())
        whole = {path for path in whole if theirs.isdisjoint((path, *folders_above(path)))}
        found = {path for path in found if whole.isdisjoint((path, *folders_above(path)))}
    found |= {f"{path}/" for path in whole}
    return {path for path in found if path.partition("/")[0] != GIT}


def remove_unreachable(ours: Repository, files: Folder, aside: Folder) -> None:
    """Remove what lies too deep to be listed: no snapshot has it."""
    for path in _counting(ours, files, surroundings(files).unreachable):
        files.remove(path, aside)


def _counting(ours: Repository, files: Folder, deep: Collection[str]) -> list[str]:
    """Those that are not ignored, by a folder above that is within the reach of git."""
    above = {path: path.rpartition("/")[0] for path in deep}
    ignored = _ignored(ours, files, set(above.values()))
    return [path for path in deep if above[path] not in ignored]


def _ignored(ours: Repository, files: Folder, folders: Collection[str]) -> set[str]:
    if not folders:
        return set()
    words = ("check-ignore", "-z", "--stdin", "--no-index")
    # It takes no literal paths, but one that starts like this is none with a meaning.
    given = b"".join(b"./%s\0" % os.fsencode(path) for path in folders)
    about = {"GIT_LITERAL_PATHSPECS": "0"}
    try:
        said = ours.ask(*words, given=given, index=_nothing(ours), files=files.path, user=about)
    except StorageError:
        # Also if none of them is.
        return set()
    return {os.fsdecode(path[2:]) for path in said.split(b"\0") if path}


def _said(ours: Repository, files: Folder, inner: Collection[str]) -> tuple[set[str], set[str]]:
    """What git lists, without looking into these; and what its index has as repositories inside."""
    # As patterns that mean nothing but themselves.
    plain = (re.sub(r"[\\*?[]", r"\\\g<0>", path) for path in sorted(inner))
    but = [f"--exclude=/{path}/" for path in plain]
    if sum(map(len, but)) > _MOST_SAID:
        what = f"{len(inner)} repositories are inside of the workspace, too many to be looked at"
        raise Unkept(what, hint="remove some, or name their folder in .gitignore", path=files.path)
    words = ("ls-files", "-z", "-t", "--stage", "--cached", "--others", "--exclude-standard", *but)
    index = os.path.join(files.path, GIT, "index")
    try:
        if files.kind(f"{GIT}/index") != "file":
            index = _nothing(ours)
        said = ours.ask(*words, index=index, files=files.path)
    except StorageError:
        said = ours.ask(*words, index=_nothing(ours), files=files.path)
    found: set[str] = set()
    links: set[str] = set()
    for line in filter(None, said.split(b"\0")):
        about, _, path = line[2:].partition(b"\t") if line[:1] != b"?" else (b"", b"", line[2:])
        (links if about.startswith(b"%o " % MODULE) else found).add(os.fsdecode(path))
    return found, links


def _nothing(ours: Repository) -> str:
    """An index that is not there, in our repository."""
    return os.path.join(ours.directory, "holdfast.none")

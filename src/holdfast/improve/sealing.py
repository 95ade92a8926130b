"""Which paths are sealed, and what a candidate did to them.

Beside what the user seals, a candidate may not add what interpreters and test runners load by
themselves: it would run inside the benchmark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from holdfast.errors import BadName
from holdfast.git.repository import Tree
from holdfast.workspace.repo import Sealed
from holdfast.workspace.safedir import leads_inside
from holdfast.workspace.snapshots import difference, printable

_LOADED = {
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "pyvenv.cfg", ".coveragerc"),
    *("pytest.ini", ".pytest.ini", "tox.ini", ".env", ".envrc", "nodemon.json", ".npmrc"),
}
"""Names of files that are read without anybody naming them."""
_PATTERN = re.compile(r"[*?\[]")


def sealed_paths(entries: Sequence[str], tree: Tree) -> tuple[str, ...]:
    """The entries as paths: `./` and the slash at the end taken off, patterns by what they match.

    A name that is not in the tree stays sealed: it must stay unused.
    """
    found: dict[str, None] = {}
    for entry in entries:
        path = re.sub(r"^(?:\./+)+", "", entry.strip()).rstrip("/")
        if not path or "\0" in path or not leads_inside(path):
            raise BadName(
                f"not a path that can be sealed: {entry[:80]!r}",
                hint="a file, folder or pattern, relative to the top of the repository",
            )
        found[path] = None
        if _PATTERN.search(path):
            found.update(dict.fromkeys(each for each in tree if fnmatchcase(each, path)))
    return tuple(found)


def violations(base: Tree, candidate: Tree, sealed: Sealed) -> list[str]:
    """The paths by which a candidate breaks the seal, for people."""
    changed = difference(base, candidate)
    return sorted(
        printable(path)
        for path, entry in changed.items()
        if sealed.covers(path)
        or (entry is not None and sealed.stands_above(path))
        or any(_PATTERN.search(name) and fnmatchcase(path, name) for name in sealed.paths)
        or (entry is not None and path not in base and _is_loaded(path, base, sealed))
    )


def _is_loaded(path: str, base: Tree, sealed: Sealed) -> bool:
    """Whether a new file would be loaded by a benchmark that does not name it."""
    above, _, name = path.rpartition("/")
    if name in _LOADED or name.endswith(".pth"):
        return True
    # A module beside the benchmark, or where it is started, hides one of the standard library.
    parts = path.split("/")
    folders = {"", *(each.rpartition("/")[0] for each in base if sealed.covers(each))}
    module = name.removesuffix(".py")
    if name.endswith((".py", ".so", ".pyc")) and above in folders:
        return name.partition(".")[0] in sys.stdlib_module_names
    package = "/".join(parts[:-2])
    return module == "__init__" and package in folders and parts[-2] in sys.stdlib_module_names

"""What git would do to a folder that lies inside a work tree.  Looks only.

A home found inside somebody's repository is hostile ground: its configuration can name programs
to be run.  So git is asked for as little as possible, with everything switched off that would
start one, and without the locks that even a look may take.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

_OFF = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.untrackedCache=false"),
)
_PATIENCE = 20.0


class WorkTree(NamedTuple):
    top: str
    asked: bool
    """Whether git could be asked; otherwise nothing below is known."""
    tracked: tuple[str, ...] = ()
    """Files of the folder that git has, as paths below the folder."""
    ignored: bool = False

    @property
    def cleaned(self) -> str | None:
        """The command that would remove the folder, if one would."""
        if not self.asked:
            return None
        return "git clean -fdx" if self.ignored else "git clean -fd"


def top_of(folder: str) -> str | None:
    """The work tree that a folder lies in."""
    here = os.path.realpath(folder)
    while not os.path.lexists(os.path.join(here, ".git")):
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
    return here


def worktree(folder: str) -> WorkTree | None:
    """How git sees a folder; None if it lies in no work tree."""
    top = top_of(folder)
    if top is None:
        return None
    place = os.path.realpath(folder)
    listed = _ask(place, "ls-files", "-z", "--", ".")
    if listed is None:
        return WorkTree(top, asked=False)
    tracked = tuple(filter(None, listed[1].decode("utf-8", "replace").split("\0")))
    inside = os.path.relpath(place, top)
    if inside == ".":
        return WorkTree(top, asked=True, tracked=tracked)
    said = _ask(top, "check-ignore", "-q", "--", inside)
    return WorkTree(top, asked=True, tracked=tracked, ignored=said is not None and said[0] == 0)


def _ask(folder: str, *words: str) -> tuple[int, bytes] | None:
    """What a command that only looks answers; None if git cannot say."""
    git = shutil.which("git")
    if git is None:
        return None
    command: Sequence[str] = (git, *_OFF, "-C", folder, *words)
    private = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {name: value for name, value in os.environ.items() if name not in private}
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": ""}
    try:
        ran = subprocess.run(
            command,
            env=environment | quiet,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # 1 is an answer (of `check-ignore`); 128 and more are refusals.
    return (ran.returncode, ran.stdout) if ran.returncode in (0, 1) else None

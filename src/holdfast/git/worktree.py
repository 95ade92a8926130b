"""What git would do to a folder that lies inside a work tree.  Looks only.

A home found inside somebody's repository is hostile ground: its configuration can name programs
to be run.  So git is asked for as little as possible, with everything switched off that would
start one, and without the locks that even a look may take.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from holdfast.errors import Busy, ConfigError, StorageError
from holdfast.git.call import OFF, command, environment, run

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
    try:
        # The user's settings count here: they say what git ignores.
        env = environment(user_settings=True)
        ran = run(command("-C", folder, *words, off=OFF), env, patience=_PATIENCE)
    except (OSError, StorageError, Busy, ConfigError):
        return None
    # 1 is an answer (of `check-ignore`); 128 and more are refusals.
    return (ran.code, ran.out) if ran.code in (0, 1) else None

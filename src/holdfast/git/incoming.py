# ruff: noqa: TID251 - git's own files: it writes them itself, and we only move what it wrote
"""Objects on their way into a repository of ours.

They are made in a repository aside that borrows from ours, and are moved in when all of them are
there and whole.  Whoever dies before that leaves nothing that counts, and the next one removes it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

from holdfast.git.durable import sync

_ASIDE = "holdfast.incoming"
_LOOSE = re.compile(r"[0-9a-f]{2}")
_LEFT = re.compile(r"tmp_|fast_import_crash_")
"""What a git that died leaves where it worked."""


@contextmanager
def incoming(directory: str, config: str) -> Generator[str]:
    """A repository aside; unless something is raised, what it has at the end becomes ours.

    Nobody else may work in `directory` meanwhile.
    """
    above = os.path.join(directory, _ASIDE)
    # What the dead left: on a full disk it may be what takes the room.
    shutil.rmtree(above, ignore_errors=True)
    for place in (directory, os.path.join(directory, "objects", "pack")):
        with suppress(FileNotFoundError):
            for name in filter(_LEFT.match, os.listdir(place)):
                os.unlink(os.path.join(place, name))
    os.makedirs(above, exist_ok=True)
    # Never the same name twice: a git that outlives us must not write into what comes after it.
    aside = tempfile.mkdtemp(dir=above)
    try:
        for folder in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(aside, folder))
        for name, text in (
            ("HEAD", "ref: refs/heads/none\n"),
            ("config", config),
            ("objects/info/alternates", "../../../objects\n"),
        ):
            path = os.path.join(aside, name)
            with open(path, "w", encoding="ascii") as file:  # direct write: scratch
                file.write(text)
        yield aside
        _move_in(os.path.join(aside, "objects"), os.path.join(directory, "objects"))
    finally:
        shutil.rmtree(above, ignore_errors=True)


def _move_in(made: str, ours: str) -> None:
    packs = sorted(os.listdir(os.path.join(made, "pack")))
    indexes = [name for name in packs if name.endswith(".idx")]
    # An index is what makes a pack count, so it comes when the pack is there for good.
    for names in ([name for name in packs if name not in indexes], indexes):
        if names:
            _rename(names, os.path.join(made, "pack"), os.path.join(ours, "pack"))
            sync(os.path.join(ours, "pack"))
    loose = [name for name in os.listdir(made) if _LOOSE.fullmatch(name)]
    for name in loose:
        os.makedirs(os.path.join(ours, name), exist_ok=True)
        folder = os.path.join(made, name)
        _rename(os.listdir(folder), folder, os.path.join(ours, name))
    # All names first, since the file system then writes them at once.
    for name in loose:
        sync(os.path.join(ours, name))
    if loose:
        sync(ours)


def _rename(names: Iterable[str], old: str, new: str) -> None:
    for name in names:
        if not _LEFT.match(name):
            os.rename(os.path.join(old, name), os.path.join(new, name))

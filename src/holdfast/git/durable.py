# ruff: noqa: TID251 - git's own files, which are none of the store's
"""Files of git's that have to be there after a power cut.

Git sees to the files that it writes, but neither to their names nor to what a clone copies.
"""

from __future__ import annotations

import os


def sync(path: str) -> None:
    """Let a file, or the names in a folder, be on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_whole(directory: str) -> None:
    """Let a folder and all that is in it be on the disk, but for its own name."""
    for here, _, names in os.walk(directory, topdown=False):
        for name in names:
            path = os.path.join(here, name)
            if not os.path.islink(path):
                sync(path)
        sync(here)

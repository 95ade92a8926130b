"""A name around trees: whatever this thread begins in its block can be found by it later.

For one who has trees made by others, and writes down nothing about each of them:

    with Around("job-1f…") as around:
        …  # whoever makes a `Tree` in here
    around.lost_keeper

and after a crash `survivors.end_around("job-1f…")`.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar, Token
from typing import Self


class Around:
    """Used by one thread, again and again if need be."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.lost_keeper = False
        """Whether the keeper of a tree in the last block was killed."""
        self.left = 0
        """How many processes of such a tree not even SIGKILL ended."""
        self._before: Token[Around | None] | None = None

    def name_one(self) -> str:
        """An id for a tree in the block, which tells whose it is."""
        return f"{self.id}.{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        self.lost_keeper, self.left = False, 0
        self._before = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._before is not None
        _CURRENT.reset(self._before)
        self._before = None


_CURRENT: ContextVar[Around | None] = ContextVar("around", default=None)


def current() -> Around | None:
    """What is around a tree that begins now."""
    return _CURRENT.get()


def is_within(tree: str, id: str) -> bool:
    """Whether a tree is the one of this id, or in the block of it."""
    return tree == id or tree.startswith(f"{id}.")

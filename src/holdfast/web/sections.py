"""The sections of a page, each of which may fail alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import HoldfastError

_Shown = TypeVar("_Shown")


class Sections:
    """What the sections of a page show: one that fails says why, and the others are there."""

    def __init__(self) -> None:
        self.wrong: dict[str, list[str]] = {}

    def of(self, part: str, look: Callable[[], _Shown], otherwise: _Shown) -> _Shown:
        try:
            return look()
        except HoldfastError as error:
            self.tell(part, error.message, error.hint or "")
            return otherwise

    def tell(self, part: str, *lines: str) -> None:
        known = self.wrong.setdefault(part, [])
        known += [each for each in lines if each and each not in known]

"""A cell that is written when there is something new to see in it, or when it lags behind.

Its stamp only tells where to go on reading; lines that it has not seen are read again.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.backend import Backend
from holdfast.store.primitives import Cell, Cursor, Log, Stamp
from holdfast.store.projection import Projection, Tell
from holdfast.store.view import Render

_FEW = 50
"""By so many lines a stamp may lag behind."""


def telling(home: Backend, source: Log, target: Log, cell: str, tell: Tell) -> Projection:
    """The telling of lines of a log in another one; `cell` remembers how far it came."""
    return Projection(source, target, Spared(home.cell(cell)), tell)


class Spared:
    def __init__(self, cell: Cell, render: Render[Any] | None = None) -> None:
        """Without `render` nobody looks at it: it is a projection's."""
        self._cell, self._render = cell, render
        self.stranger, self.close = cell.stranger, cell.close
        self._known: tuple[int, bytes, list[int]] | None = None

    def load(self, version: int) -> Stamp | None:
        stamp = self._cell.load(version)
        if stamp is not None and stamp.shown:
            data = b"" if self._render is None else self._render(stamp.state)
            self._known = version, data, self._seen(stamp)
        elif stamp is None and self._render is None:
            self._known = version, b"", [0, 0]  # of two short logs all is read again as soon
        return stamp

    def save(
        self,
        version: int,
        stamp: Stamp,
        data: bytes,
        *,
        over: Cursor | None = None,
        ours: str | None = None,
    ) -> str | None:
        new = version, b"" if self._render is None else data, self._seen(stamp)
        if over is None and self._known is not None and new[:2] == self._known[:2]:
            lags = (now - then for now, then in zip(new[2], self._known[2], strict=True))
            if all(0 <= lag < _FEW for lag in lags):
                return None
        aside = self._cell.save(version, stamp, data, over=over, ours=ours)
        self._known = new
        return aside

    def _seen(self, stamp: Stamp) -> list[int]:
        """Up to which line of the log, and for a projection of its target."""
        seen = [stamp.cursor.seq]
        return seen if self._render is not None else [*seen, stamp.state["searched"][0]]

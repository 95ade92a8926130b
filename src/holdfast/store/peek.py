"""The state of a view, looked at without writing anything: by pages, and by who may only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.store.backend import Peek
from holdfast.store.primitives import START, BadLine, Cell, Cursor, Line, Log, Stamp
from holdfast.store.view import Shape, State, View


def peek(
    log: Log,
    cell: Cell,
    shape: Shape[State],
    clock: Clock,
    ends_at: Callable[[Cursor], bool] = lambda _: False,
) -> Peek[State]:
    """What a log makes of a view, and what is wrong with either; a damaged one has a state too.

    Where `ends_at` tells that nothing follows the line that the view has seen, the log stays shut.
    """
    lines, shown = _Lines(log, ends_at), _Shown(cell)
    files = [(cast("Cell", shown), shape.render)]
    view = View(cast("Log", lines), shape, clock, files)
    try:
        return Peek(view.read(), shown.current, lines.warnings)
    except HoldfastError as error:
        return Peek(shape.initial(), False, [*lines.warnings, f"unreadable: {error}"])


class _Shown:
    """A cell that is only read, and whether its file is what the stamp says."""

    def __init__(self, cell: Cell) -> None:
        self._cell, self.current = cell, False

    def load(self, version: int) -> Stamp | None:
        try:
            found = self._cell.load(version)
        except HoldfastError:
            return None  # something else stands there: the log is read instead
        self.current = found is not None and found.shown
        return found

    def stranger(self) -> str | None:
        """The file will not be written, so it does not matter whose it is."""
        return None


class _Lines:
    """A log, and what was wrong with it when it was read."""

    def __init__(self, log: Log, ends_at: Callable[[Cursor], bool]) -> None:
        self._log, self._ends_at = log, ends_at
        self.warnings: list[str] = []

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        if self._ends_at(after):
            return
        damaged = 0
        for line in self._log.read(after):
            damaged += isinstance(line, BadLine)
            yield line
        if damaged:
            self.warnings.append(f"{damaged} damaged lines")

    def contains(self, cursor: Cursor) -> bool:
        found = self._ends_at(cursor) or self._log.contains(cursor)
        if not found:
            self.warnings.append("lines lost")
        return found

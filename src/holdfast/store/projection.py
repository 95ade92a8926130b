"""A projection: lines of one log told again in another, each exactly once.

An act is written to one primary log and acknowledged; other logs are caught up afterwards,
outside the critical path, by whoever opens the projection next.  A projected line carries
`ref`, the log and number of the line it comes from, and that is how nobody writes it twice:
under the lock of the target its newest `ref` is looked up, and only later lines are added.
The cell remembers how far both logs were read; if it is lost, they are read again.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.codec import Record, pretty
from holdfast.errors import BadValue
from holdfast.store.primitives import CONTROL, START, Cell, Cursor, Decision, Line, Log, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

_AT_ONCE = 500
"""So many lines are written under one lock of the target."""
_VERSION = 1

Tell = Callable[[Line], Record | None]
"""What the target says of a line of the source; None if nothing."""


def ref_of(log: Log, seq: int) -> str:
    return f"{log.key}#{seq}"


class Projection:
    """Used by one thread at a time."""

    def __init__(self, source: Log, target: Log, cell: Cell, tell: Tell) -> None:
        self._source, self._target, self._cell, self._tell = source, target, cell, tell
        self._read, self._searched, self._told = START, START, 0
        stamp = cell.load(_VERSION)
        if stamp is not None and stamp.log == source.key:
            self._resume(stamp)

    def _resume(self, stamp: Stamp) -> None:
        searched, told = Cursor(*stamp.state["searched"]), stamp.state["told"]
        if self._source.contains(stamp.cursor) and self._target.contains(searched):
            self._read, self._searched, self._told = stamp.cursor, searched, told

    def catch_up(self, acked: Cursor | None = None) -> int:
        """Tell the target what is new in the source; how many lines that took.

        With `acked`, a line of the source that the caller knows is durable, only up to there.
        """
        # Visible is not durable: a line that a power cut takes away must not have been told.
        durable = acked or self._source.settle()
        lines, count, before = self._after(self._read, durable.seq), 0, self._read
        while batch := list(islice(lines, _AT_ONCE)):
            count += self._project(batch)
            self._read = batch[-1].cursor
        if self._read != before:
            self._remember()
        return count

    def untold(self, acked: Cursor) -> list[Record]:
        """What the target lacks up to `acked`, for one who appends it in a decision of his.

        So a line of the source and its projection are made under one lock of the target.
        """
        self._search()
        lines = self._after(self._read, acked.seq)
        said = [self._said(line) for line in lines if (line.seq or 0) > self._told]
        return [record for record in said if record is not None]

    def _after(self, cursor: Cursor, upto: int) -> Iterator[Line]:
        for line in self._source.read(cursor):
            if isinstance(line, Line) and line.seq is not None and line.seq <= upto:
                yield line

    def _project(self, batch: list[Line]) -> int:
        said = [(line.seq or 0, self._said(line)) for line in batch]
        if not any(record for _, record in said):
            return 0

        def decide(head: Cursor) -> Decision[None]:
            self._search()
            return [record for seq, record in said if record and seq > self._told], None

        return len(self._target.write(decide).lines)

    def _said(self, line: Line) -> Record | None:
        record = None if CONTROL in line.record else self._tell(line)
        if record is None:
            return None
        if "ref" in record:
            raise BadValue("`ref` is set by the projection", hint="choose another name")
        return {**record, "ref": ref_of(self._source, line.seq or 0)}

    def _search(self) -> None:
        """Find the newest line of ours in the target, by anybody; its lock is held."""
        ours = f"{self._source.key}#"
        for line in self._target.read(self._searched):
            if isinstance(line, Line) and line.seq is not None:
                log, _, number = str(line.record.get("ref", "")).rpartition("#")
                if f"{log}#" == ours and number.isdecimal():
                    self._told = max(self._told, int(number))
                self._searched = line.cursor

    def _remember(self) -> None:
        state = {"searched": list(self._searched), "told": self._told}
        shown = {"from": self._source.key, "to": self._target.key, "read": self._read.seq}
        # Only a hint where to go on: `told` is as the target has it, without the newest lines.
        self._cell.save(_VERSION, Stamp(self._source.key, self._read, state), pretty(shown))

    def close(self) -> None:
        self._cell.close()

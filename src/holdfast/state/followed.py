"""A log as one handle follows it: what was read or written through it is not read again.

A file that ends where reading stopped stays shut, and the newest lines come from memory as long as
nobody else wrote.  Used by one thread at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from holdfast.codec import Record
from holdfast.store.primitives import START, BadLine, Cursor, Decide, Line, Log, T, Written

_MOST = 200
"""So many of the newest lines are kept."""


class Followed:
    def __init__(self, log: Log) -> None:
        self.log, self.key = log, log.key
        # A store in memory opens no files, and has none.
        self._ends_at: Callable[[Cursor], bool] = getattr(log, "ends_at", _unknown)
        self.find, self.segments, self.head = log.find, log.segments, log.head
        self.append_all, self.tell_of_cut = log.append_all, log.tell_of_cut
        self.verify, self.archive, self.close = log.verify, log.archive, log.close
        self._newest = deque[Line](maxlen=_MOST)
        """Lines that follow one another in one file."""
        self.keeps = False
        """Whether lines that a state decides on, or that are read, are kept as well."""
        self._durable = START
        """The newest line that is known to be durable."""
        self._there = set[Cursor]()
        """Lines that were asked for, and found."""

    def append(self, record: Record) -> Cursor:
        self._durable = self.log.append(record)
        return self._durable

    def write(self, decide: Decide[T]) -> Written[T]:
        written = self.log.write(decide)
        if written.lines:
            self.wrote(written.lines, keep=True)
        return written

    def wrote(self, lines: Sequence[Line], *, keep: bool = False) -> Cursor:
        """Take note of lines that are written, and not folded yet; the newest of them."""
        if keep or self.keeps:
            for line in lines:
                self._keep(line)
        self._durable = lines[-1].cursor
        return self._durable

    def _keep(self, line: Line | BadLine) -> Line | BadLine:
        last = self._newest[-1] if self._newest else line
        if (line.segment, line.offset) != (last.segment, last.end):
            self._newest.clear()
        if isinstance(line, Line) and line.seq is not None:
            self._newest.append(_copied(line))
        return line

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        newest = [*self._newest]
        places = [(line.segment, line.offset) for line in newest]
        if newest and newest[0].seq == 1 and after == START:
            after = after._replace(segment=newest[0].segment)
        if (place := (after.segment, after.offset)) in places and self._ends_at(newest[-1].cursor):
            return map(_copied, newest[places.index(place) :])
        if self._ends_at(after):
            return iter(())
        return map(self._keep, self.log.read(after)) if self.keeps else self.log.read(after)

    def settle(self) -> Cursor:
        if self._durable == START or not self._ends_at(self._durable):
            self._durable = self.log.settle()
        return self._durable

    def contains(self, cursor: Cursor) -> bool:
        if cursor in self._there or any(line.cursor == cursor for line in self._newest):
            return True
        if self.log.contains(cursor):
            self._there.add(cursor)
            return True
        return False


def _unknown(_: Cursor) -> bool:
    return False


def _copied(line: Line) -> Line:
    """Apart from the one that is folded: a state may keep parts of a record, and change them."""
    return line._replace(record=_apart(line.record))


def _apart(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _apart(each) for name, each in cast("Record", value).items()}
    return [*map(_apart, cast("list[Any]", value))] if isinstance(value, list) else value

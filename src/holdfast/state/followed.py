"""A log as one handle follows it: what was written through it is not read back.

A file that ends where the reader stopped stays shut, and the newest lines are given from memory as
long as nobody else wrote.  Used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy

from holdfast.codec import Record
from holdfast.store.primitives import START, BadLine, Cursor, Decide, Line, Log, T, Written

_MOST = 200
"""So many of the newest lines are kept."""


class Followed:
    def __init__(self, log: Log) -> None:
        self.log, self.key = log, log.key
        # A store in memory has nothing to save.
        self._ends_at = getattr(log, "ends_at", lambda _: False)
        self.find, self.segments, self.head = log.find, log.segments, log.head
        self.verify, self.archive, self.close = log.verify, log.archive, log.close
        self._newest = list[Line]()
        """The newest lines, one after another, if nobody else wrote."""
        self._durable = self._contained = START
        """Newest lines that are known to be durable, and to be there."""

    def append(self, record: Record) -> Cursor:
        self._durable = self.log.append(record)
        return self._durable

    def append_all(self, records: Sequence[Record]) -> list[Cursor]:
        return self.log.append_all(records)

    def write(self, decide: Decide[T]) -> Written[T]:
        written = self.log.write(decide)
        self.wrote(written.lines)
        return written

    def wrote(self, lines: Sequence[Line]) -> None:
        """Take note of lines that are written."""
        for line in lines:
            last = self._newest[-1] if self._newest else None
            if last is None or (line.segment, line.offset) != (last.segment, last.end):
                self._newest.clear()
            self._newest.append(line)
            self._durable = line.cursor
        del self._newest[:-_MOST]

    def tell_of_cut(self, lost: Cursor) -> Cursor:
        return self.log.tell_of_cut(lost)

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        starts = [(line.segment, line.offset) for line in self._newest]
        place = (after.segment, after.offset)
        if place in starts and self._ends_at(self._newest[-1].cursor):
            # Copied: a fold may keep parts of a record in its state, and change them there.
            yield from map(deepcopy, self._newest[starts.index(place) :])
        elif not self._ends_at(after):
            yield from self.log.read(after)

    def settle(self) -> Cursor:
        if self._durable == START or not self._ends_at(self._durable):
            self._durable = self.log.settle()
        return self._durable

    def contains(self, cursor: Cursor) -> bool:
        if cursor not in (self._contained, self._durable):
            if not self.log.contains(cursor):
                return False
            self._contained = cursor
        return True

"""The log on files: append-only, chained, durable when acknowledged.

Writing is in `appender`, the sharing of one write among threads in `commit`, reading and
verifying in `reader`, packing in `archive`; this is the handle that a caller holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.codec import Record, encode
from holdfast.errors import BadValue, HoldfastError, Indeterminate, NotOurs, from_os, typed
from holdfast.store import chain
from holdfast.store import vfs as files
from holdfast.store.appender import MARKER_SIZE, Appender, Past, cursor_of, lock_name, marker
from holdfast.store.archive import Archiver
from holdfast.store.chain import ORIGIN
from holdfast.store.commit import Body, GroupCommit, Ticket
from holdfast.store.index import Index
from holdfast.store.primitives import (
    CONTROL,
    CUT,
    START,
    Archived,
    BadLine,
    Cursor,
    Decide,
    Findings,
    Line,
    Question,
    T,
    Verified,
    Written,
)
from holdfast.store.reader import Source, line_of, read_lines, verify
from holdfast.store.segments import Segment, Series, Tail, Text, find_tail, opened, read_at

if TYPE_CHECKING:
    from holdfast.store.packed import Lost
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

ROTATE_AT = 100_000_000


class FileLog:
    def __init__(self, place: Place, series: Series, *, rotate_at: int = ROTATE_AT) -> None:
        self._place, self._series, self._rotate_at = place, series, rotate_at
        self._vfs = place.tools.vfs
        self._past = Past()
        self._seen: Segment | None = None
        """The newest segment, once the lock file was seen to name it."""
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._commit = GroupCommit(self._write)
        self._appender: Appender | None = None

    # -- writing -----------------------------------------------------------------------

    def append(self, record: Record) -> Cursor:
        body = self._encoded(self._place.tools.mask(record))
        if self._commit.leader is None and os.getpid() == self._pid:
            cursor = self._commit.lead_alone(self._write_one, body)
            if cursor is not None:
                return cursor
        return self._submit(Ticket([body]))[0]

    def append_all(self, records: Sequence[Record]) -> list[Cursor]:
        clean = map(self._place.tools.mask, records)
        return self._submit(Ticket([self._encoded(record) for record in clean]))

    def write(self, decide: Decide[T]) -> Written[T]:
        ticket = Ticket([], decide)
        lines: list[Line] = []
        for cursor, raw in zip(self._submit(ticket), ticket.written, strict=True):
            line = line_of(raw[:-1], cursor.segment, cursor.offset - len(raw), cursor.offset)
            assert isinstance(line, Line)
            lines.append(line)
        return Written(lines, ticket.value, ticket.masked)

    def tell_of_cut(self, lost: Cursor) -> Cursor:
        body = encode({CONTROL: CUT, "lost": lost.seq, "hash_of_lost": lost.hash})
        return self._submit(Ticket([(body, False)]))[0]

    def _encoded(self, record: Record) -> Body:
        """The bytes of a record without secrets."""
        own_stamp = "ts" in record
        if own_stamp and self._series.stem is None:
            raise BadValue("`ts` is set by the log", hint="give another time another name")
        return chain.body(record), own_stamp

    def _submit(self, ticket: Ticket) -> list[Cursor]:
        if os.getpid() != self._pid:
            # A forked child shares its parent's locks through the descriptors: open its own.
            self.close()
            self._start()
        return self._commit.submit(ticket)

    def _write(self, batch: list[Ticket]) -> None:
        try:
            if self._appender is None:
                self._appender = Appender(
                    self._place, self._series, self._encoded, self._rotate_at, self._past
                )
            self._appender.write(batch)
        except OSError as error:
            raise self._lost(error) from error

    def _write_one(self, body: Body) -> Cursor | None:
        try:
            return self._appender.append_one(*body) if self._appender is not None else None
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> HoldfastError:
        """The directory may have been taken away: begin at the root again next time."""
        self.close()
        return from_os(error, "appending to the log", self.key)

    def close(self) -> None:
        appender, self._appender = self._appender, None
        if appender is not None:
            appender.close()

    def archive(self, *, before: str | None = None, dry_run: bool = False) -> list[Archived]:
        if before is not None and self._series.stem is not None:
            raise BadValue("only a log by days has days", hint="leave `before` out")
        archiver = Archiver(self._place, self._series)
        with typed("archiving the log", self.key):
            return archiver.run(before, dry_run=dry_run)

    # -- reading -----------------------------------------------------------------------

    @property
    def key(self) -> str:
        stem = self._series.stem
        return "/".join((*self._place.parts, f"{stem}.jsonl") if stem else self._place.parts)

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        return read_lines(self._sources(after))

    def find(self, question: Question) -> Findings:
        cache = self._place._replace(parts=("cache", *self.key.split("/")))
        with typed("reading the log", self.key):
            return Index(self._place, cache, self._series, question).answer()

    def verify(self) -> Verified:
        return verify(self._sources(START))

    def _sources(self, after: Cursor) -> Iterator[Source]:
        with typed("reading the log", self.key):
            yield from self._readable(after)

    def _readable(self, after: Cursor) -> Iterator[Source]:
        with self._place.opened() as directory:
            if directory is None:
                return
            first = self._series.parse(after.segment) if after.segment else None
            segments = self._segments_from(directory, first)
            for segment in segments:
                start = after.offset if segment == first else 0
                with opened(self._vfs, directory, segment) as text:
                    chunks = self._chunks(text, start)
                    yield Source(segment.filename, start, segment == segments[-1], chunks)

    def _chunks(self, text: Text, offset: int) -> Iterator[bytes | Lost]:
        with typed("reading the log", self.key):
            yield from text.chunks(offset)

    def _segments_from(self, directory: Dir, first: Segment | None) -> list[Segment]:
        """Listed only if there is more than the first: what is behind a reader grows for ever."""
        if first is not None and self._marked(directory) == first:
            return [first]
        return [each for each in self._listed(directory) if first is None or each >= first]

    def _marked(self, directory: Dir) -> Segment | None:
        """The newest segment, if the lock file can be believed.

        Not in a log by days, where others put files of their own.
        """
        if self._seen is None or self._series.stem is None:
            return None
        named = self._hint(directory).decode("ascii", "replace")
        segment = self._series.parse(named.strip())
        if segment is None or segment < self._seen or not directory.stat(segment.filename):
            return None
        self._seen = segment
        return segment

    def _listed(self, directory: Dir) -> list[Segment]:
        # A marker from before a power cut may name an older one.  Once it was seen to be right
        # it stays so: it is emptied before a new name is linked.
        seen = self._hint(directory)
        segments = self._series.segments(directory)
        newest = segments[-1] if segments else None
        self._seen = newest if newest and seen == marker(newest.filename) else None
        return segments

    def _hint(self, directory: Dir) -> bytes:
        """The marker for one who only reads, and could do without."""
        try:
            return self._marker(directory)
        except (OSError, NotOurs):
            return b""

    def segments(self) -> list[str]:
        with typed("reading the log", self.key), self._place.opened() as directory:
            found = self._series.segments(directory) if directory else []
            return [segment.filename for segment in found]

    def head(self) -> Cursor:
        return self._newest(durable=False)

    def settle(self) -> Cursor:
        return self._newest(durable=True)

    def _newest(self, *, durable: bool) -> Cursor:
        with typed("reading the log", self.key), self._place.opened() as directory:
            if directory is None:
                return START
            marked = self._marked(directory)
            segments = [marked] if marked else self._listed(directory)
            if durable and segments and segments[-1].filename == self._past.failed:
                # Synced again it would say yes, whatever is on the disk.
                self._go_on()
                segments = self._series.segments(directory)
            if not (durable and segments and directory.stat(segments[-1].filename)):
                return cursor_of(self._tail(directory, segments))
            newest = segments[-1].filename
            # Opened before the tail is looked at: if its sync fails from then on, we are told too.
            with files.reading(self._vfs, directory, newest) as fd:
                tail = self._tail(directory, segments)
                self._make_durable(directory, newest, fd)
            return cursor_of(tail)

    def _tail(self, directory: Dir, segments: list[Segment]) -> Tail:
        tail = find_tail(self._vfs, directory, segments)
        if tail.link is ORIGIN and len(segments) == 1:
            return find_tail(self._vfs, directory, self._listed(directory))
        return tail

    def _go_on(self) -> None:
        """Leave a segment under which the disk failed."""
        self._submit(Ticket([]))

    def _make_durable(self, directory: Dir, filename: str, fd: int) -> None:
        """Only the newest segment can be behind; its maker may have died before the sync."""
        try:
            self._sync(fd, filename)
            if self._marker(directory) != marker(filename):
                directory.sync(up=len(self._place.parts))
        except OSError as error:
            raise Indeterminate(
                f"the disk failed while {filename} was made durable: {error.strerror}",
                hint="look at the disk before you rely on the newest lines",
                path=self.key,
            ) from error

    def _sync(self, fd: int, filename: str) -> None:
        try:
            self._vfs.sync(fd)
        except OSError as error:
            self._past.note(filename, error)
            with suppress(HoldfastError):
                self._go_on()
            raise

    def _marker(self, directory: Dir) -> bytes:
        try:
            with files.reading(self._vfs, directory, lock_name(self._series)) as fd:
                return self._vfs.pread(fd, MARKER_SIZE, 0)
        except FileNotFoundError:
            return b""

    def contains(self, cursor: Cursor) -> bool:
        if cursor == START:
            return True
        with typed("reading the log", self.key), self._place.opened() as directory:
            segment = self._series.parse(cursor.segment)
            if directory is None or segment is None:
                return False
            try:
                with opened(self._vfs, directory, segment) as text:
                    if not 0 < cursor.offset <= text.size:
                        return False
                    start = max(0, cursor.offset - chain.SUFFIX_SPAN)
                    data = read_at(text, start, cursor.offset - start)
            except (FileNotFoundError, NotOurs):
                return False
        return data.endswith(chain.suffix(cursor.seq, cursor.hash))

    def ends_at(self, cursor: Cursor) -> bool:
        """Whether the newest file has the size that the cursor names; no file is opened."""
        with typed("reading the log", self.key), self._place.opened() as directory:
            segments = self._series.segments(directory) if directory else []
            if directory is None or not segments:
                return cursor == START
            newest = segments[-1].filename
            found = directory.stat(newest)
            known = cursor.segment == newest or (cursor == START and len(segments) == 1)
            return known and found is not None and found.size == cursor.offset

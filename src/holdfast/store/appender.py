"""The writing side of a log on files.

The protocol of an append, in this order:

    lock · look at the tail · write whole lines · unlock · fdatasync · acknowledge

A new segment is made under the lock with its first line: hidden temporary, fdatasync, link,
fsync of the directory.  The segment before it is made durable first, so that only the
newest one can ever be behind.  An fdatasync that failed is never tried again: the log goes
on in a new segment whose first line names the failed one.

The lock file holds the name of the newest segment whose directory entry is durable.  It
is a hint for living processes (if it is not the name you know, list again and sync the
directory); after a reboot whatever can be seen is durable anyway.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.clock import utc_stamp
from holdfast.codec import Record, encode
from holdfast.errors import HoldfastError, Indeterminate, from_os
from holdfast.store import chain
from holdfast.store import vfs as files
from holdfast.store.chain import ORIGIN, Hash, Link
from holdfast.store.commit import Body, Ticket
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import CONTROL, FAILED, START, Cursor
from holdfast.store.segments import Plain, Segment, Series, Tail, find_tail, tail_of

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

MARKER_SIZE = 256


def marker(filename: str) -> bytes:
    """What the lock file holds when the entry of `filename` is durable."""
    return filename.encode().ljust(MARKER_SIZE - 1) + b"\n"


def lock_name(series: Series) -> str:
    return f".{series.stem}.jsonl.lock" if series.stem else ".lock"


class Past:
    """What a handle remembers for its life, whatever becomes of its appender."""

    __slots__ = ("failed", "why")

    def __init__(self) -> None:
        self.failed = self.why = ""
        """The segment under which the disk failed last, and how."""

    def note(self, filename: str, error: OSError) -> None:
        self.failed, self.why = filename, errno.errorcode.get(error.errno or 0, "?")


class _Active:
    """The segment being appended to, as this process last saw it."""

    __slots__ = ("cursor", "end", "fd", "filename", "gap", "inode", "link", "packed", "segment")

    def __init__(self, segment: Segment, fd: int, inode: int, *, packed: bool = False) -> None:
        self.segment, self.fd, self.inode, self.packed = segment, fd, inode, packed
        self.filename = segment.filename
        self.end = 0
        self.link: Link = ORIGIN
        self.cursor: Cursor = START
        self.gap: Hash | None = None

    def follow(self, tail: Tail, end: int) -> None:
        """Go on from a tail that was read from disk."""
        cursor = cursor_of(tail)
        self.end, self.link, self.gap, self.cursor = end, tail.link, tail.gap, cursor

    def grow(self, length: int, link: Link) -> None:
        """Go on from a line that we wrote."""
        end = self.end + length
        cursor = Cursor(link.seq, link.digest.hex(), self.filename, end)
        self.end, self.link, self.gap, self.cursor = end, link, None, cursor


def cursor_of(tail: Tail) -> Cursor:
    if tail.link is ORIGIN:
        return START
    return Cursor(tail.link.seq, tail.link.digest.hex(), tail.segment, tail.offset)


class Appender:
    """Used by one thread at a time."""

    def __init__(
        self,
        place: Place,
        series: Series,
        encoded: Callable[[Record], Body],
        rotate_at: int,
        past: Past,
    ) -> None:
        self._series, self._encoded, self._rotate_at = series, encoded, rotate_at
        self._tools, self._vfs = place.tools, place.tools.vfs
        self._place = place
        self._dir: Dir = place.make()
        self._lock = Lock(self._dir, lock_name(series), self._vfs, place.tools.clock)
        self._active: _Active | None = None
        self._marker: bytes | None = None
        """What the lock file says as long as we are right; None when it can say nothing."""
        self._checked = 0
        self._past = past
        self._pending: list[tuple[Ticket, bytes, Link]] = []
        self._unsynced: list[Ticket] = []
        self._second, self._stamp, self._day = -1, b"", ""

    def write(self, batch: list[Ticket]) -> None:
        """Append all tickets of a batch and make them durable."""
        try:
            self._lock.acquire()
            self._look()
            self._read_clock()
            for ticket in batch:
                self._take(ticket)
            self._flush()
            active = self._active
        finally:
            self._lock.release()
        hit("log.append.unlocked")
        if active is not None and self._unsynced:
            self._make_durable(active)
        hit("log.append.synced")

    def append_one(self, data: bytes, own_stamp: bool) -> Cursor | None:
        """The same for one line, if nothing is in the way; None: nothing was done.

        Written out, for after each sync the processor has forgotten what it ran before, and to
        call a function takes longer than what the function does.
        """
        active, lock, vfs = self._active, self._lock, self._vfs
        try:
            if active is None or not lock.take():
                return None
            known = lock.version and lock.version == self._checked and active.gap is None
            if not known or vfs.size(active.fd) != active.end:
                self._look()
                active = self._active
            if int(self._tools.clock.now()) != self._second:
                self._read_clock()
            if active is None or active.gap is not None:
                return None
            if self._is_over(active):
                return None
            if not own_stamp:
                data = b"{%b,%b" % (self._stamp, data[1:])
            line, link = chain.seal(data, active.link, alone=True)
            try:
                done, failure = vfs.write(active.fd, line), None
            except OSError as error:
                done, failure = 0, error
            if done < len(line):
                self._go_on_writing(line, link, done, failure)
            else:
                hit("log.append.written")
                end = active.end + done
                cursor = Cursor(link.seq, link.digest.hex(), active.filename, end)
                active.end, active.link, active.cursor = end, link, cursor
            cursor = active.cursor
        finally:
            lock.release()
        hit("log.append.unlocked")
        try:
            vfs.sync(active.fd)
        except OSError as error:
            raise self._abandoned(active, error) from error
        hit("log.append.synced")
        return cursor

    def _go_on_writing(self, line: bytes, link: Link, done: int, failure: OSError | None) -> None:
        """One line of which `done` bytes were written."""
        self._unsynced.clear()
        ticket = Ticket([])
        self._pending = [(ticket, line, link)]
        try:
            self._flush(done, failure)
        except OSError as error:
            ticket.fail(from_os(error, "appending to the log"))
        except HoldfastError as error:
            ticket.fail(error)
        if ticket.error is not None:
            raise ticket.error

    def close(self) -> None:
        self._drop_active()
        self._lock.close()
        self._place.close(self._dir)

    # -- one batch ---------------------------------------------------------------------

    def _take(self, ticket: Ticket) -> None:
        try:
            bodies = ticket.bodies
            if ticket.decide is not None:
                if self._pending:
                    self._flush()
                bodies = self._decided(ticket)
            elif not bodies:
                self._leave_failed()
            for data, own_stamp in bodies:
                self._put(ticket, data if own_stamp else b"{%b,%b" % (self._stamp, data[1:]))
        except OSError as error:
            ticket.fail(from_os(error, "appending to the log"))
        except HoldfastError as error:
            ticket.fail(error)
        if self._active is None:
            self._list_again(b"")  # never take a log that we lost sight of for an empty one

    def _leave_failed(self) -> None:
        """Who brings nothing wants the log to go on behind a segment that failed."""
        if self._active is not None and self._active.filename == self._past.failed:
            self._begin_segment(None)

    def _decided(self, ticket: Ticket) -> list[Body]:
        active, bodies = self._active, list[Body]()
        here = active.cursor if active else START
        if active and active.gap is not None:
            here = here._replace(segment="", offset=-1)
        try:
            assert ticket.decide is not None
            records, ticket.value = ticket.decide(here)
            for record in records:
                clean = self._tools.mask(record)
                ticket.masked = ticket.masked or clean is not record
                bodies.append(self._encoded(clean))
            return bodies
        except Exception as error:
            # Whatever goes wrong in one caller's function is that caller's alone.
            ticket.fail(error)
            return []

    def _put(self, ticket: Ticket, data: bytes) -> None:
        active, pending = self._active, self._pending
        if pending:
            line, link = chain.seal(data, pending[-1][2])
        elif active is None or self._is_over(active):
            cursor, line = self._begin_segment(data)
            ticket.wrote(cursor, line)
            return
        else:
            line, link = chain.seal(data, active.link, active.gap)
        pending.append((ticket, line, link))

    def _is_over(self, active: _Active) -> bool:
        if self._series.stem is None and self._day > active.segment.stem:
            return True
        if active.packed:
            return True
        return active.end >= self._rotate_at or active.filename == self._past.failed

    def _flush(self, done: int = 0, failure: OSError | None = None) -> None:
        """Write the pending lines; if that fails, only whole lines stay in the file.

        `done` is how much of them was written before, and `failure` what ended that.
        """
        active, pending = self._active, self._pending
        if active is None or not pending:
            return
        self._pending = []
        data = pending[0][1] if len(pending) == 1 else b"".join([line for _, line, _ in pending])
        try:
            while failure is None and done < len(data):
                done += self._vfs.write(active.fd, memoryview(data)[done:] if done else data)
        except OSError as error:
            failure = error
        hit("log.append.written")
        whole = 0
        for ticket, line, link in pending:
            if done < len(line):
                break
            done -= len(line)
            whole += 1
            active.grow(len(line), link)
            ticket.wrote(active.cursor, line)
            self._unsynced.append(ticket)
        if failure is not None:
            try:
                self._cut_fragment(active, pending[whole], done, failure)
            finally:
                for ticket, _, _ in pending[whole:]:
                    ticket.fail(_half_done(ticket, failure))

    def _cut_fragment(
        self, active: _Active, torn: tuple[Ticket, bytes, Link], done: int, failure: OSError
    ) -> None:
        """Cut our own half-written line: nobody took it for a line, and we hold the lock."""
        try:
            self._vfs.truncate(active.fd, active.end)
        except OSError:
            # It stays, as one bad line; unless it lacks nothing but its LF.
            ticket, line, _ = torn
            if done == len(line) - 1:
                ticket.fail(_not_durable(active.filename, failure.strerror))
            self._close_off(active)
            self._list_again(b"")

    def _make_durable(self, active: _Active) -> None:
        try:
            self._vfs.sync(active.fd)
        except OSError as error:
            raise self._abandoned(active, error) from error

    # -- the active segment ------------------------------------------------------------

    def _look(self) -> None:
        """See what others did since we last held the lock."""
        self._unsynced.clear()
        self._pending.clear()
        active, version = self._active, self._lock.version
        if active is None or not version or version != self._checked:
            self._checked = 0
            seen = self._vfs.pread(self._lock.fd, MARKER_SIZE, 0)
            found = self._dir.stat(active.filename) if active and seen == self._marker else None
            if active is None or found is None or found.inode != active.inode:
                if not self._follow(seen):
                    self._list_again(seen)
                return
            self._checked = version
        size = self._vfs.size(active.fd)
        if size == active.end and active.gap is None:
            return
        if size > chain.SUFFIX_SPAN:
            last = self._vfs.pread(active.fd, chain.SUFFIX_SPAN, size - chain.SUFFIX_SPAN)
            link = chain.link_at_end(last)
            if link is not None:
                # The common case among many writers: somebody else's whole line.
                active.follow(Tail(link, active.filename, size, None, torn=False), size)
                return
        tail = tail_of(Plain(self._vfs, active.fd), active.filename, unended=True)
        if tail.link is ORIGIN:
            self._list_again(self._vfs.pread(self._lock.fd, MARKER_SIZE, 0))
        else:
            self._take_over(active, tail)

    def _take_over(self, active: _Active, tail: Tail) -> None:
        """Go on behind a tail, ending its last line if somebody died over it."""
        if tail.torn:
            self._vfs.write(active.fd, b"\n")
            if tail.gap is None:
                tail = tail._replace(offset=tail.offset + 1)  # the line lacked only this
            else:
                tail.gap.update(b"\n")
        # The tail may be in an older file: somebody left an empty one, or one of foreign lines.
        ends_here = tail.gap is None and tail.segment == active.filename
        active.follow(tail, tail.offset if ends_here else self._vfs.size(active.fd))

    def _follow(self, seen: bytes) -> bool:
        """Go on in the segment that somebody began since we looked, if the lock file names it.

        Whoever writes on does not list what is behind him: it grows for ever.
        """
        active, known = self._active, self._marker is not None
        segment = self._series.parse(seen.decode("ascii", "replace").strip())
        if active is None or segment is None or not known or segment <= active.segment:
            return False
        self._marker = None
        try:
            fd = self._dir.open(segment.filename, files.APPEND)
        except FileNotFoundError:
            return False
        self._drop_active()
        self._active = fresh = _Active(segment, fd, self._vfs.inode(fd))
        tail = tail_of(Plain(self._vfs, fd), segment.filename, unended=True)
        if tail.link is ORIGIN:
            return False
        self._take_over(fresh, tail)
        self._marker = seen
        return True

    def _list_again(self, seen: bytes) -> None:
        self._drop_active()
        self._marker = None
        self._remove_temporaries()
        segments = self._series.segments(self._dir)
        if not segments:
            return
        newest = segments[-1]
        if self._dir.stat(newest.filename) is None:
            self._follow_packed(newest, find_tail(self._vfs, self._dir, segments))
            return
        tail = find_tail(self._vfs, self._dir, segments, unended=True)
        fd = self._dir.open(newest.filename, files.APPEND)
        self._active = _Active(newest, fd, self._vfs.inode(fd))
        self._take_over(self._active, tail)
        durable = marker(newest.filename)
        if seen != durable:
            # Its maker died between the link and the sync of the directory.
            self._dir.sync(up=len(self._place.parts))
            self._vfs.pwrite(self._lock.fd, durable, 0)
        self._marker = durable

    def _follow_packed(self, newest: Segment, tail: Tail) -> None:
        """The file behind a packed segment was taken away: the next line begins a new one."""
        fd = self._dir.open(newest.packed, files.READ)
        self._active = _Active(newest, fd, self._vfs.inode(fd), packed=True)
        self._active.follow(tail, tail.offset)

    def _remove_temporaries(self) -> None:
        """Segments are made under the lock we hold, so whoever left these is dead."""
        for name in self._dir.names():
            if name.startswith(".") and name.endswith(".tmp") and self._series.parse(name[1:-4]):
                self._dir.unlink(name)

    def _begin_segment(self, data: bytes | None) -> tuple[Cursor, bytes]:
        """Open the next segment with its first line, durably; its last line."""
        before = self._active
        if before is not None:
            self._close_off(before)
        segment = self._series.next(before.segment if before else None, self._day)
        link, gap = (before.link, before.gap) if before else (ORIGIN, None)
        text = line = b""
        failed = before is not None and before.filename == self._past.failed
        for body in (self._obituary() if failed else None, data):
            if body is not None:
                line, link = chain.seal(body, link, gap)
                text, gap = text + line, None
        fresh = self._publish(segment, text, first=before is None)
        fresh.grow(len(text), link)
        self._drop_active()
        self._active, self._marker = fresh, marker(fresh.filename)
        return fresh.cursor, line

    def _close_off(self, before: _Active) -> None:
        """Make a segment durable that gets no more lines, unless it failed."""
        try:
            if before.filename != self._past.failed:
                self._vfs.sync(before.fd)
        except OSError as error:
            self._past.note(before.filename, error)
            for ticket in self._unsynced:
                ticket.fail(_not_durable(before.filename, error.strerror))
        self._unsynced.clear()

    def _obituary(self) -> bytes:
        """The line that tells of a failed segment; the first one of the next, if we open it."""
        name, why = self._past.failed, self._past.why
        boot = self._tools.clock.boot()
        record = {CONTROL: FAILED, "segment": name, "error": why, "boot": boot}
        return b"{%b,%b" % (self._stamp, encode(record)[1:])

    def _publish(self, segment: Segment, data: bytes, *, first: bool) -> _Active:
        directory, name = self._dir, segment.filename
        temporary = f".{name}.tmp"
        if directory.stat(temporary) is not None:
            directory.unlink(temporary)
        fd = directory.open(temporary, files.CREATE_NEW | files.APPEND)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._vfs.write(fd, rest) :]
            self._vfs.sync(fd)
            hit("segment.written")
            self._unmark()
            directory.link(temporary, name)
        except OSError:
            self._vfs.close(fd)
            with suppress(OSError):
                directory.unlink(temporary)
            raise
        hit("segment.linked")
        try:
            directory.unlink(temporary)
            directory.sync(up=len(self._place.parts) if first else 0)
        except OSError as error:
            self._vfs.close(fd)
            self._past.note(name, error)
            self._drop_active()
            raise _not_durable(name, error.strerror) from error
        with suppress(OSError):
            # A hint: without it everybody only looks twice.
            self._vfs.pwrite(self._lock.fd, marker(name), 0)
        hit("segment.durable")
        return _Active(segment, fd, self._vfs.inode(fd))

    def _abandoned(self, active: _Active, error: OSError) -> Indeterminate:
        """Never sync a file again that failed once: go on in the next segment."""
        failed = _not_durable(active.filename, error.strerror)
        self._past.note(active.filename, error)
        # If the disk refuses that too, the next append begins with it.
        with suppress(OSError, HoldfastError), self._lock:
            self._look()
            self._read_clock()
            if self._active is None:
                return failed
            if self._active.filename == active.filename:
                self._begin_segment(None)
            else:
                # Somebody else has opened the next one meanwhile, and knows of nothing.
                self._put(Ticket([]), self._obituary())
                self._flush()
                self._close_off(self._active)
        return failed

    def _unmark(self) -> None:
        """Make everybody look again, ourselves too, whatever happens next."""
        self._marker = None
        self._vfs.pwrite(self._lock.fd, marker(""), 0)

    def _read_clock(self) -> None:
        now = self._tools.clock.now()
        if int(now) != self._second:
            local = self._tools.local(now)
            text = utc_stamp(now) if self._series.stem else local
            stamp, day, second = b'"ts":"%b"' % text.encode(), local[:10], int(now)
            self._stamp, self._day, self._second = stamp, day, second
        active = self._active
        if active is not None and self._series.stem is None and self._day < active.segment.stem:
            where = "/".join(self._place.parts)
            detail = f"{where}: it is {self._day} by the clock, but {active.filename} is there"
            self._tools.notice("clock_went_back", detail)

    def _drop_active(self) -> None:
        active, self._active, self._checked = self._active, None, 0
        if active is not None:
            self._vfs.close(active.fd)


def _not_durable(filename: str, why: str | None) -> Indeterminate:
    return Indeterminate(
        f"the disk failed while {filename} was made durable: {why}",
        hint="the line may or may not be there; read the log, then look at the disk",
    )


def _half_done(ticket: Ticket, failure: OSError) -> HoldfastError:
    if ticket.cursors:
        count = len(ticket.cursors)
        return Indeterminate(
            f"only the first {count} lines were written: {failure.strerror}",
            hint="write the others again when there is room",
        )
    return from_os(failure, "appending to the log")

"""Where in a log the lines stand that have certain values in certain fields.

One file in `cache/` for each segment: for every value of the fields that were asked for, the
offsets of its lines.  It only says where to look: each line is read from the log and judged
there, and what lies after the end of the index is read as it would be without one.  An index
holds as long as the bytes that it was made from are the same: those of a segment that gets no
more lines by its inode, size and time, those of the newest one by a checksum.  It is made by
the first question, never by a writer, and may be deleted at any time.  (Not SQLite: that would
open files by path, past the vfs.)
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from holdfast.codec import MAX_LINE, DecodeError, decode, encode
from holdfast.errors import HoldfastError
from holdfast.store.document import read_file, write_temporary
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import CONTROL, BadLine, Findings, Line, Question
from holdfast.store.reader import Source, read_lines
from holdfast.store.segments import Segment, Series, Text, opened

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_VERSION = f"2 {sys.byteorder}"
_DAMAGED = 0
"""In place of a value: lines that are no records."""
_AT_ONCE = 256
_END = 1 << 15
"""Bytes at the end of a segment that are read for the newest lines, at first."""
_LOCK = ".lock"

Offsets = Sequence[int]


class _Part(NamedTuple):
    """The index of one segment."""

    fields: tuple[str, ...]
    """Whose values it knows."""
    end: int
    """So many bytes of its text are taken in."""
    checksum: int
    """Of those bytes."""
    size: int
    """Of its text, when it was last taken in."""
    stamp: list[int | float]
    """Of the file, then."""
    keys: Offsets
    starts: Offsets
    offsets: Offsets

    def of(self, key: int) -> Offsets:
        at = bisect_left(self.keys, key)
        if at == len(self.keys) or self.keys[at] != key:
            return ()
        return self.offsets[self.starts[at] : self.starts[at + 1]]


_NOTHING = _Part((), 0, 0, -1, [], (), (0,), ())


class Index:
    """Used for one question."""

    def __init__(self, log: Place, cache: Place, series: Series, question: Question) -> None:
        self._log, self._cache, self._series = log, cache, series
        self._question = question
        self._keys = [_key(*pair) for pair in question.fields.items()]
        self._newest: Segment | None = None
        self._size = self._done = 0

    def answer(self) -> Findings:
        """The last lines that are asked for, oldest first."""
        lines, damaged, most = list[Line](), list[tuple[str, int]](), self._question.newest
        with self._log.opened() as directory:
            segments = self._series.segments(directory) if directory is not None else []
            for segment in reversed(segments):
                if directory is None or segment.stem < self._question.since:
                    break
                self._newest = self._newest or self._look(directory, segments)
                missing = None if most is None else most - len(lines)
                with opened(self._log.tools.vfs, directory, segment) as text:
                    part = self._current(directory, segment, text)
                    found, bad = self._of(segment, text, part, missing)
                lines[:0] = found
                damaged += [(segment.filename, offset) for offset in bad]
                if most is not None and len(lines) >= most:
                    break
        return Findings(lines if most is None else lines[max(0, len(lines) - most) :], damaged)

    def _of(
        self, segment: Segment, text: Text, part: _Part, most: int | None
    ) -> tuple[list[Line], Offsets]:
        name, wanted = segment.filename, self._question.wants
        span = _END
        while True:
            # Without an index, or after it: ever larger parts of the end.
            start = part.end if most is None else max(part.end, text.size - span)
            bad, lines = [*part.of(_DAMAGED)], list[Line]()
            for line in read_lines(
                [Source(name, start, segment == self._newest, text.chunks(start))]
            ):
                if start > part.end and line.offset <= start:
                    continue  # what the part begins with is the rest of a line
                if isinstance(line, BadLine):
                    bad.append(line.offset)
                elif wanted(line):
                    lines.append(line)
            if most is None or start == part.end or len(lines) >= most:
                break
            span *= 8
        missing = None if most is None else max(0, most - len(lines))
        hits = min((part.of(key) for key in self._keys), key=len, default=())
        found, stop = list[Line](), len(hits)
        while stop and (missing is None or len(found) < missing):
            start = max(0, stop - max(_AT_ONCE, missing or 0)) if missing is not None else 0
            found[:0] = filter(wanted, _lines_at(name, text, hits[start:stop]))
            stop = start
        return [*found, *lines], bad

    # -- keeping it true ---------------------------------------------------------------

    def _current(self, directory: Dir, segment: Segment, text: Text) -> _Part:
        """The index as far as it holds, brought up where that is worth the while."""
        question = self._question
        if not self._keys or self._size < question.worth:
            return _NOTHING
        name, newest = segment.filename, segment == self._newest
        stamp, part = _stamp(directory, segment), self._load(name)
        if not question.fields.keys() <= {*part.fields}:
            part = _NOTHING._replace(fields=tuple(sorted({*part.fields, *question.fields})))
        if not newest and (part.size, part.stamp) == (text.size, stamp):
            return part
        if _checksum(text, part.end) != part.checksum:
            part = _NOTHING._replace(fields=part.fields)
        if not newest or text.size - part.end > question.behind:
            part = self._taken_in(part, name, text, stamp)
            self._save(name, part)
        return part

    def _look(self, directory: Dir, segments: Sequence[Segment]) -> Segment:
        """How large the log is, and which of its segments gets more lines."""
        stamps = [_stamp(directory, segment) for segment in segments] if self._keys else []
        self._size = int(sum(stamp[1] for stamp in stamps if stamp))
        return segments[-1]

    def _taken_in(self, part: _Part, name: str, text: Text, stamp: list[int | float]) -> _Part:
        found: dict[int, array[int]] = {key: array("Q", part.of(key)) for key in part.keys}
        known: dict[tuple[str, str], array[int]] = {}
        end, checksum = part.end, part.checksum
        for block in _blocks(text, end):
            for line in read_lines([Source(name, end, True, iter([block]))]):
                if isinstance(line, BadLine):
                    found.setdefault(_DAMAGED, array("Q")).append(line.offset)
                    continue
                record = self._question.reads(line)
                pairs = [(name, record.get(name)) for name in part.fields]
                for name, value in () if CONTROL in record else pairs:
                    if not isinstance(value, str):
                        continue
                    pair = name, value
                    if (places := known.get(pair)) is None:
                        places = known[pair] = found.setdefault(_key(*pair), array("Q"))
                    places.append(line.offset)
            end, checksum = end + len(block), crc32(block, checksum)
            self._tell(len(block))
        keys, starts, offsets = array("Q", sorted(found)), array("Q", [0]), array("Q")
        for key in keys:
            offsets += found[key]
            starts.append(len(offsets))
        return _Part(part.fields, end, checksum, text.size, stamp, keys, starts, offsets)

    def _tell(self, count: int) -> None:
        self._done += count
        if self._question.progress is not None:
            self._question.progress(self._done, max(self._done, self._size))

    # -- its files ---------------------------------------------------------------------

    def _load(self, name: str) -> _Part:
        try:
            with self._cache.opened() as directory:
                vfs = self._cache.tools.vfs
                found = read_file(vfs, directory, _file(name)) if directory else None
            return _parsed(found or b"")
        except (HoldfastError, OSError, DecodeError, ValueError, TypeError):
            return _NOTHING

    def _save(self, name: str, part: _Part) -> None:
        """Put it in place whole; that it cannot be kept must not hurt who only asks."""
        if not self._question.keep:
            return
        with suppress(HoldfastError, OSError):
            directory, tools = self._cache.make(), self._cache.tools
            lock = Lock(directory, _LOCK, tools.vfs, tools.clock)
            try:
                lock.acquire(0.0)
                data = _written(part)
                temporary = write_temporary(tools.vfs, directory, _file(name), data, durable=False)
                hit("index.written")
                directory.rename(temporary, _file(name))
            finally:
                lock.close()
                self._cache.close(directory)


def _key(name: str, value: str) -> int:
    text = f"{name}\0{value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


# --- reading the segments -------------------------------------------------------------------


def _stamp(directory: Dir, segment: Segment) -> list[int | float]:
    found = directory.stat(segment.filename) or directory.stat(segment.packed)
    return [found.inode, found.size, found.mtime] if found else []


def _blocks(text: Text, start: int) -> Iterator[bytes]:
    """Whole lines from `start` on, up to where a line has no end or bytes are lost."""
    rest = b""
    for chunk in text.chunks(start):
        if not isinstance(chunk, bytes) or len(rest) > 2 * MAX_LINE:
            return
        data = rest + chunk
        cut = data.rfind(b"\n") + 1
        if cut:
            yield data[:cut]
        rest = data[cut:]


def _checksum(text: Text, end: int) -> int | None:
    """Of the first bytes of a text; None if they are not all there."""
    found, left = 0, end
    for chunk in text.chunks(0) if end else ():
        if not isinstance(chunk, bytes):
            return None
        found = crc32(chunk[:left], found)
        left -= min(left, len(chunk))
        if not left:
            break
    return None if left else found


def _lines_at(name: str, text: Text, hits: Offsets) -> Iterator[Line]:
    """The lines that begin at these offsets, which ascend."""
    at, data = 0, b""
    for place in hits:
        if place >= at + len(data):
            at, data = place, b""
        begin = place - at
        while (cut := data.find(b"\n", begin)) < 0:
            more = next(iter(text.chunks(at + len(data))), None)
            if not isinstance(more, bytes) or len(data) - begin > 2 * MAX_LINE:
                break
            at, data, begin = place, data[begin:] + more, 0
        if cut >= 0:
            raw = data[begin : cut + 1]
            yield from _of(read_lines([Source(name, place, True, iter([raw]))]))


def _of(lines: Iterable[Line | BadLine]) -> Iterator[Line]:
    for line in lines:
        if isinstance(line, Line) and CONTROL not in line.record:
            yield line


# --- its form -------------------------------------------------------------------------------


def _file(name: str) -> str:
    return f"{name}.index"


def _written(part: _Part) -> bytes:
    head = {
        "version": _VERSION,
        "fields": " ".join(part.fields),
        "end": part.end,
        "checksum": part.checksum,
        "size": part.size,
        "stamp": part.stamp,
        "counts": [len(part.keys), len(part.offsets)],
    }
    body = b"".join(bytes(each) for each in (part.keys, part.starts, part.offsets))
    rest = encode(head) + b"\n" + body
    return b"%08x\n" % crc32(rest) + rest


def _parsed(data: bytes) -> _Part:
    """The index in the bytes of a file; one of nothing if they are not what was written."""
    if data[:9] != b"%08x\n" % crc32(memoryview(data)[9:]):
        return _NOTHING
    cut = data.index(b"\n", 9) + 1
    match decode(data[9 : cut - 1]):
        case {
            "version": str(version),
            "fields": str(fields),
            "end": int(end),
            "checksum": int(checksum),
            "size": int(size),
            "stamp": [int() as inode, int() as bytes_there, int() | float() as changed],
            "counts": [int(keys), int(offsets)],
        } if version == _VERSION and len(data) - cut == 8 * (2 * keys + 1 + offsets):
            numbers = memoryview(data)[cut:].cast("Q")
            middle = keys + keys + 1
            return _Part(
                tuple(fields.split()),
                end,
                checksum,
                size,
                [inode, bytes_there, changed],
                numbers[:keys],
                numbers[keys:middle],
                numbers[middle:],
            )
        case _:
            return _NOTHING

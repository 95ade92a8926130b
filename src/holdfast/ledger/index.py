"""Where in a ledger the entries of a task, a session or a type of event stand.

One file in `cache/` for each file of the ledger: for every value the offsets of its lines.  It
only says where to look: each line is read from the ledger and judged there, and what lies behind
the end of the index is read as it would be without one.  An index holds as long as the bytes that
it was made from are the same: those of a file that gets no more lines by its inode, size and time,
those of the newest one by a checksum.  It is made by whoever first asks, never by a writer, and
may be deleted at any time.  (Not SQLite: that would open files by path, past the vfs.)
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from holdfast.codec import MAX_LINE, DecodeError, Record, decode, encode
from holdfast.errors import HoldfastError
from holdfast.layout import ledger_index
from holdfast.ledger.foreign import as_entry
from holdfast.store.document import read_file, write_temporary
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import CONTROL, BadLine, Line
from holdfast.store.reader import Source, read_lines
from holdfast.store.segments import Segment, Series, Text, opened

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.vfs import Dir

FIELDS = ("task_id", "session_id", "event")
WORTH = 1 << 20
"""A ledger of fewer bytes is read faster than an index is looked after."""
BEHIND = 1 << 20
"""So far the index of the newest file may be behind before it is brought up."""
_VERSION = f"1 {sys.byteorder}"
_DAMAGED = 0
"""In place of a value: lines that are no records."""
_AT_ONCE = 256
_LOCK = ".lock"

Offsets = Sequence[int]
Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been taken in."""


class Entries(NamedTuple):
    """What a look into one file of the ledger gave."""

    lines: list[Line]
    damaged: list[int]
    """Where lines stand that are no records, as far as one had to look."""


class _Part(NamedTuple):
    """The index of one file of the ledger."""

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


_NOTHING = _Part(0, 0, -1, [], (), (0,), ())


class Index:
    """Used for one question: the entries that have certain values in certain fields."""

    def __init__(
        self,
        home: Home,
        log: str,
        agent: str,
        asked: Mapping[str, str],
        *,
        writable: bool = True,
        progress: Progress | None = None,
        worth: int = WORTH,
        behind: int = BEHIND,
    ) -> None:
        self._home, self._log, self._place = home, log, ledger_index(agent)
        self._keys = [_key(name, value) for name, value in asked.items() if name in FIELDS]
        self._writable, self._progress, self._behind = writable, progress, behind
        self._worth = worth
        self._newest: Segment | None = None
        self._size = self._done = 0

    def newest(self, name: str, most: int | None, wanted: Callable[[Line], bool]) -> Entries:
        """The last `most` wanted entries of one file of the ledger, oldest first."""
        segment = Series(None).parse(name)
        with self._home.opened_dir(self._log) as directory:
            if directory is None or segment is None:
                return Entries([], [])
            if self._newest is None:
                self._look(directory)
            with opened(self._home.vfs, directory, segment) as text:
                part = self._current(directory, segment, text)
                lines, damaged = _scanned(
                    Source(name, part.end, segment == self._newest, text.chunks(part.end)), wanted
                )
                missing = None if most is None else max(0, most - len(lines))
                hits = min((part.of(key) for key in self._keys), key=len, default=())
                return Entries(
                    [*_last(name, text, hits, missing, wanted), *lines],
                    [*part.of(_DAMAGED), *damaged],
                )

    # -- keeping it true ---------------------------------------------------------------

    def _current(self, directory: Dir, segment: Segment, text: Text) -> _Part:
        """The index as far as it holds, brought up where that is worth the while."""
        if not self._keys or self._size < self._worth:
            return _NOTHING
        name, newest = segment.filename, segment == self._newest
        stamp, part = _stamp(directory, segment), self._load(name)
        if not newest and (part.size, part.stamp) == (text.size, stamp):
            return part
        if _checksum(text, part.end) != part.checksum:
            part = _NOTHING
        if not newest or text.size - part.end > self._behind:
            part = self._taken_in(part, name, text, stamp)
            self._save(name, part)
        return part

    def _look(self, directory: Dir) -> None:
        """How large the ledger is, and which of its files gets more lines."""
        segments = Series(None).segments(directory)
        stamps = [_stamp(directory, each) for each in segments]
        self._size = int(sum(each[1] for each in stamps if each))
        self._newest = segments[-1] if segments else None

    def _taken_in(self, part: _Part, name: str, text: Text, stamp: list[int | float]) -> _Part:
        found: dict[int, array[int]] = {key: array("Q", part.of(key)) for key in part.keys}
        known: dict[tuple[str, str], array[int]] = {}
        end, checksum = part.end, part.checksum
        for block in _blocks(text, end):
            for line in read_lines([Source(name, end, True, iter([block]))]):
                if isinstance(line, BadLine):
                    found.setdefault(_DAMAGED, array("Q")).append(line.offset)
                    continue
                for pair in _values(line):
                    if (places := known.get(pair)) is None:
                        places = known[pair] = found.setdefault(_key(*pair), array("Q"))
                    places.append(line.offset)
            end, checksum = end + len(block), crc32(block, checksum)
            self._tell(len(block))
        keys, starts, offsets = array("Q", sorted(found)), array("Q", [0]), array("Q")
        for key in keys:
            offsets += found[key]
            starts.append(len(offsets))
        return _Part(end, checksum, text.size, stamp, keys, starts, offsets)

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._done, self._size))

    # -- its files ---------------------------------------------------------------------

    def _load(self, name: str) -> _Part:
        try:
            with self._home.opened_dir(self._place) as directory:
                found = read_file(self._home.vfs, directory, _file(name)) if directory else None
            return _parsed(found or b"")
        except (HoldfastError, OSError, DecodeError, ValueError, TypeError):
            return _NOTHING

    def _save(self, name: str, part: _Part) -> None:
        """Put it in place whole; that it cannot be kept must not hurt who only asks."""
        if not self._writable:
            return
        with suppress(HoldfastError, OSError):
            directory = _made(self._home.root, self._place.split("/"))
            lock = Lock(directory, _LOCK, self._home.vfs, self._home.clock)
            try:
                lock.acquire(0.0)
                data = _written(part)
                temporary = write_temporary(
                    self._home.vfs, directory, _file(name), data, durable=False
                )
                hit("index.written")
                directory.rename(temporary, _file(name))
            finally:
                lock.close()
                directory.close()


def _key(name: str, value: str) -> int:
    text = f"{name}\0{value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


def _values(line: Line) -> Iterator[tuple[str, str]]:
    record: Record = line.record
    if CONTROL in record:
        return
    entry = record if line.seq is not None else as_entry(record)
    for name in FIELDS:
        value = entry.get(name)
        if isinstance(value, str):
            yield name, value


# --- reading the ledger ---------------------------------------------------------------------


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


def _scanned(source: Source, wanted: Callable[[Line], bool]) -> tuple[list[Line], list[int]]:
    """What stands behind the end of the index."""
    lines, damaged = list[Line](), list[int]()
    for line in read_lines([source]):
        if isinstance(line, BadLine):
            damaged.append(line.offset)
        elif CONTROL not in line.record and wanted(line):
            lines.append(line)
    return lines, damaged


def _last(
    name: str, text: Text, hits: Offsets, most: int | None, wanted: Callable[[Line], bool]
) -> list[Line]:
    """The last `most` wanted lines of those that begin at `hits`, oldest first."""
    found: list[Line] = []
    stop = len(hits)
    while stop and (most is None or len(found) < most):
        start = max(0, stop - max(_AT_ONCE, most or 0)) if most is not None else 0
        found = [*filter(wanted, _lines_at(name, text, hits[start:stop])), *found]
        stop = start
    return found if most is None else found[max(0, len(found) - most) :]


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


def _made(root: Dir, parts: Sequence[str]) -> Dir:
    directory = root
    for part in parts:
        above = directory
        try:
            directory = above.subdir(part, create=True)
        finally:
            if above is not root:
                above.close()
    return directory


def _written(part: _Part) -> bytes:
    head = {
        "version": _VERSION,
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
            "end": int(end),
            "checksum": int(checksum),
            "size": int(size),
            "stamp": [int() as inode, int() as bytes_there, int() | float() as changed],
            "counts": [int(keys), int(offsets)],
        } if version == _VERSION and len(data) - cut == 8 * (2 * keys + 1 + offsets):
            numbers = memoryview(data)[cut:].cast("Q")
            middle = keys + keys + 1
            return _Part(
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

"""How the files of one log are named, and where its newest sealed line is.

A log lives in numbered files that are never renamed: `journal.jsonl`, `journal.1.jsonl`, …
or, by day, `2026-11-15.jsonl`, `2026-11-15.1.jsonl`, `2026-11-16.jsonl`.  All but the newest
may be packed, as `2026-11-15.jsonl.zst`; where both are there, the plain file is the truth.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.codec import MAX_LINE
from holdfast.errors import BadName
from holdfast.ids import key_parts
from holdfast.store import vfs as files
from holdfast.store.chain import ORIGIN, SUFFIX, SUFFIX_SPAN, Hash, Link
from holdfast.store.packed import Lost, Packed

if TYPE_CHECKING:
    from holdfast.store.vfs import Dir, Vfs

_NAME = re.compile(r"(.+?)(?:\.([1-9][0-9]{0,8}))?\.jsonl")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SEQ = b',"seq":'
_SMALL, _LARGE = 1 << 12, 1 << 20
_TRIES = 3
"""How often a line is read again that a read gave only in part."""
_ENDING = ".zst"
_AT_ONCE = 500
"""So many names the kernel lists in one call, whatever their length."""


class Segment(NamedTuple):
    """Sorts in the order of writing."""

    stem: str
    number: int

    @property
    def filename(self) -> str:
        return f"{self.stem}.{self.number}.jsonl" if self.number else f"{self.stem}.jsonl"

    @property
    def packed(self) -> str:
        """Its name when it is packed."""
        return self.filename + _ENDING


class Series(NamedTuple):
    """Which files of a directory are the segments of one log: those of a stem, or of all days."""

    stem: str | None

    def segments(self, directory: Dir) -> list[Segment]:
        names = directory.names()
        if len(names) > _AT_ONCE:
            # Read in several calls: one that was packed in between may have been missed twice.
            names += directory.names()
        found = {self.parse(plain_name(name)) for name in names}
        return sorted(segment for segment in found if segment)

    def parse(self, filename: str) -> Segment | None:
        match = _NAME.fullmatch(filename)
        if match is None:
            return None
        stem, number = match[1], int(match[2] or 0)
        mine = stem == self.stem if self.stem else _DAY.fullmatch(stem) is not None
        return Segment(stem, number) if mine else None

    def next(self, newest: Segment | None, day: str) -> Segment:
        """The segment that comes after `newest`; a day never goes back."""
        stem = self.stem or max(day, newest.stem if newest else day)
        if newest and newest.stem == stem:
            return Segment(stem, newest.number + 1)
        return Segment(stem, 0)


def log_at(key: str) -> tuple[list[str], Series]:
    """The directory and the series of the log called `key`.

    A key that ends in `.jsonl` is one log; any other is a directory with one file a day.
    """
    parts = key_parts(key)
    if not key.endswith(".jsonl"):
        return parts, Series(None)
    stem = parts.pop().removesuffix(".jsonl")
    if series_of(f"{stem}.jsonl") != Series(stem):
        raise BadName(
            f"{key} is a part of a log, not a log",
            hint="name the log: journal.jsonl without a number, the directory for one by days",
        )
    return parts, Series(stem)


def series_of(filename: str) -> Series:
    """The log that a file called `filename` is a segment of."""
    match = _NAME.fullmatch(filename)
    stem = match[1] if match else filename
    return Series(None if _DAY.fullmatch(stem) else stem)


def plain_name(filename: str) -> str:
    """The name that a segment has when it is not packed."""
    return filename.removesuffix(_ENDING) if filename.endswith(f".jsonl{_ENDING}") else filename


class Text(Protocol):
    """The bytes of a segment, however they are kept."""

    size: int

    def chunks(self, offset: int) -> Iterator[bytes | Lost]:
        """From `offset` to the end."""
        ...

    def backwards(self) -> Iterator[tuple[int, bytes]]:
        """Windows and where they begin, from the end to the start."""
        ...


class Plain:
    """A segment as it was written."""

    def __init__(self, vfs: Vfs, fd: int) -> None:
        self._vfs, self._fd = vfs, fd
        self.size = vfs.size(fd)

    def chunks(self, offset: int) -> Iterator[bytes]:
        """Each line comes out of one read: a writer cuts off what he could write only in part, and
        the beginning of that line must not be taken for the beginning of the next."""
        most, tries = _LARGE, 0
        while True:
            # No more than there is: large buffers that are hardly filled tear the heap to pieces.
            there = min(most, max(_SMALL, self.size - offset + 1))
            count = most if most > _LARGE else there
            data = self._vfs.pread(self._fd, count, offset)
            whole, end = data.rfind(b"\n") + 1, offset + len(data)
            if len(data) < count and (end >= self.size or not whole):
                if end < self.size and self._goes_on(end, tries):
                    tries += 1
                    continue
                if data:
                    yield data
                return
            if not whole and most <= MAX_LINE:
                most *= 2
                continue
            yield data[: whole or None]
            offset, most, tries = offset + (whole or len(data)), _LARGE, 0

    def _goes_on(self, end: int, tries: int) -> bool:
        """Whether there is more behind a read that ended early; OSError if it cannot be had.

        A read stops before a bad block without a word, and only one that begins there fails.
        """
        if not self._vfs.pread(self._fd, 1, end):
            return False
        if tries == _TRIES:
            raise OSError(errno.EIO, "reads end too early")
        return True

    def backwards(self) -> Iterator[tuple[int, bytes]]:
        stop, step = self.size, _SMALL
        while stop > 0:
            start = max(0, stop - step)
            yield start, self._vfs.pread(self._fd, stop - start, start)
            stop, step = start, _LARGE


@contextmanager
def opened(vfs: Vfs, directory: Dir, segment: Segment) -> Generator[Text]:
    """The text of a segment for the time of a block."""
    try:
        fd = directory.open(segment.filename, files.READ)
        plain = True
    except FileNotFoundError:
        # Also when it was packed since the directory was listed.
        fd = directory.open(segment.packed, files.READ)
        plain = False
    try:
        yield Plain(vfs, fd) if plain else unpacked(vfs, fd)
    finally:
        vfs.close(fd)


def read_at(text: Text, offset: int, count: int) -> bytes:
    """A few bytes; fewer where the text ends or is lost."""
    found = b""
    for data in text.chunks(offset):
        if not isinstance(data, bytes):
            break
        found += data[: count - len(found)]
        if len(found) == count:
            break
    return found


def unpacked(vfs: Vfs, fd: int) -> Packed:
    return Packed(lambda count, offset: vfs.pread(fd, count, offset), vfs.size(fd))


class Tail(NamedTuple):
    """What the next line of a log is chained to."""

    link: Link
    segment: str
    offset: int
    """Just behind the sealed line that `link` names."""
    gap: Hash | None
    """Digest of the foreign bytes behind it, over segments."""
    torn: bool
    """Whether the newest segment does not end in a line end."""


def find_tail(vfs: Vfs, directory: Dir, segments: list[Segment], *, unended: bool = False) -> Tail:
    """Search backwards for the last sealed line; one small read in the common case.

    `unended` also takes a last line that lacks nothing but its LF: an appender, which ends
    it, has to chain to it, while for a reader it is still in progress.
    """
    tail, behind = Tail(ORIGIN, "", 0, None, torn=False), list[Segment]()
    torn = False
    for segment in reversed(segments):
        with opened(vfs, directory, segment) as text:
            tail = tail_of(text, segment.filename, unended=unended)
        torn = tail.torn if segment is segments[-1] else torn
        if tail.link is not ORIGIN:
            break
        behind.insert(0, segment)
    gap = None if tail.link is ORIGIN else tail.gap
    for segment in behind:
        with opened(vfs, directory, segment) as text:
            gap = _hash_from(text, 0, gap)
    return tail._replace(gap=gap, torn=torn)


def tail_of(text: Text, name: str, *, unended: bool = False) -> Tail:
    """The tail as one segment has it; its link is ORIGIN if no line in it is sealed."""
    size = text.size
    link, offset, ended, torn = _last_seal(text, unended=unended)
    if ended and offset == size:
        return Tail(link, name, offset, None, torn=False)
    return Tail(link, name, offset, _hash_from(text, offset, None), torn)


def _last_seal(text: Text, *, unended: bool) -> tuple[Link, int, bool, bool]:
    """The last sealed line, the offset behind it, whether it has its LF, and the text has one."""
    later, torn = b"", None
    for start, data in text.backwards():
        torn = data[-1:] != b"\n" if torn is None else torn
        window = data + later
        at = window.rfind(_SEQ)
        while at >= 0:
            match = SUFFIX.match(window, at)
            if match is not None:
                end = start + match.end()
                ended = window[match.end() : match.end() + 1] == b"\n"
                if ended or (unended and end == text.size):
                    link = Link(int(match[1]), bytes.fromhex(match[2].decode()))
                    return link, end + ended, ended, torn
            at = window.rfind(_SEQ, 0, at)
        # A suffix may lie across the border of two reads.
        later = window[:SUFFIX_SPAN]
    return ORIGIN, 0, False, torn or False


def _hash_from(text: Text, offset: int, gap: Hash | None) -> Hash | None:
    """Add the rest of a text to `gap`."""
    for data in text.chunks(offset):
        if isinstance(data, bytes):
            gap = gap or sha256()
            gap.update(data)
    return gap

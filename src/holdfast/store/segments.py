"""How the files of one log are named, and where its newest sealed line is.

A log lives in numbered files that are never renamed: `journal.jsonl`, `journal.1.jsonl`, …
or, by day, `2026-11-15.jsonl`, `2026-11-15.1.jsonl`, `2026-11-16.jsonl`.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import BadName
from holdfast.ids import key_parts
from holdfast.store import vfs as files
from holdfast.store.chain import ORIGIN, SUFFIX, SUFFIX_SPAN, Hash, Link

if TYPE_CHECKING:
    from holdfast.store.vfs import Dir, Vfs

_NAME = re.compile(r"(.+?)(?:\.([1-9][0-9]{0,8}))?\.jsonl")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SEQ = b',"seq":'
_SMALL, _LARGE = 1 << 12, 1 << 20


class Segment(NamedTuple):
    """Sorts in the order of writing."""

    stem: str
    number: int

    @property
    def filename(self) -> str:
        return f"{self.stem}.{self.number}.jsonl" if self.number else f"{self.stem}.jsonl"


class Series(NamedTuple):
    """Which files of a directory are the segments of one log: those of a stem, or of all days."""

    stem: str | None

    def segments(self, directory: Dir) -> list[Segment]:
        found = (self.parse(name) for name in directory.names())
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
    tail, behind = Tail(ORIGIN, "", 0, None, torn=False), list[Tail]()
    for segment in reversed(segments):
        with files.reading(vfs, directory, segment.filename) as fd:
            tail = tail_of(vfs, fd, segment.filename, unended=unended)
        if tail.link is not ORIGIN:
            break
        behind.insert(0, tail)
    gap, torn = None if tail.link is ORIGIN else tail.gap, tail.torn
    for later in behind:
        with files.reading(vfs, directory, later.segment) as fd:
            gap, torn = _hash_from(vfs, fd, 0, gap), later.torn
    return tail._replace(gap=gap, torn=torn)


def tail_of(vfs: Vfs, fd: int, name: str, *, unended: bool = False) -> Tail:
    """The tail as one file has it; its link is ORIGIN if no line in it is sealed."""
    size = vfs.size(fd)
    link, offset, ended = _last_seal(vfs, fd, size, unended=unended)
    if ended and offset == size:
        return Tail(link, name, offset, None, torn=False)
    torn = size > 0 and vfs.pread(fd, 1, size - 1) != b"\n"
    return Tail(link, name, offset, _hash_from(vfs, fd, offset, None), torn)


def _last_seal(vfs: Vfs, fd: int, size: int, *, unended: bool) -> tuple[Link, int, bool]:
    """The last sealed line, the offset behind it, and whether it has its LF."""
    stop, step, later = size, _SMALL, b""
    while stop > 0:
        start = max(0, stop - step)
        window = vfs.pread(fd, stop - start, start) + later
        at = window.rfind(_SEQ)
        while at >= 0:
            match = SUFFIX.match(window, at)
            if match is not None:
                end = start + match.end()
                ended = window[match.end() : match.end() + 1] == b"\n"
                if ended or (unended and end == size):
                    link = Link(int(match[1]), bytes.fromhex(match[2].decode()))
                    return link, end + ended, ended
            at = window.rfind(_SEQ, 0, at)
        # A suffix may lie across the border of two reads.
        stop, step, later = start, _LARGE, window[:SUFFIX_SPAN]
    return ORIGIN, 0, False


def _hash_from(vfs: Vfs, fd: int, offset: int, gap: Hash | None) -> Hash | None:
    """Add the rest of a file to `gap`."""
    while data := vfs.pread(fd, _LARGE, offset):
        gap = gap or sha256()
        gap.update(data)
        offset += len(data)
    return gap

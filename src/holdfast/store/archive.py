"""Packing the segments of a log that get no more lines.

The steps for one segment, in this order:

    hidden temporary · fdatasync · unpack it and compare · link · fsync of the directory ·
    see that the plain file is still the one that was packed · unlink it · fsync again

So the plain file goes only when its packed one is whole and durable.  Whoever dies in between
leaves the plain file, which readers prefer; the next run begins where it stands.  All this
happens under a lock of its own: appends, which go to the newest segment, do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.codec import DecodeError, decode_record
from holdfast.errors import StorageError
from holdfast.store import vfs as files
from holdfast.store.chain import read_seal
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.packed import pack
from holdfast.store.primitives import CONTROL, FAILED, Archived
from holdfast.store.reader import Source, split
from holdfast.store.segments import Plain, Segment, Series, opened, read_at, unpacked

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_WORD = b'"_log":'
_DISK_FAILED = "the disk failed under it"
_DIFFERS = "the packed file beside it holds something else"
_GREW = "somebody wrote to it meanwhile"


def lock_name(series: Series) -> str:
    return f".{series.stem}.jsonl.archive.lock" if series.stem else ".archive.lock"


class Archiver:
    def __init__(self, place: Place, series: Series) -> None:
        self._place, self._series = place, series
        self._vfs = place.tools.vfs

    def run(self, before: str | None, *, dry_run: bool) -> list[Archived]:
        with self._place.opened() as directory:
            if directory is None:
                return []
            if dry_run:
                return [
                    Archived(segment.filename, found.size, 0, left)
                    for segment, left in self._candidates(directory, before)
                    if (found := directory.stat(segment.filename)) is not None
                ]
            lock = Lock(directory, lock_name(self._series), self._vfs, self._place.tools.clock)
            try:
                lock.acquire()
                self._remove_temporaries(directory)
                return [
                    self._archive(directory, segment, left)
                    for segment, left in self._candidates(directory, before)
                ]
            finally:
                lock.close()

    def _remove_temporaries(self, directory: Dir) -> None:
        """They are made under the lock we hold, so whoever left these is dead."""
        ours = {f".{segment.packed}.tmp" for segment in self._series.segments(directory)}
        for name in ours.intersection(directory.names()):
            directory.unlink(name)

    # -- which ones --------------------------------------------------------------------

    def _candidates(self, directory: Dir, before: str | None) -> list[tuple[Segment, str]]:
        """Every plain segment that gets no more lines, and why it must be left, if it must."""
        segments = self._series.segments(directory)
        wanted = [
            segment
            for segment in segments[:-1]
            if (before is None or segment.stem < before) and directory.stat(segment.filename)
        ]
        later = [segment for segment in segments if wanted and segment > wanted[0]]
        failed = {name for segment in later for name in self._failed_by(directory, segment)}
        return [(segment, _DISK_FAILED if segment.filename in failed else "") for segment in wanted]

    def _failed_by(self, directory: Dir, segment: Segment) -> Iterator[object]:
        """The names of segments whose failure this one tells of."""
        with opened(self._vfs, directory, segment) as text:
            for batch in split(Source(segment.filename, 0, True, text.chunks(0))):
                for raw in batch.lines:
                    if _WORD in raw and read_seal(raw):
                        with suppress(DecodeError):
                            record = decode_record(raw)
                            if record.get(CONTROL) == FAILED:
                                yield record.get("segment")

    # -- one of them -------------------------------------------------------------------

    def _archive(self, directory: Dir, segment: Segment, left: str) -> Archived:
        before = directory.stat(segment.filename)
        with files.reading(self._vfs, directory, segment.filename) as fd:
            plain = Plain(self._vfs, fd)
            result = Archived(segment.filename, plain.size, 0, left)
            if left:
                return result
            found = self._compare(directory, segment.packed, plain)
            if found == "other":
                return result._replace(left=_DIFFERS)
            if found == "part":
                directory.unlink(segment.packed)
            if found == "same":
                self._make_durable(directory, segment.packed)
            else:
                self._publish(directory, segment, plain)
            directory.sync()
            hit("archive.durable")
            packed, now = directory.stat(segment.packed), directory.stat(segment.filename)
            if now is None or now != before or now.inode != self._vfs.inode(fd):
                return result._replace(left=_GREW)
            directory.unlink(segment.filename)
            hit("archive.unlinked")
            directory.sync()
            return result._replace(packed=packed.size if packed else 0)

    def _compare(self, directory: Dir, name: str, plain: Plain) -> str:
        """Whether a packed file holds the `same` text, a `part` of it, an `other`, or is `absent`.

        What is damaged of it counts as a part: nothing is lost with it.
        """
        if directory.stat(name) is None:
            return "absent"
        with files.reading(self._vfs, directory, name) as fd:
            text, offset, whole = unpacked(self._vfs, fd), 0, True
            for data in text.chunks(0):
                if isinstance(data, bytes):
                    if data != read_at(plain, offset, len(data)):
                        return "other"
                    offset += len(data)
                else:
                    offset, whole = offset + data.size, False
            return "same" if whole and offset == plain.size else "part"

    def _make_durable(self, directory: Dir, name: str) -> None:
        """Whoever put it there, it is relied on from now on."""
        with files.reading(self._vfs, directory, name) as fd:
            self._vfs.sync(fd)

    def _publish(self, directory: Dir, segment: Segment, plain: Plain) -> None:
        temporary = f".{segment.packed}.tmp"
        try:
            fd = directory.open(temporary, files.CREATE_NEW)
            try:
                for data in pack(_first(plain.size, plain), plain.size):
                    rest = memoryview(data)
                    while rest:
                        rest = rest[self._vfs.write(fd, rest) :]
                self._vfs.sync(fd)
            finally:
                self._vfs.close(fd)
            hit("archive.written")
            if self._compare(directory, temporary, plain) != "same":
                raise StorageError(
                    f"{segment.filename} is not the same after packing",
                    hint="it was left as it is; look at the disk and the memory",
                )
            hit("archive.verified")
            directory.link(temporary, segment.packed)
            hit("archive.linked")
        finally:
            with suppress(OSError):
                directory.unlink(temporary)


def _first(count: int, plain: Plain) -> Iterator[bytes]:
    """So many bytes of a file, also if it grows."""
    for data in plain.chunks(0):
        yield data[:count]
        count -= len(data[:count])

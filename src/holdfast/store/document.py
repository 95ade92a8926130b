"""A document on files: replaced whole or not at all.

    lock · temporary in the same directory · fdatasync · rename · fsync of the directory · ack

The revision is the hash of the content.  Three things can come out: committed, not committed
(StorageError), and *indeterminate*, when the last step failed after the new content could
already be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.codec import MAX_DOCUMENT
from holdfast.errors import BadValue, Conflict, Corrupt, Indeterminate, typed
from holdfast.store import vfs as files
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import Text

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir, Vfs


_CHUNK = 1 << 20
_PAGE = 4 << 10


def revision_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def lock_name(name: str) -> str:
    return f".{name.lstrip('.')}.lock"


def read_file(vfs: Vfs, directory: Dir, name: str) -> bytes | None:
    """The whole content of a small file, or None if it is absent."""
    try:
        with files.reading(vfs, directory, name) as fd:
            size = vfs.size(fd)
            if size > MAX_DOCUMENT:
                raise Corrupt(
                    f"{name} has {size} bytes; a document has at most {MAX_DOCUMENT}",
                    hint="something else wrote it; look at it, then move it away",
                )
            data = b""
            while chunk := vfs.pread(fd, min(_CHUNK, max(_PAGE, size - len(data))), len(data)):
                data += chunk
            return data
    except FileNotFoundError:
        return None


def write_temporary(vfs: Vfs, directory: Dir, name: str, data: bytes, *, durable: bool) -> str:
    """Write `data` beside `name`; the caller holds its lock, so an older temporary is dead."""
    temporary = f".{name}.tmp"
    if directory.stat(temporary) is not None:
        directory.unlink(temporary)
    fd = directory.open(temporary, files.CREATE_NEW)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[vfs.write(fd, rest) :]
        if durable:
            vfs.sync(fd)
    except OSError:
        with suppress(OSError):
            directory.unlink(temporary)
        raise
    finally:
        vfs.close(fd)
    return temporary


class FileDocument:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._vfs = place.tools.vfs

    @property
    def key(self) -> str:
        return "/".join((*self._place.parts, self._name))

    def read(self) -> Text | None:
        with typed("reading", self.key), self._place.opened() as directory:
            data = read_file(self._vfs, directory, self._name) if directory else None
        return None if data is None else Text(data, revision_of(data))

    def replace(self, data: bytes, *, expected: str | None = None) -> str:
        def checked(old: bytes | None) -> bytes:
            found = "" if old is None else revision_of(old)
            if expected is not None and found != expected:
                raise Conflict(
                    f"{self.key} has changed since it was read",
                    hint="read it again and repeat the change",
                    path=self.key,
                )
            return data

        return self.update(checked)

    def update(self, change: Callable[[bytes | None], bytes]) -> str:
        with typed("writing", self.key):
            directory = self._place.make()
            lock = Lock(directory, lock_name(self._name), self._vfs, self._place.tools.clock)
        try:
            with typed("writing", self.key):
                lock.acquire()
                old = read_file(self._vfs, directory, self._name)
            data = change(old)  # whose errors are the caller's, untouched
            with typed("writing", self.key):
                self._publish(directory, data, lock)
        finally:
            lock.close()
            self._place.close(directory)
        return revision_of(data)

    def _publish(self, directory: Dir, data: bytes, lock: Lock) -> None:
        if len(data) > MAX_DOCUMENT:
            raise BadValue(
                f"too large for a document: {len(data)} bytes",
                hint=f"at most {MAX_DOCUMENT}",
                path=self.key,
            )
        temporary = write_temporary(self._vfs, directory, self._name, data, durable=True)
        hit("document.written")
        directory.rename(temporary, self._name)
        hit("document.renamed")
        try:
            if lock.parents_durable:
                directory.sync()
            else:
                directory.sync(up=len(self._place.parts))
                lock.note_parents_durable()
        except OSError as error:
            raise Indeterminate(
                f"the disk failed after {self.key} was replaced: {error.strerror}",
                hint="read it again to see which content it has, and look at the disk",
                path=self.key,
            ) from error

    def close(self) -> None:
        """Nothing is kept open between calls."""

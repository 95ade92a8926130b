"""A blob on files: bytes too large to hold at once, put whole or not at all.

lock · temporary in the same directory · fdatasync · rename · fsync of the directory · ack
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.errors import Indeterminate, typed
from holdfast.store import vfs as files
from holdfast.store.document import lock_name
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_CHUNK = 1 << 20


class FileBlob:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._vfs = place.tools.vfs

    @property
    def key(self) -> str:
        return "/".join((*self._place.parts, self._name))

    def put(self, chunks: Iterable[bytes]) -> str:
        with typed("writing", self.key):
            directory = self._place.make()
            lock = Lock(directory, lock_name(self._name), self._vfs, self._place.tools.clock)
        try:
            with typed("writing", self.key):
                lock.acquire()
            revision = self._write(directory, f".{self._name}.tmp", chunks)
            try:
                directory.sync(up=len(self._place.parts))
            except OSError as error:
                raise Indeterminate(
                    f"the disk failed after {self.key} was replaced: {error.strerror}",
                    hint="read it again to see which content it has, and look at the disk",
                    path=self.key,
                ) from error
        finally:
            lock.close()
            self._place.close(directory)
        return revision

    def _write(self, directory: Dir, temporary: str, chunks: Iterable[bytes]) -> str:
        digest = sha256()
        with typed("writing", self.key):
            if directory.stat(temporary) is not None:
                directory.unlink(temporary)  # its writer died: the lock is ours
            fd = directory.open(temporary, files.CREATE_NEW)
        try:
            for chunk in chunks:  # whose errors are the caller's, untouched
                digest.update(chunk)
                rest = memoryview(chunk)
                with typed("writing", self.key):
                    while rest:
                        rest = rest[self._vfs.write(fd, rest) :]
            with typed("writing", self.key):
                self._vfs.sync(fd)
                hit("blob.written")
                directory.rename(temporary, self._name)
        except BaseException:
            with suppress(OSError):
                directory.unlink(temporary)
            raise
        finally:
            self._vfs.close(fd)
        hit("blob.renamed")
        return digest.hexdigest()

    def read(self, start: int = 0) -> Iterator[bytes]:
        with typed("reading", self.key), self._place.opened() as directory:
            if directory is None or directory.stat(self._name) is None:
                return
            with files.reading(self._vfs, directory, self._name) as fd:
                while chunk := self._vfs.pread(fd, _CHUNK, start):
                    yield chunk
                    start += len(chunk)

    def size(self) -> int | None:
        with typed("reading", self.key), self._place.opened() as directory:
            found = directory.stat(self._name) if directory else None
        return None if found is None else found.size

    def close(self) -> None:
        """Nothing is kept open between calls."""

"""A sheet on files: a document that people and agents edit with whatever they like.

    lock · temporary · fdatasync · rename to `.NAME.next` · exchange with NAME · fsync directory

What was in place of the new text is then in `.NAME.next`, nothing is overwritten unseen, and
a writer who had the old file open and goes on writing into it is noticed the next time.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import Indeterminate, typed
from holdfast.store.document import lock_name, read_file, revision_of, write_temporary
from holdfast.store.failpoints import hit
from holdfast.store.lock import Lock
from holdfast.store.primitives import Text

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir


class FileSheet:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._vfs = place.tools.vfs
        self._next = f".{name}.next"

    @property
    def key(self) -> str:
        return "/".join((*self._place.parts, self._name))

    @contextmanager
    def locked(self) -> Generator[None]:
        with typed("writing", self.key):
            directory = self._place.make()
            lock = Lock(directory, lock_name(self._name), self._vfs, self._place.tools.clock)
        try:
            with typed("writing", self.key):
                lock.acquire()
            yield
        finally:
            lock.close()
            self._place.close(directory)

    def read(self) -> Text | None:
        return self._text(self._name)

    def left(self) -> Text | None:
        return self._text(self._next)

    def _text(self, name: str) -> Text | None:
        with typed("reading", self.key), self._place.opened() as directory:
            data = read_file(self._vfs, directory, name) if directory else None
        return None if data is None else Text(data, revision_of(data))

    def base(self) -> Text | None:
        """Unknown: an editor may have loaded the file before any of the last changes."""
        return None

    def changed_at(self) -> float:
        with typed("reading", self.key), self._place.opened() as directory:
            both = (self._name, self._next)
            found = [directory.stat(name) for name in both] if directory else []
            return max((each.mtime for each in found if each), default=0.0)

    def put(self, data: bytes) -> None:
        with typed("writing", self.key), self._place.opened() as directory:
            assert directory is not None, "the lock is in it"
            temporary = write_temporary(self._vfs, directory, self._name, data, durable=True)
            # Only whole texts get this name: what is found under it after a crash can be trusted.
            directory.rename(temporary, self._next)
            hit("sheet.written")
            self._swap(directory)
            hit("sheet.swapped")
            try:
                directory.sync(up=len(self._place.parts))
            except OSError as error:
                raise Indeterminate(
                    f"the disk failed after {self.key} was replaced: {error.strerror}",
                    hint="read it again to see which content it has, and look at the disk",
                    path=self.key,
                ) from error

    def _swap(self, directory: Dir) -> None:
        if directory.stat(self._name) is None:
            directory.link(self._next, self._name)
            directory.unlink(self._next)
            return
        try:
            directory.exchange(self._next, self._name)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            # Without an exchange somebody who saves between these calls is overwritten.
            temporary = f".{self._name}.tmp"
            directory.rename(self._next, temporary)
            directory.link(self._name, self._next)
            directory.rename(temporary, self._name)

    def close(self) -> None:
        """Nothing is kept open between calls."""

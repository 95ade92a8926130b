"""Where a primitive lives, and what its home gave it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.mask import Masker
from holdfast.process import Owner, alive, here
from holdfast.store.primitives import Instant
from holdfast.store.vfs import Dir, Vfs

Notice = Callable[[str, str], None]


class Tools(NamedTuple):
    """What every primitive of a home works with."""

    vfs: Vfs
    clock: Clock
    mask: Masker
    local: Callable[[float], str]
    """The home's wall time as text, with its offset."""
    notice: Notice
    """Tells the audit log of something odd: a word, and what happened."""
    host: str = ""
    """Where this process counts, if the system is not to be asked."""

    def now(self) -> Instant:
        clock = self.clock
        return Instant(self.host or here(), clock.boot(), clock.boottime(), clock.now())

    def alive(self, owner: Owner) -> bool | None:
        return alive(owner, self.host)


class Place(NamedTuple):
    """One directory under the root of a home."""

    root: Dir
    parts: tuple[str, ...]
    tools: Tools

    def open(self) -> Dir | None:
        """The open directory, or None if it is absent."""
        try:
            return self._walk(create=False)
        except FileNotFoundError:
            return None

    @contextmanager
    def opened(self) -> Generator[Dir | None]:
        """The directory for the time of a block."""
        directory = self.open()
        try:
            yield directory
        finally:
            if directory is not None:
                self.close(directory)

    def make(self) -> Dir:
        """The open directory, made if it is absent.

        Whoever puts the first durable file into it has to sync the directories above.
        """
        return self._walk(create=True)

    def close(self, directory: Dir) -> None:
        if directory is not self.root:
            directory.close()

    def _walk(self, *, create: bool) -> Dir:
        directory = self.root
        for part in self.parts:
            above = directory
            try:
                directory = above.subdir(part, create=create)
            finally:
                self.close(above)
        return directory

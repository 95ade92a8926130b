"""One lock file, never renamed, held for moments: the gate of a log, a document or a view.

The kernel drops the lock when its holder dies, so a lock file left behind by a crash or
checked out of git blocks nobody.  Waiting always ends: in the lock, or in Busy that names
the holder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

from holdfast.errors import Busy
from holdfast.process import lock_holder
from holdfast.store import vfs as files

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.store.vfs import Dir, Vfs

PATIENCE = 10.0
_DURABLE = b"durable\n"
_YIELDS = 100
_FIRST_PAUSE, _LONGEST_PAUSE = 0.00005, 0.002


def _pauses() -> Iterator[float]:
    """The lock is held for microseconds: at first only let others run, then wait for longer."""
    yield from repeat(0.0, _YIELDS)
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)


class Lock:
    def __init__(self, directory: Dir, name: str, vfs: Vfs, clock: Clock) -> None:
        self._dir, self._name, self._vfs, self._clock = directory, name, vfs, clock
        self.fd = -1
        self._pid = 0
        """Who opened it: a forked child shares the lock, not only the descriptor."""
        self._inode = 0
        self._checked = 0
        self._held = False
        self.version = 0
        """Of the directory, read under the lock."""

    def acquire(self, patience: float = PATIENCE) -> None:
        """Hold the lock, or raise Busy when `patience` seconds have passed."""
        deadline, pauses = 0.0, None
        try:
            while True:
                if self.fd < 0:
                    self.fd, self._pid = self._dir.open(self._name, files.CREATE), os.getpid()
                    self._inode = self._vfs.inode(self.fd)
                if self.take():
                    return
                if self.fd < 0:
                    continue
                now = self._clock.boottime()
                if pauses is None:
                    deadline, pauses = now + patience, _pauses()
                if now >= deadline:
                    raise self._busy(patience)
                self._clock.sleep(next(pauses))
        except BaseException:
            self.release()
            raise

    def take(self) -> bool:
        """Hold the lock if it is open and free."""
        if self.fd < 0:
            return False
        try:
            # Noted before we know, so that whoever is interrupted lets go.
            self._held = True
            self._held = self._vfs.try_lock(self.fd)
            if not self._held:
                return False
            self.version = self._dir.version()
            return 0 != self.version == self._checked or self._is_in_its_place()
        except BaseException:
            self.release()
            raise

    def _is_in_its_place(self) -> bool:
        found = self._dir.stat(self._name)
        if found is not None and found.inode == self._inode:
            self._checked = self.version
            return True
        # Somebody deleted or replaced the file: a lock on the old one guards nothing.
        self.close()
        return False

    def release(self) -> None:
        """Let go, if we hold it."""
        if not self._held:
            return
        try:
            self._vfs.unlock(self.fd)
        except OSError:
            with suppress(OSError):
                self.close()
        self._held = False

    def close(self) -> None:
        """Let go, also of the lock if we hold it."""
        if self.fd >= 0:
            # By name: a child forked meanwhile has a copy of the descriptor.  That child leaves
            # the lock alone, for it is its parent's.
            if self._pid == os.getpid():
                with suppress(OSError):
                    self._vfs.unlock(self.fd)
            fd, self.fd, self._checked, self._held = self.fd, -1, 0, False
            self._vfs.close(fd)

    @property
    def parents_durable(self) -> bool:
        """Whether somebody who held the lock has said that the directories above are durable."""
        return self._vfs.pread(self.fd, len(_DURABLE), 0) == _DURABLE

    def note_parents_durable(self) -> None:
        self._vfs.pwrite(self.fd, _DURABLE, 0)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _busy(self, patience: float) -> Busy:
        holder = lock_holder(self._inode)
        who = f"process {holder}" if holder else "another process"
        return Busy(
            f"{self._name} is held by {who} for more than {patience:g} s",
            hint=f"look at it with `ps {holder}`; it may be stopped" if holder else "try again",
        )

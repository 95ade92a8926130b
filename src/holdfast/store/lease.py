"""A lease on files: ownership by a living process.

The lease is the kernel's lock on a file, held for the life of the process: no expiry to
renew, no stale owner to guess about.  What the file says (who, why, since when) is for
people.  The fencing number grows with every acquisition and is durable before it is used.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.clock import utc_stamp
from holdfast.codec import DecodeError, decode, encode
from holdfast.errors import Busy, typed
from holdfast.process import Owner, this_process
from holdfast.store import vfs as files
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Held

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_FENCE, _SIZE, _MOST = 21, 4096, 300
_NUMBER = re.compile(rb"0([0-9]{19})\n")
_PAUSE = 0.01
_AFTER_STEAL = 5.0


class FileLease:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, f".{name}.lease"
        self._vfs, self._clock = place.tools.vfs, place.tools.clock
        self._fd = -1
        self._pid = 0
        self._failed = 0
        """Inode of a lease file whose sync failed: it is never synced again."""

    @property
    def key(self) -> str:
        return "/".join((*self._place.parts, self._name))

    def acquire(
        self,
        purpose: str,
        *,
        patience: float = 0.0,
        steal: Callable[[Owner], None] | None = None,
    ) -> int:
        with typed("taking the lease", self.key):
            directory = self._place.make()
            try:
                fence = self._acquire(directory, purpose, patience, steal)
            finally:
                self._place.close(directory)
        hit("lease.taken")
        return fence

    def _acquire(
        self,
        directory: Dir,
        purpose: str,
        patience: float,
        steal: Callable[[Owner], None] | None,
    ) -> int:
        deadline = self._clock.boottime() + patience
        while (fd := self._try(directory)) < 0:
            held = self._held(directory)
            if steal is not None and held is not None:
                steal(held.owner)
                steal, deadline = None, self._clock.boottime() + _AFTER_STEAL
            if self._clock.boottime() >= deadline:
                raise self._busy(held)
            self._clock.sleep(_PAUSE)
        try:
            fence = self._fence(fd) + 1
            fd = self._keep_fence(directory, fd, fence)
            self._write_owner(fd, purpose)
            directory.sync(up=len(self._place.parts))
        except OSError:
            self._vfs.close(fd)
            raise
        self._fd, self._pid = fd, os.getpid()
        return fence

    def _try(self, directory: Dir) -> int:
        """A locked descriptor of the lease file, or -1 if somebody has the lock."""
        while True:
            fd = directory.open(self._name, files.CREATE)
            try:
                if not self._vfs.try_lock(fd):
                    self._vfs.close(fd)
                    return -1
                found = directory.stat(self._name)
                if found is not None and found.inode == self._vfs.inode(fd):
                    return fd
            except OSError:
                self._vfs.close(fd)
                raise
            self._vfs.close(fd)  # the file was replaced under us

    def _fence(self, fd: int) -> int:
        match = _NUMBER.fullmatch(self._vfs.pread(fd, _FENCE, 0))
        return int(match[1]) if match else 0

    def _keep_fence(self, directory: Dir, fd: int, fence: int) -> int:
        """Make the number durable; the locked descriptor of the file that now has it."""
        if self._vfs.inode(fd) != self._failed:
            self._write_fence(fd, fence)
            try:
                self._vfs.sync(fd)
                return fd
            except OSError:
                # Written and synced again it may say yes, and be gone after a reboot all the same.
                self._failed = self._vfs.inode(fd)
        renewed = self._renew(directory, fence)
        self._vfs.close(fd)
        self._failed = 0
        return renewed

    def _write_fence(self, fd: int, fence: int) -> None:
        """Alone, and of one size for ever: no other write that fails can take it along."""
        data = b"%0*d\n" % (_FENCE - 1, fence)
        if self._vfs.pwrite(fd, data, 0) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _renew(self, directory: Dir, fence: int) -> int:
        """Another file in place of the one that we hold and that the disk failed under."""
        temporary = f"{self._name}.tmp"
        if directory.stat(temporary) is not None:
            directory.unlink(temporary)
        fd = directory.open(temporary, files.CREATE_NEW)
        try:
            # Nobody else knows it: it is locked before it can be seen under its name.
            self._vfs.try_lock(fd)
            self._write_fence(fd, fence)
            self._vfs.sync(fd)
            directory.rename(temporary, self._name)
        except OSError:
            self._vfs.close(fd)
            with suppress(OSError):
                directory.unlink(temporary)
            raise
        return fd

    def _write_owner(self, fd: int, purpose: str) -> None:
        since = utc_stamp(self._clock.now())
        shown = purpose[:_MOST].encode("utf-8", "replace").decode()
        record = {"owner": list(this_process()), "purpose": shown, "since": since}
        self._vfs.pwrite(fd, encode(record).ljust(_SIZE - 1) + b"\n", _FENCE)

    def release(self) -> None:
        if self._fd < 0:
            return
        if self._pid == os.getpid():  # a forked child has a copy, and not the lease
            # Only for `holder`, so that a living process is not shown with what it gave back.
            with suppress(OSError):
                self._vfs.pwrite(self._fd, b"{}".ljust(_SIZE - 1) + b"\n", _FENCE)
            # By name: a child forked meanwhile has a copy of the descriptor.
            with suppress(OSError):
                self._vfs.unlock(self._fd)
        fd, self._fd = self._fd, -1
        self._vfs.close(fd)

    def holder(self) -> Held | None:
        with typed("reading the lease", self.key), self._place.opened() as directory:
            return self._held(directory) if directory else None

    def _held(self, directory: Dir) -> Held | None:
        try:
            with files.reading(self._vfs, directory, self._name) as fd:
                return self._read(fd)
        except FileNotFoundError:
            return None

    def _read(self, fd: int) -> Held | None:
        try:
            found = decode(self._vfs.pread(fd, _SIZE, _FENCE).strip())
        except DecodeError:
            return None
        match found:
            case {
                "owner": [str(host), str(boot), int(pid), int(started)],
                "purpose": str(purpose),
                "since": str(since),
            }:
                owner = Owner(host, boot, pid, started)
                return Held(owner, purpose, since, self._is_alive(owner, fd), self._fence(fd))
            case _:
                return None

    def _is_alive(self, owner: Owner, fd: int) -> bool:
        seen = self._place.tools.alive(owner)
        if seen is not None:
            return seen
        # Its lock is seen from everywhere.  A process that comes while we try it is told to wait.
        if not self._vfs.try_lock(fd):
            return True
        self._vfs.unlock(fd)
        return False

    def _busy(self, held: Held | None) -> Busy:
        if held is None:
            return Busy(f"{self.key} is held by another process", hint="try again", path=self.key)
        return Busy(
            f"held by process {held.owner.pid} since {held.since}: {held.purpose}",
            hint=f"wait for it, or look at it with `ps {held.owner.pid}`",
            path=self.key,
        )

    def close(self) -> None:
        self.release()

"""A lease on files: ownership by a living process.

The lease is the kernel's lock on a file, held for the life of the process: no expiry to
renew, no stale owner to guess about.  What the file says (who, why, since when) is for
people.  The fencing number grows with every acquisition and is durable before it is used.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.clock import utc_stamp
from holdfast.codec import DecodeError, Record, decode, encode
from holdfast.errors import Busy, typed
from holdfast.store import vfs as files
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Held, Owner

if TYPE_CHECKING:
    from holdfast.store.place import Place
    from holdfast.store.vfs import Dir

_SIZE, _MOST = 4096, 300
_PAUSE = 0.01
_AFTER_STEAL = 5.0


class FileLease:
    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, f".{name}.lease"
        self._vfs, self._clock = place.tools.vfs, place.tools.clock
        self._fd = -1

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
        while True:
            fd = directory.open(self._name, files.CREATE)
            if self._vfs.try_lock(fd):
                found = directory.stat(self._name)
                if found is not None and found.inode == self._vfs.inode(fd):
                    break
                self._vfs.close(fd)  # the file was replaced under us
                continue
            held = self._read(fd)
            self._vfs.close(fd)
            if steal is not None and held is not None and held.owner.pid:
                steal(held.owner)
                steal, deadline = None, self._clock.boottime() + _AFTER_STEAL
            if self._clock.boottime() >= deadline:
                raise self._busy(held)
            self._clock.sleep(_PAUSE)
        last = self._read(fd)
        fence = last.fence + 1 if last else 1
        try:
            self._write(fd, purpose, fence)
            directory.sync(up=len(self._place.parts))
        except OSError:
            self._vfs.close(fd)
            raise
        self._fd = fd
        return fence

    def _write(self, fd: int, purpose: str, fence: int) -> None:
        since = utc_stamp(self._clock.now())
        owner = list(files.this_process())
        shown = purpose[:_MOST].encode("utf-8", "replace").decode()
        self._put(fd, {"owner": owner, "purpose": shown, "since": since, "fence": fence})
        self._vfs.sync(fd)

    def _put(self, fd: int, record: Record) -> None:
        # One size for ever: once it is there, a full disk cannot tear it.
        data = encode(record).ljust(_SIZE - 1) + b"\n"
        if self._vfs.pwrite(fd, data, 0) < len(data):
            self._vfs.truncate(fd, 0)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def release(self) -> None:
        if self._fd < 0:
            return
        held = self._read(self._fd)
        # Only for `holder`, so that a living process is not shown with what it gave back.
        with suppress(OSError):
            self._put(self._fd, {"fence": held.fence if held else 0})
        self._vfs.close(self._fd)
        self._fd = -1

    def holder(self) -> Held | None:
        with typed("reading the lease", self.key), self._place.opened() as directory:
            if directory is None:
                return None
            try:
                with files.reading(self._vfs, directory, self._name) as fd:
                    held = self._read(fd)
            except FileNotFoundError:
                return None
        return held if held is not None and held.owner.pid else None

    def _read(self, fd: int) -> Held | None:
        try:
            found = decode(self._vfs.pread(fd, _SIZE, 0).strip())
        except DecodeError:
            return None
        match found:
            case {
                "owner": [str(host), str(boot), int(pid), int(started)],
                "purpose": str(purpose),
                "since": str(since),
                "fence": int(fence),
            }:
                owner = Owner(host, boot, pid, started)
                return Held(owner, purpose, since, files.is_alive(owner), fence)
            case {"fence": int(fence)}:
                return Held(Owner("", "", 0, 0), "", "", alive=False, fence=fence)
            case _:
                return None

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

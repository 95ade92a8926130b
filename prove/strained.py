"""The real file system under strain: each call is watched, and some are refused.

`StrainedVfs` and `StrainedDir` make every call of `RealVfs` and `RealDir`, and ask their
`Strain` first: whether the call is made at all, and how many bytes of a write are.  What the
kernel refuses by itself is told to the strain too, so that real faults are counted alike.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.store import vfs as files
from holdfast.store.vfs import RealDir, RealVfs

REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""What a disk that is full, read-only or broken answers."""


class Strain:
    """Lets everything through and notes what the kernel refuses; the others add to it."""

    kept = 0
    """How many descriptors it has itself."""

    def __init__(self) -> None:
        self.armed = False
        self.fired = 0
        self.calls: Counter[str] = Counter()
        """How often each kind of call was made while armed."""
        self.said: list[str] = []

    def arm(self) -> None:
        self.armed = True

    def relieve(self) -> None:
        """There is room again, the disk works again."""
        self.armed = False

    def before(self, op: str, path: str) -> None:
        """Called before each call; may raise instead of it."""
        if self.armed:
            self.calls[op] += 1

    def room(self, path: str, size: int) -> int:
        """How many bytes of a write are made."""
        return size

    def saw(self, op: str, path: str, error: OSError) -> None:
        """The kernel refused a call."""
        if self.armed and error.errno in REFUSALS:
            self.note(op, path, error)

    def synced(self, fd: int, path: str, error: OSError | None) -> None:
        """A file was synced, or that failed."""

    def note(self, op: str, path: str, error: OSError) -> None:
        self.fired += 1
        self.said.append(f"{op} {path}: {errno.errorcode.get(error.errno or 0, '?')}")


class Watch(Strain):
    """Notes which files were synced again after a sync of them had failed."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[tuple[int, int], str] = {}
        self.again: list[str] = []
        self._kept: list[int] = []

    def synced(self, fd: int, path: str, error: OSError | None) -> None:
        found = os.fstat(fd)
        file = (found.st_dev, found.st_ino)
        if file in self.failed:
            self.again.append(path)
        if error is not None and error.errno == errno.EIO:
            # As long as it is open, no other file can have its number; opened anew, because
            # a duplicate would keep its lock.
            self._kept.append(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
            self.failed[file] = path

    @property
    def kept(self) -> int:
        return len(self._kept)

    def close(self) -> None:
        for fd in self._kept:
            os.close(fd)
        self._kept.clear()


class StrainedVfs:
    """`RealVfs` under a strain."""

    def __init__(self, strain: Strain, *, ignores_short_writes: bool = False) -> None:
        self.strain = strain
        self._real = RealVfs()
        self._paths: dict[int, str] = {}
        self._ignores = ignores_short_writes
        """For the control: a writer that never looks at what `write` returned."""

    def path_of(self, fd: int) -> str:
        return self._paths.get(fd, "?")

    def opened(self, fd: int, path: str) -> int:
        self._paths[fd] = path
        return fd

    def call(self, op: str, path: str, real: Callable[..., Any], *args: Any) -> Any:
        self.strain.before(op, path)
        try:
            return real(*args)
        except OSError as error:
            self.strain.saw(op, path, error)
            raise

    def _put(
        self, op: str, fd: int, data: bytes | memoryview, real: Callable[..., int], *rest: int
    ) -> int:
        path = self.path_of(fd)
        self.strain.before(op, path)
        try:
            most = self.strain.room(path, len(data))
            done = real(fd, data[:most], *rest)
        except OSError as error:
            self.strain.saw(op, path, error)
            raise
        return len(data) if self._ignores else done

    def root(self, path: str, *, create: bool = False) -> StrainedDir:
        path = os.path.abspath(path)
        try:
            return StrainedDir(self, self._real.root(path))
        except FileNotFoundError:
            if not create:
                raise
        above, name = os.path.split(path)
        parent = self.root(above, create=True)
        try:
            made = parent.subdir(name, create=True)
            try:
                parent.sync()
            except OSError:
                made.close()
                raise
            return made
        finally:
            parent.close()

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return self.call("pread", self.path_of(fd), self._real.pread, fd, count, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return self._put("write", fd, data, self._real.write)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self._put("pwrite", fd, data, self._real.pwrite, offset)

    def truncate(self, fd: int, size: int) -> None:
        self.call("truncate", self.path_of(fd), self._real.truncate, fd, size)

    def sync(self, fd: int) -> None:
        path, failed = self.path_of(fd), None
        try:
            self.call("sync", path, self._real.sync, fd)
        except OSError as error:
            failed = error
            raise
        finally:
            self.strain.synced(fd, path, failed)

    def size(self, fd: int) -> int:
        return self._real.size(fd)

    def inode(self, fd: int) -> int:
        return self._real.inode(fd)

    def try_lock(self, fd: int) -> bool:
        return self._real.try_lock(fd)

    def unlock(self, fd: int) -> None:
        self._real.unlock(fd)

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        self._real.close(fd)


class StrainedDir:
    """`RealDir` under the strain of its vfs."""

    def __init__(self, vfs: StrainedVfs, real: RealDir) -> None:
        self._vfs, self._real, self.path = vfs, real, real.path

    def _call(self, op: str, name: str, real: Callable[..., Any], *args: Any) -> Any:
        return self._vfs.call(op, f"{self.path}/{name}", real, *args)

    def subdir(self, name: str, *, create: bool = False) -> StrainedDir:
        try:
            return StrainedDir(self._vfs, self._real.subdir(name))
        except FileNotFoundError:
            if not create:
                raise
        return StrainedDir(self._vfs, self._call("mkdir", name, self._make, name))

    def _make(self, name: str) -> RealDir:
        return self._real.subdir(name, create=True)

    def open(self, name: str, flags: int) -> int:
        new = flags & os.O_CREAT and self._real.stat(name) is None
        fd = self._call("create" if new else "open", name, self._real.open, name, flags)
        return self._vfs.opened(fd, f"{self.path}/{name}")

    def stat(self, name: str) -> files.Stat | None:
        return self._call("stat", name, self._real.stat, name)

    def version(self) -> int:
        # It can tell only after a tick of the clock; how many calls are made must not depend on it.
        return 0

    def names(self) -> list[str]:
        return self._call("names", "", self._real.names)

    def link(self, existing: str, new: str) -> None:
        self._call("link", new, self._real.link, existing, new)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new, self._real.rename, old, new)

    def unlink(self, name: str) -> None:
        self._call("unlink", name, self._real.unlink, name)

    def sync(self, up: int = 0) -> None:
        self._call("dirsync", "", self._real.sync, up)

    def close(self) -> None:
        self._real.close()


def refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))

"""Every file call of the store, and nothing else.

A `Dir` is an open directory; names are single components, so that no path is ever resolved
twice and a symbolic link planted by an agent is never followed.  The rest of the store sees
only the two protocols below, which the crash-state simulator implements as well.

Knows nothing of logs, documents or JSON.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple, Protocol, Self

from holdfast.errors import NotOurs

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_NO_REPLACE, _EXCHANGE = 1, 2
"""RENAME_NOREPLACE and RENAME_EXCHANGE"""
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_STAMP_CLOCK = 5
"""CLOCK_REALTIME_COARSE, which `time` does not name: what the kernel stamps files with."""

READ = os.O_RDONLY
CREATE = os.O_RDWR | os.O_CREAT
CREATE_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL
APPEND = os.O_RDWR | os.O_APPEND


class Stat(NamedTuple):
    inode: int
    size: int
    kind: str
    """`file`, `dir`, or what else stands there: `link`, `fifo`, `socket`, `device`."""
    mtime: float


class Dir(Protocol):
    """An open directory."""

    def subdir(self, name: str, *, create: bool = False) -> Dir:
        """Open a directory inside; `create` makes it if it is absent, not yet durably."""
        ...

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a regular file, one of READ, CREATE, CREATE_NEW, APPEND."""
        ...

    def stat(self, name: str) -> Stat | None: ...
    def version(self) -> int:
        """A number that is another one after any change of the entries; 0: cannot tell."""
        ...

    def names(self) -> list[str]: ...
    def link(self, existing: str, new: str) -> None: ...
    def rename(self, old: str, new: str) -> None: ...
    def exchange(self, one: str, other: str) -> None:
        """Let two entries change places, at once; ENOSYS where the file system cannot."""
        ...

    def move(self, old: str, other: Self, new: str) -> None:
        """Rename into another directory; FileExistsError if anything stands there."""
        ...

    def unlink(self, name: str) -> None: ...
    def sync(self, up: int = 0) -> None:
        """Make the entries of this directory, and of `up` directories above, durable."""
        ...

    def close(self) -> None: ...


class Vfs(Protocol):
    """Calls on descriptors, and the way into a tree."""

    def root(self, path: str, *, create: bool = False) -> Dir: ...
    def pread(self, fd: int, count: int, offset: int, /) -> bytes: ...
    def write(self, fd: int, data: bytes | memoryview, /) -> int: ...
    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int: ...
    def truncate(self, fd: int, size: int, /) -> None: ...
    def sync(self, fd: int, /) -> None:
        """Make data and size of a file durable (fdatasync)."""
        ...

    def size(self, fd: int, /) -> int:
        """The size of a file; a `write` that does not append goes on there."""
        ...

    def inode(self, fd: int, /) -> int: ...
    def try_lock(self, fd: int, /) -> bool:
        """Take the exclusive lock of an open file if nobody has it."""
        ...

    def unlock(self, fd: int, /) -> None: ...
    def close(self, fd: int, /) -> None: ...


class RealDir:
    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.path = path
        self._version = 0

    def subdir(self, name: str, *, create: bool = False) -> RealDir:
        flags = _SAFE | os.O_RDONLY | os.O_DIRECTORY
        try:
            fd = os.open(name, flags, dir_fd=self._fd)
        except FileNotFoundError:
            if not create:
                raise
            try:
                os.mkdir(name, 0o700, dir_fd=self._fd)
            except FileExistsError:
                pass  # somebody was faster
            fd = os.open(name, flags, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise _not_ours(f"{self.path}/{name}", "a directory") from None
            raise
        return RealDir(fd, f"{self.path}/{name}")

    def open(self, name: str, flags: int) -> int:
        try:
            fd = os.open(name, flags | _SAFE, 0o600, dir_fd=self._fd)
        except OSError as error:
            # ELOOP: a symbolic link. ENXIO: a FIFO or socket opened without a peer.
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise _not_ours(f"{self.path}/{name}", "a regular file") from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _not_ours(f"{self.path}/{name}", "a regular file")
        return fd

    def stat(self, name: str) -> Stat | None:
        try:
            found = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return Stat(
            found.st_ino,
            found.st_size,
            _KINDS.get(stat.S_IFMT(found.st_mode), "device"),
            found.st_mtime,
        )

    def version(self) -> int:
        # Stamps come from the coarse clock: only one of an earlier tick cannot be given again.
        # Not the time of modification, which a restored backup sets to what it was.
        changed = os.fstat(self._fd).st_ctime_ns
        if changed == self._version or changed < time.clock_gettime_ns(_STAMP_CLOCK):
            self._version = changed
            return changed
        return 0

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    def link(self, existing: str, new: str) -> None:
        os.link(existing, new, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def exchange(self, one: str, other: str) -> None:
        _renameat2(self._fd, one, self._fd, other, _EXCHANGE)

    def move(self, old: str, other: RealDir, new: str) -> None:
        try:
            _renameat2(self._fd, old, other._fd, new, _NO_REPLACE)
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            # Two steps: who dies in between leaves two names of one file, which the next one sees.
            os.link(old, new, src_dir_fd=self._fd, dst_dir_fd=other._fd, follow_symlinks=False)
            os.unlink(old, dir_fd=self._fd)

    def unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._fd)

    def sync(self, up: int = 0) -> None:
        os.fsync(self._fd)
        if up:
            above = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                RealDir(above, f"{self.path}/..").sync(up - 1)
            finally:
                os.close(above)

    def close(self) -> None:
        os.close(self._fd)


class RealVfs:
    # Bound to the system's own functions: an append spends nothing on a wrapper.
    pread = staticmethod(os.pread)
    write = staticmethod(os.write)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    sync = staticmethod(os.fdatasync)
    close = staticmethod(os.close)

    def root(self, path: str, *, create: bool = False) -> RealDir:
        path = os.path.abspath(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            if not create:
                raise
            # Every directory made on the way has to be durable in its parent.
            parent, name = os.path.split(path)
            above = self.root(parent, create=True)
            try:
                made = above.subdir(name, create=True)
                try:
                    above.sync()
                except OSError:
                    made.close()
                    raise
                return made
            finally:
                above.close()
        return RealDir(fd, path)

    def size(self, fd: int) -> int:
        # `fstat` builds twenty values, and this is asked for every append.
        return os.lseek(fd, 0, os.SEEK_END)

    def inode(self, fd: int) -> int:
        return os.fstat(fd).st_ino

    def try_lock(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, _TRY)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _renameat2(old_dir: int, old: str, new_dir: int, new: str, flags: int) -> None:
    """The system call that Python lacks; ENOSYS where a file system does not know the flag."""
    call, errno_of_it = _from_libc()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), old)
    if call(old_dir, os.fsencode(old), new_dir, os.fsencode(new), flags) != 0:
        number = errno_of_it()
        number = errno.ENOSYS if number == errno.EINVAL else number
        raise OSError(number, os.strerror(number), old)


@lru_cache(maxsize=1)
def _from_libc() -> tuple[Callable[[int, bytes, int, bytes, int], int] | None, Callable[[], int]]:
    import ctypes  # noqa: PLC0415 - some milliseconds that most calls need not pay

    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None), ctypes.get_errno


@contextmanager
def reading(vfs: Vfs, directory: Dir, name: str) -> Generator[int]:
    """A descriptor of a file, closed again at the end of the block."""
    fd = directory.open(name, READ)
    try:
        yield fd
    finally:
        vfs.close(fd)


def owned_by_us(path: str) -> bool:
    """Whether a directory belongs to the user who runs us."""
    owners = {os.stat(path).st_uid, os.lstat(path).st_uid}
    return owners == {os.geteuid()}


def _not_ours(path: str, expected: str) -> NotOurs:
    return NotOurs(
        f"not {expected}: {path}",
        hint="something else stands where Holdfast keeps its data; look at it, then move it away",
        path=path,
    )

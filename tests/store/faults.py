"""The real file system with every call written down, and with faults where a test wants them.

Not a mock: each call goes to the real vfs unless a fault says otherwise.  Disks that fail,
fill up or write half of what they were given cannot be had at a chosen call in any other way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from holdfast.store.vfs import RealDir, RealVfs, Stat

Real = Callable[..., Any]
Act = Callable[..., Any]
"""What happens instead of a call: gets the real one and its arguments."""


class Call(NamedTuple):
    op: str
    """`write`, `sync`, … on a descriptor; `dir.open`, `dir.sync`, … on a directory."""
    name: str
    """Of the file, or of the entry; of the directory itself for `dir.sync` and `dir.names`."""
    size: int
    """Bytes read or written; for `dir.sync`, how many directories above were synced too."""
    thread: int


class Fault:
    def __init__(self, op: str, name: str, act: Act, after: int, times: int | None) -> None:
        self.op, self.name, self.act = op, name, act
        self.after, self.times = after, times
        self.fired = 0

    def takes(self, op: str, name: str) -> bool:
        if not fnmatchcase(op, self.op) or not fnmatchcase(name, self.name):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.fired += 1
        return True


class FaultyVfs:
    """`RealVfs`, watched."""

    def __init__(self) -> None:
        self._real = RealVfs()
        self._faults: list[Fault] = []
        self._names: dict[int, str] = {}
        self._mutex = threading.Lock()
        self.calls: list[Call] = []

    # -- what a test asks for ----------------------------------------------------------

    def fault(
        self, op: str, act: Act, name: str = "*", *, after: int = 0, times: int | None = 1
    ) -> Fault:
        """Let `act` stand for the next calls, the first `after` of them excepted."""
        made = Fault(op, name, act, after, times)
        self._faults.insert(0, made)
        return made

    def heal(self) -> None:
        self._faults.clear()

    def forget(self) -> None:
        self.calls.clear()

    def count(self, op: str, name: str = "*") -> int:
        return len(self.seen(op, name))

    def seen(self, op: str, name: str = "*") -> list[Call]:
        return [
            call for call in self.calls if fnmatchcase(call.op, op) and fnmatchcase(call.name, name)
        ]

    def order(self) -> list[str]:
        """The calls as short text, without the ones that only look."""
        looks = ("pread", "size", "inode", "dir.stat", "dir.names", "close", "dir.close")
        return [f"{call.op} {call.name}" for call in self.calls if call.op not in looks]

    # -- what the store calls ----------------------------------------------------------

    def call(self, op: str, name: str, real: Real, *args: Any, size: int | None = None) -> Any:
        with self._mutex:
            fault = next((each for each in self._faults if each.takes(op, name)), None)
        result = real(*args) if fault is None else fault.act(real, *args)
        if size is None:
            size = result if isinstance(result, int) else len(result or b"")
        self.calls.append(Call(op, name, size, threading.get_ident()))
        return result

    def root(self, path: str, *, create: bool = False) -> FaultyDir:
        return FaultyDir(self, self._real.root(path, create=create))

    def opened(self, fd: int, name: str) -> int:
        self._names[fd] = name
        return fd

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        return self.call("pread", self._names[fd], self._real.pread, fd, count, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return self.call("write", self._names[fd], self._real.write, fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return self.call("pwrite", self._names[fd], self._real.pwrite, fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self.call("truncate", self._names[fd], self._real.truncate, fd, size, size=size)

    def sync(self, fd: int) -> None:
        self.call("sync", self._names[fd], self._real.sync, fd)

    def size(self, fd: int) -> int:
        return self.call("size", self._names[fd], self._real.size, fd)

    def inode(self, fd: int) -> int:
        return self.call("inode", self._names[fd], self._real.inode, fd)

    def try_lock(self, fd: int) -> bool:
        return self.call("try_lock", self._names[fd], self._real.try_lock, fd)

    def unlock(self, fd: int) -> None:
        self.call("unlock", self._names[fd], self._real.unlock, fd)

    def close(self, fd: int) -> None:
        self.call("close", self._names[fd], self._real.close, fd)


class FaultyDir:
    """`RealDir`, watched."""

    def __init__(self, vfs: FaultyVfs, real: RealDir) -> None:
        self._vfs, self._real = vfs, real
        self.path = real.path
        self._name = os.path.basename(real.path)

    def subdir(self, name: str, *, create: bool = False) -> FaultyDir:
        def real(name: str) -> RealDir:
            return self._real.subdir(name, create=create)

        return FaultyDir(self._vfs, self._vfs.call("dir.subdir", name, real, name, size=0))

    def open(self, name: str, flags: int) -> int:
        fd = self._vfs.call("dir.open", name, self._real.open, name, flags, size=0)
        return self._vfs.opened(fd, name)

    def stat(self, name: str) -> Stat | None:
        return self._vfs.call("dir.stat", name, self._real.stat, name, size=0)

    def version(self) -> int:
        # Not noted: whether it can tell anything depends on the tick of the clock.
        return self._real.version()

    def names(self) -> list[str]:
        return self._vfs.call("dir.names", self._name, self._real.names)

    def link(self, existing: str, new: str) -> None:
        self._vfs.call("dir.link", new, self._real.link, existing, new)

    def rename(self, old: str, new: str) -> None:
        self._vfs.call("dir.rename", new, self._real.rename, old, new)

    def exchange(self, one: str, other: str) -> None:
        self._vfs.call("dir.exchange", other, self._real.exchange, one, other)

    def move(self, old: str, other: FaultyDir, new: str) -> None:
        self._vfs.call("dir.move", new, self._real.move, old, other._real, new)

    def unlink(self, name: str) -> None:
        self._vfs.call("dir.unlink", name, self._real.unlink, name)

    def sync(self, up: int = 0) -> None:
        self._vfs.call("dir.sync", self._name, self._real.sync, up, size=up)

    def close(self) -> None:
        self._vfs.call("dir.close", self._name, self._real.close)


# --- acts -----------------------------------------------------------------------------------


def failing(number: int) -> Act:
    """The call is not made; it fails with this errno."""

    def act(real: Real, *args: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return act


def short(most: int) -> Act:
    """A write that takes at most this many bytes."""

    def act(real: Real, fd: int, data: bytes | memoryview, *rest: int) -> int:
        return real(fd, data[:most], *rest)

    return act


def first(event: Callable[[], object]) -> Act:
    """Something happens just before the call is made."""

    def act(real: Real, *args: Any) -> Any:
        event()
        return real(*args)

    return act


def then(event: Callable[[], object]) -> Act:
    """Something happens just after the call was made."""

    def act(real: Real, *args: Any) -> Any:
        result = real(*args)
        event()
        return result

    return act

"""A file system in memory that behaves like the real one and remembers every change.

`SimVfs` and `SimDir` implement the two protocols of `holdfast.store.vfs`, one `SimVfs` for
each simulated process.  Each call is a point where the scheduler may let another process go
on and where a fault may strike.  Changes and syncs are written to a journal, from which
`crash` derives what a power cut may leave behind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from holdfast.errors import NotOurs
from holdfast.store import vfs as files
from prove.schedule import Killed, Scheduler

ROOT = 1
_WRITABLE = os.O_WRONLY | os.O_RDWR


class State(NamedTuple):
    """What is on a disk: file contents and directory entries by inode."""

    files: Mapping[int, bytes]
    dirs: Mapping[int, Mapping[str, int]]

    def listing(self) -> dict[str, bytes | None]:
        """Every path with its content, None for a directory."""
        found: dict[str, bytes | None] = {}
        todo = [("", ROOT)]
        while todo:
            path, here = todo.pop()
            for name, inode in self.dirs[here].items():
                inside = f"{path}/{name}"
                if inode in self.dirs:
                    found[inside] = None
                    todo.append((inside, inode))
                else:
                    found[inside] = self.files[inode]
        return found

    def digest(self) -> bytes:
        """The same for two disks that nobody can tell apart."""
        hasher = blake2b(digest_size=12)
        for path, data in sorted(self.listing().items()):
            hasher.update(b"%d:%b" % (len(path), path.encode()))
            hasher.update(b"/" if data is None else b"%d:%b" % (len(data), data))
        return hasher.digest()


EMPTY = State({}, {ROOT: {}})


class Op(NamedTuple):
    """One change or sync, as the journal has it."""

    kind: str
    """create, mkdir, link, unlink, rename, move, write, truncate, sync, dirsync, syncfail; or
    start and ack, which the workload notes."""
    process: int
    inode: int
    """The file, or the directory whose entries change."""
    detail: tuple[Any, ...] = ()

    def __str__(self) -> str:
        parts = " ".join(_short(part) for part in self.detail)
        return f"p{self.process} {self.kind} #{self.inode} {parts}".rstrip()


def _short(part: Any) -> str:
    text = repr(part)
    return text if len(text) <= 120 else f"{text[:60]}…{text[-50:]}"


@dataclass(frozen=True)
class Fault:
    """Something that happens to process `process` at its call number `at`."""

    process: int
    at: int
    kind: str
    """`kill`, `half` (killed in the middle of a write), or the name of an errno."""
    times: int = 1
    """How many calls in a row fail; `half` of a write is done before the first ENOSPC."""

    def __str__(self) -> str:
        return f"{self.kind}@p{self.process}.{self.at}x{self.times}"


@dataclass
class Process:
    number: int
    fds: dict[int, OpenFile] = field(default_factory=dict[int, "OpenFile"])
    calls: list[str] = field(default_factory=list[str])
    """Kinds of the calls it made, in order."""
    dead: bool = False
    fired: bool = False
    next_fd: int = 3


class OpenFile:
    """An open file description: what flock and the position belong to."""

    __slots__ = ("flags", "inode", "position", "seen_errors")

    def __init__(self, inode: int, flags: int, seen_errors: int) -> None:
        self.inode, self.flags, self.position = inode, flags, 0
        self.seen_errors = seen_errors


class SimFs:
    """The machine: one disk and its cache, and what happened to it."""

    def __init__(
        self,
        state: State = EMPTY,
        *,
        scheduler: Scheduler | None = None,
        fault: Fault | None = None,
        torn_writes: bool = False,
        lies: str = "",
    ) -> None:
        self.files: dict[int, bytes] = dict(state.files)
        self.dirs: dict[int, dict[str, int]] = {
            inode: dict(entries) for inode, entries in state.dirs.items()
        }
        self.start = state
        self.parents = {
            child: inode
            for inode, entries in self.dirs.items()
            for child in entries.values()
            if child in self.dirs
        }
        self.kinds: dict[int, str] = {}
        """Inodes that are neither file nor directory, planted by a test."""
        self.next_inode = max((ROOT, *self.files, *self.dirs)) + 1
        self.locks: dict[int, OpenFile] = {}
        self.errors: dict[int, int] = {}
        """How many write-back errors a file had."""
        self.journal: list[Op] = []
        self.scheduler = scheduler
        self.fault = fault
        self.torn_writes = torn_writes
        self.lies = lies
        """What this machine only pretends to do: `sync`, `dirsync` or `lock`; for controls."""
        self.processes: list[Process] = []
        self.quiet = scheduler is None and fault is None
        """Whether nothing can happen between two calls, so that none need be counted."""
        self.fired_at = 0
        """Length of the journal when the fault struck."""

    def process(self) -> SimVfs:
        """A new process."""
        self.processes.append(Process(len(self.processes)))
        return SimVfs(self, self.processes[-1])

    def state(self) -> State:
        """What everybody sees now, as if all of it were durable."""
        return State(dict(self.files), {i: dict(entries) for i, entries in self.dirs.items()})

    def kill(self, process: Process) -> None:
        """End a process: its descriptors close, its locks drop, what it wrote stays."""
        process.dead, self.quiet = True, False
        for fd in list(process.fds):
            self.close(process, fd)

    def close(self, process: Process, fd: int) -> None:
        opened = process.fds.pop(fd)
        if self.locks.get(opened.inode) is opened:
            del self.locks[opened.inode]

    def note(self, kind: str, process: int, *detail: Any) -> int:
        """Put something that the workload did into the journal; its place there."""
        if self.processes[process].dead:
            raise Killed
        self.journal.append(Op(kind, process, 0, detail))
        return len(self.journal)


class _Caller:
    """What SimVfs and SimDir share: entering a call."""

    def __init__(self, fs: SimFs, process: Process) -> None:
        self.fs, self.process = fs, process

    def enter(self, kind: str) -> str | None:
        """Begin a call; the word of a fault that the call itself has to carry out."""
        fs = self.fs
        if fs.quiet:
            return None
        process = self.process
        if process.dead:
            raise Killed
        if fs.scheduler is not None:
            fs.scheduler.turn()
            if process.dead:
                raise Killed
        process.calls.append(kind)
        fault = fs.fault
        if fault is None or fault.process != process.number:
            return None
        return self._strike(fault, kind)

    def enter_close(self, kind: str) -> bool:
        """Begin a call that ends something; whether the process lives to do it.

        It may be made by a generator that is being thrown away, which no exception gets out of:
        who is killed here learns it at the next call.
        """
        try:
            self.enter(kind)
        except Killed:
            if not self.process.dead:
                raise
        return not self.process.dead

    def _strike(self, fault: Fault, kind: str) -> str | None:
        since = len(self.process.calls) - 1 - fault.at
        if fault.kind in ("kill", "half"):
            if since != 0:
                return None
            self._fired()
            if fault.kind == "half" and kind in ("write", "pwrite"):
                return "half"
            self.fs.kill(self.process)
            raise Killed
        # A descriptor is gone after close, whatever close says; locks have no errors we model.
        if since < 0 or (since > 0 and not self._still(fault, kind)) or kind in _NEVER_FAILS:
            return None
        if since == 0:
            self._fired()
        if kind in ("write", "sync"):
            return fault.kind
        raise _os_error(getattr(errno, fault.kind))

    def _fired(self) -> None:
        self.process.fired = True
        self.fs.fired_at = len(self.fs.journal)

    def _still(self, fault: Fault, kind: str) -> bool:
        """Whether a condition that lasts, such as a full disk, hits this call too."""
        if fault.times <= 1 or len(self.process.calls) - 1 - fault.at >= fault.times:
            return False
        return kind in _NEEDS_SPACE if fault.kind == "ENOSPC" else True


_NEVER_FAILS = frozenset({"close", "dirclose", "unlock", "try_lock", "inode", "size"})
_NEEDS_SPACE = frozenset({"write", "pwrite", "create", "link", "rename", "move", "mkdir"})


class SimVfs(_Caller):
    """The descriptors of one process."""

    def root(self, path: str, *, create: bool = False) -> SimDir:
        here = SimDir(self.fs, self.process, ROOT, "")
        for part in filter(None, path.split("/")):
            try:
                following = here.subdir(part)
            except FileNotFoundError:
                if not create:
                    raise
                following = here.subdir(part, create=True)
                here.sync()
            here.close()
            here = following
        return here

    def opened(self, fd: int) -> OpenFile:
        try:
            return self.process.fds[fd]
        except KeyError:
            raise _os_error(errno.EBADF) from None

    def pread(self, fd: int, count: int, offset: int, /) -> bytes:
        self.enter("pread")
        return self.fs.files[self.opened(fd).inode][offset : offset + count]

    def write(self, fd: int, data: bytes | memoryview, /) -> int:
        trouble = self.enter("write")
        opened = self.opened(fd)
        data = bytes(data)
        if trouble is None:
            if self.fs.torn_writes and len(data) > 1:
                self._put(opened, data[: len(data) // 2])
                self._pause()
                self._put(opened, data[len(data) // 2 :])
            else:
                self._put(opened, data)
            return len(data)
        if trouble == "half":
            self._put(opened, data[: len(data) // 2])
            self.fs.kill(self.process)
            raise Killed
        if trouble == "ENOSPC" and len(data) > 1 and self._first_strike():
            half = data[: len(data) // 2]
            self._put(opened, half)
            return len(half)
        raise _os_error(getattr(errno, trouble))

    def _first_strike(self) -> bool:
        fault = self.fs.fault
        return fault is not None and len(self.process.calls) - 1 == fault.at and fault.times > 1

    def _pause(self) -> None:
        if self.fs.scheduler is not None:
            self.fs.scheduler.turn()
        if self.process.dead:
            raise Killed

    def _put(self, opened: OpenFile, data: bytes) -> None:
        old = self.fs.files[opened.inode]
        at = len(old) if opened.flags & os.O_APPEND else opened.position
        opened.position = at + len(data)
        self._change(opened, old, data, at)

    def _change(self, opened: OpenFile, old: bytes, data: bytes, at: int) -> None:
        if not opened.flags & _WRITABLE:
            raise _os_error(errno.EBADF)
        self.fs.files[opened.inode] = old[:at].ljust(at, b"\0") + data + old[at + len(data) :]
        self.fs.journal.append(Op("write", self.process.number, opened.inode, (at, data)))

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int, /) -> int:
        trouble = self.enter("pwrite")
        opened = self.opened(fd)
        data = bytes(data)
        if trouble == "half":
            data = data[: len(data) // 2]
        # On Linux a descriptor opened for appending appends whatever offset it is given.
        at = len(self.fs.files[opened.inode]) if opened.flags & os.O_APPEND else offset
        self._change(opened, self.fs.files[opened.inode], data, at)
        if trouble == "half":
            self.fs.kill(self.process)
            raise Killed
        return len(data)

    def truncate(self, fd: int, size: int, /) -> None:
        self.enter("truncate")
        opened = self.opened(fd)
        if not opened.flags & _WRITABLE:
            raise _os_error(errno.EINVAL)
        old = self.fs.files[opened.inode]
        self.fs.files[opened.inode] = old[:size].ljust(size, b"\0")
        self.fs.journal.append(Op("truncate", self.process.number, opened.inode, (size,)))

    def sync(self, fd: int, /) -> None:
        trouble = self.enter("sync")
        opened = self.opened(fd)
        if trouble is not None:
            # The pages are marked clean although they never reached the disk: whoever has the
            # file open learns it once, a descriptor opened later learns nothing.
            self.fs.errors[opened.inode] = self.fs.errors.get(opened.inode, 0) + 1
            self.fs.journal.append(Op("syncfail", self.process.number, opened.inode))
        count = self.fs.errors.get(opened.inode, 0)
        if count > opened.seen_errors:
            opened.seen_errors = count
            raise _os_error(getattr(errno, trouble or "EIO"))
        if self.fs.lies != "sync":
            self.fs.journal.append(Op("sync", self.process.number, opened.inode))

    def size(self, fd: int, /) -> int:
        self.enter("size")
        opened = self.opened(fd)
        opened.position = len(self.fs.files[opened.inode])
        return opened.position

    def inode(self, fd: int, /) -> int:
        self.enter("inode")
        return self.opened(fd).inode

    def try_lock(self, fd: int, /) -> bool:
        self.enter("try_lock")
        opened = self.opened(fd)
        holder = self.fs.locks.setdefault(opened.inode, opened)
        return holder is opened or self.fs.lies == "lock"

    def unlock(self, fd: int, /) -> None:
        self.enter("unlock")
        opened = self.opened(fd)
        if self.fs.locks.get(opened.inode) is opened:
            del self.fs.locks[opened.inode]

    def close(self, fd: int, /) -> None:
        if self.enter_close("close"):  # otherwise it was closed by the kill
            self.opened(fd)
            self.fs.close(self.process, fd)


class SimDir(_Caller):
    """An open directory of one process."""

    def __init__(self, fs: SimFs, process: Process, inode: int, path: str) -> None:
        super().__init__(fs, process)
        self._inode, self.path, self._open = inode, path, True

    def _begin(self, kind: str) -> dict[str, int]:
        self.enter(kind)
        if not self._open:
            raise _os_error(errno.EBADF)
        return self.fs.dirs[self._inode]

    def _record(self, kind: str, *detail: Any) -> None:
        self.fs.journal.append(Op(kind, self.process.number, self._inode, detail))

    def subdir(self, name: str, *, create: bool = False) -> SimDir:
        entries = self._begin("opendir")
        if name not in entries:
            if not create:
                raise _os_error(errno.ENOENT, name)
            entries = self._begin("mkdir")
            if name not in entries:
                inode = self._new_inode(name)
                self.fs.dirs[inode] = {}
                self.fs.parents[inode] = self._inode
                self._record("mkdir", name, inode)
            self._begin("opendir")
        inode = entries[name]
        if inode not in self.fs.dirs:
            raise NotOurs(f"not a directory: {self.path}/{name}", path=f"{self.path}/{name}")
        return SimDir(self.fs, self.process, inode, f"{self.path}/{name}")

    def _must_be_there(self) -> None:
        """A directory that another one has replaced takes no new names."""
        linked = any(self._inode in entries.values() for entries in self.fs.dirs.values())
        if self._inode != ROOT and not linked:
            raise _os_error(errno.ENOENT)

    def _new_inode(self, name: str) -> int:
        self._must_be_there()
        inode = self.fs.next_inode
        self.fs.next_inode += 1
        self.fs.dirs[self._inode][name] = inode
        return inode

    def open(self, name: str, flags: int) -> int:
        entries = self._begin("create" if flags & os.O_CREAT else "open")
        if name not in entries:
            if not flags & os.O_CREAT:
                raise _os_error(errno.ENOENT, name)
            inode = self._new_inode(name)
            self.fs.files[inode] = b""
            self._record("create", name, inode)
        elif flags & os.O_EXCL:
            raise _os_error(errno.EEXIST, name)
        inode = entries[name]
        if inode not in self.fs.files:
            raise NotOurs(f"not a regular file: {self.path}/{name}", path=f"{self.path}/{name}")
        opened = OpenFile(inode, flags, self.fs.errors.get(inode, 0))
        fd = self.process.next_fd
        self.process.next_fd += 1
        self.process.fds[fd] = opened
        return fd

    def stat(self, name: str) -> files.Stat | None:
        inode = self._begin("stat").get(name)
        if inode is None:
            return None
        if inode in self.fs.files:
            return files.Stat(inode, len(self.fs.files[inode]), "file", 0.0)
        return files.Stat(inode, 0, self.fs.kinds.get(inode, "dir"), 0.0)

    def version(self) -> int:
        # Not a step of its own: it is read where the lock has just been taken.
        return hash(tuple(self.fs.dirs[self._inode].items())) or 1

    def names(self) -> list[str]:
        return list(self._begin("names"))

    def link(self, existing: str, new: str) -> None:
        entries = self._begin("link")
        if existing not in entries:
            raise _os_error(errno.ENOENT, existing)
        if new in entries:
            raise _os_error(errno.EEXIST, new)
        if entries[existing] in self.fs.dirs:
            raise _os_error(errno.EPERM, existing)
        self._must_be_there()
        entries[new] = entries[existing]
        self._record("link", new, entries[existing])

    def rename(self, old: str, new: str) -> None:
        entries = self._begin("rename")
        if old not in entries:
            raise _os_error(errno.ENOENT, old)
        if entries.get(new) == entries[old]:
            return  # two names of one file: POSIX says that nothing happens
        self._may_replace(entries[old], entries.get(new))
        entries[new] = entries.pop(old)
        self._record("rename", old, new, entries[new])

    def exchange(self, one: str, other: str) -> None:
        entries = self._begin("exchange")
        for name in (one, other):
            if name not in entries:
                raise _os_error(errno.ENOENT, name)
        entries[one], entries[other] = entries[other], entries[one]
        self._record("exchange", one, entries[one], other, entries[other])

    def move(self, old: str, other: SimDir, new: str) -> None:
        entries, there = self._begin("move"), self.fs.dirs[other._inode]
        if old not in entries:
            raise _os_error(errno.ENOENT, old)
        if new in there:
            raise _os_error(errno.EEXIST, old)
        other._must_be_there()
        moved = entries[old]
        if moved in self.fs.dirs:
            self._adopt(moved, other._inode)
        there[new] = entries.pop(old)
        self._record("move", old, other._inode, new, moved)

    def _adopt(self, moved: int, parent: int) -> None:
        above: int | None = parent
        while above is not None:
            if above == moved:
                # EINVAL, as from a file system without the call; the link tried instead says:
                raise _os_error(errno.EPERM)
            above = self.fs.parents.get(above)
        self.fs.parents[moved] = parent

    def _may_replace(self, moved: int, there: int | None) -> None:
        if there is None:
            return
        if moved in self.fs.dirs:
            if there not in self.fs.dirs:
                raise _os_error(errno.ENOTDIR)
            if self.fs.dirs[there]:
                raise _os_error(errno.ENOTEMPTY)
        elif there in self.fs.dirs:
            raise _os_error(errno.EISDIR)

    def unlink(self, name: str) -> None:
        entries = self._begin("unlink")
        if name not in entries:
            raise _os_error(errno.ENOENT, name)
        if entries[name] in self.fs.dirs:
            raise _os_error(errno.EISDIR, name)
        self._record("unlink", name, entries.pop(name))

    def sync(self, up: int = 0) -> None:
        inode = self._inode
        for _ in range(up + 1):
            self._begin("dirsync")
            if self.fs.lies != "dirsync":
                self.fs.journal.append(Op("dirsync", self.process.number, inode))
            inode = self.fs.parents.get(inode, ROOT)

    def close(self) -> None:
        if self.enter_close("dirclose"):
            if not self._open:
                raise _os_error(errno.EBADF)
            self._open = False


def _os_error(number: int, name: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), name)

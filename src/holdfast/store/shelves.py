"""The directories of a mailbox, and what lies in them beside the messages that wait.

    .claimed/  .done/  .dead/     messages that somebody has, had, or could not deal with
    .bad/                         files that are no messages
    .<id>.<number>.tmp            somebody is delivering; locked as long as he lives
    .ready                        all of these directories are durable

No rename here replaces a file: what has the name of another one gets a number behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.codec import MAX_LINE, DecodeError, Record, decode_record
from holdfast.errors import NotOurs
from holdfast.store import vfs as files
from holdfast.store.letter import SUFFIX

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.store.vfs import Dir, Stat, Vfs

_PAGE = 4 << 10
CLAIMED, DONE, BAD, DEAD = SHELVES = (".claimed", ".done", ".bad", ".dead")
READY = ".ready"
EXPIRED = "~expired"
YOUNG = 2.0
"""Seconds for which a file that is no message may still become one."""
_LONGEST_NAME = 240


class NoMessage(Exception):
    """A file that holds no message, and why."""


class Box:
    """The directories of a mailbox, open for one call."""

    def __init__(self, inbox: Dir, vfs: Vfs, clock: Clock) -> None:
        self.inbox = inbox
        self._vfs, self._clock = vfs, clock
        self._shelves: dict[str, Dir] = {}
        self.set_aside: list[str] = []
        """What went to `.bad` and `.dead` in this call, for the audit log."""

    def make_ready(self, parents: int) -> None:
        """Make all directories, durable up to the root, unless somebody has."""
        if self.inbox.stat(READY) is None:
            for name in SHELVES:
                self.inbox.subdir(name, create=True).close()
            self.inbox.sync(up=parents)
            self._vfs.close(self.inbox.open(READY, files.CREATE))

    def shelf(self, name: str) -> Dir:
        if name not in self._shelves:
            try:
                found = self.inbox.subdir(name)
            except FileNotFoundError:
                # Git, for one, keeps no empty directories.
                found = self.inbox.subdir(name, create=True)
                self.inbox.sync()
            self._shelves[name] = found
        return self._shelves[name]

    @property
    def claimed(self) -> Dir:
        return self.shelf(CLAIMED)

    @property
    def done(self) -> Dir:
        return self.shelf(DONE)

    def finished(self, id: str) -> Stat | None:
        """The message if it is done, in time or not."""
        return self.done.stat(id + SUFFIX) or self.done.stat(id + SUFFIX + EXPIRED)

    def close(self) -> None:
        for shelf in self._shelves.values():
            shelf.close()

    # -- temporaries -------------------------------------------------------------------

    def temporary(self, id: str) -> tuple[str, int]:
        """A new hidden file to write a message to, and its descriptor."""
        number = 0
        while True:
            name = f".{id}.{number}.tmp"
            number += 1
            try:
                fd = self.inbox.open(name, files.CREATE_NEW)
            except FileExistsError:
                continue
            try:
                if self._vfs.try_lock(fd) and _is_named(self._vfs, self.inbox, name, fd):
                    return name, fd
            except OSError:
                self._vfs.close(fd)
                raise
            self._vfs.close(fd)  # taken for dead before we had the lock

    # -- setting aside -----------------------------------------------------------------

    def quarantine(self, directory: Dir, name: str, kept_as: str, why: str) -> bool:
        """Set a file aside that is no message, unless somebody may still be writing it."""
        found = directory.stat(name)
        if found is not None and abs(self._clock.now() - found.mtime) <= YOUNG:
            return False
        self.put_aside(directory, name, BAD, kept_as, f"is bad: {why}")
        return True

    def drop(self, directory: Dir, name: str, kept: Stat | None, kept_as: str) -> None:
        """Be rid of a double: another name of the file that is kept, or a message of its id."""
        if same(kept, directory.stat(name)):
            with suppress(FileNotFoundError):
                directory.unlink(name)
        elif kept is not None:
            self.put_aside(directory, name, BAD, kept_as, "is bad: its id was used before")

    def put_aside(self, directory: Dir, name: str, shelf: str, kept_as: str, why: str) -> bool:
        """Move a file onto a shelf, whatever is there already; False if somebody was faster."""
        target, free, number = self.shelf(shelf), kept_as, 1
        while True:
            try:
                directory.move(name, target, free)
                break
            except FileNotFoundError:
                return False
            except FileExistsError:
                if same(target.stat(free), directory.stat(name)):
                    directory.unlink(name)
                    break
                number += 1
                free = f"{_cut(kept_as)}~{number}"
        self.set_aside.append(f"{kept_as[:120]!r} {why[:200]}")
        return True


def is_mailbox(names: Iterable[str]) -> bool:
    """Whether a directory with these entries is one; a crash may have left it half made."""
    return not {READY, *SHELVES}.isdisjoint(names)


def read_message(vfs: Vfs, directory: Dir, name: str) -> Record:
    """The record in a file, or NoMessage with the reason why there is none."""
    try:
        with files.reading(vfs, directory, name) as fd:
            size = vfs.size(fd)
            if size > MAX_LINE:
                raise NoMessage(f"{size} bytes; a message has at most {MAX_LINE}")
            data = b""
            while chunk := vfs.pread(fd, max(_PAGE, size - len(data)), len(data)):
                data += chunk
            return decode_record(data)
    except NotOurs:
        raise NoMessage("not a regular file") from None
    except DecodeError as error:
        raise NoMessage(str(error)) from None


def is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def remove_if_dead(vfs: Vfs, inbox: Dir, name: str, *, dry_run: bool = False) -> bool:
    """Remove a temporary if nobody has it locked, as its writer does; whether it was dead."""
    try:
        fd = inbox.open(name, files.READ)
    except (FileNotFoundError, NotOurs):
        return False
    try:
        # The second question: another one may have removed it, and a writer made it anew.
        if not vfs.try_lock(fd) or not _is_named(vfs, inbox, name, fd):
            return False
        if not dry_run:
            inbox.unlink(name)
        return True
    finally:
        vfs.close(fd)


def same(one: Stat | None, other: Stat | None) -> bool:
    """Whether both are names of one file."""
    return one is not None and other is not None and one.inode == other.inode


def _is_named(vfs: Vfs, directory: Dir, name: str, fd: int) -> bool:
    found = directory.stat(name)
    return found is not None and found.inode == vfs.inode(fd)


def _cut(name: str) -> str:
    """A file name with room for a number."""
    return name.encode("utf-8", "surrogateescape")[:_LONGEST_NAME].decode("utf-8", "ignore")

# ruff: noqa: TID251 - a job's workspace is scratch: what agents make of it need not survive a crash
"""The files of a folder that somebody hostile may have arranged.

Every path is walked component by component from an open folder, and no symbolic link is ever
followed: what is read, written or removed lies inside, whatever the links say.  A path that names
the folder above is refused, whoever wrote it.  A file is never written in place, since it may have
another name outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from holdfast.errors import BadName, Corrupt, NotOurs, StorageError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = _FOLDER | os.O_PATH
"""To look from, in a folder of the user's; needs no right to read it."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DEEPEST = 256
_LONGEST_TARGET = 4095
_CHUNK = 1 << 20
_HELD_OPEN = 100
_ELSEWHERE = (FileNotFoundError, NotADirectoryError)
_CLOSED = (*_ELSEWHERE, PermissionError, NotOurs)


class Unkept(StorageError):
    """A folder that cannot be kept as it is, however often it is tried."""


Visit = Callable[[str, dict[str, str]], bool]
"""Is told a folder, and the kinds of what it holds by name; says whether to go on below."""


class Found(NamedTuple):
    mode: int
    """Its kind and whether it is executable, and nothing else of its rights."""
    size: int
    seen: tuple[int, int, int, int]
    """Inode, size, and when content and inode changed: equal as long as nobody touched it."""

    @property
    def changed_ns(self) -> int:
        return self.seen[3]


class Folder:
    """A folder, held open.

    In one of ours we give ourselves the rights that we need.  In the user's own no right is ever
    changed: what may not be read there is an error.
    """

    def __init__(self, path: str, *, ours: bool = True) -> None:
        self.path, self._ours = path, ours
        self._place = _FOLDER if ours else _PLACE
        with self._refusal(""):
            self._fd = os.open(path, _FOLDER)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    # --- looked at --------------------------------------------------------------------------

    def everything(self, below: str = "", *, but: str = "") -> Iterator[tuple[str, Found]]:
        """All files and links, and as `path/` each folder that holds none; `but` is left out."""
        pending = [below]
        while pending:
            here = pending.pop()
            if here.count("/") > _DEEPEST:
                what = f"folders are nested more than {_DEEPEST} deep: {here[:80]}…"
                hint = "remove them; no program could work with such a path"
                raise Unkept(what, hint=hint, path=self.path)
            try:
                with self._at(here) as fd:
                    entries = _entries(fd)
            except _ELSEWHERE:
                continue
            prefix = f"{here}/" if here else ""
            empty = True
            for name, about in entries:
                if stat.S_ISDIR(about.st_mode):
                    if prefix + name != but:
                        pending.append(prefix + name)
                    empty = False
                elif stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
                    yield prefix + name, _found(about)
                    empty = False
            if empty and here:
                yield f"{here}/", Found(stat.S_IFDIR, 0, (0, 0, 0, 0))

    def these(self, paths: Collection[str]) -> Iterator[tuple[str, Found]]:
        """Those of the paths that are files or links; all below those that end with a `/`."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            if path.endswith("/"):
                yield from self.everything(path[:-1])
            else:
                above, name = _split(path)
                by_folder.setdefault(above, []).append(name)
        for above, names in by_folder.items():
            with suppress(*_ELSEWHERE), self._at(above) as fd:
                for name in names:
                    with suppress(*_ELSEWHERE):
                        about = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode):
                            yield f"{above}/{name}" if above else name, _found(about)

    def walk(self, visit: Visit, below: str = "") -> None:
        """Show each folder with what it holds; those that cannot be opened are left out."""
        pending = [below]
        while pending:
            here = pending.pop()
            with suppress(*_CLOSED), self._at(here) as fd:
                pending += self._walk(fd, here, visit, _HELD_OPEN)

    def _walk(self, fd: int, here: str, visit: Visit, depth: int) -> list[str]:
        """Show a folder and those below; the ones that lie deeper are returned."""
        with os.scandir(fd) as entries:
            kinds = {entry.name: _kind(entry) for entry in entries}
        if not visit(here, kinds):
            return []
        folders = [name for name, kind in kinds.items() if kind == "folder"]
        inside = f"{here}/" if here else ""
        if not depth:
            return [inside + name for name in folders]
        deeper: list[str] = []
        for name in folders:
            with suppress(*_CLOSED):
                inner = self._enter(name, fd)
                try:
                    deeper += self._walk(inner, inside + name, visit, depth - 1)
                finally:
                    os.close(inner)
        return deeper

    def kind(self, path: str) -> str:
        """`file`, `link`, `folder`, `other`, or nothing if nothing is there."""
        above, name = _split(path)
        try:
            with self._at(above, how=self._place) as fd:
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except _ELSEWHERE:
            return ""
        kinds = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "folder"}
        return kinds.get(stat.S_IFMT(mode), "other")

    def small(self, path: str, most: int) -> bytes | None:
        """What a regular file holds; None if there is none, or a larger one."""
        try:
            found = bytearray()
            with self.reading(path) as fd:
                while piece := os.read(fd, min(most + 1 - len(found), _CHUNK)):
                    found += piece
        except (OSError, EOFError, NotOurs):
            return None
        return bytes(found) if len(found) <= most else None

    def text(self, path: str, most: int) -> str | None:
        """What a small file says; None if it is no text."""
        found = self.small(path, most)
        try:
            return found.decode("utf-8") if found is not None and b"\0" not in found else None
        except UnicodeDecodeError:
            return None

    @contextmanager
    def reading(self, path: str) -> Generator[int]:
        """A descriptor of a regular file."""
        above, name = _split(path)
        with self._at(above) as parent, self._refusal(path):
            fd = self._open(name, parent, _READ, 0o400)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise FileNotFoundError(path)
            yield fd
        finally:
            os.close(fd)

    def target(self, path: str) -> bytes:
        """Where a symbolic link points to."""
        above, name = _split(path)
        with self._at(above, how=self._place) as fd:
            return os.fsencode(os.readlink(name, dir_fd=fd))

    def stamp(self, name: str) -> int:
        """The instant that the file system would give a file changed now, told by one of ours."""
        try:
            fd = os.open(name, _NEW & ~os.O_EXCL, 0o600, dir_fd=self._fd)
        except OSError:
            self._set_aside(name, self._fd, self)
            fd = os.open(name, _NEW, 0o600, dir_fd=self._fd)
        try:
            os.write(fd, b".")
            return os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)

    # --- changed ----------------------------------------------------------------------------

    def put(self, path: str, mode: int, content: Iterable[bytes], aside: Folder) -> None:
        """Let a file or link be there, and nothing else; it is made `aside` and moved in whole."""
        above, name = _split(path)
        made = aside.fresh()
        try:
            if stat.S_ISLNK(mode):
                _link(b"".join(content), made, aside._fd, path)
            else:
                _fill(content, made, aside._fd, 0o777 if mode & 0o100 else 0o666)
            with self._at(above, made=aside) as parent:
                try:
                    os.rename(made, name, src_dir_fd=aside._fd, dst_dir_fd=parent)
                except (IsADirectoryError, NotADirectoryError, FileExistsError):
                    self._set_aside(name, parent, aside)
                    os.rename(made, name, src_dir_fd=aside._fd, dst_dir_fd=parent)
        except BaseException:
            # `aside` may be the user's own folder.
            with suppress(OSError):
                os.unlink(made, dir_fd=aside._fd)
            raise

    def put_folder(self, path: str, aside: Folder) -> None:
        with self._at(path, made=aside):
            pass

    def remove(self, path: str, aside: Folder) -> None:
        """Let nothing be there."""
        above, name = _split(path)
        with suppress(*_ELSEWHERE), self._at(above, change=True) as parent:
            self._set_aside(name, parent, aside)

    def prune(
        self, files: Collection[str], folders: Collection[str], aside: Folder, *, but: str = ""
    ) -> None:
        """Let nothing be here but these, whatever it is; `but` is left alone."""
        pending = [""]
        while pending:
            here = pending.pop()
            with self._at(here, change=True) as fd:
                for name, about in _entries(fd):
                    path = f"{here}/{name}" if here else name
                    if path == but:
                        continue
                    if stat.S_ISDIR(about.st_mode) and path in folders:
                        pending.append(path)
                    elif stat.S_ISDIR(about.st_mode) or path not in files:
                        self._set_aside(name, fd, aside)

    def move_in(self, name: str, other: Folder, aside: Folder) -> None:
        """Take an entry of another folder, in place of what stands here."""
        self._set_aside(name, self._fd, aside)
        os.rename(name, name, src_dir_fd=other._fd, dst_dir_fd=self._fd)

    def remove_if_empty(self, path: str) -> None:
        above, name = _split(path)
        with suppress(OSError), self._at(above, change=True) as parent:
            os.rmdir(name, dir_fd=parent)

    def empty(self) -> None:
        """Remove all that is inside.

        Folders in folders are moved up before they are emptied: no depth is too deep.
        """
        while names := os.listdir(self._fd):
            for name in names:
                self._empty_one(name)

    def _empty_one(self, name: str) -> None:
        try:
            fd = self._enter(name, self._fd, change=True)
        except (NotADirectoryError, FileNotFoundError):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)
            return
        try:
            for inner, about in _entries(fd):
                if stat.S_ISDIR(about.st_mode):
                    # It has to be writable to be moved: its `..` changes.
                    os.close(self._enter(inner, fd, change=True))
                    os.rename(inner, self.fresh(), src_dir_fd=fd, dst_dir_fd=self._fd)
                else:
                    os.unlink(inner, dir_fd=fd)
        finally:
            os.close(fd)
        os.rmdir(name, dir_fd=self._fd)

    def fresh(self) -> str:
        """A name that nothing here has."""
        return os.urandom(12).hex()

    # --- walking ----------------------------------------------------------------------------

    @contextmanager
    def _at(
        self, path: str, *, how: int = _FOLDER, change: bool = False, made: Folder | None = None
    ) -> Generator[int]:
        """The folder at a path; with `made` it is made, and what stands in its way goes there."""
        fd = os.dup(self._fd)
        try:
            with self._refusal(path):
                for name in path.split("/") if path else ():
                    try:
                        inner = self._enter(name, fd, how, change=change or made is not None)
                    except _ELSEWHERE:
                        if made is None:
                            raise
                        self._set_aside(name, fd, made)
                        os.mkdir(name, dir_fd=fd)
                        inner = self._enter(name, fd, how, change=True)
                    os.close(fd)
                    fd = inner
            yield fd
        finally:
            os.close(fd)

    def _enter(self, name: str, parent: int, how: int = _FOLDER, *, change: bool = False) -> int:
        """Open a folder inside, if it is ours with the rights that its owner can give himself."""
        _split(name)
        fd = self._open(name, parent, how, 0o700)
        if change and self._ours and (mode := os.fstat(fd).st_mode) & 0o700 != 0o700:
            os.fchmod(fd, stat.S_IMODE(mode) | 0o700)
        return fd

    def _open(self, name: str, parent: int, flags: int, rights: int) -> int:
        try:
            return os.open(name, flags, dir_fd=parent)
        except PermissionError:
            if not self._ours:
                raise
        # Through /proc: there is no chmod that takes a folder and follows no link.
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | rights)
        finally:
            os.close(fd)
        return os.open(name, flags, dir_fd=parent)

    @contextmanager
    def _refusal(self, path: str) -> Generator[None]:
        """Say what of the user's may not be read."""
        try:
            yield
        except PermissionError as error:
            if self._ours:
                raise
            place = os.path.join(self.path, path) if path else self.path
            raise NotOurs(
                f"may not be read or written: {place}",
                hint="nothing of yours is changed; give yourself the rights (`chmod u+r`, "
                "for a folder `u+rx`) or name another folder or file",
                path=place,
            ) from error

    def _set_aside(self, name: str, parent: int, aside: Folder) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.close(self._enter(name, parent, change=True))
                os.rename(name, aside.fresh(), src_dir_fd=parent, dst_dir_fd=aside._fd)
            else:
                os.unlink(name, dir_fd=parent)


def remove_folder(path: str) -> None:
    """Let a folder of ours be gone with all that is in it."""
    with Folder(path) as folder:
        folder.empty()
    os.rmdir(path)


def leads_inside(path: str) -> bool:
    """Whether a path, or a folder written as `path/`, names something below."""
    return not any(part in ("", ".", "..") for part in path.removesuffix("/").split("/"))


def folders_above(path: str) -> Generator[str]:
    """The folders that a path lies in; for `a/b/` also that folder."""
    while path := path.rpartition("/")[0]:
        yield path


def _split(path: str) -> tuple[str, str]:
    """The folder that a path lies in, and its name there."""
    if not leads_inside(path) or path.endswith("/"):
        what = f"not a path inside of a folder: {path[:80]!r}"
        raise BadName(what, hint="it was made to do harm")
    above, _, name = path.rpartition("/")
    return above, name


def _entries(fd: int) -> list[tuple[str, os.stat_result]]:
    with os.scandir(fd) as entries:
        found: list[tuple[str, os.stat_result]] = []
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False)))
    return found


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _found(about: os.stat_result) -> Found:
    mode = 0o100755 if about.st_mode & 0o100 else 0o100644
    if stat.S_ISLNK(about.st_mode):
        mode = 0o120000
    seen = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return Found(mode, about.st_size, seen)


def _link(target: bytes, name: str, parent: int, path: str) -> None:
    if not 0 < len(target) <= _LONGEST_TARGET or b"\0" in target:
        what = f"a symbolic link that no folder can have: {path[:80]!r}"
        hint = "its target is empty, too long or holds a NUL; commit it anew in the source"
        raise Corrupt(what, hint=hint, path=path)
    os.symlink(target, os.fsencode(name), dir_fd=parent)


def _fill(content: Iterable[bytes], name: str, parent: int, rights: int) -> None:
    fd = os.open(name, _NEW, rights, dir_fd=parent)
    try:
        for piece in map(memoryview, content):
            while piece:
                piece = piece[os.write(fd, piece) :]
    finally:
        os.close(fd)


def pieces(fd: int) -> Iterator[bytes]:
    """What is left of an open file."""
    while piece := os.read(fd, _CHUNK):
        yield piece

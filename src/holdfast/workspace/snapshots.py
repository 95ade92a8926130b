"""What a workspace holds, kept as commits of our own repository.

A file is read only when its size, times or inode say that it may have changed, and an unchanged
workspace costs no more than that look.  The tree of such a commit is not one that git would check
out: names that mean something to git are written as `%name`, and `%` marks an empty folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from holdfast.clock import SystemClock
from holdfast.errors import Corrupt, NotFound, StorageError
from holdfast.git.repository import (
    FILE,
    FOLDER,
    LINK,
    MODULE,
    Content,
    Digest,
    Entry,
    Repository,
    Tree,
)
from holdfast.workspace.safedir import Folder, Found, Unkept, pieces

_REFS = "refs/holdfast/snapshots/"
LAST = "refs/holdfast/last"
"""The one that was taken last: for who has lost the cache."""
_SMALL = 8 << 20
_EMPTY_FOLDER = "/%"
LARGEST = 256 << 20
"""Bytes of a file that is kept; of what a job began with any number."""
LONGEST = 300.0
"""Seconds for all files that have to be read."""
_CACHE, _MOST = "holdfast.cache", 1 << 30
"""What is remembered between processes; made again if it is lost."""


class Measured(NamedTuple):
    """Files by what became of them, as paths below the workspace."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __bool__(self) -> bool:
        return any(self)


class _Read(NamedTuple):
    """A file that was read, and how it looked then."""

    id: str
    seen: tuple[int, ...]


class Last(NamedTuple):
    """The snapshot that the workspace was last known to be close to."""

    id: str
    text: str
    tree: Tree
    root: str
    """The id of the tree as it is kept; empty if it was not asked for."""


class Snapshots:
    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.last: Last | None = None
        self.left_out: set[str] = set()
        """What was too large when all was last looked at; it is neither kept nor removed."""
        self._read: dict[str, _Read] = {}
        self._until: float | None = None
        self._loaded = False

    # --- the workspace ----------------------------------------------------------------------

    def look(
        self,
        files: Folder,
        paths: Collection[str] | None,
        *,
        partly: bool = False,
        former: Tree | None = None,
    ) -> Tree:
        """What is there now, of these paths or of all; `partly` if there are others that count.

        A file too large is as it was in `former`, else as it was last kept, if it was: so nobody
        is told that it was removed.
        """
        if former is None and (last := self.last_id()) is not None:
            former = self.tree_of(last)
        self._until = SystemClock().boottime() + LONGEST if former is not None else None
        left_out: set[str] = set()
        with Folder(self.repository.directory) as ours:
            now = ours.stamp("holdfast.stamp")
        found = files.everything() if paths is None else files.these(paths)
        tree: Tree = {}
        read: dict[str, _Read] = {}
        for path, about in found:
            known = self._read.get(path)
            # One that was read a moment ago, too early to be remembered, is read once more.
            large = about.size > LARGEST and about.mode != LINK and (known is None or known.seen)
            if about.mode == FOLDER:
                tree[path] = Entry(FOLDER, "")
            elif known is not None and known.seen == about.seen:
                read[path] = known
            elif former is not None and large:
                left_out.add(path)
                if path in former and not partly:
                    tree[path] = former[path]
            else:
                with suppress(FileNotFoundError):
                    blob = self._id_of(files, path, about)
                    # One that changed in this very moment may change again and look the same.
                    read[path] = _Read(blob, about.seen if about.changed_ns < now else ())
            if path in read:
                tree[path] = Entry(about.mode, read[path].id)
        self._read = {**self._read, **read} if partly else read
        if not partly:
            self.left_out = left_out
        return tree

    def last_id(self) -> str | None:
        """The snapshot that the workspace was last made to be, or was kept as."""
        self.load()
        if self.last is not None:
            return self.last.id
        kept = os.path.lexists(os.path.join(self.repository.directory, LAST))
        return self.repository.commit_of(LAST) if kept else None

    def _id_of(self, files: Folder, path: str, about: Found) -> str:
        if about.mode == LINK:
            target = files.target(path)
            return self.repository.id_of(len(target), [target])
        with files.reading(path) as fd:
            size = os.fstat(fd).st_size
            return self.repository.id_of(size, self._in_time(exactly(fd, size), files))

    def _in_time(self, content: Iterable[bytes], files: Folder) -> Iterator[bytes]:
        for piece in content:
            if self._until is not None and SystemClock().boottime() > self._until:
                what = f"the files take longer than {LONGEST:g} s to be read"
                hint = "remove what is large, or name it in .gitignore"
                raise Unkept(what, hint=hint, path=files.path)
            yield piece

    def put(self, files: Folder, aside: Folder, wanted: Tree, former: Tree | None = None) -> None:
        """Let all of these be there; what else is there stays."""
        paths = [path for path in wanted if path[-1] != "/"]
        here = self.look(files, paths, partly=True, former=former)
        with self.repository.reading() as blobs:
            for path, entry in sorted(wanted.items()):
                if entry.mode == FOLDER:
                    files.put_folder(path[:-1], aside)
                elif here.get(path) != entry:
                    files.put(path, entry.mode, blobs.content(entry.id), aside)

    # --- kept -------------------------------------------------------------------------------

    def take(
        self, files: Folder, tree: Tree, text: str, parents: list[str], upon: Mapping[str, Entry]
    ) -> str:
        """Keep a tree that was just looked at; `upon` are entries that are known to be here."""
        last = self.last
        if last is None:
            # From now on the history names trees that are in this repository.
            self.repository.settle_name()
        former = last.tree if last is not None else {}
        changed = difference(former, tree)
        mark = Entry(FILE, self.repository.id_of(0, ()))
        kept = {
            _kept(path): mark if entry is not None and entry.mode == FOLDER else entry
            for path, entry in changed.items()
        }
        here = {entry.id for entry in (*former.values(), *upon.values())}
        root = last and (last.root or self.repository.tells("rev-parse", f"{last.id}^{{tree}}"))
        made, root = self.repository.commit(
            text,
            changed=kept,
            upon=root,
            contents=self._contents(files, tree, changed, kept, here),
            parents=parents,
        )
        # Refs name it, so that nothing ever takes it for garbage, and it is found again.
        with Folder(self.repository.directory) as ours:
            for name in (f"{_REFS}{made}", LAST):
                ours.put(name, FILE, [f"{made}\n".encode()], ours)
        self.remember(Last(made, text, tree, root))
        return made

    def _contents(
        self,
        files: Folder,
        tree: Tree,
        changed: Mapping[str, Entry | None],
        kept: dict[str, Entry | None],
        here: Collection[str],
    ) -> Iterator[Content]:
        yield 0, ()
        for path, entry in changed.items():
            if entry is None or entry.mode == FOLDER or entry.id in here:
                continue
            try:
                if entry.mode == LINK:
                    target = files.target(path)
                    found = self.repository.id_of(len(target), [target])
                    yield len(target), (target,)
                else:
                    with files.reading(path) as fd:
                        size = os.fstat(fd).st_size
                        digest = self.repository.blob_digest(size)
                        yield size, _noting(self._in_time(exactly(fd, size), files), digest)
                        found = digest.hexdigest()
            except OSError:
                # It vanished under our hands, or became something else.
                kept[_kept(path)] = None
                tree.pop(path)
                self._read.pop(path)
                continue
            if found != entry.id:
                tree[path] = kept[_kept(path)] = Entry(entry.mode, found)
                self._read[path] = _Read(found, ())

    def tree_of(self, snapshot: str) -> Tree:
        self.load()
        if self.last is not None and self.last.id == snapshot:
            return self.last.tree
        tree: Tree = {}
        for path, entry in self.repository.tree(snapshot).items():
            real = _real(path)
            tree[real] = Entry(FOLDER, "") if real.endswith("/") else entry
        return tree

    def text_of(self, snapshot: str) -> str:
        self.load()
        if self.last is not None and self.last.id == snapshot:
            return self.last.text
        try:
            said = self.repository.ask("cat-file", "commit", snapshot).decode("utf-8", "replace")
        except StorageError as error:
            hint = "it belongs to another job, or the job's repository was damaged"
            raise NotFound(f"no such snapshot: {snapshot[:80]}", hint=hint) from error
        return said.partition("\n\n")[2].removesuffix("\n")

    # --- remembered -------------------------------------------------------------------------

    def load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        try:
            with Folder(self.repository.directory) as ours:
                said = json.loads(ours.small(_CACHE, _MOST) or b"")
            tree = {path: Entry(mode, blob) for path, (mode, blob) in said["tree"].items()}
            self.last = Last(said["last"], said["text"], tree, said["root"])
            read = said["read"]
            self._read = {path: _Read(blob, tuple(seen)) for path, (blob, seen) in read.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.last, self._read = None, {}

    def remember(self, last: Last) -> None:
        """Say what the workspace was made to be."""
        self.last = last
        about = {"last": last.id, "text": last.text, "root": last.root}
        said = {**about, "tree": last.tree, "read": self._read}
        with Folder(self.repository.directory) as ours:
            ours.put(_CACHE, FILE, [json.dumps(said).encode("ascii")], ours)


def difference(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> dict[str, Entry | None]:
    """What has to be said to make the new of the old one; None is what goes."""
    gone: dict[str, Entry | None] = {path: None for path in old if path not in new}
    return gone | {path: entry for path, entry in new.items() if old.get(path) != entry}


def measured(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Measured:
    """The same in words, for files only."""
    changes = {p: e for p, e in difference(old, new).items() if not p.endswith("/")}
    added = [path for path, entry in changes.items() if entry is not None and path not in old]
    changed = [path for path, entry in changes.items() if entry is not None and path in old]
    removed = [path for path, entry in changes.items() if entry is None]
    return Measured(*(sorted(map(printable, each)) for each in (added, changed, removed)))


def printable(path: str) -> str:
    """A path as text, with the bytes that are none written as `\\xe9`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def checked(tree: Tree) -> Tree:
    """The files of a tree that others made, if all may be written; modules left out."""
    for path in tree:
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in path.split("/")):
            hint = "the repository was made to do harm; look at it with `git fsck`"
            raise Corrupt(f"a path that no work tree can have: {printable(path)[:80]!r}", hint=hint)
    return {path: entry for path, entry in tree.items() if entry.mode != MODULE}


def exactly(fd: int, size: int) -> Iterator[bytes]:
    """So many bytes of a file, which may grow or shrink meanwhile."""
    left = size
    for piece in pieces(fd):
        yield piece[:left]
        left -= min(left, len(piece))
        if not left:
            return
    while left:
        yield bytes(min(left, _SMALL))
        left -= min(left, _SMALL)


def _noting(content: Iterable[bytes], digest: Digest) -> Iterator[bytes]:
    for piece in content:
        digest.update(piece)
        yield piece


def _kept(path: str) -> str:
    """A path as the trees of snapshots have it."""
    parts = path.removesuffix("/").split("/")
    said = "/".join(f"%{p}" if p[:1] == "%" or p[:4].lower() == ".git" else p for p in parts)
    return said + _EMPTY_FOLDER if path.endswith("/") else said


def _real(kept: str) -> str:
    folder = kept.endswith(_EMPTY_FOLDER)
    parts = kept.removesuffix(_EMPTY_FOLDER).split("/") if folder else kept.split("/")
    if any(part in ("", ".", "..", "%") for part in parts):
        raise Corrupt("not a snapshot of a workspace", hint="name one that `job show` lists")
    return "/".join(p.removeprefix("%") for p in parts) + ("/" if folder else "")

"""A folder of ours with a repository of ours in it.

    repository.git/      the history that was begun with, snapshots, what is known
    aside/, fresh/       what is being made or removed; empty between two calls

Whoever has more than one candidate for the same work has one of these for all: commits are made and
merged in it without touching a file, and one of them is published to the user's repository.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from holdfast.clock import SystemClock
from holdfast.errors import BadName, Conflict, NotFound, typed
from holdfast.git.repository import (
    FILE,
    FOLDER,
    LINK,
    MODULE,
    Content,
    Entry,
    Repository,
    Tree,
)
from holdfast.git.source import Source
from holdfast.store.lock import Lock
from holdfast.store.vfs import RealVfs
from holdfast.workspace.agent_git import is_ref
from holdfast.workspace.ignored import listed
from holdfast.workspace.safedir import Folder, leads_inside, pieces, remove_folder
from holdfast.workspace.snapshots import Measured, Snapshots, checked, difference, measured
from holdfast.workspace.source import Facts, facts_in, files_gone, origin_of, repository_of, survey

_PATIENCE = 600.0
_PUBLISHED = "refs/holdfast/published"


class Conflicts(NamedTuple):
    paths: list[str]


class Sealed(NamedTuple):
    """What a candidate must not change: files, folders, and names that are to stay unused."""

    base: str
    """The commit whose content counts."""
    paths: tuple[str, ...]

    def covers(self, path: str) -> bool:
        return any(path == name or path.startswith(f"{name}/") for name in self.paths)

    def stands_above(self, path: str) -> bool:
        """Whether a file or link of this name would stand in the way of a sealed path."""
        return any(name.startswith(f"{path}/") for name in self.paths)


class Repo:
    def __init__(self, folder: str, name: str) -> None:
        """`name` is that of the work, for messages; nothing is made yet."""
        self.folder, self.name = folder, name
        self.git = Repository(os.path.join(folder, "repository.git"))
        self._vfs = RealVfs()
        self._facts: Facts | None = None

    @classmethod
    def of(cls, folder: str, source: str, base: str | None = None) -> Repo:
        """The one in a folder; made from the user's repository if it is not there yet."""
        repo = cls(folder, os.path.basename(folder))
        with repo.alone():
            if repo.known() is None:
                repo.make(repository_of(source, needed=True), source, base, branch="holdfast")
        return repo

    @property
    def base(self) -> str | None:
        """The commit that was begun with."""
        return self.made().base

    # --- commits ----------------------------------------------------------------------------

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        """A commit of a tree, as who commits in the source; a ref of ours keeps it."""
        with self.alone():
            return self._commit(tree, parents, message)

    def _commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        made = self.git.commit_tree(tree, parents, message, self.made().identity)
        self.git.keep({f"refs/holdfast/commits/{made}": made})
        return made

    def merge(self, ours: str, theirs: str) -> str | Conflicts:
        """A commit that has both, or the paths that conflict; no file is touched."""
        for one, other in ((ours, theirs), (theirs, ours)):
            if self.git.tells("merge-base", "--is-ancestor", one, other) is not None:
                return other
        with self.alone():
            tree, conflicts = self.git.merge_tree(ours, theirs)
        if conflicts:
            return Conflicts(conflicts)
        return self.commit(tree, (ours, theirs), f"merge {theirs[:12]} into {ours[:12]}")

    def publish(self, commit: str, branch: str, *, expected: str | None) -> bool:
        """Set a branch of the user's repository, if it still is at `expected`; whether it moved.

        With None there must be no such branch.  A branch only moves forward, and never while it is
        checked out; HEAD, index and files are not touched, and no hook is run.
        """
        ref = f"refs/heads/{branch}"
        if not is_ref(ref) or branch in ("HEAD", "@"):
            raise BadName(f"not a branch: {branch[:80]!r}", hint="see `git check-ref-format`")
        with self.alone():
            source = origin_of(self.made())
            if expected == commit == source.commit_of(ref):
                return False
            self.git.keep({_PUBLISHED: commit})
            source.give(self.git, _PUBLISHED, branch, expected=expected)
        return True

    def take(self, checkout: Checkout, parent: str, message: str) -> str:
        """A commit of what a checkout holds now and git does not ignore, upon `parent`.

        The parent itself where nothing changed.
        """
        with self.alone(), typed("keeping the files", checkout.path):
            former = self.git.tree(parent)
            changed, contents = checkout.changes(former)
            if not changed:
                return parent
            upon = self.git.root(parent)
            _, tree = self.git.commit(message, changed=changed, upon=upon, contents=contents)
            return self._commit(tree, (parent,), message)

    def adopt(self, branch: str) -> str | None:
        """The commit that a branch of the user's repository has now, copied into ours."""
        with self.alone():
            source = origin_of(self.made())
            commit = source.commit_of(f"refs/heads/{branch}")
            if commit is not None and self.git.commit_of(commit) is None:
                objects = os.path.join(source.directory, "objects")
                if not self.git.take(objects, [commit], [each for each in [self.base] if each]):
                    what = f"branch {branch} cannot be read whole: {commit[:12]}"
                    hint = f"look at it with `git -C {source.directory} fsck`"
                    raise Conflict(what, hint=hint, path=source.directory)
                self.git.keep({f"refs/holdfast/commits/{commit}": commit})
        return commit

    def checkout(self, commit: str, folder: str, *, sealed: Sealed | None = None) -> Checkout:
        """The files of a commit in a folder of their own, with sealed paths as in their base."""
        with self.alone(), typed("checking out", folder):
            sealed = sealed or Sealed(commit, ())
            for path in sealed.paths:
                if not leads_inside(path) or path.endswith("/"):
                    hint = "a file or folder, relative to the top of the repository"
                    raise BadName(f"not a path that can be sealed: {path[:80]!r}", hint=hint)
            theirs, base = checked(self.git.tree(commit)), checked(self.git.tree(sealed.base))
            kept = {path: entry for path, entry in base.items() if sealed.covers(path)}
            wanted = kept | {
                path: entry
                for path, entry in theirs.items()
                if not (sealed.covers(path) or sealed.stands_above(path))
            }
            made = Checkout(self.git, folder, sealed, kept)
            made.fill(wanted)
        return made

    # --- the folder -------------------------------------------------------------------------

    def make(
        self, found: Source | None, source: str | None, base: str | None, branch: str
    ) -> Facts:
        """Make our repository, with the history of the source; moved in whole."""
        with scratch(self.folder, "fresh") as fresh:
            made = Repository(os.path.join(fresh.path, "repository.git"))
            made.held = self.git.held
            facts = survey(found, source, base, made, branch)
            settings = {"config": facts.config, "info/exclude": facts.exclude}
            with Folder(self.folder) as here, scratch(self.folder, "aside") as aside:
                # Of the source we have the objects; its refs and settings are its own.
                for name in ("refs", "packed-refs"):
                    fresh.remove(f"repository.git/{name}", aside)
                fresh.put_folder("repository.git/refs/holdfast", aside)
                for name, text in {"HEAD": "ref: refs/holdfast/none\n", **settings}.items():
                    fresh.put(f"repository.git/{name}", FILE, [text.encode()], aside)
                facts.write(made.directory)
                made.settle()
                here.move_in("repository.git", fresh, aside)
        self._facts, self.git.format = facts, made.format
        return facts

    @contextmanager
    def alone(self) -> Generator[None]:
        """Hold the lock of the folder; a git that outlives us holds it to its end."""
        with typed("opening the folder of a job", self.folder):
            here = self._vfs.root(self.folder, create=True)
        lock = Lock(here, ".files.lock", self._vfs, SystemClock())
        try:
            with typed("looking at the files of a job", self.folder):
                lock.acquire(_PATIENCE)
                self.git.held = (lock.fd,)
                self._tidy()
            yield
        finally:
            self.git.held = ()
            lock.close()
            here.close()

    def _tidy(self) -> None:
        """Undo what an agent may have done to our repository: no settings but ours hold there."""
        known, self._facts = self._facts, None
        if (facts := self.known()) is None:
            if known is not None:
                self._facts = known  # else the next one would make it anew, without the files
                raise files_gone(self.name, self.folder)
            return
        with Folder(self.git.directory) as ours:
            for name, text in (("config", facts.config), ("info/exclude", facts.exclude)):
                if ours.small(name, 1 << 20) != text.encode():
                    ours.put(name, FILE, [text.encode()], ours)

    def known(self) -> Facts | None:
        if self._facts is None:
            self._facts = facts_in(self.git.directory)
        return self._facts

    def made(self) -> Facts:
        if (facts := self.known()) is None:
            raise NotFound("the workspace is not made yet", hint="run or activate the job first")
        return facts

    def tell(self, note: str) -> None:
        """Note something that the user should know."""
        facts = self.made()
        if note not in facts.notes:
            self.note(facts._replace(notes=(*facts.notes, note)))

    def note(self, facts: Facts) -> None:
        facts.write(self.git.directory)
        self._facts = facts


class Checkout:
    """The files of a commit for programs to work on, without a repository.

    What is sealed is verified before and after each run: a program that measures a candidate is
    the candidate's own where the candidate can write it.
    """

    def __init__(self, git: Repository, folder: str, sealed: Sealed, kept: Tree) -> None:
        self.path = os.path.join(folder, "files")
        self._folder, self._sealed, self._kept = folder, sealed, kept
        self._git, self._snapshots = git, Snapshots(git)

    def fill(self, wanted: Tree) -> None:
        above, name = os.path.split(os.path.abspath(self._folder))
        with Folder(above) as outer:
            outer.put_folder(name, outer)
        with Folder(self._folder) as here, scratch(self._folder, "aside") as aside:
            here.remove("files", aside)
            here.put_folder("files", aside)
            with Folder(self.path) as files:
                self._snapshots.put(files, aside, wanted, former={})

    def remove(self) -> None:
        """Let the folder be gone."""
        remove_folder(self._folder)

    def changes(self, former: Tree) -> tuple[dict[str, Entry | None], list[Content]]:
        """What differs from a tree and could be committed, and what the changed files hold."""
        with Folder(self.path) as files:
            kept = {path for path, entry in former.items() if entry.mode != MODULE}
            paths = [path for path in listed(self._git, files, kept, tuple) if path[-1] != "/"]
            now = {
                path: entry
                for path, entry in self._snapshots.look(files, paths, former={}).items()
                if entry.mode != FOLDER and ".git" not in path.lower().split("/")
            }
            modules = {path: entry for path, entry in former.items() if entry.mode == MODULE}
            changed = difference(former, modules | now)
            data = [_content(files, path, entry) for path, entry in changed.items() if entry]
        return changed, [(len(each), (each,)) for each in data]

    def broken(self) -> Measured:
        """What of the sealed paths is not as in their base."""
        with Folder(self.path) as files:
            return measured(self._kept, self._found(files))

    def restore(self) -> Measured:
        """Let the sealed paths be as in their base; what was not."""
        with Folder(self.path) as files, scratch(self._folder, "aside") as aside:
            broken = measured(self._kept, self._found(files))
            for path in self._in_the_way(files):
                files.remove(path, aside)
            # Also pipes and empty folders, which no tree has.
            for path in self._sealed.paths:
                files.remove(path, aside)
            self._snapshots.put(files, aside, self._kept)
        return broken

    def _found(self, files: Folder) -> Tree:
        paths = [path for name in self._sealed.paths for path in (name, f"{name}/")]
        found = self._snapshots.look(files, paths, former={})
        return found | {path: Entry(FILE, "") for path in self._in_the_way(files)}

    def _in_the_way(self, files: Folder) -> list[str]:
        """Links and files where a sealed path has a folder above it: others could be seen there."""
        found: dict[str, None] = {}
        for name in self._sealed.paths:
            parts = name.split("/")
            for path in ("/".join(parts[:count]) for count in range(1, len(parts))):
                if (kind := files.kind(path)) != "folder":
                    if kind:
                        found[path] = None
                    break
        return list(found)


def _content(files: Folder, path: str, entry: Entry) -> bytes:
    if entry.mode == LINK:
        return files.target(path)
    with files.reading(path) as fd:
        return b"".join(pieces(fd))


@contextmanager
def scratch(folder: str, name: str) -> Generator[Folder]:
    """A folder in one of ours that is empty before and after."""
    with Folder(folder) as here:
        here.put_folder(name, here)
    with Folder(os.path.join(folder, name)) as made:
        made.empty()
        yield made
        made.empty()

"""Folders of executors, commits of what they left, tags, and the branch `improve/SLUG`.

All work is done in a repository of ours below the campaign; of the user's only refs change that are
ours: the branch of the campaign and the tags of what lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from holdfast.codec import Record
from holdfast.contracts.kind import object_of, objects_in
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.git import call
from holdfast.git.repository import FILE, LINK, MODULE, Content, Entry, Repository, Tree
from holdfast.improve.files import in_scope
from holdfast.improve.proposers import replace_once
from holdfast.workspace.repo import Checkout, Repo, Sealed
from holdfast.workspace.safedir import leads_inside, remove_folder
from holdfast.workspace.snapshots import difference, printable
from holdfast.workspace.source import origin_of

_WHO = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "Holdfast"), ("EMAIL", "holdfast@localhost"))
}
_AT_ONCE = 2_000
"""Files that are read at once."""


class Files:
    """The files of a commit that may change, read from git and changed in memory."""

    def __init__(self, git: Repository, commit: str, may: Tree, texts: dict[str, str]) -> None:
        """`texts` are those of blobs that were read before, by any of these."""
        self._git, self.commit, self._texts = git, commit, texts
        self.tree = {path: it for path, it in may.items() if it.mode not in (LINK, MODULE)}
        self.written: dict[str, str | None] = {}

    def paths(self) -> list[str]:
        gone = {path for path, text in self.written.items() if text is None}
        return sorted((self.tree.keys() | self.written.keys()) - gone)

    def read(self, path: str) -> str:
        if (text := self.written.get(path)) is not None:
            return text
        entry = self.tree.get(path)
        if entry is None or path in self.written:
            raise NotFound(f"no such file: {path[:200]}", hint="`paths()` has those there are")
        if entry.id not in self._texts:
            # One process for all of them: who reads one will read the others.
            near = list(self.tree.values())[:_AT_ONCE]
            with self._git.reading() as blobs:
                for each in {entry, *near}:
                    if each.id not in self._texts:
                        data = b"".join(blobs.content(each.id))
                        self._texts[each.id] = data.decode("utf-8", "surrogateescape")
        return self._texts[entry.id]

    def write(self, path: str, text: str | None) -> None:
        """Let a file hold a text; None removes it."""
        if not path or "\0" in path or path.startswith("/") or not leads_inside(path):
            raise Conflict(f"not a file of the repository: {path[:200]!r}", hint="a relative path")
        self.written[path] = text


class Workshop:
    """The repository of a campaign, and the folders beside it."""

    def __init__(self, folder: str, source: str, base: str) -> None:
        self.folder = folder
        self.repo = Repo.of(folder, source, base)
        self.git = self.repo.git
        self._texts: dict[str, str] = {}

    def files(self, commit: str, scope: Sequence[str], sealed: Sealed) -> Files:
        """What a built-in may read and change."""
        tree = self.git.tree(commit).items()
        may = {path: it for path, it in tree if in_scope(path, scope) and not sealed.covers(path)}
        return Files(self.git, commit, may, self._texts)

    # -- folders -----------------------------------------------------------------------

    def clean(self) -> None:
        """Remove every folder of candidates."""
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self.folder)):
                if name.startswith(("round_", "measured")):
                    self.remove(name)

    def remove(self, name: str) -> None:
        # What cannot be removed now is seen when something is to be put there.
        with suppress(OSError):
            remove_folder(os.path.join(self.folder, name))

    def checkout(self, name: str, commit: str) -> Checkout:
        """The files of a commit in a fresh folder."""
        self.remove(name)
        return self.repo.checkout(commit, os.path.join(self.folder, name))

    def with_git(self, checkout: Checkout) -> None:
        """A repository in the folder, whose one commit is what the executor begins with.

        What is in the folder at the end counts, whatever was committed, staged or hidden in it.
        """
        env = call.environment() | _WHO
        for words in (
            ("init", "--quiet", "--template="),
            ("add", "--all", "--force"),
            ("commit", "--quiet", "--no-verify", "--allow-empty", "-m", "start"),
        ):
            line = call.command("-C", checkout.path, *words)
            ran = call.run(line, env, patience=call.LONG)
            if ran.code != 0:
                raise call.refused(line, ran.said, checkout.path)

    # -- commits -----------------------------------------------------------------------

    def written(self, files: Files, message: str) -> str:
        """A commit of what a built-in wrote."""
        changed: dict[str, Entry | None] = {}
        contents: list[Content] = []
        for path, text in files.written.items():
            if text is None:
                changed |= {path: None} if path in files.tree else {}
                continue
            data = text.encode("utf-8", "surrogateescape")
            mode = files.tree[path].mode if path in files.tree else FILE
            entry = Entry(mode, self.git.id_of(len(data), [data]))
            if files.tree.get(path) != entry:
                changed[path] = entry
                contents.append((len(data), (data,)))
        if not changed:
            return files.commit
        with self.repo.alone():
            upon = self.git.root(files.commit)
            _, tree = self.git.commit(message, changed=changed, upon=upon, contents=contents)
        return self.repo.commit(tree, (files.commit,), message)

    def changed(self, old: str, new: str) -> dict[str, Entry | None]:
        return dict(difference(self.git.tree(old), self.git.tree(new)))

    def diff(self, old: str, new: str) -> str:
        return self.git.differences(old, new, "-p", "--no-renames").decode("utf-8", "replace")

    # -- the user's repository ----------------------------------------------------------

    def push(self, branch: str, remote: str) -> str:
        """Push the branch of the campaign; why not, if it was refused."""
        try:
            return origin_of(self.repo.made()).push(branch, remote)
        except HoldfastError as error:
            return error.message

    def archive(self, tags: Mapping[str, str]) -> None:
        """Tag commits in the user's repository, which keeps them for good."""
        if tags:
            with self.repo.alone():
                origin_of(self.repo.made()).give_tags(self.git, tags)


def out_of_bounds(
    changed: Mapping[str, Entry | None], scope: Sequence[str], sealed: Sealed
) -> list[str]:
    """The changed paths that a candidate may not touch, for people."""
    return sorted(
        printable(path) for path in changed if not in_scope(path, scope) and not sealed.covers(path)
    )


def apply_reply(files: Files, reply: Record) -> None:
    """The edits that a model without hands describes: whole files, or replacements in them."""
    for path, text in object_of(reply.get("files")).items():
        if not isinstance(text, str | None):
            raise Conflict(f"files.{path} is no text", hint="the whole new text, or null")
        files.write(path, text)
    for edit in objects_in(reply.get("edits")):
        replace_once(files, *(str(edit.get(name, "")) for name in ("file", "old", "new")))

"""What a job offers to its source: a diff, a patch, a branch.

Only files that git could commit are offered.  Left out are what was attached for the agent to
read, what came with a repository inside the workspace, and the content of submodules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import BadName, Conflict
from holdfast.git.repository import FOLDER, MODULE, Entry, Repository, Tree
from holdfast.git.source import Source
from holdfast.workspace.agent_git import Heads
from holdfast.workspace.snapshots import Measured, difference, measured

_RESULT = "refs/holdfast/result"
_NESTED = re.compile(r"(.+?)/\.git/", re.IGNORECASE | re.DOTALL)
_EACH = re.compile(rb"^(?=diff --git )", re.MULTILINE)
"""Where the patch of a file begins: no line of what it holds stands there without a mark."""
_PLAIN = ("--no-renames", "--full-index", "--binary", "-p")


class Merged(NamedTuple):
    branch: str
    """In the source."""
    commit: str
    base: str | None
    commits: int
    """How many the branch has that the base has not."""
    files: Measured
    made: bool
    """Whether the branch was made or moved by this call."""
    note: str
    """What to do next, or why there was nothing to do."""


class Proposal:
    def __init__(
        self,
        repository: Repository,
        index: str,
        *,
        branch: str,
        base: str | None,
        first: Tree | None,
        inputs: frozenset[str],
    ) -> None:
        self._repository, self._index, self._branch = repository, index, branch
        self._base, self._inputs = base, inputs
        self._start = repository.tree(base) if base else {}
        self._began = first if first is not None else self._start

    def start(self) -> str:
        """The tree that the job began with."""
        return self.tree(self._began)

    def tree(self, workspace: Mapping[str, Entry], heads: Heads | None = None) -> str:
        """The tree of a workspace as git itself would make it.

        Its submodules are those of the agent's last commit, or of the base without `heads`.
        """
        return self._tree(workspace, self._parent(heads) if heads is not None else self._base)

    def _tree(self, workspace: Mapping[str, Entry], parent: str | None) -> str:
        # Only a commit says which one a submodule is at: its folder here is empty, or the agent's.
        committed = self._start if parent == self._base else self._repository.tree(parent or "")
        modules = {path: entry for path, entry in committed.items() if entry.mode == MODULE}
        changed = difference(self._start, modules | self._offered(workspace, modules))
        return self._repository.write_tree(self._index, self._base, changed)

    def _offered(self, workspace: Mapping[str, Entry], modules: Tree) -> Tree:
        inside = tuple(f"{module}/" for module in modules)
        new = _repositories(workspace) - _repositories(self._began)
        nested = tuple(f"{each}/" for each in new)
        return {
            path: entry
            for path, entry in workspace.items()
            if entry.mode not in (FOLDER, MODULE)
            and not (path in self._inputs and path not in self._start)
            and ".git" not in path.lower().split("/")
            and not path.startswith(inside)
            and not (path.startswith(nested) and path not in self._began)
        }

    def diff(self, old: str, new: str, *, patch: bool) -> str:
        if not patch:
            options = ("--no-renames", "--stat=100", "--summary")
            return self._repository.differences(old, new, *options).decode("utf-8", "replace")
        whole = self._repository.differences(old, new, *_PLAIN)
        try:
            return whole.decode("utf-8")
        except UnicodeDecodeError:
            binary = self._repository.differences(old, new, *_PLAIN, binary=True)
            files = zip(_EACH.split(whole), _EACH.split(binary), strict=True)
            return "".join(_as_text(text, instead) for text, instead in files)

    # --- as a branch ------------------------------------------------------------------------

    def commit(
        self, workspace: Mapping[str, Entry], heads: Heads, identity: tuple[str, str]
    ) -> str | None:
        """The agent's own last commit, with one of ours upon it for what it did not commit."""
        parent = self._parent(heads)
        tree = self._tree(workspace, parent)
        ask = self._repository.tells
        if parent is not None and ask("rev-parse", f"{parent}^{{tree}}") == tree:
            return parent
        if parent is None and not self._repository.tree(tree):
            return None
        former = self._repository.commit_of(_RESULT)
        if former is not None and ask("rev-parse", f"{former}^{{tree}}") == tree:
            line = " ".join(filter(None, (former, parent)))
            if ask("rev-list", "--parents", "-n", "1", former) == line:
                return former
        note = f"{self._branch}: what was not committed"
        made = self._repository.commit_tree(tree, [*filter(None, (parent,))], note, identity)
        # Kept at once, so that a dry run names the commit that the merge will bring.
        self._repository.keep({_RESULT: made})
        return made

    def _parent(self, heads: Heads) -> str | None:
        found = (heads.commit, heads.refs.get(f"refs/heads/{self._branch}"))
        usable = (each for each in found if each and self._is_after(self._base, each))
        return next(usable, self._base)

    def _is_after(self, old: str | None, new: str) -> bool:
        words = ("merge-base", "--is-ancestor")
        return old is None or self._repository.tells(*words, old, new) is not None

    def merge(
        self,
        source: Source,
        tip: str | None,
        branch: str,
        *,
        asked: bool,
        former: str | None,
        dry_run: bool,
    ) -> Merged:
        """Make the branch in the source, or move it forward if it is ours or was asked for."""
        if branch in ("HEAD", "@") or branch.startswith("refs/"):
            hint = "name it as `git branch` does, without refs/heads/; HEAD is never moved"
            raise BadName(f"not the name of a branch: {branch[:80]!r}", hint=hint)
        if tip is None or tip == self._base:
            note = "nothing to merge: the job changed no file"
            return Merged(branch, tip or "", self._base, 0, Measured([], [], []), False, note)
        span = (tip, *((f"^{self._base}",) if self._base else ()))
        commits = int(self._repository.tells("rev-list", "--count", *span) or 0)
        files = measured(self._start, self._repository.tree(tip))
        there = source.commit_of(f"refs/heads/{branch}")
        note = f"look at it with `git log -p {branch}`, take it with `git merge {branch}`"
        merged = Merged(branch, tip, self._base, commits, files, not dry_run, note)
        if there == tip:
            return merged._replace(made=False, note=f"already merged; {note}")
        self._check(source, branch, there, tip, movable=asked or there == former)
        if not dry_run:
            self._repository.keep({_RESULT: tip})
            source.give(self._repository, _RESULT, branch, expected=there)
        return merged

    def _check(
        self, source: Source, branch: str, there: str | None, tip: str, *, movable: bool
    ) -> None:
        hint = f"leave --into out, then `git merge {self._branch}` there yourself"
        if there is None:
            return
        if not movable:
            what = f"the source has a branch {branch} already, and it is not of this job"
            hint = "give another name with --into, or rename that branch"
        elif branch in source.checked_out():
            what = f"branch {branch} is checked out in the source"
        elif not self._is_after(there, tip):
            what = f"branch {branch} of the source has commits that the job does not have"
        else:
            return
        raise Conflict(what, hint=hint, path=source.directory)


def _repositories(tree: Mapping[str, Entry]) -> set[str]:
    """The folders below the top that hold a repository of their own."""
    found = (_NESTED.match(f"{path}/") for path in tree)
    return {each[1] for each in found if each is not None}


def _as_text(patch: bytes, binary: bytes) -> str:
    """The patch of a file, or its binary one if its text is in no encoding that we know."""
    try:
        return patch.decode("utf-8")
    except UnicodeDecodeError:
        return binary.decode("utf-8", "replace")

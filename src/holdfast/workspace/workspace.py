"""The files that a job works on.

Where they are depends on the isolation: the folder that the user named, a folder of the job's
own, or a work tree on branch `job-<id>`.  The last two lie in the folder of the job, beside a
repository of ours that keeps what they held at some instants:

    workspace/           where the agent works; `.git` in it is the agent's own
    repository.git/      ours: the history that the job began with, snapshots, what is known
    aside/, fresh/       what is being made or removed; empty between two calls

Whatever was begun and not ended by a crash is done again by the next call: files are compared
with what they have to be, and repositories are made aside and moved in whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Literal

from holdfast.errors import (
    BadName,
    ConfigError,
    Corrupt,
    NotFound,
    NotOurs,
    StorageError,
    UsageError,
    typed,
)
from holdfast.git.repository import FILE, MODULE, Entry, Tree
from holdfast.ids import key_parts
from holdfast.workspace import agent_git
from holdfast.workspace.agent_git import GIT, Heads, heads_in
from holdfast.workspace.files import ATTACHMENTS, check_name, copy_in, keep
from holdfast.workspace.ignored import listed, remove_unreachable
from holdfast.workspace.merge import Merged, Proposal
from holdfast.workspace.repo import Repo, scratch
from holdfast.workspace.safedir import Folder, folders_above, leads_inside
from holdfast.workspace.sandbox import Sandbox
from holdfast.workspace.snapshots import (
    LARGEST,
    LAST,
    Last,
    Measured,
    Snapshots,
    checked,
    measured,
    printable,
)
from holdfast.workspace.source import (
    Facts,
    check_source,
    copy_all,
    home_of,
    origin_of,
    repository_of,
)

Isolation = Literal["none", "directory", "worktree", "sandbox"]


class Workspace:
    """The files that a job works on."""

    def __init__(
        self,
        folder: str,
        isolation: Isolation,
        *,
        job: str,
        source: str | None = None,
        base: str | None = None,
        hidden: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        fits = source is None or agent_git.is_ref(f"refs/heads/job-{job}")
        if len(key_parts(job)) != 1 or not fits:
            raise BadName(f"not the name of a job: {job[:80]!r}", hint="letters, digits, _ and -")
        if isolation == "none" and source is None:
            raise UsageError("without isolation a job needs a folder", hint="name its source")
        if isolation == "worktree" and source is None:
            what = "a work tree needs a repository to start from"
            raise UsageError(what, hint="name it as source, or choose the isolation `directory`")
        self.folder, self.isolation, self.branch = folder, isolation, f"job-{job}"
        self._source = os.path.abspath(source) if source is not None else None
        self._base, self._hidden = base, hidden
        self.path = os.path.join(folder, "workspace")
        if isolation == "none" and self._source is not None:
            self.path = os.path.realpath(self._source)
        self._repo = Repo(folder, job)
        self._git = self._repo.git
        self._snapshots = Snapshots(self._git)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about what the job started from."""
        return facts.notes if (facts := self._repo.known()) is not None else ()

    @property
    def base(self) -> str | None:
        """The commit that the job started from."""
        return facts.base if (facts := self._repo.known()) is not None else None

    # --- made -------------------------------------------------------------------------------

    def make(self, attachments: Mapping[str, str] | None = None) -> None:
        """Let the workspace be there; what an agent did in one that was made is left alone.

        One that was made and is gone becomes what it was when it was last kept.
        """
        attachments = attachments or {}
        for name in attachments:
            check_name(name)
        if self.isolation == "none":
            if not os.path.isdir(self.path):
                raise NotFound(f"no such folder: {self.path}", hint="name the source of the job")
            for name, source in attachments.items():
                self.attach(name, source)
            return
        with self._repo.alone(), typed("making the workspace", self.path):
            facts = self._repo.known()
            if facts is None:
                facts = self._make_repository()
            with self._files() as files, scratch(self.folder, "aside") as aside:
                if facts.first is None:
                    self._fill(facts, files, aside)
                elif facts.worktree and files.kind(GIT) == "":
                    self._repo.tell("the agent's repository was gone: it is as it was last kept")
                    self._put_heads(facts, self._former(facts), files, aside)
                for name, source in attachments.items():
                    self._attach(files, aside, name, source)
                if facts.first is None:
                    first = self._snapshot(files, "what the job began with")
                    self._repo.note(self._repo.made()._replace(first=first))

    def attach(self, name: str, source: str) -> str:
        """Copy a file into the workspace; the path it has there."""
        check_name(name)
        with typed("attaching a file", self.path):
            if self.isolation == "none":
                with Folder(self.path, ours=False) as files:
                    copy_in(files, files, name, source, may_replace=False)
                return f"{ATTACHMENTS}/{name}"
            with self._repo.alone(), self._files() as files, scratch(self.folder, "aside") as aside:
                self._attach(files, aside, name, source)
        return f"{ATTACHMENTS}/{name}"

    def _attach(self, files: Folder, aside: Folder, name: str, source: str) -> None:
        facts = self._repo.made()
        copy_in(files, aside, name, source, may_replace=name in dict(facts.attachments))
        held = keep(self._git, files, aside, name)
        if dict(facts.attachments).get(name) != held:
            self._repo.note(facts.attached(name, held))

    def _make_repository(self) -> Facts:
        # It is made first: files without one are of a job that lost it.
        with Folder(self.folder) as here:
            if any(path != "workspace/" for path, _ in here.everything("workspace")):
                what = f"the files of a job without what is known of them: {self.path}"
                hint = "copy out what you need and move the folder away"
                raise Corrupt(what, hint=hint, path=self.path)
        found = None
        if self._source is not None:
            check_source(self._source, self.folder)
            if self.isolation != "directory":
                found = repository_of(self._source, needed=self.isolation == "worktree")
        return self._repo.make(found, self._source, self._base, self.branch)

    def _fill(self, facts: Facts, files: Folder, aside: Folder) -> None:
        """Let the files be what the job starts from."""
        if facts.worktree:
            self._put_heads(facts, self._start(facts), files, aside)
            whole = self._git.tree(facts.base) if facts.base else {}
            self._snapshots.put(files, aside, checked(whole))
            for path in self._modules(facts):
                files.put_folder(path, aside)
            return
        files.prune((), (), aside)
        if facts.source is not None:
            copy_all(facts.source, files, aside, but=home_of(self.folder))

    def _start(self, facts: Facts) -> Heads:
        ref = f"refs/heads/{self.branch}"
        return Heads(f"ref: {ref}", {ref: facts.base} if facts.base else {})

    # --- kept and put back ------------------------------------------------------------------

    def snapshot(self, message: str = "") -> str | None:
        """Keep what the workspace holds now; the id of it, the last one if nothing changed.

        It is a commit of our repository.  Its tree is the files; in a work tree its message and
        parents are where the agent's HEAD, branches and latest stash were.
        """
        if self.isolation == "none":
            return None
        with self._repo.alone(), typed("keeping the files", self.path), self._files() as files:
            return self._snapshot(files, message)

    def _snapshot(self, files: Folder, message: str) -> str:
        facts = self._repo.made()
        tree = self._look(facts, files)
        if large := sorted(map(printable, self._snapshots.left_out)):
            more = f" and {len(large) - 5} more" if len(large) > 5 else ""
            self._repo.tell(
                f"larger than {LARGEST >> 20} MiB, so neither kept nor compared nor merged: "
                f"{', '.join(large[:5])}{more}"
            )
            facts = self._repo.made()
        heads = None
        if facts.worktree:
            former, start = self._former(facts), self._start(facts)
            heads = agent_git.take_heads(self._git, files, former=former, start=start)
        last = self._snapshots.last
        if last is not None and last.tree == tree and heads_in(last.text) == heads:
            return last.id
        text = message.replace("\0", " ").strip() or "snapshot"
        if heads is not None:
            text = f"{text}\n\n{heads.text()}"
        parents = heads.tips if heads is not None else []
        begun = last is not None or facts.base is None
        upon = {} if begun else self._git.tree(facts.base or "")
        return self._snapshots.take(files, tree, text, parents, upon)

    def changed_since(self, tree: str) -> Measured:
        """What became of the files since a snapshot, whoever did it."""
        return measured(*self.since(tree))

    def since(self, tree: str) -> tuple[Tree, Tree]:
        """The files of a snapshot and those of now, but for attachments that are as they came:
        those are no change of anybody's."""
        self._needs_snapshots("to measure")
        with self._repo.alone(), typed("measuring the files", self.path), self._files() as files:
            facts = self._repo.made()
            former = self._snapshots.tree_of(tree)
            now = self._look(facts, files)
            for name, held in dict(facts.attachments).items():
                path = f"{ATTACHMENTS}/{name}"
                if path in now and now[path].id == held:
                    now.pop(path)
                    former = _without(former, {path})
            return former, now

    def restore(self, tree: str) -> Measured:
        """Let the files be exactly what a snapshot says; what that changed.

        Attachments become what was given last, unless the agent had made something else of them.
        In a work tree what git ignores stays, and the agent's HEAD, branches and latest stash
        become what they were.
        """
        self._needs_snapshots("to put back")
        with self._repo.alone(), typed("putting the files back", self.path):
            facts = self._repo.made()
            wanted = dict(self._snapshots.tree_of(tree))
            text = self._snapshots.text_of(tree)
            with self._files() as files, scratch(self.folder, "aside") as aside:
                target = wanted | self._inputs(facts, wanted)
                before = self._put_back(facts, files, aside, target)
                if facts.worktree:
                    heads = heads_in(text) or self._start(facts)
                    if heads != agent_git.heads_of(files) or not agent_git.is_sound(files):
                        self._put_heads(facts, heads, files, aside)
                    else:
                        agent_git.reset_index(self._git, heads, self.path, files, aside)
            self._git.keep({LAST: tree})
            self._snapshots.remember(Last(tree, text, wanted, ""))
            return measured(before, target)

    def _inputs(self, facts: Facts, wanted: Tree) -> Tree:
        """The attachments as they have to be where the agent left them as they came, or not."""
        return {
            path: Entry(FILE, held)
            for name, held in dict(facts.attachments).items()
            if (path := f"{ATTACHMENTS}/{name}") not in wanted
            or (name, wanted[path].id) in facts.attachments
            if self._git.tells("cat-file", "-e", held) is not None
        }

    def export(self, tree: str, folder: str) -> None:
        """Let another job's workspace hold the files of a snapshot of this one."""
        self._needs_snapshots("to copy")
        with (
            self._repo.alone(),
            typed("copying the files", folder),
            scratch(self.folder, "aside") as aside,
        ):
            wanted = dict(self._snapshots.tree_of(tree))
            folders = {each for path in wanted for each in folders_above(path)}
            with Folder(folder) as files:
                files.prune(wanted, folders, aside, but=GIT if self._repo.made().worktree else "")
                self._snapshots.put(files, aside, wanted)

    def text_of(self, path: str, most: int = 200_000) -> str | None:
        """What a file of the workspace says, for a model that cannot look itself.

        None if it is no file inside, is longer than `most` bytes or is no text.
        """
        if not leads_inside(path) or path.endswith("/") or "\0" in path:
            return None
        try:
            with Folder(self.path, ours=self.isolation != "none") as files:
                return files.text(path, most)
        except (OSError, NotOurs):
            return None

    def _put_back(self, facts: Facts, files: Folder, aside: Folder, wanted: Tree) -> Tree:
        stay = _attached(facts)
        if not facts.worktree:
            folders = {each for path in (*wanted, *stay) for each in folders_above(path)}
            try:
                before = self._look(facts, files)
            except StorageError:
                # Too deep to be looked at, not to be removed.
                before = {}
            large = self._snapshots.left_out - wanted.keys()
            folders |= {each for path in large for each in folders_above(path)}
            files.prune({*wanted, *stay, *large}, folders, aside)
            self._snapshots.put(files, aside, wanted)
            return _without(before, stay - wanted.keys())
        remove_unreachable(self._git, files, aside)
        before = self._look(facts, files)
        self._snapshots.put(files, aside, wanted)
        # Only now do the rules of the snapshot say what is ignored.
        here = self._look(facts, files)
        gone = [path for path in here if path not in wanted and path not in stay]
        for path in gone:
            if path[-1] != "/":
                files.remove(path, aside)
        needed = {each for path in wanted for each in folders_above(path)}
        emptied = {each for path in gone for each in folders_above(path)} - needed
        for folder in sorted(emptied, reverse=True):
            files.remove_if_empty(folder)
        return _without(before, stay - wanted.keys())

    def _modules(self, facts: Facts) -> list[str]:
        """Where the base has submodules."""
        base = self._git.tree(facts.base) if facts.base else {}
        return [path for path, entry in base.items() if entry.mode == MODULE]

    # --- the agent's repository -------------------------------------------------------------

    def _former(self, facts: Facts) -> Heads:
        """Where they were when the workspace was last kept."""
        latest = self._snapshots.last_id() or facts.first
        kept = heads_in(self._snapshots.text_of(latest)) if latest is not None else None
        return kept or self._start(facts)

    def _put_heads(self, facts: Facts, heads: Heads, files: Folder, aside: Folder) -> None:
        with scratch(self.folder, "fresh") as fresh:
            self._make_checkout(facts, heads, fresh, aside)
            files.move_in(GIT, fresh, aside)

    def _make_checkout(self, facts: Facts, heads: Heads, fresh: Folder, aside: Folder) -> None:
        agent_git.make_checkout(
            self._git,
            heads,
            self.path,
            fresh,
            aside,
            identity=facts.identity,
            left_out=f"{facts.exclude}/{ATTACHMENTS}/\n",
        )

    # --- what a job brought -----------------------------------------------------------------

    def diff(self, since: str | None = None, *, patch: bool = False) -> str:
        """What the job changed, since its start or a snapshot: a summary, or a patch.

        The patch applies with `git apply` to what the job started from.
        """
        self._needs_snapshots("to compare")
        with self._repo.alone(), typed("comparing the files", self.path), self._files() as files:
            self._snapshot(files, "")
            proposal, last = self._proposal(), self._last()
            now, old = proposal.tree(last.tree, heads_in(last.text)), proposal.start()
            if since:
                heads = heads_in(self._snapshots.text_of(since))
                old = proposal.tree(self._snapshots.tree_of(since), heads)
            return proposal.diff(old, now, patch=patch)

    def merge(self, *, into: str | None = None, dry_run: bool = False) -> Merged:
        """Bring the result into the source, as branch `job-<id>` or the branch `into`.

        The branch is new, or moves forward; HEAD, index and files of the source are not touched.
        """
        self._needs_snapshots("to merge from")
        with self._repo.alone(), typed("merging", self.path), self._files() as files:
            facts = self._repo.made()
            source = origin_of(facts)
            branch = into or self.branch
            if not agent_git.is_ref(f"refs/heads/{branch}"):
                raise BadName(f"not a branch: {branch[:80]!r}", hint="see `git check-ref-format`")
            self._snapshot(files, "")
            proposal = self._proposal()
            there = source.commit_of(f"refs/heads/{branch}")
            former = there if (branch, there) in facts.merged else None
            heads = self._upon(former, heads_in(self._last().text) or self._start(facts))
            tip = proposal.commit(self._last().tree, heads, facts.identity)
            if tip is not None and not dry_run:
                # Before it is given: whoever finds it there has to know it for ours.
                self._repo.note(facts.giving(branch, tip))
            merged = proposal.merge(
                source, tip, branch, asked=into is not None, former=former, dry_run=dry_run
            )
            if merged.commit and merged.commit == source.commit_of(f"refs/heads/{branch}"):
                self._repo.note(facts.given(branch, merged.commit))
            return merged

    def _upon(self, former: str | None, heads: Heads) -> Heads:
        """With what was merged before checked out, if the agent committed nothing since."""
        words = ("merge-base", "--is-ancestor", heads.commit or former or "", former or "")
        if former is None or self._git.tells(*words) is None:
            return heads
        return heads._replace(head=former)

    def _proposal(self) -> Proposal:
        facts = self._repo.made()
        return Proposal(
            self._git,
            os.path.join(self.folder, "repository.git", "holdfast.index"),
            branch=self.branch,
            base=facts.base,
            first=None if facts.worktree else self._snapshots.tree_of(facts.first or ""),
            inputs=_attached(facts),
        )

    @property
    def sandbox(self) -> Sandbox | None:
        """What its programs have to be run in, if that is the isolation."""
        if self.isolation != "sandbox":
            return None
        return Sandbox(self.path, (self._git.directory,), tuple(self._hidden()))

    # --- looking ----------------------------------------------------------------------------

    def _look(self, facts: Facts, files: Folder) -> Tree:
        if not facts.worktree:
            return self._snapshots.look(files, None)
        self._snapshots.load()
        last = self._snapshots.last
        kept = {*_attached(facts), *(last.tree if last is not None else ())}
        paths = listed(self._git, files, kept, lambda: self._modules(facts))
        return self._snapshots.look(files, paths)

    def _needs_snapshots(self, what: str) -> None:
        if self.isolation == "none":
            raise ConfigError(
                f"a job without isolation keeps no copy of its files {what}",
                hint="its folder is the user's own; choose the isolation `worktree` or `directory`",
                path=self.path,
            )

    def _last(self) -> Last:
        assert self._snapshots.last is not None
        return self._snapshots.last

    # --- the folder of the job --------------------------------------------------------------

    @contextmanager
    def _files(self) -> Generator[Folder]:
        """The workspace; a folder, whatever an agent put in its place."""
        with Folder(self.folder) as here:
            # A copy of a home that git made has an empty folder for what has a repository inside.
            if here.kind("workspace") != "folder" or (
                (facts := self._repo.known()) is not None
                and facts.worktree
                and facts.first is not None
                and [path for path, _ in islice(here.everything("workspace"), 2)] == ["workspace/"]
            ):
                self._make_anew(here)
        with Folder(self.path) as files:
            yield files

    def _make_anew(self, here: Folder) -> None:
        """Let the workspace be what it was when it was last kept.

        It is moved in whole: half of it would be taken for what the agent left of its files.
        """
        facts = self._repo.made()
        with scratch(self.folder, "fresh") as fresh, scratch(self.folder, "aside") as aside:
            fresh.put_folder("workspace", aside)
            if facts.first is not None:
                with Folder(os.path.join(fresh.path, "workspace")) as files:
                    latest = self._snapshots.last_id() or facts.first
                    self._snapshots.put(files, aside, self._snapshots.tree_of(latest))
                    if facts.worktree:
                        self._make_checkout(facts, self._former(facts), files, aside)
                        for path in self._modules(facts):
                            files.put_folder(path, aside)
                self._repo.tell(
                    "the workspace was gone: its files are as they were last kept; "
                    "what was not kept is lost"
                )
            here.move_in("workspace", fresh, aside)


def _attached(facts: Facts) -> frozenset[str]:
    return frozenset(f"{ATTACHMENTS}/{name}" for name, _ in facts.attachments)


def _without(tree: Tree, paths: Collection[str]) -> Tree:
    return {path: entry for path, entry in tree.items() if path not in paths}

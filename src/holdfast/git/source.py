"""The repository that a user has: looked at, and changed only by `give`."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import Busy, Conflict, HoldfastError, NotOurs, ReadOnly
from holdfast.git import call
from holdfast.git.repository import Repository

_REFUSALS: tuple[tuple[str, type[HoldfastError], str], ...] = (
    (
        "refusing to fetch into branch",
        Conflict,
        "merge into a branch of another name, then `git merge` that one",
    ),
    (
        "[rejected]",
        Conflict,
        "it has commits of its own: merge into another one, then `git merge` that one",
    ),
    (
        "exists; cannot create",
        Conflict,
        "git keeps no branch `a` beside `a/b`: give another name with --into, or rename that one",
    ),
    (
        ".lock': File exists",
        Busy,
        "another git works there: try again; if none does, remove that file",
    ),
    (
        "fsck error",
        Conflict,
        "a file has a name or content that git refuses: rename or remove it in the workspace, "
        "or take `job diff --patch` instead",
    ),
    ("Read-only file system", ReadOnly, "the source has to be writable to get a branch"),
    ("ermission", NotOurs, "the source has to be yours to write in; see `ls -la` there"),
    (
        "cannot lock ref",
        Conflict,
        "another program moved it in between: look at it, then make the same call again",
    ),
)
"""What git says when it refuses a branch, and what to do then."""
_WHO = {"GIT_COMMITTER_NAME": "Holdfast", "GIT_COMMITTER_EMAIL": "holdfast@localhost"}
_PUSH = 60.0
"""Seconds for a remote to take a branch."""
_BLAMING = ("fatal:", "error:", "!")
_NO_PART_OF_A_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029<>]")
_CRUD = " .,:;\"\\'"
"""What git itself takes off the ends of a name."""


class Source(NamedTuple):
    top: str | None
    """Its work tree, if it has one."""
    directory: str
    """What all its work trees share."""
    own: str
    """What belongs to this work tree: HEAD and the index."""

    def commit_of(self, name: str) -> str | None:
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        ran = self._ask(*words)
        return ran.out.decode("ascii").strip() if ran.code == 0 else None

    def branch(self) -> str | None:
        """The branch that is checked out; None for a detached HEAD."""
        ran = self._ask("symbolic-ref", "--quiet", "--short", "HEAD")
        return ran.out.decode("utf-8", "replace").removesuffix("\n") if ran.code == 0 else None

    def identity(self) -> tuple[str, str] | None:
        """Name and address of who commits here, as the user's own settings have it."""
        words = ("config", "-z", "--get-regexp", r"^user\.(name|email)$")
        line = call.command(f"--git-dir={self.own}", *words)
        said = call.run(line, call.environment(user_settings=True)).out.decode("utf-8", "replace")
        found: dict[str, str] = {}
        for each in said.split("\0"):
            name, _, value = each.partition("\n")
            found[name] = _NO_PART_OF_A_NAME.sub(" ", value).strip(_CRUD)
        names = found.get("user.name"), found.get("user.email")
        return (names[0], names[1]) if names[0] and names[1] else None

    def checked_out(self) -> set[str]:
        """The branches that a work tree is on."""
        listed = self._ask("worktree", "list", "--porcelain").out.decode("utf-8", "replace")
        return set(re.findall(r"^branch refs/heads/(.*)$", listed, re.MULTILINE))

    def give(self, ours: Repository, ref: str, branch: str, *, expected: str | None) -> None:
        """Set a branch to the commit of one of our refs, if it still is at `expected`.

        With None there must be no such branch.  A branch only moves forward, and never while it is
        checked out.  Neither HEAD, index nor any file is touched, and no hook is run.
        """
        # Brings the objects and asks for git's own refusals; only `update-ref` compares and swaps.
        ran = self._fetch(ours, f"{ref}:refs/heads/{branch}")
        commit = ours.commit_of(ref) or ""
        if ran.code == 0:
            words = ("update-ref", "-m", "given by holdfast", f"refs/heads/{branch}", commit)
            ran = self._ask(*words, expected or "0" * len(commit), env=_WHO)
        if ran.code != 0:
            raise self._refused(ran.said, branch)

    def give_tags(self, ours: Repository, tags: Mapping[str, str]) -> None:
        """Let tags point to commits of ours, whatever they pointed to."""
        refs = {f"refs/holdfast/tags/{name}": commit for name, commit in tags.items()}
        ours.keep(refs)
        # By another name than in the end, as a fetch refuses to move a tag.
        ran = self._fetch(ours, *(f"{ref}:{ref}" for ref in refs))
        if ran.code == 0:
            lines = "".join(f"update refs/tags/{name} {it}\n" for name, it in tags.items())
            ran = self._ask("update-ref", "--stdin", given=lines.encode(), env=_WHO)
        if ran.code != 0:
            raise call.refused(("git", "fetch"), ran.said, self.directory)

    def push(self, branch: str, remote: str) -> str:
        """Push a branch as the user would, without hooks; why not, if it was refused."""
        line = call.command(f"--git-dir={self.own}", "push", "--quiet", "--", remote, branch)
        ran = call.run(line, call.environment(user_settings=True), patience=_PUSH)
        return "" if ran.code == 0 else ran.said[:400] or f"exit code {ran.code}"

    def _fetch(self, ours: Repository, *into: str) -> call.Ran:
        # The source's settings may put another place for ours, but not for a name that is new.
        name = f"holdfast-{secrets.token_hex(8)}:"
        # Not `--quiet`, which keeps to itself why a branch was not moved.
        plain = ("--no-progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        words = ("fetch", "--dry-run", *plain, "--no-recurse-submodules", "--", name, *into)
        settings = (f"url.{ours.directory}.insteadOf", name), ("fetch.fsckObjects", "true")
        told = {"GIT_CONFIG_COUNT": str(len(settings))}
        for number, (setting, value) in enumerate(settings):
            told |= {f"GIT_CONFIG_KEY_{number}": setting, f"GIT_CONFIG_VALUE_{number}": value}
        return self._ask(*words, env=told)

    def _refused(self, said: str, branch: str) -> HoldfastError:
        for words, kind, hint in _REFUSALS:
            if words in said:
                lines = (line.strip() for line in said.split("\n"))
                reason = next((line for line in lines if line.startswith(_BLAMING)), words)
                message = f"the source does not take branch {branch}: {reason[:400]}"
                return kind(message, hint=hint, path=self.directory)
        return call.refused(("git", "fetch"), said, self.directory)

    def _ask(
        self, *words: str, env: Mapping[str, str] | None = None, given: bytes = b""
    ) -> call.Ran:
        line = call.command(f"--git-dir={self.own}", *words)
        return call.run(
            line, {**call.environment(), **(env or {})}, given=given, patience=call.LONG
        )


def source_of(folder: str) -> Source | None:
    """The repository that a folder is, or lies in."""
    asked = ("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
    ran = _look(folder, *asked)
    if ran.code != 0 and not ran.out:
        return None
    # A bare one tells the first two and fails at the third.
    known = asked if ran.code == 0 else asked[:2]
    told = _lines(ran)
    if len(told) != len(known):
        # A name of a folder may have a line end in it.
        told = ["\n".join(_lines(_look(folder, each))) for each in known]
    own, shared, *top = told
    return Source(top[0] if top else None, os.path.realpath(shared), own)


def _look(folder: str, *asked: str) -> call.Ran:
    line = call.command("-C", folder, "rev-parse", "--path-format=absolute", *asked)
    ran = call.run(line, call.environment())
    if "dubious ownership" in ran.said:
        raise call.refused(line, ran.said, folder)
    return ran


def _lines(ran: call.Ran) -> list[str]:
    return os.fsdecode(ran.out).removesuffix("\n").split("\n")

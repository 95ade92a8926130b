"""The repository that a user has: looked at, and changed only by `give`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.errors import Conflict
from holdfast.git import call

_LOCAL = {"protocol.file.allow": "always", "fetch.fsckObjects": "true"}


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
        return ran.out.decode("utf-8", "replace").strip() if ran.code == 0 else None

    def identity(self) -> tuple[str, str] | None:
        """Name and address of who commits here, as the user's own settings have it."""
        words = ("config", "-z", "--get-regexp", r"^user\.(name|email)$")
        line = call.command(f"--git-dir={self.own}", *words)
        said = call.run(line, call.environment(user_settings=True)).out.decode("utf-8", "replace")
        found: dict[str, str] = {}
        for each in said.split("\0"):
            name, _, value = each.partition("\n")
            found[name] = value
        names = found.get("user.name"), found.get("user.email")
        return (names[0], names[1]) if names[0] and names[1] else None

    def checked_out(self) -> set[str]:
        """The branches that a work tree is on."""
        listed = self._ask("worktree", "list", "--porcelain").out.decode("utf-8", "replace")
        words = (line.removeprefix("branch refs/heads/") for line in listed.splitlines())
        return {word for word, line in zip(words, listed.splitlines(), strict=True) if word != line}

    def give(self, repository: str, ref: str, branch: str) -> None:
        """Let a branch that is new, or behind, be the commit of a ref in another repository.

        Neither HEAD, index nor any file is touched, and no hook is run.
        """
        quiet = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance")
        into = f"{ref}:refs/heads/{branch}"
        ran = self._ask(
            *("fetch", *quiet, "--no-recurse-submodules", "--", repository, into),
            env={
                "GIT_COMMITTER_NAME": "Holdfast",
                "GIT_COMMITTER_EMAIL": "holdfast@localhost",
            },
        )
        if "checked out" in ran.said or "rejected" in ran.said:
            raise Conflict(
                f"branch {branch} is checked out, or has commits of its own",
                hint="merge into a branch of another name, then `git merge` that one",
                path=self.directory,
            )
        if ran.code != 0:
            raise call.refused(("git", "fetch"), ran.said, self.directory)

    def _ask(self, *words: str, env: Mapping[str, str] | None = None) -> call.Ran:
        line = call.command(f"--git-dir={self.own}", *words, settings=_LOCAL)
        return call.run(line, {**call.environment(), **(env or {})}, patience=call.LONG)


def source_of(folder: str) -> Source | None:
    """The repository that a folder is, or lies in."""
    asked = ("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
    line = call.command("-C", folder, "rev-parse", "--path-format=absolute", *asked)
    ran = call.run(line, call.environment())
    if "dubious ownership" in ran.said:
        raise call.refused(line, ran.said, folder)
    # A bare one tells the first two and fails at the third.
    match os.fsdecode(ran.out).splitlines():
        case [own, shared, top]:
            return Source(top, os.path.realpath(shared), own)
        case [own, shared]:
            return Source(None, os.path.realpath(shared), own)
        case _:
            return None

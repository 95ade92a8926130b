"""The repository that an agent has in its workspace, to commit, branch and stash in as it likes.

It is the agent's, so we never run git by its settings: refs are read as files, objects are read
as objects, and when something has to be put back the whole of it is made anew.  The history lies
in our own repository, from which it borrows; so it is small, and cheap to make.
"""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

from holdfast.codec import DecodeError, decode_record
from holdfast.git.repository import Repository
from holdfast.workspace.safedir import Folder, pieces

GIT = ".git"
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = re.compile(r"refs/(?:heads/(?!-)[^\x00-\x20\x7f~^:?*\[\\\ufffd\udc80-\udcff]{1,200}|stash)")
_UNFIT = re.compile(r"\.\.|//|@\{|/\.|\.lock(?:/|$)|[./]$")
_MOST = 4 << 20
_ALTERNATES = f"{GIT}/objects/info/alternates"
_BORROWED = "../../../repository.git/objects\n"
_UNFINISHED = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"),
    *("rebase-merge", "rebase-apply", "sequencer", "index.lock", "HEAD.lock"),
)


class Heads(NamedTuple):
    """Where an agent stands: its HEAD, its branches and the latest stash."""

    head: str
    """A commit, or `ref: ` and the branch."""
    refs: dict[str, str]

    @property
    def commit(self) -> str | None:
        """What is checked out; None on a branch without commits."""
        branch = self.head.removeprefix("ref: ")
        return self.refs.get(branch) if branch != self.head else self.head

    @property
    def tips(self) -> list[str]:
        return sorted({*self.refs.values(), *filter(None, (self.commit,))})

    def text(self) -> str:
        return json.dumps({"head": self.head, "refs": self.refs}, sort_keys=True)


def heads_in(text: str) -> Heads | None:
    """What `Heads.text` wrote, as the last line of what a snapshot says."""
    try:
        said = decode_record(text.rpartition("\n")[2].encode())
        refs = {str(name): str(commit) for name, commit in said["refs"].items()}
        return Heads(str(said["head"]), refs)
    except (DecodeError, KeyError, TypeError, AttributeError):
        return None


def heads_of(workspace: Folder) -> Heads | None:
    """What the agent's repository says; None if it is gone or cannot be read."""
    if workspace.kind(GIT) != "folder" or workspace.kind(f"{GIT}/objects") != "folder":
        return None
    head = _line(workspace, f"{GIT}/HEAD")
    branch = head.removeprefix("ref:").strip()
    if head.startswith("ref:") and is_ref(branch):
        head = f"ref: {branch}"
    elif not _ID.fullmatch(head):
        return None
    return Heads(head, _refs(workspace))


def _refs(workspace: Folder) -> dict[str, str]:
    found: dict[str, str] = {}
    packed = workspace.small(f"{GIT}/packed-refs", _MOST) or b""
    for line in packed.decode("utf-8", "surrogateescape").split("\n"):
        commit, _, name = line.partition(" ")
        if _ID.fullmatch(commit) and is_ref(name):
            found[name] = commit
    loose = [path for path, _ in workspace.everything(f"{GIT}/refs/heads") if path[-1] != "/"]
    for path in (*loose, f"{GIT}/refs/stash"):
        name, commit = path.removeprefix(f"{GIT}/"), _line(workspace, path)
        if _ID.fullmatch(commit) and is_ref(name):
            found[name] = commit
    return dict(sorted(found.items()))


def is_ref(name: str) -> bool:
    return _REF.fullmatch(name) is not None and _UNFIT.search(name) is None


def _line(workspace: Folder, path: str) -> str:
    content = workspace.small(path, 4096) or b""
    return content.decode("utf-8", "surrogateescape").strip(" \t\r\n")


def is_sound(workspace: Folder) -> bool:
    """Whether the agent's git can work, and is in the middle of nothing."""
    if any(workspace.kind(f"{GIT}/{name}") for name in _UNFINISHED):
        return False
    borrows = workspace.small(_ALTERNATES, 4096) == _BORROWED.encode()
    return borrows and workspace.kind(f"{GIT}/config") == "file" and _is_readable(workspace)


def take_heads(ours: Repository, workspace: Folder, *, former: Heads, start: Heads) -> Heads:
    """Where the agent's branches are, and all that belongs to them taken into ours.

    What cannot be read is as it was before.
    """
    heads = heads_of(workspace)
    if heads is None:
        return former
    known = {*former.tips, *start.tips}
    missing = [tip for tip in heads.tips if tip not in known]
    objects = os.path.join(workspace.path, GIT, "objects")
    readable = not missing or _is_readable(workspace)
    if readable and (not missing or ours.take(objects, missing, sorted(known))):
        return heads
    # Something of it is broken: what is whole is kept.
    whole = {tip for tip in missing if readable and ours.take(objects, [tip], sorted(known))}
    refs = {name: tip for name, tip in heads.refs.items() if tip in known | whole}
    if heads.commit is None or heads.commit in known | whole:
        return Heads(heads.head, refs)
    return start._replace(refs=start.refs | refs)


def _is_readable(workspace: Folder) -> bool:
    """Whether git can read the agent's objects to the end: a pipe among them would hold it.

    Other folders that they borrow from may have pipes too.
    """
    if workspace.small(_ALTERNATES, 4096) not in (None, _BORROWED.encode()):
        return False
    others: set[str] = set()

    def visit(_: str, kinds: dict[str, str]) -> bool:
        others.update(kind for kind in kinds.values() if kind not in ("file", "folder"))
        return not others

    workspace.walk(visit, f"{GIT}/objects")
    return not others


def make_checkout(
    ours: Repository,
    heads: Heads,
    workspace: str,
    fresh: Folder,
    aside: Folder,
    *,
    identity: tuple[str, str],
    left_out: str,
) -> None:
    """Make in `fresh` a repository with these heads, to be moved into the workspace.

    `fresh` lies beside the workspace, so that ours is at the same place for both.
    """
    name, address = (each.replace("\\", "\\\\").replace('"', '\\"') for each in identity)
    user = f'[user]\n\tname = "{name}"\n\temail = "{address}"\n'
    said = {
        "HEAD": f"{heads.head}\n",
        "config": ours.config(bare=False) + user,
        "info/exclude": left_out,
        "objects/info/alternates": _BORROWED,
        "packed-refs": "".join(f"{commit} {ref}\n" for ref, commit in sorted(heads.refs.items())),
    }
    if stash := heads.refs.get("refs/stash"):
        line = f"{'0' * len(stash)} {stash} {name} <{address}> 0 +0000\tkept\n"
        said["logs/refs/stash"] = line
    with Folder(ours.directory) as mine:
        if shallow := mine.small("shallow", _MOST):
            said["shallow"] = shallow.decode("ascii", "replace")
    for place, text in said.items():
        fresh.put(f"{GIT}/{place}", 0o100644, [text.encode()], aside)
    fresh.put_folder(f"{GIT}/refs/heads", aside)
    if heads.commit:
        index = os.path.join(fresh.path, GIT, "index")
        ours.ask("read-tree", heads.commit, index=index, files=workspace)


def reset_index(
    ours: Repository, heads: Heads, workspace: str, files: Folder, aside: Folder
) -> None:
    """Let nothing be staged: what was staged is of files that were put back."""
    name = aside.fresh()
    index = os.path.join(aside.path, name)
    ours.ask("read-tree", heads.commit or "--empty", index=index, files=workspace)
    with aside.reading(name) as fd:
        files.put(f"{GIT}/index", 0o100644, pieces(fd), aside)

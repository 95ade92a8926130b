"""What a job's files came from, and what is known of them since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from holdfast.codec import DecodeError, decode_record, encode
from holdfast.errors import ConfigError, Corrupt, NotFound, NotOurs, StorageError, UsageError
from holdfast.git.repository import FOLDER, LINK, Repository
from holdfast.git.source import Source, source_of
from holdfast.git.worktree import top_of
from holdfast.settings import SETTINGS
from holdfast.text import plural
from holdfast.userfile import put_over
from holdfast.workspace.ignored import surroundings
from holdfast.workspace.safedir import Folder, pieces

_PLACE, _MOST = "holdfast.json", 4 << 20


class Facts(NamedTuple):
    """What was found out when the workspace was made, kept in `holdfast.json`."""

    worktree: bool
    source: str | None
    base: str | None
    identity: tuple[str, str]
    exclude: str
    """What the user ignores in this repository beyond its own rules."""
    notes: tuple[str, ...]
    config: str
    """The settings of our repository."""
    first: str | None = None
    """The first snapshot; None until the workspace is made."""
    attachments: tuple[tuple[str, str], ...] = ()
    """Names, and the ids of what was given by them, the last one last."""
    merged: tuple[tuple[str, str], ...] = ()
    """Branches that we gave to the source, and the commits that they have, or will have."""
    repository: str | None = None
    """The directory of the source's repository; None if that was not noted."""

    def attached(self, name: str, held: str) -> Facts:
        others = (each for each in self.attachments if each != (name, held))
        return self._replace(attachments=(*others, (name, held)))

    def giving(self, branch: str, commit: str) -> Facts:
        """What is known when a branch is about to become this commit, or may stay what it is."""
        return self._replace(merged=(*dict.fromkeys((*self.merged, (branch, commit))),))

    def given(self, branch: str, commit: str) -> Facts:
        others = [each for each in self.merged if each[0] != branch]
        return self._replace(merged=tuple(sorted([*others, (branch, commit)])))

    def write(self, directory: str) -> None:
        put_over(os.path.join(directory, _PLACE), encode(self._asdict()) + b"\n", mode=0o600)


_FACTS = TypeAdapter(Facts)


def survey(
    found: Source | None, source: str | None, base: str | None, made: Repository, branch: str
) -> Facts:
    """Make our repository from what the source has committed, and say what was left behind."""
    unnamed = (branch, f"{branch}@holdfast.invalid")
    identity = (found.identity() if found is not None else None) or unnamed
    notes: list[str] = []
    if found is None:
        made.create()
        return Facts(False, source, None, identity, "", (), made.config())
    commit = found.commit_of(base or "HEAD")
    if commit is None and base is not None:
        what = f"no such branch or commit in {source}: {base[:80]}"
        raise NotFound(what, hint="see `git branch --all` there", path=source)
    made.create(found.directory)
    top = found.top or found.directory
    if commit is None:
        notes.append(f"{top} has no commits: the job starts with no files")
    elif made.commit_of(commit) is None:
        what = f"the source cannot be copied whole: {commit} is missing in {top}"
        hint = "if it is a shallow or partial clone, fetch the rest of it first"
        raise Corrupt(what, hint=hint, path=top)
    if found.top is not None and source and os.path.realpath(source) != os.path.realpath(top):
        notes.append(f"{source} is a part of {top}: the job works on the whole of it")
    if commit is not None and (behind := _uncommitted(found, made)):
        notes.append(
            f"the job starts from {commit[:12]}: {behind} in {top} with changes that are not "
            "committed and are not part of it"
        )
    with Folder(found.directory, ours=False) as theirs:
        exclude = (theirs.small("info/exclude", 1 << 16) or b"").decode("utf-8", "replace")
    if exclude and not exclude.endswith("\n"):
        exclude += "\n"
    facts = Facts(True, source, commit, identity, exclude, tuple(notes), made.config())
    return facts._replace(repository=found.directory)


def repository_of(source: str, *, needed: bool) -> Source | None:
    """The repository that a source is in; None if it is in none and none is `needed`."""
    found, top = source_of(source), top_of(source)
    if found is None and top is not None and len(top.splitlines()) != 1:
        what = f"a repository whose path has a line break cannot be a source: {top!r}"
        raise UsageError(what, hint="rename its folder", path=source)
    if found is None and needed:
        hint = "`git init` and commit there, or choose the isolation `directory`"
        raise ConfigError(f"not in a git repository: {source}", hint=hint, path=source)
    return found


def origin_of(facts: Facts) -> Source:
    """The repository that a job started from, which is not any that its folder lies in by now."""
    found = source_of(facts.source) if facts.worktree and facts.source else None
    what = f"no git repository, or it is gone: {facts.source}"
    if found is not None:
        same = found.directory == facts.repository
        if facts.repository is None:
            same = facts.base is None or found.commit_of(facts.base) is not None
        if same:
            return found
        what = f"{facts.source} is in another repository now: {found.directory}"
    raise ConfigError(what, hint="put it back, or take what `diff` prints", path=facts.source)


def check_source(source: str, folder: str) -> None:
    """Refuse a source that is no folder, or that the job with this folder would be copied from."""
    if not os.path.isdir(source):
        raise NotFound(f"no such folder: {source}", hint="name the source of the job")
    home, source = home_of(folder), os.path.realpath(source)
    if Path(os.path.realpath(folder)).is_relative_to(source) and Path(source).is_relative_to(home):
        what = f"the source of a job would hold the job itself: {source}"
        raise UsageError(what, hint="name a folder of your own", path=source)


def home_of(folder: str) -> str:
    """The home that the folder of a job is in; that folder itself if there is none."""
    top = Path(os.path.realpath(folder))
    homes = (each for each in (top, *top.parents) if os.path.exists(each / SETTINGS))
    return str(next(homes, top))


def copy_all(source: str, files: Folder, aside: Folder, *, but: str) -> None:
    """Copy a folder of the user's; `but` is a folder in it that is left out."""
    with Folder(os.path.realpath(source), ours=False) as theirs:
        for path, about in theirs.everything(but=os.path.relpath(but, theirs.path)):
            if about.mode == FOLDER:
                files.put_folder(path[:-1], aside)
            elif about.mode == LINK:
                files.put(path, about.mode, [theirs.target(path)], aside)
            else:
                with theirs.reading(path) as fd:
                    files.put(path, about.mode, pieces(fd), aside)


def _uncommitted(source: Source, made: Repository) -> str:
    """How many files of the source are not as committed, told without its settings."""
    if source.top is None or (head := source.commit_of("HEAD")) is None:
        return ""
    with Folder(source.top, ours=False) as theirs:
        if surroundings(theirs).blocking:
            return ""
    index = os.path.join(made.directory, "holdfast.index")
    try:
        with (
            Folder(source.own, ours=False) as theirs,
            theirs.reading("index") as fd,
            open(index, "wb") as copy,  # direct write: scratch
        ):
            copy.writelines(pieces(fd))
        made.ask("update-index", "-q", "--refresh", "--unmerged", index=index, files=source.top)
    except (OSError, StorageError, NotOurs):
        pass
    changed = ("diff-index", "--name-only", "-z", "--ignore-submodules=all", head)
    others = ("ls-files", "--others", "--exclude-standard", "--directory", "-z")
    try:
        listed = [made.ask(*words, index=index, files=source.top) for words in (changed, others)]
    except StorageError:
        return ""
    count = sum(each.count(b"\0") for each in listed)
    return plural(count, "file") if count else ""


def facts_in(path: str) -> Facts | None:
    """What is known, if our repository is there."""
    try:
        with Folder(path) as ours:
            said = ours.small(_PLACE, _MOST)
    except FileNotFoundError:
        return None
    try:
        found = decode_record(said or b"")
        return _FACTS.validate_python({name: found.get(name) for name in Facts._fields})
    except (DecodeError, ValidationError) as error:
        what = f"what is known of the job's files cannot be read: {path}/{_PLACE}"
        hint = "the files are in the workspace beside it; copy out what you need"
        raise Corrupt(what, hint=hint, path=path) from error


def files_gone(name: str, where: str, *, over: bool = False) -> Corrupt:
    """What is wrong where files were kept, and are not there any more."""
    instead = "" if over else f", or `holdfast job cancel {name}`"
    return Corrupt(
        f"what {name} kept of its files is gone: {where}",
        hint=f"put it back from a backup{instead}",
        path=where,
    )

"""Agents that lie in their git, and processes that die in the middle of ours."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import Busy, DiskFull
from holdfast.git import call
from holdfast.git.repository import AMONG_OTHERS as patience_of
from holdfast.git.repository import FILE, Entry, Repository
from tests.workspace.test_repository import keep, ours
from tests.workspace.test_workspace import Opener, git, job, kept, model, source, work

__all__ = ["job", "model", "ours", "source"]


def objects_of(repository: Repository) -> set[str]:
    """What lies in its folder of objects."""
    top = Path(repository.directory, "objects")
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


def lie(place: Path, name: str, content: bytes) -> None:
    """Let a loose object of an agent's hold something else than what it is called for."""
    loose = place / ".git" / "objects" / name[:2] / name[2:]
    loose.chmod(0o600)
    loose.write_bytes(zlib.compress(b"blob %d\0" % len(content) + content))


def commit_of_one_file(here: Path, name: str, blob: str) -> str:
    tree = git(here, "mktree", given=f"100644 blob {blob}\t{name}\n")
    return git(here, "commit-tree", "-m", "m", "-p", "HEAD", tree)


# --- lies -----------------------------------------------------------------------------------


def test_an_object_that_holds_something_else_than_its_name_says_is_not_taken(
    job: Opener, source: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    wanted, shown = "import os; os.system('evil')\n", b"print('harmless')\n"
    blob = git(here, "hash-object", "-w", "--stdin", given=wanted)
    git(here, "branch", "z", commit_of_one_file(here, "new.py", blob))
    lie(here, blob, shown)
    kept(workspace)
    (here / "new.py").write_text(wanted)
    point = kept(workspace)
    assert "evil" in workspace.diff(patch=True)
    (here / "new.py").unlink()
    workspace.restore(point)
    assert (here / "new.py").read_text() == wanted
    assert workspace.merge().made
    assert git(source, "show", "job-j1:new.py") == wanted.strip()


def test_what_cannot_be_taken_whole_leaves_no_object_behind(
    ours: Repository, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    git(theirs, "init", "-q")
    git(theirs, "commit", "-q", "--allow-empty", "-m", "first")
    blob = git(theirs, "hash-object", "-w", "--stdin", given="true")
    tip = commit_of_one_file(theirs, "a", blob)
    lie(theirs, blob, b"false")
    before = objects_of(ours)
    assert not ours.take(str(theirs / ".git" / "objects"), [tip], [])
    assert objects_of(ours) == before


@pytest.mark.parametrize("name", ["..", ".", ".git", ".GIT"])
def test_a_commit_with_a_name_that_no_file_may_have_is_not_taken(
    job: Opener, source: Path, name: str
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    blob = git(here, "hash-object", "-w", "--stdin", given="x")
    inner = git(here, "mktree", given=f"100644 blob {blob}\tx\n")
    tree = git(here, "mktree", given=f"040000 tree {inner}\t{name}\n")
    commit = git(here, "commit-tree", "-m", "m", "-p", "HEAD", tree)
    git(here, "update-ref", "refs/heads/job-j1", commit)
    (here / "more").write_text("more")
    point = kept(workspace)
    (here / "more").unlink()
    (here / ".git" / "HEAD").write_text("ref: refs/heads/elsewhere\n")
    workspace.restore(point)
    assert git(here, "rev-parse", "HEAD") == workspace.base
    assert workspace.merge().files.added == ["more"]


# --- deaths ---------------------------------------------------------------------------------


def dies_while_keeping(ours: Repository, size: int) -> None:
    """Keep small files and one large one, in a process that is killed in the middle of that."""

    def content() -> Iterator[bytes]:
        yield os.urandom(size // 2)
        os.kill(os.getpid(), signal.SIGKILL)

    lock, ending = os.pipe()
    child = os.fork()
    if child == 0:
        ours.held = (ending,)
        small = [(8, [b"%08d" % number]) for number in range(50)]
        ours.commit("m", changed={}, upon=None, contents=[*small, (size, content())])
        os._exit(0)
    os.close(ending)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    # Ends when the git that was left alone has ended.
    assert os.read(lock, 1) == b""
    os.close(lock)


def test_a_death_in_the_middle_of_a_large_file_leaves_a_whole_repository(ours: Repository) -> None:
    keep(ours, {"a": (FILE, b"a")})
    before = objects_of(ours)
    dies_while_keeping(ours, 40 << 20)
    assert objects_of(ours) == before
    numbers = {f"{number}": (FILE, b"%08d" % number) for number in range(50)}
    assert ours.tree(keep(ours, numbers)).keys() == numbers.keys()
    git(Path(ours.directory), "fsck", "--full", "--strict")


def test_what_the_dead_left_is_removed_by_the_next_one(ours: Repository) -> None:
    top = Path(ours.directory)
    dies_while_keeping(ours, 40 << 20)
    # As those did that wrote into our objects directly.
    for name in ("objects/pack/tmp_pack_x", "objects/pack/tmp_idx_x", "fast_import_crash_7"):
        (top / name).write_bytes(b"x")
    assert list(top.glob("holdfast.incoming/*/objects"))
    keep(ours, {"a": (FILE, b"a")})
    assert not list(top.glob("holdfast.incoming/*"))
    assert not list(top.glob("objects/pack/tmp_*"))
    assert not list(top.glob("fast_import_crash_*"))


def test_much_comes_as_a_pack_and_is_not_written_twice(ours: Repository) -> None:
    files = {"big": (FILE, os.urandom(3 << 20)), "small": (FILE, b"small")}
    tree = ours.tree(keep(ours, files))
    assert {name.rpartition(".")[2] for name in objects_of(ours)} == {"pack", "idx"}
    with ours.reading() as blobs:
        assert b"".join(blobs.content(tree["big"].id)) == files["big"][1]


def test_many_objects_come_as_a_pack_and_few_as_they_are(ours: Repository) -> None:
    many = {f"{number}": (FILE, b"%d" % number) for number in range(300)}
    assert ours.tree(keep(ours, many)).keys() == many.keys()
    assert {name.rpartition(".")[2] for name in objects_of(ours)} == {"pack", "idx"}
    commit = keep(ours, {"few": (FILE, b"few")})
    assert ours.tree(commit) == {"few": Entry(FILE, ours.id_of(3, [b"few"]))}
    git(Path(ours.directory), "fsck", "--full", "--strict")


# --- power cuts -----------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    seen: list[str] = []
    real = os.fsync

    def noting(fd: int) -> None:
        seen.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", noting)
    return seen


def test_what_the_first_snapshot_stands_upon_is_on_the_disk_before_it_is_named(
    job: Opener, source: Path, synced: list[str]
) -> None:
    git(source, "pack-refs", "--all")
    workspace = job(source=source)
    workspace.make()
    top = Path(workspace.folder, "repository.git")
    copied = [path for path in (source / ".git" / "objects").rglob("*") if path.is_file()]
    wanted = {str(top / "objects" / path.relative_to(source / ".git/objects")) for path in copied}
    assert len(wanted) > 5
    wanted |= {str(top / name) for name in ("HEAD", "config", "info/exclude", "refs/holdfast")}
    wanted |= {str(top), str(top / "objects"), workspace.folder}
    # It is synced where it is made, and moved in whole.
    assert wanted <= {each.replace("/fresh/repository.git", "/repository.git") for each in synced}


def test_a_pack_is_on_the_disk_before_the_index_that_makes_it_count(
    ours: Repository, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    rename = os.rename

    def noting(old: str, new: str) -> None:
        order.extend(synced)
        synced.clear()
        order.append(new)
        rename(old, new)

    monkeypatch.setattr(os, "rename", noting)
    keep(ours, {f"{number}": (FILE, b"%d" % number) for number in range(300)})
    packs = f"{ours.directory}/objects/pack"
    kinds = ["folder" if each == packs else each.rpartition(".")[2] for each in [*order, *synced]]
    assert kinds == ["pack", "folder", "idx", "folder"]


# --- what waits for ever --------------------------------------------------------------------

LISTED = ("ls-files", "-z", "--others", "--exclude-standard")


@pytest.fixture
def piped(tmp_path: Path) -> Path:
    """A work tree with a pipe where git reads its rules."""
    files = tmp_path / "files"
    files.mkdir()
    os.mkfifo(files / ".gitignore")
    return files


def test_a_git_that_waits_for_ever_keeps_no_lock_of_one_who_died(
    ours: Repository, piped: Path
) -> None:
    first = Path(ours.directory, "info", "exclude")
    first.parent.mkdir(exist_ok=True)
    os.mkfifo(first)
    lock, ending = os.pipe()
    child = os.fork()
    if child == 0:
        ours.held = (ending,)
        ours.ask(*LISTED, files=str(piped))
        os._exit(0)
    os.close(ending)
    # Opened when git has come so far; from there it goes on to the other pipe, and waits.
    first.write_bytes(b"")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    free, _, _ = select.select([lock], [], [], 10)
    (piped / ".gitignore").write_bytes(b"")
    os.close(lock)
    assert free


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_pipe_in_place_of_an_object_is_not_waited_for(
    job: Opener, source: Path, tmp_path: Path, kind: str
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    blob = git(here, "rev-parse", "HEAD:app.py")
    loose = here / ".git" / "objects" / blob[:2] / blob[2:]
    loose.unlink()
    os.mkfifo(tmp_path / "pipe")
    if kind == "pipe":
        os.mkfifo(loose)
    else:
        loose.symlink_to(tmp_path / "pipe")
    point = kept(workspace)
    workspace.restore(point)
    assert git(here, "rev-parse", "HEAD") == workspace.base
    assert workspace.merge().files.changed == ["app.py"]


def test_what_takes_too_long_where_an_agent_writes_is_ended_and_not_tried_in_another_way(
    ours: Repository, piped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(patience_of, "ls-files", 0.2)
    with pytest.raises(Busy, match="took longer") as error:
        ours.ask(*LISTED, files=str(piped))
    assert "pipe" in (error.value.hint or "")
    assert max(patience_of.values()) < call.LONG / 2


# --- no room --------------------------------------------------------------------------------


def test_no_room_is_told_as_such_and_room_that_is_made_is_enough(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    small = tmp_path / "home"
    small.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(small)]
    if subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        workspace = job(source=source)
        workspace.make()
        (work(workspace) / "big").write_bytes(os.urandom(4 << 20))
        (small / "fill").write_bytes(bytes(5 << 20))
        for _ in range(2):
            with pytest.raises(DiskFull) as error:
                kept(workspace)
            assert "make room" in (error.value.hint or "")
        assert not list(small.rglob("tmp_*"))
        (small / "fill").unlink()
        assert kept(workspace)
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_limit_on_the_size_of_files_is_told_as_no_room(ours: Repository) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, most[1]))
    try:
        with pytest.raises(DiskFull):
            keep(ours, {"big": (FILE, os.urandom(4 << 20))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)


# --- settings that name programs --------------------------------------------------------------

EXT = '[protocol "ext"]\n allow = always\n[url "ext::{bad} #"]\n insteadOf = /\n'
NAMING = {
    "ext": EXT,
    "ext, in another file": EXT,
    "a kind of remote": '[protocol "ext"]\n allow = always\n[remote "{ours}"]\n vcs = ext\n'
    " uploadpack = {bad}\n",
    "ssh": "[core]\n sshCommand = {bad}\n[protocol]\n allow = always\n"
    '[url "ssh://localhost/"]\n insteadOf = /\n',
    "a proxy": '[core]\n gitProxy = {bad}\n[protocol "git"]\n allow = always\n'
    '[url "git://127.0.0.1:1/"]\n insteadOf = /\n',
    "credentials": '[credential]\n helper = "!{bad}"\n[core]\n askPass = {bad}\n'
    '[protocol "http"]\n allow = always\n[url "http://a@127.0.0.1:1/"]\n insteadOf = /\n',
    "hooks and drivers": """
        [core]
        fsmonitor = {bad}\n pager = {bad}\n hooksPath = {hooks}\n editor = {bad}
        alternateRefsCommand = {bad}
        [pager]\n fetch = {bad}\n rev-parse = {bad}\n show = {bad}
        [filter "f"]\n clean = {bad}\n smudge = {bad}\n process = {bad}\n required = true
        [diff]\n external = {bad}
        [diff "f"]\n command = {bad}\n textconv = {bad}
        [merge "f"]\n driver = {bad}
        [commit]\n gpgSign = true
        [tag]\n gpgSign = true
        [gpg]\n program = {bad}
        [uploadpack]\n packObjectsHook = {bad}
        [gc]\n auto = 1
        [gc "recent"]\n recentObjectsHook = {bad}
        [sequence]\n editor = {bad}
        """,
}
HOOKS = "reference-transaction post-index-change post-checkout pre-auto-gc update pre-receive "
HOOKS += "post-update post-rewrite fsmonitor-watchman pre-push proc-receive"


@pytest.mark.parametrize("naming", NAMING)
def test_no_program_that_a_source_names_is_run(
    job: Opener, source: Path, tmp_path: Path, naming: str
) -> None:
    ran, bad, hooks = tmp_path / "ran", tmp_path / "bad", tmp_path / "hooks"
    bad.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\nexit 1\n")
    bad.chmod(0o755)
    hooks.mkdir()
    for folder in (hooks, source / ".git" / "hooks"):
        folder.mkdir(exist_ok=True)
        for name in HOOKS.split():
            (folder / name).symlink_to(bad)
    workspace = job(source=source)
    ours = f"{workspace.folder}/repository.git"
    told = NAMING[naming].format(bad=bad, hooks=hooks, ours=ours)
    config = source / ".git" / "config"
    if naming.endswith("in another file"):
        (tmp_path / "more").write_text(told)
        told = f"[include]\n path = {tmp_path}/more\n"
    config.write_text(config.read_text() + told)
    (source / ".git" / "info" / "attributes").write_text("* filter=f diff=f merge=f\n")
    workspace.make()
    (work(workspace) / "app.py").write_text("print('two')\n")
    kept(workspace)
    assert "two" in workspace.diff(patch=True)
    assert workspace.merge().made
    assert not ran.exists(), ran.read_text()
    config.write_text("[core]\n\trepositoryformatversion = 0\n")
    assert git(source, "show", "job-j1:app.py") == "print('two')"


def test_a_source_that_names_another_place_for_ours_gets_what_is_ours(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", "--bare", str(source), str(other))
    git(other, "update-ref", "refs/holdfast/result", "HEAD")
    workspace = job(source=source)
    workspace.make()
    for prefix in ("/", f"{workspace.folder}/repository.git"):
        git(source, "config", "--add", f"url.{other}.insteadOf", prefix)
    (work(workspace) / "app.py").write_text("print('two')\n")
    assert workspace.merge().made
    assert git(source, "show", "job-j1:app.py") == "print('two')"

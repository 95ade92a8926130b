"""The files of a job: made, kept, put back, measured, compared and merged; with real git."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import BadName, ConfigError, Conflict, NotFound, UsageError
from holdfast.workspace.workspace import Isolation, Measured, Workspace

NOTHING = Measured([], [], [])


def wrapped(workspace: Workspace, command: list[str]) -> list[str]:
    assert workspace.sandbox is not None
    return workspace.sandbox.wrap(command)


def git(at: Path, *words: str, given: str = "") -> str:
    """Git as a user or an agent has it, with an identity and nothing of this machine's."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "Rio", f"GIT_{who}_EMAIL": "rio@example.org"}
        env |= {f"GIT_{who}_DATE": "2026-01-02T03:04:05Z"}
    ran = subprocess.run(
        ("git", *words), cwd=at, env=env, input=given, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"git {' '.join(words)}: {ran.stderr}"
    return ran.stdout.strip()


def digest(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every byte, mode and time of a tree."""
    found: dict[str, tuple[int, int, str]] = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        held = b""
        if path.is_symlink():
            held = os.fsencode(os.readlink(path))
        elif stat.S_ISREG(about.st_mode):
            held = path.read_bytes()
        said = hashlib.sha256(held).hexdigest()
        found[str(path)] = (about.st_mode, about.st_mtime_ns, said)
    return found


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """What a folder holds, but for its own repository."""
    found: dict[str, tuple[int, bytes]] = {}
    for path in folder.rglob("*"):
        name = os.path.relpath(path, folder)
        if name.split("/")[0] == ".git":
            continue
        about = path.lstat()
        if path.is_symlink():
            found[name] = (0, os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(about.st_mode):
            found[name] = (about.st_mode & 0o100, path.read_bytes())
        elif not any(path.iterdir()):
            found[name + "/"] = (0, b"")
    return found


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository, not on main, with all that must not change in it."""
    made = tmp_path_factory.mktemp("model") / "source"
    made.mkdir()
    git(made, "init", "-q", "-b", "trunk")
    (made / "app.py").write_text("print('one')\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "docs").mkdir()
    (made / "docs" / "café\n.md").write_text("text\n")
    (made / "docs" / "link").symlink_to("../app.py")
    (made / ".gitignore").write_text("build/\n*.log\n")
    with open(os.fsencode(made) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"caf\xe9\n")
    git(made, "add", "-A")
    git(made, "commit", "-q", "-m", "first")
    git(made, "branch", "other")
    git(made, "remote", "add", "origin", "https://example.org/x.git")
    (made / "app.py").write_text("print('stashed')\n")
    git(made, "stash", "-q")
    git(made, "tag", "v1")
    return made


@pytest.fixture
def source(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "source", symlinks=True))


Opener = Callable[..., Workspace]


@pytest.fixture
def job(tmp_path: Path) -> Opener:
    def opened(
        isolation: Isolation = "worktree",
        source: Path | None = None,
        base: str | None = None,
        name: str = "j1",
    ) -> Workspace:
        folder = tmp_path / "home" / "jobs" / name
        place = str(source) if source is not None else None
        return Workspace(str(folder), isolation, job=name, source=place, base=base)

    return opened


def work(workspace: Workspace) -> Path:
    return Path(workspace.path)


def kept(workspace: Workspace, message: str = "") -> str:
    made = workspace.snapshot(message)
    assert made is not None
    return made


# --- worktree -------------------------------------------------------------------------------


def test_a_worktree_starts_on_a_branch_of_its_own_with_the_files_of_the_source(
    job: Opener, source: Path
) -> None:
    before = digest(source)
    workspace = job(source=source)
    workspace.make()
    workspace.make()
    assert contents(work(workspace)) == contents(source)
    assert git(work(workspace), "branch", "--show-current") == "job-j1"
    assert git(work(workspace), "status", "--porcelain") == ""
    assert git(work(workspace), "log", "--format=%s") == "first"
    assert git(work(workspace), "remote") == ""
    assert workspace.base == git(source, "rev-parse", "HEAD")
    assert workspace.notes == ()
    assert digest(source) == before


def test_whatever_an_agent_does_the_source_stays_as_it_was(job: Opener, source: Path) -> None:
    before = digest(source)
    workspace = job(source=source)
    workspace.make()
    start = kept(workspace)
    here = work(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    git(here, "checkout", "-qb", "mine")
    (here / "new").write_text("x")
    git(here, "stash", "-qu")
    git(here, "gc", "-q", "--prune=now")
    kept(workspace)
    workspace.diff(patch=True)
    workspace.merge(dry_run=True)
    workspace.restore(start)
    assert digest(source) == before


def test_what_changed_is_measured_and_put_back(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    start = kept(workspace)
    assert workspace.changed_since(start) == NOTHING
    was = contents(here)
    (here / "app.py").write_text("print('two')\n")
    (here / "run.sh").chmod(0o644)
    (here / "docs" / "link").unlink()
    (here / "docs" / "link").write_text("no link")
    os.unlink(os.fsencode(here) + b"/caf\xe9.txt")
    (here / "deep" / "er").mkdir(parents=True)
    (here / "deep" / "er" / "new").write_text("new")
    (here / "build").mkdir()
    (here / "build" / "out").write_text("ignored")
    assert workspace.changed_since(start) == Measured(
        ["deep/er/new"], ["app.py", "docs/link", "run.sh"], ["caf\\xe9.txt"]
    )
    later = kept(workspace)
    assert workspace.restore(start) == Measured(
        ["caf\\xe9.txt"], ["app.py", "docs/link", "run.sh"], ["deep/er/new"]
    )
    assert contents(here) == was | {"build/out": (0, b"ignored")}
    assert workspace.restore(start) == NOTHING
    workspace.restore(later)
    assert (here / "deep/er/new").read_text() == "new"
    assert not (here / "run.sh").stat().st_mode & 0o100


def test_an_unchanged_workspace_gives_the_same_snapshot_again(job: Opener, source: Path) -> None:
    one, two = job(source=source, name="a"), job("directory", name="b")
    for workspace in (one, two):
        workspace.make()
        start = kept(workspace)
        assert kept(workspace, "whatever it is called") == start
        (work(workspace) / "x").write_text("x")
        more = kept(workspace, "more")
        assert more != start
        (work(workspace) / "x").unlink()
        kept(workspace, "less")
        again = Workspace(
            workspace.folder, workspace.isolation, job=workspace.branch[4:], source=str(source)
        )
        (work(workspace) / "x").write_text("x")
        assert kept(again, "more") == more


def test_what_is_ignored_is_decided_by_the_rules_of_the_snapshot(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    start = kept(workspace)
    (here / "x.log").write_text("ignored from the start")
    (here / ".gitignore").write_text("*\n")
    (here / "junk").write_text("ignored by the agent's rule")
    workspace.restore(start)
    assert not (here / "junk").exists()
    assert (here / "x.log").exists()
    # The other way round: a rule that goes makes files count, and they stay when it is back.
    (here / ".gitignore").unlink()
    assert workspace.changed_since(start) == Measured(["x.log"], [], [".gitignore"])
    workspace.restore(start)
    assert (here / "x.log").exists()


def test_a_file_that_was_measured_is_not_lost_by_being_ignored(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "data").write_text("1")
    start = kept(workspace)
    (here / ".gitignore").write_text("data\n")
    (here / "data").write_text("2")
    assert workspace.changed_since(start) == Measured([], [".gitignore", "data"], [])


def test_what_an_agent_adds_by_force_counts_although_it_is_ignored(
    job: Opener, source: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    start = kept(workspace)
    (here / "forced.log").write_text("x")
    git(here, "add", "-f", "forced.log")
    assert workspace.changed_since(start).added == ["forced.log"]
    assert "forced.log" in workspace.diff()


def test_branches_and_stash_of_the_agent_are_put_back(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    second = git(here, "rev-parse", "HEAD")
    git(here, "branch", "kept")
    (here / "app.py").write_text("print('stash')\n")
    git(here, "stash", "-q")
    point = kept(workspace)

    git(here, "stash", "drop", "-q")
    git(here, "checkout", "-q", "-b", "elsewhere", "HEAD~1")
    git(here, "branch", "-qD", "kept", "job-j1")
    (here / "app.py").write_text("print('three')\n")
    git(here, "commit", "-qam", "third")
    workspace.restore(point)
    assert git(here, "branch", "--show-current") == "job-j1"
    assert git(here, "rev-parse", "HEAD") == second
    assert git(here, "branch", "--format=%(refname:short)").split() == ["job-j1", "kept"]
    assert git(here, "status", "--porcelain") == ""
    assert git(here, "fsck", "--no-dangling") == ""
    git(here, "stash", "pop", "-q")
    assert (here / "app.py").read_text() == "print('stash')\n"


def test_an_unfinished_merge_is_gone_after_putting_back(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    point = kept(workspace)
    git(here, "checkout", "-qb", "side")
    (here / "app.py").write_text("side\n")
    git(here, "commit", "-qam", "side")
    git(here, "checkout", "-q", "job-j1")
    (here / "app.py").write_text("ours\n")
    git(here, "commit", "-qam", "ours")
    with pytest.raises(AssertionError):
        git(here, "merge", "side")
    assert (here / ".git" / "MERGE_HEAD").exists()
    workspace.restore(point)
    assert not (here / ".git" / "MERGE_HEAD").exists()
    assert git(here, "status", "--porcelain") == ""


def test_what_the_agent_staged_is_not_staged_after_putting_back(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    git(here, "config", "user.name", "the agent's own")
    point = kept(workspace)
    (here / "app.py").write_text("print('two')\n")
    (here / "new").write_text("new")
    git(here, "add", "-A")
    workspace.restore(point)
    assert git(here, "status", "--porcelain") == ""
    assert git(here, "config", "user.name") == "the agent's own"


@pytest.mark.parametrize("harm", ["deleted", "emptied", "file", "link", "no objects", "no index"])
def test_a_repository_that_the_agent_destroyed_is_made_anew(
    job: Opener, source: Path, harm: str, tmp_path: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    point = kept(workspace)
    second = git(here, "rev-parse", "HEAD")
    inner = here / ".git"
    if harm == "no index":
        (inner / "index").write_bytes(b"DIRCnonsense")
    elif harm == "no objects":
        shutil.rmtree(inner / "objects")
    else:
        shutil.rmtree(inner)
    if harm == "emptied":
        inner.mkdir()
    elif harm == "file":
        inner.write_text("gitdir: /nowhere\n")
    elif harm == "link":
        inner.symlink_to(source / ".git")
    before = digest(source)
    (here / "more").write_text("more")
    assert workspace.changed_since(point).added == ["more"]
    kept(workspace)
    workspace.restore(point)
    assert digest(source) == before
    if harm != "no index":
        assert git(here, "rev-parse", "job-j1") == second
        assert git(here, "status", "--porcelain") == ""
    assert not (here / "more").exists()


def test_programs_that_an_agent_plants_never_run_when_we_call_git(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    bad = tmp_path / "bad.sh"
    bad.write_text(f"#!/bin/sh\necho $0 $* >> {ran}\ncat\n")
    bad.chmod(0o755)
    workspace = job(source=source)
    workspace.make()
    start = kept(workspace)
    here, ours = work(workspace), Path(workspace.folder) / "repository.git"
    settings = f"""
[core]
	hooksPath = {tmp_path}/hooks
	fsmonitor = {bad}
	sshCommand = {bad}
	alternateRefsCommand = {bad}
	pager = {bad}
[filter "bad"]
	clean = {bad}
	smudge = {bad}
	process = {bad}
	required = true
[diff]
	external = {bad}
[diff "bad"]
	textconv = {bad}
	command = {bad}
[merge "bad"]
	driver = {bad}
[uploadpack]
	packObjectsHook = {bad}
[gpg]
	program = {bad}
[commit]
	gpgSign = true
"""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "pre-commit", "post-index-change"):
        shutil.copy(bad, hooks / name)
    for place in (here / ".git", ours):
        with open(place / "config", "a", encoding="utf-8") as file:
            file.write(settings)
        shutil.copytree(hooks, place / "hooks", dirs_exist_ok=True)
        (place / "info").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text("* filter=bad diff=bad merge=bad\n")
    (here / ".gitattributes").write_text("* filter=bad diff=bad merge=bad\n")
    (here / "app.py").write_text("print('two')\n")
    point = kept(workspace)
    assert "two" in workspace.diff(patch=True)
    workspace.changed_since(start)
    workspace.restore(start)
    workspace.restore(point)
    assert workspace.merge().made
    assert not ran.exists()
    assert git(source, "show", "job-j1:app.py") == "print('two')"


# --- where it starts from -------------------------------------------------------------------


def test_a_job_starts_from_the_commit_that_is_named(job: Opener, source: Path) -> None:
    (source / "app.py").write_text("print('later')\n")
    git(source, "commit", "-qam", "later")
    workspace = job(source=source, base="other")
    workspace.make()
    assert (work(workspace) / "app.py").read_text() == "print('one')\n"
    assert workspace.base == git(source, "rev-parse", "other")
    with pytest.raises(NotFound):
        job(source=source, base="--upload-pack=x", name="j2").make()


def test_a_detached_head_and_a_linked_worktree_are_good_sources(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(source, "worktree", "add", "-q", "--detach", str(linked), "v1")
    (linked / "app.py").write_text("print('detached')\n")
    git(linked, "commit", "-qam", "detached")
    before = digest(source), digest(linked)
    workspace = job(source=linked)
    workspace.make()
    assert (work(workspace) / "app.py").read_text() == "print('detached')\n"
    assert (digest(source), digest(linked)) == before


def test_changes_that_are_not_committed_are_left_behind_and_said(job: Opener, source: Path) -> None:
    (source / "app.py").write_text("print('dirty')\n")
    (source / "untracked").write_text("x")
    before = digest(source)
    workspace = job(source=source)
    workspace.make()
    assert (work(workspace) / "app.py").read_text() == "print('one')\n"
    assert "2 files" in workspace.notes[0]
    assert digest(source) == before


def test_a_folder_inside_of_a_repository_stands_for_all_of_it(job: Opener, source: Path) -> None:
    workspace = job(source=source / "docs")
    workspace.make()
    assert contents(work(workspace)) == contents(source)
    assert "whole" in workspace.notes[0]


def test_a_source_without_commits_gives_an_empty_workspace(job: Opener, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q", "-b", "start")
    workspace = job(source=empty)
    workspace.make()
    assert "no commits" in workspace.notes[0]
    assert contents(work(workspace)) == {}
    assert not workspace.merge().made
    (work(workspace) / "a").write_text("a\n")
    assert "+a" in workspace.diff(patch=True)
    assert workspace.merge().made
    assert git(empty, "show", "job-j1:a") == "a"


def test_a_source_with_submodules_keeps_them_as_they_are(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    git(source, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "sub")
    git(source, "commit", "-qm", "with a submodule")
    before = digest(source)
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    assert (here / "sub").is_dir()
    assert not any((here / "sub").iterdir())
    (here / "sub" / "inside").write_text("x")
    (here / "app.py").write_text("print('two')\n")
    assert workspace.diff().count("|") == 1
    assert digest(source) == before
    workspace.merge()
    assert git(source, "diff", "--name-only", "trunk", "job-j1") == "app.py"


def test_what_the_source_borrows_from_others_is_copied(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    borrower = tmp_path / "borrower"
    git(tmp_path, "clone", "-q", "--shared", str(source), str(borrower))
    workspace = job(source=borrower)
    workspace.make()
    start = kept(workspace)
    shutil.rmtree(source)
    shutil.rmtree(borrower)
    shutil.rmtree(work(workspace))
    workspace.restore(start)
    assert (work(workspace) / "app.py").read_text() == "print('one')\n"
    assert git(work(workspace), "fsck", "--no-dangling") == ""


def test_a_job_can_be_moved_with_its_home(job: Opener, source: Path, tmp_path: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    start = kept(workspace)
    (tmp_path / "home").rename(tmp_path / "moved")
    moved = Workspace(
        str(tmp_path / "moved" / "jobs" / "j1"), "worktree", job="j1", source=str(source)
    )
    (work(moved) / "app.py").write_text("print('moved')\n")
    git(work(moved), "commit", "-qam", "moved")
    assert moved.changed_since(start).changed == ["app.py"]
    moved.restore(start)
    assert git(work(moved), "log", "--format=%s") == "first"


def test_a_source_that_cannot_be_used_is_refused(job: Opener, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    with pytest.raises(ConfigError, match="not in a git repository"):
        job(source=plain).make()
    with pytest.raises(NotFound):
        job("directory", source=tmp_path / "nowhere").make()
    with pytest.raises(UsageError):
        job("worktree")
    with pytest.raises(BadName):
        job("directory", name="../x")
    with pytest.raises(NotFound, match="not made"):
        job("directory").snapshot()


# --- the result -----------------------------------------------------------------------------


def test_the_patch_applies_to_the_base(job: Opener, source: Path, tmp_path: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    point = kept(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    (here / "run.sh").chmod(0o644)
    (here / "binary").write_bytes(bytes(range(256)))
    with open(os.fsencode(here) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"th\xe9\n")
    (here / "docs" / "link").unlink()
    workspace.attach("spec", "/etc/hostname")
    patch = workspace.diff(patch=True)
    patch.encode("utf-8")
    assert "attachments" not in patch
    target = tmp_path / "target"
    git(tmp_path, "clone", "-q", str(source), str(target))
    git(target, "apply", "--index", "-", given=patch)
    wanted = contents(here)
    wanted.pop("attachments/spec")
    assert contents(target) == wanted
    assert workspace.diff(point, patch=True) == patch
    assert workspace.diff(kept(workspace)) == ""


def test_merging_makes_a_branch_and_touches_nothing_else(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    mine = git(here, "rev-parse", "HEAD")
    (here / "new").write_text("new\n")
    before = digest(source)
    planned = workspace.merge(dry_run=True)
    assert digest(source) == before
    assert not planned.made
    merged = workspace.merge()
    assert merged.made
    assert merged.commit == planned.commit
    assert (merged.branch, merged.commits) == ("job-j1", 2)
    assert merged.files == Measured(["new"], ["app.py"], [])
    assert git(source, "rev-parse", "job-j1~1") == mine
    assert git(source, "show", "job-j1:new") == "new"
    assert git(source, "fsck", "--strict") == ""
    after = digest(source)
    changed = {path for path, held in before.items() if after[path][2] != held[2]}
    assert changed == set()
    inside = {os.path.relpath(path, source / ".git") for path in after.keys() - before.keys()}
    assert {path.split("/")[0] for path in inside} <= {"objects", "refs", "logs"}
    again = workspace.merge()
    assert (again.made, again.commit) == (False, merged.commit)


def test_all_that_is_committed_is_merged_as_it_is(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    assert not workspace.merge().made
    git(here, "checkout", "-qb", "fix")
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    assert workspace.merge().commit == git(here, "rev-parse", "HEAD")
    # Going on afterwards moves the branch that we made.
    (here / "app.py").write_text("print('three')\n")
    assert workspace.merge().made
    assert git(source, "log", "--format=%s", "job-j1").splitlines()[1:] == ["second", "first"]


def test_a_branch_of_the_users_is_not_moved_unless_it_is_asked_for(
    job: Opener, source: Path
) -> None:
    git(source, "branch", "job-j1")
    workspace = job(source=source)
    workspace.make()
    (work(workspace) / "app.py").write_text("print('two')\n")
    before = digest(source)
    for into in (None, "trunk"):
        for dry_run in (True, False):
            with pytest.raises(Conflict) as error:
                workspace.merge(into=into, dry_run=dry_run)
            assert error.value.hint
    with pytest.raises(BadName):
        workspace.merge(into="../x")
    assert digest(source) == before
    assert workspace.merge(into="other").made
    assert git(source, "show", "other:app.py") == "print('two')"
    git(source, "branch", "-f", "job-j1", "stash@{0}")
    with pytest.raises(Conflict, match="commits"):
        workspace.merge(into="job-j1")


def test_a_job_that_left_its_history_is_merged_upon_the_base(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    git(here, "checkout", "-q", "--orphan", "fresh")
    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "no parent")
    workspace.merge()
    assert git(source, "rev-parse", "job-j1~1") == workspace.base
    assert git(source, "diff", "--name-only", "trunk", "job-j1") == "app.py"


# --- odd repositories -----------------------------------------------------------------------


def test_shallow_and_sha256_repositories_are_good_sources(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    (source / "app.py").write_text("print('more')\n")
    git(source, "commit", "-qam", "more")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{source}", str(shallow))
    other = tmp_path / "sha256"
    other.mkdir()
    git(other, "init", "-q", "--object-format=sha256")
    (other / "app.py").write_text("print('one')\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "first")
    for number, place in enumerate((shallow, other)):
        before = digest(place)
        workspace = job(source=place, name=f"j{number}")
        workspace.make()
        here = work(workspace)
        start = kept(workspace)
        (here / "app.py").write_text("print('two')\n")
        git(here, "commit", "-qam", "second")
        point = kept(workspace)
        workspace.restore(start)
        workspace.restore(point)
        assert git(here, "log", "-1", "--format=%s") == "second"
        assert git(here, "status", "--porcelain") == ""
        assert digest(place) == before
        assert workspace.merge().made
        assert git(place, "show", f"job-j{number}:app.py") == "print('two')"


def test_a_repository_inside_the_worktree_is_kept_and_not_offered(
    job: Opener, source: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "nested").mkdir()
    git(here / "nested", "init", "-q")
    (here / "nested" / "file").write_text("x")
    point = kept(workspace)
    was = contents(here)
    shutil.rmtree(here / "nested")
    workspace.restore(point)
    assert contents(here) == was
    assert "nested/.git" not in workspace.diff(patch=True)


# --- crashes --------------------------------------------------------------------------------


def killed_at(step: int, deed: Callable[[], object]) -> bool:
    """Do it in another process, which dies at its n-th step; whether it came so far."""
    child = os.fork()
    if child == 0:
        left = step

        def count(event: str, _: tuple[object, ...]) -> None:
            nonlocal left
            if event in ("open", "os.rename", "os.remove", "os.mkdir", "subprocess.Popen"):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            deed()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


STEPS = (2, 9, 17, 25, 33, 41, 50, 60, 75, 90)


def test_whatever_was_begun_when_we_were_killed_is_done_by_the_next_call(
    job: Opener, source: Path
) -> None:
    before = digest(source)
    spec = source.parent / "spec"
    spec.write_text("spec")
    inputs = {"spec": str(spec)}
    workspace = job(source=source)
    deaths = sum(killed_at(step, lambda: job(source=source).make(inputs)) for step in STEPS)
    workspace.make(inputs)
    here = work(workspace)
    fresh = contents(source) | {"attachments/spec": (0, b"spec")}
    assert contents(here) == fresh
    assert git(here, "status", "--porcelain") == ""
    start = kept(workspace)

    (here / "app.py").write_text("print('two')\n")
    git(here, "commit", "-qam", "second")
    (here / "docs" / "new").write_text("new")
    for step in STEPS[:6]:
        deaths += killed_at(step, lambda: job(source=source).snapshot("point"))
    point = kept(workspace, "point")
    later = contents(here)

    for wanted, files in ((start, fresh), (point, later)):
        for step in STEPS:
            deaths += killed_at(step, lambda wanted=wanted: job(source=source).restore(wanted))
        workspace.restore(wanted)
        assert contents(here) == files
        assert workspace.changed_since(wanted) == NOTHING
        assert git(here, "fsck", "--no-dangling") == ""
    assert git(here, "log", "--format=%s").splitlines() == ["second", "first"]
    assert deaths > 20
    assert digest(source) == before

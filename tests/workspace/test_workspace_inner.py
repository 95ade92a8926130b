"""Repositories inside of a work tree, and what only looks like one: nothing hides in them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast.git import call
from holdfast.workspace.workspace import Measured, Workspace
from tests.workspace.test_workspace import contents, git

NOTHING = Measured([], [], [])


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    git(source, "init", "-q", "-b", "trunk")
    (source / "app.py").write_text("print('one')\n")
    (source / "folder" / "file").write_text("one\n")
    (source / ".gitignore").write_text("*.log\nbuild/\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "first")
    made = Workspace(str(tmp_path / "home/jobs/j1"), "worktree", job="j1", source=str(source))
    made.make()
    return made


def kept(workspace: Workspace) -> str:
    snapshot = workspace.snapshot()
    assert snapshot is not None
    return snapshot


def repository(place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "-q")
    (place / "inside").write_text("one")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "inner")
    return place


def comes_back(workspace: Workspace, start: str) -> None:
    """What was there at the start and what is there now can be had from each other."""
    here = Path(workspace.path)
    now, was = kept(workspace), contents(here)
    workspace.restore(start)
    assert contents(here) == contents(Path(workspace.folder).parents[2] / "source")
    assert workspace.changed_since(start) == NOTHING
    workspace.restore(now)
    assert contents(here) == was
    assert workspace.changed_since(now) == NOTHING
    workspace.restore(start)
    assert not any(path.name == ".git" for path in here.glob("*/**/*"))


@pytest.mark.parametrize("odd", ["plain", "a b", "[x]*?", "back\\slash", "new\nline", "é", "!not"])
def test_a_repository_that_the_agent_added_is_measured_and_put_back(
    workspace: Workspace, odd: str
) -> None:
    here = Path(workspace.path)
    start = kept(workspace)
    inner = repository(here / "deep" / odd)
    (inner / "x.log").write_text("x")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "with a repository inside")
    point = kept(workspace)
    (inner / "new").write_text("new")
    (inner / "inside").write_text("two")
    found = workspace.changed_since(point)
    assert found == Measured([f"deep/{odd}/new"], [f"deep/{odd}/inside"], [])
    comes_back(workspace, start)


def test_a_folder_that_an_index_only_calls_a_repository_is_looked_into(
    workspace: Workspace,
) -> None:
    here = Path(workspace.path)
    start = kept(workspace)
    git(here, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},hidden")
    (here / "hidden").mkdir()
    (here / "hidden" / "x").write_text("x")
    assert workspace.changed_since(start).added == ["hidden/x"]
    comes_back(workspace, start)


@pytest.mark.parametrize("kind", ["repository", "empty", "file", "link", "hook"])
@pytest.mark.parametrize("place", ["folder", "new", "new/deeper"])
def test_whatever_is_called_git_is_measured_and_removed(
    workspace: Workspace, place: str, kind: str
) -> None:
    here = Path(workspace.path)
    start = kept(workspace)
    inner = here / place
    inner.mkdir(parents=True, exist_ok=True)
    (inner / "z").write_text("z")
    if kind == "repository":
        git(inner, "init", "-q")
    elif kind == "empty":
        (inner / ".git").mkdir()
    elif kind == "file":
        (inner / ".git").write_text("junk")
    elif kind == "link":
        (inner / ".git").symlink_to("/nowhere")
    else:
        (inner / ".git" / "hooks").mkdir(parents=True)
        (inner / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    measured = workspace.changed_since(start)
    assert f"{place}/z" in measured.added
    if kind != "empty":
        assert any(path.startswith(f"{place}/.git") for path in measured.added)
    assert not measured.changed and not measured.removed
    comes_back(workspace, start)


def test_what_is_ignored_is_left_alone_also_if_it_is_a_repository(workspace: Workspace) -> None:
    here = Path(workspace.path)
    start = kept(workspace)
    inner = repository(here / "build" / "dependency")
    repository(here / "build" / ":(top)*")
    repository(here / ":(glob)x")
    repository(here / "counts")
    assert not any("build" in path for path in workspace.changed_since(start).added)
    workspace.restore(start)
    assert (inner / ".git" / "HEAD").is_file()
    assert not (here / "counts").exists()
    assert workspace.changed_since(start) == NOTHING


def test_submodules_of_the_base_stay_as_they_are(tmp_path: Path, workspace: Workspace) -> None:
    source = tmp_path / "source"
    words = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "sub")
    git(source, *words)
    git(source, "commit", "-qm", "with a submodule")
    workspace = Workspace(str(tmp_path / "home/jobs/j2"), "worktree", job="j2", source=str(source))
    workspace.make()
    start = kept(workspace)
    inner = repository(Path(workspace.path) / "sub")
    assert workspace.changed_since(start) == NOTHING
    workspace.restore(start)
    assert (inner / "inside").is_file()


@pytest.mark.parametrize("trap", [".git/HEAD", ".git/commondir", ".git", "elsewhere/HEAD"])
def test_a_pipe_in_a_repository_inside_holds_nothing_up(
    workspace: Workspace, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "LONG", 10.0)
    here = Path(workspace.path)
    start = kept(workspace)
    inner = repository(here / "inner")
    if trap == ".git":
        shutil.rmtree(inner / ".git")
    elif trap == "elsewhere/HEAD":
        (inner / ".git").rename(inner / "elsewhere")
        (inner / ".git").write_text("gitdir: elsewhere\n")
    (inner / trap).unlink(missing_ok=True)
    os.mkfifo(inner / trap)
    assert "inner/inside" in workspace.changed_since(start).added
    kept(workspace)
    workspace.restore(start)
    assert workspace.changed_since(start) == NOTHING
    assert not (inner / "inside").exists()

"""Files too large to be kept, and keeping that takes too long: the rest is kept, and it is told."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast.workspace import snapshots
from holdfast.workspace.safedir import Unkept
from holdfast.workspace.workspace import Isolation
from tests.workspace.test_workspace import Opener, git, job, kept, model, source, work

__all__ = ["job", "model", "source"]

BOTH = pytest.mark.parametrize("isolation", ["worktree", "directory"])


def large(path: Path, size: int = 1 << 40) -> Path:
    """A file that would be read for hours, and takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


@BOTH
def test_a_file_too_large_is_left_out_and_told_and_the_rest_is_kept(
    job: Opener, source: Path, isolation: Isolation
) -> None:
    workspace = job(isolation, source)
    workspace.make()
    first = kept(workspace)
    big = large(work(workspace) / "big")
    (work(workspace) / "small").write_text("x")
    second = kept(workspace)
    assert workspace.changed_since(first).added == ["small"]
    assert "big" not in workspace.diff(patch=True)
    assert any("big" in note and "256 MiB" in note for note in workspace.notes)
    assert workspace.restore(first).removed == ["small"]
    assert big.stat().st_size == 1 << 40, "what is not kept is not removed either"
    workspace.restore(second)
    assert (work(workspace) / "small").read_text() == "x"


@BOTH
def test_a_file_that_grew_too_large_is_neither_removed_nor_changed(
    job: Opener, source: Path, isolation: Isolation
) -> None:
    workspace = job(isolation, source)
    workspace.make()
    first = kept(workspace)
    name = next(path.name for path in work(workspace).glob("[a-z]*") if path.is_file())
    before = (work(workspace) / name).read_bytes()
    large(work(workspace) / name)
    assert not workspace.changed_since(first)
    assert kept(workspace) == first
    workspace.restore(first)
    assert (work(workspace) / name).read_bytes() == before


def test_what_a_job_began_with_may_be_as_large_as_it_likes(
    job: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "LARGEST", 100)
    place = tmp_path / "data"
    place.mkdir()
    (place / "set").write_bytes(bytes(1000))
    workspace = job("directory", place)
    workspace.make()
    first = kept(workspace)
    (work(workspace) / "set").unlink()
    assert workspace.changed_since(first).removed == ["set"]
    workspace.restore(first)
    assert (work(workspace) / "set").read_bytes() == bytes(1000)
    assert not workspace.notes


def test_rules_for_git_that_are_larger_than_memory_do_not_hold_it_up(
    job: Opener, source: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    first = kept(workspace)
    large(work(workspace) / ".gitignore")
    (work(workspace) / "new").write_text("x")
    assert workspace.changed_since(first).added == ["new"]


@BOTH
def test_keeping_that_takes_too_long_is_given_up(
    job: Opener, source: Path, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = job(isolation, source)
    workspace.make()
    (work(workspace) / "new").write_text("x")
    monkeypatch.setattr(snapshots, "LONGEST", 0.0)
    with pytest.raises(Unkept, match="longer than") as error:
        workspace.snapshot()
    assert error.value.hint


def test_a_work_tree_that_is_empty_in_a_copy_of_the_home_is_as_it_was_kept(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    (work(workspace) / "new").write_text("x")
    kept(workspace)
    # As git clones a home: what has a repository of its own comes as an empty folder.
    shutil.rmtree(workspace.path)
    os.mkdir(workspace.path)
    again = job(source=source)
    assert "1 file changed" in again.diff()
    assert (work(again) / "new").read_text() == "x"
    assert git(work(again), "status", "--porcelain") == "?? new"
    assert any("gone" in note for note in again.notes)

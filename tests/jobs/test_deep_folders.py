"""Folders in folders in folders: what lies too deep to be kept is told, and never left out."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from holdfast.errors import StorageError
from holdfast.workspace.workspace import Workspace
from tests.jobs.desk import DONE, Desk
from tests.jobs.test_workspace_lost import kept, made, repository

LONGEST_KEPT, TOO_LONG = 1500, 2500


def remove(path: str | Path) -> None:
    """By a program that does not recurse as Python does."""
    subprocess.run(["rm", "-rf", str(path)], check=True)


@pytest.fixture(autouse=True)
def tidy(tmp_path: Path) -> Iterator[None]:
    """Whoever removes what old tests left would not get through."""
    yield
    remove(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return repository(tmp_path / "source")


def dig(workspace: Workspace, depth: int) -> None:
    """A file so deep that no path leads to it."""
    here = os.open(workspace.path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_what_git_would_leave_out_of_a_work_tree_is_told(source: Path) -> None:
    workspace = made(source)
    point = kept(workspace)
    dig(workspace, TOO_LONG)
    for look in (workspace.snapshot, workspace.diff, lambda: workspace.changed_since(point)):
        with pytest.raises(StorageError, match="nested too deep for git") as refused:
            look()
        assert refused.value.hint
    workspace.restore(point)
    assert kept(workspace) == point
    left = subprocess.run(["find", f"{workspace.path}/d", "-type", "f"], capture_output=True)
    assert (left.returncode, left.stdout) == (0, b"")


def test_what_is_deep_and_not_too_deep_is_kept_and_put_back(source: Path) -> None:
    workspace = made(source)
    dig(workspace, LONGEST_KEPT)
    point = kept(workspace)
    deep = "d/" * LONGEST_KEPT + "deep"
    remove(f"{workspace.path}/d")
    assert workspace.changed_since(point).removed == [deep]
    workspace.restore(point)
    assert os.path.isfile(f"{workspace.path}/{deep}")


def test_what_git_ignores_may_lie_as_deep_as_it_likes(source: Path) -> None:
    workspace = made(source)
    (Path(workspace.path) / ".gitignore").write_text("/d/\n")
    point = kept(workspace)
    dig(workspace, TOO_LONG)
    assert kept(workspace) == point
    workspace.restore(point)
    assert os.path.isdir(f"{workspace.path}/d/d/d")


@pytest.mark.parametrize("isolation", ["worktree", "directory"])
def test_a_job_whose_agent_dug_too_deep_waits_for_a_decision(
    desk: Desk, source: Path, isolation: str
) -> None:
    code = (
        f"import os\nfor _ in range({TOO_LONG}):\n    os.mkdir('d'); os.chdir('d')\n"
        f"print({json.dumps(DONE)!r})\n"
    )
    where = ("--isolation", isolation, "--source", str(source))
    desk.new("--worker", desk.program(code), *where)
    stuck = desk.ran(code=1)
    assert stuck["status"] == "INTERVENTION_REQUIRED"
    shown = desk.show()
    assert "deep" in shown["why"] and "remove them" in shown["why"]
    assert "INTERVENTION_REQUIRED" in desk("job", "run", "demo", "--json").error()["message"]
    desk.ok("job", "steward", "demo", "continue")
    assert "remove them" in desk("job", "run", "demo", "--json").error()["hint"]
    assert desk.status() == "PENDING"
    remove(desk.workspace() / "d")
    assert desk.ran(code=1)["status"] == "INTERVENTION_REQUIRED", "it dug again"


def over(desk: Desk, depth: int) -> Path:
    """A job that is over, with a file so deep; its folder."""
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    folder = desk.home / "jobs/demo"
    dig(Workspace(str(folder / ".files"), "directory", job="demo"), depth)
    return folder


def test_deep_folders_are_packed_deeper_than_python_recurses(desk: Desk) -> None:
    folder = over(desk, LONGEST_KEPT)
    desk.ok("job", "archive", "demo")
    with (
        zstandard.open(folder / "files.tar.zst", "rb") as file,
        tarfile.open(fileobj=file, mode="r|") as tar,
    ):
        assert f"workspace/{'d/' * LONGEST_KEPT}deep" in tar.getnames()


def test_what_lies_too_deep_to_be_packed_is_told_and_stays(desk: Desk) -> None:
    folder = over(desk, TOO_LONG)
    ran = desk("job", "archive", "demo", "--json")
    assert ran.code == 1
    assert "nested too deep to be packed: workspace/d/d" in ran.error()["message"]
    assert "remove them" in ran.error()["hint"]
    assert not (folder / "files.tar.zst").exists()
    remove(folder / ".files/workspace/d")
    desk.ok("job", "archive", "demo")

"""Workspaces that lost something: files, the agent's repository, the source, or a merge's end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, Conflict, Corrupt, UsageError
from holdfast.workspace.workspace import Isolation, Measured, Workspace
from tests.jobs.desk import DONE, Desk
from tests.workspace.test_workspace import contents, git, killed_at

NOTHING = Measured([], [], [])


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return repository(tmp_path / "source")


def repository(place: Path) -> Path:
    place.mkdir()
    git(place, "init", "-q", "-b", "trunk")
    (place / "app.py").write_text("print('one')\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    return place


def opened(source: Path, isolation: Isolation = "worktree") -> Workspace:
    folder = source.parent / "home" / "jobs" / "j1"
    return Workspace(str(folder), isolation, job="j1", source=str(source))


def made(source: Path, isolation: Isolation = "worktree") -> Workspace:
    workspace = opened(source, isolation)
    workspace.make()
    return workspace


def kept(workspace: Workspace) -> str:
    snapshot = workspace.snapshot()
    assert snapshot is not None
    return snapshot


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "and the cache"])
@pytest.mark.parametrize("replaced", ["", "file", "link"])
@pytest.mark.parametrize("isolation", ["worktree", "directory"])
def test_a_workspace_that_is_gone_is_as_it_was_last_kept(
    source: Path, isolation: Isolation, replaced: str, forgotten: bool
) -> None:
    workspace = made(source, isolation)
    here = Path(workspace.path)
    (here / "new").write_text("new")
    (here / "app.py").unlink()
    if isolation == "worktree":
        git(here, "add", "-A")
        git(here, "commit", "-qm", "second")
    later = kept(workspace)
    (here / "newer").write_text("newer")
    kept(workspace)
    workspace.restore(later)
    was = contents(here)
    shutil.rmtree(here)
    if replaced == "file":
        here.touch()
    elif replaced == "link":
        here.symlink_to(source)
    if forgotten:
        (Path(workspace.folder) / "repository.git" / "holdfast.cache").unlink()
    workspace = opened(source, isolation)
    workspace.make()
    assert contents(here) == was
    assert workspace.changed_since(later) == NOTHING
    assert "gone" in workspace.notes[-1]
    assert len(workspace.notes) == len(set(workspace.notes))
    if isolation == "worktree":
        assert git(here, "log", "--format=%s").splitlines() == ["second", "first"]
        assert git(here, "status", "--porcelain") == ""


def test_a_workspace_that_is_gone_is_not_merged_as_one_without_files(source: Path) -> None:
    workspace = made(source)
    (Path(workspace.path) / "new").write_text("new")
    kept(workspace)
    shutil.rmtree(workspace.path)
    assert opened(source).merge().files == Measured(["new"], [], [])
    assert git(source, "diff", "--name-status", "trunk", "job-j1") == "A\tnew"


def test_a_workspace_that_is_gone_comes_back_whole_whenever_we_are_killed(source: Path) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    for number in range(5):
        (here / f"new{number}").write_text("new")
    later, was = kept(workspace), contents(here)
    shutil.rmtree(here)
    deaths = 0
    for step in range(1, 60, 3):
        deaths += killed_at(step, lambda: opened(source).make())
        if here.exists():
            assert contents(here) == was
            shutil.rmtree(here)
    assert deaths > 10
    assert opened(source).changed_since(later) == NOTHING


def test_submodules_of_a_workspace_that_was_gone_are_folders_again(source: Path) -> None:
    words = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(source), "sub")
    git(source, *words)
    git(source, "commit", "-qm", "with a submodule")
    workspace = made(source)
    kept(workspace)
    shutil.rmtree(workspace.path)
    made(source)
    assert os.listdir(Path(workspace.path) / "sub") == []
    assert git(Path(workspace.path), "status", "--porcelain") == ""


@pytest.mark.parametrize("forgotten", [False, True], ids=["", "and the cache"])
def test_an_agents_repository_that_is_gone_has_its_commits_again(
    source: Path, forgotten: bool
) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    (here / "new").write_text("new")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "second")
    kept(workspace)
    shutil.rmtree(here / ".git")
    if forgotten:
        (Path(workspace.folder) / "repository.git" / "holdfast.cache").unlink()
    workspace = made(source)
    assert git(here, "log", "--format=%s").splitlines() == ["second", "first"]
    assert "gone" in workspace.notes[-1]
    assert workspace.merge().commits == 1
    assert git(source, "log", "--format=%s", "job-j1").splitlines() == ["second", "first"]


def test_a_job_whose_files_were_removed_by_hand_goes_on_with_what_was_kept(
    desk: Desk, source: Path
) -> None:
    worker = desk.program(
        "import json, os, sys; json.load(sys.stdin); open('two' if os.path.exists('one') else"
        f" 'one', 'w').close(); print(json.dumps({DONE}))"
    )
    supervisor = desk.script({**DONE, "action": "STUCK"}, DONE)
    desk.new("--worker", worker, "--supervisor", supervisor, "--source", str(source))
    desk("job", "run", "demo")
    shutil.rmtree(desk.workspace().resolve())
    assert desk.ok("job", "merge", "demo")["applied"]
    assert git(source, "diff", "--name-status", "trunk", "job-demo") == "A\tone"


# --- merges -----------------------------------------------------------------------------------


def test_a_merge_that_was_killed_is_known_for_ours(source: Path) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    deaths = 0
    for step in range(2, 90, 4):
        (here / f"new{step}").write_text("new")
        deaths += killed_at(step, lambda: opened(source).merge())
        merged = opened(source).merge()
        assert merged.commit == git(source, "rev-parse", "job-j1")
        assert f"new{step}" in merged.files.added
    assert deaths > 10


def test_what_was_not_committed_is_merged_upon_what_was_merged_before(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    workspace = made(empty)
    for number in range(3):
        (Path(workspace.path) / f"new{number}").write_text("new")
        assert workspace.merge().made
        assert not workspace.merge().made
    assert git(empty, "rev-list", "--count", "job-j1") == "3"


def test_a_branch_can_be_moved_after_a_merge_of_it_was_refused(source: Path) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    (here / "one").write_text("one")
    assert workspace.merge().made
    git(source, "checkout", "-q", "job-j1")
    (here / "two").write_text("two")
    with pytest.raises(Conflict, match="checked out"):
        workspace.merge()
    git(source, "checkout", "-q", "trunk")
    (here / "three").write_text("three")
    assert opened(source).merge().made
    git(source, "branch", "-f", "job-j1", "trunk")
    (here / "four").write_text("four")
    with pytest.raises(Conflict, match="not of this job"):
        workspace.merge()


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "of an older version"])
def test_nothing_is_merged_into_another_repository_that_the_folder_lies_in(
    source: Path, noted: bool
) -> None:
    workspace = made(source)
    (Path(workspace.path) / "new").write_text("new")
    kept(workspace)
    if not noted:
        place = Path(workspace.folder) / "repository.git" / "holdfast.json"
        facts = json.loads(place.read_bytes())
        del facts["repository"]
        place.write_text(json.dumps(facts))
        assert opened(source).merge(dry_run=True).commits == 1
    shutil.rmtree(source)
    source.mkdir()
    git(source.parent, "init", "-q", "-b", "dotfiles")
    with pytest.raises(ConfigError, match="another repository"):
        opened(source).merge()
    assert git(source.parent, "branch", "--all") == ""


# --- the agent's repository -----------------------------------------------------------------


def test_nothing_is_staged_after_putting_back_equal_files(source: Path) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    (here / "app.py").write_text("print('two')\n")
    point = kept(workspace)
    git(here, "config", "user.name", "the agent's own")
    git(here, "add", "app.py")
    assert workspace.restore(point) == NOTHING
    assert git(here, "diff", "--cached", "--name-only") == ""
    assert git(here, "diff", "--name-only") == "app.py"
    assert git(here, "config", "user.name") == "the agent's own"


@pytest.mark.parametrize("harm", ["objects/info/alternates", "config", "elsewhere"])
def test_a_repository_that_cannot_work_any_more_is_made_anew(source: Path, harm: str) -> None:
    workspace = made(source)
    here = Path(workspace.path)
    point = kept(workspace)
    if harm == "elsewhere":
        (here / ".git" / "objects" / "info" / "alternates").write_text("/nowhere\n")
    else:
        (here / ".git" / harm).unlink()
    workspace.restore(point)
    assert git(here, "log", "--format=%s") == "first"
    assert git(here, "fsck", "--no-dangling") == ""
    assert git(here, "status", "--porcelain") == ""


# --- attachments ------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["worktree", "directory"])
def test_attachments_are_what_was_given_last(source: Path, isolation: Isolation) -> None:
    workspace = made(source, isolation)
    inside = Path(workspace.path) / "attachments" / "spec"
    start = kept(workspace)
    given = source.parent / "spec"
    given.write_text("one")
    workspace.attach("spec", str(given))
    with_one = kept(workspace)
    inside.write_text("the agent's")
    with_other = kept(workspace)
    given.write_text("two")
    workspace.attach("spec", str(given))
    given.write_text("one")
    workspace.attach("spec", str(given))
    given.write_text("two")
    workspace.attach("spec", str(given))
    given.unlink()
    for point in (with_one, start):
        assert workspace.restore(point) == NOTHING
        assert inside.read_text() == "two"
        inside.unlink()
        assert workspace.restore(point) == Measured(["attachments/spec"], [], [])
        assert inside.read_text() == "two"
        assert workspace.changed_since(point) == NOTHING
    workspace.restore(with_other)
    assert inside.read_text() == "the agent's"
    shutil.rmtree(workspace.path)
    workspace = opened(source, isolation)
    workspace.restore(start)
    assert inside.read_text() == "two"


# --- the source -------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["worktree", "sandbox"])
def test_a_repository_that_cannot_be_asked_is_not_taken_for_a_plain_folder(
    tmp_path: Path, isolation: Isolation
) -> None:
    broken = repository(tmp_path / "line\nbreak")
    try:
        workspace = made(broken, isolation)
    except UsageError as error:
        assert "line break" in error.message
    else:
        assert workspace.base == git(broken, "rev-parse", "HEAD")
    (tmp_path / "plain\nfolder").mkdir()
    Workspace(
        str(tmp_path / "home/jobs/j2"), "sandbox", job="j2", source=str(tmp_path / "plain\nfolder")
    ).make()


# --- what was kept -------------------------------------------------------------------------------


@pytest.mark.parametrize("isolation", ["worktree", "directory"])
@pytest.mark.parametrize("gone", [".files", ".files/repository.git"])
def test_what_was_kept_and_is_taken_away_in_a_call_is_named_at_once(
    desk: Desk, source: Path, isolation: str, gone: str
) -> None:
    folder = desk.home / "jobs/demo"
    code = f"import shutil\nshutil.rmtree({str(folder / gone)!r})\nprint({json.dumps(DONE)!r})\n"
    where = ("--isolation", isolation, "--source", str(source))
    desk.new("--worker", desk.program(code), *where)
    for verb in ("run", "diff", "run", "merge"):
        ran = desk("job", verb, "demo", "--json")
        assert ran.code == 6, (verb, ran)
        assert ran.error()["message"] == f"what demo kept of its files is gone: {folder / '.files'}"
        assert "backup, or `holdfast job cancel demo`" in ran.error()["hint"]
    desk.ok("job", "cancel", "demo")
    ran = desk("job", "diff", "demo", "--json")
    assert ran.code == 6
    assert ran.error()["hint"] == "put it back from a backup"


def test_a_workspace_is_not_made_anew_by_who_has_seen_what_was_kept(source: Path) -> None:
    workspace = made(source)
    kept(workspace)
    shutil.rmtree(workspace.folder)
    for _ in range(2):
        with pytest.raises(Corrupt, match="what j1 kept of its files is gone"):
            workspace.make()
    assert not os.path.exists(workspace.path)

"""What a job offers: which files and submodules, under which names, and how refusals are told."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.errors import BadName
from holdfast.git.repository import Entry, Repository
from holdfast.workspace.agent_git import Heads
from holdfast.workspace.merge import Proposal
from tests.workspace.test_workspace import Opener, git, job, model, source, work

__all__ = ["job", "model", "source"]


def links(place: Path, commit: str) -> dict[str, str]:
    """The submodules of a commit, and where they are at."""
    lines = git(place, "ls-tree", "-r", commit).splitlines()
    return {line.split()[3]: line.split()[2] for line in lines if line.startswith("160000")}


# --- submodules -----------------------------------------------------------------------------


def with_submodule(place: Path) -> None:
    words = ("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(place), "sub")
    git(place, *words)
    git(place, "commit", "-qm", "with a submodule")


def test_a_submodule_that_the_agent_moved_and_committed_is_merged_as_it_is(
    job: Opener, source: Path
) -> None:
    with_submodule(source)
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    other = git(source, "commit-tree", "-m", "other", "HEAD^{tree}")
    git(here, "update-index", "--cacheinfo", f"160000,{other},sub")
    git(here, "commit", "-qm", "move it")
    (here / "new").write_text("not committed")
    merged = workspace.merge()
    assert links(source, "job-j1") == {"sub": other}
    assert (merged.commits, merged.files.added, merged.files.changed) == (2, ["new"], ["sub"])


def test_a_submodule_that_the_agent_removed_or_added_is_merged_as_it_is(
    job: Opener, source: Path
) -> None:
    with_submodule(source)
    at = links(source, "trunk")["sub"]
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    git(here, "rm", "-q", "sub")
    git(here, "update-index", "--add", "--cacheinfo", f"160000,{at},lib/two")
    git(here, "commit", "-qm", "elsewhere")
    (here / "sub").write_text("a file now")
    (here / "lib" / "two").mkdir(parents=True)
    (here / "lib" / "two" / "inside").write_text("of the submodule")
    workspace.merge()
    assert links(source, "job-j1") == {"lib/two": at}
    assert git(source, "show", "job-j1:sub") == "a file now"
    assert git(source, "diff", "--name-only", "trunk", "job-j1").split() == [
        ".gitmodules",
        "lib/two",
        "sub",
    ]


def test_a_comparison_has_the_submodules_of_the_heads_that_are_named(
    job: Opener, source: Path, tmp_path: Path
) -> None:
    with_submodule(source)
    copy = Repository(str(tmp_path / "copy.git"))
    copy.create(str(source / ".git"))
    base = git(source, "rev-parse", "HEAD")
    files = {path: entry for path, entry in copy.tree(base).items() if path != "sub"}
    tip, _ = copy.commit("m", changed=files, upon=None, contents=[], parents=[base])
    index = f"{copy.directory}/index"
    proposal = Proposal(copy, index, branch="job-x", base=base, first=None, inputs=frozenset())
    assert proposal.tree(files) == proposal.start()
    changes = copy.tree(proposal.tree(files, Heads(tip, {})))
    assert "sub" not in changes
    assert changes == {path: Entry(*entry) for path, entry in files.items()}


# --- repositories inside --------------------------------------------------------------------


def test_what_comes_with_a_repository_inside_is_not_offered(job: Opener, source: Path) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    (here / "nest").mkdir()
    git(here / "nest", "init", "-q")
    (here / "nest" / "new").write_text("inside")
    (here / "nested").write_text("beside")
    assert "inside" not in workspace.diff(patch=True)
    assert workspace.merge().files.added == ["nested"]
    assert git(source, "diff", "--name-status", "trunk", "job-j1") == "A\tnested"


def test_what_a_job_began_with_stays_offered_when_its_folder_becomes_a_repository(
    job: Opener, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "a").write_text("a\n")
    workspace = job("directory", source=folder)
    workspace.make()
    git(work(workspace) / "inner", "init", "-q")
    (work(workspace) / "inner" / "new").write_text("new\n")
    assert workspace.diff(patch=True) == ""


def test_a_folder_that_began_with_repositories_inside_offers_what_changed_in_them(
    job: Opener, tmp_path: Path
) -> None:
    both = tmp_path / "both"
    (both / "one").mkdir(parents=True)
    git(both / "one", "init", "-q")
    (both / "one" / "a").write_text("a\n")
    workspace = job("directory", source=both)
    workspace.make()
    (work(workspace) / "one" / "a").write_text("b\n")
    (work(workspace) / "one" / "new").write_text("new\n")
    patch = workspace.diff(patch=True)
    assert "+b" in patch
    assert "+new" in patch
    assert "HEAD" not in patch


# --- patches --------------------------------------------------------------------------------


def test_a_patch_has_each_change_once_beside_a_file_in_no_known_encoding(
    job: Opener, source: Path
) -> None:
    workspace = job(source=source)
    workspace.make()
    here = work(workspace)
    shutil.rmtree(here / "docs")
    (here / "docs").write_text("diff --git a/x b/x\n")
    (here / "app.py").unlink()
    (here / "app.py").symlink_to("run.sh")
    (here / "latin").write_bytes(b"caf\xe9\ndiff --git a/y b/y\n")
    patch = workspace.diff(patch=True)
    assert patch.count("\ndiff --git a/docs b/docs") == 1
    assert patch.count("GIT binary patch") == 1
    git(source, "apply", "--cached", "-", given=patch)
    commit = workspace.merge().commit
    assert git(source, "write-tree") == git(source, "rev-parse", f"{commit}^{{tree}}")


# --- names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["HEAD", "@", "refs/heads/trunk", "refs/tags/v2"])
def test_a_name_that_git_would_take_for_something_else_is_refused(
    job: Opener, source: Path, name: str
) -> None:
    workspace = job(source=source)
    workspace.make()
    (work(workspace) / "new").write_text("new")
    before = git(source, "for-each-ref")
    with pytest.raises(BadName) as error:
        workspace.merge(into=name)
    assert "git branch" in (error.value.hint or "")
    assert git(source, "for-each-ref") == before

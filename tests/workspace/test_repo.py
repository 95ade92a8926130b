"""One repository for several candidates: commits, merges, a branch for the user, sealed paths."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import BadName, Conflict
from holdfast.proc.limits import Limits
from holdfast.workspace.command import run
from holdfast.workspace.repo import Checkout, Conflicts, Repo, Sealed
from tests.workspace.test_workspace import contents, digest, git, model, source

__all__ = ["model", "source"]

SEALED = ("tests", "gate.py", "pkg/conftest.py")


@pytest.fixture
def repo(source: Path, tmp_path: Path) -> Repo:
    (source / "tests").mkdir()
    (source / "tests" / "test_it.py").write_text("assert True\n")
    (source / "gate.py").write_text("print('measured')\n")
    (source / "pkg").mkdir()
    (source / "pkg" / "code.py").write_text("1\n")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "with tests")
    (tmp_path / "ours").mkdir()
    return Repo.of(str(tmp_path / "ours"), str(source))


def candidate(repo: Repo, source: Path, change: Callable[[Path], object], upon: str = "") -> str:
    """A commit of ours with what an agent changed."""
    at = source.parent / "candidate"
    shutil.rmtree(at, ignore_errors=True)
    git(source, "clone", "-q", "--no-local", repo.git.directory, str(at))
    git(at, "fetch", "-q", repo.git.directory, upon or base(repo))
    git(at, "checkout", "-q", upon or base(repo))
    change(at)
    git(at, "add", "-A")
    tree = git(at, "write-tree")
    objects = str(at / ".git" / "objects")
    made = git(at, "commit-tree", tree, "-p", upon or base(repo), "-m", "change")
    assert repo.git.take(objects, [made], [upon or base(repo)])
    return made


def base(repo: Repo) -> str:
    assert repo.base is not None
    return repo.base


def writing(name: str, text: str) -> Callable[[Path], object]:
    return lambda at: (at / name).write_text(text)


# --- commits --------------------------------------------------------------------------------


def test_what_two_candidates_changed_in_different_files_is_merged(
    repo: Repo, source: Path, tmp_path: Path
) -> None:
    one = candidate(repo, source, writing("one", "1"))
    two = candidate(repo, source, writing("two", "2"))
    before = digest(source)
    both = repo.merge(one, two)
    assert isinstance(both, str)
    assert digest(source) == before
    assert {"one", "two", "gate.py"} <= repo.git.tree(both).keys()
    assert git(source, "-C", repo.git.directory, "log", "-1", "--format=%P", both) == f"{one} {two}"
    assert repo.merge(base(repo), one) == repo.merge(one, base(repo)) == one


def test_what_two_candidates_changed_differently_is_a_conflict_by_path(
    repo: Repo, source: Path
) -> None:
    one = candidate(repo, source, writing("gate.py", "1\n"))
    two = candidate(repo, source, writing("gate.py", "2\n"))
    assert repo.merge(one, two) == Conflicts(["gate.py"])


def test_a_commit_is_published_by_compare_and_swap_and_runs_no_hook(
    repo: Repo, source: Path
) -> None:
    hooks = source / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-update", "post-merge", "pre-receive", "update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {source}/hooked\n")
        (hooks / name).chmod(0o755)
    first = candidate(repo, source, writing("one", "1"))
    second = candidate(repo, source, writing("two", "2"), first)
    before = git(source, "rev-parse", "HEAD"), git(source, "status", "--porcelain")
    refs = set(git(source, "for-each-ref", "--format=%(refname)").split())
    assert repo.publish(first, "improve/a", expected=None)
    assert not repo.publish(first, "improve/a", expected=first)
    assert repo.publish(second, "improve/a", expected=first)
    assert git(source, "rev-parse", "improve/a") == second
    with pytest.raises(Conflict, match="improve/a"):
        repo.publish(second, "improve/a", expected=None)
    with pytest.raises(Conflict, match="improve/a"):
        repo.publish(second, "improve/a", expected=first)
    with pytest.raises(Conflict, match="improve/a"):
        repo.publish(first, "improve/a", expected=second)
    assert git(source, "rev-parse", "improve/a") == second
    assert (git(source, "rev-parse", "HEAD"), git(source, "status", "--porcelain")) == before
    now = set(git(source, "for-each-ref", "--format=%(refname)").split())
    assert now - refs == {"refs/heads/improve/a"}
    assert not (source / "hooked").exists()


@pytest.mark.parametrize("branch", ["HEAD", "@", "../x", "-x", "a..b", ""])
def test_no_other_ref_is_published(repo: Repo, branch: str) -> None:
    with pytest.raises(BadName):
        repo.publish(base(repo), branch, expected=None)


def test_a_checked_out_branch_is_never_moved(repo: Repo, source: Path) -> None:
    git(source, "checkout", "-qb", "theirs")
    made = candidate(repo, source, writing("one", "1"))
    with pytest.raises(Conflict, match="theirs"):
        repo.publish(made, "theirs", expected=base(repo))
    assert git(source, "rev-parse", "theirs") == base(repo)


def test_a_tree_becomes_a_commit_of_who_commits_in_the_source(repo: Repo, source: Path) -> None:
    git(source, "config", "user.name", "Kim")
    git(source, "config", "user.email", "kim@example.org")
    again = Repo.of(f"{repo.folder}2", str(source))
    tree = git(source, "rev-parse", "HEAD^{tree}")
    made = again.commit(tree, [base(again)], "all of it")
    shown = git(source, "-C", again.git.directory, "log", "-1", "--format=%an %ae %s %P", made)
    assert shown == f"Kim kim@example.org all of it {base(again)}"


# --- sealed paths ---------------------------------------------------------------------------


def linked(at: Path) -> None:
    """Where the tests are is a link to others."""
    shutil.move(at / "tests", at / "easy")
    (at / "easy" / "test_it.py").write_text("easy")
    (at / "tests").symlink_to("easy")


def linked_above(at: Path) -> None:
    shutil.move(at / "pkg", at / "other")
    (at / "other" / "conftest.py").write_text("cheat")
    (at / "pkg").symlink_to("other")


CHEATS: dict[str, Callable[[Path], object]] = {
    "changed": writing("tests/test_it.py", "pass"),
    "added": writing("tests/conftest.py", "cheat"),
    "removed": lambda at: (at / "gate.py").unlink(),
    "unused": writing("pkg/conftest.py", "cheat"),
    "linked": linked,
    "linked above": linked_above,
    "folder": lambda at: ((at / "gate.py").unlink(), (at / "gate.py" / "x").mkdir(parents=True)),
    "executable": lambda at: (at / "gate.py").chmod(0o755),
    "pipe": lambda at: ((at / "gate.py").unlink(), os.mkfifo(at / "tests" / "pipe")),
}


def checked_out(repo: Repo, commit: str, tmp_path: Path) -> Checkout:
    sealed = Sealed(base(repo), SEALED)
    return repo.checkout(commit, str(tmp_path / "measured"), sealed=sealed)


def sealed_in(at: Path) -> dict[str, object]:
    return {name: found for name, found in contents(at).items() if name.startswith(SEALED)}


@pytest.mark.parametrize("cheat", [each for each in CHEATS if each != "pipe"])
def test_sealed_paths_are_as_in_the_base_whatever_the_candidate_has_there(
    repo: Repo, source: Path, tmp_path: Path, cheat: str
) -> None:
    def change(at: Path) -> None:
        (at / "work").write_text("done")
        CHEATS[cheat](at)

    made = candidate(repo, source, change)
    checkout = checked_out(repo, made, tmp_path)
    at = Path(checkout.path)
    assert (at / "work").read_text() == "done"
    assert sealed_in(at) == sealed_in(source)
    assert not (at / ".git").exists()
    assert not checkout.broken()


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_a_run_made_of_sealed_paths_is_found_and_put_back(
    repo: Repo, source: Path, tmp_path: Path, cheat: str
) -> None:
    checkout = checked_out(repo, base(repo), tmp_path)
    at = Path(checkout.path)
    CHEATS[cheat](at)
    broken = checkout.broken()
    assert broken
    assert checkout.restore() == broken
    assert not checkout.broken()
    assert sealed_in(at) == sealed_in(source)
    assert not (at / "pkg").is_symlink()


def test_a_run_that_leaves_sealed_paths_alone_breaks_nothing(
    repo: Repo, source: Path, tmp_path: Path
) -> None:
    checkout = checked_out(repo, base(repo), tmp_path)
    script = "open('made', 'w').write('x'); exec(open('gate.py').read())"
    ended = run([sys.executable, "-c", script], cwd=checkout.path, limits=Limits(time=60))
    assert (ended.exit_code, ended.stdout.text) == (0, "measured\n")
    assert not checkout.broken()
    assert (Path(checkout.path) / "made").exists()


def test_a_fresh_checkout_has_nothing_of_the_one_before(
    repo: Repo, source: Path, tmp_path: Path
) -> None:
    first = repo.checkout(base(repo), str(tmp_path / "measured"))
    (Path(first.path) / "left").mkdir()
    again = repo.checkout(base(repo), str(tmp_path / "measured"))
    assert again.path == first.path
    assert contents(Path(again.path)) == {
        name: found for name, found in contents(source).items() if not name.startswith(".git/")
    }


@pytest.mark.parametrize("path", ["../tests", "/tests", "tests/", "", "a//b"])
def test_what_lies_outside_cannot_be_sealed(repo: Repo, tmp_path: Path, path: str) -> None:
    with pytest.raises(BadName):
        repo.checkout(base(repo), str(tmp_path / "x"), sealed=Sealed(base(repo), (path,)))

"""A repository of ours, and git called so that it runs nothing but itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast.errors import (
    Busy,
    ConfigError,
    Conflict,
    NotFound,
    NotOurs,
    ReadOnly,
    StorageError,
)
from holdfast.git import call
from holdfast.git.repository import FILE, LINK, PROGRAM, Entry, Repository
from holdfast.git.source import source_of
from tests.workspace.test_workspace import digest, git


@pytest.fixture
def ours(tmp_path: Path) -> Repository:
    made = Repository(str(tmp_path / "ours.git"))
    made.create()
    return made


def keep(ours: Repository, files: dict[str, tuple[int, bytes]], upon: str | None = None) -> str:
    changed = {
        path: Entry(mode, ours.id_of(len(held), [held])) for path, (mode, held) in files.items()
    }
    contents = [(len(held), [held]) for _, held in files.values()]
    return ours.commit("m", changed=changed, upon=upon, contents=contents)[0]


def test_what_is_kept_comes_back_byte_for_byte(ours: Repository) -> None:
    files = {
        "a/b": (FILE, b"text\r\n"),
        'q"uo\\te\n': (PROGRAM, bytes(range(256)) * 9000),
        "\udce9": (LINK, b"/etc/passwd"),
        "empty": (FILE, b""),
    }
    commit = keep(ours, files)
    tree = ours.tree(commit)
    assert {path: entry.mode for path, entry in tree.items()} == {
        path: mode for path, (mode, _) in files.items()
    }
    with ours.reading() as blobs:
        found = {path: b"".join(blobs.content(entry.id)) for path, entry in tree.items()}
    assert found == {path: held for path, (_, held) in files.items()}


def test_the_same_files_have_the_same_name(ours: Repository, tmp_path: Path) -> None:
    other = Repository(str(tmp_path / "other.git"))
    other.create()
    files = {"a": (FILE, b"a"), "b": (PROGRAM, b"b")}
    assert keep(ours, files) == keep(ours, files) == keep(other, files)


def test_what_is_not_there_is_an_error_with_a_hint(ours: Repository) -> None:
    with pytest.raises(NotFound):
        ours.tree("0" * 40)
    with pytest.raises(NotFound) as error, ours.reading() as blobs:
        list(blobs.content("0" * 40))
    assert error.value.hint
    with pytest.raises(StorageError) as failed:
        ours.ask("cat-file", "-p", "nothing")
    assert failed.value.hint and "cat-file" in failed.value.message
    assert ours.commit_of("nothing") is None


def test_a_git_that_hangs_is_ended(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nsleep 100 &\nsleep 100\n")
    slow.chmod(0o755)
    with pytest.raises(Busy, match="took longer"):
        call.run([str(slow)], os.environ, patience=0.2)


def test_a_git_that_was_killed_leaves_no_lock_that_stops_us(ours: Repository) -> None:
    commit = keep(ours, {"a": (FILE, b"a")})
    (Path(ours.directory) / "refs" / "holdfast").mkdir()
    for name in ("refs/holdfast/y.lock", "index.lock"):
        Path(ours.directory, name).write_bytes(b"")
    assert keep(ours, {"a": (FILE, b"a")}) == commit
    ours.keep({"refs/holdfast/y": commit})
    assert ours.write_tree(os.path.join(ours.directory, "index"), commit, {})


def test_without_git_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match="not installed") as error:
        call.command("status")
    assert "install git" in (error.value.hint or "")


def test_neither_the_users_settings_nor_the_environment_reach_git(
    ours: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    bad = tmp_path / "bad"
    bad.write_text(f"#!/bin/sh\necho $0 >> {ran}\n")
    bad.chmod(0o755)
    settings = tmp_path / "settings"
    settings.write_text(f"[core]\n\tfsmonitor = {bad}\n\thooksPath = {tmp_path}\n[x]\n\ty = z\n")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, str(settings))
    for name in ("GIT_EXTERNAL_DIFF", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_PAGER", "GIT_EDITOR"):
        monkeypatch.setenv(name, str(bad))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'x.y=z'")
    (tmp_path / "reference-transaction").write_bytes(bad.read_bytes())
    (tmp_path / "reference-transaction").chmod(0o755)
    commit = keep(ours, {"a": (FILE, b"a\n")})
    later = keep(ours, {"a": (FILE, b"b\n")})
    ours.keep({"refs/heads/x": commit})
    assert b"+b" in ours.differences(commit, later, "-p")
    assert ours.tells("config", "x.y") is None
    assert not ran.exists()


def test_a_copy_borrows_nothing_and_changes_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q")
    (source / "a").write_text("a")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "first")
    before = digest(source)
    found = source_of(str(source))
    assert found is not None
    copy = Repository(str(tmp_path / "copy.git"))
    copy.create(found.directory)
    commit = found.commit_of("HEAD")
    assert commit is not None and copy.commit_of(commit) == commit
    assert not os.path.exists(os.path.join(copy.directory, "objects", "info", "alternates"))
    linked = [p for p in Path(copy.directory).rglob("*") if p.is_file() and p.stat().st_nlink > 1]
    assert linked == []
    assert digest(source) == before


@pytest.mark.parametrize("hashed", ["sha1", "sha256"])
def test_a_copy_of_an_empty_one_names_its_objects_by_the_same_hash(
    tmp_path: Path, hashed: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q", f"--object-format={hashed}")
    copy = Repository(str(tmp_path / "copy.git"))
    copy.create(str(source / ".git"))
    assert copy.format == hashed
    commit = keep(copy, {"a": (FILE, b"a")})
    copy.keep({"refs/heads/x": commit})
    found = source_of(str(source))
    assert found is not None
    found.give(copy, "refs/heads/x", "given", expected=None)
    assert git(source, "show", "given:a") == "a"


def test_a_very_large_one_is_linked_instead_of_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q")
    (source / "a").write_text("a")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "first")
    git(source, "gc", "-q")
    monkeypatch.setattr("holdfast.git.repository._LARGE", 0)
    copy = Repository(str(tmp_path / "copy.git"))
    copy.create(str(source / ".git"))
    assert all(pack.stat().st_nlink > 1 for pack in Path(copy.directory).rglob("*.pack"))
    assert copy.commit_of(git(source, "rev-parse", "HEAD"))


def test_commits_are_taken_out_of_foreign_objects_whole_or_not_at_all(
    ours: Repository, tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs: odd"
    theirs.mkdir()
    git(theirs, "init", "-q")
    (theirs / "a").write_text("a")
    git(theirs, "add", "-A")
    git(theirs, "commit", "-qm", "first")
    tip, blob = git(theirs, "rev-parse", "HEAD", "HEAD:a").split()
    objects = theirs / ".git" / "objects"
    broken = objects / blob[:2] / blob[2:]
    held = broken.read_bytes()
    broken.unlink()
    assert not ours.take(str(objects), [tip], [])
    broken.write_bytes(held)
    assert ours.take(str(objects), [tip], [])
    assert ours.tree(tip).keys() == {"a"}
    assert not ours.take(str(objects), [blob], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_source_of_another_user_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q")
    for path in (source, *source.rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(NotOurs) as error:
        source_of(str(source))
    assert "chown" in (error.value.hint or "")
    assert source_of(str(tmp_path)) is None


@pytest.mark.parametrize("name", ["a\nb", "a\u2028b", "a\x85\x0bb", " a\n", "caf\udce9"])
def test_a_source_may_have_any_name(tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.mkdir()
    git(source, "init", "-q", "-b", "x\u2028y")
    git(source, "commit", "-q", "--allow-empty", "-m", "first")
    (source / "inner").mkdir()
    found = source_of(str(source / "inner"))
    assert found is not None
    assert (found.top, found.directory) == (str(source), str(source / ".git"))
    assert found.branch() == "x\u2028y"
    assert found.checked_out() == {"x\u2028y"}
    bare = source_of(str(source / ".git"))
    assert bare is not None
    assert (bare.top, bare.directory) == (None, str(source / ".git"))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("A\nB", "A B"),
        (" .R\u2028io, ", "R io"),
        ('<Rio> "', "Rio"),
        (" . ", None),
        ("\n", None),
    ],
)
def test_who_commits_is_named_so_that_git_takes_it(
    tmp_path: Path, said: str, name: str | None
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "user.name", said)
    git(tmp_path, "config", "user.email", "<rio@example.org>")
    found = source_of(str(tmp_path))
    assert found is not None
    assert found.identity() == ((name, "rio@example.org") if name else None)


REFUSED = {
    "given/y": (Conflict, "another name"),
    "given.lock": (Busy, "another git"),
    "own": (Conflict, "commits of its own"),
    "here": (Conflict, "another name"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_of_the_target_says_what_to_do(
    ours: Repository, tmp_path: Path, reason: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    git(target, "init", "-q", "-b", "here")
    git(target, "commit", "-q", "--allow-empty", "-m", "first")
    git(target, "branch", "own")
    ours.keep({"refs/heads/x": keep(ours, {"a": (FILE, b"a")})})
    if reason == "given/y":
        git(target, "branch", reason)
    if reason == "given.lock":
        (target / ".git" / "refs" / "heads" / reason).touch()
    found = source_of(str(target))
    assert found is not None
    kind, hint = REFUSED[reason]
    with pytest.raises(kind) as error:
        branch = reason if reason in ("own", "here") else "given"
        found.give(ours, "refs/heads/x", branch, expected=found.commit_of(f"refs/heads/{branch}"))
    assert hint in (error.value.hint or "")
    assert "fsck" not in (error.value.hint or "")


@pytest.mark.parametrize("moved", ["made", "forward", "gone"])
def test_a_branch_that_moved_in_between_is_not_swapped(
    ours: Repository, tmp_path: Path, moved: str
) -> None:
    git(tmp_path, "init", "-q", "-b", "here")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    first = git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    second = git(tmp_path, "rev-parse", "HEAD")
    copy = Repository(str(tmp_path / "copy.git"))
    copy.create(str(tmp_path / ".git"))
    copy.keep({"refs/heads/x": second})
    expected = None if moved == "made" else first
    if moved != "gone":
        git(tmp_path, "branch", "given", first if moved == "made" else second)
    found = source_of(str(tmp_path))
    assert found is not None
    before = found.commit_of("refs/heads/given")
    with pytest.raises(Conflict, match="given") as error:
        found.give(copy, "refs/heads/x", "given", expected=expected)
    assert "in between" in (error.value.hint or "")
    assert found.commit_of("refs/heads/given") == before


def test_a_file_that_git_refuses_is_told_by_the_merge(ours: Repository, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    ours.keep({"refs/heads/x": keep(ours, {"git~1": (FILE, b"a")})})
    found = source_of(str(tmp_path))
    assert found is not None
    with pytest.raises(Conflict, match="hasDotgit") as error:
        found.give(ours, "refs/heads/x", "given", expected=None)
    assert "rename or remove" in (error.value.hint or "")


def test_a_target_that_cannot_be_written_is_told(ours: Repository, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    ours.keep({"refs/heads/x": keep(ours, {"a": (FILE, b"a")})})
    found = source_of(str(tmp_path))
    assert found is not None
    words = ("mount", "--bind", str(tmp_path), str(tmp_path))
    if subprocess.run(words, check=False, capture_output=True).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        again = ("mount", "-o", "remount,bind,ro", str(tmp_path))
        subprocess.run(again, check=True)
        with pytest.raises(ReadOnly, match="Read-only") as error:
            found.give(ours, "refs/heads/x", "given", expected=None)
        assert "writable" in (error.value.hint or "")
    finally:
        subprocess.run(("umount", str(tmp_path)), check=True)

"""Workspaces that are plain folders, or the user's own, or in a sandbox; and hostile ones."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import (
    BadName,
    ConfigError,
    Conflict,
    Corrupt,
    NotFound,
    StorageError,
    UsageError,
)
from holdfast.workspace import sandbox
from holdfast.workspace.safedir import Folder
from holdfast.workspace.workspace import Isolation, Measured, Workspace
from tests.workspace.test_workspace import contents, digest, git, wrapped

NOTHING = Measured([], [], [])


def made(
    tmp_path: Path, isolation: Isolation = "directory", source: Path | None = None
) -> Workspace:
    place = str(source) if source is not None else None
    workspace = Workspace(str(tmp_path / "home/jobs/j1"), isolation, job="j1", source=place)
    workspace.make()
    return workspace


def kept(workspace: Workspace) -> str:
    snapshot = workspace.snapshot()
    assert snapshot is not None
    return snapshot


def test_a_folder_keeps_everything_ignored_or_empty_or_with_a_repository_inside(
    tmp_path: Path,
) -> None:
    workspace = made(tmp_path)
    here = Path(workspace.path)
    (here / ".gitignore").write_text("*\n")
    (here / "a").mkdir()
    git(here / "a", "init", "-q")
    (here / "a" / "file").write_text("x")
    (here / "empty" / "inner").mkdir(parents=True)
    (here / "%").mkdir()
    (here / "% odd").write_text("%")
    (here / "50%").write_text("%")
    (here / ".GIT").write_text("shouted")
    os.symlink("/etc/passwd", here / ".gitmodules")
    (here / "big").write_bytes(os.urandom(3 << 20))
    point = kept(workspace)
    was = contents(here)
    assert "a/.git/HEAD" in was and "empty/inner/" in was
    shutil.rmtree(here)
    here.mkdir()
    assert workspace.changed_since(point).removed
    workspace.restore(point)
    assert contents(here) == was
    assert git(here / "a", "status", "--porcelain") == "?? file"
    # What git could not commit is not offered.
    assert ".git/HEAD" not in workspace.diff(patch=True)


def test_a_folder_starts_with_a_copy_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner" / "empty").mkdir(parents=True)
    (source / "run").write_text("x")
    (source / "run").chmod(0o755)
    (source / "away").symlink_to("/etc/hostname")
    before = digest(source)
    # The home may lie inside of what is copied; it is not part of it.
    (source / "home").mkdir()
    (source / "home" / "holdfast.toml").write_text("format = 1\n")
    workspace = Workspace(str(source / "home/jobs/j1"), "directory", job="j1", source=str(source))
    workspace.make()
    copy = contents(Path(workspace.path))
    assert copy == {
        "inner/empty/": (0, b""),
        "run": (0o100, b"x"),
        "away": (0, b"/etc/hostname"),
    }
    second = workspace.folder[:-1] + "2"
    Workspace(second, "directory", job="j2", source=workspace.path).make()
    assert contents(Path(second, "workspace")) == copy
    with pytest.raises(UsageError):
        third = workspace.folder[:-1] + "3"
        Workspace(third, "directory", job="j3", source=str(source / "home")).make()
    shutil.rmtree(source / "home")
    assert {name: held[0::2] for name, held in digest(source).items()} == {
        name: held[0::2] for name, held in before.items()
    }
    with pytest.raises(Corrupt, match="is gone"):
        workspace.merge()


def test_files_whose_repository_is_gone_are_never_overwritten(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    (Path(workspace.path) / "work").write_text("precious")
    shutil.rmtree(Path(workspace.folder) / "repository.git")
    with pytest.raises(Corrupt):
        workspace.make()
    assert (Path(workspace.path) / "work").read_text() == "precious"


def test_a_patch_of_a_folder_applies_to_what_it_began_with(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "text").write_text("one\ntwo\n")
    (source / "latin").write_bytes(b"caf\xe9\n")
    workspace = made(tmp_path, source=source)
    here = Path(workspace.path)
    (here / "text").write_text("one\nthree\n")
    (here / "latin").write_bytes(b"caf\xe9 noir\n")
    (here / "binary").write_bytes(bytes(range(256)))
    assert "3 files changed" in workspace.diff()
    target = Path(shutil.copytree(source, tmp_path / "target"))
    git(target, "apply", "-", given=workspace.diff(patch=True))
    assert contents(target) == contents(here)


# --- attachments ----------------------------------------------------------------------------


def test_attachments_are_copied_and_are_no_change_of_the_agent(tmp_path: Path) -> None:
    given_file = tmp_path / "Spec v2.pdf"
    given_file.write_bytes(b"one")
    workspace = made(tmp_path)
    start = kept(workspace)
    assert workspace.attach("Spec v2.pdf", str(given_file)) == "attachments/Spec v2.pdf"
    inside = Path(workspace.path) / "attachments" / "Spec v2.pdf"
    assert inside.read_bytes() == b"one"
    assert workspace.changed_since(start) == NOTHING
    assert workspace.diff() == ""
    given_file.write_bytes(b"two")
    workspace.make({"Spec v2.pdf": str(given_file)})
    assert inside.read_bytes() == b"two"
    workspace.restore(start)
    assert inside.read_bytes() == b"two"
    inside.write_bytes(b"by the agent")
    assert workspace.changed_since(start).added == ["attachments/Spec v2.pdf"]


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "", ".", "..", ".git", "-x", "a\0b", "a\nb", "x" * 201]
)
def test_hostile_names_of_attachments_are_refused(tmp_path: Path, name: str) -> None:
    workspace = made(tmp_path)
    with pytest.raises(BadName):
        workspace.attach(name, "/etc/hostname")
    assert contents(Path(workspace.path)) == {}


def test_an_attachment_replaces_nothing_that_is_not_one(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    here = Path(workspace.path)
    (here / "attachments").mkdir()
    (here / "attachments" / "a").write_text("the agent's")
    given_file = tmp_path / "a"
    given_file.write_text("new")
    with pytest.raises(Conflict):
        workspace.attach("a", str(given_file))
    shutil.rmtree(here / "attachments")
    outside = tmp_path / "outside"
    outside.mkdir()
    (here / "attachments").symlink_to(outside)
    with pytest.raises(Conflict):
        workspace.attach("a", str(given_file))
    assert not any(outside.iterdir())
    with pytest.raises(NotFound):
        workspace.attach("b", str(tmp_path))


# --- without isolation ----------------------------------------------------------------------


def test_without_isolation_the_folder_is_the_users_and_nothing_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("a")
    before = digest(source)
    workspace = made(tmp_path, "none", source)
    assert workspace.path == str(source)
    assert workspace.snapshot() is None
    assert workspace.sandbox is None
    for refused in (
        lambda: workspace.restore("0" * 40),
        lambda: workspace.changed_since("0" * 40),
        lambda: workspace.diff(),
        lambda: workspace.merge(),
    ):
        with pytest.raises(ConfigError, match="isolation") as error:
            refused()
        assert error.value.hint
    assert digest(source) == before
    assert not (tmp_path / "home").exists()


# --- hostile --------------------------------------------------------------------------------


def test_no_link_leads_out_when_files_are_put_back(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    workspace = made(tmp_path)
    here = Path(workspace.path)
    (here / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "file").write_text("x")
    (here / "a" / "precious").write_text("mine")
    (here / "twin").write_text("mine")
    point = kept(workspace)
    before = digest(outside)
    shutil.rmtree(here / "a")
    (here / "a").symlink_to(outside)
    (here / "twin").unlink()
    os.link(outside / "precious", here / "twin")
    (here / "more").symlink_to("/")
    workspace.changed_since(point)
    later = kept(workspace)
    workspace.restore(point)
    assert digest(outside) == before
    assert (here / "a" / "precious").read_text() == "mine"
    assert (here / "twin").stat().st_nlink == 1
    workspace.restore(later)
    assert (here / "a").is_symlink()
    # The workspace itself may become a link.
    shutil.rmtree(here)
    here.symlink_to(outside)
    workspace.restore(point)
    assert not here.is_symlink()
    assert digest(outside) == before


def test_pipes_sockets_and_closed_folders_do_not_stop_anything(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    here = Path(workspace.path)
    (here / "kept").write_text("x")
    point = kept(workspace)
    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(here / "socket")[-100:] if len(str(here)) < 90 else str(tmp_path / "s"))
    (here / "closed" / "inner").mkdir(parents=True)
    (here / "closed" / "inner" / "x").write_text("x")
    (here / "closed" / "inner").chmod(0)
    (here / "closed").chmod(0o500)
    assert workspace.changed_since(point) == Measured(["closed/inner/x"], [], [])
    workspace.restore(point)
    assert contents(here) == {"kept": (0, b"x")}
    assert os.listdir(here) == ["kept"]


def test_folders_of_any_depth_can_be_removed(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    point = kept(workspace)
    deep = os.open(workspace.path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("deep", dir_fd=deep)
        inner = os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    with pytest.raises(StorageError, match="deep"):
        workspace.snapshot()
    workspace.restore(point)
    assert os.listdir(workspace.path) == []


def test_a_snapshot_of_another_job_is_refused(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    for name in ("0" * 40, "--help", "HEAD", ""):
        with pytest.raises(NotFound):
            workspace.restore(name)


def test_text_is_read_for_models_from_inside_only(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    here = Path(workspace.path)
    (here / "a").write_text("text")
    (here / "out").symlink_to("/etc/hostname")
    (here / "dir").symlink_to("/etc")
    (here / "binary").write_bytes(b"\xff\x00")
    os.mkfifo(here / "pipe")
    assert workspace.text_of("a") == "text"
    assert workspace.text_of("a", most=3) is None
    for path in (
        "out",
        "dir/hostname",
        "binary",
        "pipe",
        "none",
        "../workspace/a",
        "/etc/hostname",
    ):
        assert workspace.text_of(path) is None, path


def test_a_snapshot_can_become_the_files_of_another_job(tmp_path: Path) -> None:
    workspace = made(tmp_path)
    (Path(workspace.path) / "a").mkdir()
    (Path(workspace.path) / "a" / "b").write_text("x")
    point = kept(workspace)
    other = Workspace(str(tmp_path / "home/jobs/j2"), "directory", job="j2")
    other.make()
    (Path(other.path) / "own").write_text("goes")
    workspace.export(point, other.path)
    assert contents(Path(other.path)) == {"a/b": (0, b"x")}


# --- sandbox --------------------------------------------------------------------------------

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap here")


@needs_bubblewrap
def test_a_sandboxed_program_writes_in_its_workspace_only(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    git(model, "init", "-q", "-b", "trunk")
    (model / "a").write_text("a\n")
    git(model, "add", "-A")
    git(model, "commit", "-qm", "first")
    before = digest(model)
    workspace = made(tmp_path, "sandbox", model)
    script = f"""
        set -x
        echo new > file || exit 1
        git add -A && git -c user.name=x -c user.email=x@x commit -qm agent || exit 2
        git log --format=%s | tail -1 | grep -q first || exit 3
        touch {model}/x && exit 4
        touch {workspace.folder}/repository.git/x && exit 5
        touch /etc/holdfast-was-here && exit 6
        touch /tmp/holdfast-was-here || exit 7
        grep -q "NoNewPrivs:.1" /proc/self/status || exit 8
        exit 0
    """
    ran = subprocess.run(
        wrapped(workspace, ["sh", "-c", script]),
        cwd=workspace.path,
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert not Path("/tmp/holdfast-was-here").exists()
    assert digest(model) == before
    assert workspace.merge().commits == 1


def test_without_bubblewrap_a_sandbox_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = made(tmp_path, "sandbox")
    sandbox.bubblewrap.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="bubblewrap") as error:
        wrapped(workspace, ["true"])
    assert "install" in (error.value.hint or "")
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho not permitted >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(ConfigError, match="not permitted"):
        wrapped(workspace, ["true"])
    sandbox.bubblewrap.cache_clear()


# --- any edits ------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "%", "é\n", ".git", "\udce9", "c d"])
_paths = st.lists(_names, min_size=1, max_size=3).map("/".join)
_edits = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "folder", "link", "remove", "mode"]),
        _paths,
        st.sampled_from([b"", b"one", b"two\n", b"\0" * 5000]),
    ),
    max_size=12,
)


def edit(here: Path, deed: str, path: str, content: bytes) -> None:
    target = here / path
    try:
        if deed == "remove":
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        elif deed == "mode":
            target.chmod(0o755)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            if deed == "write":
                target.write_bytes(content)
            elif deed == "folder":
                target.mkdir()
            else:
                target.symlink_to("nowhere")
    except OSError:
        return


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(first=_edits, second=_edits)
def test_after_any_edits_the_files_are_put_back(
    tmp_path_factory: pytest.TempPathFactory,
    first: list[tuple[str, str, bytes]],
    second: list[tuple[str, str, bytes]],
) -> None:
    workspace = made(tmp_path_factory.mktemp("any"))
    here = Path(workspace.path)
    for each in first:
        edit(here, *each)
    was, point = everything(here), kept(workspace)
    for each in second:
        edit(here, *each)
    now, later = everything(here), kept(workspace)
    measured = workspace.changed_since(point)
    files = {path for path in was | now if not path.endswith("/")}
    assert len(measured.added) == len([p for p in files if p not in was])
    assert len(measured.removed) == len([p for p in files if p not in now])
    assert len(measured.changed) == len(
        [p for p in files if p in was and p in now and was[p] != now[p]]
    )
    workspace.restore(point)
    assert everything(here) == was
    assert workspace.changed_since(point) == NOTHING
    workspace.restore(later)
    assert everything(here) == now
    assert kept(workspace) == later


def everything(here: Path) -> dict[str, tuple[int, bytes]]:
    with Folder(str(here)) as files:
        found: dict[str, tuple[int, bytes]] = {}
        for path, about in files.everything():
            held = b""
            if not path.endswith("/"):
                full = here / path
                held = os.fsencode(os.readlink(full)) if full.is_symlink() else full.read_bytes()
            found[path] = (about.mode, held)
        return found

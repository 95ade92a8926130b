"""The file calls themselves, where the rest of the store does not show them."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import NotOurs
from holdfast.store import vfs as files
from holdfast.store.vfs import RealDir, RealVfs

_meanwhile: list[Callable[[], object]] = []


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _meanwhile and event == "os.mkdir":
        _meanwhile.pop()()


@contextmanager
def just_before_mkdir(act: Callable[[], object]) -> Iterator[None]:
    """`act` happens after it was seen that a directory is absent, and before it is made."""
    if not getattr(just_before_mkdir, "hooked", False):
        sys.addaudithook(_hook)  # cannot be removed, but does nothing unless it is asked to
        just_before_mkdir.hooked = True  # pyright: ignore[reportFunctionMemberAccess]
    _meanwhile.append(act)
    try:
        yield
    finally:
        _meanwhile.clear()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[RealDir]:
    made = RealVfs().root(str(tmp_path))
    yield made
    made.close()


def test_a_root_is_made_with_everything_above_it(tmp_path: Path, no_leak: None) -> None:
    vfs = RealVfs()
    with pytest.raises(FileNotFoundError):
        vfs.root(str(tmp_path / "a/b/c"))
    assert list(tmp_path.iterdir()) == []
    vfs.root(str(tmp_path / "a/b/c"), create=True).close()
    assert (tmp_path / "a/b/c").is_dir()
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    vfs.root(str(tmp_path / "a/b/c")).close()


def test_a_root_that_cannot_be_made_durable_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leak: None
) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        RealVfs().root(str(tmp_path / "home"), create=True)


def test_a_root_may_be_named_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_leak: None
) -> None:
    monkeypatch.chdir(tmp_path)
    made = RealVfs().root("x/../y", create=True)
    assert made.path == str(tmp_path / "y")
    made.close()


def test_a_directory_that_somebody_else_makes_meanwhile_is_taken(
    root: RealDir, tmp_path: Path
) -> None:
    # The hook is called again for this very mkdir, by which time it has nothing to do.
    with just_before_mkdir(lambda: (tmp_path / "a").mkdir()):
        root.subdir("a", create=True).close()
    assert (tmp_path / "a").is_dir()


def test_a_link_that_somebody_plants_meanwhile_is_not_followed(
    root: RealDir, tmp_path: Path, no_leak: None
) -> None:
    (tmp_path / "elsewhere").mkdir()
    with (
        just_before_mkdir(lambda: (tmp_path / "a").symlink_to(tmp_path / "elsewhere")),
        pytest.raises((NotOurs, OSError)),
    ):
        root.subdir("a", create=True)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_other_errors_of_the_system_come_through(root: RealDir, tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught:
        root.subdir("x" * 300)
    assert caught.value.errno == errno.ENAMETOOLONG
    with pytest.raises(OSError) as caught:
        root.open("x" * 300, files.READ)
    assert caught.value.errno == errno.ENAMETOOLONG
    with pytest.raises(OSError) as caught:
        root.stat("x" * 300)
    assert caught.value.errno == errno.ENAMETOOLONG
    with pytest.raises(FileNotFoundError):
        root.subdir("absent")


def test_directories_above_are_synced_as_far_as_asked(root: RealDir, no_leak: None) -> None:
    outer = root.subdir("a", create=True)
    inner = outer.subdir("b", create=True)
    inner.sync()
    inner.sync(up=2)
    inner.close()
    outer.close()


def test_a_new_file_never_opens_an_old_one(root: RealDir, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        root.open("a", files.CREATE_NEW)
    fd = root.open("a", files.CREATE)
    assert os.fstat(fd).st_size == 3
    os.close(fd)


def test_descriptors_are_not_handed_to_programs_we_start(root: RealDir) -> None:
    fd = root.open("a", files.CREATE)
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_a_home_belongs_to_who_owns_its_directory(tmp_path: Path) -> None:
    assert files.owned_by_us(str(tmp_path))
    assert files.owned_by_us("/") == (os.geteuid() == 0)


def test_the_version_of_a_directory_tells_of_every_change(tmp_path: Path) -> None:
    root, seen = RealVfs().root(str(tmp_path)), list[int]()
    for number in range(5):
        time.sleep(0.03)
        version = root.version()
        assert version == root.version() != 0
        seen.append(version)
        (tmp_path / str(number)).touch()
        assert root.version() != version
    assert len(set(seen)) == 5
    root.close()


def test_a_change_of_this_very_tick_cannot_be_told_from_the_next(tmp_path: Path) -> None:
    root = RealVfs().root(str(tmp_path))
    told: list[int] = []
    while 0 not in told and len(told) < 1_000:
        (tmp_path / str(len(told))).touch()
        told.append(root.version())
    assert 0 in told
    root.close()


def test_two_entries_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = RealVfs().root(str(tmp_path))
    (tmp_path / "a").write_bytes(b"A")
    (tmp_path / "b").write_bytes(b"B")
    root.exchange("a", "b")
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"B", b"A")
    with pytest.raises(FileNotFoundError):
        root.exchange("a", "absent")
    # A C library without the call, and a file system without the flag, look the same.
    monkeypatch.setattr("holdfast.store.vfs._from_libc", lambda: (None, lambda: 0))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        root.exchange("a", "b")
    root.close()

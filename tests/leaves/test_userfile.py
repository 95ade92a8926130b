"""A file of the user's is read with an end, and put or replaced whole."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import userfile
from holdfast.errors import DiskFull, NotFound, UsageError
from holdfast.testing import refused
from holdfast.userfile import existing, put_new, put_over, read
from tests.ledger.shell import Shell


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"x" * (1 << 20))
    assert read(str(file), 1 << 20) == b"x" * (1 << 20)
    file.write_bytes(b"x" * ((1 << 20) + 1))
    with refused(UsageError, "larger than 1 MiB"):
        read(str(file), 1 << 20)
    with refused(UsageError, "larger than 1 MiB"):
        read("/dev/zero", 1 << 20)
    with pytest.raises(FileNotFoundError):
        read(str(tmp_path / "none"))


def test_only_a_regular_file_is_plain(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            read(path, plain=True)


def test_a_pipe_is_read_until_its_writer_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as end:
            for part in (b"one ", b"two"):
                end.write(part)

    writer = threading.Thread(target=write)
    writer.start()
    assert read(str(pipe)) == b"one two"
    writer.join()


@pytest.mark.parametrize(
    "words",
    [
        ["agent", "new", "b", "--from"],
        ["ledger", "verify", "--against"],
        ["task", "add", "--agent", "rio"],
    ],
    ids=" ".join,
)
def test_no_verb_waits_for_a_pipe_that_nobody_writes_to_nor_reads_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    shell = Shell(tmp_path)
    assert shell("init", "rio").code == 0
    pipe = shell.cwd / "pipe"
    os.mkfifo(pipe)
    sign = "@" if "add" in words else ""
    monkeypatch.setattr(userfile, "WAIT_MS", 50)
    for path, says in ((str(pipe), "nothing wrote to the pipe"), ("/dev/zero", "is larger than")):
        ran = shell(*words, f"{sign}{path}")
        assert ran.code == 2
        assert says in ran.err


def test_a_new_file_is_put_once(tmp_path: Path) -> None:
    path = str(tmp_path / "new")
    assert put_new(path, b"one", dry_run=True)
    assert existing(path) is None
    assert put_new(path, b"one")
    assert not put_new(path, b"one"), "it holds just that"
    with refused(UsageError, "holds something else"):
        put_new(path, b"two")
    assert existing(path) == b"one"
    assert os.listdir(tmp_path) == ["new"]


def test_a_file_is_replaced_only_if_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "page"
    assert put_over(str(file), b"one")
    inode = file.stat().st_ino
    assert not put_over(str(file), b"one")
    assert file.stat().st_ino == inode
    assert put_over(str(file), b"two")
    assert file.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["page"]


def test_a_file_has_the_mode_that_the_user_wants(tmp_path: Path) -> None:
    code = (
        "import os, sys; from holdfast.userfile import put_new; os.umask(0o027);"
        "put_new(sys.argv[1] + '/shared', b'x'); put_new(sys.argv[1] + '/own', b'x', mode=0o600)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("shared", "own")]
    assert modes == [0o640, 0o600]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        for put in (put_new, put_over):
            with refused(UsageError, "not a regular file"):
                put(str(tmp_path / name), b"x")
    with refused(NotFound, "no such folder"):
        put_new(str(tmp_path / "none" / "file"), b"x")
    with refused(NotFound, "no such folder"):
        put_over(str(tmp_path / "pipe" / "file"), b"x")


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "page"
    file.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    for put, path in ((put_over, file), (put_new, tmp_path / "new")):
        with refused(DiskFull):
            put(str(path), b"new")
    assert os.listdir(tmp_path) == ["page"]
    assert file.read_bytes() == b"old"

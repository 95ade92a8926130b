"""Who reads while a writer cuts off half a line and writes another in its place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import MAX_LINE
from holdfast.errors import StorageError
from holdfast.store import vfs as files
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import BadLine, Cursor, Line
from holdfast.store.segments import Plain
from holdfast.testing import Turner, numbers_of, refused
from tests.store.faults import FaultyVfs

KEY = "state/a.jsonl"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home) -> Iterator[FileLog]:
    made = home.log(KEY)
    yield made
    made.close()


@pytest.mark.parametrize("before", [1, 40, 300, 30_000])
def test_the_beginning_of_a_line_that_was_cut_is_not_put_before_the_next_one(
    home: Home, log: FileLog, vfs: FaultyVfs, path: str, before: int
) -> None:
    log.append_all([{"n": n} for n in range(before)])
    file, size = Path(path, KEY), Path(path, KEY).stat().st_size
    log.append({"n": "old", "pad": "x" * 50})
    os.truncate(file, size + 60)  # as a full disk leaves it
    reads = 0

    def cut_and_write(real: Any, *args: Any) -> bytes:
        nonlocal reads
        found = real(*args)
        reads += 1
        if file.stat().st_size == size + 60 and args[2] + len(found) > size:
            os.truncate(file, size)
            other = home.log(KEY)
            other.append({"n": "new", "pad": "x" * 50})
            other.close()
        return found

    vfs.fault("pread", cut_and_write, "a.jsonl", times=None)
    found = numbers_of(log)
    assert reads
    assert found in ([*range(before)], [*range(before), "new"])
    vfs.heal()
    assert numbers_of(log) == [*range(before), "new"]


def test_what_came_since_is_not_read_in_pieces(tmp_path: Path) -> None:
    text, fd = plain(tmp_path, b"one\n")
    with (tmp_path / "text").open("ab") as file:
        file.write(b"y" * 9_000 + b"\n")
    found = list(text.chunks(0))
    os.close(fd)
    assert found == [b"one\n", b"y" * 9_000 + b"\n"]


BAD = 8192


@pytest.mark.parametrize("first", [True, False])
def test_a_bad_block_is_told_and_not_taken_for_the_end(
    log: FileLog, vfs: FaultyVfs, path: str, first: bool
) -> None:
    log.append_all([{"n": n} for n in range(100)])
    at = log.head()
    if not first:
        at = next(line for line in log.read() if isinstance(line, Line) and line.seq == 3)
        at = Cursor(3, at.hash or "", at.segment, at.end)

    def bad(real: Any, fd: int, count: int, offset: int) -> bytes:
        if offset >= BAD:
            raise OSError(errno.EIO, "bad block")
        return real(fd, min(count, BAD - offset), offset)

    vfs.fault("pread", bad, "a.jsonl", times=None)
    for read in (lambda: list(log.read() if first else log.read(at)), log.verify):
        with refused(StorageError):
            read()


def test_a_read_that_ends_early_is_made_again(tmp_path: Path) -> None:
    data = b"".join(b"%d " % n * 200 + b"\n" for n in range(40))
    text, fd = plain(tmp_path, data)
    short = FaultyVfs()
    short.opened(fd, "text")
    text = Plain(short, fd)
    short.fault("pread", lambda real, fd, count, offset: real(fd, 30, offset), after=1, times=2)
    assert b"".join(text.chunks(0)) == data
    short.fault("pread", lambda real, fd, count, offset: real(fd, 30, offset), times=None)
    with pytest.raises(OSError, match="too early"):
        list(text.chunks(0))
    os.close(fd)


def plain(tmp_path: Path, data: bytes) -> tuple[Plain, int]:
    path = tmp_path / "text"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    return Plain(files.RealVfs(), fd), fd


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [0],
        [1, 2, 3],
        [4094],
        [4095],
        [4096],
        [1 << 20],
        [(1 << 20) - 2, 5],
        [5, (1 << 20) - 1, 3],
        [MAX_LINE + 9, 7],
        [40 << 20, 3],
    ],
)
@pytest.mark.parametrize("tail", [0, 1, 4096])
def test_chunks_hold_every_byte_once_and_end_at_the_end_of_a_line(
    tmp_path: Path, lines: list[int], tail: int
) -> None:
    data = b"".join(b"x" * size + b"\n" for size in lines) + b"t" * tail
    text, fd = plain(tmp_path, data)
    found = list(text.chunks(0))
    os.close(fd)
    assert b"".join(found) == data
    short = max(lines, default=0) <= MAX_LINE
    assert all(each.endswith(b"\n") for each in found[:-1] if short)


def test_a_text_that_got_shorter_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text, fd = plain(tmp_path, b"one\ntwo\nthr")
    os.truncate(tmp_path / "text", 8)
    assert b"".join(text.chunks(0)) == b"one\ntwo\n"
    os.truncate(tmp_path / "text", 6)
    assert b"".join(text.chunks(0)) == b"one\ntw"
    os.truncate(tmp_path / "text", 0)
    assert list(text.chunks(0)) == []
    os.close(fd)


def test_a_line_of_the_greatest_length_is_read_and_a_longer_one_is_told(
    log: FileLog, path: str
) -> None:
    log.append({"n": 0})
    with Path(path, KEY).open("ab") as file:
        file.write(b'{"n":"' + b"y" * (MAX_LINE - 100) + b'"}\n' + b"z" * (3 * MAX_LINE) + b"\n")
    log.append({"n": 1})
    kinds = [type(line) for line in log.read()]
    assert kinds == [Line, Line, BadLine, Line]

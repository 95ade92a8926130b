"""The lock file names the newest segment: readers need no list, and do not trust it too far."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.testing import Turner, numbers_of
from tests.store.faults import FaultyVfs, failing

KEY = "state/a.jsonl"
EIO = failing(errno.EIO)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home, vfs: FaultyVfs) -> Iterator[FileLog]:
    first = home.log(KEY)
    first.append({"n": 0})
    first.close()
    made = home.log(KEY)  # opens the file by its name, not by that of its temporary
    vfs.forget()
    yield made
    vfs.heal()
    made.close()


def test_who_reads_on_does_not_list_what_is_behind_him(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    at = log.append({"n": 0})
    assert log.settle() == at
    vfs.forget()
    for number in (1, 2, 3):
        log.append({"n": number})
        assert numbers_of(log, at) == [number]
        at = log.settle()
    assert vfs.count("dir.names") == 0


def test_a_new_file_is_found_by_who_reads_on(home: Home, log: FileLog) -> None:
    at = log.head()
    other = home.log(KEY, rotate_at=1)
    for number in (1, 2, 3):
        other.append({"n": number})
        assert numbers_of(log, at) == list(range(1, number + 1))
        assert log.head() == log.settle() == other.head()
    other.close()


def test_a_marker_from_before_a_power_cut_is_not_believed(
    home: Home, log: FileLog, path: str
) -> None:
    lock = Path(path, "state/.a.jsonl.lock")
    at, old = log.head(), lock.read_bytes()
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 1})
    lock.write_bytes(old)
    fresh = home.log(KEY)
    for _ in range(2):
        assert numbers_of(fresh, at) == [1]
        assert fresh.head().seq == fresh.settle().seq == 2
    other.close()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"b.jsonl\n", b"a.7.jsonl\n"])
def test_whatever_the_lock_file_says_all_lines_are_read(
    home: Home, log: FileLog, path: str, content: bytes
) -> None:
    at = log.head()
    assert numbers_of(log) == [0]
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 1})
    other.close()
    Path(path, "state/.a.jsonl.lock").write_bytes(content)
    assert numbers_of(log, at) == [1]
    assert log.head().seq == log.settle().seq == 2


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_whatever_stands_in_place_of_the_lock_file_readers_do_not_need_it(
    home: Home, log: FileLog, path: str, kind: str
) -> None:
    at = log.head()
    lock = Path(path, "state/.a.jsonl.lock")
    lock.unlink()
    if kind == "directory":
        lock.mkdir()
    elif kind == "link":
        lock.symlink_to("a.jsonl")
    else:
        os.mkfifo(lock)
    for each in (log, home.log(KEY)):
        assert numbers_of(each) == [0]
        assert numbers_of(each, at) == []
        assert each.head() == at


def test_an_older_marker_is_not_believed_by_who_has_seen_a_newer_one(
    home: Home, log: FileLog, path: str
) -> None:
    lock = Path(path, "state/.a.jsonl.lock")
    at = log.append({"n": 1})
    old = lock.read_bytes()
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 2})
    assert log.head().seq == log.head().seq == 3
    lock.write_bytes(old)
    for _ in range(2):
        assert log.head().seq == log.settle().seq == 3
        assert numbers_of(log, at) == [2]
    other.close()


def test_a_file_that_somebody_put_into_a_log_by_days_is_read(home: Home, path: str) -> None:
    days = home.log("ledger/rio")
    at = days.append({"n": 0})
    assert days.head() == at
    assert numbers_of(days, at) == []
    Path(path, "ledger/rio/2099-01-01.jsonl").write_bytes(b'{"n":1}\n')
    assert numbers_of(days, at) == [1]
    days.close()


def test_foreign_lines_in_the_newest_file_do_not_hide_the_head(
    home: Home, log: FileLog, path: str
) -> None:
    head = log.head()
    Path(path, "state/a.1.jsonl").write_bytes(b'{"n":1}\n')
    Path(path, "state/.a.jsonl.lock").write_bytes(b"a.1.jsonl".ljust(255) + b"\n")
    fresh = home.log(KEY)
    for _ in range(2):
        assert fresh.head() == fresh.settle() == head
        assert numbers_of(fresh) == [0, 1]

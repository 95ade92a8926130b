"""Lines that nobody waits for: there at once, durable with the next who does wait, told if not."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import Record
from holdfast.errors import BadValue, Busy, Conflict, DiskFull, Indeterminate
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import CONTROL, FAILED, Cursor, Line
from holdfast.testing import Turner, numbers_of, refused
from tests.store.batches import as_one_batch
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


def put_off(log: FileLog, *numbers: int) -> list[Cursor]:
    lines: list[Record] = [{"n": number} for number in numbers]
    return log.transact(lambda head: lines, durable=False)


def own_numbers(log: FileLog) -> list[Any]:
    lines = [line for line in log.read() if isinstance(line, Line)]
    return [line.record["n"] for line in lines if CONTROL not in line.record]


def obituaries(log: FileLog) -> list[str]:
    lines = [line for line in log.read() if isinstance(line, Line)]
    return [line.record["segment"] for line in lines if line.record.get(CONTROL) == FAILED]


def test_they_are_there_for_everybody_without_a_sync(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    assert [cursor.seq for cursor in put_off(log, 1, 2)] == [2, 3]
    assert vfs.count("sync") == 0
    assert numbers_of(home.log(KEY)) == [0, 1, 2]
    assert log.verify().problems == []


@pytest.mark.parametrize("way", ["settle", "append", "append_all", "transact", "close"])
def test_whatever_is_durable_next_makes_them_durable(
    log: FileLog, vfs: FaultyVfs, way: str
) -> None:
    put_off(log, 1)
    put_off(log, 2)
    assert vfs.count("sync", "a.jsonl") == 0
    if way == "append":
        log.append({"n": 3})
    elif way == "append_all":
        log.append_all([{"n": 3}])
    elif way == "transact":
        log.transact(lambda head: [])
    else:
        getattr(log, way)()
    assert vfs.count("sync", "a.jsonl") >= 1
    vfs.forget()
    log.close()
    assert vfs.count("sync") == 0


@pytest.mark.parametrize("way", ["settle", "append", "append_all"])
def test_who_waits_next_is_told_that_the_disk_failed_over_them(
    log: FileLog, vfs: FaultyVfs, way: str
) -> None:
    put_off(log, 1)
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Indeterminate):
        {
            "settle": log.settle,
            "append": lambda: log.append({"n": 2}),
            "append_all": lambda: log.append_all([{"n": 2}]),
        }[way]()
    assert log.append({"n": 3}).segment == "a.1.jsonl"
    assert obituaries(log) == ["a.jsonl"]
    assert log.settle() == log.head()


def test_a_file_that_failed_is_not_synced_again_for_them(log: FileLog, vfs: FaultyVfs) -> None:
    put_off(log, 1)
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Indeterminate):
        log.settle()
    log.append({"n": 2})
    log.close()
    assert vfs.count("sync", "a.jsonl") == 0, "one that fails is not counted"


@pytest.mark.parametrize("durable", [True, False])
def test_one_whose_own_rotation_fails_is_told_by_the_write_that_rotates(
    home: Home, vfs: FaultyVfs, durable: bool
) -> None:
    for _ in range(2):
        log = home.log("state/b.jsonl", rotate_at=300)
        log.append({"n": 0})
        log.close()
    put_off(log, 1)
    vfs.fault("sync", EIO, "b.jsonl")
    with refused(Indeterminate, "b.jsonl"):
        log.transact(lambda head: [{"n": 3}], durable=durable)
    assert obituaries(log) == ["b.jsonl"]
    assert own_numbers(log) == [0, 0, 1, 3]
    log.append({"n": 4})
    log.settle()
    log.close()


@pytest.mark.parametrize("durable", [True, False])
def test_one_who_follows_into_a_new_file_is_told_that_the_old_one_failed(
    home: Home, log: FileLog, vfs: FaultyVfs, durable: bool
) -> None:
    put_off(log, 1)
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 2})
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Indeterminate, "a.jsonl"):
        log.transact(lambda head: [{"n": 3}], durable=durable)
    assert own_numbers(log) == [0, 1, 2, 3]
    assert obituaries(log) == ["a.jsonl"]
    log.append({"n": 4})
    log.settle()
    other.close()


def test_who_settles_is_told_although_somebody_else_went_on_in_a_new_file(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    put_off(log, 1)
    other = home.log(KEY, rotate_at=1)
    # The kernel tells each descriptor once.
    vfs.fault("sync", EIO, "a.jsonl", times=2)
    assert other.append({"n": 2}).segment == "a.1.jsonl"
    with refused(Indeterminate, "a.jsonl"):
        log.settle()
    assert log.settle() == log.head()
    other.close()


def test_the_short_way_leaves_the_telling_to_the_long_one(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    put_off(log, 1)
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 2})
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Indeterminate):
        log.append({"n": 3})
    assert own_numbers(log) == [0, 1, 2, 3]
    other.close()


def test_a_file_that_is_left_is_synced_first(home: Home, log: FileLog, vfs: FaultyVfs) -> None:
    put_off(log, 1)
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 2})
    vfs.forget()
    put_off(log, 3)
    assert [call.name for call in vfs.seen("sync")] == ["a.jsonl"]
    other.close()


def test_one_who_waits_in_the_same_group_gets_his_sync(log: FileLog, vfs: FaultyVfs) -> None:
    log.append({"n": 3})
    vfs.forget()
    as_one_batch(log, lambda: put_off(log, 1), lambda: log.append({"n": 2}))
    assert vfs.count("sync", "a.jsonl") == 2, "one for the leader, one for both"
    assert own_numbers(log) == [0, 3, "leader", 1, 2]


def raising(head: Cursor) -> list[Record]:
    raise Conflict("not now", hint="later")


def test_a_failure_behind_another_error_is_told_by_the_next_call(
    log: FileLog, vfs: FaultyVfs
) -> None:
    put_off(log, 1)
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Conflict):
        log.transact(raising)
    with refused(Indeterminate, "a.jsonl"):
        log.settle()
    assert log.settle() == log.head()


def test_a_full_disk_that_takes_a_new_file_with_it_is_told_in_the_end(
    home: Home, vfs: FaultyVfs
) -> None:
    for _ in range(2):
        log = home.log("state/b.jsonl", rotate_at=300)
        log.append({"n": 0})
        log.close()
    put_off(log, 1)
    full = failing(errno.ENOSPC)
    vfs.fault("sync", full, "b.jsonl")
    vfs.fault("write", full, "*.tmp")
    with refused(DiskFull):
        log.append_all([{"n": 2}])
    with refused(Indeterminate, "b.jsonl"):
        log.append({"n": 3})
    log.append({"n": 4})
    log.settle()
    assert own_numbers(log) == [0, 0, 1, 3, 4]
    log.close()


@pytest.mark.parametrize("way", ["settle", "append", "append_all"])
def test_what_failed_when_the_handle_was_closed_is_told_when_it_is_used_again(
    log: FileLog, vfs: FaultyVfs, way: str
) -> None:
    put_off(log, 1)
    vfs.fault("sync", EIO, "a.jsonl")
    log.close()
    calls = {
        "settle": log.settle,
        "append": lambda: log.append({"n": 2}),
        "append_all": lambda: log.append_all([{"n": 2}]),
    }
    with refused(Indeterminate, "a.jsonl"):
        calls[way]()
    log.append({"n": 3})
    log.settle()
    assert obituaries(log) == ["a.jsonl"]


def test_what_failed_when_another_error_closed_the_handle_is_told(
    log: FileLog, vfs: FaultyVfs
) -> None:
    put_off(log, 1)
    vfs.fault("try_lock", failing(errno.EMFILE))
    vfs.fault("sync", EIO, "a.jsonl")
    with refused(Busy):
        log.append({"n": 2})
    with refused(Indeterminate, "a.jsonl"):
        log.append({"n": 3})
    log.settle()


def test_a_child_leaves_it_to_its_parent_to_hear_of_the_disk(log: FileLog, vfs: FaultyVfs) -> None:
    put_off(log, 1)
    vfs.forget()
    child = os.fork()
    if child == 0:
        log.append({"n": 2})
        os._exit(vfs.count("sync", "a.jsonl"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1, "one sync: that of its own line"
    log.settle()
    assert own_numbers(log) == [0, 1, 2]


# --- reading without a list -------------------------------------------------------------------


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


def test_a_decision_that_settles_what_was_put_off_is_refused_instead_of_waiting(
    log: FileLog,
) -> None:
    put_off(log, 1)

    def settling(head: Cursor) -> list[Record]:
        log.settle()
        return [{"n": 9}]

    with refused(BadValue):
        log.transact(settling)
    assert own_numbers(log) == [0, 1]
    log.append({"n": 2})
    assert own_numbers(log) == [0, 1, 2]

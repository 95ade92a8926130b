"""The lock of a log or document: waiting always ends, and the one in the way is named."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import Busy
from holdfast.store.home import Home
from holdfast.store.lock import Lock
from holdfast.store.vfs import RealVfs
from holdfast.testing import Turner, numbers_of, refused
from tests.store.children import child
from tests.store.faults import FaultyVfs, failing, first

HOLD = """
import fcntl
fd = os.open({path!r}, os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
say("held")
listen()
"""


@pytest.fixture
def lock(tmp_path: Path, clock: Turner) -> Iterator[Lock]:
    vfs = RealVfs()
    root = vfs.root(str(tmp_path))
    made = Lock(root, ".lock", vfs, clock)
    yield made
    made.close()
    root.close()


class Holder:
    """Somebody else who has the lock, in this process."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def let_go(self) -> None:
        os.close(self.fd)


def is_free(path: Path) -> bool:
    try:
        Holder(path).let_go()
    except BlockingIOError:
        return False
    return True


def test_a_lock_is_held_by_one_at_a_time(lock: Lock, tmp_path: Path) -> None:
    with lock:
        assert not is_free(tmp_path / ".lock")
    assert is_free(tmp_path / ".lock")


def test_a_lock_is_let_go_when_the_block_fails(lock: Lock, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert is_free(tmp_path / ".lock")


def test_waiting_ends_in_the_lock_once_it_is_free(
    lock: Lock, clock: Turner, tmp_path: Path
) -> None:
    holder = Holder(tmp_path / ".lock")
    start = clock.boottime()

    def meanwhile() -> None:
        if clock.boottime() > start + 3:
            clock.meanwhile = None
            holder.let_go()

    clock.meanwhile = meanwhile
    lock.acquire(5.0)
    assert 3 <= clock.boottime() - start < 4
    lock.release()


def test_waiting_ends_in_a_refusal_after_its_time(
    lock: Lock, clock: Turner, tmp_path: Path
) -> None:
    holder = Holder(tmp_path / ".lock")
    for patience in (0.0, 2.0, 10.0):
        start = clock.boottime()
        with refused(Busy, ".lock is held by"):
            lock.acquire(patience)
        assert patience <= clock.boottime() - start < patience + 0.1
    holder.let_go()
    lock.acquire(0.0)


def test_a_stopped_holder_is_named(path: str, tmp_path: Path, clock: Turner) -> None:
    with Home.open(path, create=True, timezone="UTC", clock=clock) as home:
        log = home.log("state/a.jsonl")
        log.append({"n": 1})
        name = f"{path}/state/.a.jsonl.lock"
        with child(HOLD.format(path=name)) as holder:
            assert holder.hear() == "held"
            holder.freeze()
            with pytest.raises(Busy) as caught:
                log.append({"n": 2})
            assert f"process {holder.pid}" in caught.value.message
            assert f"ps {holder.pid}" in (caught.value.hint or "")
            with pytest.raises(Busy):
                home.log("state/a.jsonl").append({"n": 3})
            assert numbers_of(log) == [1], "reading needs no lock"
        assert log.append({"n": 4}).seq == 2, "the kernel drops the lock of the dead"
        log.close()


def test_a_stopped_holder_of_a_document_is_named(home: Home, path: str) -> None:
    document = home.document("a.md")
    document.replace(b"one")
    with child(HOLD.format(path=f"{path}/.a.md.lock")) as holder:
        assert holder.hear() == "held"
        with refused(Busy, f"process {holder.pid}"):
            document.replace(b"two")
        found = document.read()
        assert found is not None
        assert found.data == b"one"
    document.replace(b"three")


def test_waiting_takes_no_longer_than_asked_on_a_real_clock(tmp_path: Path) -> None:
    vfs, clock = RealVfs(), SystemClock()
    root = vfs.root(str(tmp_path))
    holder, lock = Holder(tmp_path / ".lock"), Lock(root, ".lock", vfs, clock)
    start = clock.boottime()
    with pytest.raises(Busy):
        lock.acquire(0.05)
    assert 0.05 <= clock.boottime() - start < 5
    holder.let_go()
    lock.close()
    root.close()


@pytest.mark.parametrize("content", [b"", b"garbage\n", b"\0" * 300, b"x" * 100_000])
def test_a_lock_file_that_was_left_behind_blocks_nobody(
    home: Home, path: str, content: bytes
) -> None:
    for name in (".a.jsonl.lock", ".a.md.lock", ".a.json.lock"):
        Path(path, name).write_bytes(content)
    log = home.log("a.jsonl")
    assert [log.append({"n": number}).seq for number in range(3)] == [1, 2, 3]
    assert home.document("a.md").replace(b"x")
    assert home.document("a.md").replace(b"y")
    log.close()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_lock_file_that_is_taken_away_while_waiting_is_not_trusted(
    lock: Lock, clock: Turner, tmp_path: Path, replaced: bool
) -> None:
    file = tmp_path / ".lock"
    holder = Holder(file)

    def meanwhile() -> None:
        clock.meanwhile = None
        file.unlink()
        if replaced:
            file.write_bytes(b"")
        holder.let_go()

    clock.meanwhile = meanwhile
    lock.acquire()
    assert os.fstat(lock.fd).st_ino == os.stat(file).st_ino
    assert not is_free(file)


def test_a_lock_file_that_is_taken_away_just_before_the_lock_is_had(
    tmp_path: Path, clock: Turner
) -> None:
    vfs, file = FaultyVfs(), tmp_path / ".lock"
    root = vfs.root(str(tmp_path))
    lock = Lock(root, ".lock", vfs, clock)
    vfs.fault("try_lock", first(file.unlink), times=2)
    lock.acquire()
    assert vfs.count("dir.open") == 3
    assert os.fstat(lock.fd).st_ino == os.stat(file).st_ino
    lock.close()
    root.close()


def test_a_lock_that_cannot_be_let_go_is_closed(tmp_path: Path, clock: Turner) -> None:
    vfs = FaultyVfs()
    root = vfs.root(str(tmp_path))
    lock = Lock(root, ".lock", vfs, clock)
    vfs.fault("unlock", failing(errno.EIO))
    with lock:
        pass
    assert lock.fd < 0
    assert is_free(tmp_path / ".lock")
    with lock:
        assert not is_free(tmp_path / ".lock")
    lock.close()
    lock.close()
    root.close()


def test_a_holder_without_a_name_is_another_process(lock: Lock, tmp_path: Path) -> None:
    """Where the kernel does not tell, as in another namespace of processes."""
    holder = Holder(tmp_path / ".lock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.store.lock.lock_holder", lambda inode: None)
        with refused(Busy, "held by another process"):
            lock.acquire(0.0)
    holder.let_go()


def test_a_forked_child_that_closes_its_copy_does_not_let_go(lock: Lock, tmp_path: Path) -> None:
    lock.acquire()
    copy = os.dup(lock.fd)  # the parent's, which shares the lock with it
    lock._pid = 1
    lock.close()
    assert not is_free(tmp_path / ".lock")
    os.close(copy)
    assert is_free(tmp_path / ".lock")

"""A lease belongs to a living process, and to nobody else."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import Busy, DiskFull, HoldfastError, StorageError
from holdfast.process import Owner, alive
from holdfast.store.home import Home
from holdfast.store.sweep import sweep
from holdfast.testing import Turner, refused
from tests.store.children import child, fork, in_fork, state_when
from tests.store.faults import FaultyVfs, failing, first, short

KEY = "jobs/a"

HOLD = """
home = Home.open({path!r})
lease = home.lease({key!r})
say(lease.acquire("hold it"))
listen()
lease.release()
say("released")
listen()
"""


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


def file_of(path: str) -> Path:
    return Path(path, "jobs/.a.lease")


def test_a_process_that_holds_a_lease_keeps_it_from_another(home: Home, path: str) -> None:
    with child(HOLD.format(path=path, key=KEY)) as owner:
        fence = int(owner.hear())
        held = home.lease(KEY).holder()
        assert held is not None
        assert (held.owner.pid, held.purpose, held.alive) == (owner.pid, "hold it", True)
        with refused(Busy, f"held by process {owner.pid}"):
            home.lease(KEY).acquire("x")
        owner.tell("release")
        assert owner.hear() == "released"
        assert home.lease(KEY).holder() is None
        mine = home.lease(KEY)
        assert mine.acquire("now") == fence + 1
        mine.release()


def test_a_lease_that_nobody_took_beside_another_has_no_holder(home: Home) -> None:
    other = home.lease("jobs/b")
    other.acquire("x")
    assert home.lease(KEY).holder() is None
    other.release()


def test_a_killed_owner_is_shown_dead_and_blocks_nobody(home: Home, path: str) -> None:
    with child(HOLD.format(path=path, key=KEY)) as owner:
        fence = int(owner.hear())
        owner.process.kill()
        owner.process.wait()
        held = home.lease(KEY).holder()
        assert held is not None
        assert (held.owner.pid, held.alive, held.fence) == (owner.pid, False, fence)
        stolen: list[Owner] = []
        lease = home.lease(KEY)
        assert lease.acquire("next", steal=stolen.append) == fence + 1
        assert stolen == []
        lease.release()


def test_a_frozen_owner_is_shown_alive_and_keeps_its_lease(home: Home, path: str) -> None:
    with child(HOLD.format(path=path, key=KEY)) as owner:
        owner.hear()
        owner.freeze()
        held = home.lease(KEY).holder()
        assert held is not None
        assert held.alive
        with refused(Busy, str(owner.pid)):
            home.lease(KEY).acquire("x", patience=5.0)


def test_a_frozen_owner_is_ended_before_its_lease_is_taken(home: Home, path: str) -> None:
    with child(HOLD.format(path=path, key=KEY)) as owner:
        fence = int(owner.hear())
        owner.freeze()
        lease = home.lease(KEY)

        def end(found: Owner) -> None:
            assert found.pid == owner.pid
            assert alive(found)
            os.kill(found.pid, signal.SIGKILL)
            assert state_when(found.pid, lambda state: state == "Z") == "Z"

        assert lease.acquire("stolen", steal=end) == fence + 1
        lease.release()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\0" * 4096,
        b"{}",
        b"[" * 5000,
        b'{"owner":["h","b","pid",1]}',
        b"9" * 100,
        b"x" * 100_000,
    ],
)
def test_a_lease_file_with_other_content_blocks_nobody(
    home: Home, path: str, content: bytes
) -> None:
    file_of(path).parent.mkdir()
    file_of(path).write_bytes(content)
    assert home.lease(KEY).holder() is None
    lease = home.lease(KEY)
    first_fence = lease.acquire("one")
    assert first_fence > 0
    held = home.lease(KEY).holder()
    assert held is not None
    assert held.purpose == "one"
    lease.release()
    assert lease.acquire("two") == first_fence + 1
    lease.release()


def test_an_owner_that_has_not_said_who_it_is_cannot_be_stolen_from(home: Home, path: str) -> None:
    lease = home.lease(KEY)
    lease.acquire("before")
    lease.release()
    fd = os.open(file_of(path), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    stolen: list[Owner] = []
    with pytest.raises(Busy) as caught:
        lease.acquire("x", patience=1.0, steal=stolen.append)
    assert caught.value.hint
    assert stolen == [], "there is no process to be ended"
    os.close(fd)


def test_a_lease_file_that_is_taken_away_is_made_again(
    home: Home, path: str, vfs: FaultyVfs, no_leak: None
) -> None:
    vfs.fault("try_lock", first(lambda: file_of(path).unlink()), ".a.lease", times=2)
    lease = home.lease(KEY)
    assert lease.acquire("x") == 1
    with refused(Busy):
        home.lease(KEY).acquire("y")
    lease.release()


@pytest.mark.parametrize(
    ("op", "after"),
    [("pread", 0), ("pwrite", 0), ("dir.sync", 0), ("dir.open", 0), ("try_lock", 0)],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_lease_that_could_not_be_written_is_not_held(
    home: Home, vfs: FaultyVfs, op: str, after: int, number: int, no_leak: None
) -> None:
    lease = home.lease(KEY)
    fence = lease.acquire("one")
    lease.release()
    vfs.fault(op, failing(number), after=after)
    with pytest.raises(HoldfastError) as caught:
        lease.acquire("two")
    assert caught.value.hint
    assert isinstance(caught.value, StorageError | Busy)
    other = home.lease(KEY)
    assert other.acquire("three") > fence
    other.release()


def test_a_lease_file_whose_sync_failed_is_left_for_a_new_one(
    home: Home, vfs: FaultyVfs, path: str, no_leak: None
) -> None:
    lease = home.lease(KEY)
    fence = lease.acquire("one")
    lease.release()
    failed = file_of(path).stat().st_ino
    vfs.fault("sync", failing(errno.EIO))
    with open(file_of(path), "rb"):  # so that its number cannot be given again
        assert lease.acquire("two") == fence + 1
        assert file_of(path).stat().st_ino != failed
    other = home.lease(KEY)
    with refused(Busy):
        other.acquire("not yet")
    lease.release()
    assert other.acquire("three") == fence + 2
    other.release()
    assert sorted(os.listdir(file_of(path).parent)) == [".a.lease"]


def test_a_lease_file_whose_sync_failed_is_not_synced_when_the_disk_works_again(
    home: Home, vfs: FaultyVfs, path: str, no_leak: None
) -> None:
    lease = home.lease(KEY)
    fence = lease.acquire("one")
    lease.release()
    vfs.fault("sync", failing(errno.EIO), ".a.lease")
    for op, name in (("sync", "*.tmp"), ("dir.open", "*.tmp"), ("dir.rename", "*")):
        vfs.fault(op, failing(errno.EIO), name)
        with refused(StorageError):
            lease.acquire("two")
    vfs.heal()
    vfs.forget()
    file_of(path).with_name(".a.lease.tmp").write_bytes(b"left by a dead one")
    assert lease.acquire("three") > fence
    lease.release()
    assert {call.name for call in vfs.seen("sync")} == {".a.lease.tmp"}
    vfs.forget()
    assert lease.acquire("four") > fence + 1
    lease.release()
    assert {call.name for call in vfs.seen("sync")} == {".a.lease"}


def test_what_a_dead_owner_left_of_a_new_lease_file_is_swept_under_the_lease(
    home: Home, path: str
) -> None:
    lease = home.lease(KEY)
    lease.acquire("one")
    left = file_of(path).with_name(".a.lease.tmp")
    left.write_bytes(b"")
    assert list(sweep(home)) == []
    lease.release()
    assert list(sweep(home)) == ["jobs/.a.lease.tmp"]
    assert os.listdir(file_of(path).parent) == [".a.lease"]


def test_a_full_disk_cannot_take_the_fencing_number_away(
    home: Home, vfs: FaultyVfs, no_leak: None
) -> None:
    lease = home.lease(KEY)
    fences = [lease.acquire("one")]
    lease.release()
    for most in (0, 1, 5, 20):
        vfs.fault("pwrite", short(most))
        with refused(DiskFull):
            lease.acquire("two")
    vfs.fault("pwrite", short(10), after=1)
    fences.append(lease.acquire("its name is cut"))
    vfs.fault("pwrite", failing(errno.EIO))
    lease.release()
    fences.append(lease.acquire("three"))
    vfs.fault("unlock", failing(errno.EIO))
    lease.release()
    fences.append(lease.acquire("four"))
    lease.release()
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("op", ["pread", "dir.open", "dir.subdir"])
def test_looking_for_the_holder_fails_typed(
    home: Home, vfs: FaultyVfs, op: str, no_leak: None
) -> None:
    lease = home.lease(KEY)
    lease.acquire("one")
    vfs.fault(op, failing(errno.EIO))
    with refused(StorageError):
        lease.holder()
    assert lease.holder() is not None
    lease.release()


def test_a_forked_child_does_not_keep_what_its_parent_gave_back(home: Home) -> None:
    lease = home.lease(KEY)
    lease.acquire("parent")
    reader, writer = os.pipe()
    done, told = os.pipe()
    pid = fork()
    if pid == 0:
        os.close(writer)
        os.write(told, b"!")
        os.read(reader, 1)  # until the parent has had its way
        os._exit(0)
    os.read(done, 1)
    lease.release()
    other = home.lease(KEY)
    assert other.acquire("another") > 1
    other.release()
    os.close(writer)
    os.waitpid(pid, 0)
    for fd in (reader, done, told):
        os.close(fd)


def test_a_forked_child_cannot_have_the_lease_of_its_parent(home: Home) -> None:
    lease = home.lease(KEY)
    lease.acquire("parent")

    def act() -> None:
        with refused(Busy, "parent"):
            home.lease(KEY).acquire("child")

    in_fork(act)
    lease.release()


def test_whether_an_owner_that_cannot_be_seen_lives_is_told_by_its_lock(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, other = home.lease(KEY), home.lease(KEY)
    fence = lease.acquire("index")
    monkeypatch.setattr("holdfast.store.place.alive", lambda owner, host: None)
    held = other.holder()
    assert held is not None
    assert held.alive
    lost, record = file_of(home.path), file_of(home.path).read_bytes()
    lease.release()
    lost.write_bytes(record)  # as it is after a crash
    held = other.holder()
    assert held is not None
    assert not held.alive
    assert other.acquire("next") == fence + 1, "to look at it takes nothing"
    other.release()


def test_a_lease_says_on_disk_who_has_it(home: Home, path: str) -> None:
    lease = home.lease(KEY)
    fence = lease.acquire("index the library")
    number, record, *_ = file_of(path).read_text().splitlines()
    assert int(number) == fence
    assert json.loads(record)["purpose"] == "index the library"
    lease.release()
    assert "index" not in file_of(path).read_text()
    assert lease.key == "jobs/.a.lease"


def test_a_forked_child_cannot_give_back_what_its_parent_holds(path: str, home: Home) -> None:
    lease = home.lease(KEY)
    lease.acquire("hold it")
    in_fork(lease.release)
    with Home.open(path, timezone="UTC") as another, refused(Busy):
        another.lease(KEY).acquire("take it")
    held = lease.holder()
    assert held is not None and held.purpose == "hold it"
    lease.release()


def test_who_did_not_take_it_only_closes_its_copy(home: Home, vfs: FaultyVfs) -> None:
    lease = home.lease(KEY)
    lease.acquire("hold it")
    lease._pid = 1  # as in a forked child
    vfs.forget()
    lease.release()
    assert (vfs.count("pwrite"), vfs.count("unlock"), vfs.count("close")) == (0, 0, 1)

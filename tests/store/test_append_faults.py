"""Disks that fill up, fail and lie: what was acknowledged stays, and the rest is told."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Busy, DiskFull, HoldfastError, Indeterminate, ReadOnly, StorageError
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import START, BadLine, Cursor, Decision, Line
from holdfast.testing import Turner, lines_of, numbers_of, refused
from tests.store.batches import as_one_batch
from tests.store.faults import FaultyVfs, failing, short

pytestmark = pytest.mark.usefixtures("way")
KEY = "state/a.jsonl"
ACTIVE = "*a*.jsonl*"
EIO, ENOSPC = failing(errno.EIO), failing(errno.ENOSPC)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home, vfs: FaultyVfs) -> Iterator[FileLog]:
    made = home.log(KEY)
    made.append({"n": 0})
    vfs.forget()
    yield made
    vfs.heal()
    made.close()


def sound(log: FileLog, numbers: list[Any]) -> None:
    """The log holds just these lines, and verifies."""
    assert [
        line.record["n"] for line in log.read() if isinstance(line, Line) and own(line)
    ] == numbers
    assert log.verify().problems == []


def own(line: Line) -> bool:
    return "_log" not in line.record


def content(path: str) -> bytes:
    return Path(path, KEY).read_bytes()


# --- writing ----------------------------------------------------------------------------------


def test_short_writes_are_finished(log: FileLog, vfs: FaultyVfs) -> None:
    vfs.fault("write", short(7), times=None)
    log.append({"n": 1})
    log.append_all([{"n": 2}, {"n": 3}])
    assert vfs.count("write") > 30
    sound(log, [0, 1, 2, 3])


def test_short_writes_into_a_new_segment_are_finished(home: Home, vfs: FaultyVfs) -> None:
    vfs.fault("write", short(7), times=None)
    log = home.log("state/b.jsonl")
    log.append({"n": 1})
    sound(log, [1])
    log.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, DiskFull),
        (errno.EROFS, ReadOnly),
        (errno.EIO, StorageError),
    ],
)
def test_a_write_that_fails_half_way_leaves_no_trace(
    log: FileLog, vfs: FaultyVfs, path: str, number: int, kind: type[HoldfastError]
) -> None:
    before = content(path)
    vfs.fault("write", failing(number), times=None)
    vfs.fault("write", short(20))
    with refused(kind, "appending to the log"):
        log.append({"n": 1})
    assert content(path) == before
    vfs.heal()
    assert log.append({"n": 2}).seq == 2
    sound(log, [0, 2])


def test_a_fragment_that_cannot_be_cut_stays_as_one_bad_line(
    log: FileLog, vfs: FaultyVfs, path: str
) -> None:
    before = content(path)
    vfs.fault("write", ENOSPC, times=1)
    vfs.fault("write", short(20), times=1)
    vfs.fault("truncate", EIO)
    with refused(DiskFull):
        log.append({"n": 1})
    assert content(path).startswith(before)
    assert log.append({"n": 2}).seq == 2
    found = list(log.read())
    assert [type(line) for line in found] == [Line, BadLine, Line]
    assert log.verify().problems == []


def test_a_fragment_that_can_neither_be_cut_nor_ended_harms_nobody(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("write", ENOSPC, times=None)
    vfs.fault("write", short(20), times=1)
    vfs.fault("truncate", EIO)
    with refused(DiskFull):
        log.append({"n": 1})
    vfs.heal()
    assert log.append({"n": 2}).seq == 2
    assert [type(line) for line in log.read()] == [Line, BadLine, Line]
    assert log.verify().problems == []


def test_a_line_that_lacks_only_its_end_may_or_may_not_count(log: FileLog, vfs: FaultyVfs) -> None:
    vfs.fault("write", ENOSPC, times=1)
    vfs.fault("write", lambda real, fd, data: real(fd, data[:-1]))
    vfs.fault("truncate", EIO)
    with refused(Indeterminate):
        log.append({"n": 1})
    log.append({"n": 2})
    sound(log, [0, 1, 2])


def test_it_may_or_may_not_count_also_when_the_directory_cannot_be_read_either(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("write", ENOSPC, times=1)
    vfs.fault("write", lambda real, fd, data: real(fd, data[:-1]))
    vfs.fault("truncate", EIO)
    listed = vfs.fault("dir.names", EIO)
    with refused(Indeterminate):
        log.append({"n": 1})
    assert listed.fired
    vfs.heal()
    log.append({"n": 2})
    sound(log, [0, 1, 2])


def test_nor_when_somebody_put_a_link_in_place_of_the_file(
    log: FileLog, vfs: FaultyVfs, path: str
) -> None:
    def replaced(*_: object) -> None:
        Path(path, KEY).rename(Path(path, "state/kept"))
        Path(path, KEY).symlink_to("kept")
        raise OSError(errno.EIO, "EIO")

    vfs.fault("write", ENOSPC, times=1)
    vfs.fault("write", lambda real, fd, data: real(fd, data[:-1]))
    vfs.fault("truncate", replaced)
    with refused(Indeterminate):
        log.append({"n": 1})


def test_no_caller_is_left_without_an_answer(log: FileLog, vfs: FaultyVfs) -> None:
    def arrange() -> None:
        vfs.fault("write", ENOSPC, times=None)
        vfs.fault("write", short(20))
        vfs.fault("truncate", EIO)

    outcomes = as_one_batch(
        log,
        lambda: log.append({"n": 1}),
        lambda: log.write(lambda head: ([{"n": 2}], None)),
        lambda: log.append({"n": 3}),
        before=arrange,
    )
    for outcome in outcomes:
        assert isinstance(outcome, StorageError), outcome
        assert outcome.hint
    vfs.heal()
    log.append({"n": 4})
    assert log.verify().problems == []
    assert numbers_of_lines(log)[-1] == 4


def numbers_of_lines(log: FileLog) -> list[Any]:
    return [line.record["n"] for line in log.read() if isinstance(line, Line)]


def test_records_that_are_written_only_in_part_are_told(log: FileLog, vfs: FaultyVfs) -> None:
    vfs.fault("write", ENOSPC, times=None)
    vfs.fault("write", short(300))
    with refused(Indeterminate, "only the first 2 lines"):
        log.append_all([{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}])
    assert vfs.count("sync") == 1, "the lines that are there have to be durable"
    vfs.heal()
    sound(log, [0, 1, 2])


def test_a_caller_whose_line_is_whole_does_not_pay_for_the_next_one(
    log: FileLog, vfs: FaultyVfs
) -> None:
    def arrange() -> None:
        vfs.forget()
        vfs.fault("write", ENOSPC, times=1)
        vfs.fault("write", short(150))

    one, two = as_one_batch(
        log, lambda: log.append({"n": 1}), lambda: log.append({"n": 2}), before=arrange
    )
    assert isinstance(one, Cursor)
    assert isinstance(two, DiskFull)
    assert vfs.count("sync") >= 1
    sound(log, [0, "leader", 1])


def test_a_whole_line_is_acknowledged_only_when_it_is_durable(log: FileLog, vfs: FaultyVfs) -> None:
    def arrange() -> None:
        vfs.forget()
        vfs.fault("write", ENOSPC, times=None)
        vfs.fault("write", short(150))
        vfs.fault("truncate", EIO)

    one, two = as_one_batch(
        log, lambda: log.append({"n": 1}), lambda: log.append({"n": 2}), before=arrange
    )
    vfs.heal()
    assert isinstance(two, DiskFull)
    assert isinstance(one, Indeterminate) or vfs.count("sync") > 1, "acked without a sync"
    assert log.append({"n": 3}).seq == 4
    assert [type(line) for line in log.read()] == [Line, Line, Line, BadLine, Line]
    assert log.verify().problems == []


def test_a_decision_after_a_failed_write_still_sees_the_log(log: FileLog, vfs: FaultyVfs) -> None:
    heads: list[Cursor] = []

    def arrange() -> None:
        vfs.fault("write", ENOSPC, times=1)
        vfs.fault("write", short(20))
        vfs.fault("truncate", EIO)

    def decide(head: Cursor) -> Decision[None]:
        heads.append(head)
        return [{"n": 2}], None

    one, two = as_one_batch(
        log, lambda: log.append({"n": 1}), lambda: log.write(decide), before=arrange
    )
    assert isinstance(one, DiskFull)
    assert [head.seq for head in heads] in ([2], []), "an empty log was seen"
    if heads:
        assert [cursor.seq for cursor in two.lines] == [3]
    assert log.verify().problems == []


def test_a_line_is_never_glued_to_a_fragment(home: Home, vfs: FaultyVfs, path: str) -> None:
    log = home.log("ledger/rio")
    log.append({"n": 0})
    file = Path(path, "ledger/rio/2023-11-14.jsonl")
    file.write_bytes(b'{"by":"others"}\n')

    def arrange() -> None:
        file.write_bytes(b'{"by":"others"}\n')
        vfs.fault("write", ENOSPC, times=1)
        vfs.fault("write", short(20))
        vfs.fault("truncate", EIO)

    one, two = as_one_batch(
        log,
        lambda: log.append({"n": 1}),
        lambda: log.write(lambda head: ([{"n": 2}], None)),
        before=arrange,
    )
    assert isinstance(one, DiskFull)
    seen = [line.record.get("n") for line in log.read() if isinstance(line, Line)]
    assert isinstance(two, HoldfastError) or 2 in seen, "acknowledged, and unreadable"
    log.close()


# --- making durable ---------------------------------------------------------------------------


def test_a_line_that_could_not_be_made_durable_is_indeterminate(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("sync", EIO, times=1)
    with refused(Indeterminate, "the disk failed while a.jsonl was made durable"):
        log.append({"n": 1})
    assert log.append({"n": 2}).segment == "a.1.jsonl"
    told = lines_of(log)[2]
    assert (told.segment, told.offset) == ("a.1.jsonl", 0)
    assert told.record["_log"] == "segment_failed"
    assert (told.record["segment"], told.record["error"]) == ("a.jsonl", "EIO")
    sound(log, [0, 1, 2])


def test_a_segment_that_failed_once_is_never_synced_again(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    failed = vfs.fault("sync", EIO, times=1)
    with refused(Indeterminate):
        log.append({"n": 1})
    assert failed.fired == 1
    vfs.forget()
    log.append({"n": 2})
    log.settle()
    other = home.log(KEY, rotate_at=1)
    other.append({"n": 3})
    other.settle()
    log.append({"n": 4})
    assert vfs.count("sync") > 3
    assert {call.name for call in vfs.seen("sync")}.isdisjoint({"a.jsonl", ".a.jsonl.tmp"})
    sound(log, [0, 1, 2, 3, 4])
    other.close()


def test_all_callers_of_a_failed_sync_are_told(log: FileLog, vfs: FaultyVfs) -> None:
    outcomes = as_one_batch(
        log,
        *(lambda n=n: log.append({"n": n}) for n in range(1, 4)),
        before=lambda: vfs.fault("sync", EIO, after=1, times=1),
    )
    assert [type(outcome) for outcome in outcomes] == [Indeterminate] * 3
    assert log.append({"n": 4}).segment == "a.1.jsonl"
    sound(log, [0, "leader", 1, 2, 3, 4])


def test_a_disk_that_also_refuses_the_next_segment_is_told_again(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("sync", EIO, times=None)
    for _ in range(3):
        with pytest.raises(StorageError) as caught:
            log.append({"n": 1})
        assert caught.value.hint
    vfs.heal()
    cursor = log.append({"n": 2})
    assert cursor.segment == "a.1.jsonl"
    assert lines_of(log)[-2].record["segment"] == "a.jsonl"
    assert numbers_of(log)[-1] == 2
    assert log.verify().problems == []


def test_a_failure_is_put_on_record_in_a_segment_that_another_one_opened(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    other = home.log(KEY, rotate_at=1)

    def act(real: Any, fd: int) -> None:
        other.append({"n": "other"})
        raise OSError(errno.EIO, "the disk failed")

    vfs.fault("sync", act)
    with refused(Indeterminate):
        log.append({"n": 1})
    told = [line for line in lines_of(log) if not own(line)]
    assert [(line.segment, line.record["segment"]) for line in told] == [("a.1.jsonl", "a.jsonl")]
    assert log.append({"n": 2}).segment == "a.1.jsonl"
    sound(log, [0, 1, "other", 2])
    other.close()


def test_a_second_segment_that_fails_is_not_synced_again_either(
    log: FileLog, vfs: FaultyVfs, path: str, clock: Turner
) -> None:
    with Home.open(path, timezone="UTC", clock=clock) as another:
        other = another.log(KEY, rotate_at=1)

        def overtaken(*_: object) -> None:
            other.append({"n": "other"})
            raise OSError(errno.EIO, "EIO")

        vfs.fault("sync", overtaken, name=ACTIVE)
        second = vfs.fault("sync", EIO, name="a.1.jsonl")
        with refused(Indeterminate):
            log.append({"n": 1})
        assert second.fired
        vfs.forget()
        assert log.append({"n": 2}).segment == "a.2.jsonl"
        assert vfs.count("sync", "a.1.jsonl") == 0
        sound(log, [0, 1, "other", 2])
        other.close()


def test_a_lock_whose_file_cannot_be_looked_at_is_let_go(
    log: FileLog, vfs: FaultyVfs, path: str, clock: Turner
) -> None:
    def overtaken(*_: object) -> None:
        Path(path, "state/new").touch()  # so that the lock file has to be looked at
        vfs.fault("dir.stat", EIO, name=".a.jsonl.lock")
        raise OSError(errno.EIO, "EIO")

    vfs.fault("sync", overtaken, name=ACTIVE)
    with refused(Indeterminate):
        log.append({"n": 1})
    with Home.open(path, timezone="UTC", clock=clock) as another:
        other = another.log(KEY)
        other.append({"n": 2})
        sound(other, [0, 1, 2])
        other.close()


def test_a_failed_segment_that_is_gone_needs_no_record(
    log: FileLog, vfs: FaultyVfs, path: str
) -> None:
    def act(real: Any, fd: int) -> None:
        Path(path, KEY).unlink()
        raise OSError(errno.EIO, "the disk failed")

    vfs.fault("sync", act)
    with refused(Indeterminate):
        log.append({"n": 1})
    assert log.append({"n": 2}).seq == 1
    sound(log, [2])


def test_lines_that_the_disk_lost_are_damage_with_its_cause(
    log: FileLog, vfs: FaultyVfs, path: str
) -> None:
    before = content(path)
    vfs.fault("sync", EIO, times=1)
    with refused(Indeterminate):
        log.append({"n": 1})
    log.append({"n": 2})
    Path(path, KEY).write_bytes(before)
    (problem,) = log.verify().problems
    assert problem.kind == "damaged"
    assert "a.jsonl (EIO)" in problem.detail
    assert [line.record["n"] for line in lines_of(log) if own(line)] == [0, 2]


def test_a_sync_that_fails_at_rotation_is_told_to_those_it_was_for(
    home: Home, vfs: FaultyVfs
) -> None:
    log = home.log("state/r.jsonl", rotate_at=300)
    log.append({"n": 0})
    one, two = as_one_batch(
        log,
        lambda: log.append({"n": "x" * 300}),
        lambda: log.write(lambda head: ([{"n": 2}], None)),
        before=lambda: vfs.fault("sync", EIO, ".r.jsonl.tmp", after=1, times=1),
    )
    assert isinstance(one, Indeterminate)
    assert [cursor.segment for cursor in two.lines] == ["r.1.jsonl"]
    assert lines_of(log)[-2].record["segment"] == "r.jsonl"
    assert log.verify().problems == []
    log.close()


def test_a_new_segment_whose_entry_is_not_durable_is_indeterminate(
    log: FileLog, home: Home, vfs: FaultyVfs
) -> None:
    log = home.log(KEY, rotate_at=1)
    vfs.fault("dir.sync", EIO, times=1)
    with refused(Indeterminate, "a.1.jsonl"):
        log.append({"n": 1})
    assert log.append({"n": 2}).segment == "a.2.jsonl"
    assert lines_of(log)[-2].record["segment"] == "a.1.jsonl"
    sound(log, [0, 1, 2])
    log.close()


def test_after_such_a_segment_no_caller_begins_the_log_anew(
    home: Home, clock: Turner, vfs: FaultyVfs
) -> None:
    log = home.log("ledger/rio", rotate_at=150)
    log.append({"n": 0})
    clock.step(-3 * 86_400)
    one, two = as_one_batch(
        log,
        lambda: log.append({"n": 1}),
        lambda: log.append({"n": 2}),
        before=lambda: vfs.fault("dir.sync", EIO, "rio", times=1),
    )
    assert isinstance(one, Indeterminate)
    assert isinstance(two, Cursor)
    assert two.seq > 3
    assert log.verify().problems == []
    assert all(name >= "2023-11-14" for name in log.segments())
    log.close()


def test_settling_a_failing_disk_is_indeterminate(log: FileLog, vfs: FaultyVfs, path: str) -> None:
    Path(path, "state/.a.jsonl.lock").unlink()  # so nobody knows whether the entry is durable
    vfs.fault("dir.sync", EIO)
    with refused(Indeterminate, "the disk failed"):
        log.settle()
    vfs.heal()
    assert log.settle().seq == 1


def test_what_is_settled_is_opened_before_it_is_read(log: FileLog, vfs: FaultyVfs) -> None:
    """The kernel tells of a failed sync whoever had the file open then, and nobody later."""
    log.settle()
    deeds = [call.op for call in vfs.calls if call.name == "a.jsonl"]
    assert deeds[: deeds.index("pread")].count("dir.open") == 2
    assert deeds.index("sync") > deeds.index("pread")


def test_a_segment_that_could_not_be_settled_is_left_and_not_tried_again(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("sync", EIO, times=1)
    with refused(Indeterminate, "the disk failed while a.jsonl was made durable"):
        log.settle()
    assert log.settle() == log.head()
    told = lines_of(log)[1]
    assert (told.segment, told.record["segment"], told.record["error"]) == (
        "a.1.jsonl",
        "a.jsonl",
        "EIO",
    )
    assert log.append({"n": 1}).segment == "a.1.jsonl"
    assert "a.jsonl" not in {call.name for call in vfs.seen("sync")}
    sound(log, [0, 1])


def test_a_disk_that_fails_for_longer_is_settled_when_it_works_again(
    log: FileLog, vfs: FaultyVfs
) -> None:
    vfs.fault("*sync", EIO, times=None)
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            log.settle()
        assert caught.value.hint
    vfs.heal()
    vfs.forget()
    assert log.settle().segment == "a.1.jsonl"
    assert "a.jsonl" not in {call.name for call in vfs.seen("sync")}
    sound(log, [0])


def test_a_failed_segment_is_remembered_by_a_log_that_has_to_begin_anew(
    log: FileLog, vfs: FaultyVfs
) -> None:
    for op in ("write", "truncate", "sync", "dir.names"):
        vfs.fault(op, EIO, times=None)
    with refused(StorageError):
        log.append({"n": 1})
    vfs.heal()
    vfs.forget()
    assert log.append({"n": 2}).segment == "a.1.jsonl"
    assert "a.jsonl" not in {call.name for call in vfs.seen("sync")}
    sound(log, [0, 2])


# --- making segments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "name", "after"),
    [
        ("dir.open", ".b.jsonl.lock", 0),
        ("dir.open", ".b.jsonl.tmp", 0),
        ("write", ".b.jsonl.tmp", 0),
        ("sync", ".b.jsonl.tmp", 0),
        ("pwrite", ".b.jsonl.lock", 0),
        ("dir.link", "b.jsonl", 0),
        ("dir.names", "*", 0),
        ("dir.subdir", "state", 0),
        ("try_lock", "*", 0),
        ("pread", ".b.jsonl.lock", 0),
    ],
)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_a_segment_that_could_not_be_made_is_not_committed(
    home: Home, vfs: FaultyVfs, op: str, name: str, after: int, number: int, no_leak: None
) -> None:
    log = home.log("state/b.jsonl")
    fault = vfs.fault(op, failing(number), name, after=after)
    kinds = {errno.ENOSPC: DiskFull, errno.EIO: StorageError, errno.EMFILE: Busy}
    with refused(kinds[number], "appending to the log"):
        log.append({"n": 1})
    assert fault.fired == 1
    assert list(log.read()) == []
    assert log.append({"n": 2}).seq == 1
    sound(log, [2])
    log.close()


def test_a_marker_that_cannot_be_written_harms_no_line(home: Home, vfs: FaultyVfs) -> None:
    log = home.log("state/b.jsonl")
    vfs.fault("pwrite", EIO, ".b.jsonl.lock", after=1)
    assert log.append({"n": 1}).seq == 1
    assert log.append({"n": 2}).seq == 2
    assert home.log("state/b.jsonl").append({"n": 3}).seq == 3
    sound(log, [1, 2, 3])
    log.close()


def test_after_a_failed_rotation_an_empty_lock_file_is_no_sign_that_nothing_happened(
    home: Home, vfs: FaultyVfs, path: str
) -> None:
    mine, other = home.log(KEY, rotate_at=100), home.log(KEY, rotate_at=100)
    mine.append({"n": 0, "text": "x" * 100})
    vfs.fault("pwrite", ENOSPC, "*.lock")
    with refused(DiskFull):
        mine.append({"n": 1})
    other.append({"n": 2})
    Path(path, "state/.a.jsonl.lock").unlink()
    mine.append({"n": 3})
    sound(mine, [0, 2, 3])
    mine.close()
    other.close()


def test_a_lock_that_cannot_be_let_go_is_closed(home: Home, log: FileLog, vfs: FaultyVfs) -> None:
    vfs.fault("unlock", EIO)
    assert log.append({"n": 1}).seq == 2
    other = home.log(KEY)
    assert other.append({"n": 2}).seq == 3
    assert log.append({"n": 3}).seq == 4
    other.close()


def test_a_temporary_that_cannot_be_removed_makes_it_indeterminate(
    home: Home, vfs: FaultyVfs
) -> None:
    log = home.log("state/b.jsonl")
    vfs.fault("dir.unlink", EIO, ".b.jsonl.tmp")
    with refused(Indeterminate):
        log.append({"n": 1})
    log.append({"n": 2})
    sound(log, [1, 2])
    log.close()


def test_a_dead_temporary_in_the_way_is_removed(home: Home, log: FileLog, path: str) -> None:
    log = home.log(KEY, rotate_at=1)
    log.append({"n": 1})
    Path(path, "state/.a.2.jsonl.tmp").write_bytes(b"left by somebody")
    assert log.append({"n": 2}).segment == "a.2.jsonl"
    sound(log, [0, 1, 2])
    log.close()


# --- reading ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("op", ["pread", "dir.open", "dir.names", "dir.subdir"])
def test_a_reader_gets_typed_errors_only(
    home: Home, log: FileLog, vfs: FaultyVfs, op: str, number: int, no_leak: None
) -> None:
    cursor = log.head()
    kind = Busy if number == errno.EMFILE else StorageError
    vfs.fault(op, failing(number), times=None)
    for read in (lambda new: list(new.read()), FileLog.verify, FileLog.head, FileLog.settle):
        with pytest.raises((kind, Indeterminate)) as caught:
            read(home.log(KEY))
        assert caught.value.hint
    if op != "dir.names":
        with refused(kind):
            log.contains(cursor)
    else:
        with refused(kind):
            log.segments()
    vfs.heal()
    assert log.contains(cursor)


def test_looking_at_the_tail_fails_typed_and_heals(log: FileLog, vfs: FaultyVfs, path: str) -> None:
    with open(Path(path, KEY), "ab") as file:
        file.write(b"foreign\n")
    vfs.fault("pread", EIO, ACTIVE, after=1)
    with refused(StorageError):
        log.append({"n": 1})
    log.append({"n": 2})
    assert log.verify().problems == []


def test_nothing_is_read_from_a_log_that_was_never_made(home: Home) -> None:
    assert home.log("nowhere/at/all.jsonl").head() == START

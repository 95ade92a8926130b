"""Packing old segments: the same log before, in between and afterwards."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import BadValue, Busy, NotFound, StorageError
from holdfast.store import failpoints, packed
from holdfast.store.check import HARMLESS, check
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import BadLine, Line
from holdfast.store.segments import Segment
from holdfast.store.sweep import sweep
from holdfast.store.view import Shape
from holdfast.testing import DAY, Turner, numbers_of
from tests.store.archives import KEY, both, seen_in, temporaries, twenty_lines, visible
from tests.store.children import child
from tests.store.faults import FaultyVfs, failing, then
from tests.store.logs import FOREIGN, RECORDS, Writer

POINTS = (
    "archive.written",
    "archive.verified",
    "archive.linked",
    "archive.durable",
    "archive.unlinked",
)


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def place(path: str) -> Path:
    return Path(path, "state/rio")


@pytest.fixture
def log(home: Home) -> Iterator[FileLog]:
    made = twenty_lines(home)
    yield made
    made.close()


# --- the round trip -------------------------------------------------------------------------


def test_all_but_the_newest_segment_are_packed_and_nothing_else_changes(
    home: Home, log: FileLog, place: Path, no_leak: None
) -> None:
    before, names = seen_in(log), log.segments()
    sizes = {name: (place / name).stat().st_size for name in names}
    done = log.archive()
    assert [each.segment for each in done] == names[:-1]
    assert visible(place) == sorted([*(f"{name}.zst" for name in names[:-1]), names[-1]])
    for each in done:
        assert (each.size, each.left) == (sizes[each.segment], "")
        assert each.packed == (place / f"{each.segment}.zst").stat().st_size
    assert seen_in(log) == before
    assert seen_in(home.log(KEY)) == before
    assert log.settle() == log.head()
    assert log.append({"n": 20}).seq == 21
    other = home.log(KEY)
    assert other.append({"n": 21}).seq == 22
    other.close()
    log.close()
    assert numbers_of(log) == list(range(22))
    assert list(check(home)) == []
    assert temporaries(place) == []


def test_a_dry_run_touches_nothing(log: FileLog, place: Path, vfs: FaultyVfs) -> None:
    before = sorted(os.listdir(place))
    vfs.forget()
    done = log.archive(dry_run=True)
    assert [each.segment for each in done] == log.segments()[:-1]
    assert {each.packed for each in done} == {0}
    assert sorted(os.listdir(place)) == before
    assert vfs.count("write") == vfs.count("dir.unlink") == vfs.count("try_lock") == 0


def test_the_steps_come_in_an_order_that_loses_nothing(log: FileLog, vfs: FaultyVfs) -> None:
    name = log.segments()[0]
    packed_name, temporary = f"{name}.zst", f".{name}.zst.tmp"
    vfs.forget()
    log.archive()
    steps = [step for step in vfs.order() if name in step or step == "dir.sync rio"]
    steps = [step for step in steps if "lock" not in step and not step.startswith("dir.open")]
    writes = steps.count(f"write {temporary}")
    assert steps[: writes + 6] == [
        *[f"write {temporary}"] * writes,
        f"sync {temporary}",
        f"dir.link {packed_name}",
        f"dir.unlink {temporary}",
        "dir.sync rio",
        f"dir.unlink {name}",
        "dir.sync rio",
    ]


def test_a_second_run_has_nothing_to_do(log: FileLog, vfs: FaultyVfs) -> None:
    assert log.archive()
    vfs.forget()
    assert log.archive() == []
    assert vfs.count("dir.unlink") == vfs.count("dir.link") == 0


def test_days_before_a_given_one_are_packed(home: Home, clock: Turner, path: str) -> None:
    log = home.log("ledger/rio")
    for n in range(5):
        log.append({"n": n})
        clock.advance(DAY)
    before = seen_in(log)
    assert [each.segment for each in log.archive(before="2023-11-16")] == [
        "2023-11-14.jsonl",
        "2023-11-15.jsonl",
    ]
    assert visible(Path(path, "ledger/rio")) == [
        "2023-11-14.jsonl.zst",
        "2023-11-15.jsonl.zst",
        "2023-11-16.jsonl",
        "2023-11-17.jsonl",
        "2023-11-18.jsonl",
    ]
    assert seen_in(log) == before
    assert log.archive(before="2023-11-10") == []
    log.close()


def test_a_log_without_days_has_none_to_choose(log: FileLog) -> None:
    with pytest.raises(BadValue):
        log.archive(before="2023-11-16")


def test_a_log_that_is_not_there_has_nothing_to_archive(home: Home, path: str) -> None:
    assert home.log("nowhere/a.jsonl").archive() == []
    assert not Path(path, "nowhere").exists()


def test_stamps_of_views_stay_valid(home: Home, log: FileLog, vfs: FaultyVfs) -> None:
    shape = Shape(
        version=1,
        initial=list[int],
        fold=lambda state, line: [*state, line.record["n"]],
        render=lambda state: b"%d\n" % len(state),
    )
    view = home.view("state/rio/report.json", log, shape)
    view.refresh()
    view.close()
    for n in range(20, 30):
        log.append({"n": n})
    log.archive()
    assert "cut" not in {found.kind for found in check(home)}
    vfs.forget()
    again = home.view("state/rio/report.json", log, shape)
    assert again.read() == list(range(30))
    assert vfs.count("dir.open", log.segments()[0] + "*") == 0, "it went on from its stamp"
    again.close()


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """The segments of a log, with foreign lines and torn ends anywhere."""
    writer, segments = Writer(), list[bytes]()
    for _ in range(draw(st.integers(1, 4))):
        writer.data = b""
        for _ in range(draw(st.integers(0, 5))):
            if draw(st.booleans()):
                writer.record(draw(RECORDS))
            else:
                writer.foreign(draw(FOREIGN))
        if draw(st.integers(0, 3)) == 0:
            torn = draw(st.sampled_from([b"torn", b'{"a":1,"seq":', b"\0\0"]))
            writer.data += torn
            writer._gap += torn
        segments.append(writer.data)
    return segments


@settings(max_examples=60)
@given(histories(), st.sampled_from([1, 60, 1 << 20]))
def test_whatever_a_log_holds_it_is_the_same_packed(history: list[bytes], frame: int) -> None:
    with tempfile.TemporaryDirectory() as root, patch.object(packed, "FRAME", frame):
        home = Home.open(root, create=True, timezone="UTC", clock=Turner())
        os.mkdir(f"{root}/d")
        for number, data in enumerate(history):
            Path(root, "d", Segment("a", number).filename).write_bytes(data)
        log = home.log("d/a.jsonl")
        before = seen_in(log)
        assert len(log.archive()) == len(history) - 1
        assert seen_in(log) == before
        assert visible(Path(root, "d")) == sorted(
            Segment("a", n).packed if n < len(history) - 1 else Segment("a", n).filename
            for n in range(len(history))
        )
        log.append({"n": 1})
        assert [p for p in log.verify().problems if p not in before[3].problems] == []
        log.close()
        home.close()


# --- crashes --------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 3])
def test_a_kill_at_any_step_loses_nothing_and_the_next_run_finishes(
    home: Home, log: FileLog, path: str, place: Path, point: str, nth: int
) -> None:
    before, names = seen_in(log), log.segments()
    script = f"""
with Home.open({path!r}) as home:
    home.log({KEY!r}).archive()
"""
    with child(script, {"HOLDFAST_FAILPOINTS": f"{point}=kill@{nth}"}) as made:
        assert made.wait() == -signal.SIGKILL
    assert seen_in(log) == before
    assert {found.kind for found in check(home)} <= HARMLESS
    log.archive()
    assert seen_in(log) == before
    assert visible(place) == sorted([*(f"{name}.zst" for name in names[:-1]), names[-1]])
    assert temporaries(place) == []
    assert list(check(home)) == []


@pytest.mark.parametrize("point", POINTS)
def test_an_interruption_at_any_step_leaves_no_temporary(
    log: FileLog, place: Path, point: str, no_leak: None
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    before = seen_in(log)
    with failpoints.armed(point, interrupt), pytest.raises(KeyboardInterrupt):
        log.archive()
    assert seen_in(log) == before
    assert temporaries(place) == []
    log.archive()
    assert seen_in(log) == before


@pytest.mark.parametrize("op", ["write", "sync", "dir.link", "dir.sync", "dir.unlink", "dir.open"])
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_refuses_a_step_costs_nothing(
    log: FileLog, vfs: FaultyVfs, op: str, after: int, no_leak: None
) -> None:
    before, names = seen_in(log), log.segments()
    fault = vfs.fault(op, failing(errno.EIO), after=after)
    with suppress(StorageError):  # not for a temporary that cannot be removed
        log.archive()
    assert fault.fired
    vfs.heal()
    assert seen_in(log) == before
    log.archive()
    assert seen_in(log) == before
    assert log.archive() == []
    assert log.segments() == names


def test_a_full_disk_leaves_the_segment_as_it_is(log: FileLog, vfs: FaultyVfs, place: Path) -> None:
    names = visible(place)
    vfs.fault("write", failing(errno.ENOSPC), times=None)
    with pytest.raises(StorageError, match="archiving the log"):
        log.archive()
    assert visible(place) == names
    assert temporaries(place) == []


def test_what_does_not_unpack_to_the_same_is_not_taken(
    log: FileLog, vfs: FaultyVfs, place: Path
) -> None:
    before, names = seen_in(log), visible(place)
    vfs.fault("write", lambda real, fd, data: real(fd, bytes(data)[:-20] + bytes(20)))
    with pytest.raises(StorageError, match="not the same after packing"):
        log.archive()
    assert visible(place) == names
    assert temporaries(place) == []
    assert seen_in(log) == before


def test_the_temporary_of_a_dead_archiver_is_removed_by_the_next_or_by_a_sweep(
    home: Home, log: FileLog, place: Path
) -> None:
    left = place / f".{log.segments()[0]}.zst.tmp"
    left.write_bytes(b"half")
    log.append({"n": 20})
    home.log(KEY).append({"n": 21})
    assert left.exists(), "an appender must not take it from a living archiver"
    assert list(sweep(home)) == [f"state/rio/{left.name}"]
    assert not left.exists()
    left.write_bytes(b"half")
    log.archive()
    assert not left.exists()


def test_a_sweep_leaves_the_temporary_of_a_living_archiver(
    home: Home, log: FileLog, place: Path
) -> None:
    swept: list[str] = []
    with failpoints.armed("archive.written", lambda: swept.extend(sweep(home))):
        log.archive()
    assert swept == []
    assert numbers_of(log) == list(range(20))


# --- both are there -------------------------------------------------------------------------


def test_where_both_are_there_the_plain_one_is_read(log: FileLog, place: Path) -> None:
    before = seen_in(log)
    name = both(log, place)
    (place / f"{name}.zst").write_bytes(b"nonsense")
    assert seen_in(log) == before


def test_a_packed_one_that_matches_is_kept_and_the_plain_one_goes(
    log: FileLog, place: Path, vfs: FaultyVfs
) -> None:
    before, name = seen_in(log), both(log, place)
    inode = (place / f"{name}.zst").stat().st_ino
    vfs.forget()
    assert [each.segment for each in log.archive()] == [name]
    assert (place / f"{name}.zst").stat().st_ino == inode
    assert not (place / name).exists()
    steps = [step for step in vfs.order() if "lock" not in step]
    synced = [f"sync {name}.zst", "dir.sync rio", f"dir.unlink {name}", "dir.sync rio"]
    assert steps[-4:] == synced
    assert seen_in(log) == before


@pytest.mark.parametrize("how", ["damaged", "cut", "random", "empty", "shorter"])
def test_a_packed_one_that_is_no_good_is_made_anew(log: FileLog, place: Path, how: str) -> None:
    before, name = seen_in(log), both(log, place)
    file = place / f"{name}.zst"
    data = bytearray(file.read_bytes())
    if how == "damaged":
        data[20] ^= 1
    elif how == "cut":
        del data[-30:]
    elif how == "random":
        data[:] = os.urandom(200)
    elif how == "empty":
        data.clear()
    else:
        first_line = (place / name).read_bytes().splitlines(keepends=True)[0]
        data[:] = b"".join(packed.pack(iter([first_line]), len(first_line)))
    file.write_bytes(data)
    assert [each.left for each in log.archive()] == [""]
    assert not (place / name).exists()
    assert seen_in(log) == before
    assert list(log.archive()) == []


def test_a_packed_one_with_other_lines_is_evidence_and_stays(log: FileLog, place: Path) -> None:
    name = both(log, place)
    data = (place / name).read_bytes()
    for other in (data.replace(b'"n":1', b'"n":7'), data + b'{"more":1}\n'):
        content = b"".join(packed.pack(iter([other]), len(other)))
        (place / f"{name}.zst").write_bytes(content)
        [done] = log.archive()
        assert (done.segment, done.packed) == (name, 0)
        assert "something else" in done.left
        assert (place / name).read_bytes() == data
        assert (place / f"{name}.zst").read_bytes() == content


# --- others at work -------------------------------------------------------------------------


def test_two_archivers_do_not_meet(log: FileLog, home: Home, place: Path, clock: Turner) -> None:
    refused: list[Busy] = []

    def second() -> None:
        with pytest.raises(Busy) as caught:
            home.log(KEY).archive()
        refused.append(caught.value)

    before = seen_in(log)
    with failpoints.armed("archive.linked", second):
        log.archive()
    assert len(refused) == len(log.segments()) - 1
    assert all("archive.lock" in str(error) for error in refused)
    assert seen_in(log) == before


def test_threads_that_archive_at_once_leave_one_log(path: str, home: Home, log: FileLog) -> None:
    before = seen_in(log)
    done: list[list[str]] = []

    def work() -> None:
        with Home.open(path) as mine:
            done.append([each.segment for each in mine.log(KEY).archive() if not each.left])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for names in done for name in names) == sorted(log.segments()[:-1])
    assert seen_in(log) == before


def test_lines_are_appended_and_read_while_a_segment_is_packed(home: Home, log: FileLog) -> None:
    count = 20

    def meanwhile() -> None:
        nonlocal count
        assert log.append({"n": count}).seq == count + 1
        count += 1
        assert numbers_of(home.log(KEY)) == list(range(count))

    for point in POINTS:
        with failpoints.armed(point, meanwhile):
            log.archive()
    assert count > 24
    assert log.verify().problems == []
    assert numbers_of(log) == list(range(count))


def test_a_reader_goes_on_in_a_segment_that_is_packed_under_it(log: FileLog) -> None:
    lines = iter(log.read())
    got = [next(lines)]
    log.archive()
    got += lines
    assert got == list(log.read())
    assert [line.seq for line in got if isinstance(line, Line)] == list(range(1, 21))


def test_a_segment_packed_between_listing_and_opening_is_found(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    before = list(log.read())
    archiver = home.log(KEY)
    vfs.fault("dir.names", then(archiver.archive))
    assert list(log.read()) == before


def test_a_segment_packed_while_a_large_directory_is_listed_is_not_missed(
    log: FileLog, place: Path, vfs: FaultyVfs
) -> None:
    for number in range(600):
        (place / f"other.{number}").touch()
    name = log.segments()[0]

    def half_listed(real: Callable[[], list[str]]) -> list[str]:
        listed = [each for each in real() if each != name]  # its packed name comes too late
        log.archive()
        return listed

    vfs.fault("dir.names", half_listed)
    assert [line.seq for line in log.read() if isinstance(line, Line)] == list(range(1, 21))


@pytest.mark.parametrize("point", ["archive.written", "archive.durable"])
def test_a_segment_that_somebody_writes_to_meanwhile_is_left(
    log: FileLog, place: Path, point: str
) -> None:
    name = log.segments()[0]

    def by_hand() -> None:
        with open(place / name, "ab") as file:
            file.write(b"by hand\n")

    with failpoints.armed(point, by_hand):
        done = log.archive()
    assert (done[0].segment, "meanwhile" in done[0].left) == (name, True)
    assert (place / name).read_bytes().endswith(b"by hand\n")
    assert any(isinstance(line, BadLine) for line in log.read())
    assert [each.left for each in log.archive()] == [""]
    assert any(isinstance(line, BadLine) for line in log.read())


def test_a_segment_that_grows_while_it_is_read_is_left(
    log: FileLog, place: Path, vfs: FaultyVfs
) -> None:
    name = log.segments()[0]

    def by_hand() -> None:
        with open(place / name, "ab") as file:
            file.write(b"by hand\n")

    vfs.fault("dir.open", then(by_hand), f".{name}.zst.tmp")
    assert "meanwhile" in log.archive()[0].left
    log.archive()
    assert [line.offset for line in log.read() if isinstance(line, BadLine)] != []


def test_a_segment_that_is_taken_away_meanwhile_is_not_missed(
    log: FileLog, place: Path, vfs: FaultyVfs
) -> None:
    name = log.segments()[0]
    with failpoints.armed("archive.durable", lambda: (place / name).unlink(missing_ok=True)):
        assert "meanwhile" in log.archive()[0].left
    assert numbers_of(log) == list(range(20))
    vfs.fault("dir.names", then(lambda: shutil.rmtree(place)))
    with pytest.raises(NotFound):
        list(log.read())


# --- segments that failed -------------------------------------------------------------------


def test_a_segment_under_which_the_disk_failed_stays_as_it_is(
    home: Home, log: FileLog, place: Path, vfs: FaultyVfs
) -> None:
    failed = log.segments()[-1]
    vfs.fault("sync", failing(errno.EIO), f"*{failed}*")
    with pytest.raises(StorageError):
        log.append({"n": 20})
    for n in range(21, 30):
        log.append({"n": n})
    before = seen_in(log)
    for dry_run in (True, False):
        left = {each.segment: each.left for each in log.archive(dry_run=dry_run)}
        assert left.pop(failed) == "the disk failed under it"
        assert set(left.values()) == {""}
    assert (place / failed).exists()
    assert not (place / f"{failed}.zst").exists()
    assert seen_in(log) == before
    [only] = log.archive()
    assert (only.segment, only.left != "") == (failed, True)


def test_what_others_say_of_a_failure_does_not_count(log: FileLog, place: Path) -> None:
    first_one, *_, newest = log.segments()
    said = b'{"_log":"segment_failed","segment":"%b"}' % first_one.encode()
    log.tell_of_cut(log.head())
    sealed = b'{"a":"\xff","_log":1,"seq":9,"hash":"%b"}' % (b"0" * 64)
    with open(place / newest, "ab") as file:
        file.write(said + b"\n" + sealed + b"\n")
    assert {each.left for each in log.archive()} == {""}

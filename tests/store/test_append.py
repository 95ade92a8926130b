"""What an append does to the disk, in which order, and what it leaves alone."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import NotFound
from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import START, BadLine, Cursor, Line
from holdfast.testing import Turner, lines_of, numbers_of
from tests.store.children import child
from tests.store.faults import FaultyVfs, first, then

pytestmark = pytest.mark.usefixtures("way")
KEY = "state/rio/a.jsonl"


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def home(path: str, clock: Turner, vfs: FaultyVfs) -> Iterator[Home]:
    with Home.open(path, create=True, timezone="UTC", clock=clock, vfs=vfs) as made:
        yield made


@pytest.fixture
def log(home: Home, vfs: FaultyVfs) -> Iterator[FileLog]:
    made = home.log(KEY, rotate_at=1_000)
    vfs.forget()
    yield made
    made.close()


def file_of(path: str, name: str = "a.jsonl") -> Path:
    return Path(path, "state/rio", name)


def test_the_first_line_is_durable_before_its_segment_can_be_seen(
    log: FileLog, vfs: FaultyVfs
) -> None:
    log.append({"n": 1})
    assert vfs.order() == [
        "dir.subdir state",
        "dir.subdir rio",
        "dir.open .a.jsonl.lock",
        "try_lock .a.jsonl.lock",
        "dir.open .a.jsonl.tmp",
        "write .a.jsonl.tmp",
        "sync .a.jsonl.tmp",
        "pwrite .a.jsonl.lock",
        "dir.link a.jsonl",
        "dir.unlink .a.jsonl.tmp",
        "dir.sync rio",
        "pwrite .a.jsonl.lock",
        "unlock .a.jsonl.lock",
    ]
    assert vfs.seen("dir.sync")[0].size == 2, "the directories above have to be durable too"


def test_the_next_lines_are_written_under_the_lock_and_synced_outside_of_it(
    log: FileLog, vfs: FaultyVfs
) -> None:
    log.append({"n": 1})
    log.append({"n": 2})
    vfs.forget()
    log.append({"n": 3})
    assert vfs.order() == [
        "try_lock .a.jsonl.lock",
        "write .a.jsonl.tmp",
        "unlock .a.jsonl.lock",
        "sync .a.jsonl.tmp",
    ]


def test_a_full_segment_is_durable_before_the_next_one_is_made(
    log: FileLog, vfs: FaultyVfs
) -> None:
    while len(log.segments()) < 2:
        vfs.forget()
        log.append({"n": "x" * 200})
    steps = [step for step in vfs.order() if step.startswith(("sync", "dir.link", "dir.sync"))]
    assert steps == [
        "sync .a.jsonl.tmp",
        "sync .a.1.jsonl.tmp",
        "dir.link a.1.jsonl",
        "dir.sync rio",
    ]
    assert vfs.seen("dir.sync")[0].size == 0, "the directories above are durable already"


def test_numbers_and_chain_go_on_over_segments(home: Home, log: FileLog) -> None:
    other = home.log(KEY, rotate_at=1_000)
    cursors = [START]
    for number in range(40):
        cursors.append((log, other)[number % 2].append({"n": number}))
    assert len(log.segments()) > 4
    assert [line.seq for line in lines_of(log)] == list(range(1, 41))
    for number, cursor in enumerate(cursors):
        assert log.contains(cursor)
        assert numbers_of(log, cursor) == list(range(number, 40))
    found = log.verify()
    assert (found.sealed, found.problems, found.head) == (40, [], cursors[-1])
    other.close()


def test_records_given_together_stay_together(log: FileLog) -> None:
    log.append({"n": 0})
    cursors = log.append_all([{"n": "x" * 100} for _ in range(50)])
    assert {cursor.segment for cursor in cursors} == {"a.jsonl"}
    assert log.append({"n": 1}).segment == "a.1.jsonl"


def test_reading_writes_nothing_and_leaves_nothing_open(
    log: FileLog, vfs: FaultyVfs, path: str, no_leak: None
) -> None:
    for number in range(12):
        log.append({"n": number})
    log.close()
    with open(file_of(path), "ab") as file:
        file.write(b"torn")
    vfs.forget()
    lines, found = list(log.read()), log.verify()
    assert len(lines) == 13
    assert found.sealed == 12
    log.contains(found.head)
    log.segments()
    log.head()
    changes = ("write", "pwrite", "truncate", "sync", "dir.link", "dir.rename", "dir.unlink")
    assert [call for call in vfs.calls if call.op in (*changes, "dir.sync", "try_lock")] == []
    half = log.read()
    next(half)
    half.close()


def test_files_are_for_their_owner_only(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    for folder, folders, names in os.walk(path):
        assert os.stat(folder).st_mode & 0o777 == 0o700
        assert all(os.stat(Path(folder, name)).st_mode & 0o777 == 0o600 for name in names)
        assert folders or names


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b'{"n":9,"te', "not JSON"),
        (b"\0" * 700, "NUL bytes"),
        (b'{"n":9' + b"\0" * 50, "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"n":9}', ""),
    ],
)
def test_a_fragment_stays_as_one_line_and_is_sealed(
    log: FileLog, path: str, tail: bytes, reason: str
) -> None:
    log.append({"n": 1})
    with open(file_of(path), "ab") as file:
        file.write(tail)
    assert numbers_of(log) == [1], "an unterminated tail is in progress"
    assert log.verify().in_progress == len(tail)
    assert log.append({"n": 2}).seq == 2
    one, fragment, two = log.read()
    assert isinstance(one, Line)
    assert isinstance(two, Line)
    if reason:
        assert isinstance(fragment, BadLine)
        assert reason in fragment.reason
    else:
        assert isinstance(fragment, Line)
        assert fragment.seq is None
    assert file_of(path).read_bytes()[fragment.offset : fragment.end] == tail + b"\n"
    found = log.verify()
    assert (found.sealed, found.problems, found.loose) == (2, [], 0)
    text = file_of(path).read_bytes()
    file_of(path).write_bytes(text.replace(tail, tail[:-1] + b"?", 1))
    assert log.verify().problems, "the next line of ours seals what stands before it"


def test_foreign_lines_are_counted_and_sealed(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    with open(file_of(path), "ab") as file:
        file.write(b'{"by":"hand"}\n\nnot json\n')
    assert (log.verify().unchained, log.verify().loose) == (1, 2)
    log.append({"n": 2})
    found = log.verify()
    assert (found.sealed, found.unchained, found.loose, found.problems) == (2, 1, 0, [])
    kinds = [line.seq if isinstance(line, Line) else "bad" for line in log.read()]
    assert kinds == [1, None, "bad", "bad", 2]


def test_a_log_that_only_others_wrote_is_gone_on_with(log: FileLog, path: str) -> None:
    file_of(path).parent.mkdir(parents=True)
    file_of(path).write_bytes(b'{"n":1}\n{"n":2}\ntorn')
    assert numbers_of(log) == [1, 2]
    assert log.head() == START
    assert log.append({"n": 3}).seq == 1
    found = log.verify()
    assert (found.sealed, found.unchained, found.problems) == (1, 2, [])
    file_of(path).write_bytes(file_of(path).read_bytes().replace(b'"n":2', b'"n":7'))
    assert log.verify().problems


def test_a_tail_that_spans_segments_is_sealed(home: Home, log: FileLog, path: str) -> None:
    log.append({"n": 1})
    log.close()
    file_of(path, "a.1.jsonl").write_bytes(b"foreign\n")
    file_of(path, "a.2.jsonl").write_bytes(b"more, and torn")
    assert log.head().seq == 1
    cursor = log.append({"n": 2})
    assert (cursor.seq, cursor.segment) == (2, "a.2.jsonl")
    assert home.log(KEY).verify().problems == []
    file_of(path, "a.1.jsonl").write_bytes(b"another\n")
    assert [problem.kind for problem in log.verify().problems] == ["edited"]


def test_an_emptied_segment_is_named_and_gone_on_with(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    log.append({"n": 2})
    os.truncate(file_of(path), 0)
    assert log.append({"n": 3}).seq == 1
    log.close()
    os.truncate(file_of(path), 0)
    assert [problem.kind for problem in log.verify().problems] == ["empty"]


def test_a_segment_that_was_replaced_is_read_anew(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    log.append({"n": 2})
    kept = file_of(path).read_bytes()
    log.append({"n": 3})
    file_of(path, "copy").write_bytes(kept)
    file_of(path, "copy").rename(file_of(path))
    assert log.append({"n": 4}).seq == 3
    assert numbers_of(log) == [1, 2, 4]
    assert log.verify().problems == []


def warm(log: FileLog) -> None:
    """Let the log see a directory in which nothing has changed for a tick of the clock."""
    log.append({"n": "cold"})
    time.sleep(0.03)
    log.append({"n": "warm"})


def test_a_backup_put_back_with_its_times_is_read_anew(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    file, directory = file_of(path), file_of(path).parent
    backup = file.read_bytes()
    warm(log)
    times = os.stat(directory)
    copy = directory / "restored"
    copy.write_bytes(backup)
    os.rename(copy, file)
    os.utime(directory, ns=(times.st_atime_ns, times.st_mtime_ns))
    log.append({"n": 2})
    assert numbers_of(log) == [1, 2]


def test_a_lock_file_taken_away_from_a_busy_log_is_noticed(
    home: Home, log: FileLog, path: str
) -> None:
    warm(log)
    (file_of(path).parent / ".a.jsonl.lock").unlink()
    other = home.log(KEY, rotate_at=1_000)
    for number in range(4):
        log.append({"n": number})
        other.append({"n": number})
    other.close()
    assert numbers_of(log)[-8:] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert log.verify().problems == []


def test_a_segment_that_another_opened_is_noticed_at_once(home: Home, log: FileLog) -> None:
    warm(log)
    other = home.log(KEY, rotate_at=1)
    other.append({"n": "next"})
    assert log.append({"n": "after"}).segment == other.head().segment
    other.close()
    assert log.verify().problems == []


def test_a_deleted_segment_is_begun_anew(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    file_of(path).unlink()
    assert log.append({"n": 2}).seq == 1
    assert numbers_of(log) == [2]


def test_a_deleted_directory_is_made_again_at_the_second_try(
    log: FileLog, path: str, no_leak: None
) -> None:
    log.append({"n": 1})
    shutil.rmtree(Path(path, "state"))
    with pytest.raises(NotFound) as caught:
        log.append({"n": 2})
    assert "try again" in (caught.value.hint or "")
    assert log.append({"n": 3}).seq == 1
    assert numbers_of(log) == [3]
    log.close()


def test_what_a_dead_maker_left_is_removed(log: FileLog, path: str) -> None:
    log.append({"n": 1})
    log.close()
    for name in (".a.jsonl.tmp", ".a.7.jsonl.tmp", ".b.jsonl.tmp", ".a.json.tmp"):
        file_of(path, name).write_bytes(b"half")
    assert log.append({"n": 2}).seq == 2
    left = {name for name in os.listdir(file_of(path).parent) if name.endswith(".tmp")}
    assert left == {".b.jsonl.tmp", ".a.json.tmp"}, "the temporaries of others are theirs"


@pytest.mark.parametrize("point", ["segment.written", "segment.linked", "segment.durable"])
def test_a_maker_that_was_killed_costs_nothing(
    home: Home, log: FileLog, vfs: FaultyVfs, path: str, point: str
) -> None:
    script = f"home = Home.open({path!r})\nhome.log({KEY!r}).append({{'n': 1}})\n"
    with child(script, {"HOLDFAST_FAILPOINTS": f"{point}=kill"}) as made:
        assert made.wait() == -9
    seen = numbers_of(log)
    assert seen == ([] if point == "segment.written" else [1])
    cursor = log.append({"n": 2})
    assert numbers_of(log) == [*seen, 2]
    assert cursor.seq == len(seen) + 1
    synced = [call.size for call in vfs.seen("dir.sync", "rio")]
    assert synced == ([] if point == "segment.durable" else [2])
    assert log.verify().problems == []
    assert not [name for name in os.listdir(file_of(path).parent) if name.endswith(".tmp")]


def test_settling_makes_what_others_wrote_durable(home: Home, log: FileLog, vfs: FaultyVfs) -> None:
    assert log.settle() == START
    acked = log.append({"n": 1})
    reader = home.log(KEY)
    vfs.forget()
    assert reader.head() == acked
    assert vfs.count("sync") == 0
    assert reader.settle() == acked
    assert [call.name for call in vfs.seen("*sync")] == ["a.jsonl"]


def test_settling_makes_the_entry_of_a_killed_maker_durable(
    log: FileLog, vfs: FaultyVfs, path: str
) -> None:
    script = f"home = Home.open({path!r})\nhome.log({KEY!r}).append({{'n': 1}})\n"
    with child(script, {"HOLDFAST_FAILPOINTS": "segment.linked=kill"}) as made:
        assert made.wait() == -9
    assert log.settle().seq == 1
    assert [(call.name, call.size) for call in vfs.seen("dir.sync")] == [("rio", 2)]
    file_of(path, ".a.jsonl.lock").unlink()
    vfs.forget()
    assert log.settle().seq == 1
    assert vfs.count("dir.sync") == 1


def test_a_line_written_by_another_in_between_is_numbered_before_ours(
    home: Home, log: FileLog, vfs: FaultyVfs
) -> None:
    other = home.log(KEY)
    log.append({"n": 1})
    vfs.fault("try_lock", first(lambda: other.append({"n": 2})), times=1)
    assert log.append({"n": 3}).seq == 3
    assert numbers_of(log) == [1, 2, 3]
    vfs.fault("unlock", then(lambda: other.append({"n": 5})), times=1)
    assert log.append({"n": 4}).seq == 4
    assert numbers_of(log) == [1, 2, 3, 4, 5]
    other.close()


def test_days_are_those_of_the_zone_of_the_home(path: str, clock: Turner) -> None:
    with Home.open(path, create=True, timezone="+14:00", clock=clock) as home:
        log = home.log("ledger/rio")
        assert log.append({"n": 1}).segment == "2023-11-15.jsonl"
        assert lines_of(log)[0].record["ts"] == "2023-11-15T02:00:00+14:00"
        named = home.log("state/a.jsonl")
        named.append({"n": 1})
        assert lines_of(named)[0].record["ts"] == "2023-11-14T12:00:00Z"
        log.close()
        named.close()


def test_each_line_has_the_time_at_which_it_was_written(home: Home, clock: Turner) -> None:
    log, named = home.log("ledger/rio"), home.log("state/a.jsonl")
    for _ in range(3):
        log.append({"n": 1})
        named.append({"n": 1})
        clock.sleep(1)
    for each in (log, named):
        seconds = [line.record["ts"][17:19] for line in lines_of(each)]
        assert seconds == ["00", "01", "02"]
        each.close()


def test_a_day_that_grows_too_large_gets_a_number(home: Home, clock: Turner) -> None:
    log = home.log("ledger/rio", rotate_at=300)
    for number in range(12):
        log.append({"n": number})
        clock.advance(8_000)
    names = ["14", "14.1", "15", "15.1"]
    assert log.segments()[:4] == [f"2023-11-{name}.jsonl" for name in names]
    assert numbers_of(log) == list(range(12))
    assert log.verify().problems == []
    log.close()


def test_opening_a_log_touches_nothing(home: Home, path: str) -> None:
    before = sorted(os.listdir(path))
    log = home.log("new/log.jsonl")
    list(log.read())
    log.head()
    log.close()
    assert sorted(os.listdir(path)) == before


def test_a_decision_is_told_of_bytes_that_no_line_has_sealed_by_a_head_that_none_has(
    path: str,
) -> None:
    with Home.open(path, create=True) as made, Home.open(path) as other:
        log, file = made.log(KEY), Path(path, KEY)

        def met() -> Cursor:
            return log.write(lambda head: ([{"n": 0}], head)).value

        assert met() == START
        before = log.head()
        assert met() == before
        between = other.log(KEY).append({"n": 1})
        assert met() == between
        for foreign in (b"somebody else\n", b'{"n":2}\n', b"torn"):
            before = log.head()
            with file.open("ab") as appending:
                appending.write(foreign)
            assert met() == before._replace(segment="", offset=-1)
            before = log.head()
            assert met() == before
        assert log.verify().problems == []

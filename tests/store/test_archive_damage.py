"""Packed segments that are damaged, hostile or out of place; settings, and the tool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard

from holdfast.errors import ConfigError
from holdfast.store import archive, packed
from holdfast.store.check import check
from holdfast.store.home import Home
from holdfast.store.lock import Lock
from holdfast.store.log import FileLog
from holdfast.store.primitives import START, BadLine, Cursor, Line
from holdfast.store.segments import Series
from holdfast.testing import Turner
from tests.store.archives import KEY, both, twenty_lines, visible
from tests.store.children import REPO
from tests.store.faults import FaultyVfs


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


# --- the newest one is packed ---------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"", b"by hand\n", b'{"torn'])
def test_a_log_goes_on_behind_a_packed_segment_when_the_newest_was_taken_away(
    home: Home, log: FileLog, place: Path, tail: bytes
) -> None:
    *_, last, newest = log.segments()
    with open(place / last, "ab") as file:
        file.write(tail)
    log.archive()
    (place / newest).unlink()
    again = home.log(KEY, rotate_at=350)
    head = again.head()
    assert head.segment == last
    assert again.settle() == head
    cursors = [again.append({"n": n}) for n in range(2)]
    assert [cursor.seq for cursor in cursors] == [head.seq + 1, head.seq + 2]
    assert {cursor.segment for cursor in cursors} == {newest}
    assert again.verify().problems == []
    again.close()


def test_a_segment_without_a_seal_is_looked_through_when_it_is_packed(
    home: Home, log: FileLog, place: Path
) -> None:
    *_, newest = log.segments()
    following = Series("journal").next(Series("journal").parse(newest), "")
    (place / following.filename).write_bytes(b"by hand\n" * 3)
    (place / following._replace(number=following.number + 1).filename).write_bytes(b"more\n")
    log.close()
    log.archive()
    assert log.head().segment == newest
    assert log.append({"n": 20}).seq == 21
    assert log.verify().problems == []


def test_a_log_goes_on_behind_a_packed_segment_that_is_lost(
    home: Home, log: FileLog, place: Path
) -> None:
    *_, before, last, newest = log.segments()
    log.archive()
    (place / newest).unlink()
    (place / f"{last}.zst").write_bytes(b"nonsense")
    again = home.log(KEY)
    head = again.head()
    assert head.segment == before
    assert again.append({"n": 20}).seq == head.seq + 1
    assert [bad.segment for bad in again.verify().bad] == [last] * 2
    again.close()


# --- damage ---------------------------------------------------------------------------------


@pytest.fixture
def framed(log: FileLog, place: Path) -> Path:
    """The first segment, packed into one frame for each line."""
    with patch.object(packed, "FRAME", 1):
        log.archive()
    return place / f"{log.segments()[0]}.zst"


def test_a_damaged_frame_is_one_bad_line_and_the_next_is_read(log: FileLog, framed: Path) -> None:
    lines = [line for line in log.read() if isinstance(line, Line)]
    data = bytearray(framed.read_bytes())
    frames = packed.Packed(lambda count, at: bytes(data[at : at + count]), len(data)).frames
    data[frames[1].at + 12] ^= 64
    framed.write_bytes(data)
    found = list(log.read())
    assert found[1] == BadLine(
        lines[1].segment, lines[1].offset, lines[1].end, "damaged frame of a packed segment"
    )
    assert found[:1] + found[2:] == [lines[0], *lines[2:]]
    proof = log.verify()
    [problem] = proof.problems
    assert (problem.kind, problem.segment) == ("damaged", lines[1].segment)
    assert "lines 2 to 2 are not there" in problem.detail
    assert [(bad.offset, bad.end) for bad in proof.bad] == [(lines[1].offset, lines[1].end)]
    assert proof.sealed == 19

    def cursor(n: int) -> Cursor:
        line = lines[n]
        return Cursor(line.seq or 0, line.hash or "", line.segment, line.end)

    assert log.contains(cursor(0))
    assert not log.contains(cursor(1))
    assert log.contains(cursor(2))
    assert list(log.read(cursor(1))) == lines[2:]


def test_a_damaged_table_is_told_and_costs_no_line(home: Home, log: FileLog, framed: Path) -> None:
    lines = list(log.read())
    data = bytearray(framed.read_bytes())
    data[-1] ^= 1
    framed.write_bytes(data)
    found = list(log.read())
    assert [line for line in found if isinstance(line, Line)] == lines
    [bad] = [line for line in found if isinstance(line, BadLine)]
    assert bad.offset == bad.end
    proof = log.verify()
    assert (proof.problems, len(proof.bad), proof.sealed) == ([], 1, 20)
    assert {each.kind for each in check(home)} == {"bad_line"}


@pytest.mark.parametrize("content", [b"", b"\0" * 500, b"\x28\xb5\x2f\xfd" * 40, b'{"n":1}\n' * 9])
def test_a_packed_segment_of_anything_else_is_told_and_the_rest_is_read(
    log: FileLog, framed: Path, content: bytes
) -> None:
    name = log.segments()[0]
    rest = [line for line in log.read() if line.segment != name]
    framed.write_bytes(content)
    found = list(log.read())
    assert [line for line in found if line.segment != name] == rest
    assert all(isinstance(line, BadLine) for line in found if line.segment == name)
    assert "damaged" in {problem.kind for problem in log.verify().problems}
    assert log.head().seq == 20


def test_a_line_cut_by_a_lost_frame_is_bad_and_the_reader_goes_on(
    home: Home, place: Path, log: FileLog
) -> None:
    log.archive()
    name = log.segments()[0]
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    parts = [b'{"n":1}\n{"half', b"lost", b'way"}\n{"n":2}\n']
    frames = [compressor.compress(part) for part in parts]
    frames[1] = frames[1][:-1] + b"\0"
    (place / f"{name}.zst").write_bytes(b"".join(frames))
    found = [line for line in log.read() if line.segment == name]
    assert [line.record for line in found if isinstance(line, Line)] == [{"n": 1}, {"n": 2}]
    bad = [(line.offset, line.end, line.reason) for line in found if isinstance(line, BadLine)]
    assert bad[0] == (8, 14, "no line end")
    assert bad[1][:2] == (14, 18)
    assert bad[2][:2] == (18, 24)
    assert [(each.offset, each.end) for each in log.verify().bad[:3]] == [
        (8, 14),
        (14, 18),
        (18, 24),
    ]


def test_a_line_too_long_that_is_cut_by_a_lost_frame_is_one_bad_line(
    place: Path, log: FileLog
) -> None:
    log.archive()
    name = log.segments()[0]
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    long = compressor.compress(b"x" * (9 << 20))
    broken = compressor.compress(b"y" * 50)[:-1] + b"\0"
    (place / f"{name}.zst").write_bytes(long + broken + compressor.compress(b'{"n":2}\n'))
    found = [line for line in log.read() if line.segment == name]
    assert [(line.offset, line.end) for line in found[:2]] == [
        (0, 9 << 20),
        (9 << 20, (9 << 20) + 50),
    ]
    assert isinstance(found[2], Line)
    assert found[0].reason.startswith("longer than")  # type: ignore[union-attr]
    assert log.verify().bad[0].end == 9 << 20


def test_a_link_planted_as_a_packed_segment_is_not_followed(
    log: FileLog, place: Path, tmp_path: Path
) -> None:
    log.archive()
    name = log.segments()[0]
    head = next(line for line in log.read() if isinstance(line, Line))
    (place / f"{name}.zst").rename(tmp_path / "elsewhere")
    (place / f"{name}.zst").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        list(log.read())
    assert not log.contains(Cursor(1, head.hash or "", name, head.end))


# --- settings and the tool ------------------------------------------------------------------


def test_a_home_rotates_where_its_settings_say(path: str, clock: Turner) -> None:
    Home.open(path, create=True, timezone="UTC", clock=clock).close()
    file = Path(path, "holdfast.toml")
    file.write_text(file.read_text("utf-8") + '[log]\nrotate_at = "300B"\n', "utf-8")
    with Home.open(path, clock=clock) as home:
        assert home.settings.rotate_at == 300
        log = home.log(KEY)
        for n in range(6):
            log.append({"n": n})
        assert len(log.segments()) == 2
        log.close()


def tool(paths: list[str], *flags: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *flags, str(REPO / "tools/verify_log.py"), *paths],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_tool_without_our_code_reads_packed_files(log: FileLog, place: Path) -> None:
    name = both(log, place)
    (place / f"{name}.zst").write_bytes(b"of no account beside the plain file")
    paths = [str(place / each) for each in visible(place)]
    assert tool(paths) == (0, "20 is the last line, 0 breaks\n")
    code, said = tool([path for path in paths if ".1." not in path])
    assert (code, "expected seq" in said) == (1, True)
    code, said = tool(paths, "-S", "-E", "-I")
    assert code == 1
    assert "pip install zstandard" in said
    (place / name).unlink()
    code, said = tool([str(place / each) for each in visible(place)])
    assert (code, "cannot be unpacked" in said, "Traceback" in said) == (1, True, False)


def test_the_lock_of_an_archiver_is_not_the_lock_of_the_log(home: Home, log: FileLog) -> None:
    assert archive.lock_name(Series(None)) == ".archive.lock"
    with home.opened_dir("state/rio") as directory:
        assert directory is not None
        lock = Lock(directory, archive.lock_name(Series("journal")), home.vfs, home.clock)
        with lock:
            assert log.append({"n": 20}).seq == 21
        lock.close()
    assert log.head() != START

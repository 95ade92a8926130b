"""Which files are one log, and where its newest sealed line is."""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store.chain import ORIGIN, SUFFIX_SPAN, Link, link_at_end, read_seal
from holdfast.store.home import Home
from holdfast.store.segments import Segment, Series, Tail, find_tail, series_of
from holdfast.store.vfs import RealVfs
from tests.store.logs import FOREIGN, HASH, RECORDS, Writer

JOURNAL, DAYS = Series("journal"), Series(None)


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("journal.jsonl", Segment("journal", 0)),
        ("journal.1.jsonl", Segment("journal", 1)),
        ("journal.123456789.jsonl", Segment("journal", 123456789)),
        ("journal.0.jsonl", None),
        ("journal.01.jsonl", None),
        ("journal.1234567890.jsonl", None),
        ("journal.x.jsonl", None),
        ("journal.-1.jsonl", None),
        ("journal.١.jsonl", None),
        ("journal.1.2.jsonl", None),
        ("journal.json", None),
        ("journal.jsonl.bak", None),
        (".journal.jsonl", None),
        ("xjournal.jsonl", None),
        ("journal", None),
        ("2026-11-15.jsonl", None),
    ],
)
def test_a_file_is_a_part_of_a_log_by_its_name_alone(name: str, segment: Segment | None) -> None:
    assert JOURNAL.parse(name) == segment
    if segment is not None:
        assert segment.filename == name
        assert series_of(name) == JOURNAL


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("2026-11-15.jsonl", Segment("2026-11-15", 0)),
        ("2026-11-15.2.jsonl", Segment("2026-11-15", 2)),
        ("2026-11-15x.jsonl", None),
        ("26-11-15.jsonl", None),
        ("٢٠٢٦-١١-١٥.jsonl", None),
        ("2026-11-15.json", None),
        ("journal.jsonl", None),
    ],
)
def test_a_log_by_days_is_made_of_days(name: str, segment: Segment | None) -> None:
    assert DAYS.parse(name) == segment
    if segment is not None:
        assert series_of(name) == DAYS


def test_a_name_that_is_no_segment_is_a_series_of_its_own() -> None:
    assert series_of("odd") == Series("odd")


def test_parts_follow_each_other_in_the_order_of_writing() -> None:
    assert JOURNAL.next(None, "2026-11-15") == Segment("journal", 0)
    assert JOURNAL.next(Segment("journal", 0), "2026-11-15") == Segment("journal", 1)
    first = DAYS.next(None, "2026-11-15")
    assert first == Segment("2026-11-15", 0)
    assert DAYS.next(first, "2026-11-15") == Segment("2026-11-15", 1)
    assert DAYS.next(first, "2026-11-16") == Segment("2026-11-16", 0)
    assert DAYS.next(first, "2026-11-14") == Segment("2026-11-15", 1)
    names = [Segment("a", number).filename for number in (10, 2, 0, 1)]
    found = sorted(filter(None, map(Series("a").parse, names)))
    assert [segment.number for segment in found] == [0, 1, 2, 10]


def tail_the_slow_way(
    contents: list[bytes], *, unended: bool
) -> tuple[Link, str, int, bytes | None, bool]:
    """Read everything and look at every line."""
    link, segment, offset, gap = ORIGIN, "", 0, b""
    for number, data in enumerate(contents):
        at = 0
        for line in split(data):
            at += len(line)
            found = read_seal(line.removesuffix(b"\n"))
            if found is None or not (unended or line.endswith(b"\n")):
                gap += line
            else:
                link, gap = Link(found.seq, found.digest), b""
                segment, offset = Segment("a", number).filename, at
    last = contents[-1] if contents else b""
    digest = sha256(gap).digest() if gap else None
    return link, segment, offset, digest, bool(last) and not last.endswith(b"\n")


def split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def tail_of_files(
    contents: list[bytes], *, unended: bool = False
) -> tuple[Link, str, int, bytes | None, bool]:
    with tempfile.TemporaryDirectory() as place:
        for number, data in enumerate(contents):
            Path(place, Segment("a", number).filename).write_bytes(data)
        vfs = RealVfs()
        root = vfs.root(place)
        try:
            tail: Tail = find_tail(vfs, root, Series("a").segments(root), unended=unended)
        finally:
            root.close()
    gap = None if tail.gap is None else tail.gap.digest()
    segment = "" if tail.link is ORIGIN else tail.segment
    return tail.link, segment, tail.offset, gap, tail.torn


@st.composite
def contents(draw: st.DrawFn) -> list[bytes]:
    writer, segments = Writer(), list[bytes]()
    for _ in range(draw(st.integers(0, 3))):
        writer.data = b""
        for _ in range(draw(st.integers(0, 4))):
            match draw(st.integers(0, 3)):
                case 0 | 1:
                    writer.record(draw(RECORDS))
                case 2:
                    writer.foreign(draw(FOREIGN).replace(b"\r", b"?"))
                case _:
                    writer.foreign(b"x" * draw(st.integers(3_900, 4_200)))
        segments.append(writer.data)
    if segments:
        last = draw(st.sampled_from([b"", b"", b"torn", b'{"a":1,"seq":', None]))
        segments[-1] = segments[-1][:-1] if last is None else segments[-1] + last
    return segments


@settings(max_examples=80)
@given(contents(), st.booleans())
def test_the_newest_sealed_line_is_found_wherever_it_is(
    segments: list[bytes], unended: bool
) -> None:
    found = tail_of_files(segments, unended=unended)
    assert found == tail_the_slow_way(segments, unended=unended)


@given(contents())
def test_the_last_bytes_tell_of_a_sealed_line_at_the_end_just_as_the_search_does(
    segments: list[bytes],
) -> None:
    data = segments[-1] if segments else b""
    link, _, offset, gap, torn = tail_of_files([data])
    at_end = link is not ORIGIN and offset == len(data) and gap is None and not torn
    assert link_at_end(data[-SUFFIX_SPAN:]) == (link if at_end else None)


def test_a_seal_is_found_across_every_border_of_two_reads() -> None:
    writer = Writer()
    line = writer.record({"n": 1})
    for filler in (*range(3_980, 4_200), (1 << 20) + 4_096 - 50):
        content = line + b"x" * filler
        link, _, offset, _, torn = tail_of_files([content])
        assert (link, offset, torn) == (writer.link, len(line), True), filler


def test_what_only_looks_like_a_seal_is_none_at_any_border() -> None:
    writer = Writer()
    good = writer.record({"n": 1})
    fake = b'{"a":1,"seq":7,"hash":"%b"}' % HASH.encode()
    for filler in range(3_980, 4_200):
        content = good + fake + b"X" * filler + b"\n"
        assert tail_of_files([content], unended=True)[0] == writer.link, filler


def test_a_last_line_without_its_end_is_whole_for_whoever_ends_it() -> None:
    writer = Writer()
    writer.record({"n": 1})
    first = writer.link
    writer.record({"n": 2})
    link, _, _, gap, torn = tail_of_files([writer.data[:-1]], unended=True)
    assert (link, gap, torn) == (writer.link, None, True)
    assert tail_of_files([writer.data[:-1]])[0] == first


def test_an_append_to_such_a_line_ends_it_and_numbers_on(home: Home, path: str) -> None:
    log = home.log("state/a.jsonl")
    log.append({"n": 1})
    log.append({"n": 2})
    log.close()
    name = f"{path}/state/a.jsonl"
    os.truncate(name, os.path.getsize(name) - 1)
    head = log.head()
    assert head == log.verify().head
    assert log.contains(head)
    assert log.append({"n": 3}).seq == 3
    assert [getattr(line, "seq", "bad") for line in log.read()] == [1, 2, 3]
    assert [getattr(line, "seq", "bad") for line in log.read(head)][-1] == 3
    found = log.verify()
    assert (found.sealed, found.bad, found.problems) == (3, [], [])
    log.close()


def test_a_foreign_name_in_the_directory_is_no_part_of_the_log(home: Home, path: str) -> None:
    log = home.log("ledger/rio")
    log.append({"n": 1})
    for name in ("٢٠٢٦-١١-١٥.jsonl", "9999-99-99.jsonl.bak", "notes.jsonl", "9999.jsonl"):
        Path(path, "ledger/rio", name).write_bytes(b"x\n")
    assert log.segments() == ["2023-11-14.jsonl"]
    assert log.append({"n": 2}).segment == "2023-11-14.jsonl"
    log.close()

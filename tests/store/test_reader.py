"""Bytes become lines: at LF only, in bounded memory, whatever stands in between."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.codec import MAX_LINE
from holdfast.store import reader
from holdfast.store.home import Home
from holdfast.store.primitives import BadLine, Line
from holdfast.store.reader import Source, read_lines, split, verify
from tests.store.logs import HASH, Writer

SMALL = 12


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    while data:
        size = sizes.pop() if sizes else 5
        yield data[:size]
        data = data[size:]


def expected(data: bytes, last: bool) -> list[tuple[int, int, str]]:
    """Offset, end and reason ("" for a record) of every line, the slow way."""
    found: list[tuple[int, int, str]] = []
    offset = 0
    *lines, rest = data.split(b"\n")
    for line in lines:
        end = offset + len(line) + 1
        if len(line) > SMALL:
            found.append((offset, end, "longer"))
        else:
            found.append((offset, end, "" if line.strip(b"\r") == b"{}" else "bad"))
        offset = end
    if rest and not last:
        found.append((offset, len(data), "no line end"))
    return found


@given(
    st.lists(st.sampled_from([b"{}", b"x", b"\n", b"{}\n", b"long" * 5, b"\r"])).map(b"".join),
    st.lists(st.integers(1, 9)),
    st.booleans(),
)
@example(b"long" * 9 + b"\n{}\n", [3] * 20, True)
@example(b"x" * (SMALL + 1) + b"\n", [], True)
@example(b"long" * 9, [3] * 20, False)
@example(b"long" * 9, [3] * 20, True)
def test_lines_are_the_same_however_the_bytes_arrive(
    data: bytes, sizes: list[int], last: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # A line of 8 MiB in every example would take minutes.
        patch.setattr(reader, "MAX_LINE", SMALL)
        found = list(read_lines([Source("a", 0, last, pieces(data, list(sizes)))]))
        proof = verify([Source("a", 0, last, pieces(data, list(sizes)))])
    wanted = expected(data, last)
    assert [(line.offset, line.end) for line in found] == [row[:2] for row in wanted]
    for line, (_, _, reason) in zip(found, wanted, strict=True):
        if isinstance(line, BadLine):
            assert reason
            assert "longer" not in line.reason or reason == "longer"
            assert (line.reason == "no line end") == (reason == "no line end")
        else:
            assert not reason
    bad = [line for line in found if isinstance(line, BadLine)]
    assert [line._replace(line=0) for line in proof.bad] == bad
    for line in proof.bad:
        assert line.line == data[: line.offset].count(b"\n") + 1
    assert proof.unchained == len(found) - len(proof.bad)
    assert proof.loose == len(proof.bad)
    rest = data.rpartition(b"\n")[2]
    assert proof.in_progress == (len(rest) if last else 0)


def test_splitting_loses_no_byte() -> None:
    data = b"a\n" + b"b" * 40 + b"\nc\n\n" + b"d" * 7
    batches = list(split(Source("a", 100, True, pieces(data, []))))
    rebuilt = b""
    for batch in batches:
        assert batch.offset == 100 + len(rebuilt)
        rebuilt += batch.lines[0] if batch.piece else b"\n".join([*batch.lines, b""])
    assert rebuilt == data


def test_unusual_separators_do_not_split_a_line() -> None:
    text = "a\u2028b\u2029c\x85d"
    line = f'{{"t":"{text}"}}\n'.encode()
    (found,) = read_lines([Source("a", 0, True, iter([line]))])
    assert isinstance(found, Line)
    assert found.record == {"t": text}


def test_reading_goes_on_behind_every_kind_of_bad_line(home: Home, path: str) -> None:
    log = home.log("state/a.jsonl")
    acked = []
    bad = [
        b"", b"\0" * 100, b"not json", b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b"[]", b'{"x":NaN}',
        b"\xff\xfe", b"[" * 100_000, b'{"a":' * 65 + b"1" + b"}" * 65, b"1e999", b"9" * 30,
        b'{"a":"\\ud800"}',
    ]  # fmt: skip
    for number, line in enumerate(bad):
        acked.append(log.append({"n": number}))
        with open(f"{path}/state/a.jsonl", "ab") as file:
            file.write(line + b"\n")
    acked.append(log.append({"n": "last"}))
    found = list(log.read())
    good = [line.record["n"] for line in found if isinstance(line, Line)]
    assert good == [*range(len(bad)), "last"]
    reasons = [line.reason for line in found if isinstance(line, BadLine)]
    assert len(reasons) == len(bad)
    assert all(reasons)
    content = Path(path, "state/a.jsonl").read_bytes()
    for line, raw in zip((one for one in found if isinstance(one, BadLine)), bad, strict=True):
        assert content[line.offset : line.end] == raw + b"\n"
    proof = log.verify()
    assert (proof.sealed, len(proof.bad), proof.problems) == (len(acked), len(bad), [])
    log.close()


def test_a_line_end_of_windows_is_read_and_reported_as_foreign(home: Home, path: str) -> None:
    log = home.log("state/a.jsonl")
    log.append({"n": 1})
    log.append({"n": 2})
    log.close()
    file = Path(path, "state/a.jsonl")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    found = list(log.read())
    assert [line.record["n"] for line in found if isinstance(line, Line)] == [1, 2]
    assert [line.seq for line in found if isinstance(line, Line)] == [None, None]
    assert log.append({"n": 3}).seq == 1
    assert log.verify().problems == []
    log.close()


def test_a_whole_line_behind_bytes_that_the_disk_lost_is_read() -> None:
    writer = Writer()
    one, two, three = (writer.record({"n": number}) for number in (1, 2, 3))
    data = one + bytes(len(two)) + three
    found = list(read_lines([Source("a", 0, True, iter([data]))]))
    assert [getattr(line, "seq", "bad") for line in found] == [1, "bad", 3]
    bad, last = found[1:]
    assert isinstance(bad, BadLine)
    assert (bad.offset, bad.end, bad.reason) == (len(one), len(one + two), "NUL bytes")
    assert (last.offset, last.end) == (len(one + two), len(data))
    proof = verify([Source("a", 0, True, iter([data]))])
    assert [problem.kind for problem in proof.problems] == ["damaged"]
    assert proof.head.seq == 3
    for rest in (b'{"n":4}', b"x"):
        (bad,) = read_lines([Source("a", 0, True, iter([b"\0\0" + rest + b"\n"]))])
        assert isinstance(bad, BadLine)
        assert bad.offset == 0


def test_a_line_end_that_flipped_costs_one_record() -> None:
    writer = Writer()
    one, two, three = (writer.record({"n": number}) for number in (1, 2, 3))
    for bit in range(8):
        data = one[:-1] + bytes([one[-1] ^ 1 << bit]) + two + three
        found = list(read_lines([Source("a", 0, True, iter([data]))]))
        assert [getattr(line, "seq", "bad") for line in found] == ["bad", 2, 3]
        assert [(line.offset, line.end) for line in found[:2]] == [
            (0, len(one)),
            (len(one), len(one + two)),
        ]
        (problem,) = verify([Source("a", 0, True, iter([data]))]).problems
        assert (problem.kind, problem.line) == ("missing", 1)


def test_what_only_looks_like_two_lines_is_one_bad_line() -> None:
    inner = b'{"a":[{"n":1,"seq":1,"hash":"%b"},{"n":2,' % HASH.encode()
    data = b'%b"seq":2,"hash":"%b"}' % (inner, HASH.encode())
    for raw in (data, data.replace(b"},{", b"}*x"), data[:-1]):
        (bad,) = read_lines([Source("a", 0, True, iter([raw + b"\n"]))])
        assert isinstance(bad, BadLine)
        assert (bad.offset, bad.end) == (0, len(raw) + 1)


@pytest.fixture
def gigabyte(home: Home, path: str) -> Iterator[str]:
    """A log with one line of a gigabyte, a hole that takes no space."""
    log = home.log("state/a.jsonl")
    log.append({"n": 1})
    name = f"{path}/state/a.jsonl"
    os.truncate(name, 1 << 30)
    with open(name, "ab") as file:
        file.write(b"\n")
    yield name
    log.close()


def test_a_gigabyte_in_one_line_is_skipped_in_bounded_memory(home: Home, gigabyte: str) -> None:
    log = home.log("state/a.jsonl")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        acked = log.append({"n": 2})
        found = list(log.read())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MAX_LINE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 200_000
    assert acked.seq == 2
    one, bad, two = found
    assert isinstance(bad, BadLine)
    assert "longer than" in bad.reason
    assert bad.end - bad.offset > (1 << 30) - 1000
    assert isinstance(one, Line)
    assert isinstance(two, Line)
    assert (one.record["n"], two.record["n"]) == (1, 2)
    assert os.stat(gigabyte).st_blocks * 512 < 1 << 20, "the hole was filled"
    log.close()


@pytest.mark.parametrize("more", [0, 1, 2, 1 << 20, 5 << 20])
def test_a_line_is_too_long_from_its_first_byte_over_the_limit(more: int) -> None:
    line = b'{"a":"' + b"x" * (MAX_LINE + more - 8) + b'"}\n'
    chunks = (line[at : at + (1 << 20)] for at in range(0, len(line), 1 << 20))
    (found,) = read_lines([Source("a", 0, True, chunks)])
    if more:
        assert isinstance(found, BadLine)
        assert found[1:4] == (0, len(line), f"longer than {MAX_LINE} bytes")
    else:
        assert isinstance(found, Line)


def test_a_log_with_a_long_line_verifies_over_it() -> None:
    writer = Writer()
    writer.record({"n": 1})
    writer.foreign(b"x" * (3 * MAX_LINE))
    writer.record({"n": 2})
    data = writer.data
    size = 1 << 20
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    found = verify([Source("a", 0, True, chunks)])
    assert (found.sealed, len(found.bad), found.problems) == (2, 1, [])
    assert found.head.offset == len(data)

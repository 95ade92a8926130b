"""The hash chain: any change of what was written shows, and needs none of our code to show."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadValue
from holdfast.store import chain
from holdfast.store.chain import GENESIS, ORIGIN, Link, Seal, holds, read_seal, seal
from holdfast.store.home import Home
from tests.store.children import REPO
from tests.store.logs import FOREIGN, RECORDS, Writer, summary, verified
from tools.verify_log import main as verify_without_us

TOOL = REPO / "tools" / "verify_log.py"


def lines_by_hand(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_a_sealed_line_is_read_back_and_holds(records: list[dict[str, Any]]) -> None:
    link = ORIGIN
    for number, record in enumerate(records, 1):
        before = link
        line, link = seal(chain.body(record), before)
        assert line.endswith(b'"}\n')
        found = read_seal(line[:-1])
        assert found is not None
        assert (found.seq, found.digest) == link == (number, link.digest)
        assert holds(line[:-1], found, before.digest)
        assert not holds(line[:-1], found, sha256(before.digest).digest())
        assert not holds(line[:-1], found, before.digest, sha256(b"x"))


def test_the_hash_is_the_one_that_the_rule_says() -> None:
    line, link = seal(b'{"a":1}', Link(41, b"p" * 32), sha256(b"foreign\n"))
    inner = sha256(b'foreign\n{"a":1,"seq":42').digest()
    digest = sha256(b"p" * 32 + inner)
    assert line == b'{"a":1,"seq":42,"hash":"%b"}\n' % digest.hexdigest().encode()
    assert link == Link(42, digest.digest())
    first, _ = seal(b'{"a":1}', ORIGIN)
    assert sha256(GENESIS + sha256(b'{"a":1,"seq":1').digest()).hexdigest().encode() in first


@pytest.mark.parametrize("seq", [1, 9, 10, 10**18, 9_999_999_999_999_999_998])
def test_a_number_of_any_length_fits_the_suffix(seq: int) -> None:
    line, link = seal(b'{"a":1}', Link(seq - 1, GENESIS))
    assert read_seal(line[:-1]) == Seal(seq, link.digest, len(line) - 1 - 75)
    assert line.endswith(chain.suffix(seq, link.digest.hex()))
    assert len(chain.suffix(seq, link.digest.hex())) <= chain.SUFFIX_SPAN


@given(FOREIGN)
def test_a_line_that_is_not_ours_has_no_seal(line: bytes) -> None:
    assert read_seal(line) is None


@pytest.mark.parametrize("name", ["seq", "hash", "_log"])
def test_the_names_of_the_log_are_its_own(name: str) -> None:
    with pytest.raises(BadValue, match=name) as caught:
        chain.body({"a": 1, name: 2})
    assert caught.value.hint
    with pytest.raises(BadValue):
        chain.body({})


def written() -> bytes:
    """Sealed lines with foreign ones, a fragment and NULs in between; the last one is ours."""
    writer = Writer()
    writer.record({"n": 1})
    writer.record({"n": 2})
    writer.foreign(b'{"by":"hand"}')
    writer.foreign(b'{"torn":')
    writer.record({"n": 3})
    writer.foreign(bytes(8))
    writer.record({"n": 4})
    return writer.data


def test_what_was_written_verifies() -> None:
    assert summary(verified(written()))[:5] == (4, 1, 2, [], 0)


@settings(max_examples=400)
@given(st.integers(0, len(written()) - 1), st.integers(1, 255))
def test_any_changed_byte_shows(at: int, change: int) -> None:
    good = written()
    data = bytearray(good)
    data[at] ^= change
    found = verified(bytes(data))
    assert summary(found) != summary(verified(good))
    if at < good.rindex(b'{"n"'):
        assert found.problems


@given(st.integers(0, len(written())), st.binary(min_size=1, max_size=3))
def test_any_added_byte_shows(at: int, added: bytes) -> None:
    good = written()
    found = verified(good[:at] + added + good[at:])
    assert summary(found) != summary(verified(good))
    if at < good.rindex(b'{"n"'):
        assert found.problems


@given(st.integers(0, len(written()) - 1), st.integers(1, 200))
def test_any_removed_byte_shows(at: int, count: int) -> None:
    good = written()
    found = verified(good[:at] + good[at + count :])
    assert summary(found) != summary(verified(good))
    if at + count < good.rindex(b'{"n"'):
        assert found.problems


def test_every_break_is_named_with_its_place() -> None:
    one, two, three, four = (line + b"\n" for line in lines_by_hand(plain(4)))
    cases = {
        "edited": one + two.replace(b'"n":2', b'"n":7') + three + four,
        "missing": one + three + four,
        "misplaced": one + two + one,
    }
    for kind, data in cases.items():
        problem = verified(data).problems[0]
        assert problem.kind == kind
        assert problem.segment == "0.jsonl"
        assert data[problem.offset :].startswith(data.splitlines()[problem.line - 1])
    assert "lines 2 to 2 are not there" in verified(cases["missing"]).problems[0].detail
    assert "line 1 stands where 3 belongs" in verified(cases["misplaced"]).problems[0].detail
    assert [problem.kind for problem in verified(plain(2), b"").problems] == ["empty"]


def test_bytes_that_a_crash_turned_to_nul_are_damage_not_tampering() -> None:
    one, two, three = (line + b"\n" for line in lines_by_hand(plain(3)))
    for data in (one + bytes(len(two)) + three, one + two[:5] + bytes(5) + two[10:] + three):
        (problem, *_) = verified(data).problems
        assert problem.kind == "damaged"
        assert "lost bytes" in problem.detail


def plain(count: int) -> bytes:
    writer = Writer()
    for number in range(1, count + 1):
        writer.record({"n": number})
    return writer.data


def redacted(data: bytes, number: int, gap: bytes = b"") -> bytes:
    """The log with one line reduced to its inner digest."""
    lines = lines_by_hand(data)
    at = next((at for at, line in enumerate(lines) if b'"seq":%d,' % number in line), None)
    if at is None:
        return data  # tampered with so that the line is no line any more
    covered, _, rest = lines[at].rpartition(b',"hash":')
    digest = sha256(gap + covered).hexdigest().encode()
    lines[at] = b'{"redacted":"%b","seq":%d,"hash":%b' % (digest, number, rest)
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_redacted_line_still_verifies(number: int) -> None:
    good = written()
    data = redacted(good, number, bytes(8) + b"\n" if number == 4 else b"")
    assert data != good
    assert b'"n":%d,' % number not in data
    assert summary(verified(data))[:5] == summary(verified(good))[:5]
    wrong = data.replace(b'{"redacted":"', b'{"redacted":"0', 1)
    assert verified(wrong).problems


def test_a_line_redacted_to_another_digest_is_edited() -> None:
    data = redacted(plain(3), 2, gap=b"something else")
    assert [problem.kind for problem in verified(data).problems] == ["edited"]


# --- the tool without our code ----------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """The segments of a log, some of them tampered with."""
    writer, segments = Writer(), list[bytes]()
    for _ in range(draw(st.integers(1, 3))):
        writer.data = b""
        for _ in range(draw(st.integers(0, 4))):
            if draw(st.booleans()):
                writer.record(draw(RECORDS))
            else:
                writer.foreign(draw(FOREIGN))
        segments.append(writer.data)
    for _ in range(draw(st.integers(0, 2))):
        number = draw(st.integers(0, len(segments) - 1))
        segments[number] = tampered(draw, segments[number])
    return segments


def tampered(draw: st.DrawFn, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at = draw(st.integers(0, len(data)))
    match draw(st.sampled_from(["cut", "flip", "swap", "repeat", "drop", "redact"])):
        case "cut":
            return data[:at]
        case "flip":
            return data[:at] + draw(st.binary(max_size=2)) + data[at + 1 :]
        case "swap":
            return b"".join(reversed(lines))
        case "repeat":
            return b"".join(lines + lines[:1])
        case "drop":
            return b"".join(lines[1:])
        case _:
            found = re.search(rb'"seq":([1-9]\d{0,2}),"hash":"[0-9a-f]{64}"\}\n', data)
            return redacted(data, int(found[1])) if found and data.endswith(b"\n") else data


@settings(max_examples=250)
@given(logs())
@example([plain(3), b"", plain(1)])
@example([plain(1) + b'{"torn'])
@example([plain(1)[:-1], plain(2)])
@example([b'{"a":1,"seq":01,"hash":"%b"}\n' % (b"0" * 64)])
def test_the_tool_without_our_code_agrees(segments: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as place:
        paths: list[str] = []
        for number, data in enumerate(segments):
            name = f"a.{number}.jsonl" if number else "a.jsonl"
            Path(place, name).write_bytes(data)
            paths.insert(0, str(Path(place, name)))
        status = verify_without_us(paths)
    found = verified(*segments)
    assert status == (1 if found.problems else 0), found.problems


def test_the_tool_finds_the_logs_of_a_home_sound(home: Home, path: str) -> None:
    log = home.log("ledger/rio", rotate_at=300)
    for number in range(12):
        log.append({"n": number})
        home.clock.sleep(20_000)
        with open(Path(path, "ledger/rio", log.segments()[-1]), "ab") as file:
            file.write(b"by hand\n" if number % 2 else b'{"torn')
    log.append({"n": 12})
    log.close()
    paths = [str(Path(path, "ledger/rio", name)) for name in log.segments()]
    assert len(paths) > 4
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-I", str(TOOL), *reversed(paths)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "13 is the last line, 0 breaks" in done.stdout
    assert log.verify().problems == []


def test_the_tool_says_how_it_is_used_where_it_is_given_a_folder(tmp_path: Path) -> None:
    words = [sys.executable, "-I", str(TOOL), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "verify_log.py FILE" in done.stderr


def test_a_python_without_a_sha256_of_its_own_uses_the_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(chain, "import_module", absent)
    assert chain._small_sha256() is sha256


@pytest.mark.parametrize("length", [10, 1_000, 1_023, 1_024, 5_000])
def test_a_line_is_sealed_alike_alone_and_among_others(length: int) -> None:
    data = b'{"a":"%b"}' % (b"x" * length)
    assert chain.seal(data, chain.ORIGIN, alone=True) == chain.seal(data, chain.ORIGIN)

"""Frames of a packed segment: read from anywhere, and whatever the bytes are."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.store import packed
from holdfast.store.packed import FRAME, MANY, MOST, Lost, Packed, pack

LINES = [b'{"n":%d,"text":"%b"}\n' % (n, b"x" * (n % 7)) for n in range(40)]
TEXT = b"".join(LINES)


class File:
    """Bytes as a file, and which of them were asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read = 0

    def pread(self, count: int, offset: int) -> bytes:
        found = self.data[offset : offset + count]
        self.read += len(found)
        return found


def opened(data: bytes) -> Packed:
    return Packed(File(data).pread, len(data))


def packed_as(texts: list[bytes], *, table: bool = True) -> bytes:
    """A packed segment with these frames."""
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    frames = [compressor.compress(text) for text in texts]
    entries = [(len(frame), len(text)) for frame, text in zip(frames, texts, strict=True)]
    return b"".join(frames) + (table_of(entries) if table else b"")


def table_of(entries: list[tuple[int, int]], kind: int = 0) -> bytes:
    body = b"".join(struct.pack("<II", *entry) for entry in entries)
    body += struct.pack("<IBI", len(entries), kind, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(body)) + body


def small(text: bytes, frame: int = 100) -> bytes:
    """The text packed into frames of about this size."""
    with patch.object(packed, "FRAME", frame):
        return b"".join(pack(iter([text[:70], text[70:]]), len(text)))


def lost_in(found: Packed) -> list[Lost]:
    return [each for each in found.chunks(0) if isinstance(each, Lost)]


def text_in(found: Packed, offset: int = 0) -> bytes:
    return b"".join(each for each in found.chunks(offset) if isinstance(each, bytes))


# --- as we write it -------------------------------------------------------------------------


def test_every_frame_holds_whole_lines_and_all_of_them_the_text() -> None:
    found = opened(small(TEXT))
    pieces = list(found.chunks(0))
    assert len(pieces) == len(found.frames) > 5
    assert all(isinstance(piece, bytes) and piece.endswith(b"\n") for piece in pieces)
    assert text_in(found) == TEXT
    assert found.size == len(TEXT)


def test_reading_begins_at_any_offset() -> None:
    found = opened(small(TEXT))
    for offset in range(len(TEXT) + 3):
        assert text_in(found, offset) == TEXT[offset:]


def test_reading_from_an_offset_opens_only_the_frames_behind_it() -> None:
    lines = [b"%b\n" % (bytes([65 + n]) * 50_000) for n in range(20)]
    noise = b"".join(bytes(bytearray(range(1, 10)) * 3) + line for line in lines)
    data = small(noise, 40_000)
    file = File(data)
    found = Packed(file.pread, len(data))
    file.read = 0
    last = found.frames[-1]
    assert text_in(found, last.start) == noise[last.start :]
    assert file.read == last.length


def test_zstd_itself_prints_the_segment(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(small(TEXT))
    with file.open("rb") as source:
        reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
        assert reader.read() == TEXT
    try:
        done = subprocess.run(["zstdcat", file], capture_output=True, timeout=30, check=True)
    except FileNotFoundError:
        pytest.skip("no zstd on this machine")
    assert done.stdout == TEXT


def test_an_empty_text_is_a_table_without_frames() -> None:
    data = b"".join(pack(iter([]), 0))
    assert data == table_of([])
    assert (opened(data).size, list(opened(data).chunks(0)), list(opened(data).backwards())) == (
        0,
        [],
        [],
    )


def test_a_text_of_one_line_that_never_ends_is_cut_into_frames_that_can_be_opened() -> None:
    text = b"y" * (40 << 20)
    pieces = (text[at : at + FRAME] for at in range(0, len(text), FRAME))
    found = opened(b"".join(pack(pieces, len(text))))
    assert len(found.frames) > 1
    assert max(frame.size for frame in found.frames) <= MOST
    assert text_in(found) == text


def test_a_line_longer_than_a_frame_is_not_cut() -> None:
    text = b"a\n" + b"b" * (3 * FRAME) + b"\nc\n" + b"d" * FRAME
    found = opened(b"".join(pack(iter([text[:FRAME], text[FRAME:]]), len(text))))
    assert [piece[-1:] for piece in found.chunks(0)] == [b"\n", b"d"]
    assert text_in(found) == text


def test_a_huge_text_gets_larger_frames_instead_of_too_many() -> None:
    with patch.object(packed, "MANY", 10), patch.object(packed, "FRAME", 10):
        data = b"".join(pack(iter([TEXT]), len(TEXT)))
        assert 3 < len(opened(data).frames) <= 10
        assert text_in(opened(data)) == TEXT


def test_windows_come_from_the_end() -> None:
    found = opened(small(TEXT))
    windows = list(found.backwards())
    assert b"".join(window for _, window in reversed(windows)) == TEXT
    assert windows[-1][0] == 0


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flip", "zero", "magic"])
@pytest.mark.parametrize("table", [True, False])
def test_a_damaged_frame_costs_itself_and_no_other(how: str, table: bool) -> None:
    texts = [b"one\n" * 50, b"two\n" * 60, b"three\n" * 70]
    data = bytearray(packed_as(texts, table=table))
    frame = opened(bytes(data)).frames[1]
    if how == "flip":
        data[frame.at + frame.length - 6] ^= 4
    elif how == "zero":
        data[frame.at + 7 : frame.at + frame.length] = bytes(frame.length - 7)
    else:
        data[frame.at] ^= 1
    found = opened(bytes(data))
    pieces = list(found.chunks(0))
    lost = [each for each in pieces if isinstance(each, Lost)]
    assert pieces[0] == texts[0]
    assert texts[2] in pieces
    assert text_in(found) == texts[0] + texts[2]
    assert lost[0].reason
    if table or how == "flip":
        # The text behind it keeps its place.
        assert lost[0].size == len(texts[1])
        assert found.frames[2].start == len(texts[0]) + len(texts[1])
        assert text_in(found, found.frames[2].start + 6) == texts[2][6:]
        assert next(found.chunks(len(texts[0]) + 8)) == Lost(len(texts[1]) - 8, lost[0].reason)
        assert (len(texts[0]), b"\0") in list(found.backwards())
    assert len(lost) == (1 if table else 2), "without a table, that is told too"


def test_every_bit_that_flips_is_noticed_or_changes_nothing() -> None:
    texts = [b'{"a":1}\n' * 5, b"two\n" * 6, b"three, and not the same again\n"]
    whole, data = b"".join(texts), packed_as(texts)
    noticed = 0
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = opened(bytes(flipped))
        served = [each for each in found.chunks(0) if isinstance(each, bytes)]
        assert all(piece in (*texts, b"") for piece in served), bit
        assert lost_in(found) or b"".join(served) == whole, bit
        noticed += bool(lost_in(found))
    assert noticed > len(data) * 4


def test_wherever_it_is_cut_off_the_whole_frames_before_are_read() -> None:
    texts = [b"one\n" * 5, b"two\n" * 6, b"three\n" * 7]
    data = packed_as(texts)
    ends = [frame.at + frame.length for frame in opened(data).frames]
    for cut in range(len(data)):
        found = opened(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert text_in(found) == b"".join(texts[:whole]), cut
        assert lost_in(found), cut


def test_a_table_that_is_wrong_about_a_size_is_not_believed() -> None:
    texts = [b"one\n" * 5, b"two\n" * 6]
    data = packed_as(texts)
    frames = opened(data).frames
    lie = [(frames[0].length, 21), (frames[1].length, 24)]
    found = opened(data[: frames[1].at + frames[1].length] + table_of(lie))
    assert text_in(found, 20) == texts[1]
    assert lost_in(found) == []


@pytest.mark.parametrize(
    "table",
    [
        table_of([(9, 9)]),
        table_of([]),
        table_of([(1 << 31, 5), (1 << 31, 5)]),
        table_of([(20, 20)], kind=128),
        b"\x5e*M\x18" + struct.pack("<IIBI", 9, MANY + 1, 0, 0x8F92EAB1),
        b"\x5e*M\x18" + struct.pack("<IIBI", 10, 0, 0, 0x8F92EAB1),
        b"\x5e*M\x18" + struct.pack("<I", 1 << 30),
        b"\x50*M\x18" + struct.pack("<I", 2) + b"xx",
    ],
)
def test_a_table_that_cannot_be_true_is_passed_over(table: bytes) -> None:
    texts = [b"one\n" * 5, b"two\n" * 6]
    found = opened(packed_as(texts, table=False) + table)
    assert text_in(found) == b"".join(texts)
    [lost] = lost_in(found)
    assert (lost.size, "no table" in lost.reason) == (0, True)


def test_a_file_that_shrinks_while_it_is_opened_is_read_without_its_table() -> None:
    data = packed_as([b"one\n" * 5, b"two\n"])
    reads: list[int] = []

    def pread(count: int, offset: int) -> bytes:
        reads.append(offset)
        return data[offset : offset + count - (len(reads) == 2)]

    assert text_in(Packed(pread, len(data))) == b"one\n" * 5 + b"two\n"


def test_a_frame_that_does_not_tell_its_size_is_not_opened() -> None:
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(b"x\n" * 9)
    found = opened(silent + packed_as([b"two\n"], table=False))
    assert text_in(found) == b"two\n"
    assert lost_in(found)[0].reason == "a frame that does not tell its size"
    listed = opened(silent + table_of([(len(silent), 18)]))
    assert lost_in(listed) == [Lost(18, "no frame where one was packed")]


# --- bombs and noise ------------------------------------------------------------------------


@pytest.mark.parametrize("table", [True, False])
def test_a_bomb_is_not_opened(table: bool) -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(MOST + 1))
    after = zstandard.ZstdCompressor().compress(b"after\n")
    entries = [(len(bomb), MOST + 1), (len(after), 6)]
    found = opened(bomb + after + (table_of(entries) if table else b""))
    first, second, *_ = found.chunks(0)
    assert first == Lost(MOST + 1, f"a frame that claims more than {MOST} bytes")
    assert second == b"after\n"


def test_a_bomb_that_lies_about_its_size_yields_nothing() -> None:
    bomb = bytearray(zstandard.ZstdCompressor().compress(bytes(MOST + 1)))
    bomb[6:10] = (1000).to_bytes(4, "little")  # what its header says it holds
    assert zstandard.frame_content_size(bytes(bomb)) == 1000
    assert lost_in(opened(bytes(bomb)))[0].size == 1000
    listed = opened(bytes(bomb) + table_of([(len(bomb), 1000)]))
    assert lost_in(listed) == [Lost(1000, "damaged frame of a packed segment")]


def test_more_frames_than_allowed_are_not_listed() -> None:
    with patch.object(packed, "MANY", 3):
        found = opened(packed_as([b"%d\n" % n for n in range(6)], table=False))
        assert text_in(found) == b"0\n1\n2\n"
        assert len(found.frames) == 5
        assert "cannot be made sense of" in lost_in(found)[0].reason


@pytest.mark.parametrize(
    "data",
    [
        b"\x28\xb5\x2f\xfd" * 100_000,
        (b"\x28\xb5\x2f\xfd" + b"\x20\x01" + b"\0\0\0" * 50_000) * 20,
        bytes(5_000_000),
        b"\x28\xb5\x2f\xfd\x00\x58" + b"\x06\x00\x00" * 10,
    ],
)
def test_bytes_that_only_look_like_frames_are_given_up_in_the_end(data: bytes) -> None:
    reads = 0

    def pread(count: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        return data[offset : offset + count]

    found = Packed(pread, len(data))
    assert text_in(found) == b""
    assert lost_in(found)
    assert reads < 4 * packed._STEPS + MANY * 4


@st.composite
def mangled(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    texts = draw(st.lists(st.binary(min_size=1, max_size=40), max_size=5))
    data = bytearray(packed_as(texts, table=draw(st.booleans())))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                del data[at : at + draw(st.integers(0, 40))]
            case 1:
                data[at:at] = draw(st.binary(max_size=20))
            case 2:
                data[at:at] = b"\x28\xb5\x2f\xfd" + draw(st.binary(max_size=20))
            case _:
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return texts, bytes(data)


@settings(max_examples=400)
@given(mangled())
def test_any_bytes_are_read_to_the_end_without_an_error(case: tuple[list[bytes], bytes]) -> None:
    texts, data = case
    for content in (data, data[:-1]):
        found = opened(content)
        pieces = list(found.chunks(0))
        sizes = [piece.size if isinstance(piece, Lost) else len(piece) for piece in pieces]
        assert sum(sizes) == found.size
        assert len(list(found.backwards())) == len(found.frames) == len(pieces)
        if content == packed_as(texts):
            assert pieces == texts


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_random_bytes_hold_no_text(data: bytes) -> None:
    def mostly() -> Iterator[bytes]:
        yield data
        yield b"\x28\xb5\x2f\xfd" + data

    for content in mostly():
        found = opened(content)
        assert text_in(found) == b""
        assert lost_in(found)

"""A segment packed with zstd: frames of whole lines, and a table of where each begins.

Frames are independent of each other, so that a reader may begin anywhere and a damaged one
costs no other.  The table stands in a skippable frame at the end, as in zstd's seekable format,
which other tools pass over: `zstdcat` prints the segment.  Offsets are always those of the text.

Knows nothing of names or logs.  Whatever the bytes are, they are read with bounded memory.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.codec import MAX_LINE

FRAME = 1 << 20
"""About so much text goes into one frame; a line is not cut for it."""
MOST = 64 << 20
"""A frame that claims more text than this is not opened."""
MANY = 1 << 16
"""No packed segment has more frames than this."""
_LONGEST = 2 * MAX_LINE
"""Where a line is cut after all."""
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = 0x184D2A5E
_TABLE = 0x8F92EAB1
_HEADER, _FOOTER = 8, 9
_LONGEST_FRAME_HEADER = 18
_BLOCK = 128 << 10
_STEPS = 1 << 18
"""So many blocks are looked at in vain before the rest of a file is given up."""
_DAMAGED = "damaged frame of a packed segment"

Pread = Callable[[int, int], bytes]
"""So many bytes from that offset of the file."""


class Lost(NamedTuple):
    """Text that cannot be had any more."""

    size: int
    """How much of it; 0 where nobody can tell."""
    reason: str


class Frame(NamedTuple):
    at: int
    """In the file, as is its length."""
    length: int
    start: int
    """In the text, as is its size."""
    size: int
    fault: str = ""
    """Why it cannot be opened."""


# --- writing --------------------------------------------------------------------------------


def pack(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The bytes of a packed segment, frame by frame, for a text of this size."""
    import zstandard  # noqa: PLC0415 - ten milliseconds that an append need not pay

    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True)
    table = b""
    # Fewer, larger frames where there would be too many.
    for text in _grouped(chunks, max(FRAME, 2 * size // MANY)):
        frame = compressor.compress(text)
        table += struct.pack("<II", len(frame), len(text))
        yield frame
    footer = struct.pack("<IBI", len(table) // 8, 0, _TABLE)
    yield struct.pack("<II", _SKIPPABLE, len(table) + len(footer)) + table + footer


def _grouped(chunks: Iterable[bytes], target: int) -> Iterator[bytes]:
    """The text in pieces of whole lines."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= target:
            cut = held.find(b"\n", target - 1, _LONGEST) + 1
            if not cut:
                if len(held) < _LONGEST:
                    break
                cut = _LONGEST
            yield bytes(held[:cut])
            del held[:cut]
    if held:
        yield bytes(held)


# --- reading --------------------------------------------------------------------------------


class Packed:
    """The text of a packed segment."""

    def __init__(self, pread: Pread, size: int) -> None:
        self._pread, self._steps = pread, _STEPS
        frames = self._by_table(size)
        self.frames = self._by_walking(size) if frames is None else frames
        last = self.frames[-1] if self.frames else Frame(0, 0, 0, 0)
        self.size = last.start + last.size

    def chunks(self, offset: int) -> Iterator[bytes | Lost]:
        """The text from `offset` on; only frames that hold some of it are opened."""
        first = bisect_left(self.frames, offset, key=lambda frame: frame.start + frame.size)
        for frame in self.frames[first:]:
            if frame.size and frame.start + frame.size == offset:
                continue
            skipped = max(0, offset - frame.start)
            text = self._text(frame)
            yield text[skipped:] if isinstance(text, bytes) else Lost(text.size - skipped, text[1])

    def backwards(self) -> Iterator[tuple[int, bytes]]:
        """Each frame and where it begins, the last one first; a NUL for one that is lost."""
        for frame in reversed(self.frames):
            text = self._text(frame)
            yield frame.start, text if isinstance(text, bytes) else b"\0"

    def _text(self, frame: Frame) -> bytes | Lost:
        if frame.fault:
            return Lost(frame.size, frame.fault)
        text = self._opened(frame.at, frame.length, frame.size)
        return Lost(frame.size, _DAMAGED) if text is None else text

    def _opened(self, at: int, length: int, size: int) -> bytes | None:
        """The text of a frame if it is all there, of that size, and as it was packed."""
        import zstandard  # noqa: PLC0415

        data = self._pread(length, at)
        if _size_of(data) != size:
            return None
        try:
            return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
        except zstandard.ZstdError:
            return None

    # -- by the table ------------------------------------------------------------------

    def _by_table(self, size: int) -> list[Frame] | None:
        """What the table at the end says, if it can be true."""
        tail = self._pread(_FOOTER, max(0, size - _FOOTER))
        if len(tail) < _FOOTER:
            return None
        count, kind, magic = struct.unpack("<IBI", tail)
        length = _HEADER + 8 * count + _FOOTER
        if (kind, magic) != (0, _TABLE) or count > MANY or length > size:
            return None
        table = self._pread(length - _FOOTER, size - length)
        head = struct.pack("<II", _SKIPPABLE, length - _HEADER)
        if not table.startswith(head) or len(table) != length - _FOOTER:
            return None
        entries = list(struct.iter_unpack("<II", table[_HEADER:]))
        if sum(entry[0] for entry in entries) != size - length:
            return None
        frames: list[Frame] = []
        at = start = 0
        for packed, text in entries:
            frames.append(self._listed(at, packed, start, text))
            at, start = at + packed, start + frames[-1].size
        return frames

    def _listed(self, at: int, length: int, start: int, size: int) -> Frame:
        """A frame that the table names, held against what the frame says of itself."""
        said = _size_of(self._pread(_LONGEST_FRAME_HEADER, at))
        if said is None:
            return Frame(at, length, start, size, "no frame where one was packed")
        if said != size and _is_fair(length, said) and self._opened(at, length, said) is not None:
            size = said  # it is the table that is wrong
        return _judged(Frame(at, length, start, size))

    # -- without a table ---------------------------------------------------------------

    def _by_walking(self, size: int) -> list[Frame]:
        """Frame by frame from the start; behind a broken one, from the next that looks like one."""
        frames: list[Frame] = []
        at = start = 0
        while at < size and len(frames) < MANY and self._steps > 0:
            head = self._pread(_LONGEST_FRAME_HEADER, at)
            skipped = _skippable(head)
            if skipped == 0:
                frames.append(self._walked(at, head, start, size))
            at += skipped or frames[-1].length
            start += 0 if skipped else frames[-1].size
        if at < size:
            frames.append(Frame(at, size - at, start, 0, "the rest cannot be made sense of"))
        frames.append(Frame(size, 0, start, 0, "no table of frames: the end may be cut off"))
        return frames

    def _walked(self, at: int, head: bytes, start: int, size: int) -> Frame:
        said = _size_of(head)
        length = self._length(at, head, size)
        if length is None:
            length = self._next(at + 1, size) - at
            return Frame(
                at, length, start, said if said is not None and said <= MOST else 0, _DAMAGED
            )
        if said is None:
            return Frame(at, length, start, 0, "a frame that does not tell its size")
        return _judged(Frame(at, length, start, said))

    def _length(self, at: int, head: bytes, size: int) -> int | None:
        """How long a frame is in the file, by the headers of its blocks."""
        import zstandard  # noqa: PLC0415

        try:
            checksum = 4 * zstandard.get_frame_parameters(head).has_checksum
            end = at + zstandard.frame_header_size(head)
        except zstandard.ZstdError:
            self._steps -= 1
            return None
        walked, kind, length = 0, 0, 0
        while kind != 3 and length <= _BLOCK and end + checksum <= size and walked < self._steps:
            walked += 1
            bits = int.from_bytes(self._pread(3, end), "little")
            last, kind, length = bits & 1, bits >> 1 & 3, bits >> 3
            end += 3 + (1 if kind == 1 else length)
            if last and kind != 3 and length <= _BLOCK and end + checksum <= size:
                return end + checksum - at
        self._steps -= walked
        return None

    def _next(self, at: int, size: int) -> int:
        """Where the next frame seems to begin."""
        while at < size:
            window = self._pread(FRAME, at)
            found = window.find(_MAGIC)
            if found >= 0:
                return at + found
            at += max(1, len(window) - len(_MAGIC) + 1)
        return size


def _size_of(head: bytes) -> int | None:
    """How much text the frame that begins so says it holds."""
    import zstandard  # noqa: PLC0415

    if not head.startswith(_MAGIC):
        return None
    try:
        size = zstandard.frame_content_size(head)
    except zstandard.ZstdError:
        return None
    return size if size > 0 else None  # no frame is packed for nothing


def _skippable(head: bytes) -> int:
    """How long a skippable frame is that begins so; 0 if it is none."""
    if len(head) < _HEADER:
        return 0
    magic, length = struct.unpack_from("<II", head)
    return _HEADER + length if magic & 0xFFFFFFF0 == _SKIPPABLE & 0xFFFFFFF0 else 0


def _is_fair(length: int, size: int) -> bool:
    """Whether a frame may be opened: its bytes and its text both fit into memory."""
    return size <= MOST and length <= MOST + FRAME


def _judged(frame: Frame) -> Frame:
    if _is_fair(frame.length, frame.size):
        return frame
    return frame._replace(fault=f"a frame that claims more than {MOST} bytes")

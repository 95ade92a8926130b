"""Text that stands inside text in another form, and where each byte of it came from.

Two kinds.  Escapes change single characters: percent signs of URLs, HTML entities, backslashes of
JSON and of shells.  Runs hide all of them: base64 in both alphabets, hex, and what is packed by
gzip or zlib inside base64.
"""

from __future__ import annotations

import binascii
import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from urllib.parse import unquote_to_bytes

from holdfast.mask.linear import Pattern

LEAST_RUN = 24
_MOST_UNPACKED, _TIMES_UNPACKED = 8 << 20, 32
_BACK, _LINE = 256, 1 << 20
_SAMPLE = 64
_USUAL, _MANY = 10, 4096
_PRINTABLE = bytes(range(32, 127)) + b"\t\r\n"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_RUN_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-")
_WITH_A_DIGIT = "|".join(
    f"[A-Za-z+/_-]{{{before}}}[0-9][A-Za-z0-9+/_-]{{{LEAST_RUN - 1 - before},}}"
    for before in range(LEAST_RUN)
)
_LATE_DIGIT = rf"[A-Za-z+/_-]{{{LEAST_RUN},}}[0-9][A-Za-z0-9+/_-]*"
_ODD_CAPITALS = r"[A-Za-z0-9+/_-]*(?:[A-Z][a-z][A-Z]|[a-z][A-Z]{2})[A-Za-z+/_-]{12,}"
# From where a run begins.  If a match may begin anywhere in it, each way in which digits can stand
# in a run is a state of its own, and texts full of hashes take a hundred times as long.
_DENSE = rf"(?:\A|[^A-Za-z0-9+/_-])(?:{_WITH_A_DIGIT}|{_LATE_DIGIT}|{_ODD_CAPITALS})"
"""A run with a digit; or, without one, capitals as no name has them."""
_RUN = re.compile(
    rb"[A-Za-z0-9+/_-]++(?:(?:\\{1,4}[nr]|\r?\n)++[A-Za-z0-9+/_-]{16,}+)*+"
    rb"(?:(?:\\{1,4}[nr]|\r?\n)[A-Za-z0-9+/_-]++)?={0,2}"
)
_NO_BREAKS = re.compile(rb"\\+[nr]")
_PIECE = re.compile(
    rb"%([0-9A-Fa-f]{2})"
    rb"|&(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|quot|apos|amp|lt|gt|nbsp);"
    rb"|\\+(?:u00|x)([0-9A-Fa-f]{2})"
    rb"|\\+([nrt\"'/])"
)
_WHITE = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_ENTITIES = {b"quot": b'"', b"apos": b"'", b"amp": b"&", b"lt": b"<", b"gt": b">", b"nbsp": b" "}


class Unescaped:
    """A part of a text without its escapes."""

    def __init__(self, escaped: bytes, offset: int) -> None:
        self._escaped, self._offset = escaped, offset
        if b"&" in escaped or b"\\" in escaped:
            self.data = _PIECE.sub(lambda found: _MEANT.get(found[0]) or _character(found), escaped)
        else:
            self.data = _unquoted(escaped)

    @cached_property
    def _escapes(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Where the character of each escape begins in `data`; how many bytes it has, and from
        where to where its escape stands.

        Few texts hold a secret, so hardly anybody asks.
        """
        starts: list[int] = []
        escapes: list[tuple[int, int, int]] = []
        less = 0
        for found in _PIECE.finditer(self._escaped):
            size, (start, end) = len(_MEANT.get(found[0]) or _character(found)), found.span()
            starts.append(start - less)
            escapes.append((size, start, end))
            less += end - start - size
        return starts, escapes

    def origin(self, at: int, *, end: bool = False) -> int:
        """Where in the text the byte `at` comes from; with `end`, where the one before it ends."""
        starts, escapes = self._escapes
        look = at - end
        last = bisect_right(starts, look) - 1
        if last < 0:
            return self._offset + at
        size, begins, ends = escapes[last]
        if look >= starts[last] + size:
            return self._offset + ends + at - starts[last] - size
        return self._offset + (ends if end else begins)


class Forms:
    """Finds both kinds."""

    def __init__(self) -> None:
        # Each by itself, for a pattern that begins with one byte is looked for by that byte.
        self._escapes = (
            Pattern(r"%[2-7][0-9A-Fa-f]"),
            Pattern(r"&(?:#[0-9]{2}|#[xX][0-9A-Fa-f]|quot;|apos;|amp;|lt;|gt;)"),
            Pattern(r"\\(?:u00[2-7][0-9A-Fa-f]|x[2-7][0-9A-Fa-f]|/)"),
        )
        self._dense = Pattern(_DENSE)

    def unescaped(self, data: bytes) -> Iterator[Unescaped]:
        """The parts of `data` that hold escapes, without them."""
        at = 0
        nexts = [escape.find(data) for escape in self._escapes]
        while found := min(filter(None, nexts), default=None):
            start = max(at, found[0] - _BACK)
            at = _line_end(data, found[1])
            yield Unescaped(data[start:at], start)
            nexts = [
                escape.find(data, at) if one and one[0] < at else one
                for escape, one in zip(self._escapes, nexts, strict=True)
            ]

    def runs(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Where something stands that may be a text in base64 or hex."""
        at = 0
        while found := self._dense.find(data, at):
            start = found[0] + (data[found[0]] not in _RUN_BYTES)
            run = _RUN.match(data, start)
            end = run.end() if run else found[1]
            at = end - 1  # it may be the sign behind which the next one begins
            if end - start >= LEAST_RUN:
                yield start, end

    def any_run(self, data: bytes) -> bool:
        return self._dense.find(data) is not None


def _unquoted(escaped: bytes) -> bytes:
    """Without percent signs; there are no backslashes in it."""
    try:
        # As escapes of a string of Python, which its decoder reads many times faster.
        return escaped.replace(b"%", rb"\x").decode("unicode_escape").encode("latin-1")
    except UnicodeDecodeError:
        return unquote_to_bytes(escaped)  # some percent sign is only that


def _line_end(data: bytes, found: int) -> int:
    end = data.find(b"\n", found, found + _LINE)
    return min(len(data), (end if end >= 0 else found + _LINE) + _BACK)


_MEANT: dict[bytes, bytes] = {}
"""The same few stand in a text by the thousand."""


def _character(found: re.Match[bytes]) -> bytes:
    meant = _meant(found)
    if len(found[0]) <= _USUAL and len(_MEANT) < _MANY:
        _MEANT[found[0]] = meant
    return meant


def _meant(found: re.Match[bytes]) -> bytes:
    if entity := found[2]:
        return _ENTITIES.get(entity) or _numbered(entity)
    if digits := found[1] or found[3]:
        return bytes.fromhex(digits.decode())
    return _WHITE.get(found[4], found[4])


def _numbered(entity: bytes) -> bytes:
    number = int(entity[2:], 16) if entity[1:2] in b"xX" else int(entity[1:])
    return chr(number).encode("utf-8", "replace") if number < 0x110000 else b"?"


class Overfull(Exception):
    """A packed text holds more than is looked at."""


class Room:
    """How much may come out of one run, with all that is packed inside of it again.

    By its own length, so that what stands around it makes no difference.
    """

    def __init__(self, run: bytes) -> None:
        self._left = min(_MOST_UNPACKED, _TIMES_UNPACKED * len(run))

    def unpacked(self, data: bytes) -> bytes:
        """What gzip or zlib packed, if it is a text; Overfull if that is too long."""
        packed = zlib.decompressobj(47)
        begun = packed.decompress(data, _SAMPLE)
        if not _printable(_narrow(begun)):
            return begun
        text = begun + packed.decompress(packed.unconsumed_tail, self._left + 1)
        self._left -= len(text)
        if self._left < 0:
            raise Overfull
        return text


def said(run: bytes, room: Room) -> bytes | None:
    """The text that a run of base64 or hex stands for; Overfull if it takes too much room."""
    if not _plausible(run):
        return None
    # What has no backslash needs no pattern, which would be slow over a long run.
    whole = _NO_BREAKS.sub(b"", run) if b"\\" in run else run
    bare = whole.translate(_URL_SAFE, b" \t\n\r\v\f=")
    try:
        return _text(bytes.fromhex(bare.decode()), room)
    except ValueError:
        pass
    usable = len(bare) - (len(bare) % 4 == 1)
    try:
        return _text(binascii.a2b_base64(bare[:usable] + b"=" * (-usable % 4)), room)
    except binascii.Error:
        return None


def _plausible(run: bytes) -> bool:
    """Whether its beginning, taken as base64 or hex, begins a text or a packed one."""
    head = run[:_SAMPLE]
    if head.islower() or head.isupper():  # a word of a program, a path, a hash; no base64
        return _begins_hex(head)
    if head.startswith((b"H4sI", b"eJ", b"eN", b"eA")):
        return True
    try:
        begun = binascii.a2b_base64(head[:20].translate(_URL_SAFE))
    except binascii.Error:
        return False
    if len(begun.translate(None, _PRINTABLE)) <= 1 or begun.count(0) > 5:
        return True
    return _begins_hex(head)


def _begins_hex(head: bytes) -> bool:
    # The first digit of a printable character, and most words are out.
    if head[0] not in b"234567":
        return False
    try:
        return _printable(bytes.fromhex(head[:20].decode()))
    except ValueError:
        return False


def _printable(sample: bytes) -> bool:
    return len(sample.translate(None, _PRINTABLE)) * 8 <= len(sample)


def _text(data: bytes, room: Room) -> bytes | None:
    if data[:2] == b"\x1f\x8b" or data[:1] == b"\x78":
        try:
            data = room.unpacked(data)
        except zlib.error:
            pass
    data = _narrow(data)
    return data if _printable(data[:_SAMPLE]) else None


def _narrow(data: bytes) -> bytes:
    """Without the zero bytes of UTF-16, as shells of Windows pack their commands."""
    if data[:_SAMPLE].count(0) * 3 > len(data[:_SAMPLE]):
        return data.replace(b"\0", b"")
    return data

"""A file of records taken apart: what can be read of it, and the bytes that cannot.

Nothing is dropped: records and rejects together are all that the file holds besides blank space.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from holdfast.codec import Record, encode
from holdfast.contracts.kind import Finding
from holdfast.errors import BadValue
from holdfast.validate.scan import Found, Scan

NOT_EXACT = "not_strict"
"""A value that reads differently with the next reader: a key twice, a number too long."""


class Piece(NamedTuple):
    line: int
    """Where it begins, counted from 1."""
    offset: int
    raw: bytes
    record: Record | None
    """None: these bytes are no record."""
    why: str = ""
    """What is wrong with it."""
    exact: bool = True
    """Whether every reader gets the same record out of the bytes."""
    alone: bool = False
    """Whether the record has a sound line for itself."""

    @property
    def text(self) -> bytes:
        """A line for the record: its own if it has one; BadValue if it cannot be written."""
        return self.raw.strip() if self.alone else encode(self.record)


def pieces(data: bytes) -> Iterator[Piece]:
    """The pieces in the order of the file."""
    scan, starts = Scan(data), _line_starts(data)
    position = mark = len(data) - len(scan.data)
    for found in scan.values():
        told, scan.told = scan.told, []
        at = found.start + mark
        yield from _rejects(data, position, at, starts, told)
        position = at + len(found.raw)
        yield from _records(found, at, [each for each in told if each.line >= found.line])
    yield from _rejects(data, position, len(data), starts, scan.told)


def _records(found: Found, at: int, told: list[Finding]) -> Iterator[Piece]:
    value: Any = found.value
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    why = "; ".join(each.reason for each in told if each.level == "error")
    if not values or not all(isinstance(each, dict) for each in values):
        yield Piece(found.line, at, found.raw, None, why or "not an object")
        return
    exact = all(each.code != NOT_EXACT for each in told)
    alone = found.sound and len(values) == 1 and b"\n" not in found.raw.strip()
    for record in values:
        yield Piece(found.line, at, found.raw, record, why, exact, alone)
    if not found.sound and not _same_but_brackets(found.raw, found.value):
        yield Piece(found.line, at, found.raw, None, why)


def _same_but_brackets(raw: bytes, value: object) -> bool:
    """Whether nothing was left out of a line but closing brackets."""
    ignored = b"{}[] \t\r\n"
    try:
        return raw.translate(None, ignored) == encode(value).translate(None, ignored)
    except BadValue:
        return False


def _rejects(
    data: bytes, start: int, end: int, starts: list[int], told: list[Finding]
) -> Iterator[Piece]:
    """The lines between two places that have anything on them."""
    told = sorted(told, key=lambda each: each.line)
    lines = [each.line for each in told]
    while start < end:
        cut = data.find(b"\n", start, end) + 1 or end
        if data[start:cut].strip():
            line = bisect_right(starts, start)
            before = bisect_right(lines, line)
            reason = told[before - 1].reason if before else "no value"
            yield Piece(line, start, data[start:cut], None, reason)
        start = cut


def _line_starts(data: bytes) -> list[int]:
    starts = [0]
    while (at := data.find(b"\n", starts[-1])) >= 0:
        starts.append(at + 1)
    return starts

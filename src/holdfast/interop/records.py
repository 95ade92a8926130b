"""Files of records that may be damaged: taken apart, repaired into a new file, merged into one.

Nothing is dropped: records and rejects together are all that a file holds besides blank space.
The files themselves are only read.
"""

from __future__ import annotations

import re
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, Record, encode
from holdfast.contracts.kind import Finding
from holdfast.contracts.ledger import content
from holdfast.errors import BadValue
from holdfast.ledger.foreign import instant_in
from holdfast.store.chain import ORIGIN, body, seal
from holdfast.store.primitives import CONTROL
from holdfast.validate.scan import Found, Scan

_LONGEST = 4 * MAX_DOCUMENT
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

    @property
    def reject(self) -> Record:
        place: Record = {"line": self.line, "offset": self.offset, "reason": self.why}
        try:
            return {**place, "text": self.raw.decode()}
        except UnicodeDecodeError:
            return {**place, "base64": b64encode(self.raw).decode()}


def pieces(data: bytes) -> Iterator[Piece]:
    """The pieces in the order of the file."""
    scan, starts = Scan(data), [0, *(end.end() for end in re.finditer(b"\n", data))]
    position = mark = len(data) - len(scan.data)
    for found in scan.values():
        findings, scan.told = scan.told, []
        at = found.start + mark
        yield from _rejects(data, position, at, starts, findings)
        position = at + len(found.raw)
        yield from _records(found, at, [each for each in findings if each.line >= found.line])
    yield from _rejects(data, position, len(data), starts, scan.told)


def _records(found: Found, at: int, findings: list[Finding]) -> Iterator[Piece]:
    value: Any = found.value
    values = cast("list[Any]", value) if isinstance(value, list) else [value]
    why = "; ".join(each.reason for each in findings if each.level == "error")
    if not values or not all(isinstance(each, dict) for each in values):
        yield Piece(found.line, at, found.raw, None, why or "not an object")
        return
    exact = all(each.code != NOT_EXACT for each in findings)
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
    data: bytes, start: int, end: int, starts: list[int], findings: list[Finding]
) -> Iterator[Piece]:
    """The lines between two places that have anything on them."""
    findings = sorted(findings, key=lambda each: each.line)
    lines = [each.line for each in findings]
    while start < end:
        cut = data.find(b"\n", start, end) + 1 or end
        if data[start:cut].strip():
            line = bisect_right(starts, start)
            before = bisect_right(lines, line)
            reason = findings[before - 1].reason if before else "no value"
            yield Piece(line, start, data[start:cut], None, reason)
        start = cut


# --- repairing ------------------------------------------------------------------------------


class Repaired(NamedTuple):
    data: bytes
    entries: int
    mended: int
    """How many of them did not have a sound line of their own."""
    rejects: list[Piece]

    @property
    def reject_lines(self) -> bytes:
        """The rejects as a file: one object a line, with the bytes as text where they are text."""
        return b"".join(encode(each.reject, limit=_LONGEST) + b"\n" for each in self.rejects)


def repair(data: bytes) -> Repaired:
    lines, mended, rejects = list[bytes](), 0, list[Piece]()
    for piece in pieces(data):
        if piece.record is None:
            rejects.append(piece)
            continue
        try:
            lines.append(piece.text)
            mended += not piece.alone
        except BadValue as error:
            rejects.append(piece._replace(why=error.message))
    return Repaired(b"".join(line + b"\n" for line in lines), len(lines), mended, rejects)


# --- merging --------------------------------------------------------------------------------


class _Entry(NamedTuple):
    """Sorts as it will stand."""

    instant: float
    """Endless for an entry that does not say when."""
    content: bytes
    line: bytes


class Source(NamedTuple):
    """What one of the files held."""

    entries: int
    news: int
    """How many of them no file before it had, duplicates of its own not counted."""
    rejects: list[Piece]


class Merged(NamedTuple):
    data: bytes
    entries: int
    sources: dict[str, Source]


def merge(files: Mapping[str, bytes]) -> Merged:
    """The union of the files, which are given by name."""
    known: dict[bytes, _Entry] = {}
    sources: dict[str, Source] = {}
    for name, data in files.items():
        entries, before, rejects = 0, len(known), list[Piece]()
        for piece in pieces(data):
            record = piece.record
            if record is not None and CONTROL in record:
                continue  # a log wrote it about itself, not about what happened
            line = _line_of(piece)
            if record is None or line is None:
                rejects.append(piece)
                continue
            entries += 1
            same = content(record)
            entry = _Entry(instant_in(record) or float("inf"), same, line)
            # The same content can be spelled in another order of fields: one has to win.
            known[same] = min(entry, known.get(same, entry))
        sources[name] = Source(entries, len(known) - before, rejects)
    lines, link = list[bytes](), ORIGIN
    for entry in sorted(known.values()):
        line, link = seal(entry.line, link)
        lines.append(line)
    return Merged(b"".join(lines), len(known), sources)


def _line_of(piece: Piece) -> bytes | None:
    """The entry as it can be sealed; None if it cannot, or not every reader would get the same."""
    if piece.record is None or not piece.exact:
        return None
    try:
        links = ("seq", "hash")
        return body({name: each for name, each in piece.record.items() if name not in links})
    except BadValue:
        return None

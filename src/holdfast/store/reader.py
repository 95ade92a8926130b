"""Reading a log: records out of bytes, and proof that the bytes are the ones written.

Readers never write.  A bad line is reported and reading goes on behind it; an unterminated
tail of the newest segment is somebody's append in progress.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import NamedTuple

from holdfast.codec import MAX_LINE, DecodeError, Record, decode_record
from holdfast.store.chain import GENESIS, SUFFIX, Hash, Seal, holds, is_sealed, read_seal
from holdfast.store.packed import Lost
from holdfast.store.primitives import (
    CONTROL,
    CUT,
    FAILED,
    START,
    BadLine,
    Cursor,
    Line,
    Problem,
    Verified,
)

_WORD = b'"_log":'
_TOO_LONG = f"longer than {MAX_LINE} bytes"


class Source(NamedTuple):
    """The bytes of one segment from `start` on."""

    name: str
    start: int
    last: bool
    """Whether it is the newest segment, whose tail may be in progress."""
    chunks: Iterator[bytes | Lost]


class Batch(NamedTuple):
    offset: int
    lines: list[bytes]
    """Whole lines without LF, or one piece of a line that is too long."""
    piece: bool = False
    ends: bool = True
    """Whether a piece ends its line."""
    lost: Lost | None = None
    """Instead of lines: bytes that cannot be had."""


def split(source: Source) -> Iterator[Batch]:
    """Cut a segment at LF only; the unterminated tail comes last as a piece that does not end."""
    offset, rest, long = source.start, b"", False
    for chunk in source.chunks:
        if isinstance(chunk, Lost):
            if rest or long:
                yield Batch(offset, [rest], piece=True)
            offset, rest, long = offset + len(rest), b"", False
            yield Batch(offset, [], lost=chunk)
            offset += chunk.size
            continue
        data = rest + chunk
        if long:
            cut = data.find(b"\n") + 1
            yield Batch(offset, [data[: cut or None]], piece=True, ends=cut > 0)
            offset += cut or len(data)
            data = data[cut:] if cut else b""
            long = cut == 0
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines:
            yield Batch(offset, lines)
            offset += len(data) - len(rest)
        if len(rest) > MAX_LINE:
            yield Batch(offset, [rest], piece=True, ends=False)
            offset, rest, long = offset + len(rest), b"", True
    if rest:
        yield Batch(offset, [rest], piece=True, ends=False)


def read_lines(sources: Iterable[Source]) -> Iterator[Line | BadLine]:
    """Every record and every bad line, in order."""
    for source in sources:
        began: int | None = None
        end = source.start
        for offset, lines, piece, ends, lost in split(source):
            if piece:
                began = offset if began is None else began
                end = offset + len(lines[0])
                if ends:
                    yield BadLine(source.name, began, end, _why(end - began))
                    began = None
                continue
            end = offset
            if lost is not None:
                yield BadLine(source.name, offset, offset + lost.size, lost.reason)
            for raw in lines:
                start, end = end, end + len(raw) + 1
                if b"\0" in raw and (lost := _lost_before(raw)):
                    yield BadLine(source.name, start, start + lost, "NUL bytes")
                    start, raw = start + lost, raw[lost:]
                line = line_of(raw, source.name, start, end)
                if isinstance(line, BadLine) and (lost := _whole_before(raw)):
                    behind = line_of(raw[lost:], source.name, start + lost, end)
                    if isinstance(behind, Line):
                        yield line._replace(end=start + lost)
                        line = behind
                yield line
        if began is not None and not source.last:
            yield BadLine(source.name, began, end, "no line end")


def _why(size: int) -> str:
    """What is wrong with a line that is not read because of its length or its end."""
    return _TOO_LONG if size > MAX_LINE else "no line end"


def _lost_before(raw: bytes) -> int:
    """How many bytes a failed disk lost, its LF among them, in front of a line that is whole."""
    start = raw.rfind(b"\0") + 1
    return start if raw[start : start + 1] == b"{" and read_seal(raw) else 0


def _whole_before(raw: bytes) -> int:
    """How many bytes stand in front of a sealed line because one bit of an LF has flipped."""
    ends = [match.end() for match in SUFFIX.finditer(raw)][:-1]
    if not ends or read_seal(raw) is None or (raw[ends[-1]] ^ 0x0A).bit_count() != 1:
        return 0
    return ends[-1] + 1


def line_of(raw: bytes, segment: str, start: int, end: int) -> Line | BadLine:
    """The record on a line without its LF, or why there is none."""
    try:
        record = decode_record(raw)
    except DecodeError as error:
        return BadLine(segment, start, end, str(error))
    if not is_sealed(raw):
        return Line(None, None, record, segment, start, end)
    return Line(record.pop("seq"), record.pop("hash"), record, segment, start, end)


def verify(sources: Iterable[Source]) -> Verified:
    """Follow the chain over all segments and name every place where it breaks."""
    proof = _Proof()
    for source in sources:
        proof.segment(source)
    return Verified(
        proof.sealed,
        proof.unchained,
        proof.bad,
        len(proof.bad) - proof.sealed_bad,
        proof.problems,
        proof.in_progress,
        proof.head,
    )


class _Proof:
    def __init__(self) -> None:
        self.sealed = self.unchained = self.sealed_bad = self.in_progress = 0
        self.bad: list[BadLine] = []
        self.problems: list[Problem] = []
        self.head = START
        self._seq = 0
        self._digest: bytes = GENESIS
        self._gap: Hash | None = None
        self._nul = False

    def segment(self, source: Source) -> None:
        number, end, began = 0, source.start, None
        for offset, lines, piece, ends, lost in split(source):
            if piece:
                began = offset if began is None else began
                end = offset + len(lines[0])
                self._into_gap(lines[0])
                if ends:
                    number += 1
                    self.bad.append(BadLine(source.name, began, end, _why(end - began), number))
                    began = None
                continue
            if lost is not None:
                end = offset + lost.size
                self.bad.append(BadLine(source.name, offset, end, lost.reason, number + 1))
                self._nul = True
                self._into_gap(b"")  # the next line is looked at closely
                continue
            end = self._lines(source.name, number, offset, lines)
            number += len(lines)
        if began is not None:
            self.in_progress = end - began
            if not source.last:
                self.bad.append(BadLine(source.name, began, end, "no line end", number + 1))
                self.in_progress = 0
        if end == 0:
            self._problem("empty", source.name, 1, 0, "0 bytes: its lines were removed")

    def _lines(self, segment: str, number: int, offset: int, lines: list[bytes]) -> int:
        seq, digest, sealed = self._seq, self._digest, self.sealed
        newest = -1
        for raw in lines:
            number += 1
            # The common case, kept free of calls: the next line of ours, nothing in between.
            if self._gap is None:
                follows = sha256(digest + sha256(raw[:-75]).digest()).digest()
                if raw.endswith(b',"seq":%d,"hash":"%b"}' % (seq + 1, hexlify(follows))):
                    seq += 1
                    sealed += 1
                    digest = follows
                    if _WORD in raw:
                        self._heed(segment, number, offset, raw)
                    newest = offset = offset + len(raw) + 1
                    continue
            self._seq, self._digest, self.sealed = seq, digest, sealed
            ours = self._unusual(segment, number, offset, raw)
            seq, digest, sealed = self._seq, self._digest, self.sealed
            offset += len(raw) + 1
            newest = offset if ours else newest
        self._seq, self._digest, self.sealed = seq, digest, sealed
        if newest >= 0:
            self.head = Cursor(seq, digest.hex(), segment, newest)
        return offset

    def _unusual(self, segment: str, number: int, offset: int, raw: bytes) -> bool:
        """Take in a line that is not simply the next one of ours; whether it is sealed."""
        found = read_seal(raw)
        if found is None:
            self._into_gap(raw + b"\n")
            line = line_of(raw, segment, offset, offset + len(raw) + 1)
            if isinstance(line, Line):
                self.unchained += 1
            else:
                self.bad.append(line._replace(line=number))
            return False
        self._judge(segment, number, offset, raw, found)
        self.sealed += 1
        self.sealed_bad = len(self.bad)
        self._seq, self._digest, self._gap, self._nul = found.seq, found.digest, None, False
        return True

    def _judge(self, segment: str, number: int, offset: int, raw: bytes, found: Seal) -> None:
        expected = self._seq + 1
        if found.seq > expected:
            detail = f"lines {expected} to {found.seq - 1} are not there"
            kind, told = "missing", _control(raw)
            if told.get(CONTROL) == FAILED:
                kind = "damaged"
                detail += f": the disk failed under {told.get('segment')} ({told.get('error')})"
            self._problem(kind, segment, number, offset, detail, lost=b"\0" in raw)
        elif found.seq < expected:
            detail = f"line {found.seq} stands where {expected} belongs"
            self._problem("misplaced", segment, number, offset, detail)
        elif not holds(raw, found, self._digest, self._gap):
            detail = f"line {found.seq}, or bytes before it, is not what was written"
            lost = b"\0" in raw or _control(raw).get(CONTROL) == FAILED
            self._problem("edited", segment, number, offset, detail, lost=lost)
        else:
            self._heed(segment, number, offset, raw)

    def _heed(self, segment: str, number: int, offset: int, raw: bytes) -> None:
        """A sound line may say that the log was not: its tail was once cut off."""
        record = _control(raw)
        if record.get(CONTROL) == CUT:
            detail = f"lines up to {record.get('lost')} were once there; the tail was cut off here"
            self._problem("cut", segment, number, offset, detail)

    def _problem(
        self, kind: str, segment: str, line: int, offset: int, detail: str, *, lost: bool = False
    ) -> None:
        if lost or self._nul:
            # We never write NUL: the disk lost bytes that it had not been told to keep.
            kind, detail = "damaged", f"{detail}: a crash or a failing disk lost bytes"
        self.problems.append(Problem(kind, segment, line, offset, detail))

    def _into_gap(self, data: bytes) -> None:
        self._nul = self._nul or b"\0" in data
        if self._gap is None:
            self._gap = sha256()
        self._gap.update(data)


def _control(raw: bytes) -> Record:
    """The record of a line that the log wrote about itself; empty for any other line."""
    try:
        record = decode_record(raw)
    except DecodeError:
        return {}
    return record if CONTROL in record else {}

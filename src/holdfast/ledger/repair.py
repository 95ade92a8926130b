"""What can be saved of a damaged file of records, in a new file beside it.

Lines that are sound are taken over byte for byte.  What stands several to a line, or over several
lines, gets a line for each; brackets too many are taken out.  All other bytes are rejects, kept
with their place and the reason.  The original is only read.
"""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple

from holdfast.codec import MAX_DOCUMENT, encode
from holdfast.errors import BadValue
from holdfast.ledger.pieces import Piece, pieces

_LONGEST = 4 * MAX_DOCUMENT


class Repaired(NamedTuple):
    data: bytes
    entries: int
    mended: int
    """How many of them did not have a sound line of their own."""
    rejects: list[Piece]

    @property
    def reject_lines(self) -> bytes:
        """The rejects as a file: one object a line, with the bytes as text where they are text."""
        return b"".join(encode(_told(each), limit=_LONGEST) + b"\n" for each in self.rejects)


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


def _told(piece: Piece) -> dict[str, object]:
    place = {"line": piece.line, "offset": piece.offset, "reason": piece.why}
    try:
        return {**place, "text": piece.raw.decode()}
    except UnicodeDecodeError:
        return {**place, "base64": b64encode(piece.raw).decode()}

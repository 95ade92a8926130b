"""Several files of one ledger as one: the union of their entries, by content.

The content of an entry is all of it but its number and hash.  Each distinct one comes once,
ordered by its instant and then by content, and is chained anew.  So the order of the files does
not matter, and merging the result again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.codec import Record
from holdfast.contracts.ledger_watch import content
from holdfast.errors import BadValue
from holdfast.ledger.foreign import instant_in
from holdfast.ledger.pieces import Piece, pieces
from holdfast.store.chain import ORIGIN, body, seal
from holdfast.store.primitives import CONTROL


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
    return Merged(_chained(known.values()), len(known), sources)


def _line_of(piece: Piece) -> bytes | None:
    """The entry as it can be sealed; None if it cannot, or not every reader would get the same."""
    if piece.record is None or not piece.exact:
        return None
    try:
        return body(_bare(piece.record))
    except BadValue:
        return None


def _bare(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in ("seq", "hash")}


def _chained(entries: Iterable[_Entry]) -> bytes:
    lines, link = list[bytes](), ORIGIN
    for entry in sorted(entries):
        line, link = seal(entry.line, link)
        lines.append(line)
    return b"".join(lines)

"""Files as data of a memory: pieces of text under `ingest/<source>`.

Each piece names its file and the sha256 of the file, so a file that did not change is left alone,
and one that did replaces its pieces.  Only text is taken; the files themselves are never touched.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from holdfast.errors import NotFound
from holdfast.memory.datum import Datum, datum_line, forget_line
from holdfast.memory.names import fault
from holdfast.memory.topics import Topics
from holdfast.text import pieces
from holdfast.userfile import texts_below

LARGEST = 8 << 20
"""Bytes of one file."""
PIECE = 1_200
"""Characters of a piece, at most."""
_AT_ONCE = 1_000


@dataclass
class Ingested:
    """What became of the files."""

    added: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    unchanged: int = 0
    gone: list[str] = field(default_factory=list[str])
    """Files of which memory has pieces, and which are not there any more."""
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Files that were not taken, and why."""
    pieces: int = 0


def ingest(topics: Topics, paths: Sequence[str], *, prune: bool = False) -> Ingested:
    """Take in files, and all below folders; with `prune`, forget the pieces of those gone."""
    done, lines, now = Ingested(), list[dict[str, object]](), topics.now()
    for root in map(os.path.abspath, paths):
        topic = f"ingest/{os.path.basename(root)}"
        topic = "ingest/files" if fault(topic) else topic
        known = _known(topics, root)
        if not os.path.lexists(root) and not known:
            raise NotFound(f"no such file or folder: {root}", hint="name one that exists")
        found = set[str]()
        for path, text in texts_below(root, LARGEST, done.skipped):
            found.add(path)
            old, digest = known.get(path, []), f"sha256:{sha256(text.encode()).hexdigest()}"
            if old and {datum.meta.get("hash") for datum in old} == {digest}:
                done.unchanged += 1
                continue
            if not (parts := list(pieces(text, PIECE))) and not old:
                done.skipped[path] = "empty"
                continue
            for number, part in enumerate(parts, 1):
                place = {"origin": path, "hash": digest, "piece": number, "of": len(parts)}
                lines.append(datum_line(topic, part, ts=now, meta=place, source=path))
            if old:
                lines.append(forget_line([datum.id for datum in old], "superseded", now))
            (done.changed if old else done.added).append(path)
            done.pieces += len(parts)
            if len(lines) >= _AT_ONCE:
                topics.append(lines)
                lines = []
        gone = [each for each in known.keys() - found if _is_gone(each, done.skipped)]
        done.gone += sorted(gone)
        if prune and gone:
            ids = [datum.id for path in gone for datum in known[path]]
            lines.append(forget_line(ids, "asked", now))
    topics.append(lines)
    return done


def _known(topics: Topics, root: str) -> dict[str, list[Datum]]:
    """The pieces that memory has of files at and below a place, whatever they were named by."""
    known: dict[str, list[Datum]] = {}
    for datum in topics.under("ingest"):
        origin = datum.meta.get("origin")
        if isinstance(origin, str) and (origin == root or origin.startswith(f"{root}/")):
            known.setdefault(origin, []).append(datum)
    return known


def _is_gone(path: str, skipped: dict[str, str]) -> bool:
    """Not if it is a link now, or in a folder that cannot be read."""
    return not os.path.lexists(path) and not any(path.startswith(f"{each}/") for each in skipped)

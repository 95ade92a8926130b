"""A log in many small segments, and everything that can be asked of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.store.home import Home
from holdfast.store.log import FileLog
from holdfast.store.primitives import Cursor, Line

KEY = "state/rio/journal.jsonl"


def twenty_lines(home: Home) -> FileLog:
    """Twenty lines in several segments."""
    made = home.log(KEY, rotate_at=350)
    for n in range(20):
        made.append({"n": n})
    return made


def seen_in(log: FileLog) -> tuple[Any, ...]:
    """Everything that can be asked of a log."""
    lines = list(log.read())
    cursors = [
        Cursor(line.seq, line.hash, line.segment, line.end)
        for line in lines
        if isinstance(line, Line) and line.seq is not None and line.hash is not None
    ]
    behind = [list(log.read(cursor)) for cursor in cursors]
    there = [log.contains(cursor) for cursor in cursors]
    there += [log.contains(cursor._replace(offset=cursor.offset + 1)) for cursor in cursors]
    return lines, behind, there, log.verify(), log.head(), log.segments()


def visible(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if not name.startswith("."))


def temporaries(place: Path) -> list[str]:
    return [name for name in os.listdir(place) if name.endswith(".tmp")]


def both(log: FileLog, place: Path) -> str:
    """The first segment, packed and plain."""
    name = log.segments()[0]
    data = (place / name).read_bytes()
    log.archive()
    (place / name).write_bytes(data)
    return name

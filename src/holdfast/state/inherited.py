"""The lines of another log that a log goes on from, as that of a fork does."""

from __future__ import annotations

from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Line


def lines_before(
    home: Backend, key: str, parent: str, last: int, hash: str, after: Cursor = START
) -> list[Line]:
    """The lines of `parent` up to number `last`, which has this hash.

    None, and a notice, if the line is not there: then the log `key` reaches back into nothing.
    """
    log = home.log(parent)
    try:
        lines = [line for line in log.read(after) if isinstance(line, Line)]
    finally:
        log.close()
    found = [line for line in lines if line.seq is not None and line.seq <= last]
    if found and (found[-1].seq, found[-1].hash) == (last, hash):
        return found
    home.notice("fork_lost", f"{key} reaches back into {parent}: not there")
    return []

"""Events that could not be written to their home, kept until they can.

A spool is a log in the user's state directory, one for each home and agent.  It is never
emptied: the ledger itself says how far it has been taken in (`ref: spool:<id>#N`, where the
id is the hash of the spool's first line), so that an event arrives exactly once whatever
dies in between.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import DecodeError, decode, encode
from holdfast.ledger.book import Event
from holdfast.store.home import Home
from holdfast.store.primitives import START, Cursor, Line

if TYPE_CHECKING:
    from holdfast.clock import Clock

_KEY = "spool"


def directory() -> str:
    """Where the spools of this user lie."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "holdfast")


class Waiting(NamedTuple):
    """Kept events, oldest first, and where they end."""

    events: list[Event]
    end: Cursor


class Spool:
    def __init__(self, home_path: str, agent: str, clock: Clock) -> None:
        place = sha256(os.path.abspath(home_path).encode()).hexdigest()[:16]
        self._key = f"{_KEY}/{place}/{agent.lower()}.jsonl"
        self._passed_key = f"{_KEY}/{place}/{agent.lower()}.passed.json"
        self._clock = clock

    @property
    def path(self) -> str:
        return os.path.join(directory(), self._key)

    def put(self, event: Event) -> None:
        """Keep an event; its task, session and data as they were given."""
        record = event._asdict()
        del record["extra"]
        with Home.open(directory(), create=True, clock=self._clock) as home:
            log = home.log(self._key)
            log.append(record)
            log.close()

    def waiting(self, taken: Mapping[str, int]) -> Waiting:
        """What is not in the ledger yet; `taken` is how far the ledger has taken in each spool."""
        if not os.path.exists(self.path):
            return Waiting([], START)
        with Home.open(directory(), clock=self._clock) as home:
            log = home.log(self._key)
            first = next((line for line in log.read() if isinstance(line, Line)), None)
            if first is None:
                return Waiting([], START)
            spool = str(first.hash)[:16]
            passed, done = self._read_passed(home), taken.get(spool, 0)
            log.settle()  # visible is not durable, and we are about to act on it
            # The ledger may be an older copy of itself: then it wants those events again.
            kept = log.read(passed if passed.seq <= done else START)
            lines = [line for line in kept if isinstance(line, Line) and (line.seq or 0) > done]
            end = lines[-1].cursor if lines else START
            return Waiting([_event(line, spool) for line in lines], end)

    def passed(self, end: Cursor) -> None:
        """Remember where to go on.  A hint that saves time: only the ledger counts."""
        with Home.open(directory(), clock=self._clock) as home:
            home.document(self._passed_key).replace(encode(list(end)))

    def _read_passed(self, home: Home) -> Cursor:
        text = home.document(self._passed_key).read()
        try:
            found = decode(text.data) if text else None
        except DecodeError:
            return START
        match found:
            case [int(seq), str(digest), str(segment), int(offset)]:
                cursor = Cursor(seq, digest, segment, offset)
                return cursor if home.log(self._key).contains(cursor) else START
            case _:
                return START


def _event(line: Line, spool: str) -> Event:
    record = {name: line.record[name] for name in Event._fields if name != "extra"}
    extra = {"ref": f"{_KEY}:{spool}#{line.seq}", "occurred_at": line.record["ts"]}
    return Event(**record, extra=extra)

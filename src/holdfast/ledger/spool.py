"""Events that could not be written to their home, kept until they can.

A spool is a log in the user's state directory, one for each home and agent.  It is never
emptied: the ledger itself says how far it has been taken in (`ref: spool:<id>#N`, where the
id is the hash of the spool's first line), so that an event arrives exactly once whatever
dies in between.
"""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.ledger.book import Event
from holdfast.store.home import Home
from holdfast.store.primitives import Line

if TYPE_CHECKING:
    from holdfast.clock import Clock

_KEY = "spool"


def directory() -> str:
    """Where the spools of this user lie."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "holdfast")


class Spool:
    def __init__(self, home_path: str, agent: str, clock: Clock) -> None:
        place = sha256(os.path.abspath(home_path).encode()).hexdigest()[:16]
        self._key = f"{_KEY}/{place}/{agent.lower()}.jsonl"
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

    def waiting(self) -> list[Event]:
        """The kept events, oldest first; those already taken in among them."""
        if not os.path.exists(self.path):
            return []
        with Home.open(directory(), clock=self._clock) as home:
            log = home.log(self._key)
            log.settle()  # visible is not durable, and we are about to act on it
            lines = [line for line in log.read() if isinstance(line, Line) and line.hash]
            return [_event(line, str(lines[0].hash)[:16]) for line in lines]


def _event(line: Line, spool: str) -> Event:
    record = {name: line.record[name] for name in Event._fields if name != "extra"}
    extra = {"ref": f"{_KEY}:{spool}#{line.seq}", "occurred_at": line.record.get("ts")}
    return Event(**record, extra=extra)

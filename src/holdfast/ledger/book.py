"""The ledger of one agent: write an event, read events back, prove that none was touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import layout
from holdfast.clock import instant_of, local_stamp, zone
from holdfast.codec import Record
from holdfast.errors import BadName
from holdfast.ids import agent_id, session_id
from holdfast.ledger.entry import check_event, entry, task_for
from holdfast.ledger.status import STATUS, State, current_session, next_session, spooled_from
from holdfast.store.primitives import CONTROL, START, Cursor, Line, Problem, Verified

if TYPE_CHECKING:
    from holdfast.store.home import Home

NEW = "new"
"""In place of a session id: begin the next session."""


class Event(NamedTuple):
    """What a writer says about an event; the rest is found out when it is written."""

    event: str
    summary: str
    source: str
    task: str | None = None
    session: str | None = None
    data: dict[str, Any] | None = None
    extra: Record | None = None
    """Fields beside the documented ones, such as where a spooled event comes from."""


class Written(NamedTuple):
    cursor: Cursor
    record: Record


class Found(NamedTuple):
    """An entry and where it stands."""

    record: Record
    line: Line

    @property
    def instant(self) -> float:
        try:
            return instant_of(str(self.record.get("ts")))
        except ValueError:
            return 0.0

    def cursor(self, before: Cursor | None) -> Cursor:
        """Where reading goes on behind it."""
        line, last = self.line, before or START
        return Cursor(line.seq or last.seq, line.hash or last.hash, line.segment, line.end)


class Ledger:
    def __init__(self, home: Home, agent: str) -> None:
        self._home, self.agent = home, agent_id(agent).lower()
        self._log = home.log(layout.ledger(self.agent))
        self._status = home.view(layout.status(self.agent), self._log, STATUS)
        self._zone = zone(home.settings.timezone)

    # -- writing -----------------------------------------------------------------------

    def write(self, *events: Event) -> Written:
        """Append events in one act; what became of the last one."""
        for event in events:
            check_event(event.event, self._home.settings.extra_events)
            task_for(event.event, event.task)
        self._status.read()  # outside the log's lock, so that inside there is little left to do
        records: list[Record] = []

        def decide(_: Cursor) -> list[Record]:
            state = self._status.read()
            for event in events:
                # Taken from the spool before, by somebody who died before he could say so.
                if not 0 < spooled_from(event.extra or {}) <= state["spooled"]:
                    records.append(self._record(event, state))
            return records

        cursor = self._log.transact(decide)[-1]
        self._status.refresh(cursor)
        return Written(cursor, records[-1])

    def _record(self, event: Event, state: State) -> Record:
        record = entry(
            agent=self.agent,
            session=self._session(event.session, state),
            event=event.event,
            task=task_for(event.event, event.task),
            source=event.source,
            summary=event.summary,
            data=event.data or {},
        )
        return record | (event.extra or {})

    def _session(self, asked: str | None, state: State) -> str:
        today = self._home.today()
        if asked == NEW:
            return str(next_session(state, self.agent, today))
        if asked is None:
            return str(current_session(state, self.agent, today))
        if session_id(asked).agent != self.agent:
            raise BadName(
                f"session {asked} is not one of {self.agent}",
                hint=f"leave --session out, or use --session new to begin one for {self.agent}",
            )
        return asked

    def close(self) -> None:
        self._status.close()
        self._log.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- reading -----------------------------------------------------------------------

    def status(self) -> State:
        return self._status.read()

    def rebuild(self) -> list[str]:
        """Fold the status anew; the names under which edited files were kept."""
        self._status.rebuild()
        return self._status.kept_aside

    def exists(self) -> bool:
        return bool(self._log.segments())

    def read(self, after: Cursor = START) -> Iterator[Found]:
        """Entries in the order of writing."""
        for line in self._log.read(after):
            if isinstance(line, Line) and CONTROL not in line.record:
                yield Found(line.record, line)

    def newest(
        self, limit: int | None, wanted: Callable[[Found], bool], since: float | None = None
    ) -> list[Found]:
        """The last `limit` entries that are wanted, oldest first; reads day by day, backwards."""
        found: list[Found] = []
        for segment in reversed(self._log.segments()):
            if since is not None and segment[:10] < local_stamp(since, self._zone)[:10]:
                break
            found = [*filter(wanted, self._of(segment)), *found]
            if limit is not None and len(found) >= limit:
                return found[len(found) - limit :]
        return found

    def _of(self, segment: str) -> Iterator[Found]:
        for found in self.read(Cursor(0, START.hash, segment, 0)):
            if found.line.segment != segment:
                return
            yield found

    def head(self) -> Cursor:
        return self._log.head()

    def verify(self) -> Verified:
        """The proof of the log, and of what its status once saw."""
        found = self._log.verify()
        stamp = self._home.cell(layout.status(self.agent)).peek()
        if stamp is not None and not self._log.contains(stamp.cursor):
            newest = found.head
            detail = f"lines up to {stamp.cursor.seq} were once there, the last one is {newest.seq}"
            found.problems.append(Problem("cut", newest.segment or "-", 0, newest.offset, detail))
        return found


def agents(home: Home) -> list[str]:
    """Every agent that has a ledger or a state directory."""
    keys = (*home.keys(layout.LEDGER), *home.keys(layout.STATE))
    return sorted({key.split("/")[1].lower() for key in keys if key.count("/") >= 2})

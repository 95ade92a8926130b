"""The ledger of one agent: write an event, read events back, prove that none was touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import local_stamp, zone
from holdfast.codec import Record
from holdfast.errors import BadName, HoldfastError, UsageError, typed
from holdfast.ids import SessionId, agent_id, is_agent_id, session_id
from holdfast.layout import HOLDFAST, Layout, Part
from holdfast.ledger.entry import (
    EVENTS,
    IMPORTER,
    capped,
    check_event,
    check_source,
    entry,
    task_for,
)
from holdfast.ledger.foreign import as_entry, instant_in
from holdfast.ledger.status import (
    State,
    copied,
    current_session,
    next_session,
    note,
    shown_of,
    spooled_from,
    status_of,
)
from holdfast.mask import masked_so_far
from holdfast.store.primitives import (
    CONTROL,
    START,
    Archived,
    BadLine,
    Cell,
    Cursor,
    Line,
    Log,
    Problem,
    Verified,
)
from holdfast.store.projection import Projection, Tell

if TYPE_CHECKING:
    from holdfast.ledger.index import Index
    from holdfast.store.home import Home

_DAY = 86400.0
_END = 1 << 15
"""Bytes at the end of a day that are read for the newest entries, at first."""
_MOST_SESSIONS = 999_999
"""In a day: one with a higher number was never given, and there would be none behind it."""
_PAUSE, _PATIENCE = 0.05, 20
"""The file of the status follows after so many seconds, or so many times as long as bringing it up
to date took, where that is slow; and when the ledger is closed."""
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

    def check(self, agent: str, extra_events: tuple[str, ...] = ()) -> None:
        """Raise UsageError if it can never be written."""
        if self.event not in EVENTS:
            check_event(self.event, extra_events)
        if not self.task:
            task_for(self.event, self.task)
        if self.session in (None, NEW):
            return
        named = session_id(str(self.session))
        if named.agent != agent or named.number > _MOST_SESSIONS:
            raise BadName(
                f"session {self.session} is not one of {agent}",
                hint=f"leave --session out, or use --session new to begin one for {agent}",
            )


class Written:
    """An event that is on disk."""

    def __init__(
        self, ledger: Ledger, before: Cursor, cursor: Cursor, stale: HoldfastError | None
    ) -> None:
        self._ledger, self._before, self.cursor = ledger, before, cursor
        self.stale = stale
        """Why the status could not be brought up to date; the event is safe all the same."""

    @cached_property
    def record(self) -> Record:
        """As it stands in the ledger, from where it is read: with its time, without secrets."""
        found = self._ledger.read(self._before)
        return next(each.record for each in found if each.line.seq == self.cursor.seq)


class Found(NamedTuple):
    """An entry and where it stands."""

    record: Record
    line: Line

    @property
    def entry(self) -> Record:
        """In the columns of ours, whoever wrote it."""
        return self.record if self.line.seq is not None else as_entry(self.record)

    @property
    def instant(self) -> float:
        """When it happened; 0 if that cannot be told."""
        return instant_in(self.record) or 0.0

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on behind it."""
        line = self.line
        return Cursor(line.seq or 0, line.hash or START.hash, line.segment, line.end)


class _Known(NamedTuple):
    """The state after a line that we wrote."""

    cursor: Cursor
    surprises: int
    """Of the log, until then."""
    state: State
    exact: bool
    """Whether the lines say just what was folded: no secret was masked, no second passed."""


class Ledger:
    """Used by one thread at a time."""

    def __init__(self, home: Home, agent: str, layout: Layout = HOLDFAST) -> None:
        self._home, self.agent, self._layout = home, agent_id(agent).lower(), layout
        self.key = key_of(home, layout, "ledger", self.agent)
        self.status_key = key_of(home, layout, "status", self.agent)
        self._log = home.log(self.key)
        self._status = home.view(self.status_key, self._log, status_of(self.agent))
        self._zone = zone(home.settings.timezone)
        self._known: _Known | None = None
        self._second, self._text = -1, ""
        self._owed: Cursor | None = None
        self._next_refresh = float("-inf")
        self._shown: tuple[Any, ...] | None = None
        self.damaged: set[tuple[str, int]] = set()
        """Where reading met lines that are no records."""

    # -- writing -----------------------------------------------------------------------

    def write(self, event: Event, spooled: Sequence[Event] = ()) -> Written:
        """Append one event, after the `spooled` ones that are not there yet."""
        event.check(self.agent, self._home.settings.extra_events)
        if self._known is None:
            self._status.read()  # outside the log's lock, so that inside there is little left to do
        before, after, exact, count = START, State(), False, 0
        began, masked = self._stamp(), masked_so_far()

        def decide(head: Cursor) -> list[Record]:
            nonlocal before, after, exact, count
            before, (after, exact), records = head, self._state_at(head), list[Record]()
            stamp = self._stamp()
            exact = exact and stamp == began
            for each in (*spooled, event):
                if each is event or self._is_news(each, after):
                    record = self._record(each, after, stamp[:10])
                    records.append(record)
                    note(after, record, stamp)
            count = len(records)
            return records

        cursor = self._log.transact(decide)[-1]
        exact = exact and masked_so_far() == masked and cursor.seq == before.seq + count
        if event.source != IMPORTER:  # which says more than is noted
            self._known = _Known(cursor, self._log.surprises, after, exact)
        return Written(self, before, cursor, self._refresh(cursor, shown_of(after)))

    def _stamp(self) -> str:
        """The time of an entry; the same one for all of a second."""
        now = int(self._home.clock.now())
        if now != self._second:
            self._second, self._text = now, local_stamp(now, self._zone)
        return self._text

    def _state_at(self, head: Cursor) -> tuple[State, bool]:
        """The state that the next entry meets, to be changed, and whether it is exact; under the
        log's lock.

        A writer that wrote the newest line knows it, unless others have put something behind.
        """
        # Given away: if the entry does not get into the log, it is read again.
        known, self._known = self._known, None
        if known is not None and known[:2] == (head, self._log.surprises):
            return known.state, known.exact
        return copied(self._status.read()), True

    def numbered(self, act: Callable[[Cursor, SessionId], list[Record]]) -> None:
        """Append what `act` gives for the next free session id.

        It is asked under the lock, so that nobody else gets the number meanwhile.  It gives nothing
        where the journal is older than the ledger, which has its lines already.
        """
        self._status.read()

        def decide(head: Cursor) -> list[Record]:
            return act(head, next_session(self._status.read(), self._home.day()))

        if written := self._log.transact(decide):
            self._refresh(written[-1])

    def told_by(self, source: Log, cell: Cell, tell: Tell) -> Projection:
        """The telling of lines of another log in this one."""
        return Projection(source, self._log, cell, tell)

    def _is_news(self, event: Event, state: State) -> bool:
        """Whether a spooled event is still to be taken in, and can be."""
        spool, number = spooled_from(event.extra or {})
        if number <= state["spools"].get(spool, 0):
            return False
        try:
            event.check(self.agent, self._home.settings.extra_events)
            check_source(event.source)
        except UsageError as error:
            self._home.notice("spool_refused", f"{self.agent} {spool}#{number}: {error.message}")
            return False
        return True

    def _refresh(
        self, cursor: Cursor, shown: tuple[Any, ...] | None = None
    ) -> HoldfastError | None:
        """Bring the file up to date, unless it would still show the same.

        Times are told in seconds, so in a burst of notes that is once in a second: the refresh is
        what costs most after the disk.
        """
        self._owed = cursor
        if shown is not None and shown == self._shown:
            return None
        boottime = self._home.clock.boottime
        began = boottime()
        if began < self._next_refresh:
            return None
        self._owed = None
        try:
            known = self._known
            if known is not None and known.exact and known.cursor == cursor:
                self._status.refresh(cursor, copied(known.state))
            else:
                self._status.refresh(cursor)
                self._known = None  # what was read just now is exact, and at hand
        except HoldfastError as error:
            return error
        ended = boottime()
        self._next_refresh = ended + max(_PAUSE, _PATIENCE * (ended - began))
        self._shown = shown
        return None

    def _record(self, event: Event, state: State, today: str) -> Record:
        match event.session:
            case None:
                session = current_session(state, today)
            case "new":
                session = str(next_session(state, today))
            case given:
                session = given
        record = entry(
            agent=self.agent,
            session=session,
            event=event.event,
            task=task_for(event.event, event.task),
            source=event.source,
            summary=event.summary,
            data=capped(event.data) if event.data else {},
        )
        return record | event.extra if event.extra else record

    def close(self) -> None:
        if self._owed is not None:
            self._next_refresh = float("-inf")
            self._refresh(self._owed)
        self._status.close()
        self._log.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- reading -----------------------------------------------------------------------

    def status(self) -> State:
        return self._status.read()

    def refresh(self) -> None:
        """Bring the file of the status up to date."""
        if self.exists():
            self._status.refresh()

    def rebuild(self) -> list[str]:
        """Fold the status anew; the names under which edited files were kept."""
        if self.exists():
            self._status.rebuild()
        return self._status.kept_aside

    def exists(self) -> bool:
        return bool(self._log.segments())

    def has_imports(self) -> bool:
        """Whether lines tell of files of other systems."""
        return self.exists() and bool(self._status.read()["imports"])

    def read(self, after: Cursor = START) -> Iterator[Found]:
        """Entries in the order of writing."""
        for line in self._log.read(after):
            if isinstance(line, BadLine):
                self.damaged.add((line.segment, line.offset))
            elif CONTROL not in line.record:
                yield Found(line.record, line)

    def newest(
        self,
        limit: int | None,
        wanted: Callable[[Found], bool],
        since: float | None = None,
        index: Index | None = None,
    ) -> list[Found]:
        """The last `limit` entries that are wanted, oldest first; reads day by day, backwards.

        An index has to be asked for what `wanted` asks for, or less.
        """
        found: list[Found] = []
        # Others have called a day by another zone than that of the times in it.
        since = since if since is None or self._layout is HOLDFAST else since - _DAY
        for segment in reversed(self._log.segments()):
            if since is not None and segment[:10] < local_stamp(since, self._zone)[:10]:
                break
            missing = None if limit is None else limit - len(found)
            if index is None:
                part = self._last_of(segment, missing, wanted)
            else:
                part = self._indexed(index, segment, missing, wanted)
            found = [*part, *found]
            if limit is not None and len(found) >= limit:
                return found[len(found) - limit :]
        return found

    def _last_of(
        self, segment: str, most: int | None, wanted: Callable[[Found], bool]
    ) -> list[Found]:
        """At least the last `most` wanted entries of a day: ever larger parts of its end."""
        with self._home.opened_dir(self.key) as directory:
            file = directory.stat(segment) if directory is not None else None
        # A day that is packed has no such file, and is read whole.
        size, span = file.size if file is not None else 0, _END
        while True:
            start = 0 if most is None else max(0, size - span)
            found = list(filter(wanted, self._of(segment, start)))
            if start:
                self.damaged.discard((segment, start))  # the rest of a line
            if most is None or start == 0 or len(found) >= most:
                return found
            span *= 8

    def _of(self, segment: str, start: int) -> Iterator[Found]:
        """The entries of a day from an offset on, without the line that it falls into."""
        for found in self.read(Cursor(0, START.hash, segment, start)):
            if found.line.segment != segment:
                return
            if not start or found.line.offset > start:
                yield found

    def _indexed(
        self, index: Index, segment: str, most: int | None, wanted: Callable[[Found], bool]
    ) -> list[Found]:
        with typed("reading the ledger", self.key):
            seen = index.newest(segment, most, lambda line: wanted(Found(line.record, line)))
        self.damaged.update((segment, offset) for offset in seen.damaged)
        return [Found(line.record, line) for line in seen.lines]

    def head(self) -> Cursor:
        return self._log.head()

    def settle(self) -> Cursor:
        """The newest entry, durable: for one who vouches for it."""
        return self._log.settle()

    def contains(self, cursor: Cursor) -> bool:
        return self._log.contains(cursor)

    def archive(self, before: str | None = None, *, dry_run: bool = False) -> list[Archived]:
        """Pack the files of past days, or of days before one."""
        return self._log.archive(before=before, dry_run=dry_run)

    def verify(self) -> Verified:
        """The proof of the log, and of what its status once saw."""
        found = self._log.verify()
        stamp = self._home.cell(self.status_key).peek()
        if stamp is not None and not self._log.contains(stamp.cursor):
            lost, left = stamp.cursor, found.head.seq
            detail = f"line {lost.seq} was once there, the last one is now {left}"
            found.problems.append(Problem("cut", lost.segment, 0, lost.offset, detail))
        return found


def agents(home: Home, layout: Layout = HOLDFAST) -> list[str]:
    """Every agent that has a ledger or a state, in lower case."""
    return sorted({name.lower() for name in _names(home, layout) if is_agent_id(name)})


def unfit_agents(home: Home, layout: Layout) -> list[str]:
    """What other systems call agents and cannot be an agent's name here."""
    return sorted(name for name in _names(home, layout) if not is_agent_id(name))


def _names(home: Home, layout: Layout) -> set[str]:
    folders = {layout.above(part) for part in layout.known_by}
    return layout.agents_in([key for folder in folders for key in home.keys(folder)])


def key_of(home: Home, layout: Layout, part: Part, agent: str) -> str:
    """The key of something that belongs to an agent; in a foreign tree as it is spelled there."""
    if layout is not HOLDFAST:
        with home.opened_dir(layout.above(part)) as directory:
            names = directory.names() if directory else []
        if agent not in names:
            same = [name for name in names if is_agent_id(name) and name.lower() == agent]
            agent = min(same, default=agent)
    return layout.path(part, agent)

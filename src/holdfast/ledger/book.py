"""The ledger of one agent: write an event, read events back, prove that none was touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clock import local_stamp, zone
from holdfast.codec import Record
from holdfast.errors import BadName, HoldfastError, UsageError
from holdfast.ids import SessionId, agent_id, is_agent_id, session_id
from holdfast.layout import HOLDFAST, Layout, Part
from holdfast.ledger.entry import (
    EVENTS,
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
    spooled_from,
    status_of,
)
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import (
    CONTROL,
    START,
    BadLine,
    Cursor,
    Decision,
    Line,
    Problem,
    Question,
    Verified,
)

if TYPE_CHECKING:
    from holdfast.store.home import Home

_DAY = 86400.0
_MOST_SESSIONS = 999_999
"""In a day: one with a higher number was never given, and there would be none behind it."""
_ANY = Question({})
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


class WrittenEvent(NamedTuple):
    """An event that is on disk."""

    record: Record
    """As it stands in the ledger: with its time, without secrets."""
    cursor: Cursor
    stale: HoldfastError | None
    """Why the status could not be brought up to date; the event is safe all the same."""


class Found(NamedTuple):
    """An entry and where it stands."""

    record: Record
    line: Line

    @property
    def entry(self) -> Record:
        """In the columns of Holdfast, whichever system wrote it."""
        return self.record if self.line.seq is not None else as_entry(self.record)

    @property
    def instant(self) -> float:
        """When it happened; 0 if that cannot be told."""
        return instant_in(self.record) or 0.0

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on behind it."""
        return self.line.cursor


class Ledger(StateLog[State]):
    """Used by one thread at a time."""

    def __init__(self, home: Home, agent: str, layout: Layout = HOLDFAST) -> None:
        self.agent, self._layout = agent_id(agent).lower(), layout
        self.key = key_of(home, layout, "ledger", self.agent)
        self.status_key = key_of(home, layout, "status", self.agent)
        shape = status_of(self.agent)
        super().__init__(home, self.key, shape, {self.status_key: shape.render})
        self._status = home.cell(self.status_key)
        self._zone = zone(home.settings.timezone)
        self.damaged: set[tuple[str, int]] = set()
        """Where reading met lines that are no records."""

    # -- writing -----------------------------------------------------------------------

    def write(self, event: Event, spooled: Sequence[Event] = ()) -> WrittenEvent:
        """Append one event, after the `spooled` ones that are not there yet."""
        event.check(self.agent, self._home.settings.extra_events)

        def decide(state: State) -> Decision[None]:
            stamp = local_stamp(self._home.clock.now(), self._zone)
            after, records = copied(state) if spooled else state, list[Record]()
            for each in spooled:
                if self._is_news(each, after):
                    records.append(self._record(each, after, stamp[:10]))
                    note(after, records[-1], stamp)
            return [*records, self._record(event, after, stamp[:10])], None

        line = self.decide(decide).lines[-1]
        return WrittenEvent(line.record, line.cursor, self.stale)

    def numbered(self, act: Callable[[SessionId], list[Record]]) -> None:
        """Append what `act` gives for the next free session id.

        It is asked under the lock, so that nobody else gets the number meanwhile.  It gives nothing
        where the journal is older than the ledger, which has its lines already.
        """
        self.decide(lambda state: (act(next_session(state, self._home.day())), None))

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

    # -- reading -----------------------------------------------------------------------

    def refresh(self, acked: Cursor = START) -> None:
        if self.exists():
            super().refresh(acked)

    def rebuild(self) -> list[str]:
        return super().rebuild() if self.exists() else []

    def exists(self) -> bool:
        return bool(self.log.segments())

    def has_imports(self) -> bool:
        """Whether lines tell of files of other systems."""
        return self.exists() and bool(self.state()["imports"])

    def read(self, after: Cursor = START) -> Iterator[Found]:
        """Entries in the order of writing."""
        for line in self.log.read(after):
            if isinstance(line, BadLine):
                self.damaged.add((line.segment, line.offset))
            elif CONTROL not in line.record:
                yield Found(line.record, line)

    def newest(
        self,
        limit: int | None,
        wanted: Callable[[Found], bool],
        since: float | None = None,
        question: Question = _ANY,
    ) -> list[Found]:
        """The last `limit` entries that are wanted, oldest first; read backwards.

        `question` may ask for values, so that an index can find them, and say how.
        """
        # Others have called a day by another zone than that of the times in it.
        since = since if since is None or self._layout is HOLDFAST else since - _DAY
        day = "" if since is None else local_stamp(since, self._zone)[:10]

        def fits(line: Line) -> bool:
            return wanted(Found(line.record, line))

        def reads(line: Line) -> Record:
            return Found(line.record, line).entry

        asked = question._replace(newest=limit, since=day, wanted=fits, reads=reads)
        found = self.log.find(asked)
        self.damaged.update(found.damaged)
        return [Found(line.record, line) for line in found.lines]

    def verify(self) -> Verified:
        """The proof of the log, and of what its status once saw."""
        found = self.log.verify()
        stamp = self._status.peek()
        if stamp is not None and not self.log.contains(stamp.cursor):
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

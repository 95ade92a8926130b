"""One agent's directory as one handle: begin a session, say something of it, end it.

The journal is the truth.  A session is owned by a lease whose lines stand in the journal too:
taking it over, putting on record what became of the session before, and beginning the next
one is a single write.  The ledger is told of it by a projection; nothing is told twice, and
what a dead process left untold is told by the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents import history, journal, metrics
from holdfast.agents.desk import Desk
from holdfast.agents.document import object_at
from holdfast.agents.history import (
    Session,
    State,
    Type,
    check_fields,
    check_in_service,
    open_sessions,
)
from holdfast.agents.persona import Persona
from holdfast.agents.presence import Presence
from holdfast.audit import refused
from holdfast.clock import instant
from holdfast.codec import Record
from holdfast.errors import (
    BadName,
    Busy,
    HoldfastError,
    LeaseLost,
    NotFound,
    OverBudget,
    UsageError,
    recorded,
)
from holdfast.ids import SessionId, agent_id, is_agent_id, session_id
from holdfast.layout import HOLDFAST, Layout, Part, charged, retold, told
from holdfast.ledger.book import Ledger, key_of
from holdfast.process import Owner, this_process
from holdfast.spend.account import Account
from holdfast.spend.book import OF_A_JOB, Held, settled
from holdfast.state.spared import telling
from holdfast.state.statelog import StateLog
from holdfast.store.fence import DetachedLease, Grant
from holdfast.store.primitives import CONTROL, Cursor, Decision, Line, Log

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.projection import Projection
    from holdfast.store.view import Render

FOR_EVER = 1e9
"""Seconds of a lease that only the death of its owner ends."""
GRACE = 60.0
"""Seconds that a detached session has beyond its time limit before it counts as crashed."""
DEFAULT_TIMEOUT = 6 * 3600.0
_OUTPUT_SHOWN = 64 << 10
"""Bytes."""


class Start(NamedTuple):
    """What is said of a session when it begins."""

    type: Type
    role: str = ""
    timeout: float | None = None
    """In seconds."""
    fields: Record = {}  # noqa: RUF012 - never changed
    """Any of `history.SETTABLE`."""
    tree: Record | None = None
    """The mark of its processes, by which they are found when the wrapper is gone."""
    max_cost: float | None = None
    """In USD; None is what the budget allows."""
    known_as: str = ""
    """What others call it, such as the session id of Claude Code, so that they find it again."""

    def check(self) -> None:
        if self.role and not is_agent_id(self.role):
            raise BadName(
                f"not a role: {self.role[:80]!r}",
                hint="1 to 64 of A-Z a-z 0-9 _ -, starting with a letter or digit",
            )
        if self.max_cost is not None and not 0 < self.max_cost < float("inf"):
            raise UsageError("--max-cost is not a sum of money", hint="in USD, such as 2.5")
        check_fields(self.fields)


class Opened(NamedTuple):
    """A session that was begun; whoever has this owns it."""

    id: str
    role: str
    fence: int
    buried: list[str]
    """Sessions that were found crashed and put on record."""
    budget: float | None = None
    """What it may spend, in USD."""


class End(NamedTuple):
    """How a session ended."""

    outcome: str
    """completed, timeout or error."""
    cause: str | None = None
    """What is behind it: timeout, signal, crashed, output, memory, cost, …"""
    error: Record | None = None
    """`kind`, `message`, `output_tail`: becomes a line of its own."""
    fields: Record = {}  # noqa: RUF012 - never changed
    """Any of `history.SETTABLE`, and exit_code, signal, duration_seconds, measured, claimed."""


class Agent:
    def __init__(self, home: Home, name: str, layout: Layout = HOLDFAST) -> None:
        self.name, self._home, self.layout = agent_id(name).lower(), home, layout
        self.journal = self.showing(*self.views())
        self.ledger = Ledger(home, self.name, layout)
        self.journal.log.keeps = self.ledger.log.keeps = True  # one is told of the other
        self.account = Account(home, self.journal.log, charged(self.name), settled)
        self._presence = Presence(home, self.key("agent"))
        self.persona = Persona(home, self.name, self.key("manifest"), self.journal.log)
        self.desk = Desk(home, self.name, self.key, self.journal)
        self._remains: dict[str, int] = {}
        self._roles = {""}
        """Those whose newest session is shown."""

    @cached_property
    def _told(self) -> Projection:
        """What the ledger has of the journal; who only looks does not pay for opening it."""
        return telling(self._home, self.journal.log, self.ledger.log, told(self.name), journal.tell)

    @cached_property
    def _topics(self) -> Log:
        return self._home.log(self.key("topics"))

    # -- sessions ----------------------------------------------------------------------

    def start(self, start: Start, owner: Owner | None = None) -> Opened:
        """Begin a session; Busy if one of the same role is under way."""
        start.check()
        home, limits = self._home, self._home.current_settings().budget(self.name)
        buried = self.bury(but=start.role)
        self._release_unbacked()
        if (before := self.open_session(start.role)) and not self.is_live(start.role):
            self._end_remains(before)
        lease, opened = self._owned(start.role), Opened("", start.role, 0, buried)
        begun, projected = "", self._told

        def act(free: SessionId) -> list[Record]:
            nonlocal opened
            seconds = FOR_EVER if owner is not None else (start.timeout or DEFAULT_TIMEOUT) + GRACE
            budget: float | None = None

            def first() -> Sequence[Record]:
                nonlocal begun, budget
                state = journal.history_in(self.journal.known())
                check_in_service(state)
                # The number that is free in the ledger, if it is so in the journal; else the next.
                used = state["numbers"].get(free.day, 0)
                number = free._replace(number=max(free.number, used + 1))
                begun = str(number)
                if owner == this_process():
                    self._presence.show(start.role, purpose)
                dead = [each for each in open_sessions(state) if each["role"] == start.role]
                buried.extend(each["session_id"] for each in dead)
                # Under the lock, so that only the one who begins sets money aside.
                budget = self.account.reserve(number, start.max_cost, limits)
                return [*self._obituaries(dead), _first_line(begun, start, budget)]

            purpose = f"{start.type} session" + (f" as {start.role}" if start.role else "")
            fence = lease.take(purpose, seconds=seconds, owner=owner, first=first)
            opened = Opened(begun, start.role, fence, buried, budget)
            return projected.untold(lease.acked)

        try:
            self.ledger.numbered(act)
            self.journal.flush()
            self.account.settle(lease.acked)
        except HoldfastError as error:
            if isinstance(error, OverBudget):
                refused(home, f"session {begun}", error, agent=self.name)
            if isinstance(error, Busy) and not begun:
                raise self._named(start.role, error) from None
            self._take_back(start.role, begun, error)
            raise
        if opened.buried:
            self.desk.settle()
        return opened

    def _named(self, role: str, error: Busy) -> Busy:
        """Which session is in the way, and what to do: a lease knows neither."""
        session = self.open_session(role)
        if session is None:
            return error
        hint = "wait until it has ended, end it, or give the new one a --role of its own"
        said = f"{session['session_id']} is under way: {error.message}"
        return Busy(said, hint=hint, path=error.path)

    def _take_back(self, role: str, begun: str, error: HoldfastError) -> None:
        """End a session whose start failed after its line was written, as on a full disk."""
        session = self.open_session(role) if begun else None
        if session is None or session["session_id"] != begun:
            if begun:
                self._presence.hide(role)
            with suppress(HoldfastError):  # else the next one who starts finds it abandoned
                self.account.release(session_id(begun), "it could not be begun")
            return
        failed = {"kind": "holdfast", "message": f"it could not be begun: {error.message}"}
        try:
            self.end(role, session["fence"], End("error", "wrapper", failed))
        except HoldfastError:
            if self._is_open(session):
                with recorded(f"the start of {begun}", _SWEEP):
                    raise

    def _is_open(self, session: Session) -> bool:
        found = self.open_session(session["role"])
        return found is not None and found["session_id"] == session["session_id"]

    def _release_unbacked(self) -> None:
        """Give back what was set aside by somebody who died before his session began."""
        for held in self.account.abandoned():
            name = held.session.agent
            if name == self.name:
                self._release_unless_open(held)
                continue
            if name.startswith(OF_A_JOB) and not self._home.keys(self.layout.path("agent", name)):
                continue  # a call of a job, which the job settles
            try:
                with Agent(self._home, name, self.layout) as other:
                    other.bury()
                    other._release_unless_open(held)
            except HoldfastError as error:  # his money stays aside, and everybody else goes on
                self._home.notice("reservation_kept", f"{held.session}: {error.message}")

    def _release_unless_open(self, held: Held) -> None:
        """Give a reservation back, unless its session is open or has ended."""
        if str(held.session) in {session["session_id"] for session in open_sessions(self.state())}:
            return
        self.account.settle()  # the process that wrote its end may have died before
        self.account.release(held.session, "nothing was begun with it")

    def bury(self, but: str | None = None) -> list[str]:
        """Record as crashed every session whose owner is gone, and what follows; their ids."""
        found: list[str] = []
        for session in open_sessions(self.state()):
            role, name = session["role"], session["session_id"]
            if role == but or self.is_live(role):
                continue
            self._end_remains(session)
            lease = self._owned(role)

            def last(name: str = name) -> Sequence[Record]:
                state = journal.history_in(self.journal.known())
                dead = [each for each in open_sessions(state) if each["session_id"] == name]
                found.extend(each["session_id"] for each in dead)
                return self._obituaries(dead)

            try:
                # Owned by us, lest our own death at this point stop the next start for a minute.
                fence = lease.take(
                    "putting a crash on record", seconds=GRACE, owner=this_process(), first=last
                )
                lease.release(fence)
                self._check_shown()
            except (Busy, LeaseLost):
                pass  # another process is doing it
        if found:
            self._pass_on()
        self.desk.settle()
        return found

    def _pass_on(self, acked: Cursor | None = None) -> None:
        """Bring ledger, account and topics up to the journal, `acked` a durable line of it."""
        self._told.catch_up(acked)
        self.ledger.refresh()
        self.account.settle(acked)
        self.tell_topics()

    def settle(self) -> list[str]:
        """Bury, and bring ledger and files up to the journal, whichever process died before."""
        buried = self.bury()
        self._pass_on(self.journal.log.settle())
        for role in self.state()["sessions"]:
            self._owned(role)
        self.journal.refresh()
        return buried

    def _obituaries(self, dead: Sequence[Session]) -> list[Record]:
        lines: list[Record] = []
        for session in dead:
            what = _named(session)
            still = self.told_of_remains(session["session_id"])
            message = f"{session['session_id']} crashed: its process is gone{still}"
            ended = {"outcome": "error", "cause": "crashed", **self._lasted(session)}
            lines.append({"event": "error", **what, "kind": "crashed", "message": message})
            lines.append({"event": "session_end", **what, **ended, "summary": message})
        return lines

    def _end_remains(self, session: Session) -> None:
        """End what is left of the processes of a session whose wrapper is gone."""
        if session.get("tree") is None:
            return
        from holdfast.proc.survivors import Mark, end  # noqa: PLC0415 - only after a crash

        with suppress(UsageError):  # a mark that was edited by hand ends nothing
            if count := end(Mark.of(session["tree"])):
                self._remains[session["session_id"]] = count

    def told_of_remains(self, session: str) -> str:
        """What to add about a crash of which processes were left, and ended by us."""
        count = self._remains.get(session)
        return f", and what still ran of it was ended (processes: {count})" if count else ""

    def _lasted(self, session: Session) -> Record:
        """How long it took; of a crash, until it was found."""
        began = instant(session["started_at"])
        if began is None:
            return {}  # the stamp was edited by hand
        return {"duration_seconds": round(max(0.0, self._home.clock.now() - began), 3)}

    def note(self, event: str, text: str, data: Record, session: str | None = None) -> Cursor:
        """One line about the session under way."""
        under_way = (str(each["session_id"]) for each in open_sessions(self.state()))
        named = {"session_id": session or next(under_way, ""), "text": text}
        told = {name: value for name, value in named.items() if value}
        return self.append("the line", {"event": event, **told, **data})

    def append(self, what: str, record: Record) -> Cursor:
        """Write a line of the journal, which an error calls `what`."""
        written = self.journal.decide(lambda _: ([record], None))
        with recorded(what):
            self._check_shown()
        return written.lines[-1].cursor

    def tell(self, decide: Callable[[State], Sequence[Record]], role: str = "") -> bool:
        """Append what `decide` makes of the state, nobody writing in between; if there was any."""
        self._owned(role)
        written = self.journal.decide(lambda state: (decide(journal.history_in(state)), None))
        self._check_shown()
        return bool(written.lines)

    def renew(self, role: str, fence: int, seconds: float) -> None:
        """Let a session without a process go on for so long, if half of that is over."""
        lease = self._lease(role)
        if lease.left() < seconds / 2:
            lease.renew(fence, seconds)

    def set(self, session: str, fields: Record) -> Cursor:
        """Say more of a session, also after its end."""
        check_fields(fields)

        def decide(_: journal.State) -> Decision[Record]:
            # Under the lock: of two who correct it, the second corrects what the first says.
            before = self._cost_before(session) if "cost_usd" in fields else {}
            return [{"event": "session_set", "session_id": session, **fields, **before}], before

        written = self.journal.decide(decide)
        acked = written.lines[-1].cursor
        with recorded("the change"):
            self._check_shown()
            if written.value:
                self.account.settle(acked)
        return acked

    def _cost_before(self, session: str) -> Record:
        """What an ended session was settled with, for one who corrects it."""
        found: Record = {}
        budget = cost = None
        for line in self.lines(session):
            budget, cost = line.record.get("budget_usd", budget), line.record.get("cost_usd", cost)
            crashed = line.record.get("cause") == "crashed"
            if line.record.get("event") == "session_end":
                found = {"was_usd": None if crashed else cost, "budget_usd": budget}
            elif found and "cost_usd" in line.record:
                found["was_usd"] = cost
        return found

    def end(self, role: str, fence: int, end: End) -> str:
        """Write the one end of a session, as its owner; its id.  LeaseLost if it is no more."""
        session = self.open_session(role)
        if session is None or session["fence"] != fence:
            raise LeaseLost(
                f"{self.name} has no open session" + (f" as {role}" if role else ""),
                hint="it was ended or found crashed by somebody else: `holdfast session list`",
            )
        what = _named(session)
        lines: list[Record] = [{"event": "error", **what, **end.error}] if end.error else []
        cause = {"cause": end.cause} if end.cause else {}
        told = {name: session[name] for name in ("cost_usd", "tokens_used")}
        fields = {name: value for name, value in told.items() if value is not None} | end.fields
        ended = {"event": "session_end", **what, "outcome": end.outcome, **cause}
        lines.append({**ended, **self._lasted(session), **fields})
        lease = self._owned(role)
        try:
            lease.release(fence, *lines)
            self._presence.hide(role)
            self._told.catch_up(lease.acked)
            self.ledger.refresh()
            self._check_shown()
            self.account.settle(lease.acked)
            self.tell_topics()
        except HoldfastError:
            if self._is_open(session):
                raise
            with recorded(f"the end of {session['session_id']}", _SWEEP):
                raise
        self.desk.settle()
        return str(session["session_id"])

    def tell_topics(self) -> None:
        """Have the topics of the memory say what the journal says."""
        place = retold(self.name, "journal")
        self.journal.project(self._topics, place, partial(journal.in_topics, self.name))

    # -- reading -----------------------------------------------------------------------

    def state(self) -> State:
        """Sessions and what is said of them; look at it, do not change it."""
        return journal.history_in(self.journal.state())

    def report(self) -> Record:
        return history.report(self.state(), self.born)

    def session(self, role: str = "") -> Record:
        return history.session(self.state(), role)

    def metrics(self) -> Record:
        return metrics.metrics(
            self.journal.state()[1]["metrics"], self._home.clock.now(), self.born
        )

    def open_session(self, role: str = "") -> Session | None:
        found = self.state()["sessions"].get(role)
        return found if found is not None and found["ended_at"] is None else None

    def holder(self, role: str = "") -> Grant | None:
        return self._lease(role).holder()

    def is_live(self, role: str = "") -> bool:
        """Whether the session of a role has an owner that may go on."""
        return self._lease(role).is_live()

    def lines(self, session: str | None = None) -> Iterator[Line]:
        """The journal, or what it says of one session."""
        for line in self.journal.log.read():
            if not isinstance(line, Line) or CONTROL in line.record:
                continue
            if session is None or line.record.get("session_id") == session:
                yield line

    # -- the files ---------------------------------------------------------------------

    def key(self, part: Part) -> str:
        return key_of(self._home, self.layout, part, self.name)

    def session_key(self, role: str = "") -> str:
        """The view of the newest session of all, or of a role."""
        key = self.key("session")
        return f"{key.removesuffix('.json')}.{role}.json" if role else key

    def output_key(self, session: str) -> str:
        """What the command of a session printed, as much as was kept."""
        return f"{self.key('agent')}/output/{session}.txt"

    def born(self) -> str | None:
        """Since when there is the agent, as its manifest says."""
        created = object_at(self._home, self.key("manifest")).get("created_at")
        return created if isinstance(created, str) else None

    def views(self, roles: Iterable[str] = ()) -> dict[str, Render[journal.State]]:
        """The documents of the journal by their keys."""
        found = journal.views(self.key, self._home.clock.now, self.born)
        return found | {self.session_key(role): journal.session_of(role) for role in roles}

    def showing(self, *keys: str, roles: Iterable[str] = ()) -> StateLog[journal.State]:
        """The journal, shown in these documents alone."""
        shown = {key: render for key, render in self.views(roles).items() if key in keys}
        return StateLog(self._home, self.key("journal"), journal.shape(self.name), shown)

    def rebuild(
        self, keys: Container[str] | None = None, *, dry_run: bool = False
    ) -> Iterator[tuple[str, list[str]]]:
        """Fold every document again; its key, and the names under which edited files were kept."""
        roles = [*self.state()["sessions"]]
        for key in self.views(roles):
            if keys is not None and key not in keys:
                continue
            if dry_run:
                yield key, []
            else:
                with self.showing(key, roles=roles) as one:
                    yield key, one.rebuild()

    def output(self, session: str) -> str | None:
        """The end of what the command of a session printed; None if nothing was kept."""
        kept = self._home.document(self.output_key(session)).read()
        return None if kept is None else kept.data[-_OUTPUT_SHOWN:].decode("utf-8", "replace")

    def _check_shown(self) -> None:
        """Raise what kept the documents from showing the last lines."""
        if self.journal.stale is not None:
            raise self.journal.stale

    def _owned(self, role: str) -> DetachedLease[journal.State]:
        """The lease of a role that is about to change: its newest session is shown."""
        if role not in self._roles:
            self._roles.add(role)
            self.journal.add(self.session_key(role), journal.session_of(role))
        return self._lease(role)

    def _lease(self, role: str) -> DetachedLease[journal.State]:
        alive, fences = partial(self._presence.is_alive, role), journal.fences_in
        name = journal.lease_of(role)
        return DetachedLease(self.journal, self._home, name, fences=fences, alive=alive)

    def close(self) -> None:
        parts = [self.__dict__[name] for name in ("_told", "_topics") if name in self.__dict__]
        parts += [self._presence, self.account, self.desk, self.persona, self.ledger]
        # What is owed to a file is written now.
        with recorded("what was done"):
            for each in parts:
                each.close()
            try:
                self.journal.flush(read=False)
            finally:
                self.journal.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        with suppress(*[HoldfastError] if kind else []):  # the first error says what was not done
            self.close()


_SWEEP = "once that is mended, `holdfast session sweep` brings the rest up to date"


def _first_line(session: str, start: Start, budget: float | None) -> Record:
    record: Record = {"event": "session_start", "session_id": session, "type": start.type}
    known = {
        "role": start.role or None,
        "timeout_seconds": None if start.timeout is None else round(start.timeout),
        "tree": start.tree,
        "budget_usd": budget,
        "known_as": start.known_as or None,
    }
    return (
        record | {name: value for name, value in known.items() if value is not None} | start.fields
    )


def _named(session: Session) -> Record:
    """What a line about a session says of which: the ledger is told of its task by each."""
    task = {"task": session["task"]} if session["task"] else {}
    return {"session_id": session["session_id"], **task}


def opened(home: Home, name: str, layout: Layout = HOLDFAST) -> Agent:
    """The agent called `name`, or NotFound."""
    agent = Agent(home, name, layout)
    try:
        there = agent.journal.log.segments() or agent.ledger.exists()
        if there or home.document(agent.key("manifest")).read() is not None:
            return agent
    except HoldfastError:
        agent.close()
        raise
    agent.close()
    raise NotFound(f"no agent called {name}", hint=f"`holdfast init {name}` makes one")

"""How an agent stands at this moment: what a person wants to see of it in a line.

Read from the stamps of its views and from its folder, so that a fleet is looked at in no time;
nothing is written.  A session whose owner is gone is crashed here, before anybody has put that
on record.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast import mask
from holdfast.agents import history
from holdfast.agents.history import Session, State, open_sessions
from holdfast.agents.presence import Presence as Owning
from holdfast.clock import instant_of
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.errors import HoldfastError, NotOurs, typed
from holdfast.ids import is_agent_id
from holdfast.layout import HOLDFAST, Layout, leases
from holdfast.ledger.book import agents, key_of
from holdfast.ledger.status import Presence, presence, status_of
from holdfast.store.cell import FileCell
from holdfast.store.document import read_file
from holdfast.store.fence import DetachedLease
from holdfast.store.letter import SUFFIX, place_of_ours
from holdfast.store.log import FileLog
from holdfast.store.place import Place, Tools
from holdfast.store.primitives import START, BadLine, Cell, Cursor, Line, Log, Stamp
from holdfast.store.segments import Series, plain_name
from holdfast.store.shelves import CLAIMED
from holdfast.store.view import Shape, View
from holdfast.text import ago, clip, one_line

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.vfs import Dir, Vfs

REPORT, TASKS, INBOX, JOURNAL = "report.json", "tasks.json", "inbox", "journal"
_SHOW_STATE = frozenset(
    {"manifest.json", "tasks.json", "session.json", "metrics.json", "memory.md", "journal.jsonl"}
)
"""Files that show that an agent has a state of its own, and so should have a report."""
_BUSY = frozenset({"researching", "extracting", "evaluating", "working"})
CLOCKS_DIFFER = 60.0
"""Seconds by which the clocks of machines may be apart."""
_MOST, _MOST_NAME = 200, 40
_MOST_OPENED = 1_000
"""So many messages of ours in an inbox are opened; of more only the names are counted."""
_MOST_PARKED = 3
"""So many parked tasks are told with their reason, the others counted."""


class Moment(NamedTuple):
    """When somebody looks, and what counts as long ago."""

    now: float
    midnight: float
    """When today began, in the home's zone."""
    offline_after: float
    stale_after: float


class Report(NamedTuple):
    """What the file report.json is like."""

    state: str | None
    """ok, missing, unreadable or stale; None if the agent needs none."""
    detail: str = ""
    age: float | None = None
    said: Record = {}  # noqa: RUF012 - never changed


class Running(NamedTuple):
    """A session that has not ended."""

    session: Session
    alive: bool


class Parked(NamedTuple):
    """A task that is handed out no more."""

    task: str
    reason: str


class Standing(NamedTuple):
    agent: str
    state: str
    """busy, idle, error, offline, unknown or crashed."""
    presence: Presence
    recorded: State
    """Its status as the ledger has it."""
    history: State
    """Its sessions as the journal has them."""
    running: list[Running]
    report: Report
    waiting: int
    urgent: int
    spent: float
    """USD of sessions that ended today and whose cost is known."""
    unknown_costs: int
    lost: list[str]
    """What its logs lack or hold beside records."""
    parked: list[Parked]

    @property
    def crashed(self) -> list[Session]:
        return [each.session for each in self.running if not each.alive]

    @property
    def blocked_by(self) -> str | None:
        said = self.history["blocked_by"] or self.report.said.get("blocked_by")
        return str(said) if said else None

    @property
    def task(self) -> str | None:
        """What it works on, or worked on last; a session is no task of its own."""
        named = next((each.session["task"] for each in self.running if each.session["task"]), None)
        last = named or self.recorded["last_task_id"]
        return None if last == self.recorded["session_id"] else last

    @property
    def complaint(self) -> str:
        """Why it is in error, silent at work, or from the future; empty if it is none of that."""
        if self.presence.age is None or self.state == "crashed":
            return ""
        last = history.newest_session(self.history)
        if last is None or last["session_id"] != self.recorded["session_id"] or not last["errors"]:
            return self.presence.note
        # The session says more than the one word that its result has for the cause.
        failed = self.presence.note and self.presence.note == self.recorded["last_error"]
        return str(last["errors"][-1]) if failed else self.presence.note

    @property
    def troubles(self) -> list[str]:
        """What somebody should look at, the worst first; empty if all is well."""
        return [says for _, says in _troubles(self)]

    @property
    def kinds_of_trouble(self) -> list[tuple[str, str]]:
        """The same, each behind a word that stays while it lasts."""
        return list(_troubles(self))


def fleet(home: Home, moment: Moment, layout: Layout = HOLDFAST) -> Iterator[Standing]:
    """Every agent, by name."""
    known = _folders(home) if layout is HOLDFAST else agents(home, layout)
    return (standing(home, name, moment, layout) for name in known)


def _folders(home: Home) -> list[str]:
    """What `agents` finds in a home of ours, without a look at every file."""
    found: set[str] = set()
    for above in map(HOLDFAST.above, HOLDFAST.known_by):
        with typed("listing", above), home.opened_dir(above) as directory:
            for name in directory.names() if directory is not None else ():
                if directory is not None and is_agent_id(name) and _has_files(directory, name):
                    found.add(name.lower())
    return sorted(found)


def _has_files(above: Dir, name: str) -> bool:
    try:
        inside = above.subdir(name)
    except (NotOurs, FileNotFoundError):
        return False
    try:
        return any(not each.startswith(".") for each in inside.names())
    finally:
        inside.close()


def standing(home: Home, name: str, moment: Moment, layout: Layout = HOLDFAST) -> Standing:
    try:
        return _standing(home, name, moment, layout)
    except HoldfastError as error:
        # One that cannot be looked at must not hide the others.
        recorded, (_, told) = status_of(name).initial(), history.report_shape(name).initial()
        unknown = Presence("unknown", None, "")
        report = Report("unreadable", str(error)[:_MOST])
        return Standing(name, "unknown", unknown, recorded, told, [], report, 0, 0, 0.0, 0, [], [])


def _standing(home: Home, name: str, moment: Moment, layout: Layout) -> Standing:
    folder, book = (key_of(home, layout, part, name) for part in ("agent", "ledger"))
    with (
        typed("looking at", folder),
        home.opened_dir(folder) as own,
        home.opened_dir(book) as days,
    ):
        files, log = _Folder(home, own), _Folder(home, days)
        recorded, _, gone = files.folded("status.json", log, None, status_of(name))
        report_shape = history.report_shape(name)
        (_, told), shown, lost = files.folded(REPORT, files, JOURNAL, report_shape)
        running = [
            Running(each, _is_live(home, layout, name, each)) for each in open_sessions(told)
        ]
        heard = presence(recorded, moment.now, moment.offline_after)
        alive = any(each.alive for each in running)
        report = _report(files, told if shown else None, moment, heard, alive=alive)
        waiting, urgent = _inbox(home, name, f"{folder}/{INBOX}", files)
        parked = _parked(files)
    if heard.age is None and report.said.get("last_session"):
        heard = _from_report(report, moment)
    spent, unknown = history.spent_since(told, moment.midnight)
    state = "crashed" if running and not alive else heard.state
    if alive and state == "idle":
        state = "busy"  # the ledger tells of the last one that ended; another role goes on
    oddities = [f"journal: {what}" for what in lost] + [f"ledger: {what}" for what in gone]
    return Standing(
        *(name, state, heard, recorded, told, running, report),
        *(waiting, urgent, spent, unknown, oddities, parked),
    )


def _troubles(one: Standing) -> Iterator[tuple[str, str]]:
    for session in one.crashed:
        role = f" as {session['role']}" if session["role"] else ""
        yield "crashed", f"session crashed{role}"
    if one.report.state in ("missing", "unreadable"):
        detail = f": {one.report.detail}" * bool(one.report.detail)
        yield "report", f"{REPORT} {one.report.state}{detail}"
    for lost in one.lost:
        yield "damage", lost
    if one.parked:
        told = [f"{each.task} ({each.reason})" for each in one.parked[:_MOST_PARKED]]
        more = len(one.parked) - len(told)
        told += [f"and {more} more"] if more else []
        yield "parked", f"{len(one.parked)} parked: {', '.join(told)}"
    if one.complaint:
        yield one.state, one.complaint
    if one.history["retired"] is not None:
        return  # nobody expects news of it
    if one.report.state == "stale":
        yield "stale", f"stale: {one.report.detail}"
    if (one.report.age or 0.0) < -CLOCKS_DIFFER:
        yield "clock", f"{REPORT} is from the future: a clock is wrong"
    if one.blocked_by:
        yield "blocked", f"blocked by {one.blocked_by}"


# --- what is on disk ------------------------------------------------------------------------


class _Folder:
    """A directory that is opened once for all that is read of it."""

    def __init__(self, home: Home, directory: Dir | None) -> None:
        self.vfs, self._clock, self.directory = home.vfs, home.clock, directory
        self.names = frozenset(directory.names()) if directory is not None else frozenset[str]()
        self._tools = Tools(home.vfs, home.clock, mask.nothing, str, _unheard)

    def folded(
        self, name: str, log: _Folder, stem: str | None, shape: Shape[Any]
    ) -> tuple[Any, bool, list[str]]:
        """The state of a view, whether its file shows it, and what is odd about its log."""
        if log.directory is None:
            return shape.initial(), False, []
        own = self.directory
        cell = _Cell(FileCell(Place(own, (), self._tools), name) if own is not None else None)
        lines = _Lines(log.directory, log.names, Series(stem), log._tools)
        view = View(cast("Log", lines), cast("Cell", cell), shape, self._clock)
        try:
            return view.read(), cell.shown, lines.oddities
        except HoldfastError as error:
            return shape.initial(), False, [*lines.oddities, f"unreadable: {error}"]

    def read(self, name: str) -> bytes | None:
        return read_file(self.vfs, self.directory, name) if self.directory is not None else None


def _unheard(word: str, detail: str) -> None:
    """Whoever only looks tells nobody."""


class _Cell:
    """A cell, and whether the file beside its stamp is what the stamp says."""

    def __init__(self, cell: FileCell | None) -> None:
        self._cell, self.shown = cell, False

    def load(self, version: int) -> Stamp | None:
        if self._cell is None:
            return None
        try:
            found = self._cell.load(version)
        except HoldfastError:
            return None  # something else stands there: the log is read instead
        self.shown = found is not None and found.shown
        return found

    def stranger(self) -> str | None:
        """Nobody will write over the file, so it does not matter whose it is."""
        return None


class _Lines:
    """A log, and what was odd when a view was read from it."""

    def __init__(self, directory: Dir, names: frozenset[str], series: Series, tools: Tools) -> None:
        self._log = FileLog(Place(directory, (), tools), series)
        files = [plain_name(name) for name in names if ".jsonl" in name]
        self._newest = max(filter(None, map(series.parse, files)), default=None)
        self._directory = directory
        self.oddities: list[str] = []

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        if self._newest is None or self._ends_at(after):
            return
        damaged = 0
        for line in self._log.read(after):
            damaged += isinstance(line, BadLine)
            yield line
        if damaged:
            self.oddities.append(f"{damaged} damaged lines")

    def contains(self, cursor: Cursor) -> bool:
        found = self._ends_at(cursor) or self._log.contains(cursor)
        if not found:
            self.oddities.append("lines lost")
        return found

    def _ends_at(self, cursor: Cursor) -> bool:
        """Whether nothing was added since, nor taken away: then no file need be opened."""
        if self._newest is None or cursor.segment != self._newest.filename:
            return False
        found = self._directory.stat(cursor.segment)
        return found is not None and found.size == cursor.offset


def _is_live(home: Home, layout: Layout, name: str, session: Session) -> bool:
    role = session["role"]
    log = home.log(key_of(home, layout, "journal", name))
    owner = Owning(home, key_of(home, layout, "agent", name))
    lease = DetachedLease(
        log,
        home.cell(leases(name)),
        home,
        f"session.{role}" if role else "session",
        partial(owner.is_alive, role),
    )
    try:
        return lease.is_live()
    finally:
        lease.close()


def _report(
    files: _Folder, told: State | None, moment: Moment, heard: Presence, *, alive: bool
) -> Report:
    """How the file is; `told` is what the journal says, if that is just what the file shows."""
    try:
        said = history.report(told) if told is not None and told["updated_at"] else None
        if said is None:
            data = files.read(REPORT)
            if data is None:
                return Report("missing" if files.names & _SHOW_STATE else None)
            if not data.strip():
                return Report("unreadable", "it is empty")
            said = decode(data.rstrip(b"\n"), limit=MAX_DOCUMENT)
        if not isinstance(said, dict):
            return Report("unreadable", "it is no JSON object")
        age = moment.now - instant_of(str(said.get("updated_at")))
    except (HoldfastError, DecodeError, OSError) as error:
        return Report("unreadable", str(error)[:_MOST])
    except ValueError:
        return Report("unreadable", "updated_at is no time")
    recent = heard.age is not None and heard.age <= moment.stale_after
    # Of an agent without sessions the report stays as it was made: its ledger tells of it.
    told_elsewhere = alive or (recent and not said.get("last_session"))
    if age > moment.stale_after and not told_elsewhere:
        return Report("stale", f"report {ago(age)} old", age, said)
    return Report("ok", "", age, said)


def _from_report(report: Report, moment: Moment) -> Presence:
    """What an agent without a ledger says of itself, as those of other systems do."""
    status = str(report.said.get("status"))
    state = "busy" if status in _BUSY else "error" if status == "error" else "idle"
    told: State = {"state": state, "last_error": None}
    told["last_heartbeat"] = report.said.get("updated_at")
    told["last_task_id"] = report.said.get("current_task") or "a session"
    if state == "error":
        told["last_error"] = str(report.said.get("summary") or "error")
    return presence(told, moment.now, moment.offline_after)


def _inbox(home: Home, name: str, key: str, files: _Folder) -> tuple[int, int]:
    """How many messages would be handed out now, and how many of them are urgent."""
    if files.directory is None or INBOX not in files.names:
        return 0, 0
    try:
        inbox = files.directory.subdir(INBOX)
    except (NotOurs, FileNotFoundError):
        return 0, 0  # somebody put something else there
    try:
        lying = [each for each in inbox.names() if each.endswith(SUFFIX) and each[0] != "."]
        places = [place_of_ours(each) for each in lying]
        plain = None not in places and (
            len(lying) > _MOST_OPENED
            or (not _is_filled(inbox) and all(_stays(files.vfs, inbox, each) for each in lying))
        )
    finally:
        inbox.close()
    if plain:
        return len(lying), sum(str(place).startswith("0") for place in places)
    from holdfast.agents.inbox import Inbox  # noqa: PLC0415 - for the few that need a closer look

    box = Inbox(home, name, key)
    try:
        letters = box.takeable()
        return len(letters), sum(each.is_urgent for each in letters)
    finally:
        box.close()


def _stays(vfs: Vfs, inbox: Dir, name: str) -> bool:
    """Whether a message that we wrote can be seen at a glance not to expire."""
    try:
        data = read_file(vfs, inbox, name) or b""
    except (HoldfastError, OSError):
        return False  # something else stands there
    return b'"expires_at":null' in data or (bool(data) and b'"expires_at"' not in data)


def _is_filled(inbox: Dir) -> bool:
    try:
        claimed = inbox.subdir(CLAIMED)
    except (NotOurs, FileNotFoundError):
        return False
    try:
        return bool(claimed.names())
    finally:
        claimed.close()


def _parked(files: _Folder) -> list[Parked]:
    """The tasks that failed too often; of a list that cannot be read `doctor` tells."""
    try:
        data = files.read(TASKS) if TASKS in files.names else None
        if data is None or b'"parked"' not in data:
            return []  # nearly all of them, and parsing is what takes time
        from holdfast.agents import board  # noqa: PLC0415 - for the few that have such a task

        found = board.parked_in(decode(data.strip(), limit=MAX_DOCUMENT))
    except (HoldfastError, DecodeError, OSError):
        return []
    return [
        Parked(clip(one_line(task), _MOST_NAME), clip(one_line(reason), _MOST))
        for task, reason in found
    ]

"""How an agent stands at this moment: what a person wants to see of it in a line.

Read from the stamps of its views and from its folder, so that a fleet is looked at in no time;
nothing is written.  A session whose owner is gone is crashed here, before anybody has put that
on record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents import history, journal
from holdfast.agents.document import decoded, objects_in
from holdfast.agents.history import RECENT, Session, State, open_sessions
from holdfast.agents.presence import Presence as Owning
from holdfast.clock import instant_of
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.errors import HoldfastError, NotOurs
from holdfast.ids import is_agent_id
from holdfast.layout import HOLDFAST, Layout
from holdfast.ledger.book import agents, key_of
from holdfast.ledger.status import Presence, presence, status_of
from holdfast.store.backend import Peek
from holdfast.store.fence import Fences, grant_in, is_live
from holdfast.text import ago, clip, one_line, plural

if TYPE_CHECKING:
    from holdfast.store.home import Home

REPORT, STATUS, TASKS, INBOX = "report.json", "status.json", "tasks.json", "inbox"
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
        return [says for _, says in kinds_of_trouble(self)]


def fleet(home: Home, moment: Moment, layout: Layout = HOLDFAST) -> Iterator[Standing]:
    """Every agent, by name."""
    known = _folders(home) if layout is HOLDFAST else agents(home, layout)
    return (standing(home, name, moment, layout) for name in known)


def _folders(home: Home) -> list[str]:
    """What `agents` finds in a home of ours, without a look at every file."""
    found: set[str] = set()
    for above in map(HOLDFAST.above, HOLDFAST.known_by):
        for name in filter(is_agent_id, home.names(above)):
            with suppress(NotOurs):  # a file, or a link
                if home.names(f"{above}/{name}"):
                    found.add(name.lower())
    return sorted(found)


def standing(home: Home, name: str, moment: Moment, layout: Layout = HOLDFAST) -> Standing:
    try:
        return _standing(home, name, moment, layout)
    except HoldfastError as error:
        # One that cannot be looked at must not hide the others.
        recorded, told = status_of(name).initial(), history.initial(name)
        unknown = Presence("unknown", None, "")
        report = Report("unreadable", str(error)[:_MOST])
        return Standing(name, "unknown", unknown, recorded, told, [], report, 0, 0, 0.0, 0, [], [])


def _standing(home: Home, name: str, moment: Moment, layout: Layout) -> Standing:
    folder = key_of(home, layout, "agent", name)
    keys = [key_of(home, layout, part, name) for part in ("status", "ledger", "report", "journal")]
    names, status = home.names(folder), Peek(status_of(name).initial(), False, [])
    if STATUS in names or home.names(keys[1]):
        status = home.peek(keys[0], keys[1], status_of(name))
    course, shown, lost = home.peek(keys[2], keys[3], journal.shape(name))
    recorded, told = status.state, journal.history_in(course)
    owners, fences = Owning(home, folder), journal.fences_in(course)
    running = [Running(each, _is_live(home, owners, fences, each)) for each in open_sessions(told)]
    seen = presence(recorded, moment.now, moment.offline_after)
    alive = any(each.alive for each in running)
    report = _report(home, folder, names, told if shown else None, moment, seen, alive=alive)
    waiting, urgent = _inbox(home, name, f"{folder}/{INBOX}") if INBOX in names else (0, 0)
    parked = _parked(home, f"{folder}/{TASKS}") if TASKS in names else []
    if seen.age is None and report.said.get("last_session"):
        seen = _from_report(report, moment)
    spent, unknown = history.spent_since(told, moment.midnight)
    state = "crashed" if running and not alive else seen.state
    if alive and state == "idle":
        state = "busy"  # the ledger tells of the last one that ended; another role goes on
    warnings = [f"journal: {what}" for what in lost]
    warnings += [f"ledger: {what}" for what in status.warnings]
    return Standing(
        *(name, state, seen, recorded, told, running, report),
        *(waiting, urgent, spent, unknown, warnings, parked),
    )


def kinds_of_trouble(one: Standing) -> Iterator[tuple[str, str]]:
    """What somebody should look at, each behind a word that stays while it lasts."""
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


def _is_live(home: Home, owners: Owning, fences: Fences, session: Session) -> bool:
    role = session["role"]
    held = grant_in(fences, journal.lease_of(role), home.now().host)
    return is_live(held, home.now(), partial(owners.is_alive, role))


def _report(
    home: Home,
    folder: str,
    names: list[str],
    told: State | None,
    moment: Moment,
    seen: Presence,
    *,
    alive: bool,
) -> Report:
    """How the file is; `told` is what the journal says, if that is just what the file shows."""
    try:
        said = history.report(told) if told is not None and told["updated_at"] else None
        if said is None:
            text = home.document(f"{folder}/{REPORT}").read() if REPORT in names else None
            if text is None:
                return Report(None if _SHOW_STATE.isdisjoint(names) else "missing")
            if not text.data.strip():
                return Report("unreadable", "it is empty")
            said = decode(text.data.rstrip(b"\n"), limit=MAX_DOCUMENT)
        if not isinstance(said, dict):
            return Report("unreadable", "it is no JSON object")
        age = moment.now - instant_of(str(said.get("updated_at")))
    except (HoldfastError, DecodeError) as error:
        return Report("unreadable", str(error)[:_MOST])
    except ValueError:
        return Report("unreadable", "updated_at is no time")
    recent = seen.age is not None and seen.age <= moment.stale_after
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


def _inbox(home: Home, name: str, key: str) -> tuple[int, int]:
    """How many messages would be handed out now, and how many of them are urgent."""
    from holdfast.agents.inbox import Inbox  # noqa: PLC0415 - most agents have no message

    lying = home.mailbox(key).waiting()
    if len(lying) > _MOST_OPENED:
        return len(lying), sum(each.priority == "high" for each in lying)
    letters = Inbox(home, name, key).takeable()
    return len(letters), sum(each.is_urgent for each in letters)


def _parked(home: Home, key: str) -> list[Parked]:
    """The tasks that failed too often; of a list that cannot be read `doctor` tells."""
    try:
        text = home.document(key).read()
    except HoldfastError:
        return []
    if text is None or b'"parked"' not in text.data:
        return []  # nearly all of them, and parsing is what takes time
    from holdfast.agents.tasks import OPEN, parked_because  # noqa: PLC0415 - few have one

    tasks = objects_in(decoded(text.data).get("tasks"))
    return [
        Parked(clip(one_line(str(task.get("id"))), _MOST_NAME), clip(one_line(why), _MOST))
        for task in tasks
        if task.get("status") in OPEN and (why := parked_because(task))
    ]


# --- in which order a scheduler should wake agents, and why ----------------------------------

# First those that can run and do well, those who have waited longest before others; then those most
# of whose newest sessions failed; then who is blocked; then who is at work already; last who is
# retired.  An agent without a history is not worse than a good one.
READY, FAILING, BLOCKED, BUSY, RETIRED = "ready", "failing", "blocked", "busy", "retired"
_ORDER = (READY, FAILING, BLOCKED, BUSY, RETIRED)


class Health(NamedTuple):
    agent: str
    health: str
    """ready, failing, blocked, busy or retired."""
    failed: int
    """Of its newest sessions, which are `recent`."""
    recent: int
    last_ended: str | None
    reason: str
    urgent: int

    @property
    def place(self) -> tuple[int, float, bool, str, str]:
        rank, share = _ORDER.index(self.health), self.failed / max(self.recent, 1)
        return rank, share, not self.urgent, self.last_ended or "", self.agent


def health(one: Standing) -> Health:
    recent = one.history["recent"]
    # A crash that is not recorded yet counts as well.
    outcomes = [*(each["outcome"] for each in recent), *("error" for _ in one.crashed)][-RECENT:]
    failed = sum(outcome != "completed" for outcome in outcomes)
    last = recent[-1]["ended_at"] if recent else None
    group, reason = _group(one, failed, len(outcomes))
    return Health(one.agent, group, failed, len(outcomes), last, reason, one.urgent)


def _group(one: Standing, failed: int, of: int) -> tuple[str, str]:
    tally = f"{failed} of its last {of} sessions failed" if failed else f"{of} of {of} completed"
    tally = tally if of else "no sessions yet"
    alive = [each.session for each in one.running if each.alive]
    if alive:
        what = ", ".join(f"{each['type']} session {each['session_id']}" for each in alive)
        return BUSY, f"at work: {what}"
    if (retired := one.history["retired"]) is not None:
        why = f": {retired['reason']}" if retired["reason"] else ""
        return RETIRED, f"since {retired['at']}{why}"
    if one.state == "busy":
        return BUSY, f"at work on {one.task or 'something'}"
    notes = [plural(one.urgent, "urgent message")] if one.urgent else []
    notes += [f"{session['session_id']} crashed" for session in one.crashed]
    said = "; ".join([tally, *notes])
    if one.blocked_by:
        return BLOCKED, f"blocked by {one.blocked_by}; {said}"
    return (FAILING if 2 * failed >= of > 1 else READY), said


def by_health(standings: Iterable[Standing]) -> list[Health]:
    """The order in which to wake them."""
    return sorted(map(health, standings), key=lambda each: each.place)

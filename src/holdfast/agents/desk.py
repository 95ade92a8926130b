"""What lies on an agent's desk: its inbox, its tasks and its notes, and how they belong together.

A session claims the urgent messages it is told of; they are done when it completes and come back
when it does not.  A flag that is acknowledged becomes a note.  A session that failed counts
against the task it worked on.  Of all this nothing can undo the end of a session or keep another
one from beginning: what goes wrong is put into the audit log, and done by whoever comes next.
So is the note of a flag where memory.md is one that only a person can mend: the message is done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from holdfast.agents.inbox import Inbox, Letter, lost
from holdfast.agents.journal import State
from holdfast.agents.notes import FLAGS, Notes, one_line
from holdfast.agents.tasks import Changed, New, TaskList
from holdfast.codec import DecodeError, Record, decode, pretty
from holdfast.errors import BadName, Corrupt, HoldfastError, LeaseLost, NotOurs, UsageError
from holdfast.ids import SessionId, session_id
from holdfast.mask.shown import beginning
from holdfast.process import Owner
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Claimed, Line, Question

if TYPE_CHECKING:
    from holdfast.layout import Part
    from holdfast.store.document import FileDocument
    from holdfast.store.home import Home

SENT, RECEIVED = "cross_agent_flags_sent", "cross_agent_flags_received"
SOURCE = "inbox"
MOST_HANDED_OUT = 20
_OF_A_SESSION = "session-"
_A_YEAR = 365 * 86_400.0
_MOST_FLAG = 1_000
"""Characters of a flag that memory.md keeps; the message has the rest."""
_UNTIL_MENDED = (Corrupt, UsageError, NotOurs)
"""What is wrong with memory.md until a person mends it; anything else passes by itself."""


class Desk:
    """Opens nothing before it is needed."""

    def __init__(
        self,
        home: Home,
        agent: str,
        key: Callable[[Part], str],
        journal: StateLog[State],
    ) -> None:
        self._home, self._agent, self._key, self._journal = home, agent, key, journal

    @cached_property
    def tasks(self) -> TaskList:
        return TaskList(self._home, self._agent, self._key("tasks"), self._journal)

    @cached_property
    def notes(self) -> Notes:
        return Notes(self._home, self._agent, self._key("notes"), self._journal.log)

    @cached_property
    def inbox(self) -> Inbox:
        return Inbox(self._home, self._agent, self._key("inbox"))

    # -- sessions ----------------------------------------------------------------------

    def hand_out(
        self, session: str, fence: int, owner: Owner | None = None, seconds: float = _A_YEAR
    ) -> None:
        """Claim the urgent messages for a session that has begun and is told of them."""

        def claim() -> None:
            self.inbox.box.redeliver()
            urgent = sum(each.is_urgent for each in self.inbox.takeable()[:MOST_HANDED_OUT])
            if urgent:
                self.inbox.take(
                    _claimant(session_id(session)),
                    seconds=seconds,
                    limit=urgent,
                    fence=fence,
                    owner=owner,
                )

        self._attempt("claiming messages", claim)

    def handed_out(self, session: str | None = None) -> list[Letter]:
        """What a session was told of and has not ended with yet; without a name, what all were."""
        held = [(self._session_of(each), each) for each in self.inbox.claimed()]
        return [each for whose, each in held if whose and session in (None, str(whose))]

    def settle(self) -> None:
        """Draw the consequences of sessions that ended, also of those whose owner died."""
        # An old copy that an editor saved must not be what the next session is told.
        if self._is_kept("tasks"):
            self._attempt("reading tasks", self.tasks.read)
        if self._is_kept("notes"):
            self._attempt("reading notes", self.notes.read)
        self._attempt("noting flags", self._note_what_is_owed)
        self._attempt("parking tasks", self.tasks.park)
        self._attempt("settling messages", self._settle_messages)

    def _is_kept(self, part: Part) -> bool:
        """Whether we have changed a file: one that nobody but people wrote is theirs alone."""
        return self._home.version(f"{self._key(part)}.history") != ""

    def _settle_messages(self) -> None:
        for letter in self.handed_out():
            session = self._session_of(letter)
            outcome = self.tasks.endings()["ended"].get(str(session))
            if outcome == "completed":
                self._attempt(f"acknowledging {letter.id}", partial(self.ack, letter))
            elif outcome is not None and letter.claimed is not None:
                why = f"{session} ended: {outcome}"
                back = partial(self.inbox.box.give_back, letter.claimed, why)
                self._attempt(f"returning {letter.id}", back)

    def _session_of(self, letter: Letter) -> SessionId | None:
        """The session that has a message; None if somebody else has it."""
        who = letter.claimed.claimant if letter.claimed is not None else ""
        day, _, number = who.removeprefix(_OF_A_SESSION).rpartition("_")
        try:
            return session_id(f"{day}_{self._agent}_{number}")
        except BadName:
            return None

    # -- messages ----------------------------------------------------------------------

    def ack(self, letter: Letter) -> str | None:
        """A claimed message is done; what it leaves behind is written first.

        Says what has to be mended before its note can be written; None if it is.
        """
        assert letter.claimed is not None
        is_flag = letter.record.get("type") == "flag"
        owed = self._keep_flag(letter, letter.claimed) if is_flag else None
        self.inbox.box.ack(letter.claimed)
        if owed is not None:
            told = f"{self._agent}: {letter.id} is done, but not noted yet: {owed}"
            self._home.notice("desk", told)
        return owed

    def as_task(self, letter: Letter) -> Changed:
        """Make a task of a message; of one message there is one."""
        record = letter.record
        urgent = record.get("priority") == "high"
        said = beginning(f"{record.get('from')}: {record.get('body') or ''}".strip(), _MOST_FLAG)
        new = New(
            one_line(str(record.get("subject") or letter.id)),
            "follow-up",
            "high" if urgent else "medium",
            context=said,
            from_message=letter.id,
        )
        return self.tasks.add(new)

    def _keep_flag(self, letter: Letter, claim: Claimed) -> str | None:
        """Note a flag and count it, once, however often it is handed out.

        Says why the note is owed; a message that came back for that would end among the dead.
        """
        ref = f"{self.inbox.key}/{letter.id}"

        def count() -> None:
            # Under the lock of the notes: of two who believe that they have it, one still does.
            if claim.token not in {each.token for each in self.inbox.box.claimed()}:
                raise lost(letter.id)
            # Also at the first try: who was killed before the message was done acknowledges again.
            if not self._has_counted(RECEIVED, ref):
                self._count(RECEIVED, 1, ref)

        line = _flag_line(letter.record, self._home.day())
        try:
            self.notes.put(FLAGS, line, first=count)
        except _UNTIL_MENDED as error:
            with self._home.sheet(self.notes.key).locked():
                count()
            self._owed.update(lambda old: pretty([*_without(old, line), line]))
            return error.message
        return None

    @property
    def _owed(self) -> FileDocument:
        """Lines that memory.md has to get."""
        return self._home.document(f"{self._key('notes')}.owed")

    def _note_what_is_owed(self) -> None:
        found = self._owed.read() if self._home.version(self._owed.key) else None
        for line in _lines(found.data if found is not None else None):
            self.notes.put(FLAGS, line)
            self._owed.update(lambda old, noted=line: pretty(_without(old, noted)))

    def count_sent(self, number: int, message: str, *, again: bool) -> None:
        """Count flags that were sent; `again` if they may have been counted before."""
        ref = f"sent/{message}"
        if not (again and self._has_counted(SENT, ref)):
            self._count(SENT, number, ref)

    def _has_counted(self, counter: str, ref: str) -> bool:
        def counts(line: Line) -> bool:
            return counter in (line.record.get("counters") or ())

        return bool(self._journal.log.find(Question({"ref": ref}, 1, wanted=counts)).lines)

    def _count(self, counter: str, number: int, ref: str) -> None:
        line: Record = {"event": "count", "source": SOURCE, "counters": {counter: number}}
        self._journal.refresh(self._journal.log.append({**line, "ref": ref}))

    # -- all of it ---------------------------------------------------------------------

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except LeaseLost:
            pass  # somebody else has it by now
        except HoldfastError as error:
            self._home.notice("desk", f"{self._agent}: {what}: {error.message}")

    def close(self) -> None:
        for name in ("tasks", "notes", "inbox"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()


def _claimant(session: SessionId) -> str:
    """Who has a message that a session was told of; agents' names may be too long for this."""
    return f"{_OF_A_SESSION}{session.day}_{session.number:03d}"


def _lines(data: bytes | None) -> list[str]:
    try:
        found = decode(data) if data else []
    except DecodeError:
        return []  # the audit log has told of each
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _without(data: bytes | None, line: str) -> list[str]:
    return [each for each in _lines(data) if each != line]


def _flag_line(record: Record, today: str) -> str:
    """`leo (2026-11-15): "Fees: look at who sets them"`."""
    created = str(record.get("created_at"))[:10]
    day = created if len(created) == len(today) and created[:4].isdigit() else today
    said = ": ".join(filter(None, (str(record.get(name) or "") for name in ("subject", "body"))))
    text = one_line(said)
    cut = beginning(text, _MOST_FLAG)
    return one_line(f'{record.get("from")} ({day}): "{cut}"')

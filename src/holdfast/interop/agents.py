"""The state of an agent of another system, brought into a home.

    copies · messages · tasks and notes · the journal's line · the views that it makes

The line that names the files with their sha256 comes behind all that it speaks of, and every
step before it can be done twice: after a crash in between the next run completes it.  What the
files say of report, session and metrics stands in that line, from which the views are folded.
Nothing is made up: what a file does not say is absent or null here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.agents import journal
from holdfast.agents.history import documents_in
from holdfast.agents.notes import TAKEN_OVER
from holdfast.codec import Json, Record, pretty
from holdfast.contracts.kinds import kind
from holdfast.ids import is_message_id, mapped_agent_id
from holdfast.interop import copies
from holdfast.interop.copies import (
    Foreign,
    Taken,
    errors_in,
    moment_in,
    sealed,
    shown,
    value_in,
)
from holdfast.interop.flags import Flag
from holdfast.interop.records import pieces
from holdfast.layout import HOLDFAST, Part
from holdfast.state.statelog import StateLog
from holdfast.store.edited import EditedDocument
from holdfast.store.primitives import START, Line, Problem, Shelf

if TYPE_CHECKING:
    from holdfast.store.home import Home

EVENT, FIELD = "import", "imported"
_NAMES_AGENT = ("agent", "to")


class Found(NamedTuple):
    """A file and the part of the agent's state that it is."""

    part: Part
    file: Foreign


class Stop(NamedTuple):
    """What a hook wrote each time an agent stopped: not when it began, nor a session."""

    file: Foreign
    id: str
    ended: str
    status: str


class Flagged(NamedTuple):
    """What a file of a shared folder says to one agent."""

    file: Foreign
    flags: list[Flag]
    changed: str
    """When the file was written, for flags that do not say when they were."""


class _Plan:
    """What is to be done, once all files were looked at."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        self.copies: list[Foreign] = []
        self.messages: list[tuple[str, Record]] = []
        self.texts: dict[Part, tuple[Foreign, str]] = {}
        self.documents: dict[str, Record] = {}
        self.sessions: list[Record] = []

    def note(self, file: Foreign, *, copied: bool = True) -> None:
        entry = copies.noted(file)
        if copied:
            self.copies.append(file)
        else:
            del entry["name"]
        self.files.append(entry)


class Adoption:
    """One agent of another system; `name` is what it is called there."""

    def __init__(self, home: Home, name: str, *, layout: str, dry_run: bool = False) -> None:
        self._home, self._name, self._layout, self._dry_run = home, name, layout, dry_run
        self.agent = mapped_agent_id(name)
        self._folder = HOLDFAST.agent(self.agent)
        self._before = files_in_journal(home, self.agent)
        self._known = {_identity(each["path"], each["sha256"]) for each in self._before}
        self._plan = _Plan()

    def take(self, files: Iterable[Found]) -> list[Taken]:
        """Look at the files, take in what is new, and say what became of each."""
        taken = [
            self._look_at(part, file)
            for part, file in sorted(files, key=lambda each: (each.part, each.file.path))
        ]
        self._act()
        return taken

    def take_stops(self, stops: Sequence[Stop]) -> Taken:
        """Take in what a hook left of one agent: how often it stopped, and when last."""
        fresh = [stop for stop in stops if self._is_news(stop.file)]
        if not fresh:
            return Taken(
                stops[0].file.path, "known", f"all {len(stops)} files were imported before"
            )
        for stop in fresh:
            self._plan.note(stop.file, copied=False)
        ended = max(stop.ended for stop in fresh)
        words = sorted({stop.status for stop in fresh})
        self._plan.sessions.append(
            {
                "session_id": None,
                "started_at": None,
                "ended_at": ended,
                "status": words[0] if len(words) == 1 else None,
                "stops": len(fresh),
            }
        )
        self._act()
        known = f", {len(stops) - len(fresh)} known before" if len(fresh) < len(stops) else ""
        detail = f"{len(fresh)} files of {self._name!r}, the last one ended {ended}{known}"
        return Taken(fresh[0].file.path, "taken", detail, len(fresh))

    def take_flags(self, found: Sequence[Flagged]) -> list[Taken]:
        """Make messages of flags, and say what became of each file."""
        taken: list[Taken] = []
        for file, flags, changed in found:
            if not self._is_news(file):
                taken.append(Taken(file.path, "known", copies.KNOWN))
                continue
            self._plan.note(file)
            self._plan.messages += [flag.message(file.path, changed) for flag in flags]
            detail = "; ".join(f"from {flag.sender}: {flag.subject}" for flag in flags)
            taken.append(Taken(file.path, "taken", detail, len(flags)))
        self._act()
        return taken

    def _is_news(self, file: Foreign) -> bool:
        """Whether it was not met before, in this run or an earlier one."""
        identity = _identity(file.path, copies.digest_of(file.data))
        news = identity not in self._known
        self._known.add(identity)
        return news

    # -- looking -----------------------------------------------------------------------

    def _look_at(self, part: Part, file: Foreign) -> Taken:
        if not self._is_news(file):
            return Taken(file.path, "known", copies.KNOWN)
        if (unfit := copies.unfit(file, may_be_empty=part == "notes")) is not None:
            return unfit
        try:
            match part:
                case "journal":
                    return self._journal(file)
                case "notes":
                    return self._text(part, file, copies.text_in(file), "")
                case _:
                    return self._document(part, file)
        except ValueError as error:  # it cannot be read, or is not of this agent
            self._plan.note(file)
            return Taken(file.path, "quarantined", str(error))

    def _document(self, part: Part, file: Foreign) -> Taken:
        value = value_in(file)
        renamed = self._with_our_name(value)
        form = kind("message" if part == "inbox" else part)
        reading = form.read(form.upgraded(renamed))
        wrong, read = errors_in(reading), reading.value
        if wrong or not isinstance(read, dict):
            raise ValueError(shown(wrong[:1]) or "not an object")
        found = cast("Record", read)
        named = (found.get(name) for name in _NAMES_AGENT)
        for owner in (each for each in named if isinstance(each, str)):
            if owner.lower() != self.agent:
                raise ValueError(f"it is of {owner!r}, not of {self._name!r}")
        mended = shown([each for each in reading.findings if each.code not in _HARMLESS])
        if renamed != value:
            mended = "; ".join(filter(None, [f"{self._name!r} became {self.agent!r}", mended]))
        if part == "inbox":
            return self._message(file, found, mended)
        if part == "tasks":
            text = pretty(found).decode() if mended else file.data.decode()
            return self._text(part, file, text, mended)
        self._plan.note(file)
        self._plan.documents[part] = found
        return _taken(file, mended)

    def _with_our_name(self, value: Json) -> Json:
        """The name of the agent, where it cannot be an agent's name here, as it is called now."""
        if not isinstance(value, dict) or self._name.lower() == self.agent:
            return value
        ours = {name: self.agent for name in _NAMES_AGENT if value.get(name) == self._name}
        return {**value, **ours}

    @cached_property
    def _messages(self) -> dict[str, Record | None]:
        """The messages that there are by their ids, as after an import that was cut off."""
        shelves: tuple[Shelf, ...] = ("waiting", "claimed", "done", "dead")
        with closing(self._home.mailbox(HOLDFAST.path("inbox", self.agent))) as box:
            return {each.id: each.record for shelf in shelves for each in box.look(shelf)}

    def _message(self, file: Foreign, record: Record, mended: str) -> Taken:
        stem = file.path.rpartition("/")[2].removesuffix(".json")
        if not is_message_id(stem):
            raise ValueError("its name can be no message's")
        if stem in self._messages and self._messages[stem] != record:
            self._plan.note(file)
            return Taken(file.path, "skipped", "another message has this id; a copy is kept")
        self._plan.note(file, copied=bool(mended))
        self._plan.messages.append((stem, record))
        return _taken(file, mended)

    def _text(self, part: Part, file: Foreign, text: str, mended: str) -> Taken:
        """A text that people edit: it does not replace one that was changed here."""
        there = self._home.document(HOLDFAST.path(part, self.agent)).read()
        self._plan.note(file)
        earlier = {each.get("text_sha256") for each in self._before}
        if there and there.data != text.encode() and there.revision not in earlier:
            return Taken(file.path, "skipped", "the home has its own by now; a copy is kept")
        self._plan.texts[part] = (file, text)
        self._plan.files[-1]["text_sha256"] = copies.digest_of(text.encode())
        return _taken(file, mended)

    def _journal(self, file: Foreign) -> Taken:
        parts = list(pieces(file.data))
        records = [part.record for part in parts if part.record is not None]
        rejects = [part for part in parts if part.record is None]
        if not records:
            raise ValueError(f"line {rejects[0].line}: {rejects[0].why}")
        self._plan.note(file)
        self._plan.sessions += sessions_in(records)
        detail = f"{len(records)} lines"
        if rejects:
            detail += f", {len(rejects)} that are none: line {rejects[0].line}: {rejects[0].why}"
        outcome = "repaired" if rejects or not all(part.alone for part in parts) else "taken"
        return Taken(file.path, outcome, detail, len(records))

    # -- acting ------------------------------------------------------------------------

    def _act(self) -> None:
        plan, self._plan = self._plan, _Plan()
        if self._dry_run:
            return
        if plan.files:
            self._bring_in(plan)
        # Also when nothing is new: an earlier import may have crashed before this.
        refresh(self._home, self.agent)

    def _bring_in(self, plan: _Plan) -> None:
        home, key = self._home, HOLDFAST.path("inbox", self.agent)
        for file in plan.copies:
            copies.keep(home, self._folder, file)
        # In the order in which they were sent, for of what waits the oldest comes first.
        plan.messages.sort(key=lambda each: str(each[1].get("created_at")))
        with closing(home.mailbox(key)) as box:
            for id, record in plan.messages:
                box.deliver(record, id=id)
        entry: Record = {"layout": self._layout, "name": self._name, "files": plan.files}
        more = {"documents": plan.documents, "sessions": plan.sessions}
        entry |= {name: found for name, found in more.items() if found}
        with closing(home.log(HOLDFAST.path("journal", self.agent))) as log:
            for part, (file, text) in plan.texts.items():
                key = HOLDFAST.path(part, self.agent)
                cell = home.cell(f"{key}.history")
                act: Record = {"event": TAKEN_OVER, "message": f"from {file.path}"}
                with closing(EditedDocument(home.sheet(key), log, cell, home.clock)) as document:
                    document.update(lambda _, text=text: text, act)
            log.append({"event": EVENT, FIELD: entry})


_HARMLESS = frozenset({"unknown_field", "old_id", "missing", "identity"})
"""Codes of what is odd and was left as it is."""


def _identity(path: str, digest: str) -> tuple[str, str]:
    """Two messages may say the same; a file of another name is another one."""
    return path.rpartition("/")[2], digest


def _taken(file: Foreign, mended: str) -> Taken:
    return Taken(file.path, "repaired" if mended else "taken", mended)


def sessions_in(records: Sequence[Record]) -> list[Record]:
    """The sessions that the lines of a journal tell of; where they name none, by their order."""
    found, running = list[Record](), list[Record]()
    for record in records:
        session, when = _text(record.get("session_id")), moment_in(record.get("ts"))
        if record.get("event") == "session_start":
            started: Record = {"session_id": session, "started_at": when, "ended_at": None}
            started["type"] = _text(record.get("type"))
            found.append(started)
            running.append(started)
        elif record.get("event") == "session_end":
            meant = [each for each in running if session in (None, each["session_id"])]
            if meant:
                running = [each for each in running if each is not meant[-1]]
            else:
                meant.append({"session_id": session, "started_at": None})
                found += meant
            meant[-1] |= {"ended_at": when, "outcome": _text(record.get("outcome"))}
            if type(sources := record.get("sources_archived")) is int and sources >= 0:
                meant[-1]["sources_archived"] = sources
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# --- what the journal says ------------------------------------------------------------------


def _imports(home: Home, agent: str) -> Iterator[dict[str, Any]]:
    for line in home.log(HOLDFAST.path("journal", agent)).read(START):
        if isinstance(line, Line) and line.seq is not None and line.record.get("event") == EVENT:
            entry = line.record.get(FIELD)
            if isinstance(entry, dict) and isinstance(cast("Record", entry).get("files"), list):
                yield cast("Record", entry)


def files_in_journal(home: Home, agent: str) -> list[dict[str, Any]]:
    """Every imported file that the journal of an agent names; anybody may write a line that only
    looks like one of Holdfast's."""
    listed: Iterator[Any] = chain.from_iterable(entry["files"] for entry in _imports(home, agent))
    return [
        cast("dict[str, Any]", file)
        for file in listed
        if isinstance(file, dict)
        and all(isinstance(cast("Any", file).get(name), str) for name in ("path", "sha256"))
    ]


def refresh(home: Home, agent: str) -> None:
    """Show the report, session and metrics that were imported."""
    there = {name for entry in _imports(home, agent) for name in documents_in({FIELD: entry})}
    views = journal.views(lambda part: HOLDFAST.path(part, agent), home.clock.now)
    names = {HOLDFAST.path(part, agent): part for part in ("report", "session", "metrics")}
    shown = {key: render for key, render in views.items() if names[key] in there}
    with StateLog(home, HOLDFAST.path("journal", agent), journal.shape(agent), shown) as state:
        state.flush()


def problems(home: Home, agent: str) -> Iterator[Problem]:
    """Copies that are not what was imported."""
    folder = HOLDFAST.agent(agent)
    found = (sealed(each, folder) for each in files_in_journal(home, agent))
    return copies.problems(home, filter(None, found))

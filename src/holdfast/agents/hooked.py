"""What the hooks of Claude Code tell us, as a session of an agent.

Claude Code runs a command at each step and gives it one JSON object.  The first of them begins
a session here, or joins the one in which Claude Code was started by `run`; tool calls become
lines of it; the last one ends it.  Which session belongs to which of theirs stands in the
journal, so an event that is told twice, or by twenty processes at once, counts once.

Events are data from outside: of wrong types, of any size, about files we must not touch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.agents import tools
from holdfast.agents.agent import Agent, End, Start
from holdfast.agents.document import as_object
from holdfast.agents.history import Session, State, Type
from holdfast.clock import instant, instant_of
from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode
from holdfast.errors import BadValue, Busy, LeaseLost
from holdfast.ledger.book import Event
from holdfast.mask import by_key_name

if TYPE_CHECKING:
    from holdfast.agents.context import Given
    from holdfast.store.home import Home

SILENCE = 6 * 3600.0
"""Seconds without an event after which a session counts as crashed."""
MOST_CONTEXT = 9_500
"""Characters: Claude Code puts no more than 10,000 of a hook into the conversation."""
_AT_ONCE = 9
"""How many sessions of Claude Code one agent can have at once."""
_SAME_BEAT = 2.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Told(NamedTuple):
    """One event, as far as we use it."""

    name: str
    known_as: str
    """The session of Claude Code, under a name that the journal can hold."""
    fields: Record

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    def object(self, name: str) -> Record:
        return as_object(self.fields.get(name))


class Place(NamedTuple):
    """Where an event belongs, beside what it says itself."""

    within: str | None = None
    """The session that whoever started Claude Code had begun."""
    type: Type = "ad-hoc"
    silence: float = SILENCE
    has_context: bool = False
    """Whether the conversation began with the context."""


class Heard(NamedTuple):
    """What came of an event."""

    did: str
    """began, joined, noted, beat, ended, or nothing."""
    session: str | None
    detail: str
    context: str = ""
    """For the conversation."""


def parse(data: bytes) -> Told:
    """The event in the bytes, or BadValue."""
    try:
        value = decode(data.strip(), limit=MAX_DOCUMENT)
    except DecodeError as error:
        raise BadValue(
            f"no event of Claude Code: {error}"[:300], hint="it gives one JSON object on stdin"
        ) from None
    fields = value if isinstance(value, dict) else {}
    name, session = fields.get("hook_event_name"), fields.get("session_id")
    if not (isinstance(name, str) and isinstance(session, str) and session):
        raise BadValue(
            "no event of Claude Code: hook_event_name and session_id are texts",
            hint="call it from the hooks in settings.json; see docs/claude-code.md",
        )
    return Told(name[:80], _known_as(session), fields)


def _known_as(session: str) -> str:
    """The name of a session of theirs as it will stand in the journal, so that it is found again.

    A name that could be a path, or that the store would mask as a secret, is told by its hash.
    """
    named = f"claude-code/{session}"
    # Theirs are UUIDs: those need no long look.
    if _UUID.fullmatch(session) or (_ID.fullmatch(session) and _is_kept(named)):
        return named
    digest = sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    parts = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
    return f"claude-code/{'-'.join(parts)}"


def _is_kept(named: str) -> bool:
    """Whether the store writes it as it is; only that is asked, so that any key will do."""
    mask = by_key_name(lambda: b"any")
    return mask({"known_as": named})["known_as"] == named


def hear(home: Home, agent: Agent, told: Told, place: Place = Place()) -> Heard:  # noqa: B008
    """Do what an event asks for."""
    match told.name:
        case "SessionStart":
            return _start(home, agent, told, place)
        case "SessionEnd":
            return _end(agent, told, place)
        case _:
            return _go_on(home, agent, told, place)


# --- which session --------------------------------------------------------------------------


def _find(state: State, told: Told, place: Place) -> Session | None:
    """The session of ours that an event is about, open or not."""
    known = state["sessions"].values()
    for each in known:
        if each["session_id"] == place.within and each["ended_at"] is None:
            return each
    name = state["known_as"].get(told.known_as)
    return next((each for each in known if each["session_id"] == name), None)


def _is_ours(session: Session, told: Told) -> bool:
    """Whether a hook began it, so that a hook ends it."""
    return session.get("known_as") == told.known_as


def _is_over(agent: Agent, session: Session, told: Told) -> bool:
    """Whether it crashed, as far as anybody can tell: what comes now is of another one."""
    if session["ended_at"] is not None:
        return session.get("cause") == "crashed"
    return _is_ours(session, told) and not agent.is_live(session["role"])


def _session(agent: Agent, told: Told, place: Place) -> Session | None:
    """The session of an event, begun if there is none; None if theirs had its end long ago."""
    # One look: between two of them another process may have begun it.
    state = agent.state()
    found = _find(state, told, place)
    if found is None:
        known = told.known_as in state["known_as"]
        return None if known else _begin(agent, told, place)
    return _begin(agent, told, place) if _is_over(agent, found, told) else found


def _begin(agent: Agent, told: Told, place: Place) -> Session:
    """Begin a session; if the agent has one already, beside it."""
    model = tools.told(told.text("model"), 100)
    fields = {"model": model} if model else {}
    busy: Busy | None = None
    for number in range(1, _AT_ONCE + 1):
        role = "" if number == 1 else f"claude-{number}"
        start = Start(place.type, role, place.silence, fields, known_as=told.known_as)
        try:
            agent.start(start)
        except Busy as error:
            busy = error
        found = _find(agent.state(), told, place)
        # Another process may have been told of the same session at the same time.
        if found is not None and found["ended_at"] is None:
            return found
    assert busy is not None
    raise busy


# --- events ---------------------------------------------------------------------------------


def _start(home: Home, agent: Agent, told: Told, place: Place) -> Heard:
    from holdfast.agents.context import gather  # noqa: PLC0415 - most events need none of it

    agent.bury()  # so that the context tells how the last session ended
    given = gather(home, agent)
    state = agent.state()
    found = _find(state, told, place)
    did = "nothing"
    if _is_to_begin(agent, told, state, found):
        found, did = _begin(agent, told, place), "began"
    elif found is not None and not _is_ours(found, told) and found["ended_at"] is None:
        did = "joined" if _join(agent, told, found) else "nothing"
    session = str(found["session_id"]) if found is not None else None
    if found is None or place.has_context:
        return Heard(did, session, f"{session}: {did}")
    return Heard(did, session, f"{session}: {did}", _context(agent.name, session, given))


def _is_to_begin(agent: Agent, told: Told, state: State, found: Session | None) -> bool:
    if found is not None and _is_over(agent, found, told):
        return True
    if found is not None and found["ended_at"] is None:
        return False
    # An end is never taken back: a conversation that is resumed is the next session.
    known = found is not None or told.known_as in state["known_as"]
    return not known or told.text("source") == "resume"


def _join(agent: Agent, told: Told, session: Session) -> bool:
    name = session["session_id"]

    def decide(state: State) -> Sequence[Record]:
        if state["known_as"].get(told.known_as) == name:
            return []
        return [{"event": "joined", "session_id": name, "known_as": told.known_as}]

    return agent.tell(decide, session["role"])


def _context(agent: str, session: str | None, given: Given) -> str:
    from holdfast.agents.context import fitted  # noqa: PLC0415 - as above

    first = (
        f"You are {agent}, in session {session}. `holdfast prime --agent {agent}` tells how to "
        "note what you find and hand over to your next session.\n\n"
    )
    whole = f"`holdfast session context --agent {agent}` shows all of it"
    return first + fitted(given, MOST_CONTEXT - len(first), whole)


def _go_on(home: Home, agent: Agent, told: Told, place: Place) -> Heard:
    """An event in the course of a session: a tool was used, a turn failed, or it merely lives."""
    session = _session(agent, told, place)
    if session is None:
        return Heard("nothing", None, "its session has ended")
    name, heard = session["session_id"], None
    if told.name in ("PostToolUse", "PostToolUseFailure"):
        heard = _tool(agent, told, session)
    elif told.name == "StopFailure":
        text = tools.told(" ".join(filter(None, map(told.text, ("error", "error_details")))))
        agent.note("turn_failed", f"turn failed: {text or 'unknown'}", {}, name)
        heard = Heard("noted", name, f"turn failed: {text}")
    least = _SAME_BEAT if told.name == "Stop" else None
    beaten = _stay_alive(home, agent, session, told, place, least)
    return heard or Heard("beat" if beaten else "nothing", name, f"{name} is alive")


def _tool(agent: Agent, told: Told, session: Session) -> Heard:
    name, tool = session["session_id"], told.text("tool_name")
    record = tools.line(tool, told.object("tool_input"), told.text("tool_use_id"), _error(told))

    def decide(state: State) -> Sequence[Record]:
        newest = [each for each in state["sessions"].values() if each["session_id"] == name]
        if newest and tools.knows(newest[0]["tools"], record.get("call")):
            return []
        return [{**record, "session_id": name}]

    noted = agent.tell(decide, session["role"])
    return Heard("noted" if noted else "nothing", name, f"{name}: {record['tool']}")


def _error(told: Told) -> str | None:
    """Why a call failed; None if it did not."""
    answer = told.object("tool_response")
    if told.name == "PostToolUseFailure":
        return told.text("error") or "failed"
    if answer.get("is_error") is True or answer.get("success") is False:
        return next((text for text in (answer.get("error"),) if isinstance(text, str)), "failed")
    return "interrupted" if answer.get("interrupted") is True else None


def _stay_alive(
    home: Home, agent: Agent, session: Session, told: Told, place: Place, least: float | None
) -> bool:
    """Say that a session lives, unless that was said `least` seconds ago; whether it was said."""
    if session["ended_at"] is not None:
        return False
    if _is_ours(session, told):
        with suppress(LeaseLost):  # it was ended at this very moment
            agent.renew(session["role"], session["fence"], place.silence)
    heard = agent.ledger.state()["last_heartbeat"]
    age = home.clock.now() - instant_of(heard) if isinstance(heard, str) else None
    if age is not None and 0 <= age < (home.settings.heartbeat if least is None else least):
        return False
    event = Event("heartbeat", "Heartbeat", "claude-code", session=session["session_id"])
    agent.ledger.write(event)
    return True


# --- the end --------------------------------------------------------------------------------


def _end(agent: Agent, told: Told, place: Place) -> Heard:
    session = _find(agent.state(), told, place)
    if session is None or session["ended_at"] is not None:
        return Heard("nothing", None, "it has ended, or was never begun")
    from holdfast.agents.reported import from_transcript  # noqa: PLC0415 - only at the end

    name = str(session["session_id"])
    said, odd = from_transcript(told.text("transcript_path"), instant(session["started_at"]))
    if not _is_ours(session, told):
        known = {each: value for each, value in said.items() if session.get(each) is None}
        if known:
            agent.set(name, known)
        return Heard("noted" if known else "nothing", name, f"{name} is ended by its wrapper")
    reason = tools.told(told.text("reason"), 100) or "unknown"
    counts = tools.shown(session["tools"])
    fields: dict[str, Any] = {
        **said,
        "reason": reason,
        "summary": _summary(reason, counts, said, odd),
        "measured": {
            "files_touched": counts["wrote"],
            "files_touched_count": tools.files_written(counts),
            "tool_calls": counts["calls"],
            "tool_failures": counts["failed"],
        },
    }
    try:
        agent.end(session["role"], session["fence"], End("completed", None, None, fields))
    except LeaseLost:
        return Heard("nothing", name, f"{name} was ended by somebody else")
    return Heard("ended", name, fields["summary"])


def _summary(reason: str, counts: Record, said: Record, odd: str) -> str:
    cost, files = said.get("cost_usd"), tools.files_written(counts)
    parts = [
        f"Claude Code ended: {reason}",
        f"{counts['calls']} tool calls, {counts['failed']} failed",
        f"{f'{tools.MOST_FILES} or more' if files is None else files} files written",
        f"{said['tokens_used']} tokens" if "tokens_used" in said else f"tokens unknown ({odd})",
        f"{cost:.4f} USD" if cost is not None else "cost unknown",
    ]
    return "; ".join(parts)

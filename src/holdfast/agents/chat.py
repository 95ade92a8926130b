"""Talking with an agent: a session of its own, one turn after the other.

The agent is told who it is, what it should know and what was said before; what it costs is on
record with each turn and with the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.agents.agent import Agent, End, Opened, Start
from holdfast.agents.context import compose, gather
from holdfast.agents.history import open_sessions
from holdfast.agents.lifecycle import refresh_index
from holdfast.agents.persona import goals_in
from holdfast.agents.turn import ROOM, Purse, Question, turn
from holdfast.calls.conversation import SWARM, Conversation, Tally
from holdfast.calls.sealing import MARK, meta_of
from holdfast.codec import Record
from holdfast.errors import HoldfastError
from holdfast.layout import HOLDFAST, retold
from holdfast.ledger.entry import NO_TASK, entry
from holdfast.mask.shown import beginning
from holdfast.models.marks import new_mark
from holdfast.models.protocol import PATIENCE, Message, Model, OnText, Reply
from holdfast.process import this_process
from holdfast.state.spared import telling
from holdfast.store.primitives import Line, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.layout import Part
    from holdfast.ledger.book import Ledger
    from holdfast.store.home import Home

ROLE, SOURCE = "chat", "holdfast"
_SHOWN = 200


class Manner(NamedTuple):
    """How an agent is asked."""

    max_cost: float | None = None
    """USD, of all turns together."""
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float = PATIENCE
    schema: Mapping[str, Any] | None = None
    room: int = ROOM
    sensitive: bool = False
    """Whether all that is said is put on record sealed."""
    history: bool = True
    """Whether the model is told what was said before this session."""


class Chat:
    """Used by one thread at a time; Busy if somebody else talks with the agent."""

    def __init__(self, home: Home, agent: Agent, model: Model, manner: Manner) -> None:
        self._home, self._agent, self._model, self._manner = home, agent, model, manner
        self._persona = persona(agent)
        self._said = Conversation(home, agent.key)
        self._mark = new_mark()
        self._opened: Opened | None = None
        self.failed = ""
        """The code of the error that the last turn ended in."""

    @property
    def session(self) -> str:
        assert self._opened is not None
        return self._opened.id

    @property
    def sealed(self) -> bool:
        """Whether the last turn is on record sealed, asked for or not."""
        return self._said.sealing

    @property
    def unopened(self) -> int:
        """Sealed lines of the conversation that were changed or moved, and are left out."""
        return self._said.unopened

    def __enter__(self) -> Chat:
        # Before anything is written: a key that is missing must not become a session.
        manner = self._manner
        self._said.unlock(sensitive=manner.sensitive, history=manner.history)
        self._agent.bury()
        fields: Record = {"model": self._model.ref}
        start = Start("ad-hoc", ROLE, fields=fields, max_cost=self._manner.max_cost)
        self._opened = self._agent.start(start, this_process())
        under_way = {each["session_id"] for each in open_sessions(self._agent.state())}
        self._said.abandon_all_but(under_way)
        return self

    def say(self, text: str, on_text: OnText | None = None) -> Reply:
        """One turn."""
        assert self._opened is not None
        manner = self._manner
        from holdfast.agents.recall import recalled  # noqa: PLC0415 - imports numpy

        given = gather(self._home, self._agent)
        seen = [each.text for each in self.recent()] if manner.history else []
        given = recalled(
            self._home, self._agent, given, text, seen=seen, sensitive=manner.sensitive
        )
        question = Question(
            text,
            self._persona,
            compose(given, self._mark),
            schema=manner.schema,
            max_tokens=manner.max_tokens,
            temperature=manner.temperature,
            timeout=manner.timeout,
            room=manner.room,
            sensitive=manner.sensitive,
        )
        self.failed = "error"
        reply = turn(
            self._said,
            self._model,
            question,
            self._opened.id,
            purse=Purse(self._opened.budget),
            on_text=on_text,
        )
        self.failed = ""
        return reply

    def recent(self) -> list[Message]:
        """What was said lately, in this session and before it."""
        return self._said.recent(self._manner.room)

    def tally(self) -> Tally:
        """What it came to so far."""
        return self._said.tally(self.session)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._opened is not None
        spent = self.tally()
        turns = "1 turn" if spent.turns == 1 else f"{spent.turns} turns"
        fields: Record = {"summary": f"{turns} with {self._model.ref}"}
        fields["tokens_used"] = spent.tokens
        waiting = [each["session_id"] for each in self._said.waiting().values()]
        if not spent.unknown and self.session not in waiting:
            fields["cost_usd"] = round(spent.usd, 9)
        end = End("completed", fields=fields)
        if self.failed:
            message = self._failure(error)
            end = End("error", None, {"kind": "model", "message": message}, fields)
        agent = self._agent
        try:
            tell_again(self._home, agent.name, agent.key, self._said.log, agent.ledger)
            self._said.close()
            if agent.layout is HOLDFAST:
                with suppress(HoldfastError):  # the next one counts again
                    refresh_index(self._home, [agent.name])
        finally:
            agent.end(ROLE, self._opened.fence, end)

    def _failure(self, error: BaseException | None) -> str:
        if self._manner.sensitive or self._said.sealing:
            # What a model's error says may quote what was said.
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            return f"a sensitive turn failed: {code if error else 'error'}"
        return beginning(" ".join(str(error or "the last turn failed").split()), _SHOWN)


def persona(agent: Agent) -> str:
    """Who the agent is, from its manifest, as a model is told; Corrupt if that cannot be read."""
    return "\n".join(_lines(agent.persona.look(), agent.name))


def _lines(manifest: Record, name: str) -> Iterator[str]:
    yield f"You are {manifest.get('display_name') or manifest.get('agent_id') or name}."
    for field, begin in (
        ("description", "{}"),
        ("roles", "Your roles: {}."),
        ("core_directives", "Your directives:\n{}"),
        ("goals", "Your goals:\n{}"),
    ):
        value: object = goals_in(manifest) if field == "goals" else manifest.get(field)
        if isinstance(value, list):
            items = [str(item) for item in cast("list[object]", value)]
            text = "\n".join(f"- {item}" for item in items) if "\n" in begin else ", ".join(items)
        else:
            text = value if isinstance(value, str) else ""
        if text:
            yield begin.format(text)


# --- what other logs get of the conversation ------------------------------------------------


def tell_again(
    home: Home, agent: str, key: Callable[[Part], str], said: Log, ledger: Ledger
) -> None:
    """Have ledger and topics say what the conversation says."""
    topics = home.log(key("topics"))
    both = (
        telling(home, said, ledger.log, retold(agent, "ledger"), _in_ledger(agent)),
        telling(home, said, topics, retold(agent, "topics"), _as_topic),
    )
    acked = said.settle()
    try:
        for each in both:
            each.catch_up(acked)
        ledger.refresh()
    finally:
        for each in both:
            each.close()
        topics.close()


def _in_ledger(agent: str) -> Callable[[Line], Record | None]:
    def tell(line: Line) -> Record | None:
        meta = meta_of(line.record)
        session = meta.get("session_id")
        if "turn" not in meta or "request" in meta or not isinstance(session, str):
            return None
        if session.startswith(SWARM):
            return None  # no session of the agent's, and told by the log of its run
        model, error = meta.get("model"), meta.get("error")
        names = ("model", "input_tokens", "output_tokens", "cost_usd", "seconds", "error")
        data: dict[str, Any] = {name: meta[name] for name in names if name in meta}
        summary = f"no reply: {error}" if error else f"{model} replied"
        return entry(
            agent=agent,
            session=session,
            event="info",
            task=NO_TASK,
            source=SOURCE,
            summary=summary,
            data=data | {"turn": meta["turn"]},
        )

    return tell


def _as_topic(line: Line) -> Record | None:
    """What was said, under who said it and its first word."""
    record = line.record
    role, text, meta = record.get("role"), record.get("content"), meta_of(record)
    if "turn" not in meta or role not in ("user", "assistant") or not isinstance(text, str):
        return None
    if MARK in meta:
        # As it is: it opens with the place that the projection's `ref` names.
        told, first = {"turn": meta["turn"], MARK: meta[MARK]}, MARK
    else:
        told = {"turn": meta["turn"]}
        first = text.split(maxsplit=1)[0].lower()[:64] if text.strip() else "-"
    topic = f"chat/{role}/{first.replace('/', '-')}"
    return {"ts": record.get("ts"), "topic": topic, "text": text, "meta": told}

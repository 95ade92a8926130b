"""Talking with an agent: a session of its own, one recorded turn after the other.

What the model gets, in this order: the persona, what the agent should know (last session, notes,
what was found in its memory, tasks, messages), the latest of the conversation, the question.
Persona and question are never shortened; the rest has what room they leave.  The cost is recorded
with each turn and with the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.agents.agent import Agent, End, Opened, Start
from holdfast.agents.context import compose, gather
from holdfast.agents.history import open_sessions
from holdfast.agents.lifecycle import refresh_index
from holdfast.agents.persona import goals_in
from holdfast.calls.call import CallRequest, recorded_call
from holdfast.calls.conversation import SWARM, Conversation, Tally, Unsealed
from holdfast.calls.sealing import MARK, meta_of
from holdfast.codec import Record
from holdfast.errors import HoldfastError, TooLong
from holdfast.layout import HOLDFAST, retold
from holdfast.ledger.entry import NO_TASK, entry
from holdfast.mask.shown import beginning
from holdfast.models.marks import new_mark
from holdfast.models.output import check_schema
from holdfast.models.protocol import PATIENCE, Message, Model, OnText, Reply, Request
from holdfast.models.report import legible
from holdfast.process import this_process
from holdfast.state.spared import telling
from holdfast.store.primitives import Line, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.layout import Part
    from holdfast.ledger.book import Ledger
    from holdfast.store.home import Home

ROLE, SOURCE = "chat", "holdfast"
LETTERS_PER_TOKEN = 4
ROOM = 24_000
"""Characters that a question may have with all that goes with it, by default."""
_LEAST_HISTORY = 0.25
"""Of the room, for the conversation."""
_SHOWN = 200


class Question(NamedTuple):
    """What a model is asked, and how."""

    prompt: str = ""
    persona: str = ""
    context: str = ""
    """What the agent should know, as `context.compose` has it."""
    schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float = PATIENCE
    room: int = ROOM
    ordinal: int | None = None
    history: bool = True
    """Whether the model gets the conversation before the question."""
    sensitive: bool = False
    """Whether question and answer are put on record sealed."""


class Chat:
    """Used by one thread at a time; Busy if another process talks with the agent."""

    def __init__(
        self,
        home: Home,
        agent: Agent,
        model: Model,
        manner: Question = Question(),  # noqa: B008 - a tuple
        *,
        max_cost: float | None = None,
        fresh: bool = False,
    ) -> None:
        """`manner` is what all questions have in common; `max_cost` is in USD, of all turns.

        A `fresh` one leaves out the conversation before this session.
        """
        self._home, self._agent, self._model = home, agent, model
        self._manner = manner._replace(persona=persona(agent))
        self._max_cost, self._fresh = max_cost, fresh
        self.said = Conversation(home, agent.key)
        self._mark = new_mark()
        self._opened: Opened | None = None
        self.failed = ""
        """Why the session has failed if it ends now."""

    @property
    def session(self) -> str:
        assert self._opened is not None
        return self._opened.id

    def __enter__(self) -> Chat:
        # Before anything is written: a key that is missing must not become a session.
        self.said.unlock(sensitive=self._manner.sensitive, history=not self._fresh)
        self._agent.bury()
        fields: Record = {"model": self._model.ref}
        start = Start("ad-hoc", ROLE, fields=fields, max_cost=self._max_cost)
        self._opened = self._agent.start(start, this_process())
        under_way = {each["session_id"] for each in open_sessions(self._agent.state())}
        self.said.abandon_all_but(under_way)
        return self

    def say(self, text: str, on_text: OnText | None = None) -> Reply:
        """One turn."""
        assert self._opened is not None
        from holdfast.agents.recall import recalled  # noqa: PLC0415 - imports numpy

        given = gather(self._home, self._agent)
        seen = [] if self._fresh else [each.text for each in self.recent()]
        sealed = self._manner.sensitive
        given = recalled(self._home, self._agent, given, text, seen=seen, sensitive=sealed)
        question = self._manner._replace(prompt=text, context=compose(given, self._mark))
        self.failed = "error"
        session, budget = self._opened.id, self._opened.budget
        reply = turn(self.said, self._model, question, session, limit_usd=budget, on_text=on_text)
        self.failed = ""
        return reply

    def recent(self) -> list[Message]:
        """The latest messages, of this session and before it."""
        return self.said.recent(self._manner.room)

    def tally(self) -> Tally:
        """What it came to so far."""
        return self.said.tally(self.session)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._opened is not None
        spent = self.tally()
        turns = "1 turn" if spent.turns == 1 else f"{spent.turns} turns"
        fields: Record = {"summary": f"{turns} with {self._model.ref}"}
        fields["tokens_used"] = spent.tokens
        waiting = [each["session_id"] for each in self.said.waiting().values()]
        if not spent.unknown and self.session not in waiting:
            fields["cost_usd"] = round(spent.usd, 9)
        end = End("completed", fields=fields)
        if self.failed:
            message = self._failure(error)
            end = End("error", None, {"kind": "model", "message": message}, fields)
        agent = self._agent
        try:
            tell_again(self._home, agent.name, agent.key, self.said.log, agent.ledger)
            self.said.close()
            if agent.layout is HOLDFAST:
                with suppress(HoldfastError):  # the next one counts again
                    refresh_index(self._home, [agent.name])
        finally:
            agent.end(ROLE, self._opened.fence, end)

    def _failure(self, error: BaseException | None) -> str:
        if self._manner.sensitive or self.said.sealing:
            # A model's error may quote the conversation.
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            return f"a sensitive turn failed: {code if error else 'error'}"
        return beginning(" ".join(str(error or "the last turn failed").split()), _SHOWN)


def persona(agent: Agent) -> str:
    """The persona as a model gets it, from the manifest; Corrupt if that cannot be read."""
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


# --- one question --------------------------------------------------------------------------


def turn(
    conversation: Conversation,
    model: Model,
    question: Question,
    session: str,
    *,
    limit_usd: float | None = None,
    on_text: OnText | None = None,
) -> Reply:
    """Ask, with the question and the reply recorded; raises the error that it ended in.

    What the session may spend in all is `limit_usd`.  After sealed text the turn is sealed as well:
    the reply may repeat it.
    """
    if question.schema is not None:
        check_schema(question.schema)
    parts, request = composed(conversation, question)
    sealed = any(isinstance(message, Unsealed) for message in request.messages)
    call = CallRequest(
        session,
        question.prompt,
        model.ref,
        request,
        parts,
        model.most_usd(request),
        limit_usd,
        question.sensitive or sealed,
    )
    result = recorded_call(model, call, conversation, conversation.clock, on_text=on_text)
    if result.error is not None:
        raise result.error
    assert result.reply is not None
    return result.reply._replace(text=legible(result.text))


def composed(conversation: Conversation, question: Question) -> tuple[list[str], Request]:
    """The texts beside the prompt, and the whole request."""
    if len(question.persona) > question.room:
        raise TooLong(
            f"the persona has {len(question.persona)} characters, {question.room} is the most that "
            "a model gets",
            hint="say it in fewer words; what the agent should know belongs into memory.md",
        )
    room = question.room - len(question.prompt) - len(question.persona)
    parts = [question.persona] if question.persona else []
    if question.context:
        most = int(room * (1 - _LEAST_HISTORY)) if question.history else room
        part = _shortened(question.context, most)
        parts += [part] if part else []
        room -= len(part)
    said = conversation.recent(max(room, 0)) if question.history else []
    messages = [Message("system", "\n\n".join(parts))] if parts else []
    request = Request(
        (*messages, *said, Message("user", question.prompt)),
        question.schema,
        question.max_tokens,
        question.temperature,
        question.timeout,
        question.ordinal,
    )
    return parts, request


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    note = f"\n[{len(text) - most} characters left out]"
    return text[: most - len(note)] + note if most > len(note) else ""


# --- what other logs get of the conversation ------------------------------------------------


def tell_again(
    home: Home, agent: str, key: Callable[[Part], str], said: Log, ledger: Ledger
) -> None:
    """Have ledger and topics say what the conversation says."""
    acked, to_ledger = said.settle(), _in_ledger(agent)
    with closing(home.log(key("topics"))) as topics:
        for name, log, tell in (("ledger", ledger.log, to_ledger), ("topics", topics, _as_topic)):
            with closing(telling(home, said, log, retold(agent, name), tell)) as projection:
                projection.catch_up(acked)
    ledger.refresh()


def _in_ledger(agent: str) -> Callable[[Line], Record | None]:
    def tell(line: Line) -> Record | None:
        meta = meta_of(line.record)
        session = meta.get("session_id")
        if "turn" not in meta or "request" in meta or not isinstance(session, str):
            return None
        if session.startswith(SWARM):
            return None  # recorded by the log of the run, and no session of the agent's
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
    """A message, under its role and its first word."""
    record = line.record
    role, text, meta = record.get("role"), record.get("content"), meta_of(record)
    if "turn" not in meta or role not in ("user", "assistant") or not isinstance(text, str):
        return None
    if MARK in meta:
        # As it is: it opens with the place that the projection's `ref` names.
        kept, first = {"turn": meta["turn"], MARK: meta[MARK]}, MARK
    else:
        kept = {"turn": meta["turn"]}
        first = text.split(maxsplit=1)[0].lower()[:64] if text.strip() else "-"
    topic = f"chat/{role}/{first.replace('/', '-')}"
    return {"ts": record.get("ts"), "topic": topic, "text": text, "meta": kept}

"""Agents of a swarm as they are asked: each call is recorded in the agent's conversation.

A call is a turn whose name follows from the run, the tick and what the agent is asked for.  So a
reply that was recorded before the run's process died is found again, and nothing is paid twice.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.agent import opened
from holdfast.agents.chat import LETTERS_PER_TOKEN, Question, composed, persona
from holdfast.agents.history import check_in_service
from holdfast.calls.call import CallRequest, PendingCall, Result, recorded_call
from holdfast.calls.conversation import SWARM, Conversation
from holdfast.calls.sealing import meta_of
from holdfast.codec import Record
from holdfast.errors import HoldfastError, Interrupted, ModelError
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Model
from holdfast.models.registry import acts
from holdfast.models.report import legible
from holdfast.proc.around import Around
from holdfast.store.failpoints import hit
from holdfast.store.primitives import Line
from holdfast.store.primitives import Question as Looked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.ids import SessionId
    from holdfast.layout import Layout, Part
    from holdfast.models.protocol import Request
    from holdfast.store.home import Home

_LONGEST = 1 << 18
"""Characters of a reply that the log of a run keeps; the conversation has all of it."""
_INTERRUPTED = ("interrupted", "abandoned")
LOST_EFFECT = "interrupted: the process died while it was asked, which may have had an effect"


class Ask(NamedTuple):
    """One call of a tick."""

    agent: str
    name: str
    """Within the run: `12/rio`, or `12/rio/baton` of the summariser."""
    prompt: str
    ordinal: int
    """Which question of the agent in this run it is."""


class Answer(NamedTuple):
    """How a call ended; `fields` go into its line of the log."""

    text: str
    error: str
    fields: Record


class Prepared(NamedTuple):
    """A call that can be made: its request, its name in the conversation, its money."""

    ask: Ask
    parts: Sequence[str]
    request: Request
    turn: str
    charge: SessionId
    """What it is called in the book of money."""
    reserved_usd: float | None


class Expert:
    """Used by one thread at a time."""

    def __init__(
        self, home: Home, layout: Layout, run: str, name: str, models: Sequence[Model], around: str
    ) -> None:
        """`models` are the agent's own, and another one for the baton if there is one."""
        self.name, self._home = name, home
        with opened(home, name, layout) as agent:
            check_in_service(agent.state())
            self._persona = persona(agent)
            self.key: Callable[[Part], str] = agent.key
        self._session, self._around = f"{SWARM}{run}", Around(around)
        self._model, self._for_baton = models[0], models[-1]
        self._models = models
        self._conversation = Conversation(home, self.key)

    def model_of(self, ask: Ask) -> Model:
        return self._for_baton if ask.name.endswith("/baton") else self._model

    def acts(self, ask: Ask) -> bool:
        return acts(self.model_of(ask).ref)

    def request(self, ask: Ask, timeout: float) -> tuple[list[str], Request]:
        """The texts beside the prompt, and the whole request."""
        about = Question(ask.prompt, self._persona, timeout=timeout, history=False)
        return composed(self._conversation, about._replace(ordinal=ask.ordinal))

    def ask(self, call: Prepared) -> Answer:
        """Make a call; StorageError if it cannot be recorded."""
        model, clock, prompt = self.model_of(call.ask), self._conversation.clock, call.ask.prompt
        asking = (self._session, prompt, model.ref, call.request, call.parts, call.reserved_usd)
        asked = CallRequest(*asking, turn=call.turn)
        try:
            with self._around:
                result = recorded_call(model, asked, self._conversation, clock)
        except ModelError as error:
            result = Result("invalid", None, error.message, error=error)
        hit("swarm.answered")
        reply, error = result.reply, result.error
        why = f"{error.code}: {error.message}" if isinstance(error, HoldfastError) else result.why
        text = self._home.mask(legible(result.text))
        known: Record = {"model": model.ref if reply is None else reply.model, "t": clock.now()}
        if reply is not None:
            counts = reply.usage
            known |= {"input_tokens": counts.input_tokens, "output_tokens": counts.output_tokens}
        known |= {"cost_usd": result.cost_usd, "seconds": round(result.seconds, 6)}
        return self._heard(call, text, self._home.mask(why) if error is not None else "", known)

    def _heard(self, call: Prepared, text: str, error: str, known: Record) -> Answer:
        counts = [known.get("input_tokens"), known.get("output_tokens")]
        reported = [count for count in counts if isinstance(count, int)]
        length = len(call.request.text) + len(text)
        tokens = sum(reported) if len(reported) == len(counts) else -(-length // LETTERS_PER_TOKEN)
        fields = known | {"tokens": tokens, "turn": call.turn, "charge": str(call.charge)}
        fields |= {"reserved_usd": call.reserved_usd}
        fields = {name: value for name, value in fields.items() if value is not None}
        return Answer(beginning(text, _LONGEST), error, fields)

    # -- after a crash -----------------------------------------------------------------

    def recorded(self, call: Prepared) -> Answer | None:
        """How a call ended that a process before this one made; None if it was never made.

        One that did not end is given up: its error is LOST_EFFECT.
        """

        def is_its(line: Line) -> bool:
            return meta_of(line.record).get("turn") == call.turn

        found = self._conversation.log.find(Looked({}, 2, wanted=is_its))
        records = {line.record.get("role") == "user": line.record for line in found.lines}
        asked, answer = records.get(True), records.get(False)
        if not records:
            return None
        call = call._replace(reserved_usd=meta_of(asked or {}).get("reserved_usd"))
        meta = {} if answer is None else meta_of(answer)
        if answer is None or meta.get("error") in _INTERRUPTED:
            if call.turn in self._conversation.waiting():
                pending = PendingCall(call.turn, self._session, self._model.ref, None)
                self._conversation.end(pending, Result("interrupted", error=Interrupted(call.turn)))
            return Answer("", LOST_EFFECT, {"reserved_usd": call.reserved_usd})
        names = ("model", "input_tokens", "output_tokens", "cost_usd", "seconds")
        known = {name: meta[name] for name in names if name in meta} | {"t": answer["ts"]}
        said = str(answer.get("content", ""))
        if "error" in meta:
            known.setdefault("model", self.model_of(call.ask).ref)
            return self._heard(call, str(meta.get("reply", "")), f"{meta['error']}: {said}", known)
        return self._heard(call, said, "", known)

    def close(self) -> None:
        self._conversation.close()
        for model in self._models:
            model.close()


def charge_number(run: str, name: str) -> int:
    """The number of a call in the book of money, which no session of the agent has."""
    digest = sha256(f"{run}/{name}".encode()).digest()
    return 10**17 + int.from_bytes(digest[:8]) % (9 * 10**17)

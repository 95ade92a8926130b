"""One question to a model and its reply: composed, put on record, asked, put on record again.

Every engine asks through here, so that recording, cost, budget and masking exist once.  What the
model is told, in this order: who it is, what the agent should know (last session, notes, what was
found in its memory, tasks, messages), the latest of the conversation, the question.  Who it is and
the question are told whole; the rest has what room they leave.

Who is told something that was sealed may say it again, so that turn is sealed as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.calls.call import CallRequest, recorded_call
from holdfast.calls.conversation import Conversation, Unsealed
from holdfast.errors import TooLong
from holdfast.models.output import check_schema
from holdfast.models.protocol import PATIENCE, Message, Model, OnText, Reply, Request
from holdfast.models.report import legible

if TYPE_CHECKING:
    from collections.abc import Mapping

LETTERS_PER_TOKEN = 4
ROOM = 24_000
"""Characters that a question may have with all that goes with it, where nobody says otherwise."""
_LEAST_HISTORY = 0.25
"""Of the room, for the conversation."""


class Question(NamedTuple):
    prompt: str
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
    """Whether the model is told what was said before."""
    sensitive: bool = False
    """Whether question and answer are put on record sealed."""


class Purse(NamedTuple):
    """In USD; None is no limit."""

    session: float | None = None
    call: float | None = None


def turn(
    conversation: Conversation,
    model: Model,
    question: Question,
    session: str,
    *,
    purse: Purse | None = None,
    fence: int | None = None,
    on_text: OnText | None = None,
) -> Reply:
    """Ask, with the question and the reply recorded; raises the error that it ended in."""
    if question.schema is not None:
        check_schema(question.schema)
    parts, request = composed(conversation, question)
    limits = purse or Purse()
    sealed = any(isinstance(message, Unsealed) for message in request.messages)
    call = CallRequest(
        session,
        question.prompt,
        model.ref,
        request,
        parts,
        model.most_usd(request),
        limits.session,
        limits.call,
        fence,
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
            "a model is told",
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

"""One model call as every engine makes it: asked, timed, and its end told as one value.

`recorded_call` puts an intent on disk before the model is asked and the result after, whatever
happens in between.  An engine that decides more in the same write as the result (a job: its
verdict and the next intent) calls `ask` and records by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from holdfast.errors import InvalidOutput, ModelError, TimedOut
from holdfast.models import spans
from holdfast.models.protocol import Model, OnText, Reply, Request

if TYPE_CHECKING:
    from holdfast.clock import Clock


class CallRequest(NamedTuple):
    """A call as it is recorded before it is made."""

    session: str
    prompt: str
    model: str
    request: Request
    parts: Sequence[str] = ()
    """Texts that the model gets beside the prompt."""
    most_usd: float | None = None
    """What it can cost; None is unknown."""
    limit_usd: float | None = None
    """What the session may spend; None is no limit."""
    sensitive: bool = False
    """Whether texts are recorded sealed."""
    turn: str = ""
    """The name of the turn, where the caller has to find it again; else session and number."""


class PendingCall(NamedTuple):
    """A call that is recorded and has no result yet."""

    turn: str
    session: str
    model: str
    reserved_usd: float | None
    sensitive: bool = False


Ending = Literal["ok", "invalid", "error", "timeout", "interrupted"]
"""invalid: there is a reply, which does not meet the schema."""


class Result(NamedTuple):
    """How a call ended."""

    outcome: Ending
    reply: Reply | None = None
    """Also one that came and cannot be used."""
    why: str = ""
    """What failed: `code: message`, or what is wrong with an invalid reply."""
    retryable: bool = False
    seconds: float = 0.0
    error: BaseException | None = None

    @property
    def text(self) -> str:
        return self.reply.text if self.reply is not None else ""

    @property
    def cost_usd(self) -> float | None:
        """None is unknown, 0.0 is known to be free."""
        if self.reply is not None:
            return self.reply.cost_usd
        return 0.0 if isinstance(self.error, ModelError) and self.error.free else None


class Recorder(Protocol):
    """Where calls are recorded: a conversation, the journal of a campaign."""

    def begin(self, call: CallRequest) -> PendingCall: ...
    def end(self, pending: PendingCall, result: Result) -> None: ...


def ask(
    model: Model,
    request: Request,
    clock: Clock,
    *,
    session: str | None = None,
    on_text: OnText | None = None,
) -> Result:
    """Ask a model, and return every end that it can come to; `session` names its span."""
    began = clock.boottime()
    try:
        with spans.of_turn(session, model.ref, request) as traced:
            reply = traced(model.ask(request, on_text))
        return Result("ok", reply, seconds=clock.boottime() - began)
    except ModelError as error:
        reply = error.reply if isinstance(error.reply, Reply) else None
        seconds = clock.boottime() - began
        if isinstance(error, InvalidOutput):
            return Result("invalid", reply, error.message, error.retryable, seconds, error)
        late, why = isinstance(error, TimedOut), f"{error.code}: {error.message}"
        return Result("timeout" if late else "error", reply, why, error.retryable, seconds, error)


def recorded_call(
    model: Model,
    call: CallRequest,
    to: Recorder,
    clock: Clock,
    *,
    on_text: OnText | None = None,
) -> Result:
    """Make a call, its intent recorded before it and its result after it."""
    pending = to.begin(call)
    try:
        result = ask(model, call.request, clock, session=call.session, on_text=on_text)
    except BaseException as error:
        to.end(pending, Result("interrupted", error=error))
        raise
    to.end(pending, result)
    return result

"""Ways of asking: again after a failure, not too often, another model instead.

Each wraps a model and is one.  They are put around each other by whoever opens a model; every call
that failed on the way is told in the reply's `tries`, or in the error's if none succeeded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.errors import BadValue, ModelError, Unavailable
from holdfast.models.protocol import Around, Model, OnText, Reply, Request, Try, Usage


class Patience(NamedTuple):
    """How often and how long to try."""

    tries: int = 4
    first_pause: float = 0.5
    longest_pause: float = 30.0

    def pause(self, failed: int, error: ModelError, rng: Random) -> float:
        """Twice as long each time, less a part by chance, and as long as the provider asks for."""
        doubled = min(self.longest_pause, self.first_pause * 2.0 ** (failed - 1))
        asked = error.after if isinstance(error, Unavailable) and error.after else 0.0
        return max(asked, doubled * (0.5 + rng.random() / 2))


class _Calls:
    """The calls of one question that failed, and what they cost together."""

    def __init__(self) -> None:
        self._tries: list[Try] = []
        self._paid: list[Reply] = []

    def failed(self, ref: str, error: ModelError, seconds: float) -> None:
        came = error.reply if isinstance(error.reply, Reply) else None
        if came is not None:
            self._paid.append(came)
        # A model that asks others tells of each itself.
        own = [each for each in error.tries if isinstance(each, Try)]
        usage, cost = (came.usage, came.cost_usd) if came is not None else (Usage(), None)
        self._tries += own or [Try(ref, error.code, error.message, seconds, usage, cost)]

    @property
    def paid(self) -> bool:
        return any(each.cost_usd for each in self._paid)

    def with_reply(self, reply: Reply) -> Reply:
        return self._whole(reply, self._paid)._replace(tries=(*self._tries, *reply.tries))

    def end(self, ref: str, error: ModelError) -> None:
        """Tell all of it in the error of the last call."""
        error.tries = tuple(self._tries)
        if isinstance(error.reply, Reply):
            error.reply = self._whole(error.reply, self._paid[:-1])
        elif self._paid:
            nothing = Reply("", ref, cost_usd=0.0 if error.free else None)
            error.reply = self._whole(nothing, self._paid)

    @staticmethod
    def _whole(reply: Reply, before: Sequence[Reply]) -> Reply:
        """A reply with what those before it took."""
        cost, usage = reply.cost_usd, reply.usage
        for each in before:
            cost = None if cost is None or each.cost_usd is None else cost + each.cost_usd
            usage = Usage(*map(_sum, usage, each.usage))
        return reply._replace(cost_usd=cost, usage=usage)


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one + (other or 0)


class Retrying(Around):
    """Asks again where that can help, within the time of the first question."""

    def __init__(
        self, model: Model, clock: Clock, rng: Random, patience: Patience | None = None
    ) -> None:
        super().__init__(model)
        self._clock, self._rng, self._patience = clock, rng, patience or Patience()

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        deadline = self._clock.boottime() + request.timeout
        calls, tries = _Calls(), 0
        while True:
            began = self._clock.boottime()
            try:
                reply = self._model.ask(request._replace(timeout=deadline - began), on_text)
                return calls.with_reply(reply)
            except ModelError as error:
                now, tries = self._clock.boottime(), tries + 1
                pause = self._patience.pause(tries, error, self._rng)
                calls.failed(self.ref, error, now - began)
                over = tries >= self._patience.tries or now + pause >= deadline
                # Money was set aside for one call: what was paid for is not bought again.
                if not error.retryable or over or calls.paid:
                    calls.end(self.ref, error)
                    raise
                self._clock.sleep(pause)


class Limited(Around):
    """Asks at most so many times a minute; waits for its turn, if that comes in time."""

    def __init__(self, model: Model, clock: Clock, a_minute: int) -> None:
        super().__init__(model)
        if a_minute < 1:
            raise BadValue(
                f"{model.ref} cannot be asked {a_minute} times a minute", hint="once, at least"
            )
        self._clock, self._most = clock, a_minute
        self._asked: deque[float] = deque()

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        now = self._clock.boottime()
        while self._asked and self._asked[0] <= now - 60:
            self._asked.popleft()
        wait = self._asked[0] + 60 - now if len(self._asked) >= self._most else 0.0
        if wait >= request.timeout:
            full = Unavailable(
                f"{self.ref} may be asked {self._most} times a minute, next in {wait:.0f} s",
                hint="raise its limit, or give the question more time",
            )
            full.free = True
            raise full
        if wait > 0:
            self._clock.sleep(wait)
        self._asked.append(self._clock.boottime())
        return self._model.ask(request._replace(timeout=request.timeout - wait), on_text)


class Fallback:
    """Asks the first, and the next one if that one cannot answer."""

    def __init__(self, models: Sequence[Model], clock: Clock) -> None:
        self._models, self._clock = list(models), clock

    @property
    def ref(self) -> str:
        return self._models[0].ref

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        deadline, calls = self._clock.boottime() + request.timeout, _Calls()
        last = self._models[-1]
        for model in self._models:
            began = self._clock.boottime()
            try:
                reply = model.ask(request._replace(timeout=deadline - began), on_text)
                return calls.with_reply(reply)
            except ModelError as error:
                now = self._clock.boottime()
                calls.failed(model.ref, error, now - began)
                if model is last or now >= deadline:
                    calls.end(model.ref, error)
                    raise
        raise AssertionError("no model")

    def most_usd(self, request: Request) -> float | None:
        each = [model.most_usd(request) for model in self._models]
        known = [most for most in each if most is not None]
        return sum(known) if len(known) == len(each) else None

    def close(self) -> None:
        for model in self._models:
            model.close()

"""What a model is asked and what it answers, whoever it is.

A model is asked with messages, perhaps a JSON Schema that the reply has to meet, and limits.  It
answers with a `Reply` or raises one of the errors under `ModelError`; whatever a provider's library
says, nothing else comes out.  Calls are synchronous and end by their deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol

from holdfast.codec import Json, encode

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]
OnText = Callable[[str], None]
"""Is told each piece of a reply as it comes."""
PATIENCE = 600.0
MOST_OUTPUT = 32 << 20
"""Bytes of an answer, whoever gives it."""


class Message(NamedTuple):
    role: Role
    text: str


class Request(NamedTuple):
    """One question."""

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of the object that the reply has to be."""
    max_tokens: int | None = None
    temperature: float | None = None
    timeout: float = PATIENCE
    """Seconds until it counts as failed."""
    ordinal: int | None = None
    """Which question of its conversation or job it is, from 0, where the asker counts."""

    @property
    def text(self) -> str:
        """All of it, for counting and matching."""
        return "\n\n".join(message.text for message in self.messages)

    @property
    def key(self) -> str:
        """What makes two questions the same: all that can change the answer, not its deadline."""
        schema = None if self.schema is None else dict(self.schema)
        parts = [encode([schema, self.max_tokens, self.temperature])]
        for role, text in self.messages:
            data = text.encode("utf-8", "surrogatepass")
            parts += (b"%b %d " % (role.encode(), len(data)), data)
        # At once: to take in many small texts one by one costs more than to hash them.
        return sha256(b"".join(parts)).hexdigest()


class Usage(NamedTuple):
    """Tokens, as far as the provider tells."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None

    @property
    def total(self) -> int | None:
        known = [each for each in self[:2] if each is not None]
        return sum(known) if known else None


class Try(NamedTuple):
    """A call that failed before the one that answered."""

    model: str
    error: str
    """The code of the error."""
    message: str
    seconds: float
    usage: Usage = Usage()
    cost_usd: float | None = None
    """Where something came that was paid for; it is in the cost of the whole reply, too."""

    def told(self) -> dict[str, Any]:
        """For records: what is known of it."""
        known = {**self._asdict(), **self.usage._asdict()}
        del known["usage"]
        return {name: value for name, value in known.items() if value is not None}


class Reply(NamedTuple):
    text: str
    model: str
    """Who answered, as its provider calls it."""
    value: Json = None
    """The object, where a schema asked for one; it meets the schema."""
    usage: Usage = Usage()
    cost_usd: float | None = None
    """With what calls cost that failed before it.  None is unknown, never 0."""
    seconds: float = 0.0
    first_text: float | None = None
    """Seconds until the first piece came, where it was streamed."""
    finish: Finish = "stop"
    tries: tuple[Try, ...] = ()


class Model(Protocol):
    """A model that can be asked; used by one thread at a time."""

    @property
    def ref(self) -> str:
        """`provider:name`."""
        ...

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply: ...

    def most_usd(self, request: Request) -> float | None:
        """What asking this can cost at most; None where nobody knows."""
        ...

    def close(self) -> None: ...


class PerCall:
    """A model that keeps nothing open between two calls, and names no price before."""

    def most_usd(self, request: Request) -> float | None:
        return None

    def close(self) -> None: ...


class Around:
    """A model around another one; what it does not say itself, that one says."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def ref(self) -> str:
        return self._model.ref

    @property
    def tells_cost(self) -> bool:
        return bool(getattr(self._model, "tells_cost", True))

    def most_usd(self, request: Request) -> float | None:
        return self._model.most_usd(request)

    def close(self) -> None:
        self._model.close()

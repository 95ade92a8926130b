"""A model that says what it is told to say: for tests, demonstrations and rehearsals.

`scripted:FILE` reads a YAML or JSON file

    replies:
      - Hello.                              # text
      - {action: COMPLETED, files: []}      # an object, sent as JSON
      - {reply: Slowly, delay: 0.2}         # with seconds to wait before it
      - {error: unavailable, message: 503}  # a failure, by the code of the error
      - {match: "budget of (\\w+)", reply: "None for {1}."}

and `scripted:echo` says `You said: ` and the end of the last message, in an object that meets the
schema where one is asked for.  A question is answered by the first reply whose `match` (a regular
expression) is found in its last message; those without one are given in turn, by the number of the
question where the asker counts, so that a script goes on at the right place in another process.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from holdfast.byhand import parse
from holdfast.clock import Clock, SystemClock
from holdfast.codec import Json, encode
from holdfast.errors import (
    BadValue,
    Declined,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    NotFound,
    TimedOut,
    TooLong,
    Unavailable,
    typed,
)
from holdfast.mask.shown import beginning, end
from holdfast.models.output import checked, too_late
from holdfast.models.protocol import Finish, OnText, PerCall, Reply, Request, Usage
from holdfast.userfile import read

_ECHOED = 120
_LONGEST_SCRIPT = 4 << 20
_LETTERS_PER_TOKEN = 4
_PIECE = 16
_FAILURES = (ModelError, Unavailable, TimedOut, NotAuthorised, Declined, TooLong, InvalidOutput)
FAILURES: dict[str, type[ModelError]] = {kind.code: kind for kind in _FAILURES}
_FREE = frozenset({"unavailable", "not_authorised", "too_long", "declined"})
"""Failures that stand for those before the first token, unless they are given a cost."""
Answer = Callable[[Request], "str | Mapping[str, Any] | Line"]


class Line(NamedTuple):
    """One reply of a script."""

    text: str = ""
    match: re.Pattern[str] | None = None
    delay: float = 0.0
    error: str | None = None
    finish: Finish = "stop"
    usage: Usage | None = None
    cost_usd: float = 0.0


class Scripted(PerCall):
    def __init__(
        self,
        replies: Iterable[object] | Answer,
        *,
        ref: str = "scripted:list",
        clock: Clock | None = None,
    ) -> None:
        """Of texts, objects and `Line`s, or of a function that makes one of a request."""
        self.ref, self._clock = ref, clock or SystemClock()
        self._answer = replies if callable(replies) else None
        lines = [] if callable(replies) else [line_of(each, ref) for each in replies]
        self._matching = [line for line in lines if line.match is not None]
        self._in_turn = [line for line in lines if line.match is None]
        self._given = 0
        self.asked: list[Request] = []
        """Every question so far."""

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        began = self._clock.boottime()
        line = self._line(request)
        self.asked.append(request)
        if line.delay > request.timeout:
            self._clock.sleep(request.timeout)
            raise too_late(self.ref, request.timeout)
        if line.delay:
            self._clock.sleep(line.delay)
        if line.error is not None:
            kind = FAILURES[line.error]
            error = kind(line.text or f"{self.ref} was told to fail", hint="see its script")
            error.free = line.error in _FREE and not line.cost_usd
            if line.cost_usd:
                error.reply = Reply("", self.ref, None, line.usage or Usage(), line.cost_usd)
            raise error
        first = self._clock.boottime() - began
        if on_text is not None:
            for start in range(0, len(line.text), _PIECE):
                on_text(line.text[start : start + _PIECE])
        reply = Reply(
            line.text,
            self.ref,
            usage=line.usage or Usage(_tokens(request.text), _tokens(line.text)),
            cost_usd=line.cost_usd,
            seconds=self._clock.boottime() - began,
            first_text=first,
            finish=line.finish,
        )
        return checked(request, reply)

    def _line(self, request: Request) -> Line:
        if self._answer is not None:
            return line_of(self._answer(request), self.ref)
        last = request.messages[-1].text if request.messages else ""
        for line in self._matching:
            if line.match is not None and (found := line.match.search(last)):
                return line._replace(text=_filled(line.text, found))
        number = self._given if request.ordinal is None else request.ordinal
        self._given += 1
        if number >= len(self._in_turn):
            raise ModelError(
                f"{self.ref} has no reply left for question {number + 1}",
                hint="add replies, or one with `match: .`",
            )
        return self._in_turn[number]

    def most_usd(self, request: Request) -> float | None:
        lines = [*self._matching, *self._in_turn]
        return max((line.cost_usd for line in lines), default=0.0)


def line_of(given: object, ref: str) -> Line:
    """A reply as a script has it."""
    if isinstance(given, Line):
        return given
    if isinstance(given, str):
        return Line(given)
    if not isinstance(given, Mapping):
        raise BadValue(
            f"{ref}: a reply is text or an object, not {given!r}", hint="see docs/models.md"
        )
    row = dict(cast("Mapping[str, Any]", given))
    if not row.keys() & {"reply", "error"} or row.keys() - _WORDS:
        return Line(encode(row).decode())
    try:
        return _line_from(row)
    except (TypeError, ValueError, re.error) as error:
        raise BadValue(f"{ref}: {error}", hint="see docs/models.md") from None


_WORDS = frozenset(("reply", "match", "delay", "error", "message", "finish", "usage", "cost_usd"))


def _line_from(row: dict[str, Any]) -> Line:
    reply, error, finish = (row.get("reply", ""), row.get("error"), row.get("finish", "stop"))
    if error is not None and error not in FAILURES:
        raise ValueError(f"unknown error {error!r}; one of {', '.join(FAILURES)}")
    if finish not in ("stop", "length"):
        raise ValueError(f"finish is {finish!r}; stop or length")
    match, text = row.get("match"), reply if isinstance(reply, str) else encode(reply).decode()
    return Line(
        text=str(row.get("message", "") if error else text),
        match=None if match is None else re.compile(str(match), re.DOTALL),
        delay=float(row.get("delay", 0.0)),
        error=error,
        finish=finish,
        usage=Usage(**row["usage"]) if "usage" in row else None,
        cost_usd=float(row.get("cost_usd", 0.0)),
    )


def _filled(text: str, found: re.Match[str]) -> str:
    for number, group in enumerate(found.groups(default=""), 1):
        text = text.replace(f"{{{number}}}", group)
    return text


def _tokens(text: str) -> int:
    return -(-len(text) // _LETTERS_PER_TOKEN)


# --- what was recorded ----------------------------------------------------------------------


class NotRecorded(ModelError):
    code = "not_recorded"


class Replay(PerCall):
    """Gives the answers of a recorded conversation again, and no others.

    Answers are found by what was asked (`Request.key`), so the order does not matter; the same
    question asked twice gets its answers in the order in which they were given.
    """

    def __init__(self, recorded: Iterable[tuple[str, Reply]], *, ref: str = "replay:list") -> None:
        """Of pairs of `Request.key` and the reply to it."""
        self.ref = ref
        self._replies: dict[str, deque[Reply]] = {}
        for key, reply in recorded:
            self._replies.setdefault(key, deque()).append(reply)

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        waiting = self._replies.get(request.key)
        if not waiting:
            asked = request.messages[-1].text if request.messages else ""
            raise NotRecorded(
                f"{self.ref} has no {'other ' if waiting is not None else ''}answer to "
                f"{beginning(' '.join(asked.split()), 80)!r}",
                hint="the question differs from every recorded one, or was asked less often",
            )
        reply = waiting.popleft()
        if on_text is not None:
            on_text(reply.text)
        return checked(request, reply)

    def most_usd(self, request: Request) -> float | None:
        return 0.0


# --- by name --------------------------------------------------------------------------------


def open_scripted(name: str) -> Scripted:
    """`echo`, or the path of a script."""
    if name == "echo":
        return Scripted(_echo, ref="scripted:echo")
    if not os.path.isfile(name):
        raise NotFound(
            f"no such script: {name}", hint="scripted:FILE, a regular file, or scripted:echo"
        )
    with typed("reading the script", name):
        script = read(name, _LONGEST_SCRIPT, plain=True)
    document = parse(script, name)
    replies = document.get("replies") if isinstance(document, dict) else None
    if not isinstance(replies, list):
        raise BadValue(f"{name}: no list of replies", hint="begin it with `replies:`")
    return Scripted(cast("list[object]", replies), ref=f"scripted:{name}")


def _echo(request: Request) -> str:
    last = request.messages[-1].text if request.messages else ""
    ending = end(" ".join(last.split()), _ECHOED)
    text = f"You said: {ending}"
    if request.schema is None:
        return text
    # As the summary of a job, the words alone would only say again what was asked.
    return encode(example(request.schema, text)).decode()


def example(schema: Mapping[str, Any], text: str = "") -> Json:
    """A small value that meets a schema of the usual kind, the same every time."""
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    if schema.get("enum"):
        return "COMPLETED" if "COMPLETED" in schema["enum"] else schema["enum"][0]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return example(schema[word][0], text)
    kinds: Any = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(cast("list[str]", kinds)[0] if isinstance(kinds, list) else kinds)
    match kind:
        case "object":
            needed = schema.get("required", schema.get("properties", {}))
            parts = schema.get("properties", {})
            return {name: example(parts.get(name, {}), text) for name in needed}
        case "array":
            return [
                example(schema.get("items", {}), text) for _ in range(schema.get("minItems", 0))
            ]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            least = schema.get("minLength", 0)
            return (text or "echo").ljust(least, ".")[: schema.get("maxLength", None)]

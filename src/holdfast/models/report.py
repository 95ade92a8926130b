"""What CLI agents print about themselves: answer, tokens, cost, session, failure.

They print one JSON object, or one a line, among other text.  A `Form` says where in it stands
what; those of known programs are in `recipes`.  Whoever prints may lie, stumble or be cut off:
what cannot be true is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, DecodeError, Json, Record, decode, encode
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Finish, Usage

MOST_COUNTED = 10**12
MOST_USD = 1e6
"""More than that nobody has used or spent in one go."""
_MOST_NAME, _MOST_MESSAGE, _DIGITS = 100, 2_000, 9


# --- where it stands ------------------------------------------------------------------------


class At(NamedTuple):
    """A place in what is printed: the events of a kind, and a path in them."""

    path: str = ""
    """Names with dots between them; `*` is each member; empty is the whole."""
    event: str | None = None
    """The `type` of the object; None is any."""
    where: tuple[str, Json] | None = None
    """A path and what has to stand there."""

    def values(self, events: Iterable[Record]) -> Iterator[Json]:
        for event in events:
            if self.event is not None and event.get("type") != self.event:
                continue
            if self.where is not None and self.where[1] not in _walk(event, self.where[0]):
                continue
            yield from _walk(event, self.path)


def _walk(found: Json, path: str) -> list[Json]:
    here: list[Json] = [found]
    for name in path.split(".") if path else ():
        objects = [each for each in here if isinstance(each, dict)]
        if name == "*":
            here = [value for each in objects for value in each.values()]
        else:
            here = [each[name] for each in objects if name in each]
    return here


class Form(NamedTuple):
    """Where a program says what.  Of several places for a count all are added up."""

    text: At
    input_tokens: tuple[At, ...] = ()
    """With those that were read from a cache or written to it."""
    output_tokens: tuple[At, ...] = ()
    cache_read_tokens: tuple[At, ...] = ()
    cost: tuple[At, ...] = ()
    """The first that is there counts."""
    adds_up: bool = False
    """Whether each event tells what came since the one before, not all so far."""
    session: At | None = None
    model: At | None = None
    """A name, or an object that has one member for each model."""
    is_error: At | None = None
    """What is true if it failed; without one, it failed if there is a message."""
    errors: tuple[At, ...] = ()
    done: str | None = None
    """The event that makes good what failed before it."""
    finish: At | None = None
    """Why the model stopped."""


class Report(NamedTuple):
    text: str | None = None
    usage: Usage = Usage()
    cost_usd: float | None = None
    session: str | None = None
    model: str | None = None
    failed: str | None = None
    finish: Finish = "stop"


_CUT = ("length", "max_tokens", "MAX_TOKENS")


def read(form: Form, events: list[Record]) -> Report:
    texts = [value for value in form.text.values(events) if value is not None]
    text = texts[-1] if texts else None
    if not isinstance(text, str | None):
        text = encode(text, limit=MAX_DOCUMENT).decode()
    return Report(
        text=text,
        usage=Usage(
            _counted(form.input_tokens, events, adds_up=form.adds_up),
            _counted(form.output_tokens, events, adds_up=form.adds_up),
            _counted(form.cache_read_tokens, events, adds_up=form.adds_up),
        ),
        cost_usd=_cost(form, events),
        session=_name(form.session, events),
        model=_name(form.model, events),
        failed=_failure(form, events),
        finish="length" if _name(form.finish, events) in _CUT else "stop",
    )


def _counted(places: tuple[At, ...], events: list[Record], *, adds_up: bool) -> int | None:
    total = None
    for place in places:
        found = [each for each in (list(place.values([event])) for event in events) if each]
        # Without adding up, the last event that has something there has all of it.
        for values in found if adds_up else found[-1:]:
            for value in values:
                if (number := count(value)) is not None:
                    total = number + (total or 0)
    return count(total)


def _cost(form: Form, events: list[Record]) -> float | None:
    for place in form.cost:
        told = [usd(value) for value in place.values(events)]
        known = [cost for cost in told if cost is not None]
        # A part of it is not the cost.
        if known and len(known) == len(told):
            return usd(sum(known)) if form.adds_up else known[-1]
    return None


def _name(place: At | None, events: list[Record]) -> str | None:
    found = None
    for value in place.values(events) if place is not None else ():
        if isinstance(value, dict):
            found = next(iter(value)) if len(value) == 1 else found
        elif isinstance(value, str):
            found = value
    return found[:_MOST_NAME] if found else None


def _failure(form: Form, events: list[Record]) -> str | None:
    if form.done is not None:
        done = [number for number, event in enumerate(events) if event.get("type") == form.done]
        events = events[done[-1] + 1 :] if done else events
    if form.is_error is not None and True not in list(form.is_error.values(events)):
        return None
    for place in form.errors:
        told = [value for value in place.values(events) if isinstance(value, str) and value]
        if told:
            return beginning(told[-1], _MOST_MESSAGE)
    return "error" if form.is_error is not None else None


# --- what can be true -----------------------------------------------------------------------


def count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_COUNTED else None


def legible(text: str) -> str:
    """With the halves of a character put together, as they come in two pieces of a stream; half a
    one alone is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def usd(value: object) -> float | None:
    if type(value) not in (int, float):
        return None
    # What adds up floats prints 0.014400000000000001.
    number = round(float(cast("float", value)), _DIGITS)
    return number if math.isfinite(number) and 0 <= number <= MOST_USD else None


# --- JSON among other text ------------------------------------------------------------------


def objects(text: str) -> Iterator[Record]:
    """JSON objects in an output: the whole of it, or line by line."""
    if (whole := _decoded(text)) is not None:
        yield from whole
        return
    # Not `splitlines`: a string in JSON may hold other ends of lines as they are.
    lines, tries = [line.rstrip("\r") for line in text.split("\n")], _MOST_TRIES
    for number, line in enumerate(lines):
        found = _decoded(line)
        if found is not None:
            yield from found
        elif line == "{" and tries:
            # Indented JSON among other text.
            tries -= 1
            rest = "\n".join(lines[number:])
            if (end := _END_OF_OBJECT.search(rest)) is not None:
                yield from _decoded(rest[: end.end()]) or []
        elif _LEFT_OUT.fullmatch(line) and number + 1 < len(lines):
            yield from _rest_of_result(lines[number - 1] if number else "", lines[number + 1])


def _decoded(text: str) -> list[Record] | None:
    """The objects that a text is; None if it is no JSON."""
    text = text.strip()
    if text[:1] not in ("{", "["):
        return None
    try:
        value = decode(text.encode("utf-8", "replace"), limit=MAX_DOCUMENT)
    except DecodeError:
        return None
    many: list[Any] = value if isinstance(value, list) else [value]
    return [each for each in many if isinstance(each, dict)]


_MOST_TRIES = 20
_END_OF_OBJECT = re.compile(r"^\}", re.MULTILINE)
_LEFT_OUT = re.compile(r"\[\d+ bytes left out\]")
_COST = re.compile(r'(?<!\\)"total_cost_usd":\s*(-?[0-9.eE+-]{1,40})')
_USAGE = re.compile(r'(?<!\\)"usage":\s*(?=\{)')
_IS_ERROR = re.compile(r'\{"type":\s*"result".*?(?<!\\)"is_error":\s*true', re.DOTALL)


def _rest_of_result(head: str, tail: str) -> Iterator[Record]:
    """What can be saved of a result whose long text was left out: cost and usage come after it."""
    cost = _COST.search(tail)
    if cost is None:
        return
    value: Record = {"type": "result", "is_error": _IS_ERROR.match(head) is not None}
    try:
        value["total_cost_usd"] = float(cost[1])
        if (usage := _USAGE.search(tail)) is not None:
            value["usage"] = json.JSONDecoder().raw_decode(tail, usage.end())[0]
    except (ValueError, RecursionError):
        pass  # cut there, too
    yield value

"""A reply: as it comes, and whether it is the object that was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, cast

from holdfast.codec import DecodeError, Json, decode, encode
from holdfast.errors import ConfigError, InvalidOutput, TimedOut
from holdfast.mask.shown import beginning
from holdfast.models.protocol import Finish, OnText, Reply, Request, Usage

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

    from holdfast.clock import Clock

_SHOWN = 200
_MOST_REASONS = 3
_FENCED = re.compile(r"```[a-zA-Z]*\n(.*)\n```", re.DOTALL)


class Pieces:
    """An answer as it comes, since it was asked for."""

    def __init__(self, on_text: OnText | None, clock: Clock) -> None:
        self._on_text, self._clock, self._began = on_text, clock, clock.boottime()
        self._parts: list[str] = []
        self._first: float | None = None

    def add(self, text: str) -> None:
        self._parts.append(text)
        if self._on_text is not None:
            if self._first is None:
                self._first = self._clock.boottime() - self._began
            self._on_text(text)

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def reply(self, text: str, model: str, usage: Usage, usd: float | None, why: Finish) -> Reply:
        """The answer, which came now and stopped for this reason."""
        seconds = self._clock.boottime() - self._began
        return Reply(text, model, None, usage, usd, seconds, self._first, why)


def checked(request: Request, reply: Reply, *, fenced: bool = False) -> Reply:
    """The reply with its object, or InvalidOutput that has the reply and says why not.

    With `fenced` the object may stand in a code fence, which many models put around JSON.  A reply
    cut by the limit of tokens is never what was asked for, even if it happens to parse.
    """
    if reply.finish == "length":
        raise unusable(
            reply,
            f"cut off after {reply.usage.output_tokens or request.max_tokens or 'too many'} tokens",
            "allow more with max_tokens, or ask for less (maxLength and maxItems in the schema)",
        )
    if request.schema is None:
        return reply
    try:
        text = reply.text.strip()
        inner = _FENCED.fullmatch(text) if fenced else None
        value = decode((inner[1].strip() if inner else text).encode("utf-8", "surrogatepass"))
    except DecodeError as error:
        raise unusable(reply, f"not JSON: {error}", _ASK_PLAINLY) from None
    if reasons := violations(value, request.schema):
        raise unusable(reply, "; ".join(reasons), _ASK_PLAINLY)
    return Reply(reply.text, reply.model, value, *reply[3:])


_ASK_PLAINLY = "ask for one JSON object and nothing else, or give the model a simpler schema"


def unusable(reply: Reply, why: str, hint: str) -> InvalidOutput:
    shown = " ".join(beginning(reply.text, _SHOWN).split())
    error = InvalidOutput(f"{reply.model} answered, but {why}: {shown!r}", hint=hint)
    error.reply = reply
    return error


def too_late(name: str, timeout: float) -> TimedOut:
    return TimedOut(f"{name} did not answer in {max(0.0, timeout):g} s", hint="give it more time")


def violations(value: Json, schema: Mapping[str, Any]) -> list[str]:
    """Where a value does not meet a schema; the first few."""
    plainly_meets, validator = _checks(encode(dict(schema)))
    if plainly_meets(value):
        return []
    found = validator.iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
    try:
        texts = [f"{error.json_path}: {beginning(error.message, _SHOWN)}" for error in found]
    except RecursionError:
        return ["$: nested too deeply to be checked"]
    return texts[:_MOST_REASONS]


def check_schema(schema: Mapping[str, Any]) -> None:
    """ConfigError if replies cannot be checked by it: to be known before one is paid for."""
    _checks(encode(dict(schema)))


_KINDS: dict[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}
_PLAIN = frozenset(
    (
        *("type", "required", "properties", "additionalProperties"),
        *("items", "enum", "maxLength", "title", "description"),
    )
)


Check = Callable[[Json], bool]


def _plain(schema: object) -> Check:
    """Whether a value certainly meets it: most schemas for replies need a few keywords only, and
    to look for those takes a tenth of the time.  What is not certain is told by the validator."""
    words = cast("dict[str, Any]", schema) if isinstance(schema, dict) else dict[str, Any]()
    kind = _KINDS.get(str(words.get("type")))
    if kind is None or not _PLAIN.issuperset(words) or ("enum" in words and kind is not str):
        return _uncertain
    if not isinstance(words.get("additionalProperties", True), bool):
        return _uncertain
    if kind is dict:
        return _plain_object(words)
    if kind is list:
        item = _plain(words["items"]) if "items" in words else _certain
        return lambda value: type(value) is list and all(map(item, cast("list[Json]", value)))
    if kind is str:
        longest: float = words.get("maxLength", inf)
        allowed: list[Json] | None = words.get("enum")
        return lambda value: (
            type(value) is str and len(value) <= longest and (allowed is None or value in allowed)
        )
    return lambda value: type(value) is kind


def _plain_object(words: dict[str, Any]) -> Check:
    required = frozenset[str](words.get("required", ()))
    fields = {name: _plain(each) for name, each in words.get("properties", {}).items()}
    more = words.get("additionalProperties", True)

    def meets(value: Json) -> bool:
        if type(value) is not dict or not required <= value.keys():
            return False
        if not more and not value.keys() <= fields.keys():
            return False
        return all(field(value[name]) for name, field in fields.items() if name in value)

    return meets


def _certain(value: Json) -> bool:
    return True


def _uncertain(value: Json) -> bool:
    return False


_TRIALS: tuple[Json, ...] = (None, {}, [])
"""By these a schema is found out that refers to itself without end."""


@lru_cache(maxsize=16)
def _checks(schema: bytes) -> tuple[Check, Draft202012Validator]:
    """The quick one and the whole one, by the text of a schema: to make them takes longer than to
    check many replies by them."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow, seldom needed
    from referencing.exceptions import Unresolvable  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    standards: Any = import_module("jsonschema_specifications").REGISTRY  # has no types
    known = cast("dict[str, Any]", decode(schema))
    root = DRAFT202012.create_resource(known)
    # Theirs fetches what a schema refers to, from wherever it says; ours knows the standards only.
    validator = Draft202012Validator(known, registry=standards)
    try:
        Draft202012Validator.check_schema(known)
        _look_up_references(standards.resolver_with_root(root), root)
        for trial in _TRIALS:
            list(validator.iter_errors(trial))  # pyright: ignore[reportUnknownMemberType]
    except SchemaError as error:
        raise ConfigError(
            f"the schema for a reply is not one: {error.message}", hint="see json-schema.org"
        ) from None
    except Unresolvable as error:
        raise ConfigError(
            f"the schema for a reply refers to something that is not in it: {error.ref}",
            hint="put it under $defs; nothing is fetched",
        ) from None
    except RecursionError:
        raise ConfigError(
            "the schema for a reply refers to itself without end", hint="see its $ref"
        ) from None
    return _plain(known), validator


def _look_up_references(resolver: Any, resource: Any) -> None:
    """Unresolvable if one leads nowhere."""
    contents: object = resource.contents
    if isinstance(contents, dict):
        words = cast("dict[str, Any]", contents)
        for reference in (words.get("$ref"), words.get("$dynamicRef")):
            if isinstance(reference, str):
                resolver.lookup(reference)
    for each in resource.subresources():
        _look_up_references(resolver.in_subresource(each), each)

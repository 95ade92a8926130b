"""Whether a reply is the object that was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from holdfast.codec import DecodeError, Json, decode, encode
from holdfast.errors import ConfigError, InvalidOutput
from holdfast.models.protocol import Reply, Request
from holdfast.models.shown import beginning

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_SHOWN = 200
_MOST_REASONS = 3


def checked(request: Request, reply: Reply) -> Reply:
    """The reply with its object, or InvalidOutput that has the reply and says why not.

    A reply cut by the limit of tokens is never what was asked for, even if it happens to parse.
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
        value = decode(reply.text.strip().encode("utf-8", "surrogatepass"))
    except DecodeError as error:
        raise unusable(reply, f"not JSON: {error}", _ASK_PLAINLY) from None
    if reasons := violations(value, request.schema):
        raise unusable(reply, "; ".join(reasons), _ASK_PLAINLY)
    return reply._replace(value=value)


_ASK_PLAINLY = "ask for one JSON object and nothing else, or give the model a simpler schema"


def unusable(reply: Reply, why: str, hint: str) -> InvalidOutput:
    shown = " ".join(beginning(reply.text, _SHOWN).split())
    error = InvalidOutput(f"{reply.model} answered, but {why}: {shown!r}", hint=hint)
    error.reply = reply
    return error


def violations(value: Json, schema: Mapping[str, Any]) -> list[str]:
    """Where a value does not meet a schema; the first few."""
    validator = _validator(encode(dict(schema)))
    if _plainly_meets(value, schema):
        return []
    found = validator.iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
    texts = [f"{error.json_path}: {beginning(error.message, _SHOWN)}" for error in found]
    return texts[:_MOST_REASONS]


_KINDS: dict[str, type] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}
_PLAIN = frozenset(
    ("type", "required", "properties", "items", "enum", "maxLength", "title", "description")
)


def _plainly_meets(value: Json, schema: object) -> bool:
    """Whether it certainly does: most schemas for replies need a few keywords only, and to look
    for those takes a tenth of the time.  What is not certain is told by the validator."""
    if not isinstance(schema, Mapping):
        return False
    schema = cast("Mapping[str, Any]", schema)
    if not _PLAIN.issuperset(schema) or _KINDS.get(str(schema.get("type"))) is not type(value):
        return False
    if isinstance(value, dict):
        fields: Mapping[str, Any] = schema.get("properties", {})
        return all(name in value for name in schema.get("required", ())) and all(
            _plainly_meets(value[name], fields[name]) for name in fields if name in value
        )
    if isinstance(value, list):
        return "items" not in schema or all(_plainly_meets(one, schema["items"]) for one in value)
    if isinstance(value, str):
        return len(value) <= schema.get("maxLength", len(value)) and value in schema.get(
            "enum", (value,)
        )
    return "enum" not in schema


@lru_cache(maxsize=16)
def _validator(schema: bytes) -> Draft202012Validator:
    """By the text of a schema: to check one takes longer than to check many replies by it."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - slow, seldom needed

    known = cast("dict[str, Any]", decode(schema))
    try:
        Draft202012Validator.check_schema(known)
    except SchemaError as error:
        raise ConfigError(
            f"the schema for a reply is not one: {error.message}", hint="see json-schema.org"
        ) from None
    return Draft202012Validator(known)

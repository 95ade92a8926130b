"""JSON Schemas of the kinds, made from the models that check what we write.

Draft 2020-12; draft 7 for tools that know no other.  A schema describes one line of a file of
lines, and for Markdown the structure that is parsed out of it.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from holdfast.contracts.kind import Form, Kind

Draft = Literal["2020-12", "7"]

_DIALECTS = {
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
    "7": "http://json-schema.org/draft-07/schema#",
}
_DESCRIBED = {"lines": ": one line of the file", "markdown": ": what is parsed out of the text"}
LLM_CHAT = "llm-chat-schema.json"
"""The name under which agents are told the schema of their replies."""


class _Generator(GenerateJsonSchema):
    """Without what only OpenAPI knows, and without a title for every field."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        return _plain(super().generate(schema, mode))

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return {
            name: _plain(inner)
            for name, inner in found.items()
            if not (name == "discriminator" and isinstance(inner, dict) and "propertyName" in inner)
        }
    if isinstance(value, list):
        return [_plain(inner) for inner in cast("list[Any]", value)]
    return value


def schema_of(kind: Kind, form: Form | None = None, draft: Draft = "2020-12") -> dict[str, Any]:
    """The schema of a kind, in the form that is written or in another one."""
    form = form or kind.current
    body = form.model.model_json_schema(schema_generator=_Generator)
    definitions = body.pop("$defs", {})
    for name in ("title", "description"):
        body.pop(name, None)
    if kind.shape == "array":
        body = {"type": "array", "items": body}
    whole = {
        "$schema": _DIALECTS["2020-12"],
        "$id": f"urn:holdfast:schema:{kind.name}:{form.version}",
        "title": kind.name,
        "description": kind.what + _DESCRIBED.get(kind.shape, ""),
        "version": form.version,
        **body,
    }
    if definitions:
        whole["$defs"] = definitions
    return whole if draft == "2020-12" else _older(whole) | {"$schema": _DIALECTS["7"]}


def _older(value: Any) -> Any:
    if isinstance(value, list):
        return [_older(inner) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    found = {
        "definitions" if name == "$defs" else name: _older(inner)
        for name, inner in cast("dict[str, Any]", value).items()
    }
    if isinstance(found.get("$ref"), str):
        target = {"$ref": found.pop("$ref").replace("#/$defs/", "#/definitions/")}
        # Beside a reference draft 7 ignores everything.
        return {**found, "allOf": [target]} if found else target
    return found


def filename(kind: Kind) -> str:
    return f"{kind.name.replace('-', '_')}.schema.json"

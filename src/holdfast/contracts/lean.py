"""A model as a quick yes-or-no, for files of very many records.

Derived from the schema that pydantic made of the model, so that the two cannot differ: objects
are checked as they are and nothing is built.  A yes means that reading would have nothing to
tell; a no means nothing, the value then has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic_core import CoreConfig, CoreSchema, SchemaValidator
from pydantic_core import core_schema as core

from holdfast.contracts.record import Record, Time

Fields = dict[str, core.TypedDictField]

_STRICT = CoreConfig(strict=True)  # each object by itself: it is not handed down
_LONG = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_FEBRUARY = "02-(?:0[1-9]|1[0-9]|2[0-8])"
_LEAP = "[12](?:[0-9](?:0[48]|[2468][048]|[13579][26])|[048]00)-02-29"
_DAY = f"(?:[12][0-9]{{3}}-(?:{_LONG}|{_SHORT}|{_FEBRUARY})|{_LEAP})"
_CLOCK = r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
_ENDS = {"utc": "Z", "offset": "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"}
_AS_THEY_ARE = frozenset({"str", "int", "float", "bool", "literal", "none", "any"})


def decider(schema: CoreSchema) -> Callable[[Any], bool]:
    """Whether a value surely fits."""
    return SchemaValidator(schema).isinstance_python


def fields(model: type[Record], *, without: str = "") -> Fields:
    """What the object of a model may hold, by the names in the file."""
    found: Fields = {}
    whole: Any = model.__pydantic_core_schema__
    shared = {each["ref"]: each for each in whole.get("definitions", ())}
    for name, field in _model_fields(whole).items():
        if name == without:
            continue
        schema, required = field["schema"], True
        if schema["type"] == "default":
            schema, required = schema["schema"], False
        alias = cast("str", field.get("validation_alias", name))
        found[alias] = core.typed_dict_field(_lean(schema, shared), required=required)
    return found


def objects(known: Fields) -> CoreSchema:
    """Objects with these fields, and perhaps others: to look for those apart is quicker."""
    return core.typed_dict_schema(known, extra_behavior="ignore", config=_STRICT)


def lean(model: type[Record]) -> CoreSchema:
    """The objects of a model that leave nothing to tell."""
    if model.open_ended:
        return objects(fields(model))
    return core.typed_dict_schema(fields(model), extra_behavior="forbid", config=_STRICT)


def _model_fields(schema: Any) -> Mapping[str, Any]:
    if schema["type"] == "definitions":
        schema = schema["schema"]
    if schema["type"] != "model" or schema["schema"]["type"] != "model-fields":
        raise TypeError(f"rules across fields have no lean form: {schema['type']}")
    return schema["schema"]["fields"]


def _lean(schema: Any, shared: Mapping[str, Any]) -> CoreSchema:
    kind: str = schema["type"]
    if kind in _AS_THEY_ARE:
        return schema
    match kind:
        case "nullable":
            return core.nullable_schema(_lean(schema["schema"], shared))
        case "list":
            items = _lean(schema["items_schema"], shared)
            return cast("Any", {**schema, "items_schema": items})
        case "custom-error":
            return _lean(schema["schema"], shared)
        case "definition-ref":
            return _lean(shared[schema["schema_ref"]], shared)
        case "model":
            return lean(schema["cls"])
        case "function-plain":
            return _lean_time(schema)
        case _:
            raise TypeError(f"{kind} has no lean form")


def _lean_time(schema: Any) -> CoreSchema:
    owner = getattr(schema["function"]["function"], "__self__", None)
    if not isinstance(owner, Time) or owner.wanted not in _ENDS:
        raise TypeError("a function has no lean form")
    # Years outside of two millennia are left to the reading.
    return core.str_schema(pattern=f"^{_DAY}{_CLOCK}{_ENDS[owner.wanted]}$")

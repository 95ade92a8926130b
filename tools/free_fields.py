"""Which fields of the records may hold anything, and where the format says so.

A field of the type Any, or an object without named fields, has to carry `Free("…")`; one that
does not is a gap, and a gap is red.
"""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from holdfast.contracts.kinds import KINDS
from holdfast.contracts.record import Free, Record

HEAD = """\
# Fields that may hold anything

Written by `tools/generate_docs.py` from the models: do not edit, run `make fix`. Every other field
of every record has a type of its own.

| Record | Field | Why it is open |
|---|---|---|
"""


class Open(NamedTuple):
    record: str
    field: str
    why: str | None
    """None is a gap."""


def page() -> str:
    return HEAD + "".join(
        f"| {each.record} | `{each.field}` | {each.why or '**missing**'} |\n"
        for each in open_fields()
    )


def open_fields() -> list[Open]:
    return sorted(
        Open(model.__name__, field.alias or name, _why(field.metadata, field.annotation))
        for model in models()
        for name, field in model.model_fields.items()
        if is_open(field)
    )


def models() -> set[type[Record]]:
    """Every model that a kind is made of."""
    found: set[type[Record]] = set()
    waiting = [form.model for kind in KINDS for form in kind.forms]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.add(model)
            for field in model.model_fields.values():
                waiting += [each for each in _parts(field.annotation) if _is_record(each)]
    return found


def _is_record(part: Any) -> bool:
    return isinstance(part, type) and issubclass(part, Record)


def is_open(field: FieldInfo) -> bool:
    return any(part is Any or part is dict or part is object for part in _parts(field.annotation))


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of, outermost first."""
    origin = get_origin(annotation)
    if origin is None:
        alias = getattr(annotation, "__value__", None)
        if alias is not None:
            yield from _parts(alias)
        else:
            yield annotation
        return
    if origin is dict and not get_args(annotation):
        yield dict
    arguments = get_args(annotation)[:1] if origin is Annotated else get_args(annotation)
    if origin in (Annotated, Union, UnionType, list, dict, tuple):
        for inner in arguments:
            yield from _parts(inner)


def _why(metadata: list[Any], annotation: Any) -> str | None:
    for each in metadata:
        if isinstance(each, Free):
            return each.why
    if get_origin(annotation) is Annotated:
        _, *below = get_args(annotation)
        if (found := _why(below, None)) is not None:
            return found
    for inner in get_args(annotation):
        if not isinstance(inner, str) and (found := _why([], inner)) is not None:
            return found
    return None

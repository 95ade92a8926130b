"""Where an error lies.

Pydantic's location follows the models: a member of a union stands in it by its tag or the name
of its class, which is no part of the value and may well be the name of a field there.  Reading
needs the way through the value, and the model of the record in which it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from holdfast.contracts.record import Record

Location = tuple[int | str, ...]


class Place(NamedTuple):
    path: Location
    """Through the value."""
    holder: type[Record] | None
    """The model of the record that has the last part of the path as a field, if it is one."""


def place(model: type[Record], location: Location) -> Place:
    """The place that a location of pydantic's means, in a value read against `model`."""
    path: list[int | str] = []
    at: Any = model
    holder: type[Record] | None = None
    for part in location:
        members = _members(at)
        if len(members) > 1:
            at = _called(members, part)
            continue
        at = members[0] if members else None
        holder = at if isinstance(at, type) and issubclass(at, Record) else None
        wrapped = holder is not None and holder.array_in != "" and holder.array_in == part
        if part != "[key]" and not wrapped:
            path.append(part)
        at = _inside(at, part)
    return Place(tuple(path), holder)


def _members(annotation: Any) -> list[Any]:
    """What an annotation allows, without None and what is said about it."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin is Union or origin is UnionType:
        return [each for part in get_args(annotation) for each in _members(part)]
    return [] if annotation is NoneType else [annotation]


def _called(members: Sequence[Any], name: int | str) -> Any:
    for member in members:
        if isinstance(member, type) and issubclass(member, Record):
            tags = (each for field in member.model_fields.values() for each in _tags(field))
            if member.__name__ == name or name in tags:
                return member
    return None


def _tags(field: Any) -> tuple[Any, ...]:
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _inside(annotation: Any, part: int | str) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Record):
        for name, field in annotation.model_fields.items():
            if (field.alias or name) == part:
                return field.annotation
        return _other_fields(annotation)
    arguments = get_args(annotation)
    return arguments[-1] if arguments and get_origin(annotation) in (list, dict) else None


@lru_cache(maxsize=256)
def _other_fields(model: type[Record]) -> Any:
    arguments = get_args(get_type_hints(model).get("__pydantic_extra__"))
    return arguments[-1] if arguments else None

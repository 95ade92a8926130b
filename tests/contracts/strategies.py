"""Values that a model accepts, generated from the model itself.

`values_of(Model)` gives JSON objects as they could stand in a file: every required field, some of
the others.  A rule between fields is told as `keeping={Model: change}`, where `change` turns a
value that breaks it into one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from holdfast.contracts.record import OneOf, Record, Time

Json = dict[str, Any]
Change = Callable[[Json], Json]
Keeping = Mapping[type[Record], Change]
Bound = TypeVar("Bound")

_MOST = 2**53
_EARLIEST, _LATEST = datetime(1974, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
numbers = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-_MOST, _MOST) | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def values_of(
    model: type[Record], *, keeping: Keeping | None = None, unknown: bool = False
) -> st.SearchStrategy[Json]:
    """Objects that `model` accepts; with `unknown` also with fields that it does not know."""
    found = _objects(model, keeping or {})
    return st.builds(_with_unknown, found, _unknown_fields) if unknown else found


_unknown_fields = st.dictionaries(
    texts.map(lambda text: f"x {text}"), anything, min_size=1, max_size=2
)


def _with_unknown(value: Json, extra: Json) -> Json:
    return value | extra


def _objects(model: type[Record], keeping: Keeping) -> st.SearchStrategy[Json]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in model.model_fields.items():
        those = required if field.is_required() else optional
        found = _values(field.annotation, _flat(field.metadata), keeping)
        if name == "schema_version":
            found = st.none()  # which versions there are, only the kind knows
        those[field.alias or name] = found
    made = st.fixed_dictionaries(required, optional=optional)
    change = keeping.get(model)
    return made.map(change) if change else made


def _values(annotation: Any, metadata: list[Any], keeping: Keeping) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], [*_flat(arguments[1:]), *metadata], keeping)
    if origin in (Union, UnionType):
        return st.one_of([_values(each, [], keeping) for each in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is list:
        least = _bound(metadata, MinLen, lambda each: each.min_length) or 0
        return st.lists(_values(arguments[0], [], keeping), min_size=least, max_size=least + 2)
    if origin is dict:
        keys, inner = (_values(each, [], keeping) for each in arguments)
        return st.dictionaries(keys, inner, max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return _objects(annotation, keeping)
    return _plain(annotation, metadata)


def _plain(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    for each in metadata:
        if isinstance(each, Time):
            return _times(each.wanted)
        if isinstance(each, OneOf):
            return st.sampled_from(each.words)
    if annotation is None or annotation is type(None):
        return st.none()
    if annotation is Any:
        return anything
    if annotation is bool:
        return st.booleans()
    if annotation is str:
        return _text(metadata)
    if annotation in (int, float):
        return _number(annotation, metadata)
    raise NotImplementedError(f"no strategy for {annotation!r}")


def _times(wanted: str) -> st.SearchStrategy[Any]:
    naive = st.datetimes(_EARLIEST.replace(tzinfo=None), _LATEST.replace(tzinfo=None))
    if wanted == "epoch":
        return naive.map(lambda time: time.replace(tzinfo=UTC).timestamp())
    utc = naive.map(lambda time: time.isoformat() + "Z")
    if wanted == "utc":
        return utc
    zones = st.integers(-11, 13).map(lambda hours: timezone(timedelta(hours=hours)))
    return utc | st.builds(lambda time, zone: time.replace(tzinfo=zone).isoformat(), naive, zones)


def _text(metadata: list[Any]) -> st.SearchStrategy[str]:
    pattern = next((found for each in metadata if (found := getattr(each, "pattern", None))), None)
    if pattern is not None:
        made = st.from_regex(pattern, fullmatch=True, alphabet=st.characters(codec="utf-8"))
    else:
        least = _bound(metadata, MinLen, lambda each: each.min_length) or 0
        most = _bound(metadata, MaxLen, lambda each: each.max_length) or least + 12
        made = st.text(st.characters(codec="utf-8"), min_size=least, max_size=min(most, least + 12))
    if not metadata:
        return made
    accepts = TypeAdapter(Annotated[(str, *metadata)])
    return made.filter(lambda text: _accepted(accepts, text))


def _accepted(adapter: TypeAdapter[Any], value: object) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


def _number(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    least = _bound(metadata, Ge, lambda each: each.ge)
    most = _bound(metadata, Le, lambda each: each.le)
    above = _bound(metadata, Gt, lambda each: each.gt)
    below = _bound(metadata, Lt, lambda each: each.lt)
    if annotation is int:
        low = above + 1 if above is not None else least
        high = below - 1 if below is not None else most
        return st.integers(-_MOST if low is None else low, _MOST if high is None else high)
    return st.floats(
        above if above is not None else least,
        below if below is not None else most,
        exclude_min=above is not None,
        exclude_max=below is not None,
        allow_nan=False,
        allow_infinity=False,
    )


def _bound(metadata: list[Any], of: type[Bound], get: Callable[[Bound], Any]) -> Any:
    return next((get(each) for each in metadata if isinstance(each, of)), None)


def _flat(metadata: Any) -> list[Any]:
    """What an annotation demands, out of the `Field(…)` that it may be wrapped in."""
    found: list[Any] = []
    for each in metadata:
        found += cast("list[Any]", each.metadata) if isinstance(each, FieldInfo) else [each]
    return found

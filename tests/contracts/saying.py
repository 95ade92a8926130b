"""What a kind says of a value."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

from hypothesis import strategies as st

from holdfast.contracts.kind import Kind, Located, Origin
from holdfast.contracts.kinds import kind
from tests.contracts.fixtures import FOLDER
from tests.contracts.strategies import Json, anything

Told = list[tuple[str, str, str]]


def example(name: str) -> Any:
    """A fixture, anew each time."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def told(name: str, value: Any, *, strict: bool = False) -> Told:
    """Level, code and field of every finding."""
    return [finding[:3] for finding in kind(name).read(value, strict=strict).findings]


def crossed(name: str, value: Any, path: str = "") -> Told:
    """What the cross-check says, after a liberal reading."""
    return [finding[:3] for finding in cross_findings(kind(name), [value], path)]


def cross_findings(its: Kind, values: list[Any], path: str = "") -> list[Any]:
    if its.cross_check is None:
        return []
    located = [Located(line, its.read(value)) for line, value in enumerate(values, 1)]
    return list(its.cross_check(located, Origin(path)))


def errors(findings: Told) -> Told:
    return [finding for finding in findings if finding[0] == "error"]


def changed(value: Any, path: str, new: Any) -> Any:
    """A copy with another value at `events[2].tick`."""
    found = copy.deepcopy(value)
    holder, last = _holder(found, path)
    holder[last] = new
    return found


def without(value: Any, path: str) -> Any:
    """A copy without `events[2].tick`."""
    found = copy.deepcopy(value)
    holder, last = _holder(found, path)
    del holder[last]
    return found


def _holder(value: Any, path: str) -> tuple[Any, Any]:
    *above, last = _parts(path)
    for part in above:
        value = value[part]
    return value, last


def _parts(path: str) -> list[int | str]:
    return [int(at) if at else name for at, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)]


def places(value: Any, at: str = "") -> list[str]:
    """Every path in a value."""
    if isinstance(value, dict):
        inner = [(f"{at}.{name}".lstrip("."), each) for name, each in value.items()]
    elif isinstance(value, list):
        inner = [(f"{at}[{number}]", each) for number, each in enumerate(value)]
    else:
        return []
    return [path for name, each in inner for path in (name, *places(each, name))]


def garbled(value: Any) -> st.SearchStrategy[Any]:
    """The value with anything at all in some of its places."""
    wheres = st.lists(st.sampled_from(places(value)), min_size=1, max_size=2)
    return st.builds(_garbled, st.just(value), wheres, anything)


def _garbled(value: Any, wheres: list[str], new: Any) -> Any:
    for where in wheres:
        try:
            value = changed(value, where, new)
        except (LookupError, TypeError):
            pass  # the one before took it away
    return value


def as_json(value: Json) -> Any:
    return json.loads(json.dumps(value))

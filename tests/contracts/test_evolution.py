"""What was released is read for ever."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tools.evolution import RELEASED, breaks, breaks_since

OLD: dict[str, Any] = {
    "type": "object",
    "required": ["agent", "state"],
    "properties": {
        "agent": {"type": "string"},
        "state": {"enum": ["idle", "busy"]},
        "last": {"anyOf": [{"$ref": "#/$defs/Last"}, {"type": "null"}]},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Last"}},
    },
    "$defs": {
        "Last": {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "string"}, "below": {"$ref": "#/$defs/Last"}},
        }
    },
}


def changed(path: str, value: Any) -> list[str]:
    new = copy.deepcopy(OLD)
    *above, last = path.split("/")
    at = new
    for part in above:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return list(breaks(OLD, new))


def test_nothing_broke_since_the_last_release() -> None:
    assert list(breaks_since(RELEASED)) == []


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("properties/agent", None, "agent was required and is gone"),
        ("properties/state/enum", ["idle"], 'state no longer takes "busy"'),
        ("required", ["agent", "state", "last"], "last is required and was not"),
        ("properties/agent/type", "integer", "agent no longer takes string"),
        ("$defs/Last/properties/id", None, "last.id was required and is gone"),
    ],
)
def test_what_breaks_old_files_is_told(path: str, value: Any, says: str) -> None:
    assert says in changed(path, value)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("properties/more", {"type": "string"}),
        ("properties/state/enum", ["idle", "busy", "error"]),
        ("required", ["agent"]),
        ("$defs/Last/properties/more", {"type": "string"}),
    ],
)
def test_growing_breaks_nothing(path: str, value: Any) -> None:
    assert changed(path, value) == []


def test_a_version_that_is_gone_is_told(tmp_path: Any) -> None:
    (tmp_path / "toy@0.1.json").write_text(json.dumps(OLD), encoding="utf-8")
    (told,) = breaks_since(tmp_path)
    assert "toy@0.1: the version is gone" in told

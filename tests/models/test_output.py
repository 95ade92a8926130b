"""Whether a value meets a schema: told quickly where that is plain, and never otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.errors import ConfigError
from holdfast.models.output import check_schema, violations
from tests.models import faults

NAMES = st.sampled_from(("a", "b", "c"))
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from((1.0, 0.5)) | NAMES
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(
    ("object", "array", "string", "integer", "number", "boolean", "null", ["string", "null"])
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES,
            "required": st.lists(NAMES, unique=True, max_size=2),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "items": inner,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "maxLength": st.integers(0, 1),
            "minLength": st.integers(0, 2),
            "additionalProperties": inner,
        },
    )


SCHEMAS = _schemas(st.recursive(st.booleans(), _schemas, max_leaves=6))


@given(VALUES, SCHEMAS)
def test_what_is_told_at_a_glance_is_what_the_validator_tells(value: Any, schema: Any) -> None:
    assert (violations(value, schema) == []) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("schema", [{"type": "object", "properties": []}, {"maxLength": "long"}])
def test_what_is_no_schema_is_told_even_if_a_value_seems_to_meet_it(schema: Any) -> None:
    with pytest.raises(ConfigError, match="not one"):
        violations({}, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"properties": {"a": {"items": {"$ref": "#nowhere"}}}},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_reference_that_leads_nowhere_is_told_before_anybody_is_asked(schema: Any) -> None:
    with pytest.raises(ConfigError, match="refers to"):
        check_schema(schema)


def test_nothing_is_fetched_that_a_schema_refers_to() -> None:
    with faults.faulty(faults.says("{}")) as server:
        with pytest.raises(ConfigError, match="not in it"):
            check_schema({"$ref": f"{server.url}/schema.json"})
        assert not server.fetched


def test_references_within_a_schema_and_to_the_standard_hold() -> None:
    tree = {"type": "object", "properties": {"of": {"$ref": "#"}}, "$id": "http://here/tree"}
    assert violations({"of": {"of": {}}}, tree) == []
    assert violations({"of": {"of": 1}}, tree)
    standard = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    assert violations({"type": "object"}, standard) == []
    assert violations({"type": 1}, standard)

"""Records of every kind and version, made up: what may be written can be read back as it was."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.codec import decode, encode
from holdfast.contracts.kind import Form, Kind
from holdfast.contracts.kinds import KINDS
from holdfast.contracts.schema import schema_of
from tests.contracts.strategies import values_of

EVERY = [
    (kind, form)
    for kind in KINDS
    for form in kind.forms
    # The one that is a bare array has tests of its own.
    if f"{kind.name}@{form.version}" != "job-history@0.8"
]


@pytest.mark.parametrize(
    ("kind", "form"), EVERY, ids=[f"{kind.name}@{form.version}" for kind, form in EVERY]
)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_may_be_written_is_read_back_as_it_was(
    kind: Kind, form: Form, data: st.DataObject
) -> None:
    value = data.draw(values_of(form.model))
    found = kind.read(value, form=form)
    if found.record is None:
        # Rules across fields are not known to the strategy; what breaks one is told.
        assert {each.code for each in found.findings} & {"rule", "type", "choice", "time"}
        return
    written = found.record.value()
    assert written == value
    again = kind.read(decode(encode(written)), form=form)
    assert again.record == found.record
    assert [error.message for error in validator(kind, form).iter_errors(written)] == []


@cache
def validator(kind: Kind, form: Form) -> Draft202012Validator:
    schema = schema_of(kind, form)
    if kind.shape == "array":
        schema = schema["items"] | {"$defs": schema.get("$defs", {})}
    return Draft202012Validator(schema)

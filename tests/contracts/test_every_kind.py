"""What holds for every kind there is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from holdfast.contracts.kind import Kind
from holdfast.contracts.kinds import KINDS, kind
from holdfast.contracts.schema import schema_of
from holdfast.errors import NotFound
from tests.contracts.fixtures import Fixture, fixtures
from tools.free_fields import open_fields

BINDING = (
    "fmm test-run cluster-run manifest memory-line agent-event index report tasks session message "
    "journal metrics memory-md ledger status summary agent-request agent-response job-manifest "
    "job-history plan benchmark-result research-brief iteration-history raw-data iteration-state "
    "merge-report improve-events settings agent-settings goal harness"
)
SIDE_BY_SIDE = {
    "journal@log",
    "ledger@log",
    "spend@log",
    "memory-line@log",
    "topic-line@log",
    "topic-line@act",
    "topic-line@proposal",
    "alert@log",
    "audit@log",
    "job-log@log",
    "job-queue@log",
    "agent-event@log",
    "agent-request@0.9",
}
"""Lines of a log about itself, and a command to another engine: nothing becomes of them."""
UNKNOWN: dict[str, Any] = {"fmm": {"deep": {}}, "router-weights": 0.5}
"""Where every name is known to be of one type."""

every_kind = pytest.mark.parametrize("each", KINDS, ids=lambda each: each.name)
every_fixture = pytest.mark.parametrize("fixture", list(fixtures()), ids=lambda each: each.name)


def test_all_names_that_scripts_rely_on_are_there() -> None:
    assert [name for name in BINDING.split() if name not in {each.name for each in KINDS}] == []


def test_no_two_kinds_have_one_name() -> None:
    names = [each.name for each in KINDS]
    assert len(set(names)) == len(names)


def test_an_unknown_kind_is_told_with_the_known_ones() -> None:
    with pytest.raises(NotFound) as raised:
        kind("leger")
    assert "ledger" in str(raised.value.hint)


def test_every_open_field_says_why() -> None:
    assert [each for each in open_fields() if each.why is None] == []


@every_kind
def test_every_version_has_a_fixture(each: Kind) -> None:
    there = {one.form.version for one in fixtures() if one.kind is each}
    assert {form.version for form in each.forms} - there == set()


@every_kind
def test_its_schemas_are_schemas(each: Kind) -> None:
    for form in each.forms:
        Draft202012Validator.check_schema(schema_of(each, form))
        older = schema_of(each, form, "7")
        Draft7Validator.check_schema(older)
        assert "$defs" not in json.dumps(older)
        assert "discriminator" not in older.get("properties", {}).get("events", {})


@every_kind
def test_only_the_form_that_is_written_has_no_upgrade(each: Kind) -> None:
    assert each.current.upgrade is None
    beside = {f"{each.name}@{form.version}" for form in each.forms[:-1] if form.upgrade is None}
    assert beside <= SIDE_BY_SIDE, "an older form without a way to the next one"


@every_fixture
def test_a_fixture_is_recognised_and_right(fixture: Fixture) -> None:
    for value in fixture.values():
        found = fixture.kind.read(value, strict=True, form=fixture.form)
        assert found.findings == []
        assert fixture.kind.form_of(value) is fixture.form
        schema = schema_of(fixture.kind, fixture.form)
        if fixture.kind.shape == "array":
            schema = schema["items"] | {"$defs": schema.get("$defs", {})}
        assert [error.message for error in Draft202012Validator(schema).iter_errors(value)] == []


@every_fixture
def test_reading_and_writing_a_fixture_loses_no_value(fixture: Fixture) -> None:
    for value in fixture.values():
        if not isinstance(value, dict):
            continue
        unknown = UNKNOWN.get(fixture.kind.name, {"deep": [1, 2.5, None, "ü"]})
        more = {**value, "x_unknown": unknown}
        found = fixture.kind.read(more, form=fixture.form)
        assert found.record is not None, found.findings
        assert found.record.value() == more
        again = fixture.kind.read(found.record.value(), form=fixture.form)
        assert again.record == found.record


@every_fixture
def test_a_fixture_of_an_older_form_can_be_upgraded(fixture: Fixture) -> None:
    for value in fixture.values():
        upgraded = fixture.kind.upgraded(value)
        found = fixture.kind.read(upgraded, form=fixture.kind.current)
        # What an old form never had cannot be invented.
        wrong = [each for each in found.findings if each.level == "error"]
        assert [each for each in wrong if each.code != "missing"] == []


@pytest.mark.parametrize("fixture", [*fixtures()], ids=lambda fixture: fixture.name)
def test_what_is_refused_is_what_strict_reading_tells_but_for_unknown_fields(
    fixture: Fixture,
) -> None:
    for value in fixture.values():
        some: list[Any] = [value, {}, None]
        if isinstance(value, dict):
            fields: dict[str, Any] = value
            some += [fields | {name: [0]} for name in (*fields, "schema_version")]
            some.append(fields | {"schema_version": "99.0"})
        for each in some:
            told = fixture.kind.read(each, strict=True, form=fixture.form).findings
            refused = [found for found in told if found.code != "unknown_field"]
            assert fixture.kind.refusals(each, fixture.form) == refused

"""Arguments in JSON: what a face tells its callers, and what it takes from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator

from holdfast.errors import UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Stream
from holdfast.ops.operation import Operation
from holdfast.ops.parameter import LONGEST, Arg
from holdfast.ops.table import TABLE


def count(
    context: Context,
    from_: Annotated[str, Arg("Who counts", positional=True)],
    *,
    limit: Annotated[int, Arg("How many")] = 10,
    cost: Annotated[float | None, Arg("How much")] = None,
    kind: Annotated[Literal["a", "b"], Arg("Which")] = "a",
    tag: Annotated[Sequence[str], Arg("Labels")] = (),
    dry_run: Annotated[bool, Arg("Only say it")] = False,
    out: Annotated[str | None, Arg("A file", is_path=True)] = None,
) -> Change:
    context.warn("counted by hand")
    return Change(from_, applied=not dry_run, detail=f"{limit} {cost} {kind} {list(tag)}")


def endless(context: Context) -> Stream:
    return Stream(iter(()))


COUNT = Operation("change", "count", "Count", f"{__name__}:count")


def test_the_schema_says_what_may_be_given_and_names_no_file_of_this_machine() -> None:
    schema = COUNT.schema()
    assert schema["required"] == ["from"]
    assert list(schema["properties"]) == ["from", "limit", "cost", "kind", "tag", "dry_run"]
    assert schema["properties"]["kind"] == {
        "type": "string",
        "enum": ["a", "b"],
        "default": "a",
        "description": "Which",
    }
    assert schema["properties"]["cost"]["anyOf"] == [{"type": "number"}, {"type": "null"}]


GOOD: list[Mapping[str, Any]] = [
    {"from": "rio"},
    {"from": "rio", "limit": 3, "cost": 1, "kind": "b", "tag": ["x", ""], "dry_run": True},
    {"from": "rio", "limit": 3.0, "cost": None},
]
BAD: list[Mapping[str, Any]] = [
    {},
    {"from": None},
    {"from": 1},
    {"from": "x" * (LONGEST + 1)},
    {"from": "rio", "out": "/etc/passwd"},
    {"from": "rio", "limit": "3"},
    {"from": "rio", "limit": 1.5},
    {"from": "rio", "limit": True},
    {"from": "rio", "limit": 1 << 60},
    {"from": "rio", "limit": None},
    {"from": "rio", "cost": "1"},
    {"from": "rio", "kind": "c"},
    {"from": "rio", "tag": "x"},
    {"from": "rio", "tag": [1]},
    {"from": "rio", "dry_run": 1},
    {"from": "rio", "from_": "rio"},
]


@pytest.mark.parametrize("given", GOOD, ids=str)
def test_what_fits_the_schema_is_taken(given: Mapping[str, Any]) -> None:
    Draft202012Validator(COUNT.schema()).validate(given)
    with Context() as context:
        envelope = COUNT.answer(context, COUNT.accepted(given))
    assert envelope["target"] == "rio"
    assert envelope["warnings"] == ["counted by hand"]


@pytest.mark.parametrize("given", BAD, ids=lambda given: str(given)[:60])
def test_what_does_not_fit_the_schema_is_refused_with_a_hint(given: Mapping[str, Any]) -> None:
    assert not Draft202012Validator(COUNT.schema()).is_valid(given)
    with pytest.raises(UsageError) as refused:
        COUNT.accepted(given)
    assert refused.value.hint


@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_number_is_finite(number: float) -> None:
    with pytest.raises(UsageError, match="cost"):
        COUNT.accepted({"from": "rio", "cost": number})


def test_a_verb_without_an_end_gives_no_answer() -> None:
    operation = Operation("read", "endless", "Follow", f"{__name__}:endless")
    with Context() as context, pytest.raises(UsageError, match="no end"):
        operation.answer(context, {})


@pytest.mark.parametrize("operation", TABLE.operations, ids=lambda each: each.name)
def test_every_verb_has_a_schema_that_fits_its_defaults(operation: Operation) -> None:
    schema = operation.schema()
    Draft202012Validator.check_schema(schema)
    for name, described in schema["properties"].items():
        if "default" in described:
            Draft202012Validator(described).validate(described["default"])
        assert name not in ("home", "layout", "json")

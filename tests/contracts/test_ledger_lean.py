"""A model as a quick yes-or-no."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pytest
from hypothesis import given
from pydantic import AfterValidator, Field, model_validator

from holdfast.contracts.kind import read
from holdfast.contracts.ledger import decider, lean
from holdfast.contracts.record import Count, OffsetTime, Record, UtcTime
from tests.contracts.strategies import Json, anything, values_of


class Inner(Record):
    name: str
    kind: Literal["a", "b"] = "a"


class Open(Record):
    open_ended = True
    note: str | None = None


class Outer(Record):
    at: UtcTime
    local: OffsetTime | None = None
    from_: str = Field(alias="from")
    inner: Inner | None = None
    opened: Open | None = None
    many: list[Inner] | None = None
    size: Count | None = None


fits = decider(lean(Outer))
GOOD: Json = {"at": "2026-11-15T08:48:46Z", "from": "rio"}


@given(values_of(Outer))
def test_what_a_model_accepts_gets_a_yes(value: Json) -> None:
    assert fits(value)


@pytest.mark.parametrize(
    "change",
    [
        {"at": "2026-11-15T08:48:46+07:00"},
        {"at": "2026-02-29T08:48:46Z"},
        {"at": "2026-11-15T08:48:46Z\n"},
        {"at": "２026-11-15T08:48:46Z"},
        {"from": None},
        {"from_": "rio"},
        {"x": 1},
        {"inner": {"name": "x", "y": 1}},
        {"inner": {"kind": "a"}},
        {"many": [{"name": "x", "kind": "c"}]},
        {"size": True},
        {"size": -1},
        {"size": 1.0},
    ],
)
def test_whatever_would_be_told_gets_a_no(change: Json) -> None:
    assert fits(GOOD)
    assert not fits(GOOD | change)
    assert read(Outer, GOOD | change, strict=True).findings


def test_further_fields_of_an_open_record_are_no_surprise() -> None:
    assert fits(GOOD | {"opened": {"anything": [1]}})


@given(anything)
def test_no_value_breaks_it(value: Any) -> None:
    assert not fits(value)


class Ruled(Record):
    low: int

    @model_validator(mode="after")
    def _is_low(self) -> Self:
        return self


class Own(Record):
    text: Annotated[str, AfterValidator(str.strip)]


@pytest.mark.parametrize("model", [Ruled, Own])
def test_a_model_with_code_of_its_own_has_no_lean_form(model: type[Record]) -> None:
    with pytest.raises(TypeError, match="no lean form"):
        lean(model)

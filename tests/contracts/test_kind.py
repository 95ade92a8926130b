"""Reading a value against a model: strictly, and with mercy."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from holdfast.contracts.kind import Form, Kind, read
from holdfast.contracts.record import (
    Document,
    EpochTime,
    Formed,
    OffsetTime,
    Record,
    UtcTime,
)


class Item(Record):
    id: str
    status: Literal["pending", "completed", "in_progress"]


class Toy(Document):
    agent: str
    at: UtcTime
    mode: Literal["fast", "slow"] | None = None
    size: int | None = None
    items: list[Item] = Field(default_factory=list[Item])
    other_names: ClassVar[dict[str, tuple[str, ...]]] = {"at": ("timestamp",)}
    often_missing = frozenset({"agent"})


GOOD: dict[str, Any] = {"agent": "rio", "at": "2026-11-15T08:48:46Z", "items": []}


def told(value: Any, *, strict: bool = False) -> list[tuple[str, str, str]]:
    return [
        (each.level, each.code, each.field) for each in read(Toy, value, strict=strict).findings
    ]


def test_a_good_value_says_nothing_and_is_written_as_it_was() -> None:
    found = read(Toy, GOOD)
    assert found.findings == []
    assert found.record is not None
    assert found.record.value() == GOOD


@pytest.mark.parametrize(
    ("change", "finding", "meant"),
    [
        ({"mode": "FAST"}, ("warning", "choice", "mode"), "fast"),
        ({"mode": '"slow"'}, ("warning", "choice", "mode"), "slow"),
        ({"at": "2026-11-15T15:48:46+0700"}, ("warning", "time", "at"), "2026-11-15T08:48:46Z"),
        ({"at": 1794732526}, ("warning", "time", "at"), "2026-11-15T08:48:46Z"),
        ({"at": "2026-11-15T08:48:46"}, ("warning", "time", "at"), "2026-11-15T08:48:46Z"),
        ({"size": "0\n0"}, ("warning", "type", "size"), 0),
        ({"size": "unknown"}, ("warning", "type", "size"), None),
    ],
)
def test_what_is_plainly_meant_is_read_with_a_warning_and_never_written(
    change: dict[str, Any], finding: tuple[str, str, str], meant: object
) -> None:
    value = GOOD | change
    before = str(value)
    found = read(Toy, value)
    assert [(each.level, each.code, each.field) for each in found.findings] == [finding]
    assert found.value[finding[2]] == meant
    assert found.record is not None
    assert str(value) == before, "the caller's value was changed"
    assert [each.level for each in read(Toy, value, strict=True).findings] == ["error"]


def test_drift_inside_lists_is_told_with_its_place() -> None:
    value = GOOD | {
        "items": [{"id": "a", "status": "pending"}, {"id": "b", "status": "complete (13 pages)"}]
    }
    found = read(Toy, value)
    assert [each.field for each in found.findings] == ["items[1].status"]
    assert found.value["items"][1]["status"] == "completed"


def test_a_list_of_alternatives_is_refused_with_the_allowed_values() -> None:
    (finding,) = read(Toy, GOOD | {"mode": "fast | slow"}).findings
    assert (finding.level, finding.field) == ("error", "mode")
    assert "fast, slow" in finding.reason


def test_another_name_of_a_field_is_read() -> None:
    value = {"agent": "rio", "timestamp": "2026-11-15T08:48:46Z"}
    assert told(value) == [("warning", "renamed", "timestamp")]


def test_what_is_often_missing_is_a_warning_and_there_is_no_record() -> None:
    found = read(Toy, {"at": "2026-11-15T08:48:46Z"})
    assert found.record is None
    assert [(each.level, each.code) for each in found.findings] == [("warning", "missing")]
    assert told({"at": "2026-11-15T08:48:46Z"}, strict=True) == [("error", "missing", "agent")]


def test_unknown_fields_are_kept_and_named_wherever_they_are() -> None:
    value = GOOD | {"x": 1.5, "items": [{"id": "a", "status": "pending", "y": {"z": [None]}}]}
    found = read(Toy, value)
    assert {each.field for each in found.findings} == {"x", "items[0].y"}
    assert found.record is not None
    assert found.record.value() == value
    assert {level for level, _, _ in told(value, strict=True)} == {"error"}


def test_a_newer_version_is_refused_with_a_hint() -> None:
    kind = Kind("toy", "A toy", "document", (Form("1.0", Toy), Form("1.2", Toy)))
    (finding,) = kind.read(GOOD | {"schema_version": "1.10"}).findings
    assert (finding.code, finding.level) == ("newer", "error")
    assert "update" in finding.reason
    assert kind.read(GOOD | {"schema_version": "1.2"}).findings == []


def test_forms_are_upgraded_in_order() -> None:
    class Old(Record):
        who: str

    kind = Kind(
        "toy",
        "A toy",
        "document",
        (
            Form("0.9", Old, lambda value: "who" in value, lambda value: {"name": value["who"]}),
            Form("1.0", Old, lambda value: "name" in value, lambda value: {"agent": value["name"]}),
            Form("1.1", Toy),
        ),
    )
    assert kind.upgraded({"who": "rio"}) == {"agent": "rio"}
    assert kind.upgraded({"agent": "rio"}) == {"agent": "rio"}
    assert kind.read({"who": "rio"}).findings == []


class Clocks(Record):
    epoch: EpochTime | None = None
    offset: OffsetTime | None = None
    utc: Annotated[UtcTime, "annotations add up"] | None = None


@pytest.mark.parametrize(
    "text",
    ["2026-02-30T00:00:00Z", "2026-11-15T24:00:00Z", "2026-11-15T08:48:46Z\n", "", "$(date -u)"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    for name in ("offset", "utc"):
        (finding,) = read(Clocks, {name: text}, strict=True).findings
        assert finding.code == "time"
    assert read(Clocks, {"epoch": True}).record is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["agent", "at", "items", "mode", "id", "status", "x"]), inner
            )
        ),
        max_leaves=20,
    )
)
def test_no_value_at_all_breaks_the_reading(value: Any) -> None:
    for strict in (True, False):
        found = read(Toy, value, strict=strict)
        assert (found.record is not None) or found.findings


class Extras(Record):
    open_ended = True
    note: str | None = None


class Post(Record):
    open_choices = frozenset({"event"})
    who: Annotated[str, Formed(r"^[a-z]{2,8}$", "rio")]
    event: Literal["start", "stop"]
    data: Extras


POST: dict[str, Any] = {"who": "rio", "event": "start", "data": {}}


def posted(change: Any, *, strict: bool = False) -> list[tuple[str, str, str]]:
    found = read(Post, POST | change, strict=strict).findings
    return [(each.level, each.code, each.field) for each in found]


def test_a_list_of_values_that_others_extend_warns_and_keeps() -> None:
    assert posted({"event": "deploy"}) == [("warning", "choice", "event")]
    assert posted({"event": "deploy"}, strict=True) == [("error", "choice", "event")]
    assert posted({"event": {"type": "start"}}) == [("error", "choice", "event")]
    assert read(Post, POST | {"event": "deploy"}).value["event"] == "deploy"


def test_text_of_a_form_is_told_by_an_example_and_mended_if_only_its_case_is_odd() -> None:
    (finding,) = read(Post, POST | {"who": "nobody at all"}).findings
    assert finding.reason == "not of the form rio: 'nobody at all'"
    found = read(Post, POST | {"who": "Rio"})
    assert [(each.level, each.code) for each in found.findings] == [("warning", "spelling")]
    assert found.value["who"] == "rio"
    assert posted({"who": "Rio"}, strict=True) == [("error", "type", "who")]
    assert Post.model_json_schema()["properties"]["who"]["pattern"] == "^[a-z]{2,8}$"


def test_fields_that_a_format_leaves_open_are_no_surprise() -> None:
    assert posted({"data": {"anything": 1}}) == []
    assert posted({"anything": 1}) == [("warning", "unknown_field", "anything")]
    assert posted({"data": {"note": 1}}) == [("error", "type", "data.note")]


def test_what_is_no_object_is_called_that() -> None:
    (finding,) = read(Post, [1]).findings
    assert finding.reason == "not an object: [1]"

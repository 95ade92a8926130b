"""Reading a value against a model: strictly, and with mercy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SerializeAsAny, field_validator, model_validator
from pydantic_core import PydanticCustomError

from holdfast.contracts.kind import Form, Kind, read
from holdfast.contracts.kinds import kind
from holdfast.contracts.record import (
    Also,
    Document,
    Doubt,
    EpochTime,
    Formed,
    OffsetTime,
    Record,
    UtcTime,
    broken_rule,
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


class Went(Record):
    type: Literal["went"]
    at: UtcTime


class Failed(Record):
    type: Literal["error"]
    error: str
    at: UtcTime
    other_names: ClassVar[dict[str, tuple[str, ...]]] = {"error": ("reason",)}
    often_missing = frozenset({"at"})


class Run(Record):
    events: list[Annotated[Went | Failed, Field(discriminator="type")]]
    by_name: dict[str, Item] = Field(default_factory=dict[str, Item])
    either: str | list[Item] | None = None


def run(event: dict[str, Any]) -> Any:
    return read(Run, {"events": [{"type": "went", "at": "2026-11-15T08:48:46Z"}, event]})


def test_a_field_that_is_named_like_its_union_member_is_not_taken_for_it() -> None:
    found = run({"type": "error", "error": "no space", "at": 1794732526})
    assert [(each.code, each.field) for each in found.findings] == [("time", "events[1].at")]
    assert found.value["events"][1]["error"] == "no space"
    assert found.record is not None


def test_a_drifted_tag_is_mended_and_then_what_it_hid() -> None:
    found = run({"type": "Error", "error": "no space", "at": 1794732526})
    assert [each.field for each in found.findings] == ["events[1].type", "events[1].at"]
    assert found.record is not None


@pytest.mark.parametrize("event", [{"type": "flew"}, {"type": 3}, {"type": ["went"]}])
def test_a_tag_that_nobody_knows_is_told_with_the_allowed_ones(event: dict[str, Any]) -> None:
    (finding,) = run(event).findings
    assert (finding.level, finding.code, finding.field) == ("error", "choice", "events[1].type")
    assert "went, error" in finding.reason


def test_a_tag_that_is_missing_is_told_as_a_missing_field() -> None:
    (finding,) = run({}).findings
    assert (finding.code, finding.field) == ("missing", "events[1].type")


def test_other_names_and_missing_fields_of_inner_records_are_known() -> None:
    found = run({"type": "error", "reason": "no space"})
    assert [(each.level, each.code, each.field) for each in found.findings] == [
        ("warning", "renamed", "events[1].reason"),
        ("warning", "missing", "events[1].at"),
    ]


def test_drift_inside_of_objects_and_unions_is_mended() -> None:
    odd = {"id": "a", "status": "Pending"}
    found = read(Run, {"events": [], "by_name": {"Item": odd}, "either": "text"})
    assert [each.field for each in found.findings] == ["by_name.Item.status"]
    assert found.record is not None
    (first, *_) = read(Run, {"events": [], "either": 3}).findings
    assert (first.level, first.field) == ("error", "either")


def test_a_form_with_a_warning_is_told_unless_it_was_asked_for() -> None:
    class Old(Record):
        who: str

    old = Form("0.9", Old, lambda value: "who" in value, warning="an older form")
    kind = Kind("toy", "A toy", "document", (old, Form("1.0", Toy)))
    for strict, level in ((False, "warning"), (True, "error")):
        found = kind.read({"who": "rio"}, strict=strict)
        assert [(each.level, each.code) for each in found.findings] == [(level, "form")]
        assert (found.record is None) == strict
        asked = kind.read({"who": "rio"}, strict=strict, form=old)
        assert (asked.findings, asked.record is None) == ([], False)


def test_a_broken_rule_is_told_by_its_name() -> None:
    class Ruled(Record):
        even: int

        @model_validator(mode="after")
        def _is_even(self) -> Ruled:
            if self.even % 2:
                raise PydanticCustomError("odd_number", "not even")
            return self

    (finding,) = read(Ruled, {"even": 3}).findings
    assert (finding.level, finding.code) == ("error", "odd_number")


class Odd(Record):
    id: str
    urgency: Annotated[Literal["high", "normal"], Also(high=("blocking",), normal=("low",))]
    end: int | None = None
    often_missing = frozenset({"end"})

    @model_validator(mode="after")
    def _starts_before_it_ends(self) -> Self:
        if self.end is not None and self.end < 0:
            raise broken_rule("the end comes before the start")
        return self

    def doubts(self) -> Iterator[Doubt]:
        if not self.id.startswith("n-"):
            yield Doubt("old_id", "id", "an old form, no longer written")


ODD: dict[str, Any] = {"id": "n-1", "urgency": "high", "end": 3}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"urgency": "Blocking"}, "choice", "urgency"),
        ({"urgency": "HIGH"}, "choice", "urgency"),
        ({"id": "7"}, "old_id", "id"),
    ],
)
def test_what_is_read_but_never_written_leaves_a_record_and_a_warning(
    change: dict[str, Any], code: str, field: str
) -> None:
    found = read(Odd, ODD | change)
    assert [(each.level, each.code, each.field) for each in found.findings] == [
        ("warning", code, field)
    ]
    assert isinstance(found.record, Odd)
    assert found.record.urgency == "high"
    (refused,) = read(Odd, ODD | change, strict=True).findings
    assert (refused.level, refused.code) == ("error", code)


def test_other_words_for_a_choice_are_no_part_of_the_schema() -> None:
    schema = Odd.model_json_schema()
    assert schema["properties"]["urgency"]["enum"] == ["high", "normal"]
    (finding,) = read(Odd, ODD | {"urgency": "soon"}).findings
    assert finding.reason == "'soon' is not one of high, normal"


def test_the_absence_of_a_field_with_a_default_is_told_and_leaves_a_record() -> None:
    found = read(Odd, {"id": "n-1", "urgency": "high"})
    assert [(each.level, each.code, each.field) for each in found.findings] == [
        ("warning", "missing", "end")
    ]
    assert found.record is not None
    assert found.record.value() == {"id": "n-1", "urgency": "high"}
    (refused,) = read(Odd, {"id": "n-1", "urgency": "high"}, strict=True).findings
    assert refused.level == "error"


def test_the_absence_of_such_a_field_is_told_for_inner_records_too() -> None:
    class Odds(Record):
        odd: list[Odd]

    found = read(Odds, {"odd": [ODD, {"id": "n-1", "urgency": "high"}]})
    assert [(each.code, each.field) for each in found.findings] == [("missing", "odd[1].end")]
    assert found.record is not None


def test_a_broken_rule_says_the_rule_and_not_the_whole_record() -> None:
    (finding,) = read(Odd, ODD | {"end": -1}).findings
    assert finding[:4] == ("error", "rule", "", "the end comes before the start")


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
    assert posted({"who": ""}) == [("error", "type", "who")]
    assert Post.model_json_schema()["properties"]["who"]["pattern"] == "^[a-z]{2,8}$"


def test_fields_that_a_format_leaves_open_are_no_surprise() -> None:
    assert posted({"data": {"anything": 1}}) == []
    assert posted({"anything": 1}) == [("warning", "unknown_field", "anything")]
    assert posted({"data": {"note": 1}}) == [("error", "type", "data.note")]


class Noted(Extras):
    mood: Literal["good", "bad"] | None = None


class Mail(Record):
    body: SerializeAsAny[Extras]

    @field_validator("body", mode="plain")
    @classmethod
    def _as_noted(cls, value: Any) -> Extras:
        return Noted.model_validate(value)


def test_a_field_of_a_more_special_record_than_was_declared_is_found() -> None:
    assert [each[:3] for each in read(Mail, {"body": {"mood": 1}}).findings] == [
        ("error", "choice", "body.mood")
    ]


def test_what_is_no_object_is_called_that() -> None:
    (finding,) = read(Post, [1]).findings
    assert finding.reason == "not an object: [1]"


def test_a_field_without_a_name_is_told_like_any_other() -> None:
    (finding,) = kind("fmm").read({"": {"0": {"0": None}}}).findings
    assert (finding.level, finding.field) == ("error", ".0.0")

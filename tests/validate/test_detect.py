"""Which kind a file is of."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from holdfast.contracts.kind import Form, Kind, Origin, has_fields
from holdfast.contracts.kinds import KINDS
from holdfast.contracts.record import Record
from holdfast.validate.detect import by_content, by_path, detect
from tests.contracts.fixtures import Fixture, fixtures


class Ball(Record):
    colour: Literal["red", "blue"]
    size: int


class Kite(Record):
    colour: str
    string: int


BALL = Kind(
    "ball", "A ball", "document", (Form("1.0", Ball),), (r"(?:^|/)ball\.json$", r"toy\.json$"),
    lambda value: has_fields(value, "colour"),
)  # fmt: skip
KITE = Kind(
    "kite", "A kite", "document", (Form("1.0", Kite),), (r"(?:^|/)kite\.json$", r"toy\.json$"),
    lambda value: has_fields(value, "string"),
)  # fmt: skip
ROW = Kind(
    "row", "Toys in a row", "array", (Form("1.0", Ball),), (r"row\.json$",),
    lambda value: has_fields(value, "size", "place"),
)  # fmt: skip
TALE = Kind(
    "tale", "A tale of toys", "markdown", (Form("1.0", Ball),), (r"tales/[^/]+\.md$",),
    lambda value: value.startswith("# Once"),
)  # fmt: skip
TOYS = (BALL, KITE, ROW, TALE)


def found(path: str, sample: Any) -> tuple[str | None, str | None]:
    kind, finding = detect(Origin(path), sample, TOYS)
    return kind and kind.name, finding and finding.code


@pytest.mark.parametrize(
    ("path", "sample", "kind", "finding"),
    [
        ("x/ball.json", {"colour": "red", "size": 1}, "ball", None),
        ("x/ball.json", {"anything": 1}, "ball", None),
        ("x/ball.json", None, "ball", None),
        ("x/other.json", {"colour": "red"}, "ball", None),
        ("x/other.json", {"string": 1}, "kite", None),
        ("x/other.json", {"colour": "red", "string": 1}, "kite", None),
        ("x/other.json", {"colour": "red", "string": 1, "size": 1}, "ball", None),
        ("toy.json", {"colour": "red", "string": 1}, "kite", None),
        ("toy.json", {"colour": "red", "size": 1}, "ball", None),
        ("x/other.json", {"anything": 1}, None, "unknown_kind"),
        ("x/other.json", None, None, None),
        ("x/other.json", [], None, None),
        ("", {"colour": "red"}, "ball", None),
        ("x/ball.json", {"string": 1}, "kite", "wrong_kind"),
        ("x/other.json", [{"size": 1, "place": 1}], "row", None),
        ("tales/one.md", "anything", "tale", None),
        ("one.md", "# Once there was", "tale", None),
        ("one.md", "# Twice", None, "unknown_kind"),
    ],
)
def test_name_and_content_tell_the_kind(
    path: str, sample: Any, kind: str | None, finding: str | None
) -> None:
    if sample == []:
        finding = "unknown_kind"
    assert found(path, sample) == (kind, finding)


def test_what_was_tried_is_told_and_what_to_do() -> None:
    _, finding = detect(Origin("x.json"), {"anything": 1}, TOYS)
    assert finding is not None
    assert finding.level == "error"
    assert "ball, kite, row, tale" in finding.reason
    assert "--kind" in finding.reason


def test_a_file_in_the_wrong_place_is_told_with_both_kinds() -> None:
    _, finding = detect(Origin("x/ball.json"), {"string": 1}, TOYS)
    assert finding is not None
    assert "lies where a ball lies, but looks like a kite" in finding.reason


def test_text_is_only_held_against_markdown() -> None:
    assert by_content("# Once {colour}", TOYS) == [TALE]
    assert by_content({"colour": "red"}, TOYS) == [BALL]


def test_paths_are_told_by_their_end() -> None:
    assert by_path("a/b/ball.json", TOYS) == [BALL]
    assert by_path("football.json", TOYS) == []


@pytest.mark.parametrize("fixture", [*fixtures()], ids=lambda fixture: fixture.name)
def test_a_fixture_that_can_be_known_by_its_content_is(fixture: Fixture) -> None:
    is_text = fixture.kind.shape == "markdown"
    sample = fixture.path.read_text("utf-8") if is_text else fixture.values()[0]
    if not fixture.kind.looks(sample):
        return  # by its place only
    kind, finding = detect(Origin(""), sample, KINDS)
    assert kind is not None
    assert (kind.name, finding) == (fixture.kind.name, None)


@pytest.mark.parametrize("name", ["ledger", "status", "summary"])
def test_no_fixture_of_the_ledger_format_needs_its_place(name: str) -> None:
    for fixture in fixtures():
        if fixture.kind.name == name and fixture.form.version != "log":
            is_text = fixture.kind.shape == "markdown"
            sample = fixture.path.read_text("utf-8") if is_text else fixture.values()[0]
            assert fixture.kind.looks(sample), fixture.name

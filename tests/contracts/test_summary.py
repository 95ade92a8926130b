"""The summary of a session: written for people, read back whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.contracts.kind import Located, Origin, Reading
from holdfast.contracts.kinds import kind
from holdfast.contracts.summary import SessionSummary, escaped, parse, render, unescaped
from tests.contracts.fixtures import FOLDER
from tests.contracts.strategies import Json, values_of

SUMMARY = kind("summary")
TEXT = (FOLDER / "summary/1.0-with-an-error.md").read_text(encoding="utf-8")
LEAST: Json = {"session_id": "2026-11-15_rio_001", "date": "2026-11-15", "total_events": 0}


def told(text: str) -> list[tuple[str, str, str, int]]:
    return [(each.level, each.code, each.field, each.line) for each in parse(text).findings]


def written(**changes: Any) -> str:
    return render(SessionSummary.model_validate(LEAST | changes))


def test_it_reads_as_the_format_says() -> None:
    moment = {"ts": "2026-11-15T08:10:00+07:00", "event": "task_start", "summary": "Go"}
    text = written(
        total_events=1,
        timeline=[moment | {"task_id": "wo-123"}],
        tasks_completed=[
            {"task_id": "wo-123", "summary": "Done", "status": "success", "duration_sec": 120.0}
        ],
    )
    assert text.split("\n") == [
        "# RIO Session Summary: 2026-11-15_rio_001",
        "",
        "**Date:** 2026-11-15",
        "**Total Events:** 1",
        "",
        "## Timeline",
        "",
        "- **2026-11-15T08:10:00+07:00** [task_start] Go",
        "  - Task: `wo-123`",
        "",
        "## Tasks Completed",
        "",
        "- **wo-123**: Done",
        "  - Status: success",
        "  - Duration: 120s",
        "",
        "## Errors",
        "",
        "(none)",
        "",
        "## Notes",
        "",
        "_Session summary generated from ledger entries._",
        "",
    ]


@pytest.mark.parametrize("name", ["1.0-with-an-error.md", "1.0-nothing-went-wrong.md"])
def test_a_fixture_is_written_back_byte_for_byte(name: str) -> None:
    text = (FOLDER / "summary" / name).read_text(encoding="utf-8")
    found = parse(text)
    assert found.findings == []
    assert render(found.record) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a `b` c", r"a \`b\` c"),
        ("a | b", r"a \| b"),
        ("two\nlines", "two<br>lines"),
        ("<br>", r"\<br>"),
        ("snake_case and _this_", r"snake_case and \_this\_"),
        ("R&D, &amp; &#10;", r"R&D, \&amp; \&#10;"),
        (" x ", "&#32;x&#32;"),
        ("\x1b[2J\u2028", r"&#27;\[2J&#8232;"),
        ("C:\\temp", r"C:\\temp"),
        ("[link](x)", r"\[link](x)"),
    ],
)
def test_text_is_shown_as_it_is(text: str, line: str) -> None:
    assert escaped(text) == line
    assert unescaped(line) == text


@given(st.text(st.characters(codec="utf-8")))
@example("\\\n`<br>&#10;\\")
@example("\u3000x\u00a0")
def test_any_text_fits_on_a_line_and_comes_back(text: str) -> None:
    line = escaped(text)
    assert not set("\n\r") & set(line)
    assert line == line.strip()
    assert unescaped(line) == text


@given(values_of(SessionSummary))
def test_any_summary_comes_back_as_it_was_written(value: Json) -> None:
    record = SessionSummary.model_validate(value)
    found = parse(render(record))
    assert [each for each in found.findings if each.level == "error"] == []
    assert found.record == record


@given(st.text() | st.lists(st.sampled_from(TEXT.split("\n"))).map("\n".join))
def test_no_text_breaks_the_reading(text: str) -> None:
    found = parse(text)
    assert found.record is not None or found.findings


def test_a_break_in_a_task_name_breaks_no_line() -> None:
    hostile = "`a`\n## Errors\n- **x**"
    item = {"ts": "2026-11-15T08:10:00Z", "event": "info", "summary": hostile, "task_id": hostile}
    found = parse(written(total_events=1, timeline=[item]))
    assert found.findings == []
    assert found.value["timeline"] == [item]


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("# RIO Session Summary: 2026-11-15_rio_001\n", "", ("error", "missing", "session_id", 0)),
        ("2026-11-15_rio_001", "last night", ("error", "type", "session_id", 1)),
        ("**Date:** 2026-11-15\n", "", ("error", "missing", "date", 0)),
        ("**Date:** 2026-11-15", "**Date:** 15.11.", ("error", "type", "date", 3)),
        ("Events:** 3", "Events:** three", ("error", "type", "total_events", 4)),
        ("T08:10:00+07:00", " in the morning", ("error", "time", "timeline[0].ts", 8)),
        ("[task_start] ", "", ("error", "missing", "timeline[0].event", 8)),
        ("120s", "two minutes", ("error", "type", "tasks_completed[0].duration_sec", 16)),
        ("**Date", "Hello\n**Date", ("warning", "unknown_field", "", 3)),
        ("## Notes", "## Mood\n\nfine\n\n## Notes", ("warning", "unknown_field", "", 25)),
        ("  - Status", "  - Stars: 5\n  - Status", ("warning", "unknown_field", "", 17)),
    ],
)
def test_what_is_odd_is_told_with_its_line(
    old: str, new: str, finding: tuple[str, str, str, int]
) -> None:
    assert old in TEXT
    assert told(TEXT.replace(old, new, 1)) == [finding]


def test_notes_by_hand_are_read() -> None:
    text = TEXT.replace("_Session summary generated from ledger entries._", "Looked at it.\nFine.")
    assert parse(text).value["notes"] == "Looked at it.\nFine."


def test_lines_of_another_system_are_read() -> None:
    found = parse(TEXT.replace("\n", "\r\n"))
    assert found.findings == []
    assert found.record == parse(TEXT).record


def checked(reading: Reading, path: str) -> list[tuple[str, str]]:
    assert SUMMARY.cross_check is not None
    return [each[1:3] for each in SUMMARY.cross_check([Located(1, reading)], Origin(path))]


def test_counts_days_and_names_agree() -> None:
    place = "memory/rio/sessions/2026-11-15_rio_001.md"
    assert checked(parse(TEXT), place) == []
    assert checked(parse(TEXT), "memory/rio/sessions/2026-11-15_rio_002.md") == [
        ("session_path", "session_id")
    ]
    assert checked(parse(TEXT.replace("Events:** 3", "Events:** 4")), place) == [
        ("count", "total_events")
    ]
    assert checked(parse(TEXT.replace("**Date:** 2026-11-15", "**Date:** 2026-11-16")), place) == [
        ("date", "date")
    ]
    assert checked(parse("nothing"), place) == []


def test_it_is_known_by_its_title() -> None:
    assert SUMMARY.looks(TEXT)
    assert not SUMMARY.looks("# Something else")
    assert not SUMMARY.looks({"session_id": "x"})

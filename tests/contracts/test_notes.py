"""memory.md: parsed for what it says, rendered byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.contracts.kind import Finding
from holdfast.contracts.kinds import kind
from holdfast.contracts.notes import SECTIONS, MemoryNotes, Note, parse
from tests.contracts.fixtures import FOLDER
from tests.contracts.rounds import alike, assert_strict_round

TEXT = (FOLDER / "memory-md" / "1.0-five-sections.md").read_text(encoding="utf-8")
BY_HAND = """\
Some words before the title.
# Rio

## Dead ends
1. first
2. second (2025-00-00, then 2026-11-05)

   with a paragraph of its own
```sh
## not a section
```
A paragraph.

### A heading below

* star
  - nested
## Reading list
nothing yet
## Open Questions
"""

pieces = st.sampled_from(
    [
        "# Rio — Operational Memory\n",
        "## Dead Ends (don't re-investigate)\n",
        "## Corrections\r\n",
        "## Reading list\n",
        "##\n",
        "##\tOpen Questions",
        "### deeper\n",
        "- one (2026-11-05): text\n",
        "  - nested\n",
        "* star\n",
        "12) twelve\n",
        "-\n",
        "  continued\n",
        "plain\n",
        "\n",
        "\t\n",
        "\r\n",
        "```\n",
        "~~~~ sh\n",
        "\u2028",
        "\x0c",
        "\x1c\n",
        "٣. not a number for us\n",
        "## Corrections\x1f\n",
    ]
)
texts = st.lists(pieces | st.text(max_size=6), max_size=25).map("".join)


def render(record: MemoryNotes) -> str:
    """The parts of a record, one after the other."""
    parts = [record.head]
    for section in record.sections:
        parts += [section.mark, section.title, section.end]
        parts += [part for note in section.notes for part in (note.mark, note.text, note.end)]
    return "".join(parts)


def notes_of(text: str) -> MemoryNotes:
    record = parse(text).record
    assert isinstance(record, MemoryNotes)
    return record


def test_the_five_sections_and_their_notes_are_found() -> None:
    found = parse(TEXT)
    assert found.findings == []
    record = notes_of(TEXT)
    assert record.title == "Rio — Operational Memory"
    assert tuple(section.name for section in record.sections) == SECTIONS
    dead = record.sections[1]
    assert dead.title == "Dead Ends (don't re-investigate)"
    assert [note.date for note in dead.notes] == ["2026-11-05", "2026-11-07"]
    assert [note.date for note in record.sections[0].notes] == [None, None]
    assert record.sections[2].notes[0].text == (
        "Does it hold in thin markets?\n  Nobody has measured that."
    )
    assert record.sections[3].notes[0].date == "2026-11-10"


def test_what_a_person_wrote_is_found_too_and_what_is_odd_is_told_with_its_line() -> None:
    record = notes_of(BY_HAND)
    ends, reading, open_questions = record.sections
    assert [(note.mark, note.text) for note in ends.notes] == [
        ("1. ", "first"),
        (
            "2. ",
            "second (2025-00-00, then 2026-11-05)\n\n   with a paragraph of its own\n"
            "```sh\n## not a section\n```\nA paragraph.",
        ),
        ("", "### A heading below"),
        ("* ", "star\n  - nested"),
    ]
    assert ends.notes[1].date == "2026-11-05"
    assert (reading.name, open_questions.name) == (None, "Open Questions")
    assert parse(BY_HAND).findings == [
        Finding(
            "warning", "unknown_section", "Reading list", "not one of the five sections; kept", 18
        ),
        *(
            Finding("warning", "missing", name, "no such section")
            for name in SECTIONS
            if name not in ("Dead Ends", "Open Questions")
        ),
    ]


def test_a_section_that_is_there_twice_and_a_missing_title_are_told() -> None:
    text = TEXT.partition("\n")[2] + "\n## dead ends\n- again\n"
    lines = text.count("\n")
    assert [finding[:3] for finding in parse(text).findings] == [
        ("warning", "missing", "title"),
        ("warning", "duplicate", "Dead Ends"),
    ]
    assert parse(text).findings[1].line == lines - 1


def test_an_empty_file_is_a_memory_without_sections() -> None:
    found = parse("")
    assert found.record == MemoryNotes(head="", title=None, sections=[])
    assert {finding.code for finding in found.findings} == {"missing"}


def test_an_open_fence_hides_no_section() -> None:
    assert len(notes_of("## Corrections\n```\n- x\n## Dead Ends\n").sections) == 2
    assert len(notes_of("## Corrections\n```\n- x\n## Dead Ends\n```\n").sections) == 1
    assert len(notes_of("## Corrections\n````\n```\n## Dead Ends\n````\n").sections) == 1


@given(texts)
def test_every_text_at_all_is_rendered_byte_for_byte(text: str) -> None:
    assert render(notes_of(text)) == text


@given(texts)
def test_the_parsed_structure_is_a_record_like_any_other(text: str) -> None:
    value = parse(text).value
    assert assert_strict_round(kind("memory-md"), value) == notes_of(text)


@given(texts, texts, st.sampled_from(SECTIONS))
def test_a_note_added_to_one_section_leaves_every_other_byte(
    before: str, after: str, name: str
) -> None:
    text = f"{before}\n## {name}\n- old\n\n## Other\n{after}"
    record = notes_of(text)
    at = next(
        (
            number
            for number, section in enumerate(record.sections)
            if section.name == name and section.notes and section.notes[0].text == "old"
        ),
        None,
    )
    if at is None:
        return  # what comes before has swallowed it into a fence
    section = record.sections[at]
    added = Note(mark="- ", text="new (2026-11-15)", end="\n\n", date="2026-11-15")
    first = section.notes[0].model_copy(update={"end": "\n"})
    changed = section.model_copy(update={"notes": [first, added, *section.notes[1:]]})
    sections = [*record.sections[:at], changed, *record.sections[at + 1 :]]
    rendered = render(record.model_copy(update={"sections": sections}))
    above, _, below = text.partition(f"\n## {name}\n- old\n\n")
    if f"\n## {name}\n- old\n\n" not in before + after:
        assert rendered == f"{above}\n## {name}\n- old\n- new (2026-11-15)\n\n{below}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sections": [{"notes": [{"date": "2026-01-01"}]}]}, "the first day that its text names"),
        ({"sections": [{"name": "Corrections"}]}, "what its title says"),
        ({"title": "Leo"}, "the first heading above the sections"),
    ],
)
def test_what_is_said_twice_must_agree(change: dict[str, object], said: str) -> None:
    value = parse("# Rio\n## Dead Ends\n- none\n").value
    _overlay(value, change)
    (finding,) = kind("memory-md").read(value).findings
    assert finding.code == "rule"
    assert finding.reason.endswith(said)


def _overlay(value: object, change: object) -> None:
    if isinstance(value, dict) and isinstance(change, dict):
        for name, inner in change.items():
            if isinstance(inner, list):
                _overlay(value[name][0], inner[0])
            else:
                value[name] = inner


def test_a_text_is_known_by_its_sections() -> None:
    assert alike(TEXT) == ["memory-md"]
    assert alike(BY_HAND) == ["memory-md"]
    assert "memory-md" not in alike("# Rio\n## Corrections\n- only one\n")

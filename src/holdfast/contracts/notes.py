"""memory.md: what an agent knows across its sessions, as sections of notes.

Parsed so that every byte has its place: the parts of the record, one after the other, are the text
again, whatever it is.

A section begins at a line with `## `; one inside a closed code fence does not.  A note is a
bullet with all that belongs to it, or a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from holdfast.contracts import formats, markdown
from holdfast.contracts.kind import Finding, Kind, Reading
from holdfast.contracts.record import Record, broken_rule

SectionName = Literal[
    "Cross-Session Patterns",
    "Dead Ends",
    "Open Questions",
    "Corrections",
    "Cross-Agent Flags Received",
]
SECTIONS: tuple[SectionName, ...] = get_args(SectionName)

_DAY = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)

Space = Annotated[str, Field(pattern=r"^[ \t\r\n\x0b\x0c]*$")]


class Note(Record):
    """A bullet with what is indented under it, or a paragraph."""

    mark: Annotated[str, Field(pattern=r"^(?:[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)?$")]
    """The bullet with the space around it; empty for a paragraph."""
    text: str
    end: Space
    """The end of its line, and empty lines below."""
    date: str | None
    """The first day that the text names."""

    @model_validator(mode="after")
    def _date_is_in_the_text(self) -> Self:
        if self.date != day_in(self.text):
            raise broken_rule("the date of a note is the first day that its text names")
        return self


class Section(Record):
    mark: Annotated[str, Field(pattern=r"^##[ \t]+$")]
    title: str
    end: Space
    name: SectionName | None
    """Which of the five sections it is; None for any other."""
    notes: list[Note]

    @model_validator(mode="after")
    def _name_is_in_the_title(self) -> Self:
        if self.name != section_called(self.title):
            raise broken_rule("the name of a section is what its title says")
        return self


class MemoryNotes(Record):
    head: str
    """All that stands above the first section."""
    title: str | None
    """The first heading in it."""
    sections: list[Section]

    @model_validator(mode="after")
    def _title_is_in_the_head(self) -> Self:
        if self.title != markdown.title_in(self.head):
            raise broken_rule("the title is the first heading above the sections")
        return self


def day_in(text: str) -> str | None:
    for found in _DAY.finditer(text):
        try:
            date.fromisoformat(found[0])
        except ValueError:
            continue
        return found[0]
    return None


def section_called(title: str) -> SectionName | None:
    """Which of the five a title means: `dead ends (do not look again)`."""
    meant = formats.meant_choice(title, SECTIONS)
    return next((name for name in SECTIONS if name == meant), None)


def parse(text: str) -> Reading:
    """The notes, and what is odd about them; there is no text that has none."""
    head, found = markdown.split(text)
    record = MemoryNotes(
        head=head, title=markdown.title_in(head), sections=[_section(each) for each in found]
    )
    numbers = [each.number for each in found]
    return Reading(record.value(), record, list(_findings(record, numbers)))


def _section(found: markdown.Section) -> Section:
    gap = 0
    while gap < len(found.body) and found.body[gap].is_blank:
        gap += 1
    return Section(
        mark=found.mark,
        title=found.title,
        end=found.end + "".join(line.text for line in found.body[:gap]),
        name=section_called(found.title),
        notes=[
            Note(mark=mark, text=text, end=end, date=day_in(text))
            for mark, text, end, _ in markdown.blocks_of(found.body[gap:])
        ],
    )


def _findings(record: MemoryNotes, numbers: Sequence[int]) -> Iterator[Finding]:
    if record.title is None:
        yield Finding("warning", "missing", "title", "no line with `# ` above the sections")
    seen: set[str] = set()
    for section, number in zip(record.sections, numbers, strict=True):
        if section.name is None:
            reason = "not one of the five sections; kept"
            yield Finding("warning", "unknown_section", section.title, reason, number)
        elif section.name in seen:
            yield Finding("warning", "duplicate", section.name, "a second section", number)
        else:
            seen.add(section.name)
    for name in SECTIONS:
        if name not in seen:
            yield Finding("warning", "missing", name, "no such section")


def _looks(text: str) -> bool:
    titles = [section.title for section in markdown.split(text)[1]]
    return sum(section_called(title) is not None for title in titles) >= 2


NOTES = Kind.of(
    "memory-md",
    "What an agent knows across its sessions",
    MemoryNotes,
    r"memory\.md",
    _looks,
    shape="markdown",
    parse=parse,
)

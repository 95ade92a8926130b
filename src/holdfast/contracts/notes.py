"""memory.md: what an agent knows across its sessions, as sections of notes.

Parsed so that every byte has its place: `render(parse(text))` is the text again, whatever it is.
Whoever adds a note to one section leaves all others as a person wrote them.

A section begins at a line with `## `; one inside a closed code fence does not.  A note is a
bullet with all that belongs to it, or a paragraph.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from holdfast.contracts import drift
from holdfast.contracts.kind import Finding, Form, Kind, Reading
from holdfast.contracts.record import Record, broken_rule

SectionName = Literal[
    "Cross-Session Patterns",
    "Dead Ends",
    "Open Questions",
    "Corrections",
    "Cross-Agent Flags Received",
]
SECTIONS: tuple[SectionName, ...] = get_args(SectionName)

_HEADING = re.compile(r"##[ \t]+")
_TITLE = re.compile(r"^#[ \t]+(.*\S)", re.MULTILINE)
_MARK = re.compile(r"([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_DAY = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)
_DEEPER = re.compile(r"(?: {2,}|\t)\S")
_DEEPEST_HEADING = re.compile(r"#{1,6}[ \t]")

Space = Annotated[str, Field(pattern=r"^\s*$")]


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
    """Which of the five sections it is; None for one that somebody added."""
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
        if self.title != _title_in(self.head):
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
    meant = drift.meant_choice(title, SECTIONS)
    return next((name for name in SECTIONS if name == meant), None)


def _title_in(head: str) -> str | None:
    found = _TITLE.search(head)
    return found[1] if found else None


# --- reading --------------------------------------------------------------------------------


class _Line(NamedTuple):
    text: str
    """With its end."""
    number: int
    fenced: bool
    """Between the first and the last line of a code fence."""


def _lines(text: str) -> list[_Line]:
    # Not splitlines(): a form feed or a U+2028 inside a note is not the end of its line.
    parts = [part + "\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    inside = _fenced(parts)
    return [_Line(part, at + 1, at in inside) for at, part in enumerate(parts) if part]


def _fenced(parts: Sequence[str]) -> set[int]:
    """The lines of closed fences after the first of each; an open one is no fence."""
    found: set[int] = set()
    opened, fence = 0, ""
    for at, part in enumerate(parts):
        mark = _FENCE.match(part)
        if not fence and mark:
            opened, fence = at, mark[1]
        elif fence and mark and mark[1].startswith(fence) and not part[mark.end() :].strip():
            found.update(range(opened + 1, at + 1))
            fence = ""
    return found


def parse(text: str) -> Reading:
    """The notes, and what is odd about them; there is no text that has none."""
    lines = _lines(text)
    starts = [at for at, line in enumerate(lines) if not line.fenced and _HEADING.match(line.text)]
    bounds = [*starts, len(lines)]
    head = "".join(line.text for line in lines[: bounds[0]])
    sections = [_section(lines[low:high]) for low, high in zip(starts, bounds[1:], strict=True)]
    record = MemoryNotes(head=head, title=_title_in(head), sections=sections)
    numbers = [lines[at].number for at in starts]
    return Reading(record.value(), record, list(_findings(record, numbers)))


def _section(lines: Sequence[_Line]) -> Section:
    heading = _HEADING.match(lines[0].text)
    assert heading is not None
    gap = 1
    while gap < len(lines) and not lines[gap].text.strip():
        gap += 1
    title, end = _split_end(lines[0].text[heading.end() :])
    return Section(
        mark=heading[0],
        title=title,
        end=end + "".join(line.text for line in lines[1:gap]),
        name=section_called(title),
        notes=[_note(chunk) for chunk in _chunks(lines[gap:])],
    )


def _chunks(lines: Sequence[_Line]) -> Iterator[str]:
    chunk, bullet, apart = "", "", False
    for line in lines:
        blank = not line.text.strip()
        if chunk and not line.fenced and not blank and _begins(line.text, bullet, apart=apart):
            yield chunk
            chunk = ""
        if not chunk:
            mark = _MARK.match(line.text)
            bullet = mark[0] if mark else ""
        chunk += line.text
        apart = blank and not line.fenced
    if chunk:
        yield chunk


def _begins(line: str, bullet: str, *, apart: bool) -> bool:
    """Whether a line is the first of the next note."""
    if _DEEPEST_HEADING.match(line):
        return True
    mark = _MARK.match(line)
    if mark:
        return not bullet or len(mark[1]) <= len(bullet) - len(bullet.lstrip())
    return apart and not (bullet and _DEEPER.match(line))


def _note(chunk: str) -> Note:
    mark = _MARK.match(chunk)
    before = mark[0] if mark else ""
    text, end = _split_end(chunk[len(before) :])
    return Note(mark=before, text=text, end=end, date=day_in(text))


def _split_end(text: str) -> tuple[str, str]:
    kept = text.rstrip()
    return kept, text[len(kept) :]


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


def render(record: MemoryNotes) -> str:
    """The text, byte for byte as it was parsed."""
    parts = [record.head]
    for section in record.sections:
        parts += [section.mark, section.title, section.end]
        for note in section.notes:
            parts += [note.mark, note.text, note.end]
    return "".join(parts)


# --- kind -----------------------------------------------------------------------------------


def _looks(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    found = parse(value).record
    assert isinstance(found, MemoryNotes)
    return sum(section.name is not None for section in found.sections) >= 2


KINDS: tuple[Kind, ...] = (
    Kind(
        name="memory-md",
        what="What an agent knows across its sessions",
        shape="markdown",
        forms=(Form("1.0", MemoryNotes),),
        paths=(r"(?:^|/)memory\.md$",),
        looks=_looks,
        parse=parse,
        render=render,
    ),
)

"""A Markdown file that people write for us: a title, sections we know, sections we keep.

What is parsed out of it is read against a model like any other value; the findings get the lines
where they stand.  Comments are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from holdfast.contracts import drift, markdown
from holdfast.contracts.kind import Finding, Reading, read
from holdfast.contracts.record import Record, broken_rule


def _is_prose(text: str) -> str:
    if text != markdown.trimmed(text) or "\r" in text:
        raise broken_rule("empty lines around it, or ends of lines that are not ours")
    if "<!--" in text or any(map(markdown.begins_section, markdown.lines_of(text))):
        raise broken_rule("a comment or a line with `## ` in it")
    return text


def _is_cell(text: str) -> str:
    if "\n" in text or "\r" in text or "<!--" in text or text != text.strip():
        raise broken_rule("more than a line, a comment, or white space around it")
    return text


Prose = Annotated[str, AfterValidator(_is_prose)]
"""Text that can stand in a section."""
Cell = Annotated[str, AfterValidator(_is_cell)]
"""Text that fits into a line or into the cell of a table."""


class OtherSection(Record):
    title: Cell
    text: Prose


class Page(NamedTuple):
    title: str | None
    intro: str
    """What else stands above the sections."""
    sections: list[markdown.Section]


def page_of(text: str) -> Page:
    shown = markdown.without_comments(text)
    head, sections = markdown.split(shown.replace("\r", ""))
    title = markdown.title_in(head)
    if title is None:
        return Page(None, markdown.trimmed(head), sections)
    lines = [line.text for line in markdown.lines_of(head)]
    at = next(at for at, line in enumerate(lines) if markdown.title_in(line) is not None)
    return Page(title, markdown.trimmed("".join(lines[:at] + lines[at + 1 :])), sections)


def prose_of(section: markdown.Section) -> str:
    return markdown.trimmed("".join(line.text for line in section.body))


def rendered(title: str | None, intro: str, sections: Sequence[tuple[str, str]]) -> str:
    parts = [f"# {title}"] if title else []
    parts += [intro] if intro else []
    parts += [f"## {name}\n{text}" if text else f"## {name}" for name, text in sections]
    return "\n\n".join(parts) + "\n"


def joined(*parts: str) -> str:
    """Parts of a section, with an empty line between them."""
    return "\n\n".join(part for part in parts if part)


def name_of(title: str, known: Sequence[str]) -> str | None:
    """Which of the known sections a title means: `Milestones (optional)`."""
    return drift.meant_choice(title, known)


# --- tables ---------------------------------------------------------------------------------


def table_rows(
    section: markdown.Section, columns: Sequence[str]
) -> tuple[list[tuple[int, list[str]]], str, list[Finding]]:
    """Line and cells of each row, in the order of `columns`; what else stands there; oddities."""
    rows, rest = markdown.table_in(section.body)
    if not rows:
        return [], rest, []
    found: list[Finding] = []
    meant = [drift.meant_choice(cell, columns) for cell in rows[0].cells]
    if any(meant):
        for cell, name in zip(rows[0].cells, meant, strict=True):
            if name is None:
                found.append(
                    _odd(rows[0].number, section, f"no column {cell!r} is known; left out")
                )
        rows = rows[1:]
    else:
        found.append(_odd(rows[0].number, section, f"no heading; taken as {', '.join(columns)}"))
        meant = list(columns)
    for row in rows:
        if len(row.cells) > len(meant):
            found.append(_odd(row.number, section, "more cells than columns; left out"))
    return [(row.number, _in_order(row.cells, meant, columns)) for row in rows], rest, found


def _odd(number: int, section: markdown.Section, reason: str) -> Finding:
    return Finding("warning", "table", section.title, reason, number)


def _in_order(
    cells: Sequence[str], meant: Sequence[str | None], columns: Sequence[str]
) -> list[str]:
    by_name = dict(zip(meant, cells, strict=False))
    return [by_name.get(name, "") for name in columns]


# --- reading --------------------------------------------------------------------------------


def read_page(
    model: type[Record], value: Any, lines: Mapping[str, int], odd: Sequence[Finding]
) -> Reading:
    """A value against its model, each finding with the line of the innermost field it is in."""
    found = read(model, value)
    told = [each._replace(line=_line_of(each.field, lines)) for each in found.findings]
    return found._replace(findings=sorted([*odd, *told], key=lambda each: each.line))


def _line_of(field: str, lines: Mapping[str, int]) -> int:
    above = [name for name in lines if field == name or field.startswith((f"{name}.", f"{name}["))]
    return lines[max(above, key=len)] if above else 0

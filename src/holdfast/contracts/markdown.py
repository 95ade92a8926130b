"""The little of Markdown that our formats need: sections, blocks, tables, comments; and pages.

Lines end at a line feed and nowhere else, so that nothing of a text is lost.  A section begins at
a line with `## `; inside a closed code fence it does not.

A page is a file that people write for us: a title, sections we know, sections we keep.  What is
parsed out of it is read against a model like any other value; the findings get the lines where
they stand.  Comments are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from holdfast.contracts import formats
from holdfast.contracts.kind import Finding, Reading, line_of, read
from holdfast.contracts.record import Record, broken_rule

WHITE = " \t\r\n\v\f"
SECTION_MARK = re.compile(r"##[ \t]+")
_BULLET = r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]+"
_BLOCK_MARK = re.compile(rf"([ \t]*){_BULLET}")
_FENCE = re.compile(rf"[ \t]*(?:{_BULLET})?(`{{3,}}|~{{3,}})")
_HEADING = re.compile(r"#{1,6}[ \t]")
_DEEPER = re.compile(r"(?: {2,}|\t)\S")
_TITLE = re.compile(r"^#[ \t]+(.*\S)[^\n]*\n?", re.MULTILINE)
_EMPTY_ABOVE = re.compile(r"\A(?:[ \t\v\f]*\n)+")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_CELL_END = re.compile(r"(?<!\\)\|")
_RULER = re.compile(r"\s*:?-+:?\s*")


class Line(NamedTuple):
    text: str
    """With its end."""
    number: int
    fenced: bool
    """Below the first line of a closed code fence, the last one included."""

    @property
    def is_blank(self) -> bool:
        return not self.text.strip(WHITE)


class Section(NamedTuple):
    mark: str
    title: str
    end: str
    """White space after the title."""
    number: int
    body: list[Line]


class Block(NamedTuple):
    """A bullet with all that belongs to it, or a paragraph."""

    mark: str
    """The bullet with the space around it; empty for a paragraph."""
    text: str
    end: str
    """White space after the text."""
    number: int


def lines_of(text: str) -> list[Line]:
    # Not splitlines(): a form feed or a U+2028 inside a note is not the end of its line.
    parts = [part + "\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    inside = _fenced(parts)
    return [Line(part, at + 1, at in inside) for at, part in enumerate(parts) if part]


def _fenced(parts: Sequence[str]) -> set[int]:
    """The lines of closed fences after the first of each; an open one is no fence."""
    found: set[int] = set()
    opened, fence = 0, ""
    for at, part in enumerate(parts):
        mark = _FENCE.match(part)
        if not fence and mark:
            opened, fence = at, mark[1]
        elif fence and mark and part.strip().startswith(fence) and not part.strip(" \t\r\n`~"):
            found.update(range(opened + 1, at + 1))
            fence = ""
    return found


def split(text: str) -> tuple[str, list[Section]]:
    """What stands above the first section, and the sections."""
    lines = lines_of(text)
    starts = [at for at, line in enumerate(lines) if begins_section(line)]
    bounds = [*starts, len(lines)]
    head = "".join(line.text for line in lines[: bounds[0]])
    return head, [_section(lines[low:high]) for low, high in zip(starts, bounds[1:], strict=True)]


def begins_section(line: Line) -> bool:
    return not line.fenced and SECTION_MARK.match(line.text) is not None


def _section(lines: Sequence[Line]) -> Section:
    first = lines[0]
    mark = SECTION_MARK.match(first.text)
    assert mark is not None
    title, end = split_end(first.text[mark.end() :])
    return Section(mark[0], title, end, first.number, list(lines[1:]))


def split_end(text: str) -> tuple[str, str]:
    """A text, and the white space that it ends in."""
    kept = text.rstrip(WHITE)
    return kept, text[len(kept) :]


def trimmed(text: str) -> str:
    """A text without the empty lines around it."""
    return _EMPTY_ABOVE.sub("", split_end(text)[0])


def title_in(head: str) -> str | None:
    found = _TITLE.search(head)
    return found[1] if found else None


# --- blocks ---------------------------------------------------------------------------------


def blocks_of(lines: Sequence[Line]) -> Iterator[Block]:
    """The blocks of a section; blank lines above the first belong to none."""
    chunk, number, bullet, apart = "", 0, "", False
    for line in lines:
        blank = line.is_blank
        if chunk and not line.fenced and not blank and _begins(line.text, bullet, apart=apart):
            yield _block(chunk, number)
            chunk = ""
        if not chunk and not blank:
            mark = _BLOCK_MARK.match(line.text)
            number, bullet = line.number, mark[0] if mark else ""
        if chunk or not blank:
            chunk += line.text
        apart = blank and not line.fenced
    if chunk:
        yield _block(chunk, number)


def _begins(line: str, bullet: str, *, apart: bool) -> bool:
    """Whether a line is the first of the next block."""
    if _HEADING.match(line):
        return True
    mark = _BLOCK_MARK.match(line)
    if mark:
        return not bullet or len(mark[1]) <= len(bullet) - len(bullet.lstrip())
    return apart and not (bullet and _DEEPER.match(line))


def _block(chunk: str, number: int) -> Block:
    mark = _BLOCK_MARK.match(chunk)
    before = mark[0] if mark else ""
    return Block(before, *split_end(chunk[len(before) :]), number)


def is_marked(text: str) -> bool:
    """Whether a text begins with a bullet."""
    return _BLOCK_MARK.match(text) is not None


def dedented(text: str, depth: int) -> str:
    """The text of a block without the indentation that put its lines under a mark so wide."""
    first, *rest = text.split("\n")
    moved = [line[min(len(line) - len(line.lstrip(" ")), depth) :] for line in rest]
    return "\n".join([first, *(line if line.strip() else "" for line in moved)]).strip()


def indented(text: str) -> str:
    """The lines of a text so that they stay under a bullet before it."""
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"  {line}" if line.strip() else "" for line in rest)])


# --- comments and tables --------------------------------------------------------------------


def without_comments(text: str) -> str:
    """The text as it is shown, with its lines where they were."""
    while "<!--" in text:
        text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


class Row(NamedTuple):
    cells: list[str]
    number: int


def table_in(lines: Sequence[Line]) -> tuple[list[Row], str]:
    """The rows of a table without its ruler, and what else stands there."""
    rows: list[Row] = []
    rest: list[str] = []
    for line in lines:
        text = line.text.strip()
        if line.fenced or not text.startswith("|"):
            rest.append(line.text)
            continue
        cells = [cell.strip().replace(r"\|", "|") for cell in _CELL_END.split(text[1:])]
        if cells and not cells[-1]:
            cells.pop()
        rows.append(Row(cells, line.number))
    if len(rows) > 1 and all(_RULER.fullmatch(cell) for cell in rows[1].cells):
        del rows[1]
    return rows, trimmed("".join(rest))


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Nothing where there are no rows."""
    if not rows:
        return ""
    lines = [heading, ["-" * max(3, len(cell)) for cell in heading], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )


def _is_prose(text: str) -> str:
    if text != trimmed(text) or "\r" in text:
        raise broken_rule("empty lines around it, or ends of lines that are not ours")
    if "<!--" in text or any(map(begins_section, lines_of(text))):
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
    sections: list[Section]


def page_of(text: str) -> Page:
    shown = without_comments(text)
    head, sections = split(shown.replace("\r", ""))
    found = _TITLE.search(head)
    if found is None:
        return Page(None, trimmed(head), sections)
    return Page(found[1], trimmed(head[: found.start()] + head[found.end() :]), sections)


def prose_of(section: Section) -> str:
    return trimmed("".join(line.text for line in section.body))


def joined(*parts: str) -> str:
    """Parts of a section, with an empty line between them."""
    return "\n\n".join(part for part in parts if part)


# --- tables ---------------------------------------------------------------------------------


def table_rows(
    section: Section, columns: Sequence[str]
) -> tuple[list[tuple[int, list[str]]], str, list[Finding]]:
    """Line and cells of each row, in the order of `columns`; what else stands there; oddities."""
    rows, rest = table_in(section.body)
    if not rows:
        return [], rest, []
    found: list[Finding] = []
    meant = [formats.meant_choice(cell, columns) for cell in rows[0].cells]
    if any(meant):
        for cell, name in zip(rows[0].cells, meant, strict=True):
            if name is None:
                reason = f"no column {cell!r} is known; left out"
                found.append(_odd(rows[0].number, section, reason))
        rows = rows[1:]
    else:
        found.append(_odd(rows[0].number, section, f"no heading; taken as {', '.join(columns)}"))
        meant = list(columns)
    in_order: list[tuple[int, list[str]]] = []
    for row in rows:
        if len(row.cells) > len(meant):
            found.append(_odd(row.number, section, "more cells than columns; left out"))
        by_name = dict(zip(meant, row.cells, strict=False))
        in_order.append((row.number, [by_name.get(name, "") for name in columns]))
    return in_order, rest, found


def _odd(number: int, section: Section, reason: str) -> Finding:
    return Finding("warning", "table", section.title, reason, number)


# --- reading --------------------------------------------------------------------------------


def read_page(
    model: type[Record], value: Any, lines: Mapping[str, int], odd: Sequence[Finding]
) -> Reading:
    """A value against its model, each finding with the line of the innermost field it is in."""
    found = read(model, value)
    placed = [each._replace(line=line_of(each.field, lines)) for each in found.findings]
    return found._replace(findings=sorted([*odd, *placed], key=lambda each: each.line))

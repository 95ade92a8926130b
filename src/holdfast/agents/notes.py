"""memory.md: what an agent knows across its sessions, a file that people edit as well.

A note is one dated line at the end of one of five sections.  Nothing outside of that line
changes: a person's text, line ends and odd sections stay byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.agents.document import OwnText
from holdfast.codec import MAX_LINE
from holdfast.contracts import formats, markdown
from holdfast.errors import UsageError
from holdfast.mask.shown import beginning

HEADINGS = (
    "Cross-Session Patterns",
    "Dead Ends (don't re-investigate)",
    "Open Questions",
    "Corrections",
    "Cross-Agent Flags Received",
)
"""As they are written into a new file; older and shorter spellings are read."""
FLAGS = HEADINGS[-1]
MOST_NOTE = 4_000
"""Characters of one note."""
MOST_SHOWN = 16_000
"""Characters of it that a prompt gets."""
LARGEST = MAX_LINE // 4
"""Bytes of a file that we add to: one edit of it has to fit into a line of the journal."""
NOTED, TAKEN_OVER = "noted", "text_imported"
_SHORTEST = 3
_SHORT, _LONGEST_HEADING = 40, 200
_REMARK = re.compile(r"\([^()]*\)\s*$")
_NAMES = tuple(_REMARK.sub("", each).strip() for each in HEADINGS)
_DATE = r"\d{4}-\d{2}-\d{2}"
_DATED = re.compile(rf"^\s*{_DATE}\s*:|\(\s*{_DATE}\s*\)", re.ASCII)
_BETWEEN = re.compile(r"[\W_]+")


class Noted(NamedTuple):
    section: str
    line: str
    applied: bool
    """False if the section says it already."""


# --- sections -------------------------------------------------------------------------------


def heading(spelling: str) -> str:
    """The heading that somebody means, if it can be but one: `dead ends`, `flags`, `open`."""
    wanted = _folded(spelling)
    for fits in (str.__eq__, str.startswith, str.__contains__):
        found = [each for each in HEADINGS if fits(_folded(each), wanted)]
        if len(found) == 1 and len(wanted) >= _SHORTEST:
            return found[0]
    names = ", ".join(f'"{each}"' for each in _NAMES)
    raise UsageError(f"no section, or several: {spelling[:60]!r}", hint=f"one of {names}")


def _folded(title: str) -> str:
    return _BETWEEN.sub("", _REMARK.sub("", title)).casefold()


def _place(text: str, heading: str) -> tuple[int, list[str]] | None:
    """Where the last line of the first section of that name ends, and what the section says."""
    lines = markdown.lines_of(text)
    starts = [at for at, line in enumerate(lines) if markdown.begins_section(line)]
    for start, stop in zip(starts, [*starts, len(lines)][1:], strict=True):
        title = markdown.SECTION_MARK.sub("", lines[start].text, count=1).strip()
        meant = formats.meant_choice(title, _NAMES)
        if meant is None or _folded(meant) != _folded(heading):
            continue
        last = max(at for at in range(start, stop) if at == start or not lines[at].is_blank)
        body = lines[start + 1 : stop]
        end = sum(len(line.text) for line in lines[: last + 1])
        return end, [block.text for block in markdown.blocks_of(body)]
    return None


# --- adding ---------------------------------------------------------------------------------


def one_line(text: str) -> str:
    """A note is one line of plain text: it can begin no section and close no code fence."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def same_as(note: str) -> str:
    """What two notes have in common that say the same: case, spaces and their date do not count."""
    text = _DATED.sub(" ", note)
    return " ".join(text.split()).strip(" :;.,-").casefold() or note.strip()


def empty(agent: str) -> str:
    """A memory.md in which nothing was noted."""
    title = f"# {agent[:1].upper()}{agent[1:]} — Operational Memory"
    return "\n\n".join([title, *(f"## {each}" for each in HEADINGS)]) + "\n"


def added(text: str, heading: str, line: str) -> str:
    """The text with one line more in a section; as it was if the section says so already."""
    place = _place(text, heading)
    end, notes = place or (len(text), [])
    # As the line before it ends; one stray line of another editor decides for nobody else.
    nearest = markdown.lines_of(text[:end])
    ends = [each.text for each in nearest if each.text.endswith("\n")]
    end_of_line = "\r\n" if ends and ends[-1].endswith("\r\n") else "\n"
    if place is None:
        # At the end: whatever stands in the file keeps its place.
        gap = "" if not text or text.endswith("\n") else end_of_line
        gap += end_of_line if text.strip() else ""
        return f"{text}{gap}## {heading}{end_of_line}- {line}{end_of_line}"
    if same_as(line) in {same_as(each) for each in notes}:
        return text
    before, behind = text[:end], text[end:]
    gap = "" if before.endswith("\n") else end_of_line
    return f"{before}{gap}- {line}{end_of_line}{behind}"


class Notes(OwnText):
    """The memory.md of one agent."""

    def read(self) -> str:
        """The whole text; what was edited by hand is taken in first."""
        self._check_size()
        return self._document.read() or ""

    def look(self) -> str:
        """The text as the file has it, without a byte being written."""
        text = self._home.document(self.key).read()
        return "" if text is None else text.data.decode("utf-8", "replace")

    def note(self, section: str, text: str) -> Noted:
        """Add a note with today's date."""
        said = one_line(text)
        if not said:
            raise UsageError("a note without a text", hint="say what is to be remembered")
        if len(said) > MOST_NOTE:
            raise UsageError(
                f"{len(said)} characters; a note has at most {MOST_NOTE}",
                hint="keep the text in a file and note where it is",
            )
        return self.put(heading(section), f"{self._home.day()}: {said}")

    def put(self, heading: str, line: str, first: Callable[[], object] = lambda: None) -> Noted:
        """Add a line that has its date already; `first` is done under the lock of the file."""
        self._check_size()
        applied, line = False, self._home.mask(line)

        def change(old: str) -> str:
            nonlocal applied
            first()
            new = added(old if old.strip() else empty(self.agent), heading, line)
            applied = new != old
            return new

        self._document.update(change, {"event": NOTED, "message": beginning(line, 200)})
        return Noted(heading, line, applied)

    def begin_as(self, other: Notes) -> None:
        """Take over what another agent has noted, unless something is noted already."""
        text = other.look()
        if text and not self.look():
            before, after = (empty(each).partition("\n")[0] for each in (other.agent, self.agent))
            titled = after + text.removeprefix(before) if text.startswith(before) else text
            act = {"event": TAKEN_OVER, "message": f"from {other.key}"}
            self._document.update(lambda old: old or titled, act)

    def _check_size(self) -> None:
        text = self._home.document(self.key).read()
        if text is not None and len(text.data) > LARGEST:
            raise UsageError(
                f"{self.key} has {len(text.data)} bytes; Holdfast adds to one of {LARGEST} at most",
                hint="move old notes into another file; nothing was changed",
                path=self.key,
            )


# --- for a prompt ---------------------------------------------------------------------------


def bounded(text: str, most: int = MOST_SHOWN) -> str:
    """A text of sections within about `most` characters, by this rule.

    Every section keeps its heading.  All get the same share of the room, and what one does not
    need goes to the others.  In its share a section keeps its newest entries, which are the last
    ones, and says how many older ones are left out.
    """
    if len(text) <= most:
        return text
    head, sections = _parts(text)
    parts = [head, *sections]
    waiting = sorted(range(len(parts)), key=lambda number: len(parts[number]))
    left, shares = most, dict[int, int]()
    for place, number in enumerate(waiting):
        shares[number] = min(len(parts[number]), left // (len(waiting) - place))
        left -= shares[number]
    return "".join(_newest(part, shares[number]) for number, part in enumerate(parts))


def _parts(text: str) -> tuple[str, list[str]]:
    lines = markdown.lines_of(text)
    starts = [at for at, line in enumerate(lines) if markdown.begins_section(line)]
    bounds = [*starts, len(lines)]
    pieces = [
        "".join(line.text for line in lines[a:b]) for a, b in zip(starts, bounds[1:], strict=True)
    ]
    return "".join(line.text for line in lines[: bounds[0]]), pieces


def _newest(section: str, most: int) -> str:
    if len(section) <= most:
        return section
    first, *rest = markdown.lines_of(section)
    entries = [f"{block.mark}{block.text}{block.end}" for block in markdown.blocks_of(rest)]
    room = most - len(first.text) - len(_left_out(entries))
    kept: list[str] = []
    for entry in reversed(entries):
        room -= len(entry)
        if room < 0:
            break
        kept.append(entry)
    if not kept and entries and room + len(entries[-1]) > _SHORT:
        kept = [f"{entries[-1][: room + len(entries[-1]) - 2].rstrip()}…\n"]
    heading = first.text
    if len(heading) > _LONGEST_HEADING:
        heading = f"{heading[:_LONGEST_HEADING]}…\n"
    return heading + _left_out(entries[len(kept) :]) + "".join(reversed(kept))


def _left_out(entries: Sequence[str]) -> str:
    told = "1 older entry is" if len(entries) == 1 else f"{len(entries)} older entries are"
    return f"- ({told} left out here)\n" if entries else ""

"""Flags that agents of another system left for each other in a shared folder: Markdown for people.

    ## Cross-Domain Flag: theseus → rio
    **Date**: 2026-03-29
    **What I found**: agents trade there
    **Priority**: high

The file is called `flag-SENDER-TOPIC.md`.  Pure: text in, messages out.  What a flag does not say
is not made up; without an agent to whom it goes it is no flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

from holdfast.agents.inbox import MOST_BODY, MOST_SUBJECT
from holdfast.codec import Record
from holdfast.ids import is_agent_id
from holdfast.interop.copies import Foreign, moment_in, text_in
from holdfast.mask.shown import beginning

PREFIX = "flag-"
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*)$", re.MULTILINE)
_ARROW = re.compile(r"\s*(?:→|⇒|-+>|=+>)\s*")
_DASH = re.compile(r"\s+[—–-]+\s+|:\s+")
_FIELD = re.compile(r"^[-*+ \t]*\*\*([^*\n]{1,60}?):?\*\*[ \t]*:?[ \t]*(.*)$", re.MULTILINE)
_SEVERAL = re.compile(r"\s*(?:,|&|\+|/|\band\b)\s*")
_URGENT = ("high", "urgent", "blocking", "time-sensitive")
_DAY = len("2026-03-29")
_EVERYBODY = frozenset({"all", "everyone", "everybody", "collective", "agents", "team"})
_MOST_STEM = 60


class Flag(NamedTuple):
    sender: str
    to: str
    """In lower case, as an agent's name is."""
    created_at: str | None
    urgent: bool
    subject: str
    body: str

    def message(self, path: str, otherwise: str) -> tuple[str, Record]:
        """The message and its id: the same of the same flag, whenever it is made.

        `otherwise` is when it was written if it does not say so itself.
        """
        stem = path.rpartition("/")[2].partition(".")[0]
        whole = "\0".join((stem, self.sender, self.to, self.body))
        tidy = re.sub(r"[^A-Za-z0-9_-]+", "-", stem)[:_MOST_STEM]
        id = f"{tidy}-{sha256(whole.encode()).hexdigest()[:16]}"
        record: Record = {
            "id": id,
            "from": self.sender,
            "to": self.to,
            "created_at": self.created_at or otherwise,
            "type": "flag",
            "priority": "high" if self.urgent else "normal",
            "subject": self.subject,
            "body": self.body,
            "source_ref": path[-MOST_SUBJECT:],
            "expires_at": None,
        }
        return id, record


class _Title(NamedTuple):
    """A heading such as `Cross-Domain Flag: theseus → rio — who trades there`."""

    whole: str
    sender: str = ""
    to: str = ""
    about: str = ""

    @classmethod
    def of(cls, section: str) -> _Title:
        found = [each[1].strip() for each in _HEADING.finditer(section)]
        whole = next(filter(_ARROW.search, found), found[0] if found else "")
        before, *behind = _ARROW.split(whole, maxsplit=1)
        if not behind:
            return cls(whole)
        sender = before.partition("(")[0].rpartition(":")[2].split()
        to, *about = _DASH.split(behind[0], maxsplit=1)
        return cls(whole, sender[-1] if sender else "", to, about[0] if about else "")


def flags_in(file: Foreign) -> list[Flag]:
    """The flags of a file, one for each agent it names; ValueError says why there is none."""
    text = text_in(file).removeprefix("\ufeff")
    if not text.strip():
        raise ValueError(f"empty: {len(file.data)} bytes")
    name = file.path.rpartition("/")[2].removeprefix(PREFIX)
    stem = name.rpartition(".")[0] or name
    # From one `Flag: theseus → rio` to the next; else all of it.
    headings = (found for found in _HEADING.finditer(text) if "flag" in found[1].lower())
    starts = [found.start() for found in headings if _ARROW.search(found[1])]
    ends = [0, *starts[1:], len(text)]
    return [flag for at, end in pairwise(ends) for flag in _flags_of(text[at:end].strip(), stem)]


def _flags_of(section: str, stem: str) -> Iterator[Flag]:
    fields = {name.strip().lower(): value.strip() for name, value in _FIELD.findall(section)}
    title = _Title.of(section)
    sender = _name(fields.get("from") or title.sender) or _name(stem.partition("-")[0])
    to = fields.get("to") or title.to
    if not sender or not to.strip():
        raise ValueError("it does not say " + ("to whom it goes" if sender else "who sent it"))
    if len(section.encode()) > MOST_BODY:
        raise ValueError(f"larger than {MOST_BODY} bytes, which is what a message has room for")
    topic = stem.partition("-")[2].replace("-", " ").replace("_", " ").strip()
    date = fields.get("date", "")
    subject = fields.get("subject") or fields.get("topic") or title.about or topic or title.whole
    for each in _SEVERAL.split(to):
        name = _name(each).lower()
        if not name or name in _EVERYBODY:
            raise ValueError(f"it names no agent: {each.strip()[:60]!r}")
        yield Flag(
            sender.lower(),
            name,
            moment_in(date) or moment_in(f"{date[:_DAY]}T00:00:00Z"),
            fields.get("priority", "").lower().startswith(_URGENT),
            beginning(" ".join(subject.split()), MOST_SUBJECT - 1),
            section,
        )


def _name(text: str) -> str:
    """An agent's name without what people put around it; empty if it can be none."""
    bare = text.partition("(")[0].strip(" \t*_`@[].:")
    return bare if is_agent_id(bare) else ""

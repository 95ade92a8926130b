"""What is indexed: lines of logs, and files; here those of topics.

A log brings one text a line at most; a file is read whole when it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode, encode
from holdfast.contracts.fractal import data_in
from holdfast.memory.datum import Datum, Entry, agent_of, datum_of, entry_of, foreign_line
from holdfast.store.backend import Backend
from holdfast.store.primitives import Line

SOURCES = ("topic", "note", "turn", "summary", "ledger", "job", "chunk")
TOPIC, NOTE, TURN, SUMMARY, LEDGER, JOB, CHUNK = SOURCES


class Text(NamedTuple):
    """One text that can be found."""

    id: str
    """The log and the number of its line, or the file and the number of the part."""
    agent: str
    """Empty where it belongs to no agent."""
    source: str
    text: str
    ts: float | None
    topic: str = ""
    group: str = ""
    """What it is a part of, as a unit of its own: a session, a file, a job, a topic."""
    tags: tuple[str, ...] = ()
    until: float | None = None
    """When it ceased to be valid."""
    record: bytes | None = None
    """The line of a datum."""
    number: int = 0
    """Under which the index has it."""
    supersedes: tuple[str, ...] = ()
    found: bool = True
    """Whether a search finds it."""


class Origin(NamedTuple):
    """A log or file that is read on."""

    key: str
    agent: str
    reads: Callable[[Origin, str, Line], Text | Entry | None] | None = None
    """Makes a text of a line; None for a file that is read whole."""
    group: str = ""
    texts: Callable[[Origin, str], Iterator[Text]] = lambda origin, text: iter(())
    """Makes the texts of such a file."""


def topics_origin(home: Backend, log: str, fmm: str, agent: str) -> Origin:
    """The topics of an agent: its log; until there is one, a tree that another system wrote."""
    if not home.version(log) and is_foreign(home, fmm):
        return Origin(fmm, agent, texts=tree_texts)
    return Origin(log, agent, topic_line)


def is_foreign(home: Backend, fmm: str) -> bool:
    """Whether there is an `fmm.json` that Holdfast did not write."""
    with closing(home.cell(fmm)) as cell:
        return bool(home.version(fmm)) and cell.load(1) is None


def topic_line(origin: Origin, id: str, line: Line) -> Text | Entry | None:
    entry = entry_of(agent_of(origin.key), line)
    return text_of(origin.agent, entry, line.record) if isinstance(entry, Datum) else entry


def text_of(agent: str, datum: Datum, record: Record) -> Text:
    said = datum.text
    if not said and (more := datum.data or datum.fields):
        said = encode(more).decode()
    chunk = datum.topic.startswith("ingest/")
    named = datum.meta.get("origin" if chunk else "session_id")
    # What a projection tells of a turn is found where it comes from.
    of_a_turn = "ref" in record and datum.topic.startswith("chat/") and "turn" in datum.meta
    return Text(
        *(datum.id, agent, CHUNK if chunk else TOPIC, said, datum.ts or None, datum.topic),
        *(str(named or f"{agent}:{datum.topic}"), datum.tags, datum.valid_until, encode(record)),
        supersedes=datum.supersedes,
        found=not (of_a_turn or "sealed" in datum.meta),
    )


def tree_texts(origin: Origin, text: str) -> Iterator[Text]:
    """The data of an `fmm.json` that another system wrote."""
    for number, line in enumerate(foreign_lines(text) or (), 1):
        datum = datum_of(f"{agent_of(origin.key)}#{number}", line)
        yield text_of(origin.agent, datum, line)


def foreign_lines(text: str) -> list[Record] | None:
    """Lines of `topics.jsonl` that say the same as a tree; None if it is damaged."""
    try:
        tree = decode(text.strip("\0 \n").encode() or b"{}", limit=MAX_DOCUMENT)
    except DecodeError:
        return None
    return [foreign_line(topic, found) for topic, found in data_in(tree)]

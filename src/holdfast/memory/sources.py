"""What is indexed: lines of logs and files, read by their recorded shape.

A log brings one text a line at most; a file is read whole when it changed.  Texts that are sealed
and lines that repeat another log's are not found; lines that say nothing are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, DecodeError, Record, decode, encode
from holdfast.ids import is_agent_id
from holdfast.layout import Layout
from holdfast.memory.datum import (
    Datum,
    Entry,
    Inherited,
    agent_of,
    datum_of,
    entry_of,
    foreign_line,
    instant,
)
from holdfast.memory.names import data_in
from holdfast.store.backend import Backend
from holdfast.store.primitives import Line

SOURCES = ("topic", "note", "turn", "summary", "ledger", "job", "chunk")
TOPIC, NOTE, TURN, SUMMARY, LEDGER, JOB, CHUNK = SOURCES
_DATED = re.compile(r"\s*(\d{4}-\d{2}-\d{2})")


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


Reads = Callable[["Origin", str, Line], Text | Entry | None]


class Origin(NamedTuple):
    """A log or file that is read on."""

    key: str
    agent: str
    reads: Reads | None = None
    """Makes a text of a line; None for a file that is read whole."""
    group: str = ""
    texts: Callable[[Origin, str], Iterator[Text]] = lambda origin, text: iter(())
    """Makes the texts of such a file."""


def origins(home: Backend, layout: Layout, agents: list[str] | None) -> Iterator[Origin]:
    """Everything that is indexed of these agents; of None, of all of them and of jobs."""
    above = {layout.above(part) for part in ("agent", "ledger") if part in layout.paths}
    # As the tree spells them.
    names = {name for folder in above for name in home.names(folder) if is_agent_id(name)}
    for name in sorted(names):
        if agents is not None and name.lower() not in agents:
            continue
        agent = name.lower()
        yield topics_origin(home, layout.path("topics", name), layout.path("fmm", name), agent)
        yield Origin(layout.path("conversation", name), agent, turn_line)
        yield Origin(layout.path("ledger", name), agent, ledger_line)
        yield Origin(layout.path("notes", name), agent, texts=markdown_texts)
        if "summaries" in layout.paths:
            folder = layout.path("summaries", name)
            for each in home.names(folder):
                if each.endswith(".md"):
                    yield Origin(f"{folder}/{each}", agent, None, each[:-3], markdown_texts)
    if agents is None and "job" in layout.paths:
        folder = layout.above("job")
        for name in home.names(folder):
            if "." not in name:
                yield Origin(f"{folder}/{name}/history.jsonl", "", job_line, name)


def topics_origin(home: Backend, log: str, fmm: str, agent: str) -> Origin:
    """The topics of an agent: its log; until there is one, a tree that another system wrote."""
    if not home.version(log) and is_foreign(home, fmm):
        return Origin(fmm, agent, texts=tree_texts)
    return Origin(log, agent, topic_line)


def is_foreign(home: Backend, fmm: str) -> bool:
    """Whether there is an `fmm.json` that Holdfast did not write."""
    if not home.version(fmm):
        return False
    cell = home.cell(fmm)
    try:
        return cell.load(1) is None
    finally:
        cell.close()


# --- lines ----------------------------------------------------------------------------------


def topic_line(origin: Origin, id: str, line: Line) -> Text | Entry | None:
    entry = entry_of(agent_of(origin.key), line)
    return text_of(origin.agent, entry, line.record) if isinstance(entry, Datum) else entry


def text_of(agent: str, datum: Datum, record: Record) -> Text:
    said = datum.text
    if not said and (more := datum.data or datum.fields):
        said = encode(more).decode()
    chunk = datum.topic.startswith("ingest/")
    named = _word(datum.meta.get("origin" if chunk else "session_id"))
    # What a projection tells of a turn is found where it comes from.
    of_a_turn = "ref" in record and datum.topic.startswith("chat/") and "turn" in datum.meta
    return Text(
        *(datum.id, agent, CHUNK if chunk else TOPIC, said, datum.ts or None, datum.topic),
        *(named or f"{agent}:{datum.topic}", datum.tags, datum.valid_until, encode(record)),
        supersedes=datum.supersedes,
        found=not (of_a_turn or "sealed" in datum.meta),
    )


def turn_line(origin: Origin, id: str, line: Line) -> Text | Inherited | None:
    record, meta = line.record, _table(line.record.get("meta"))
    match meta.get("forked_from"):
        case {"log": str(log), "seq": int(seq), "hash": str(known)}:
            return Inherited(log, seq, known)
        case _:
            pass
    if "sealed" in meta or "part" in meta or "error" in meta:
        return None
    group = _word(meta.get("session_id")) or f"{origin.agent}:chat"
    said, role = _word(record.get("content")), _word(record.get("role"))
    return Text(id, origin.agent, TURN, said, _when(record), f"chat/{role}", group)


def ledger_line(origin: Origin, id: str, line: Line) -> Text | None:
    record, data = line.record, _table(line.record.get("data"))
    event = _word(record.get("event"))
    if event == "heartbeat" or (record.get("ref") and (event == "task_start" or "turn" in data)):
        return None
    words = [_word(record.get("summary"))]
    words += [value for value in data.values() if isinstance(value, str) and " " in value]
    said, group = "\n".join(dict.fromkeys(filter(None, words))), _word(record.get("session_id"))
    return Text(id, origin.agent, LEDGER, said, _when(record), f"ledger/{event}", group)


_OF_JOBS = {
    "new": ("description", "prompt", "objective"),
    "set": ("description", "prompt", "objective"),
    "judged": ("summary_for_supervisor", "complaint"),
    "reply": ("raw_response",),
}


def job_line(origin: Origin, id: str, line: Line) -> Text | None:
    record, event = line.record, line.record.get("event")
    if "sealed" in record:
        return None
    fields = _table(record.get("spec")) if event in ("new", "set") else record
    names = _OF_JOBS.get(str(event), ("reason", "guidance", "error"))
    said = [_word(fields.get(name)) for name in names]
    if event == "reply" and said[0][:1] in ("{", "["):
        return None  # what it says is judged
    job = origin.group
    text = "\n".join(filter(None, said))
    return Text(id, "", JOB, text, _when(record), f"jobs/{job}", f"job:{job}")


# --- files ----------------------------------------------------------------------------------


def markdown_texts(origin: Origin, text: str) -> Iterator[Text]:
    """Notes are found one by one; a summary of a session by its sections."""
    heading = ""
    number = 0
    for block in re.split(r"\n(?=#|\n|[-*] )", f"\n{text}"):
        said = block.strip()
        if said.startswith("#"):
            first, _, said = said.partition("\n")
            heading = first.lstrip("# ").strip()
        if not (said := said.strip().removeprefix("- ").removeprefix("* ")):
            continue
        number += 1
        dated = _DATED.match(said)
        yield Text(
            id=f"{origin.key}#{number}",
            agent=origin.agent,
            source=SUMMARY if origin.group else NOTE,
            text=said,
            ts=instant(dated[1]) if dated else None,
            topic=heading,
            group=origin.group or f"{origin.key}#{heading}",
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


def _table(value: Any) -> Record:
    return cast("Record", value) if isinstance(value, dict) else {}


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _when(record: Record) -> float | None:
    return instant(record.get("ts", record.get("timestamp")))

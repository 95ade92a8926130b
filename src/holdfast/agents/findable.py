"""What a search finds beside the topics of agents: their logs and notes, and jobs.

Texts that are sealed and lines that repeat another log's are not found; lines that say nothing are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast.clock import instant
from holdfast.codec import Record
from holdfast.contracts.kind import object_of
from holdfast.ids import is_agent_id
from holdfast.layout import Layout
from holdfast.memory.datum import Inherited
from holdfast.memory.sources import JOB, LEDGER, NOTE, SUMMARY, TURN, Origin, Text, topics_origin
from holdfast.store.backend import Backend
from holdfast.store.primitives import Line

_DATED = re.compile(r"\s*(\d{4}-\d{2}-\d{2})")


def origins(home: Backend, layout: Layout, agents: Sequence[str] | None) -> Iterator[Origin]:
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


def turn_line(origin: Origin, id: str, line: Line) -> Text | Inherited | None:
    record, meta = line.record, object_of(line.record.get("meta"))
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
    record, data = line.record, object_of(line.record.get("data"))
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
    fields = object_of(record.get("spec")) if event in ("new", "set") else record
    names = _OF_JOBS.get(str(event), ("reason", "guidance", "error"))
    said = [_word(fields.get(name)) for name in names]
    if event == "reply" and said[0][:1] in ("{", "["):
        return None  # what it says is judged
    job = origin.group
    text = "\n".join(filter(None, said))
    return Text(id, "", JOB, text, _when(record), f"jobs/{job}", f"job:{job}")


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


def _word(value: object) -> str:
    return value if isinstance(value, str) else ""


def _when(record: Record) -> float | None:
    return instant(record.get("ts", record.get("timestamp")))

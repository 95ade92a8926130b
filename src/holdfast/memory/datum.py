"""One line of `topics.jsonl`: a datum, a proposed one, data that are forgotten, an index.

Lines are only added.  A datum that was superseded or forgotten keeps its line as evidence; memory
and search show it as its later lines say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from holdfast.clock import instant
from holdfast.codec import Record, encode
from holdfast.errors import BadValue
from holdfast.memory.names import INDEX, MOST_NAMES, UNPLACED, checked, fault
from holdfast.store.primitives import CONTROL, Line

_OF_A_LINE = ("ts", "topic", "text", "fields", "ref", "fence", "event")
_OF_A_DATUM = ("id", "meta", "data", "tags", "supersedes", "superseded_by", "source", "valid_until")


class Datum(NamedTuple):
    """One thing that an agent remembers."""

    id: str
    """`AGENT#SEQ`: the agent into whose log it was written, and the number of its line."""
    ts: float
    """Seconds since the epoch."""
    topic: str
    text: str
    meta: Record
    data: object
    """Any JSON value; None if there is none."""
    tags: tuple[str, ...]
    supersedes: tuple[str, ...]
    """The ids of the data that this one corrects."""
    source: str
    """Where it comes from: a session, a file with its hash, a person; empty if not reported."""
    valid_until: float | None
    fields: Record
    """Further fields of the datum in `fmm.json`, such as `tick` of a baton."""

    def line(self) -> Record:
        """The line that says it."""
        fields = {"fields": self.fields} if self.fields else {}
        return {"ts": self.ts, "topic": self.topic, "text": self.text, **self._given(), **fields}

    def shown(self, superseded_by: str | None = None) -> Record:
        """The datum as `fmm.json` has it."""
        by = {"superseded_by": superseded_by} if superseded_by else {}
        told = {"id": self.id, "ts": self.ts, "text": self.text}
        return {**told, **self._given(), **by, **self.fields}

    def _given(self) -> Record:
        several = [*self.supersedes]
        given: Record = {
            "meta": self.meta or None,
            "data": self.data,
            "tags": list(self.tags) or None,
            "supersedes": several if len(several) > 1 else next(iter(several), None),
            "source": self.source or None,
            "valid_until": self.valid_until,
        }
        return {name: value for name, value in given.items() if value is not None}


class Forgotten(NamedTuple):
    """Data that memory and search no longer show."""

    ids: tuple[str, ...]
    why: str
    """asked, duplicate or superseded."""
    ts: float


class IvfNode(NamedTuple):
    """What is known of the index of vectors of one dimension; the newest line counts."""

    topic: str
    fields: Record


class Inherited(NamedTuple):
    """How far into the log of its parent the memory of a fork reaches back."""

    log: str
    seq: int
    hash: str


class Proposed(NamedTuple):
    """A datum that counts once it is accepted."""

    id: str
    record: Record


class Decided(NamedTuple):
    """What became of a proposal; the first decision counts."""

    id: str
    accepted: bool
    by: str


Entry = Datum | Forgotten | IvfNode | Inherited | Proposed | Decided


def agent_of(log: str) -> str:
    """The agent in the ids of a log's data: the folder in which the log lies."""
    return log.rpartition("/")[0].rpartition("/")[2]


def entry_of(agent: str, line: Line) -> Entry | None:
    """What a line of the topics of an agent says; None if it is not one of memory's."""
    record = line.record
    if line.seq is None or CONTROL in record:
        return None
    match record:
        case {"event": "forget", "ids": [*ids], "why": str(why)}:
            known = tuple(each for each in ids if isinstance(each, str))
            return Forgotten(known, why, instant(record.get("ts")) or 0.0)
        case {"event": "index", "index": {"dim": int(dim), "K": int(size)} as fields}:
            return IvfNode(f"{INDEX}/dim{dim}/K{size}", cast("Record", fields))
        case {"event": "propose", "topic": str(), "text": str()}:
            return Proposed(f"{agent}#{line.seq}", record)
        case {"event": "decide", "id": str(id), "accepted": bool(accepted), "by": str(by)}:
            return Decided(id, accepted, by)
        case {"event": _}:
            return None
        # Set by projections alone is `ref`: no datum passes for a fork.
        case {
            "topic": "ancestry",
            "ref": _,
            "meta": {"forked_from": {"log": str(log), "seq": int(seq), "hash": str(hash)}},
        }:
            return Inherited(log, seq, hash)
        case {"topic": str(), "text": str()}:
            return datum_of(f"{agent}#{line.seq}", record)
        case _:
            return None


def datum_of(id: str, record: Record) -> Datum:
    """The datum of a line that is known to have one."""
    topic, text = str(record.get("topic")), str(record.get("text"))
    meta, tags, fields = record.get("meta"), record.get("tags"), record.get("fields")
    supersedes, until = record.get("supersedes"), record.get("valid_until")
    return Datum(
        id,
        instant(record.get("ts")) or 0.0,
        UNPLACED if fault(topic) else topic,
        text,
        cast("Record", meta) if isinstance(meta, dict) else {},
        record.get("data"),
        _words(tags),
        _words(supersedes),
        str(record.get("source") or record.get("ref") or ""),
        float(until) if isinstance(until, int | float) else None,
        cast("Record", fields) if isinstance(fields, dict) else {},
    )


def _words(value: object) -> tuple[str, ...]:
    """One word, or a list of them."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list | tuple) else ()


def datum_line(
    topic: str,
    text: str,
    *,
    ts: float,
    meta: Record | None = None,
    data: object = None,
    tags: Sequence[str] = (),
    supersedes: str | Sequence[str] | None = None,
    source: str = "",
    valid_until: float | None = None,
    fields: Record | None = None,
) -> Record:
    """The line of a datum; BadName or BadValue if it cannot be one."""
    if not text.strip() and data is None and not fields:
        raise BadValue("nothing to remember: the text is empty", hint="give it a text, or --data")
    if taken := {*_OF_A_LINE, *_OF_A_DATUM}.intersection(fields or {}):
        raise BadValue(f"{min(taken)} is a field of every datum", hint="choose another name")
    inner: object = (meta, data, fields)
    for _ in range(MOST_NAMES + 1):
        inner = [inner]
    encode(inner)  # BadValue if it is nested too deeply for the longest topic
    supersedes = _words(supersedes)
    datum = Datum(
        *("", ts, checked(topic), text, meta or {}, data, tuple(tags), supersedes),
        *(source, valid_until, fields or {}),
    )
    return datum.line()


def foreign_line(topic: str, found: Record) -> Record:
    """The line that says the same as a datum in the tree of another system."""
    fields = {name: found[name] for name in found if name not in {*_OF_A_LINE, *_OF_A_DATUM}}
    known = {name: found[name] for name in ("ts", "meta", "data", "tags") if name in found}
    text = found.get("text") if isinstance(found.get("text"), str) else ""
    return datum_of("", {**known, "topic": topic, "text": text, "fields": fields}).line()


def forget_line(ids: Sequence[str], why: str, ts: float) -> Record:
    return {"ts": ts, "event": "forget", "ids": list(ids), "why": why}


def index_line(fields: Record, ts: float) -> Record:
    """The line of an index; BadValue unless it says all that `fmm.json` has of one."""
    numbers = [fields.get(name) for name in ("dim", "K", "nprobe", "count")]
    if not all(type(each) is int for each in numbers) or "centroids" not in fields:
        raise BadValue("an index has dim, K, nprobe, count and centroids", hint="give all five")
    return {"ts": ts, "event": "index", "index": {"ts": ts, **fields}}

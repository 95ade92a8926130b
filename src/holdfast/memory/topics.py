"""The memory of an agent by topics: `topics.jsonl`, and `fmm.json` that shows it as a tree.

An add is one line of the log.  The tree follows at once while it is small, and as often as costs
little beside the work when it is large; what is read through here always comes from the log.  A
fork's memory goes on from the lines that its parent had at that moment; none is copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from holdfast.codec import MAX_DOCUMENT, Record, decode_record, encode, pretty
from holdfast.errors import HoldfastError, NotFound
from holdfast.ids import agent_id
from holdfast.layout import HOLDFAST, Part
from holdfast.memory.catalogue import GONE, IVF, REACH, SUPERSEDED, Catalogue, Row
from holdfast.memory.datum import (
    Datum,
    Entry,
    Forgotten,
    Inherited,
    IvfNode,
    datum_line,
    entry_of,
    forget_line,
    index_line,
)
from holdfast.memory.names import DATA, ROOT, node
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Line, Log, Stamp

_VERSION = 1
_SMALL = 256 << 10
"""Bytes of an `fmm.json` that is brought up to date whenever a memory is closed."""
_PAUSE, _A_BYTE = 0.05, 4e-6
"""Seconds between two writings of it, and for each of its bytes."""
_AT_ONCE = 10_000
"""Ids in one line."""


class Source(NamedTuple):
    """A log that is part of a memory."""

    places: Catalogue
    log: Log
    upto: int | None
    """The last line that counts; None where all do."""

    def lines(self, after: Cursor = START) -> Iterator[Line]:
        """The lines that count."""
        for line in self.log.read(after):
            if isinstance(line, Line) and line.seq is not None:
                if self.upto is not None and line.seq > self.upto:
                    return
                yield line


class TopicCount(NamedTuple):
    topic: str
    data: int
    newest: float
    """Seconds since the epoch."""


class Compaction(NamedTuple):
    """Data that `compact` takes out of the tree."""

    duplicates: list[str]
    """Ids of data of which a newer one says exactly the same."""
    superseded: list[str]


class Topics:
    """Used by one thread at a time; opens nothing before it is used."""

    def __init__(self, home: Backend, key: Callable[[Part], str] | str) -> None:
        """`key` names the files of an agent; or it is the name of one in a home of Holdfast's."""
        if isinstance(key, str):
            name = agent_id(key).lower()
            log, shown = HOLDFAST.path("topics", name), HOLDFAST.path("fmm", name)
        else:
            log, shown = key("topics"), key("fmm")
        self._home, self.fmm = home, shown
        self.log: Log = home.log(log)
        self._own = Catalogue(home, self.log)
        self._inherited: list[Source] | None = None
        self._acked = START
        self._changed = False
        self._next = home.clock.boottime() + _PAUSE
        self.stale: HoldfastError | None = None
        """Why `fmm.json` does not show the last lines, if it could not be written."""
        self.kept_aside: list[str] = []
        """Names under which hand-edited trees were kept."""

    @property
    def agent(self) -> str:
        return self._own.agent

    # -- writing -----------------------------------------------------------------------

    def add(self, topic: str, text: str, *, ts: float | None = None, **known: Any) -> str:
        """Remember a datum; its id.  `known` as in `datum_line`."""
        stamp = self._home.clock.now() if ts is None else ts
        return self.add_all([datum_line(topic, text, ts=stamp, **known)])[0]

    def add_all(self, lines: Sequence[Record]) -> list[str]:
        """Remember many data at once, each a `datum_line`; their ids."""
        corrected = {line["supersedes"] for line in lines if "supersedes" in line}
        if missing := corrected - self.get(corrected).keys():
            raise NotFound(
                f"no such datum: {min(missing)[:80]}",
                hint=f"`holdfast memory show --agent {self.agent} --topic TOPIC` prints ids",
            )
        return [f"{self.agent}#{cursor.seq}" for cursor in self._append(lines)]

    def forget(self, ids: Iterable[str], why: str = "asked") -> list[str]:
        """Take data out of the tree and out of search; the ids of those that were in it."""
        found = list(self.get(ids))
        now = self._home.clock.now()
        parts = [found[at : at + _AT_ONCE] for at in range(0, len(found), _AT_ONCE)]
        self._append([forget_line(part, why, now) for part in parts])
        if found:
            self.show()
        return found

    def set_index(self, fields: Record) -> None:
        """Record what is known of an index: dim, K, nprobe, count and centroids.

        The newest one of each dimension is shown, so give long centroids as a text that names them.
        """
        self._append([index_line(fields, self._home.clock.now())])

    def _append(self, lines: Sequence[Record]) -> list[Cursor]:
        if not lines:
            return []
        cursors = [self.log.append(lines[0])] if len(lines) == 1 else self.log.append_all(lines)
        self._acked, self._changed = cursors[-1], True
        if self._home.clock.boottime() >= self._next:
            self.follow()
        return cursors

    # -- reading -----------------------------------------------------------------------

    def under(self, topic: str = ROOT, newest: int | None = None) -> list[Datum]:
        """The data at and below a topic, oldest first; only the `newest` ones."""
        gone = self._gone()
        found: list[Datum] = []
        for source in reversed(self.sources()):
            missing = None if newest is None else newest - len(found)
            if missing == 0:
                break
            most = None if missing is None else missing + len(gone)
            rows = [
                row
                for row in source.places.data(topic, source.upto, most)
                if f"{source.places.agent}#{row.seq}" not in gone
            ]
            if missing is not None:
                rows = rows[max(0, len(rows) - missing) :]
            found[:0] = _data(source, rows)
        return found

    def get(self, ids: Iterable[str]) -> dict[str, Datum]:
        """The data with these ids, as far as they are in this memory and not forgotten."""
        wanted: dict[str, set[int]] = {}
        for id in ids:
            agent, _, number = id.rpartition("#")
            if number.isdecimal() and len(number) < 19:
                wanted.setdefault(agent, set()).add(int(number))
        if not wanted:
            return {}
        gone, found = self._gone(), dict[str, Datum]()
        for source in self.sources():
            rows = source.places.rows(wanted.get(source.places.agent, ()), source.upto)
            found |= {datum.id: datum for datum in _data(source, rows) if datum.id not in gone}
        return found

    def superseded(self) -> dict[str, str]:
        """The ids of data that were corrected, each with the id of the newest correction."""
        gone, sources = self._gone(), self.sources()
        marks = (mark for each in sources for mark in each.places.marks(SUPERSEDED, each.upto))
        return {mark.name: mark.value for mark in marks if mark.value not in gone}

    def topics(self, topic: str = ROOT) -> list[TopicCount]:
        """Each topic at and below one that has data, by name."""
        counts: dict[str, TopicCount] = {}
        gone: dict[str, int] = {}
        taken = self._gone()
        for source in self.sources():
            for name, count, newest in source.places.topics(topic, source.upto):
                before = counts.get(name, TopicCount(name, 0, newest))
                counts[name] = TopicCount(name, before.data + count, max(before.newest, newest))
            ours = f"{source.places.agent}#"
            seqs = [int(id.removeprefix(ours)) for id in taken if id.startswith(ours)]
            for row in source.places.rows(seqs, source.upto):
                gone[row.topic] = gone.get(row.topic, 0) + 1
        left = (each._replace(data=each.data - gone.get(each.topic, 0)) for each in counts.values())
        return sorted(each for each in left if each.data)

    def indexes(self) -> list[Record]:
        """What is known of the index of each dimension; of this agent's own memory."""
        newest = {mark.name: mark.seq for mark in self._own.marks(IVF, None)}
        entries = (
            entry_of(self.agent, line)
            for line in self._own.lines(self._own.rows(newest.values(), None))
        )
        return [each.fields for each in entries if isinstance(each, IvfNode)]

    def sources(self) -> list[Source]:
        """The logs of this memory: those of its ancestors, the oldest first, then its own."""
        if self._inherited is None:
            self._inherited = list(self._reached())
        return [*self._inherited, Source(self._own, self.log, None)]

    def _gone(self) -> set[str]:
        sources = self.sources()
        return {mark.name for each in sources for mark in each.places.marks(GONE, each.upto)}

    def _reached(self) -> list[Source]:
        found: list[Source] = []
        seen, at, upto = {self.log.key}, self._own, None
        while marks := at.marks(REACH, upto):
            reach = Inherited(*decode_record(f'{{"at":{marks[0].value}}}'.encode())["at"])
            if reach.log in seen or reach.log.rpartition("/")[2] != self.log.key.rpartition("/")[2]:
                break
            seen.add(reach.log)
            log = self._home.log(reach.log)
            at, upto = Catalogue(self._home, log), reach.seq
            last = next(at.lines(at.rows([reach.seq], None)), None)
            if last is None or last.hash != reach.hash:
                detail = f"{self.log.key} reaches back into {reach.log}: not there"
                self._home.notice("fork_lost", detail)
                break
            found.insert(0, Source(at, log, upto))
        return found

    # -- less to show ------------------------------------------------------------------

    def compaction(self) -> Compaction:
        """What `compact` would take out: it looks only."""
        corrected, newest = self.superseded(), dict[bytes, str]()
        superseded, duplicates = list[str](), list[str]()
        for datum in reversed(self.under()):
            says = encode([datum.topic, datum.text, datum.data, list(datum.tags), datum.fields])
            if datum.id in corrected:
                superseded.append(datum.id)
            elif newest.setdefault(says, datum.id) != datum.id:
                duplicates.append(datum.id)
        return Compaction(duplicates[::-1], superseded[::-1])

    def compact(self) -> Compaction:
        """Take duplicates and superseded data out of the tree; their lines stay in the log."""
        found = self.compaction()
        self.forget(found.duplicates, "duplicate")
        self.forget(found.superseded, "superseded")
        return found

    # -- the tree ----------------------------------------------------------------------

    def follow(self) -> None:
        """Bring `fmm.json` up to date; why it could not be is left in `stale`."""
        try:
            self.show()
        except HoldfastError as error:
            self.stale = error
            self._home.notice("tree_not_written", f"{self.fmm}: {error.message}")
            self._shown(0, MAX_DOCUMENT)

    def show(self) -> None:
        """Write `fmm.json` as the log says."""
        self._changed, head, entries = False, START, list[Entry]()
        for source in self.sources():
            for line in source.lines():
                if (entry := entry_of(source.places.agent, line)) is not None:
                    entries.append(entry)
                head = line.cursor  # in the end of the last log, its own
        if not entries:
            return
        data, cell = pretty(tree(entries)), self._home.cell(self.fmm)
        try:
            stamp, over = cell.load(_VERSION), None
            if stamp is not None and not self.log.contains(stamp.cursor):
                # The log once reached further: that is recorded before its proof is replaced.
                over = stamp.cursor
                self.log.tell_of_cut(over)
            if head.seq > self._acked.seq:
                self._acked = self.log.settle()  # visible is not durable
            aside = cell.save(_VERSION, Stamp(self.log.key, head, {}), data, over=over)
            if aside is not None:
                self.kept_aside.append(aside)
        finally:
            cell.close()
        self.stale = None
        self._shown(head.seq, len(data))

    def _shown(self, seq: int, size: int) -> None:
        now = self._home.clock.boottime()
        self._next = now + max(_PAUSE, size * _A_BYTE)
        shown = {"seq": seq, "at": now, "bytes": size, "is": self._home.version(self.fmm)}
        self._own.keep("shown", encode(shown).decode())

    def behind(self) -> str:
        """In which way `fmm.json` does not show what the log says; empty if it does."""
        found, head = self._own.note("shown"), self.log.head().seq
        shown = decode_record(found.encode()) if found else {}
        version, lines = self._home.version(self.fmm), head - int(shown.get("seq", 0))
        if head and not version:
            return "missing"
        if version and version != shown.get("is"):
            return "changed by another program"
        return f"{lines} lines behind" if lines > 0 else ""

    def close(self) -> None:
        """Bring the tree up to date unless that takes too long, and let go."""
        if self._changed and self._is_due():
            self.follow()
        for source in self._inherited or ():
            source.places.close()
            source.log.close()
        self._own.close()
        self.log.close()

    def _is_due(self) -> bool:
        found = self._own.note("shown")
        shown = decode_record(found.encode()) if found else {}
        if shown.get("is") != self._home.version(self.fmm):
            return True
        since = self._home.clock.boottime() - shown["at"]
        return shown["bytes"] <= _SMALL or not 0 <= since < shown["bytes"] * _A_BYTE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _data(source: Source, rows: Iterable[Row]) -> list[Datum]:
    lines = source.places.lines(rows)
    found = (entry_of(source.places.agent, line) for line in lines)
    return [each for each in found if isinstance(each, Datum)]


def tree(entries: Iterable[Entry]) -> Record:
    """The tree that `fmm.json` shows of what lines say."""
    data, gone, indexes = list[Datum](), dict[str, Forgotten](), dict[str, IvfNode]()
    for entry in entries:
        match entry:
            case Datum():
                data.append(entry)
            case Forgotten():
                gone |= dict.fromkeys(entry.ids, entry)
            case IvfNode():
                indexes[entry.topic.rpartition("/")[0]] = entry
            case Inherited():
                pass
    left = [datum for datum in data if datum.id not in gone]
    corrected = {datum.supersedes: datum.id for datum in left if datum.supersedes}
    grown: Record = {}
    if gone:
        counts = Counter(each.why for each in gone.values())
        latest = max(each.ts for each in gone.values())
        grown[DATA] = [{"ts": latest, "meta": {"left_out": dict(sorted(counts.items()))}}]
    for datum in left:
        shown = datum.shown(corrected.get(datum.id))
        node(grown, datum.topic).setdefault(DATA, []).append(shown)
    for each in indexes.values():
        node(grown, each.topic).update(each.fields)
    return grown

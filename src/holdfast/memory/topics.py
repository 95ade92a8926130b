"""The memory of an agent by topics: `topics.jsonl`, and `fmm.json` that shows it as a tree.

An add is one line of the log.  The tree follows at once while it is small, and as often as costs
little beside the work when it is large; what is read through here always comes from the log, by
the index.  A fork's memory goes on from the lines that its parent had at that moment; none is
copied into its log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple, Self

from holdfast.codec import MAX_DOCUMENT, Record, decode, decode_record, encode, pretty
from holdfast.contracts.fractal import node
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.ids import agent_id
from holdfast.layout import HOLDFAST, Part
from holdfast.memory.datum import Datum, agent_of, datum_line, datum_of, forget_line, index_line
from holdfast.memory.index import Index, lasting, open_index, some_of
from holdfast.memory.names import DATA, ROOT, is_under
from holdfast.memory.reading import GONE, IVF, PROPOSED, Reading
from holdfast.memory.sources import foreign_lines, is_foreign, topics_origin
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Log, Stamp

_VERSION = 1
_SMALL = 256 << 10
"""Bytes of an `fmm.json` that is brought up to date whenever a memory is closed."""
_PAUSE, _A_BYTE = 0.05, 4e-6
"""Seconds between two writings of it, and for each of its bytes."""
_AT_ONCE = 10_000
"""Ids in one line."""


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

    def __init__(
        self, home: Backend, key: Callable[[Part], str] | str, *, keep: bool = True
    ) -> None:
        """`key` names the files of an agent; or it is the name of one in a home of Holdfast's.

        Without `keep` nothing is written, not even an index.
        """
        if isinstance(key, str):
            name = agent_id(key).lower()
            log, shown = HOLDFAST.path("topics", name), HOLDFAST.path("fmm", name)
        else:
            log, shown = key("topics"), key("fmm")
        self._home, self._keep, self.fmm = home, keep, shown
        self.log: Log = home.log(log)
        self.agent = agent_of(log)
        self._acked = START
        self._changed = False
        self._next = home.clock.boottime() + _PAUSE
        self.stale: HoldfastError | None = None
        """Why `fmm.json` does not show the last lines, if it could not be written."""
        self.kept_aside: list[str] = []
        """Names under which hand-edited trees were kept."""

    @cached_property
    def index(self) -> Index:
        return open_index(self._home, keep=self._keep)

    def _current(self) -> str:
        """Where the data stand in the index, after every line of the log."""
        origin = topics_origin(self._home, self.log.key, self.fmm, self.agent.lower())
        self.index.check()
        Reading(self._home, self.index).follow(origin)
        return origin.key

    def now(self) -> float:
        return self._home.clock.now()

    # -- writing -----------------------------------------------------------------------

    def add(self, topic: str, text: str, *, proposed: bool = False, **known: Any) -> str:
        """Remember a datum; its id.  `known` as in `datum_line`.

        If it is `proposed` it is kept apart, and supersedes nothing, until it is accepted.
        """
        known.setdefault("ts", self.now())
        line = datum_line(topic, text, **known)
        return self.add_all([{**line, "event": "propose"} if proposed else line])[0]

    def add_all(self, lines: Sequence[Record]) -> list[str]:
        """Remember many data at once, each a `datum_line`; their ids."""
        corrected = {id for line in lines for id in datum_of("", line).supersedes}
        if missing := corrected - self.get(corrected).keys():
            raise NotFound(
                f"no such datum: {min(missing)[:80]}",
                hint=f"`holdfast memory show --agent {self.agent} --topic TOPIC` prints ids",
            )
        return [f"{self.agent}#{cursor.seq}" for cursor in self.append(lines)]

    def decide(self, ids: Iterable[str], *, accepted: bool, by: str) -> list[Datum]:
        """Make data of proposals, or drop them; the proposals."""
        waiting, wanted = {each.id: each for each in self.proposals()}, dict.fromkeys(ids)
        if missing := wanted.keys() - waiting.keys():
            raise NotFound(
                f"no proposal waits under {min(missing)[:80]}",
                hint=f"`holdfast memory show --agent {self.agent} --topic /` prints those that do",
            )
        line: Record = {"ts": self.now(), "event": "decide", "accepted": accepted, "by": by}
        self.append([{**line, "id": id} for id in wanted])
        return [waiting[id] for id in wanted]

    def forget(self, ids: Iterable[str], why: str = "asked") -> list[str]:
        """Take data out of the tree and out of search; the ids of those that were in it."""
        found = list(self.get(ids))
        self.append([forget_line(part, why, self.now()) for part in some_of(found, _AT_ONCE)])
        if found:
            self.show()
        return found

    def set_index(self, fields: Record) -> None:
        """Record what is known of an index: dim, K, nprobe, count and centroids.

        The newest one of each dimension is shown, so give long centroids as a text that names them.
        """
        known = [{**each, "ts": None} for each in self.indexes()]
        if {**fields, "ts": None} not in known:
            self.append([index_line(fields, self.now())])

    def append(self, lines: Sequence[Record]) -> list[Cursor]:
        """Write lines of `holdfast.memory.datum`, all or none."""
        if not lines:
            return []
        before = self._foreign()
        if len(lines) == 1 and not before:
            cursors = [self.log.append(lines[0])]
        else:
            cursors = self.log.append_all([*before, *lines])[len(before) :]
        self._acked, self._changed = cursors[-1], True
        if self._home.clock.boottime() >= self._next:
            self.follow()
        return cursors

    def _foreign(self) -> list[Record]:
        """What the tree of another system says, if this log is to begin with it."""
        if self._acked != START or self.log.head().seq or not is_foreign(self._home, self.fmm):
            return []
        found = self._home.document(self.fmm).read()
        lines = foreign_lines(found.data.decode("utf-8", "replace")) if found else []
        if lines is None:
            raise Corrupt(f"{self.fmm} is damaged, and no log of it exists", hint="move it away")
        return lines

    # -- reading -----------------------------------------------------------------------

    def under(self, topic: str = ROOT, newest: int | None = None) -> list[Datum]:
        """The data at and below a topic, oldest first; only the `newest` ones."""
        where, names = _below(topic)
        # The numbers stand in an index of topics; records are read of those that are wanted.
        numbers = f"SELECT number FROM texts WHERE origin=? AND {where} ORDER BY number DESC"
        query = f"SELECT id, record FROM texts WHERE number IN ({numbers} LIMIT ?) ORDER BY number"
        most = -1 if newest is None else newest
        rows = self._index_after(query, *names, most)
        return [datum_of(id, decode_record(record)) for id, record in rows]

    def get(self, ids: Iterable[str]) -> dict[str, Datum]:
        """The data with these ids, as far as they are in this memory and not forgotten."""
        found = dict[str, Datum]()
        for some in some_of(sorted(set(ids))):
            marks = ",".join("?" * len(some))
            query = f"SELECT id, record FROM texts WHERE origin=? AND id IN ({marks})"
            rows = self._index_after(f"{query} ORDER BY number", *some)
            found |= {id: datum_of(id, decode_record(record)) for id, record in rows}
        return found

    def proposals(self, topic: str = ROOT) -> list[Datum]:
        """What waits for a decision, oldest first."""
        found = [datum_of(id, record) for id, record in self._marks(PROPOSED).items()]
        return [datum for datum in found if is_under(datum.topic, topic)]

    def superseded(self) -> dict[str, str]:
        """The ids of data that were corrected, each with the id of the newest correction."""
        query = (
            "SELECT old, new FROM superseded JOIN texts ON texts.id = superseded.new"
            " WHERE origin=? AND superseded.agent = texts.agent ORDER BY number"
        )
        return dict(self._index_after(query))

    def topics(self, topic: str = ROOT) -> list[TopicCount]:
        """Each topic at and below one that has data, by name."""
        where, names = _below(topic)
        query = f"SELECT topic, COUNT(*), MAX(ts) FROM texts WHERE origin=? AND {where}"
        rows = self._index_after(f"{query} GROUP BY topic ORDER BY topic", *names)
        return [TopicCount(name, count, newest or 0.0) for name, count, newest in rows]

    def indexes(self) -> list[Record]:
        """What is known of the index of each dimension."""
        return [fields for _, fields in self._marks(IVF).values()]

    @lasting
    def _index_after(self, query: str, *values: object) -> list[Any]:
        """What the index answers to a query about this log."""
        origin = self._current()
        return self.index.db.execute(query, (origin, *values)).fetchall()

    def _marks(self, kind: str) -> dict[str, Any]:
        query = "SELECT name, value FROM marks WHERE origin=? AND kind=? ORDER BY rowid"
        return {name: decode(value) for name, value in self._index_after(query, kind)}

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

    @lasting
    def show(self) -> None:
        """Write `fmm.json` as the log says."""
        self._changed, data = False, pretty(self.tree())
        head = self.index.position(self.log.key)
        if not head.seq:
            return
        with closing(self._home.cell(self.fmm)) as cell:
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
        self.stale = None
        self._shown(head.seq, len(data))

    def tree(self) -> Record:
        """What `fmm.json` shows."""
        corrected, grown = self.superseded(), Record()
        if gone := self._marks(GONE):
            counts = Counter(why for why, _ in gone.values())
            latest = max(ts for _, ts in gone.values())
            grown[DATA] = [{"ts": latest, "meta": {"left_out": dict(sorted(counts.items()))}}]
        for datum in self.under():
            shown = datum.shown(corrected.get(datum.id))
            node(grown, datum.topic).setdefault(DATA, []).append(shown)
        for topic, fields in self._marks(IVF).values():
            node(grown, topic).update(fields)
        return grown

    def _shown(self, seq: int, size: int) -> None:
        now = self._home.clock.boottime()
        self._next = now + max(_PAUSE, size * _A_BYTE)
        shown = {"seq": seq, "at": now, "bytes": size, "is": self._home.version(self.fmm)}
        with self.index.writing():
            self.index.state(f"shown {self.fmm}", encode(shown).decode())

    @lasting
    def _last_shown(self) -> Record:
        found = self.index.fact(f"shown {self.fmm}")
        return decode_record(found.encode()) if found else {}

    def behind(self) -> str:
        """In which way `fmm.json` does not show what the log says; empty if it does."""
        shown, head = self._last_shown(), self.log.head().seq
        version, lines = self._home.version(self.fmm), head - int(shown.get("seq", 0))
        if head and not version:
            return "missing"
        if head and version != shown.get("is"):
            return "changed by another program"
        return f"{lines} {'line' if lines == 1 else 'lines'} behind" if lines > 0 else ""

    def close(self) -> None:
        """Bring the tree up to date unless that takes too long, and let go."""
        if self._changed and self._is_due():
            self.follow()
        if "index" in vars(self):
            self.index.close()
            del self.index
        self.log.close()

    def _is_due(self) -> bool:
        shown = self._last_shown()
        if shown.get("is") != self._home.version(self.fmm):
            return True
        since = self._home.clock.boottime() - shown["at"]
        return shown["bytes"] <= _SMALL or not 0 <= since < shown["bytes"] * _A_BYTE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _below(topic: str) -> tuple[str, tuple[str, ...]]:
    """A condition for the topics at and below one; `0` follows `/`."""
    if topic == ROOT:
        return "1", ()
    return "(topic = ? OR topic > ? AND topic < ?)", (topic, f"{topic}/", f"{topic}0")

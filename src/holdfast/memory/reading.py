"""Reads logs and files on into the index, from where it left off to their ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import islice

from holdfast.contracts.kind import object_of
from holdfast.memory.datum import Decided, Forgotten, Inherited, IvfNode, Proposed, datum_of
from holdfast.memory.index import Index
from holdfast.memory.sources import Origin, Text, text_of
from holdfast.state.inherited import lines_before
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, BadLine, Line

GONE, IVF, PROPOSED = "gone", "ivf", "proposed"
"""Kinds of marks: data that are forgotten, what is known of an index, proposals that wait."""
Origins = Callable[[Sequence[str] | None], Iterable[Origin]]
"""All that is read of these agents; of None, of all."""
Progress = Callable[[int, int], None] | None
_BATCH = 2_000


class Reading:
    def __init__(self, home: Backend, index: Index) -> None:
        self._home, self._index = home, index

    def read_on(
        self, origins: Origins, agents: Sequence[str] | None = None, progress: Progress = None
    ) -> int:
        """Take in what was written of these agents, or of all; how many lines and files."""
        self._index.check()
        scope = None if agents is None else [agent.lower() for agent in agents]
        current = list(origins(scope))
        known, count = self._index.versions(scope), 0
        for key in known.keys() - {each.key for each in current}:
            self._drop(key)
        for done, each in enumerate(current):
            if progress is not None:
                progress(done, len(current))
            count += self.follow(each, known.get(each.key, ""))
        return count

    def follow(self, origin: Origin, known: str | None = None) -> int:
        """Take in what is new in one log or file; `known` is the version that was read."""
        version = self._home.version(origin.key)
        known = self._index.versions().get(origin.key, "") if known is None else known
        if version == known:
            return 0
        if not version:
            self._drop(origin.key)
            return 1
        return (self._take_log if origin.reads else self._take_file)(origin, version)

    def _drop(self, key: str) -> None:
        with self._index.writing():
            self._index.drop_origin(key)

    def _take_file(self, origin: Origin, version: str) -> int:
        found = self._home.document(origin.key).read()
        text = self._home.mask(found.data.decode("utf-8", "replace")) if found else ""
        with self._index.writing():
            self._index.drop_origin(origin.key)
            self._index.add(origin.key, origin.texts(origin, text))
            self._index.reached(origin.key, origin.agent, version, START)
        return 1

    def _take_log(self, origin: Origin, version: str) -> int:
        """Read a log from where the index left off, in batches that are each one transaction."""
        count, ended, forgotten, index = 0, False, set[int](), self._index
        with closing(self._home.log(origin.key)) as log:
            while not ended:
                with index.writing():
                    at = index.position(origin.key)
                    if not log.contains(at):
                        # Another log stands there now, or its end was cut off.
                        index.drop_origin(origin.key)
                        at = START
                    lines = list(islice(log.read(at), _BATCH))
                    ended = len(lines) < _BATCH
                    forgotten |= self._take(origin, origin, lines, (origin.key,))
                    at = next((e.cursor for e in reversed(lines) if isinstance(e, Line)), at)
                    # Until the end is reached, the next look reads on.
                    index.reached(origin.key, origin.agent, version if ended else "", at)
                    count += len(lines)
        if forgotten:
            # Slow to import, and few logs forget.
            from holdfast.memory.vectors import drop  # noqa: PLC0415

            index.clean()
            drop(index, forgotten)
        return count

    def _take(
        self, origin: Origin, read: Origin, lines: Iterable[Line | BadLine], within: tuple[str, ...]
    ) -> set[int]:
        """Take in lines of the log `read` as part of `origin`; the numbers that they take out."""
        assert read.reads is not None
        index, waiting, gone = self._index, list[Text](), set[int]()
        for line in lines:
            if not isinstance(line, Line):
                continue
            place = line.seq or f"{line.segment}:{line.offset}"
            found = read.reads(read, f"{read.key}#{place}", line)
            if isinstance(found, Text):
                waiting.append(found)
                continue
            index.add(origin.key, waiting)
            waiting = []
            match found:
                case Forgotten(ids, why, ts):
                    gone.update(index.forget(origin.key, ids))
                    for id in ids:
                        index.mark(origin.key, GONE, id, [why, ts])
                case IvfNode(topic, fields):
                    index.mark(origin.key, IVF, topic.rpartition("/")[0], [topic, fields])
                case Proposed(id, record):
                    index.mark(origin.key, PROPOSED, id, record)
                case Decided(id, accepted, by):
                    record = object_of(index.unmark(origin.key, PROPOSED, id))
                    if record and accepted:
                        fields = {**object_of(record.get("fields")), "accepted_by": by}
                        record = {**record, "fields": fields}
                        index.add(origin.key, [text_of(origin.agent, datum_of(id, record), record)])
                case Inherited(key, last, known) if key not in within:
                    # A fork has its own copy here: what either forgets later, the other keeps.
                    before = lines_before(self._home, origin.key, key, last, known)
                    gone |= self._take(origin, read._replace(key=key), before, (*within, key))
                case _:
                    pass
        index.add(origin.key, waiting)
        return gone

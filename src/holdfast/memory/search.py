"""Finds what agents recorded: the index is read on to the head of every log, then asked.

Words lead (BM25 of each text and of its session), meaning is a second voice where an embedder is
installed.  Trust in the source, age, validity and corrections then change the order, and every hit
lists what its score is made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

from holdfast.layout import CACHE, HOLDFAST, Layout
from holdfast.memory.index import Index, Row
from holdfast.memory.rank import Columns, Wanted, bm25, columns
from holdfast.memory.sources import Forgotten, Origin, Text, markdown_texts, origins
from holdfast.memory.terms import terms
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Line

FOLDER = f"{CACHE}/memory"
OWN, GROUP = 1.0, 0.5
"""Weights of a text by itself, and of the session that it is a part of."""
TRUST = {"note": 1.05, "topic": 1.05, "summary": 1.0, "turn": 1.0, "ledger": 1.0, "job": 1.0}
"""What a note of an agent or a person counts more than what was only said; chunks count less."""
UNTRUSTED = 0.95
EXPIRED, CORRECTED = 0.5, 0.5
"""What is left of the score of a text that is no longer valid, or that another one corrects."""
_BATCH = 2000
_LOOKED_AT = 64
_DAY, _HOUR = 86_400.0, 3_600.0


class MemoryHit(NamedTuple):
    """One text that was found, and why."""

    id: str
    agent: str
    source: str
    topic: str
    session: str
    """The session, job or file that it is a part of."""
    ts: float | None
    text: str
    score: float
    parts: dict[str, float]
    """What the score is made of, by name."""
    superseded_by: str = ""


class Recency(NamedTuple):
    """How much age counts; with both at 0 it does not."""

    decay: float = 0.0
    """A text that is a day old keeps exp(-decay) of its score."""
    fresh: float = 0.0
    """The most that a new text gets in addition; half of it after one hour."""


NO_RECENCY = Recency()


class Recall:
    """Used by one thread at a time."""

    def __init__(self, home: Backend, layout: Layout = HOLDFAST, *, keep: bool = True) -> None:
        """Without `keep` nothing is written: the index is made anew in memory."""
        self._home, self._layout = home, layout
        self.index = Index(home.scratch(FOLDER) if keep else None)
        self._known: tuple[tuple[int, int], Columns] | None = None

    # -- reading on --------------------------------------------------------------------

    def read_on(
        self,
        agents: Sequence[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Index what was written since the last look; how many lines and files that were."""
        self.index.check()
        known = self.index.versions()
        scope = None if agents is None else [agent.lower() for agent in agents]
        current = {each.key: each for each in origins(self._home, self._layout, scope)}
        versions = {key: self._home.version(key) for key in current}
        gone = self.index.origins_of(scope) - {key for key, found in versions.items() if found}
        if gone:
            with self.index.writing():
                for key in gone:
                    self.index.drop_origin(key)
        changed = [key for key, found in versions.items() if found and known.get(key) != found]
        count = 0
        for done, key in enumerate(changed):
            if progress is not None:
                progress(done, len(changed))
            take = self._take_file if current[key].reads is None else self._take_log
            count += take(current[key], versions[key])
        return count

    def _take_file(self, origin: Origin, version: str) -> int:
        found = self._home.document(origin.key).read()
        text = self._home.mask(found.data.decode("utf-8", "replace")) if found else ""
        with self.index.writing():
            self.index.drop_origin(origin.key)
            self.index.add(origin.key, markdown_texts(origin, text))
            self.index.reached(origin.key, origin.agent, version, START)
        return 1

    def _take_log(self, origin: Origin, version: str) -> int:
        """Read a log from where the index left off, in batches that are each one transaction."""
        count, ended, forgot = 0, False, False
        log = self._home.log(origin.key)
        try:
            while not ended:
                with self.index.writing():
                    at = self.index.position(origin.key)
                    if not log.contains(at):
                        # Another log stands there now, or its end was cut off.
                        self.index.drop_origin(origin.key)
                        at = START
                    waiting: list[Text] = []
                    ended = True
                    for number, line in enumerate(log.read(at)):
                        if number == _BATCH:
                            ended = False
                            break
                        if not isinstance(line, Line):
                            continue
                        at = line.cursor
                        match self._read(origin, line):
                            case Text() as text if text.text.strip():
                                waiting.append(text)
                            case Forgotten() as what:
                                self.index.add(origin.key, waiting)
                                self.index.forget(origin.agent, what)
                                waiting, forgot = [], True
                            case _:
                                pass
                        count += 1
                    self.index.add(origin.key, waiting)
                    # Until the end is reached, the next look reads on.
                    self.index.reached(origin.key, origin.agent, version if ended else "", at)
        finally:
            log.close()
        if forgot:
            self.index.clean()
        return count

    def _read(self, origin: Origin, line: Line) -> Text | Forgotten | None:
        place = line.seq or f"{line.segment}:{line.offset}"
        assert origin.reads is not None
        return origin.reads(origin, f"{origin.key}#{place}", line)

    def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Make the index anew from all logs; vectors of texts that are still there are kept."""
        with self.index.writing():
            self.index.wipe()
        return self.read_on(None, progress)

    # -- searching ---------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        agents: Sequence[str] | None = None,
        k: int = 8,
        topic: str | None = None,
        sources: Sequence[str] = (),
        tags: Sequence[str] = (),
        since: float | None = None,
        before: float | None = None,
        recency: Recency = NO_RECENCY,
        by_session: bool = False,
    ) -> list[MemoryHit]:
        """The texts that answer a question best; of `agents`, or of all.

        With `by_session` each session, job or file brings its best text only.
        """
        self.read_on(agents)
        filters = [
            [f"\x01agent {agent.lower()}" for agent in agents or ()],
            [f"\x01source {source}" for source in sources],
            [f"\x01topic {topic.strip('/')}"] if topic else [],
            *([f"\x01tag {tag}"] for tag in tags),
        ]
        wanted = Wanted(tuple(tuple(each) for each in filters if each), since, before)
        if agents is not None and not agents:
            return []
        with self.index.reading():
            known = self._columns()
            found = bm25(self.index, known, terms(query), wanted)
            now = self._home.clock.now()
            scored: dict[int, dict[str, float]] = {}
            for number in found.numbers:
                scored[int(number)] = {
                    "words": OWN * float(found.own[number]),
                    "session": GROUP * float(found.groups[known.groups[number]]),
                }
            best = sorted(scored, key=lambda n: -sum(scored[n].values()))[: max(_LOOKED_AT, 4 * k)]
            rows = {row.number: row for row in self.index.rows(best)}
            hits = [self._hit(row, scored[number], recency, now) for number, row in rows.items()]
            return _best(self._corrected(hits, rows), k, by_session=by_session)

    def _columns(self) -> Columns:
        version = self.index.version()
        if self._known is None or self._known[0] != version:
            self._known = (version, columns(self.index))
        return self._known[1]

    def _hit(self, row: Row, parts: dict[str, float], recency: Recency, now: float) -> MemoryHit:
        score = sum(parts.values())
        parts = dict(parts)
        for name, factor in _factors(row, recency, now):
            parts[name] = factor
            score *= factor
        if recency.fresh and row.ts is not None:
            hours = max(0.0, now - row.ts) / _HOUR
            parts["fresh"] = recency.fresh / (1 + math.exp(min(700.0, hours - 1)))
            score += parts["fresh"]
        return _hit_of(row, score, parts)

    def _corrected(self, hits: list[MemoryHit], rows: dict[int, Row]) -> list[MemoryHit]:
        """A correction stands above what it corrects, and comes with it if it was not found."""
        known = {(hit.agent, hit.id): hit for hit in hits}
        waiting, below = list(rows.values()), dict[tuple[str, str], tuple[str, str]]()
        while waiting:
            row = waiting.pop()
            key = (row.agent, row.id)
            for new in self.index.successors(row)[-1:]:
                other = (new.agent, new.id)
                if other == key or key in below or _leads(below, other, key):
                    continue
                below[key] = other
                old = known[key]
                if other not in known:
                    waiting.append(new)
                    known[other] = _hit_of(new, 0.0, {})
                if known[other].score < old.score:
                    lifted = old.score - known[other].score
                    parts = {**known[other].parts, "corrects": lifted}
                    known[other] = known[other]._replace(score=old.score, parts=parts)
        for key in sorted(below, key=lambda each: len(_chain(below, each))):
            new = known[below[key]]
            least = min(known[key].score * CORRECTED, new.score * 0.99)
            parts = {**known[key].parts, "superseded": CORRECTED}
            known[key] = known[key]._replace(score=least, parts=parts, superseded_by=new.id)
        return list(known.values())

    def close(self) -> None:
        self.index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- pure -----------------------------------------------------------------------------------


def _hit_of(row: Row, score: float, parts: dict[str, float]) -> MemoryHit:
    return MemoryHit(
        row.id, row.agent, row.source, row.topic, row.group, row.ts, row.text, score, parts
    )


def _factors(row: Row, recency: Recency, now: float) -> Iterator[tuple[str, float]]:
    trust = TRUST.get(row.source, UNTRUSTED)
    if trust != 1.0:
        yield "trust", trust
    if row.until is not None and row.until <= now:
        yield "expired", EXPIRED
    if recency.decay and row.ts is not None:
        yield "decay", math.exp(-recency.decay * max(0.0, now - row.ts) / _DAY)


def _chain(below: dict[Any, Any], key: object) -> list[object]:
    """What corrects a text, what corrects that, and so on."""
    found: list[object] = []
    while (key := below.get(key)) is not None:
        found.append(key)
    return found


def _leads(below: dict[Any, Any], key: object, to: object) -> bool:
    return to in _chain(below, key)


def _best(hits: list[MemoryHit], k: int, *, by_session: bool) -> list[MemoryHit]:
    """The best hits, each text once; with `by_session`, each session once."""
    chosen: list[MemoryHit] = []
    seen: set[tuple[str, str]] = set()
    for hit in sorted(hits, key=lambda each: (-each.score, -(each.ts or 0.0), each.agent, each.id)):
        key = (hit.agent, hit.session if by_session else " ".join(hit.text.lower().split()))
        if key not in seen and len(chosen) < k:
            seen.add(key)
            chosen.append(hit)
    return chosen

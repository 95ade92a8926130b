"""Finds what agents recorded: the index is read on to the head of every log, then asked.

Words lead (BM25 of each text and of its session), meaning is a second voice where an embedder is
installed.  Trust in the source, age, validity and corrections then change the order, and every hit
lists what its score is made of.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from holdfast.codec import Record, decode_record
from holdfast.errors import ModelError
from holdfast.memory.index import FOLDER, Index, lasting, open_index
from holdfast.memory.rank import allowed, best_by_words, bm25, chosen_terms, columns
from holdfast.memory.reading import Origins, Progress, Reading
from holdfast.memory.sources import Text
from holdfast.memory.terms import terms
from holdfast.memory.vectors import Embedder, Vectors, build
from holdfast.store.backend import Backend

GROUP = 0.5
"""The weight of the session that a text is a part of; that of the text itself is 1."""
TRUST = {"note": 1.05, "topic": 1.05, "chunk": 0.95}
"""A note of an agent or a person counts more than what was only said; a piece of a file less."""
EXPIRED, CORRECTED = 0.5, 0.5
"""What is left of the score of a text that is no longer valid, or that another one corrects."""
NEAR = 0.3
"""The least cosine at which a text is found that shares no word with the question."""
PATIENCE = 2.0
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
    reported_by: str = ""
    """Where a datum says that it comes from: a session, a file, a person."""


class Recency(NamedTuple):
    """How much age counts; with both at 0 it does not."""

    decay: float = 0.0
    """A text that is a day old keeps exp(-decay) of its score."""
    fresh: float = 0.0
    """The most that a new text gets in addition; half of it after one hour."""


class Filters(NamedTuple):
    """Which texts may be found; an empty one leaves all."""

    topic: str = ""
    """This topic and those below it."""
    sources: Sequence[str] = ()
    tags: Sequence[str] = ()
    """All of them."""
    since: float | None = None
    before: float | None = None


ALL = Filters()


class Recall:
    """Used by one thread at a time."""

    def __init__(
        self,
        home: Backend,
        origins: Origins,
        *,
        keep: bool = True,
        embedder: Callable[[], Embedder | None] = lambda: None,
    ) -> None:
        """Without `keep` nothing is written: the index is built in memory.

        `embedder` is asked once for the second voice, when it is needed; None is words only.
        """
        self._home, self._origins, self._embedder = home, origins, embedder
        self.index = open_index(home, keep=keep)
        self.warnings: list[str] = []
        """What the last search could not do."""

    @cached_property
    def vectors(self) -> Vectors | None:
        embedder = self._embedder()
        return Vectors(self.index, embedder, self._home.clock) if embedder is not None else None

    # -- reading on --------------------------------------------------------------------

    @lasting
    def read_on(self, agents: Sequence[str] | None = None, progress: Progress = None) -> int:
        """Index what was written since the last look; how many lines and files that were."""
        count = Reading(self._home, self.index).read_on(self._origins, agents, progress)
        self.index.count()
        return count

    @lasting
    def reindex(self, progress: Progress = None) -> int:
        """Rebuild the index from all logs; vectors of texts that are still there are kept."""
        if self.index.folder is None:
            # A search makes do with an index in memory; this would be gone when it returns.
            self.index = Index(self._home.scratch(FOLDER))
        with self.index.writing():
            self.index.wipe()
        return self.read_on(None, progress)

    @lasting
    def build(self, progress: Progress = None) -> dict[str, Record]:
        """Give every text its vector and FAISS its file; what is known of it, for each agent."""
        if self.vectors is None:
            return {}
        self.vectors.catch_up(None, None, progress)
        with self.index.writing() as db:
            db.execute("DELETE FROM vectors WHERE number < 0")
        ivf = build(self.index, self.vectors.embedder.name) if self.index.folder else None
        if ivf is None:
            return {}
        known: Record = {name: getattr(ivf, name) for name in ("dim", "K", "nprobe", "centroids")}
        query = "SELECT agent, COUNT(*) FROM vectors JOIN texts USING(number) GROUP BY agent"
        return {
            agent: {**known, "count": count, "embedder": ivf.embedder}
            for agent, count in self.index.db.execute(query)
            if agent
        }

    # -- searching ---------------------------------------------------------------------

    @lasting
    def search(
        self,
        query: str,
        *,
        agents: Sequence[str] | None = None,
        k: int = 8,
        filters: Filters = ALL,
        recency: Recency | None = None,
        diversity: float = 0.0,
        by_session: bool = False,
        patience: float | None = PATIENCE,
        progress: Progress = None,
    ) -> list[MemoryHit]:
        """The texts that answer a question best; of `agents`, or of all.

        With `by_session` each session, job or file brings its best text only; `diversity`, up to
        1, takes from a hit what it repeats of better ones.  Texts that are not embedded after
        `patience` seconds are found by their words only.
        """
        self.warnings = []
        if agents is not None and not agents:
            return []
        self.read_on(agents, progress)
        vector = self._meaning_of(query, agents, patience, progress)
        recency = recency or Recency(*self._home.settings.recency)
        with self.index.reading():
            scored = self._scored(query, vector, agents, filters, max(_LOOKED_AT, 4 * k))
            rows = {row.number: row for row in self.index.texts(list(scored))}
            now = self._home.clock.now()
            hits = [_hit(row, scored[number], recency, now) for number, row in rows.items()]
            hits = self._corrected(hits, rows)
        if vector is not None and self.vectors and self.vectors.is_due():
            self.vectors.build_beside()
        return _best(hits, k, diversity, by_session=by_session)

    def _meaning_of(
        self,
        query: str,
        agents: Sequence[str] | None,
        patience: float | None,
        progress: Progress,
    ) -> array[float] | None:
        """The vector of a question, after the texts have theirs."""
        if not self.index.size() or (vectors := self.vectors) is None:
            return None
        try:
            if left := vectors.catch_up(agents, patience, progress):
                self.warnings.append(
                    f"{left} texts are not embedded yet: they are found by their words only"
                )
            return vectors.embedder.embed([query])[0]
        except ModelError as error:
            self.warnings.append(f"searched by words only: {error.message}")
            return None

    def _scored(
        self,
        query: str,
        vector: array[float] | None,
        agents: Sequence[str] | None,
        filters: Filters,
        most: int,
    ) -> dict[int, dict[str, float]]:
        """The best texts by words and by meaning, with the parts of their scores."""
        known, wanted = columns(self.index), _wanted(agents, filters)
        chosen = chosen_terms(self.index, terms(query))
        postings = self.index.postings(chosen + [each for some in wanted for each in some])
        mask = allowed(known, postings, wanted, filters.since, filters.before)
        own, groups = bm25(known, {term: postings[term] for term in chosen}, mask)
        numbers = best_by_words(own, own + GROUP * groups, most)
        near: dict[int, float] = {}
        if vector is not None and self.vectors is not None:
            asked = np.frombuffer(vector, np.float32)
            nearest = self.vectors.nearest(asked, mask, most)
            near = {number: cosine for number, cosine in nearest.items() if cosine >= NEAR}
            near |= self.vectors.cosines(asked, [n for n in numbers if n not in near])
        scored: dict[int, dict[str, float]] = {}
        for number in {*numbers, *near}:
            parts = {"words": float(own[number]), "session": GROUP * float(groups[number])}
            if self.vectors is not None and number in near:
                parts["meaning"] = self.vectors.embedder.weight * max(0.0, near[number])
            scored[number] = parts
        return scored

    def _corrected(self, hits: list[MemoryHit], rows: dict[int, Text]) -> list[MemoryHit]:
        """A correction stands above what it corrects, and comes with it if it was not found."""
        known = {(hit.agent, hit.id): hit for hit in hits}
        waiting, below = list(rows.values()), dict[tuple[str, str], tuple[str, str]]()
        while waiting:
            row = waiting.pop()
            key = (row.agent, row.id)
            for new in self.index.successors(row)[-1:]:
                other = (new.agent, new.id)
                if other == key or key in below or key in _chain(below, other):
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


def _wanted(agents: Sequence[str] | None, filters: Filters) -> list[list[str]]:
    """Terms of the index, of which a text has to have one of each."""
    topic = filters.topic.strip("/")
    some = [
        [f"\x01agent {agent.lower()}" for agent in agents or ()],
        [f"\x01source {source}" for source in filters.sources],
        [f"\x01topic {topic}"] if topic else [],
        *([f"\x01tag {tag}"] for tag in filters.tags),
    ]
    return [each for each in some if each]


def _hit(row: Text, parts: dict[str, float], recency: Recency, now: float) -> MemoryHit:
    age = 0.0 if row.ts is None else max(0.0, now - row.ts)
    factors = {
        "trust": TRUST.get(row.source, 1.0),
        "expired": EXPIRED if row.until is not None and row.until <= now else 1.0,
        "decay": math.exp(-recency.decay * age / _DAY),
    }
    factors = {name: factor for name, factor in factors.items() if factor != 1.0}
    score = sum(parts.values()) * math.prod(factors.values())
    if recency.fresh and row.ts is not None:
        factors["fresh"] = recency.fresh / (1 + math.exp(min(700.0, age / _HOUR - 1)))
        score += factors["fresh"]
    return _hit_of(row, score, {**parts, **factors})


def _hit_of(row: Text, score: float, parts: dict[str, float]) -> MemoryHit:
    by = str(decode_record(row.record).get("source") or "") if row.record else ""
    place = (row.id, row.agent, row.source, row.topic, row.group, row.ts, row.text)
    return MemoryHit(*place, score, parts, reported_by=by)


def _chain(below: dict[Any, Any], key: object) -> list[object]:
    """What corrects a text, what corrects that, and so on."""
    found: list[object] = []
    while (key := below.get(key)) is not None:
        found.append(key)
    return found


def _best(hits: list[MemoryHit], k: int, diversity: float, *, by_session: bool) -> list[MemoryHit]:
    """The best hits, each text once; with `by_session`, each session once."""
    left: list[MemoryHit] = []
    seen: set[tuple[str, str]] = set()
    for hit in sorted(hits, key=_order):
        key = (hit.agent, hit.session if by_session else " ".join(hit.text.lower().split()))
        if key not in seen:
            seen.add(key)
            left.append(hit)
    if not diversity:
        return left[:k]
    words = {hit.id: frozenset(terms(hit.text)) for hit in left}
    chosen: list[MemoryHit] = []
    repeated = dict.fromkeys(words, 0.0)
    while left and len(chosen) < k:
        # Maximal marginal relevance: what a better hit says already counts less.
        best = min(left, key=lambda hit: hit.score * (diversity * repeated[hit.id] - 1))
        left.remove(best)
        less = best.score * diversity * repeated[best.id]
        parts = {**best.parts, "repeats": -less} if less else best.parts
        chosen.append(best._replace(score=best.score - less, parts=parts))
        for hit in left:
            both = words[best.id] | words[hit.id]
            alike = len(words[best.id] & words[hit.id]) / len(both) if both else 0.0
            repeated[hit.id] = max(repeated[hit.id], alike)
    return chosen


def _order(hit: MemoryHit) -> tuple[float, float, str, str]:
    return (-hit.score, -(hit.ts or 0.0), hit.agent, hit.id)

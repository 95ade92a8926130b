"""What a search finds: facts in 200 sessions of agents, docstrings by name, facts that change.

No model answers anything here: a question counts by where the text that says it stands in the list.
Beside it, over the same texts: grep (lines by how many words of the question they have), SQLite's
FTS5, MiniLM alone, and chance.  The weight of meaning was chosen on every second question; the
others are judged.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench import days, texts
from bench.days import KINDS, Asked, Said
from bench.frame import Bar, Outcome, Setup, rounded, significant
from bench.material import home_in
from bench.retrieval import Given
from holdfast.agents.recall import open_recall
from holdfast.memory.datum import datum_line
from holdfast.memory.search import Recall, Recency
from holdfast.memory.terms import STOP
from holdfast.memory.topics import Topics
from holdfast.memory.vectors import Embedder
from holdfast.models.embedders import open_embedder
from holdfast.store.home import Home

DEEP = 10
DOCSTRINGS, CHANGES, DRAWN = 804, 200, 10_000
LEAST_CURRENT = 0.95
WEIGHTS = (0.0, 0.25, 0.5, 1.0)
Ask = Callable[[Asked], list[str]]


class Score(NamedTuple):
    """Means over questions."""

    recall_5: float
    recall_10: float
    ndcg_10: float


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    embedder = open_embedder("hash" if setup.quick else "minilm")
    facts(setup, outcome, embedder)
    docstrings(setup, outcome, embedder)
    changes(setup, outcome, embedder)
    return outcome


def vectors(embedder: Embedder, some: Iterable[str]) -> dict[str, Any]:
    """Of each text its vector, from the cache where it was made before."""
    distinct = sorted(set(some))
    if embedder.name.startswith("hash"):
        made = [np.array(each, np.float32) for each in embedder.embed(distinct)]
    else:
        made = texts.vectors(distinct, "minilm", embedder.embed)
    return dict(zip(distinct, made, strict=True))


# --- facts in days of agents ----------------------------------------------------------------


def facts(setup: Setup, outcome: Outcome, embedder: Embedder) -> None:
    place = setup.scratch / "days"
    with home_in(place) as home:
        made = days.write(home, setup)
        everything = (*made.said, *made.asked, *made.forgotten)
        known = vectors(embedder, [each.text for each in everything])
        answered = [each for each in made.asked if each.evidence]
        chosen, judged = answered[0::2], answered[1::2]
        given = Given(embedder, known)
        with open_recall(home, embedder=lambda: given) as recall:
            recall.search(answered[0].text, patience=None)

            def ours(question: Asked) -> list[str]:
                agents = [question.agent] if question.agent else None
                hits = recall.search(question.text, agents=agents, k=DEEP, patience=None)
                return [hit.id for hit in hits]

            asks = {"holdfast": ours, **peers(setup, made.said, known)}
            updates = [each for each in answered if each.stale]
            never = [each for each in made.asked if not each.evidence]
            rows = {name: judge(ask, judged) for name, ask in asks.items()}
            kinds = {kind: [each for each in judged if each.kind == kind] for kind in KINDS}
            of_kinds = {kind: judge(ours, some) for kind, some in kinds.items() if some}
            stale = {name: stale_above(ask, updates) for name, ask in asks.items()}
            leaks = {name: leaked(ask, made.forgotten) for name, ask in asks.items()}
            took = {name: microseconds(ask, judged[:100]) for name, ask in asks.items()}
            sure = told_apart(recall, judged, never)
            tried = dict[str, list[float]]()
            for given.weight in WEIGHTS:
                tried[str(given.weight)] = [judge(ours, some).ndcg_10 for some in (chosen, judged)]
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    by_grep = judge(asks["grep"], [each for each in judged if each.other_words])
    outcome.numbers["facts"] = {
        "sessions": made.sessions,
        "texts": len(made.said),
        "questions": {"judged": len(judged), "of_updates": len(updates), "never": len(never)},
        "in_other_words": significant(statistics.mean(each.other_words for each in answered)),
        "grep_recall_10_in_other_words": by_grep.recall_10,
        "judged": {name: row._asdict() for name, row in rows.items()},
        "holdfast_by_kind": {kind: row._asdict() for kind, row in of_kinds.items()},
        "stale_above_new": stale,
        "forgotten_shown": leaks,
        "never_happened_told_apart": sure,
        "microseconds_without_embedding": took,
        "ndcg_10_by_weight_of_meaning": tried,
        "bytes_a_text": round(size / len(made.said)),
    }
    mine, best = rows["holdfast"], max(rows[name].recall_5 for name in rows if name != "holdfast")
    what = f"{len(judged)} questions about {made.sessions} sessions: R@5"
    outcome.bars += [
        Bar(f"{what}, against the best of the others", mine.recall_5 / best, ">=", 1.0, "×"),
        Bar(f"{len(updates)} corrected facts: stale above new", stale["holdfast"], "==", 0),
        Bar(f"{len(made.forgotten)} forgotten facts: shown", leaks["holdfast"], "==", 0),
    ]


def judge(ask: Ask, some: Sequence[Asked]) -> Score:
    fives, tens, gains = list[float](), list[float](), list[float]()
    for question in some:
        found, wanted = ask(question)[:DEEP], set(question.evidence)
        fives.append(len(wanted.intersection(found[:5])) / len(wanted))
        tens.append(len(wanted.intersection(found)) / len(wanted))
        gains.append(ndcg(found, wanted))
    return Score(*(significant(statistics.mean(each)) for each in (fives, tens, gains)))


def ndcg(found: Sequence[str], wanted: set[str]) -> float:
    gain = sum(1 / math.log2(at + 2) for at, id in enumerate(found[:DEEP]) if id in wanted)
    return gain / sum(1 / math.log2(at + 2) for at in range(min(DEEP, len(wanted))))


def stale_above(ask: Ask, some: Sequence[Asked]) -> int:
    """How often what was corrected stands above its correction, or without it."""
    count = 0
    for question in some:
        found = ask(question)
        places = [found.index(id) if id in found else DEEP for id in question.evidence]
        count += any(id in found and found.index(id) < min(places) for id in question.stale)
    return count


def leaked(ask: Ask, some: Sequence[Asked]) -> int:
    return sum(question.evidence[0] in ask(question) for question in some)


def microseconds(ask: Ask, some: Sequence[Asked]) -> float:
    began = time.process_time()
    for question in some:
        ask(question)
    return significant((time.process_time() - began) / len(some) * 1e6)


def told_apart(recall: Recall, answered: Sequence[Asked], never: Sequence[Asked]) -> float:
    """How often the best score of a question with an answer is above that of one with none."""

    def best(question: Asked) -> float:
        hits = recall.search(question.text, agents=[question.agent] if question.agent else None)
        return hits[0].score if hits else 0.0

    with_answer, without = [[best(each) for each in some] for some in (answered, never)]
    return significant(
        statistics.mean(a > b for a in with_answer for b in without) if without else 0.0
    )


# --- what they are compared with ------------------------------------------------------------


def peers(setup: Setup, said: Sequence[Said], known: dict[str, Any]) -> dict[str, Ask]:
    """Each lists the ids of all that was written, of the agent that is meant."""
    lowered = [each.text.lower() for each in said]
    owners = np.array([each.agent for each in said])
    matrix = np.array([known[each.text] for each in said])
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE said USING fts5(text, agent UNINDEXED, tokenize=porter)")
    rows = ((at, each.text, each.agent) for at, each in enumerate(said))
    db.executemany("INSERT INTO said(rowid, text, agent) VALUES(?,?,?)", rows)
    rng = setup.rng("chance")

    def of(question: Asked) -> list[int]:
        whole = range(len(said))
        return [at for at in whole if not question.agent or owners[at] == question.agent]

    def ids(places: Iterable[int]) -> list[str]:
        return [said[int(at)].id for at in places][:DEEP]

    def grep(question: Asked) -> list[str]:
        words = {each.strip("?.,") for each in question.text.lower().split()} - STOP
        hits = {at: sum(word in lowered[at] for word in words) for at in of(question)}
        return ids(sorted((at for at in hits if hits[at]), key=lambda at: (-hits[at], at)))

    def fts5(question: Asked) -> list[str]:
        words = " OR ".join(f'"{each.strip("?.,")}"' for each in question.text.lower().split())
        where = "AND agent=?" if question.agent else "AND agent>=?"
        query = f"SELECT rowid FROM said WHERE said MATCH ? {where} ORDER BY rank LIMIT {DEEP}"
        return ids(row[0] for row in db.execute(query, (words, question.agent)))

    def minilm(question: Asked) -> list[str]:
        mask = owners == question.agent if question.agent else np.ones(len(said), bool)
        scores = np.where(mask, matrix @ known[question.text], -2.0)
        return ids(np.argsort(-scores, kind="stable")[:DEEP])

    def chance(question: Asked) -> list[str]:
        return ids(rng.sample(of(question), DEEP))

    return {"grep": grep, "fts5": fts5, "minilm_alone": minilm, "chance": chance}


# --- docstrings -----------------------------------------------------------------------------


def docstrings(setup: Setup, outcome: Outcome, embedder: Embedder) -> None:
    """Find the docstring of a function by the names of module and function."""
    found = texts.docstrings()
    found = setup.rng("docstrings").sample(found, min(len(found), int(setup.pick(DOCSTRINGS, 60))))
    with home_in(setup.scratch / "docstrings") as home:
        known = vectors(embedder, [each for pair in found for each in pair])
        ids = remember(home, [text for _, text in found])
        given, gains = Given(embedder, known), dict[float, list[float]]()
        with open_recall(home, embedder=lambda: given) as recall:
            for given.weight in (embedder.weight, 0.0):
                gains[given.weight] = [
                    ndcg([hit.id for hit in recall.search(name, k=DEEP, patience=None)], {id})
                    for (name, _), id in zip(found, ids, strict=True)
                ]
    more = np.array(gains[embedder.weight]) - np.array(gains[0.0])
    drawn = np.random.default_rng(setup.seed).choice(more, (DRAWN, len(more))).mean(axis=1)
    low, high = np.percentile(drawn, (2.5, 97.5))
    outcome.numbers["docstrings"] = {
        "count": len(found),
        "ndcg_10_words": significant(statistics.mean(gains[0.0])),
        "ndcg_10_words_and_meaning": significant(statistics.mean(gains[embedder.weight])),
        "difference": significant(float(more.mean())),
        "interval_95": rounded([float(low), float(high)]),
    }
    if not setup.quick:
        what = f"{len(found)} docstrings: nDCG@10 gained by meaning, lower end of 95 %"
        outcome.bars.append(Bar(what, float(low), ">=", 0.0))


def remember(home: Home, some: Sequence[str]) -> list[str]:
    with Topics(home, "rio") as topics:
        lines = [datum_line("docs", each, ts=home.clock.now()) for each in some]
        return topics.add_all(lines)


# --- facts that change ----------------------------------------------------------------------


def changes(setup: Setup, outcome: Outcome, embedder: Embedder) -> None:
    """Each fact is said three to five times with another value, ten days apart."""
    rng, count = setup.rng("changes"), int(setup.pick(CHANGES, 20))
    histories = list[tuple[str, list[str]]]()
    slots = [(w, t, a) for t in days.THINGS for w in days.CHANGING for a in ("north", "south")]
    for wording, (thing, _), side in rng.sample(slots, min(count, len(slots))):
        values = rng.sample(range(100, 999), rng.randrange(3, 6))
        name = f"{side} {thing}"
        said = [wording.said.format(e=name, v=value) for value in values]
        histories.append((wording.same.format(e=name), said))
    known = vectors(embedder, [each for question, said in histories for each in (question, *said)])
    shares = dict[str, float]()
    for way in ("supersedes", "decay"):
        with home_in(setup.scratch / way) as home:
            newest, of = list[str](), dict[str, str]()
            with Topics(home, "rio") as topics:
                now = home.clock.now()
                for _, said in histories:
                    id: str | None = None
                    for at, text in enumerate(said):
                        ts = now - (len(said) - at) * 10 * days.DAY
                        before = id if way == "supersedes" else None
                        id = topics.add("facts", text, ts=ts, supersedes=before)
                        of[id] = text
                    newest.append(str(id))
            recency = Recency() if way == "supersedes" else Recency(decay=0.05)
            with open_recall(home, embedder=partial(Given, embedder, known)) as recall:
                first = [
                    recall.search(question, k=1, recency=recency, patience=None)[0].id
                    for question, _ in histories
                ]
            right = [a == b for a, b in zip(first, newest, strict=True)]
            shares[way] = significant(statistics.mean(right))
            matrix, order = np.array([known[of[id]] for id in of]), list(of)
            plain = [order[int(np.argmax(matrix @ known[question]))] for question, _ in histories]
            shares["vectors_alone"] = significant(
                statistics.mean(a == b for a, b in zip(plain, newest, strict=True))
            )
    outcome.numbers["changes"] = {"facts": len(histories), "current_first": shares}
    what = f"{len(histories)} facts that change: the current answer first"
    for way in ("supersedes", "decay"):
        outcome.bars.append(Bar(f"{what}, by {way}", shares[way], ">=", LEAST_CURRENT))

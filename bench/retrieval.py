"""Search in 100,000 paragraphs of real text, beside FAISS alone, sqlite-vec and mem0.

The vectors are MiniLM's, made once by this machine and kept outside of the checkout; with `--quick`
few texts and hashed words.  What is timed begins with the vector of the question: to make it takes
the same everywhere.  200 paragraphs that are not in the index are the questions.

The peers are those in `~/.cache/holdfast-bench/peers`:

    pip install --target ~/.cache/holdfast-bench/peers sqlite-vec apsw mem0ai
"""

from __future__ import annotations

import importlib
import statistics
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import texts
from bench.frame import Absent, Bar, Outcome, Setup, percentile, seconds_of, significant
from bench.material import home_in
from holdfast.agents.recall import open_recall
from holdfast.memory.datum import datum_line
from holdfast.memory.rank import columns
from holdfast.memory.search import Recall
from holdfast.memory.topics import Topics
from holdfast.memory.vectors import Embedder, Vectors, build
from holdfast.models.embedders import open_embedder

COUNT, QUICK_COUNT = 100_000, 6_000
QUESTIONS, QUICK_QUESTIONS = 200, 20
BEST = 10
MOST_MS, MOST_BUILD, MOST_ADD_MS, LEAST_RECALL = 10.0, 15.0, 20.0, 0.95
_AT_ONCE = 1_000
LETTA = (
    "the `letta` on PyPI is a program around a model, which looks through its files by itself; "
    "there is no search without a model"
)


class Given:
    """Vectors that were made before, by their texts."""

    weight = 0.5

    def __init__(self, embedder: Embedder, made: dict[str, Any]) -> None:
        self.name, self._made, self._embedder = embedder.name, made, embedder

    def embed(self, some: Sequence[str], /) -> list[array[float]]:
        # A text in which something was masked as a secret is another text.
        return [
            array("f", self._made[each].tobytes())
            if each in self._made
            else self._embedder.embed([each])[0]
            for each in some
        ]


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    count = int(setup.pick(COUNT, QUICK_COUNT))
    asked = int(setup.pick(QUESTIONS, QUICK_QUESTIONS))
    embedder = open_embedder("hash:384" if setup.quick else "minilm")
    said = texts.paragraphs(count + asked + 50)
    matrix = (
        np.array([list(each) for each in embedder.embed(said)], np.float32)
        if setup.quick
        else texts.vectors(said, "minilm", embedder.embed)
    )
    stored, vectors = said[:count], matrix[:count]
    questions = list(zip(said[count : count + asked], matrix[count : count + asked], strict=True))
    exact = [set(np.argsort(-(vectors @ vector))[:BEST].tolist()) for _, vector in questions]
    made = dict(zip(said, matrix, strict=True))
    numbers: dict[str, Any] = {
        "texts": count,
        "characters": sum(map(len, stored)),
        "vectors": f"{embedder.name}, {matrix.shape[1]} numbers",
        "questions": asked,
    }
    with home_in(setup.scratch / "home") as home, Topics(home, "rio") as topics:
        for start in range(0, count, _AT_ONCE):
            some = stored[start : start + _AT_ONCE]
            topics.add_all([datum_line("texts", each, ts=home.clock.now()) for each in some])
        given = Given(embedder, made)
        with open_recall(home, embedder=lambda: given) as recall:
            assert recall.vectors is not None
            ours: Vectors = recall.vectors
            for name, work in (
                ("words", recall.read_on),
                ("vectors_kept", lambda: ours.catch_up(None)),
                ("faiss_built", lambda: build(recall.index, given.name)),
            ):
                spent = time.process_time()
                numbers[f"s_{name}"] = seconds_of(work)
                numbers[f"cpu_s_{name}"] = time.process_time() - spent
            recall.search(questions[0][0])  # loads FAISS's file
            timed = [seconds_of(lambda q=text: recall.search(q, k=BEST)) for text, _ in questions]
            everything = columns(recall.index)["length"] > 0
            first = recall.index.db.execute("SELECT MIN(number) FROM texts").fetchone()[0]
            near = [ours.nearest(vector, everything, BEST) for _, vector in questions]
            recalls = [
                len({number - first for number in found} & best) / BEST
                for found, best in zip(near, exact, strict=True)
            ]
            alone = [
                seconds_of(lambda v=vector: ours.nearest(v, everything, BEST))
                for _, vector in questions
            ]
            spent = time.process_time()
            for text, _ in questions:
                recall.search(text, k=BEST)
            spent = time.process_time() - spent
            added = [add_one(topics, recall, text) for text in said[count + asked :]]
        numbers |= {
            "ms_search": ms(timed),
            "ms_search_cpu": significant(spent / asked * 1e3),
            "ms_vectors_alone": ms(alone),
            "ms_search_p95": significant(percentile(timed, 0.95) * 1e3),
            "ms_added": ms([wall for wall, _ in added]),
            "ms_added_cpu": ms([cpu for _, cpu in added]),
            "ms_added_cpu_most": significant(max(cpu for _, cpu in added) * 1e3),
            "recall": significant(statistics.mean(recalls)),
        }
    peers(setup, outcome, numbers, vectors, questions, exact)
    outcome.numbers = {
        name: significant(value) if isinstance(value, float) else value
        for name, value in numbers.items()
    }
    what = f"{count:,} texts"
    took = numbers["cpu_s_vectors_kept"] + numbers["cpu_s_faiss_built"]
    least = LEAST_RECALL if not setup.quick else 0.0
    outcome.bars += [
        Bar(f"{what}: recall@10 against exact search", numbers["recall"], ">=", least),
        _bar(f"{what}: a search after its embedding", numbers["ms_search_cpu"], MOST_MS, "ms"),
        _bar(f"{what}: an index from given vectors", took, MOST_BUILD, "s"),
        _bar(f"{what}: a datum added and found", numbers["ms_added_cpu"], MOST_ADD_MS, "ms"),
    ]
    return outcome


def _bar(what: str, value: float, most: float, unit: str) -> Bar:
    """Of one thread its processor time is what it takes where nothing else runs."""
    return Bar(f"{what}: processor time", value, "<=", most, unit, timed=True, alone=True)


def ms(seconds: Sequence[float]) -> float:
    return significant(statistics.median(seconds) * 1e3)


def add_one(topics: Topics, recall: Recall, text: str) -> tuple[float, float]:
    """Seconds, and seconds of processor time, until a new datum is in the log and in the index.

    Once in a while one of them writes `fmm.json` too.
    """
    started, cpu = time.perf_counter(), time.process_time()
    topics.add("texts", text)
    recall.read_on()
    assert recall.vectors is not None
    recall.vectors.catch_up(None)
    return time.perf_counter() - started, time.process_time() - cpu


# --- peers ----------------------------------------------------------------------------------


def peers(
    setup: Setup,
    outcome: Outcome,
    numbers: dict[str, Any],
    vectors: Any,
    questions: list[tuple[str, Any]],
    exact: list[set[int]],
) -> None:
    """The same vectors and questions, each peer in its natural way."""

    def race(name: str, ask: Callable[[Any], Sequence[int]]) -> None:
        times, hits, cpu = list[float](), 0, time.process_time()
        for (_, vector), best in zip(questions, exact, strict=True):
            started = time.perf_counter()
            found = ask(vector)
            times.append(time.perf_counter() - started)
            hits += len({int(each) for each in found} & best)
        numbers[f"ms_{name}"] = ms(times)
        numbers[f"ms_{name}_cpu"] = significant((time.process_time() - cpu) / len(times) * 1e3)
        numbers[f"recall_{name}"] = significant(hits / BEST / len(questions))

    faiss: Any = importlib.import_module("faiss")
    lists = 1 << round(np.log2(4 * np.sqrt(len(vectors))))
    ivf = faiss.IndexIVFFlat(faiss.IndexFlatIP(vectors.shape[1]), vectors.shape[1], lists)
    ivf.metric_type = faiss.METRIC_INNER_PRODUCT

    def built() -> None:
        ivf.train(vectors)
        ivf.add(vectors)

    numbers["s_faiss_alone_built"] = seconds_of(built)
    ivf.nprobe = max(8, lists // 8)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    race("faiss_alone", lambda vector: ivf.search(vector[None, :], BEST)[1][0])
    faiss.omp_set_num_threads(threads)
    race("numpy_exact", lambda vector: np.argpartition(-(vectors @ vector), BEST)[:BEST].tolist())
    sys.path.append(str(texts.CACHE / "peers"))  # last: what the project has goes before
    for name, peer in (("sqlite_vec", _sqlite_vec), ("mem0", _mem0)):
        try:
            ask = peer(setup, vectors)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            outcome.absent.append(Absent(f"the same texts in {name}", reason))
        else:
            race(name, ask)
    outcome.absent.append(Absent("the same texts in Letta's file search", LETTA))


def _sqlite_vec(setup: Setup, vectors: Any) -> Callable[[Any], Sequence[int]]:
    apsw, extension = importlib.import_module("apsw"), importlib.import_module("sqlite_vec")
    db = apsw.Connection(str(setup.scratch / "vec.sqlite3"))
    db.enable_load_extension(True)
    db.load_extension(extension.loadable_path())
    kind = f"float[{vectors.shape[1]}] distance_metric=cosine"
    db.execute(f"CREATE VIRTUAL TABLE vec USING vec0(embedding {kind})")
    with db:
        insert = "INSERT INTO vec(rowid, embedding) VALUES(?,?)"
        db.executemany(insert, ((n, row.tobytes()) for n, row in enumerate(vectors)))
    query = f"SELECT rowid FROM vec WHERE embedding MATCH ? AND k={BEST} ORDER BY distance"
    return lambda vector: [row[0] for row in db.execute(query, (vector.tobytes(),))]


def _mem0(setup: Setup, vectors: Any) -> Callable[[Any], Sequence[int]]:
    """The store that mem0 has for FAISS, with the same vectors: its embedders need a server."""
    module = importlib.import_module("mem0.vector_stores.faiss")
    place = str(setup.scratch / "mem0")
    store = module.FAISS("texts", place, "cosine", embedding_model_dims=vectors.shape[1])
    for start in range(0, len(vectors), 10_000):
        some = vectors[start : start + 10_000]
        names = [str(start + n) for n in range(len(some))]
        store.insert(some.tolist(), [{"data": name} for name in names], names)
    return lambda vector: [int(each.id) for each in store.search("", vector.tolist(), BEST)]

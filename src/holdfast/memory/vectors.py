"""The vectors of indexed texts: compared one by one while they are few, else by FAISS.

FAISS searches the lists (IVF) whose centroids are nearest to the question.  Its file is rebuilt
when enough was added; what came since is compared one by one, so it is never behind.  A fact of the
index says which file holds for which embedder and which numbers; any other file is not used.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple, Protocol

import numpy as np

from holdfast.clock import Clock
from holdfast.codec import decode_record, encode
from holdfast.memory.index import COUNTED, DONE, Index, some_of

EXACT = 4096
"""So many vectors are compared one by one."""
_PROBED = 8
"""One list in so many is looked through."""
_TRAINED = 48
"""Vectors for each centroid that it is found from."""
_AT_ONCE = 64
_LOCK, _FILE = "building.lock", "vectors-{}.faiss"
_HAS_FAISS = find_spec("faiss") is not None


class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Vectors of different names are never compared."""
        ...

    @property
    def weight(self) -> float:
        """How much its voice counts in a search, beside the words' 1."""
        ...

    def embed(self, texts: Sequence[str], /) -> list[array[float]]:
        """Of each text 32-bit floats, of length 1 unless they are all zeros."""
        ...


class Ivf(NamedTuple):
    """What is known of the FAISS index; as in `fmm.json`, and where it is."""

    embedder: str
    dim: int
    K: int
    nprobe: int
    size: int
    seq: int
    """The newest vector in it."""
    centroids: str
    """The sha256 of the centroids, which stand in the file."""
    file: str


class _Held(NamedTuple):
    """Vectors in memory, or in a file of FAISS that was loaded."""

    of: object
    """What has to be the same for them to hold."""
    last: int
    """The newest of them."""
    numbers: Any
    """Of texts."""
    vectors: Any
    """A row of floats for each, or FAISS's index."""


_NONE = _Held(None, 0, np.zeros(0, np.int64), None)


class Vectors:
    """Used by one thread at a time."""

    def __init__(self, index: Index, embedder: Embedder, clock: Clock) -> None:
        self._index, self.embedder, self._clock = index, embedder, clock
        self._recent, self._faiss = _NONE, _NONE

    # -- embedding ---------------------------------------------------------------------

    def catch_up(
        self,
        agents: Sequence[str] | None,
        patience: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed texts that wait for it, the newest first; how many still wait.

        Each batch is one transaction; after `patience` seconds it is left for the next time.
        """
        if self._index.fact("embedder") != self.embedder.name:
            self._start_over()
        where, named = f"stage<2 AND stage={COUNTED}", [agent.lower() for agent in agents or ()]
        if agents is not None:
            where += f" AND agent IN ({','.join('?' * len(named))})"
        query = f"SELECT number FROM texts WHERE {where} ORDER BY number DESC"
        waiting = [number for (number,) in self._index.db.execute(query, named)]
        began = self._clock.boottime()
        for done, some in enumerate(some_of(waiting, _AT_ONCE)):
            if patience is not None and self._clock.boottime() - began > patience:
                return len(waiting) - done * _AT_ONCE
            if progress is not None:
                progress(done * _AT_ONCE, len(waiting))
            self._embed(some)
        return 0

    def _start_over(self) -> None:
        with self._index.writing() as db:
            having = "number IN (SELECT number FROM vectors)"
            db.execute(f"UPDATE texts SET stage={COUNTED} WHERE {having}")
            db.execute("DELETE FROM vectors")
            db.execute("DELETE FROM facts WHERE name='ivf'")
            self._index.state("embedder", self.embedder.name)
            self._index.begin_epoch()

    def _embed(self, numbers: Sequence[int]) -> None:
        texts = {text.number: text.text for text in self._index.texts(numbers)}
        same = {number: _same(text) for number, text in texts.items()}
        # The same words have the same vector, also those of before `Index.wipe`.
        query = "SELECT same, data FROM vectors WHERE same"
        known: dict[bytes, bytes] = dict(self._index.rows(query, [*same.values()]))
        new = {same[each]: text for each, text in texts.items() if same[each] not in known}
        made = self.embedder.embed(list(new.values()))
        known |= {key: each.tobytes() for key, each in zip(new, made, strict=True)}
        with self._index.writing() as db:
            # What was forgotten in between gets none.
            db.executemany(
                "INSERT OR IGNORE INTO vectors(number, same, data)"
                " SELECT number, ?, ? FROM texts WHERE number=?",
                [(key, known[key], number) for number, key in same.items()],
            )
            done = [(number,) for number in texts]
            db.executemany(f"UPDATE texts SET stage={DONE} WHERE number=?", done)

    # -- searching, within a transaction -----------------------------------------------

    def nearest(self, vector: Any, mask: Any, most: int) -> dict[int, float]:
        """The numbers of wanted texts whose vectors are nearest, with their cosines."""
        ivf = self._loaded()
        recent = self._since(ivf.seq if ivf else 0)
        found = [each for each in _cosines(recent, vector) if mask[each[0]]]
        if ivf is not None:
            inside = self._faiss.numbers[mask[self._faiss.numbers]]
            if len(inside) > EXACT:
                inside = self._probed(ivf, vector, mask, len(inside), most)
            # FAISS has shortened vectors: what counts is compared with the whole ones.
            found += self.cosines(vector, inside.tolist()).items()
        return dict(sorted(found, key=lambda each: (-each[1], each[0]))[:most])

    def _probed(self, ivf: Ivf, vector: Any, mask: Any, wanted: int, most: int) -> Any:
        library = import_module("faiss")
        chosen = library.SearchParametersIVF(nprobe=ivf.nprobe)
        if wanted < ivf.size:
            bits = np.packbits(mask, bitorder="little")
            chosen.sel = library.IDSelectorBitmap(bits)
            # Where few are wanted, more lists are looked through for as many of them.
            chosen.nprobe = min(ivf.K, ivf.nprobe * ivf.size // wanted)
        near = self._faiss.vectors.search(vector[None, :], most, params=chosen)[1][0]
        return near[near >= 0]

    def cosines(self, vector: Any, numbers: Sequence[int]) -> dict[int, float]:
        """How near the vectors of these numbers are, as far as they have one."""
        rows = self._index.rows("SELECT seq, number, data FROM vectors WHERE number", numbers)
        return dict(_cosines(_held(None, rows), vector))

    def _since(self, seq: int) -> _Held:
        """The vectors that FAISS does not have."""
        of, recent = (self._index.fact("epoch"), seq), self._recent
        if recent.of != of:
            recent = _NONE._replace(of=of, last=seq)
        if rows := _after(self._index, recent.last):
            more = _held(of, rows)
            if len(recent.numbers):
                numbers = np.concatenate([recent.numbers, more.numbers])
                vectors = np.concatenate([recent.vectors, more.vectors])
                more = more._replace(numbers=numbers, vectors=vectors)
            recent = more
        self._recent = recent
        return recent

    # -- FAISS -------------------------------------------------------------------------

    def ivf(self) -> Ivf | None:
        """The FAISS index that holds for this embedder, if there is one."""
        ivf = _ivf_of(self._index)
        return ivf if ivf and ivf.embedder == self.embedder.name else None

    def _loaded(self) -> Ivf | None:
        ivf = self.ivf()
        if ivf is not None and self._faiss.of != ivf.file:
            if (found := _read(self._index, ivf)) is None:
                return None
            rows = self._index.db.execute("SELECT number FROM vectors WHERE seq<=?", (ivf.seq,))
            numbers = np.array(rows.fetchall(), np.int64).reshape(-1)
            self._faiss = _Held(ivf.file, ivf.seq, numbers, found)
        return ivf

    def is_due(self) -> bool:
        """Whether so much came since FAISS's file was made that it should be rebuilt."""
        recent, known = len(self._recent.numbers), len(self._faiss.numbers)
        return self._index.folder is not None and _HAS_FAISS and recent > max(EXACT, known // 4)

    def build_beside(self) -> Thread:
        """Make FAISS's file in a thread of its own; the process ends after it."""

        def work() -> None:
            index = Index(self._index.folder)
            try:
                build(index, self.embedder.name, wait=False)
            finally:
                index.close()

        thread = Thread(target=work, name="holdfast-ivf")
        thread.start()
        return thread


def _same(text: str) -> bytes:
    words = " ".join(text.lower().split())
    return sha256(words.encode("utf-8", "surrogatepass")).digest()


def _held(of: object, rows: Sequence[tuple[int, int, bytes]]) -> _Held:
    if not rows:
        return _NONE
    matrix = np.frombuffer(b"".join(row[2] for row in rows), np.float32).reshape(len(rows), -1)
    return _Held(of, rows[-1][0], np.array([row[1] for row in rows], np.int64), matrix)


def _cosines(held: _Held, vector: Any) -> list[tuple[int, float]]:
    if not len(held.numbers) or held.vectors.shape[1] != len(vector):
        return []
    return list(zip(held.numbers.tolist(), (held.vectors @ vector).tolist(), strict=True))


def _after(index: Index, seq: int) -> list[tuple[int, int, bytes]]:
    """Vectors that were made later, in order."""
    query = "SELECT seq, number, data FROM vectors WHERE seq > ? AND number > 0 ORDER BY seq"
    return index.db.execute(query, (seq,)).fetchall()


def _ivf_of(index: Index) -> Ivf | None:
    said = index.fact("ivf")
    return Ivf(**decode_record(said.encode())) if said else None


def _read(index: Index, ivf: Ivf) -> Any:
    """FAISS's index of a file; None unless it is whole, and the one that is meant."""
    if not _HAS_FAISS:
        return None
    try:
        found = import_module("faiss").read_index(f"{index.folder}/{ivf.file}")
    except RuntimeError:  # it is gone, or damaged
        return None
    meant = (ivf.dim, ivf.size, ivf.centroids)
    return found if (found.d, found.ntotal, _centroids_of(found)) == meant else None


def _centroids_of(index: Any) -> str:
    return f"sha256:{sha256(index.quantizer.reconstruct_n(0, index.nlist).tobytes()).hexdigest()}"


def drop(index: Index, numbers: set[int]) -> None:
    """See that FAISS's file has no vector of these texts."""
    ivf = _ivf_of(index)
    found = _read(index, ivf) if ivf is not None else None
    held = np.array(sorted(numbers), np.int64)
    if ivf is not None and found is not None and found.remove_ids(held):
        _keep(index, found, ivf._replace(size=found.ntotal), index.fact("epoch"))


def build(index: Index, embedder: str, *, wait: bool = True) -> Ivf | None:
    """Make FAISS's file of all vectors; None if there are none, or no FAISS.

    Without `wait` also if another process is at it.
    """
    if not _HAS_FAISS:
        return None
    path = f"{index.folder}/{_LOCK}"
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)  # noqa: TID251  # direct write: scratch
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return _built(index, embedder)
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def _built(index: Index, embedder: str) -> Ivf | None:
    faiss = import_module("faiss")
    # Its threads would take all cores from the agents, and hang in a process that was forked.
    faiss.omp_set_num_threads(1)
    with index.reading():
        if index.fact("embedder") != embedder or not (rows := _after(index, 0)):
            return None
        epoch = index.fact("epoch")
    held = _held(epoch, rows)
    del rows
    size, dim = held.vectors.shape
    lists = min(1 << max(0, round(np.log2(4 * np.sqrt(size)))), max(1, size // 8))
    coded = (dim, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    made = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dim), *coded)
    made.cp.seed, made.cp.max_points_per_centroid, made.cp.min_points_per_centroid = 1, _TRAINED, 1
    made.train(held.vectors)
    made.add_with_ids(held.vectors, held.numbers)
    nprobe = min(lists, max(8, lists // _PROBED))
    ivf = Ivf(embedder, dim, lists, nprobe, size, held.last, _centroids_of(made), "")
    return _keep(index, made, ivf, epoch)


def _keep(index: Index, made: Any, ivf: Ivf, epoch: str | None) -> Ivf | None:
    """Write FAISS's file under a new name, and say that it holds; unless that is out of date."""
    name = _FILE.format(f"{os.urandom(4).hex()}-{ivf.size}")
    import_module("faiss").write_index(made, f"{index.folder}/{name}")
    with index.writing():
        if index.fact("epoch") == epoch:
            index.state("ivf", encode(ivf._replace(file=name)._asdict()).decode())
    holds = _ivf_of(index)
    for other in os.listdir(index.folder):
        if other.startswith("vectors-") and (holds is None or other != holds.file):
            with suppress(OSError):
                os.unlink(f"{index.folder}/{other}")  # noqa: TID251  # direct write: scratch
    return holds if holds is not None and holds.file == name else None

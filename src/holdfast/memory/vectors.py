"""The vectors of indexed texts: compared one by one while they are few, else by FAISS.

FAISS searches the lists (IVF) whose centroids are nearest to the question.  Its file is made anew
when enough was added; what came since is compared one by one, so it is never behind.  A fact of the
index says which file holds for which embedder and which numbers; any other file is not used.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any, NamedTuple

import numpy as np

from holdfast.clock import Clock
from holdfast.codec import Record, decode_record, encode
from holdfast.memory.embed import Embedder
from holdfast.memory.index import COUNTED, DONE, Index, some_of

EXACT = 4096
"""So many vectors are compared one by one."""
_PROBED = 8
"""One list in so many is looked through."""
_TRAINED = 48
"""Vectors for each centroid that it is found from."""
_AT_ONCE = 64
_PARTS = 32
_LOCK, _FILE = "building.lock", "vectors-{}.faiss"


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


class _Recent(NamedTuple):
    """Vectors in memory: those with numbers above `first`, up to `last`."""

    epoch: str
    first: int
    last: int
    parts: list[tuple[Any, Any]]
    """Numbers of texts, and a row of floats for each."""


class _Faiss(NamedTuple):
    """A file that was loaded."""

    file: str
    index: Any
    numbers: Any


class Vectors:
    """Used by one thread at a time."""

    def __init__(self, index: Index, embedder: Embedder, clock: Clock) -> None:
        self._index, self.embedder, self._clock = index, embedder, clock
        self._recent = _Recent("", 0, 0, [])
        self._faiss = _Faiss("", None, None)

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
        index = self._index
        if index.fact("embedder") != self.embedder.name:
            self._start_over()
        where, named = f"stage<2 AND stage={COUNTED}", [agent.lower() for agent in agents or ()]
        if agents is not None:
            where += f" AND agent IN ({','.join('?' * len(named))})"
        query = f"SELECT number FROM texts WHERE {where} ORDER BY number DESC"
        waiting = index.db.execute(query, named).fetchall()
        began = self._clock.boottime()
        for start in range(0, len(waiting), _AT_ONCE):
            if patience is not None and self._clock.boottime() - began > patience:
                return len(waiting) - start
            if progress is not None:
                progress(start, len(waiting))
            self._embed([number for (number,) in waiting[start : start + _AT_ONCE]])
        return 0

    def _start_over(self) -> None:
        with self._index.writing() as db:
            having = "number IN (SELECT number FROM vectors)"
            db.execute(f"UPDATE texts SET stage={COUNTED} WHERE {having}")
            db.execute("DELETE FROM vectors")
            db.execute("DELETE FROM facts WHERE name='ivf'")
            self._index.state("embedder", self.embedder.name)
            self._index.begin_epoch()

    def _embed(self, numbers: list[int]) -> None:
        rows = self._index.rows(numbers)
        known = self._index.vectors_of_same([row.fingerprint for row in rows])
        new = {row.fingerprint: row.text for row in rows if row.fingerprint not in known}
        made = self.embedder.embed(list(new.values()))
        known |= {key: each.tobytes() for key, each in zip(new, made, strict=True)}
        with self._index.writing() as db:
            # What was forgotten in between gets none.
            db.executemany(
                "INSERT OR IGNORE INTO vectors(number, data)"
                " SELECT number, ? FROM texts WHERE number=?",
                [(known[row.fingerprint], row.number) for row in rows],
            )
            db.executemany(
                f"UPDATE texts SET stage={DONE} WHERE number=?", [(each,) for each in numbers]
            )

    # -- searching, within a transaction -----------------------------------------------

    def nearest(self, vector: Any, mask: Any, most: int) -> dict[int, float]:
        """The numbers of wanted texts whose vectors are nearest, with their cosines."""
        ivf, faiss = self._loaded()
        found: list[tuple[int, float]] = []
        for numbers, matrix in self._since(ivf.seq if ivf else 0):
            kept = mask[numbers]
            found += _cosines(numbers[kept], matrix[kept], vector)
        if ivf is not None:
            inside = faiss.numbers[mask[faiss.numbers]]
            if len(inside) > EXACT:
                inside = self._probed(ivf, faiss.index, vector, mask, len(inside), most)
            # FAISS has shortened vectors: what counts is compared with the whole ones.
            found += self.cosines(vector, [int(each) for each in inside]).items()
        return dict(sorted(found, key=lambda each: (-each[1], each[0]))[:most])

    def _probed(
        self, ivf: Ivf, index: Any, vector: Any, mask: Any, wanted: int, most: int
    ) -> Sequence[int]:
        library = import_module("faiss")
        chosen = library.SearchParametersIVF(nprobe=ivf.nprobe)
        if wanted < ivf.size:
            bits = np.packbits(mask, bitorder="little")
            chosen.sel = library.IDSelectorBitmap(bits)
            # Where few are wanted, more lists are looked through for as many of them.
            chosen.nprobe = min(ivf.K, ivf.nprobe * ivf.size // wanted)
        near = index.search(vector[None, :], most, params=chosen)[1][0]
        return near[near >= 0]

    def cosines(self, vector: Any, numbers: Sequence[int]) -> dict[int, float]:
        """How near the vectors of these numbers are, as far as they have one."""
        rows = list[tuple[int, bytes]]()
        for some in some_of(numbers):
            marks = ",".join("?" * len(some))
            query = f"SELECT number, data FROM vectors WHERE number IN ({marks})"
            rows += self._index.db.execute(query, some)
        if not rows:
            return {}
        matrix = np.frombuffer(b"".join(data for _, data in rows), np.float32)
        matrix = matrix.reshape(len(rows), -1)
        return dict(_cosines([number for number, _ in rows], matrix, vector))

    def _since(self, seq: int) -> list[tuple[Any, Any]]:
        """The vectors that FAISS does not have, in parts."""
        epoch = self._index.fact("epoch") or ""
        if (self._recent.epoch, self._recent.first) != (epoch, seq):
            self._recent = _Recent(epoch, seq, seq, [])
        last, parts = self._recent.last, self._recent.parts
        if rows := _after(self._index, last):
            matrix = np.frombuffer(b"".join(row[2] for row in rows), np.float32)
            numbers = np.array([row[1] for row in rows], np.int64)
            parts.append((numbers, matrix.reshape(len(rows), -1)))
            if len(parts) > _PARTS:
                parts[:] = [tuple(map(np.concatenate, zip(*parts, strict=True)))]
            self._recent = self._recent._replace(last=rows[-1][0])
        return parts

    # -- FAISS -------------------------------------------------------------------------

    def ivf(self) -> Ivf | None:
        """The FAISS index that holds for this embedder, if there is one."""
        ivf = ivf_of(self._index)
        return ivf if ivf and ivf.embedder == self.embedder.name else None

    def _loaded(self) -> tuple[Ivf | None, _Faiss]:
        ivf = self.ivf()
        if ivf is None or (self._faiss.file != ivf.file and not self._load(ivf)):
            return None, self._faiss
        return ivf, self._faiss

    def _load(self, ivf: Ivf) -> bool:
        found = _read(self._index, ivf)
        if found is not None:
            self._faiss = _Faiss(ivf.file, found, _numbers_in(found))
        return found is not None

    def is_due(self) -> bool:
        """Whether so much came since FAISS's file was made that it is to be made anew."""
        recent = sum(len(numbers) for numbers, _ in self._recent.parts)
        known = 0 if self._faiss.numbers is None else len(self._faiss.numbers)
        can = self._index.folder is not None and find_spec("faiss") is not None
        return can and recent > max(EXACT, known // 4)

    def build_beside(self) -> Thread:
        """Make FAISS's file in a thread of its own; the process ends after it."""
        assert self._index.folder is not None
        names = (self._index.folder, self.embedder.name)
        thread = Thread(target=_build_alone, args=names, name="holdfast-ivf")
        thread.start()
        return thread


def _cosines(numbers: Any, matrix: Any, vector: Any) -> list[tuple[int, float]]:
    if not len(numbers) or matrix.shape[1] != len(vector):
        return []
    return list(zip(map(int, numbers), (matrix @ vector).tolist(), strict=True))


def _after(index: Index, seq: int) -> list[tuple[int, int, bytes]]:
    """Vectors that were made later, in order."""
    query = "SELECT seq, number, data FROM vectors WHERE seq > ? ORDER BY seq"
    return index.db.execute(query, (seq,)).fetchall()


def _read(index: Index, ivf: Ivf) -> Any:
    """FAISS's index of a file; None unless it is whole, and the one that is meant."""
    if find_spec("faiss") is None:
        return None
    try:
        found = import_module("faiss").read_index(f"{index.folder}/{ivf.file}")
    except RuntimeError:  # it is gone, or damaged
        return None
    meant = (ivf.dim, ivf.size, ivf.centroids)
    return found if (found.d, found.ntotal, centroids_of(found)) == meant else None


def drop(index: Index, numbers: set[int]) -> None:
    """See that FAISS's file has no vector of these texts."""
    ivf = ivf_of(index)
    found = _read(index, ivf) if ivf is not None else None
    if ivf is None or found is None:
        return
    if found.remove_ids(np.array(sorted(numbers), np.int64)):
        _keep(index, found, ivf._replace(size=found.ntotal), index.fact("epoch"))


def ivf_of(index: Index) -> Ivf | None:
    """What is known of the FAISS index, if there is one."""
    said = index.fact("ivf")
    return Ivf(**decode_record(said.encode())) if said else None


def centroids_of(index: Any) -> str:
    """The sha256 of the centroids of a FAISS index."""
    return f"sha256:{sha256(index.quantizer.reconstruct_n(0, index.nlist).tobytes()).hexdigest()}"


def _numbers_in(index: Any) -> Any:
    faiss, lists = import_module("faiss"), index.invlists
    sizes = [(each, lists.list_size(each)) for each in range(index.nlist)]
    parts = [faiss.rev_swig_ptr(lists.get_ids(each), size) for each, size in sizes if size]
    return np.sort(np.concatenate(parts))


def _build_alone(folder: str, embedder: str) -> None:
    index = Index(folder)
    try:
        build(index, embedder, wait=False)
    finally:
        index.close()


def build(index: Index, embedder: str, *, wait: bool = True) -> Ivf | None:
    """Make FAISS's file of all vectors; None if there are none, or no FAISS.

    Without `wait` also if another process is at it.
    """
    if find_spec("faiss") is None:
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
    with index.reading():
        if index.fact("embedder") != embedder or not (rows := _after(index, 0)):
            return None
        epoch = index.fact("epoch")
    last, numbers = rows[-1][0], np.array([row[1] for row in rows], np.int64)
    matrix = np.frombuffer(b"".join(row[2] for row in rows), np.float32).reshape(len(rows), -1)
    del rows
    size, dim = matrix.shape
    lists = min(size, 1 << max(0, round(np.log2(4 * np.sqrt(size)))))
    if lists * 8 > size:
        lists = max(1, size // 8)
    made = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dim),
        dim,
        lists,
        faiss.ScalarQuantizer.QT_8bit,
        faiss.METRIC_INNER_PRODUCT,
    )
    made.cp.seed, made.cp.max_points_per_centroid = 1, _TRAINED
    made.cp.min_points_per_centroid = 1
    made.train(matrix)
    made.add_with_ids(matrix, numbers)
    nprobe = max(1, min(lists, max(8, lists // _PROBED)))
    ivf = Ivf(embedder, dim, lists, nprobe, size, last, centroids_of(made), "")
    return _keep(index, made, ivf, epoch)


def _keep(index: Index, made: Any, ivf: Ivf, epoch: str | None) -> Ivf | None:
    """Write FAISS's file under a new name, and say that it holds; unless that is out of date."""
    name = _FILE.format(f"{os.urandom(4).hex()}-{ivf.size}")
    import_module("faiss").write_index(made, f"{index.folder}/{name}")
    with index.writing():
        if index.fact("epoch") == epoch:
            said: Record = ivf._replace(file=name)._asdict()
            index.state("ivf", encode(said).decode())
    holds = decode_record((index.fact("ivf") or "{}").encode()).get("file")
    for other in os.listdir(index.folder):
        if other.startswith("vectors-") and other != holds:
            with suppress(OSError):
                os.unlink(f"{index.folder}/{other}")  # noqa: TID251  # direct write: scratch
    return ivf._replace(file=name) if holds == name else None

"""BM25 over the index: each text by itself, and the group it belongs to as one text.

A session is a group: its words are those of its turns, counted together, so nothing is stored
twice.  Scores are shares of the highest that the words of the question could reach, from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.memory.index import BLOCK, Index

K1, B = 0.9, 0.4
MOST_TERMS = 64
"""Words of a question that count: the rarest ones."""
_LOOKED_AT = 20_000
_COLUMN = np.dtype([("length", "<u4"), ("group", "<u4"), ("time", "<f8")])
"""Of each number: one more than its words, 0 where it cannot be found; its group; its time."""
Array = np.ndarray[Any, Any]


Lists = Mapping[str, list[tuple[int, bytes]]]
"""Of each word its blocks, and their entries."""


def columns(index: Index) -> Array:
    """What is known of every number."""
    blocks = index.db.execute("SELECT block, data FROM blocks ORDER BY block").fetchall()
    known = np.zeros((blocks[-1][0] + 1) * BLOCK if blocks else 0, _COLUMN)
    for block, data in blocks:
        found = np.frombuffer(data, _COLUMN)
        known[block * BLOCK : block * BLOCK + len(found)] = found
    return known


def chosen_terms(index: Index, words: Sequence[str]) -> list[str]:
    """The words of a question that are worth counting, the rarest first.

    A word that stands nowhere counts too: without it no text can have the full score.
    """
    distinct = list(dict.fromkeys(words))[:_LOOKED_AT]
    sizes = index.sizes(distinct)
    rare = sorted(sizes, key=lambda term: (sizes[term], term))
    return [*rare, *(term for term in distinct if term not in sizes)][:MOST_TERMS]


def allowed(
    known: Array,
    postings: Lists,
    wanted: Sequence[Sequence[str]],
    since: float | None = None,
    before: float | None = None,
) -> Array:
    """Which numbers may be found: those that have one of each of the `wanted` terms."""
    mask = known["length"] > 0
    for alternatives in wanted:
        some = np.zeros(len(mask), bool)
        for term in alternatives:
            some[_numbers(postings.get(term, []))[0]] = True
        mask &= some
    if since is not None:
        mask &= known["time"] >= since
    if before is not None:
        mask &= known["time"] < before
    return mask


def bm25(known: Array, lists: Lists, mask: Array) -> tuple[Array, Array]:
    """The score of every number in the mask by itself, and that of every number's group."""
    of = np.ascontiguousarray(known["group"])
    lengths = np.where(mask, known["length"].astype(np.float64) - 1, 0)
    texts, many = int(mask.sum()), int(of.max(initial=0)) + 1
    group_lengths = np.bincount(of[mask], weights=lengths[mask], minlength=many)
    groups = int(np.count_nonzero(np.bincount(of[mask], minlength=many)))
    norm = K1 * (1 - B + B * lengths / max(1e-9, lengths.sum() / max(1, texts)))
    group_norm = K1 * (1 - B + B * group_lengths / max(1e-9, group_lengths.sum() / max(1, groups)))
    own, of_groups = np.zeros(len(mask)), np.zeros(many)
    best = best_group = 1e-9
    for blocks in lists.values():
        numbers, times = _numbers(blocks)
        kept = mask[numbers]
        numbers, times = numbers[kept], times[kept].astype(np.float64)
        weight = _idf(texts, len(numbers))
        own[numbers] += weight * times * (K1 + 1) / (times + norm[numbers])
        best += weight * (K1 + 1)
        together = np.bincount(of[numbers], weights=times, minlength=many)
        having = np.flatnonzero(together)
        weight = _idf(groups, len(having))
        sums = together[having]
        of_groups[having] += weight * sums * (K1 + 1) / (sums + group_norm[having])
        best_group += weight * (K1 + 1)
    return own / best, (of_groups / best_group)[of]


def best_by_words(own: Array, scores: Array, most: int) -> list[int]:
    """The numbers of the best texts by these scores, of those that have a score of their own."""
    numbers = np.flatnonzero(own)
    if len(numbers) > most:
        # With all that are as good as the last one, so that chance decides nothing.
        scores = scores[numbers]
        numbers = numbers[scores >= np.partition(scores, -most)[-most]]
    return numbers.tolist()


def _numbers(blocks: list[tuple[int, bytes]]) -> tuple[Array, Array]:
    """Numbers of texts, and how often the word stands in each."""
    pairs = [(block, np.frombuffer(entries, "<u2")) for block, entries in blocks]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0)
    numbers = [entries[0::2].astype(np.int64) + block * BLOCK for block, entries in pairs]
    return np.concatenate(numbers), np.concatenate([entries[1::2] for _, entries in pairs])


def _idf(texts: int, having: int) -> float:
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))

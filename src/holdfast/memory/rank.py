"""BM25 over the index: each text by itself, and the group it belongs to as one text.

A session is a group: its words are those of its turns, counted together, so nothing is stored
twice.  Scores are shares of the highest that the words of the question could reach, from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from holdfast.memory.index import BLOCK, Index

K1, B = 0.9, 0.4
MOST_TERMS = 64
"""Words of a question that count: the rarest ones."""
_LOOKED_AT = 20_000
_COLUMNS = np.dtype([("length", "<u4"), ("group", "<u4"), ("time", "<f8")])
Array = np.ndarray[Any, Any]


class Columns(NamedTuple):
    """What is known of every number."""

    lengths: Array
    """One more than the number of words; 0 where no text can be found."""
    groups: Array
    times: Array


class Lexical(NamedTuple):
    """Scores of the texts that share a word with the question."""

    numbers: Array
    own: Array
    """Of each number by itself; 0 for all others."""
    groups: Array
    """Of each group, by its number."""


Lists = Mapping[str, list[tuple[int, bytes]]]
"""Of each word its blocks, and their entries."""


class Wanted(NamedTuple):
    """Which texts may be found; each part is a list of alternatives, empty for all."""

    terms: tuple[tuple[str, ...], ...] = ()
    since: float | None = None
    before: float | None = None


def columns(index: Index) -> Columns:
    blocks = index.db.execute("SELECT block, data FROM blocks ORDER BY block").fetchall()
    known = np.zeros((blocks[-1][0] + 1) * BLOCK if blocks else 0, _COLUMNS)
    for block, data in blocks:
        found = np.frombuffer(data, _COLUMNS)
        known[block * BLOCK : block * BLOCK + len(found)] = found
    return Columns(*(np.ascontiguousarray(known[name]) for name in ("length", "group", "time")))


def chosen_terms(index: Index, words: Sequence[str]) -> list[str]:
    """The words of a question that are worth counting, the rarest first.

    A word that stands nowhere counts too: without it no text can have the full score.
    """
    distinct = list(dict.fromkeys(words))[:_LOOKED_AT]
    sizes = index.sizes(distinct)
    rare = sorted(sizes, key=lambda term: (sizes[term], term))
    return [*rare, *(term for term in distinct if term not in sizes)][:MOST_TERMS]


def allowed(known: Columns, postings: Lists, wanted: Wanted) -> Array:
    """Which numbers may be found."""
    mask = known.lengths > 0
    for alternatives in wanted.terms:
        some = np.zeros(len(mask), bool)
        for term in alternatives:
            some[_numbers(postings.get(term, []))[0]] = True
        mask &= some
    if wanted.since is not None:
        mask &= known.times >= wanted.since
    if wanted.before is not None:
        mask &= known.times < wanted.before
    return mask


def bm25(known: Columns, lists: Lists, mask: Array) -> Lexical:
    """The score of every text in the mask that has a word of the question."""
    lengths = np.where(mask, known.lengths.astype(np.float64) - 1, 0)
    texts = int(mask.sum())
    many = int(known.groups.max(initial=0)) + 1
    group_lengths = np.bincount(known.groups[mask], weights=lengths[mask], minlength=many)
    groups = int(np.count_nonzero(np.bincount(known.groups[mask], minlength=many)))
    norm = K1 * (1 - B + B * lengths / max(1e-9, lengths.sum() / max(1, texts)))
    group_norm = K1 * (1 - B + B * group_lengths / max(1e-9, group_lengths.sum() / max(1, groups)))
    own, of_groups = np.zeros(len(mask)), np.zeros(many)
    best = best_group = 0.0
    for blocks in lists.values():
        numbers, times = _numbers(blocks)
        kept = mask[numbers]
        numbers, times = numbers[kept], times[kept].astype(np.float64)
        weight = _idf(texts, len(numbers))
        own[numbers] += weight * times * (K1 + 1) / (times + norm[numbers])
        best += weight * (K1 + 1)
        together = np.bincount(known.groups[numbers], weights=times, minlength=many)
        having = np.flatnonzero(together)
        weight = _idf(groups, len(having))
        sums = together[having]
        of_groups[having] += weight * sums * (K1 + 1) / (sums + group_norm[having])
        best_group += weight * (K1 + 1)
    return Lexical(np.flatnonzero(own), own / max(best, 1e-9), of_groups / max(best_group, 1e-9))


def best_by_words(known: Columns, found: Lexical, group: float, most: int) -> list[int]:
    """The numbers of the best texts, with this weight for their groups."""
    numbers = found.numbers
    scores = found.own[numbers] + group * found.groups[known.groups[numbers]]
    if len(scores) > most:
        # With all that are as good as the last one, so that chance decides nothing.
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

"""BM25 over the index: each text by itself, and the group it belongs to as one text.

A session is a group: its words are those of its turns, counted together, so nothing is stored
twice.  Scores are shares of the highest that the words of the question could reach, from 0 to 1.
With numpy the same sums are made in arrays; both ways give the same order.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from importlib import import_module
from typing import Any, NamedTuple

from holdfast.memory.index import BLOCK, Index

try:
    np: Any = import_module("numpy")
except ModuleNotFoundError:  # core without extras
    np = None

K1, B = 0.9, 0.4
MOST_TERMS = 64
"""Words of a question that count: the rarest ones."""
_LOOKED_AT = 20_000


class Columns(NamedTuple):
    """What is known of every number, as arrays."""

    lengths: Any
    """0 where a text is gone."""
    groups: Any
    times: Any


class Lexical(NamedTuple):
    """Scores of the texts that share a word with the question."""

    numbers: Sequence[int]
    own: Any
    """Of each number by itself; 0 for all others."""
    groups: Any
    """Of each group, by its number."""


Lists = Mapping[str, list[tuple[int, bytes]]]
"""Of each word its blocks, and their entries."""


class Wanted(NamedTuple):
    """Which texts may be found; each part is a list of alternatives, empty for all."""

    terms: tuple[tuple[str, ...], ...] = ()
    since: float | None = None
    before: float | None = None


def columns(index: Index) -> Columns:
    rows = list(index.columns())
    if np is not None:
        kinds = ((0, np.uint32), (1, np.uint32), (2, np.float64))
        return Columns(*(np.frombuffer(b"".join(r[at] for r in rows), kind) for at, kind in kinds))
    kinds = ((0, "I"), (1, "I"), (2, "d"))
    return Columns(*(array(kind, b"".join(row[at] for row in rows)) for at, kind in kinds))


def chosen_terms(index: Index, words: Sequence[str]) -> list[str]:
    """The words of a question that are worth counting, the rarest first.

    A word that stands nowhere counts too: without it no text can have the full score.
    """
    distinct = list(dict.fromkeys(words))[:_LOOKED_AT]
    sizes = index.sizes(distinct)
    rare = sorted(sizes, key=lambda term: (sizes[term], term))
    return [*rare, *(term for term in distinct if term not in sizes)][:MOST_TERMS]


def bm25(known: Columns, lists: Lists, mask: Any) -> Lexical:
    """The score of every text in the mask that has a word of the question."""
    return (_in_dicts if np is None else _in_arrays)(known, lists, mask)


def best_by_words(known: Columns, found: Lexical, group: float, most: int) -> list[int]:
    """The numbers of the best texts, with this weight for their groups."""
    numbers: Any = found.numbers
    if np is None:
        scores = {n: found.own[n] + group * found.groups[known.groups[n]] for n in numbers}
        return nsmallest(most, scores, key=lambda n: (-scores[n], n))
    scores = found.own[numbers] + group * found.groups[known.groups[numbers]]
    if len(scores) > most:
        # With all that are as good as the last one, so that chance decides nothing.
        numbers = numbers[scores >= np.partition(scores, -most)[-most]]
    return numbers.tolist()


def _idf(texts: int, having: int) -> float:
    return math.log(1 + (texts - having + 0.5) / (having + 0.5))


# --- arrays ---------------------------------------------------------------------------------


def allowed(known: Columns, postings: Lists, wanted: Wanted) -> Any:
    """Which numbers may be found: an array of truth values, or a set without numpy."""
    if np is None:
        return _allowed_set(known, postings, wanted)
    mask: Any = known.lengths > 0
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


def _numbers(blocks: list[tuple[int, bytes]]) -> tuple[Any, Any]:
    """Numbers of texts, and how often the word stands in each."""
    pairs = [(block, np.frombuffer(entries, "<u2")) for block, entries in blocks]
    if not pairs:
        return np.zeros(0, np.int64), np.zeros(0)
    numbers = [entries[0::2].astype(np.int64) + block * BLOCK for block, entries in pairs]
    return np.concatenate(numbers), np.concatenate([entries[1::2] for _, entries in pairs])


def _in_arrays(known: Columns, lists: Lists, mask: Any) -> Lexical:
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


# --- without numpy --------------------------------------------------------------------------


def _allowed_set(known: Columns, postings: Lists, wanted: Wanted) -> set[int]:
    found = {number for number, length in enumerate(known.lengths) if length}
    for alternatives in wanted.terms:
        found &= {n for term in alternatives for n, _ in _pairs(postings.get(term, []))}
    for sense, limit in ((1, wanted.since), (-1, wanted.before)):
        if limit is not None:
            found = {n for n in found if (known.times[n] - limit) * sense >= (sense < 0) * 1e-9}
    return found


def _pairs(blocks: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for block, entries in blocks:
        values = array("H", entries)
        found += zip((each + block * BLOCK for each in values[0::2]), values[1::2], strict=True)
    return found


def _in_dicts(known: Columns, lists: Lists, mask: set[int]) -> Lexical:
    group_lengths: dict[int, int] = {}
    for number in mask:
        group = known.groups[number]
        group_lengths[group] = group_lengths.get(group, 0) + known.lengths[number] - 1
    total = sum(group_lengths.values())
    mean = max(1e-9, total / max(1, len(mask)))
    group_mean = max(1e-9, total / max(1, len(group_lengths)))
    own: dict[int, float] = {}
    of_groups: dict[int, float] = {}
    best = best_group = 0.0
    for blocks in lists.values():
        pairs = [(number, times) for number, times in _pairs(blocks) if number in mask]
        weight, together = _idf(len(mask), len(pairs)), dict[int, int]()
        for number, times in pairs:
            norm = K1 * (1 - B + B * (known.lengths[number] - 1) / mean)
            own[number] = own.get(number, 0.0) + weight * times * (K1 + 1) / (times + norm)
            group = known.groups[number]
            together[group] = together.get(group, 0) + times
        best += weight * (K1 + 1)
        weight = _idf(len(group_lengths), len(together))
        for group, times in together.items():
            norm = K1 * (1 - B + B * group_lengths[group] / group_mean)
            score = weight * times * (K1 + 1) / (times + norm)
            of_groups[group] = of_groups.get(group, 0.0) + score
        best_group += weight * (K1 + 1)
    return Lexical(
        sorted(own),
        defaultdict(float, {number: score / max(best, 1e-9) for number, score in own.items()}),
        defaultdict(float, {g: score / max(best_group, 1e-9) for g, score in of_groups.items()}),
    )

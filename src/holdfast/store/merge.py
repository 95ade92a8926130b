"""Differences and three-way merges of texts.  Pure.

`base` is what both sides began with, `ours` what Holdfast has on record, `theirs` what
somebody saved.  No merge ever drops what only one side added; where both changed the same
place, theirs goes first and what ours added follows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast

from holdfast.codec import MAX_DOCUMENT, Record, decode, pretty

_MOST_PAIRS = 25_000_000
"""Texts that would take longer to compare than anybody waits are told apart as a whole."""
_AT_ONCE = 40_000
"""Above so many pairs of lines those that are there once are matched first, for time grows with the
third power where many lines are the same, as in JSON."""

Patch = list[list[Any]]
"""Changes of lines, in order: where (a line of the old text), what went, what came."""
Unit = tuple[str, ...]
"""Entries of lines that go together: the first has the text of all, the others are empty."""


class _Change(NamedTuple):
    low: int
    high: int
    ours: bool
    lines: list[str]


def lines_of(text: str) -> list[str]:
    """Lines with their LF; nothing else ends a line."""
    lines = text.split("\n")
    ends = [f"{line}\n" for line in lines[:-1]]
    return [*ends, lines[-1]] if lines[-1] else ends


def units_of(entries: list[str]) -> list[Unit]:
    units: list[list[str]] = []
    for entry in entries:
        if entry or not units:
            units.append([entry])
        else:
            units[-1].append(entry)
    return [tuple(unit) for unit in units]


def difference(old: str, new: str) -> Patch:
    """What makes `new` of `old`; it can be undone."""
    return between(lines_of(old), lines_of(new))


def between(old: list[str], new: list[str]) -> Patch:
    """The same of texts as entries, one for each line; what goes together stays together."""
    before, after = units_of(old), units_of(new)
    at = [0, *accumulate(map(len, before))]
    return [
        [at[low], [*chain(*before[low:high])], [*chain(*after[a:b])]]
        for low, high, a, b in _changes(before, after)
    ]


def apply(patch: Patch, text: str) -> str:
    return "".join(patched(patch, lines_of(text)))


def patched(patch: Patch, entries: list[str]) -> list[str]:
    result = [*entries]
    for at, gone, come in reversed(patch):
        result[at : at + len(gone)] = come
    return result


def undo(patch: Patch, text: str) -> str:
    return "".join(unpatched(patch, lines_of(text)))


def unpatched(patch: Patch, entries: list[str]) -> list[str]:
    result = [*entries]
    # Where a change stands in the old text is where it stands once those before it are undone.
    for at, gone, come in patch:
        result[at : at + len(come)] = gone
    return result


def _changes(
    before: Sequence[Hashable], after: Sequence[Hashable]
) -> Iterator[tuple[int, int, int, int]]:
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    low, high = before[start : len(before) - end], after[start : len(after) - end]
    if len(low) * len(high) > _MOST_PAIRS:
        yield start, start + len(low), start, start + len(high)
        return
    if len(low) * len(high) <= _AT_ONCE:
        for word, a, b, c, d in SequenceMatcher(None, low, high, autojunk=False).get_opcodes():
            if word != "equal":
                yield start + a, start + b, start + c, start + d
        return
    anchors = _anchors(low, high)
    if not anchors:
        yield start, start + len(low), start, start + len(high)
        return
    a = c = 0
    for b, d in (*anchors, (len(low), len(high))):
        for left, right, upper, lower in _changes(low[a:b], high[c:d]):
            yield start + a + left, start + a + right, start + c + upper, start + c + lower
        a, c = b, d


def _anchors(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Where lines stand that each side has once, as many of them as are in the same order."""
    once = {line for line, times in Counter(after).items() if times == 1}
    there = {line: at for at, line in enumerate(after) if line in once}
    times = Counter(before)
    pairs = [(at, there[x]) for at, x in enumerate(before) if x in there and times[x] == 1]
    ends, last, previous = list[int](), list[int](), list[int]()
    for number, (_, at) in enumerate(pairs):
        length = bisect_left(ends, at)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [at], [number]
    chain, number = list[tuple[int, int]](), last[-1] if last else -1
    while number >= 0:
        chain.append(pairs[number])
        number = previous[number]
    return chain[::-1]


def distance(one: str, other: str) -> int:
    """How much two texts have that the other one has not, wherever it stands; cheap."""
    here, there = Counter(lines_of(one)), Counter(lines_of(other))
    return sum(len(line) * n for side in (here - there, there - here) for line, n in side.items())


def merge_lines(base: str, ours: str, theirs: str) -> str:
    """Both sides' changes to the lines of a text."""
    before, result, at = lines_of(base), list[str](), 0
    for group in _groups(before, lines_of(ours), lines_of(theirs)):
        low, high = group[0].low, max(change.high for change in group)
        result += before[at:low] + _resolved(group, before, low, high)
        at = high
    *most, last = [*result, *before[at:]] or [""]
    # The last line of a text may lack its LF; one that comes to stand before others gets it.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in most) + last


def _groups(before: list[str], ours: list[str], theirs: list[str]) -> Iterator[list[_Change]]:
    """Changes that touch the same lines belong together."""
    changes = [_Change(a, b, True, ours[c:d]) for a, b, c, d in _changes(before, ours)]
    changes += [_Change(a, b, False, theirs[c:d]) for a, b, c, d in _changes(before, theirs)]
    group: list[_Change] = []
    for change in sorted(changes, key=lambda each: (each.low, each.high)):
        reach = max((each.high for each in group), default=-1)
        if group and not (change.low < reach or change.low == group[-1].low):
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _resolved(group: list[_Change], before: list[str], low: int, high: int) -> list[str]:
    mine = [change for change in group if change.ours]
    others = [change for change in group if not change.ours]
    if not others or not mine:
        return _applied(mine or others, before, low, high)
    theirs = _applied(others, before, low, high)
    if _applied(mine, before, low, high) == theirs:
        return theirs
    added = [line for change in mine for line in change.lines]
    return theirs + [line for line in added if line not in theirs]


def _applied(changes: list[_Change], before: list[str], low: int, high: int) -> list[str]:
    result: list[str] = []
    for change in changes:
        result += before[low : change.low] + change.lines
        low = change.high
    return result + before[low:high]


_ABSENT = object()


def merge_json(base: str, ours: str, theirs: str) -> str:
    """Both sides' changes to a JSON document: by field, and in lists by `id`."""
    values = [decode(text.encode(), limit=MAX_DOCUMENT) for text in (base or "null", ours, theirs)]
    return pretty(_merged(*values)).decode()


def _merged(base: Any, ours: Any, theirs: Any) -> Any:
    if ours == theirs or base == theirs:
        return ours
    if base == ours:
        return theirs
    if theirs is _ABSENT or ours is _ABSENT:
        return ours if theirs is _ABSENT else theirs  # changed here, removed there: it stays
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return _by_name(base, cast("Record", ours), cast("Record", theirs))
    mine, others = _by_id(ours), _by_id(theirs)
    if mine is not None and others is not None:
        return list(_by_name(_by_id(base) or {}, mine, others).values())
    return theirs


def _by_name(base: Any, ours: Record, theirs: Record) -> Record:
    before = cast("Record", base) if isinstance(base, dict) else {}
    result: Record = {}
    for name in (*theirs, *(name for name in ours if name not in theirs)):
        sides = (side.get(name, _ABSENT) for side in (before, ours, theirs))
        value = _merged(*sides)
        if value is not _ABSENT:
            result[name] = value
    return result


def _by_id(value: Any) -> Record | None:
    """A list of objects that each have an id of their own, by that id."""
    entries = cast("list[Any]", value) if isinstance(value, list) else [None]
    found: Record = {}
    for entry in entries:
        if not isinstance(entry, dict) or "id" not in entry:
            return None
        found[str(cast("Record", entry)["id"])] = entry
    return found if len(found) == len(entries) else None

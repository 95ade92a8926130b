"""A text as entries of a log: one for each line, made so that the log can mask it.

A secret that goes over several lines is seen only where all of them are together.  So they stand
in the entry of the first, and those of the others are empty: every line keeps its number, also
when the log has put a tag in the place of them all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from holdfast.store.merge import lines_of

_TAG = re.compile(r"\[SECRET:[a-z-]+:[0-9a-f]{8}\]")


def entries_of(text: str) -> list[str]:
    lines = lines_of(text)
    secrets = _secrets(text)
    blocks = _blocks(lines, text) if secrets else []
    # What looks like a secret only once another one beside it is gone is in none of them.
    if secrets - set[bytes]().union(*(_secrets(_joined(lines, block)) for block in blocks)):
        blocks = [(0, len(lines))]
    for low, high in blocks:
        lines[low:high] = [_joined(lines, (low, high)), *[""] * (high - low - 1)]
    return lines


def is_masked(entry: str) -> bool:
    return _TAG.search(entry) is not None


def _blocks(lines: list[str], text: str) -> list[tuple[int, int]]:
    """The lines that have to be together for a secret to be seen in them."""
    from holdfast.mask.text import hits  # noqa: PLC0415  # as the masker does: it takes long

    ends = list(accumulate(len(line.encode()) for line in lines))
    blocks: list[tuple[int, int]] = []
    for hit in hits(text.encode()):
        low, high, reach = bisect_right(ends, hit.start), bisect_right(ends, hit.end - 1) + 1, 1
        # What tells that it is one may stand lines before it, or behind.
        while hit.says not in _secrets(_joined(lines, (low, high))):
            low, high, reach = max(0, low - reach), min(len(lines), high + reach), reach * 2
        while blocks and low < blocks[-1][1]:
            before = blocks.pop()
            low, high = min(low, before[0]), max(high, before[1])
        blocks.append((low, high))
    return blocks


def _joined(lines: list[str], block: tuple[int, int]) -> str:
    return "".join(lines[slice(*block)])


def _secrets(text: str) -> set[bytes]:
    from holdfast.mask.text import without  # noqa: PLC0415  # the same

    found: set[bytes] = set()

    def tag(_: str, secret: bytes) -> str:
        found.add(secret)
        return "[SECRET]"

    without(text.encode(), tag)
    return found

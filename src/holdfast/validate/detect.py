"""Which kind a file is of: by the place where it lies, and by what is in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from holdfast.contracts.kind import Finding, Kind, Origin
from holdfast.contracts.kinds import KINDS


class Detected(NamedTuple):
    kind: Kind | None
    finding: Finding | None = None
    """If nothing fits, or name and content disagree."""


def by_path(path: str, kinds: Sequence[Kind] = KINDS) -> list[Kind]:
    """The kinds that may lie there."""
    return [each for each in kinds if any(_pattern(text).search(path) for text in each.paths)]


def by_content(sample: Any, kinds: Sequence[Kind] = KINDS) -> list[Kind]:
    """The kinds that look like this: a parsed value, or the text of a Markdown file."""
    is_text, first = isinstance(sample, str), _first(sample)
    return [each for each in kinds if (each.shape == "markdown") is is_text and each.looks(first)]


def detect(origin: Origin, sample: Any, kinds: Sequence[Kind] = KINDS) -> Detected:
    """The kind of a file with this first value, or text; None if nothing could be read."""
    named = by_path(origin.path, kinds)
    alike = by_content(sample, kinds) if sample is not None else []
    both = [each for each in named if each in alike]
    if both or (named and not alike):
        return Detected(_best(both or named, sample))
    if not alike:
        tried = ", ".join(each.name for each in kinds)
        reason = f"unknown kind: neither name nor content is of {tried}; name it with --kind"
        unknown = Finding("error", "unknown_kind", "", reason)
        return Detected(None, None if sample is None else unknown)
    best = _best(alike, sample)
    if not named:
        return Detected(best)
    said = " or ".join(each.name for each in named)
    reason = f"wrong kind: lies where a {said} lies, but looks like a {best.name}; read as that"
    return Detected(best, Finding("error", "wrong_kind", "", reason))


def _best(kinds: Sequence[Kind], sample: Any) -> Kind:
    """The one that refuses least of the sample."""
    if len(kinds) == 1 or sample is None:
        return kinds[0]
    return min(kinds, key=lambda each: _refused(each, sample))


def _refused(each: Kind, sample: Any) -> int:
    if isinstance(sample, str):
        found = each.parse(sample) if each.parse else None
    else:
        found = each.read(sample if each.shape == "document" else _first(sample))
    return sum(one.level == "error" for one in found.findings) if found else 1


def _first(sample: Any) -> Any:
    """Of an array its first item."""
    if not isinstance(sample, list):
        return sample
    items = cast("list[Any]", sample)
    return items[0] if items else None


@lru_cache(maxsize=512)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)

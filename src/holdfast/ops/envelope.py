"""What a verb gives back, and the one shape in which every face hands it on.

A verb returns `Rows`, `Show`, `Change` or `Stream`; failure is an exception of
`holdfast.errors`.  `as_dict` is the envelope: the same object in `--json`, HTTP and MCP.
Nothing here knows how it is drawn.

Tuples with names, here and in the table: a dataclass takes ten times as long to define, and
`holdfast ledger write` defines them all each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError

SCHEMA = 1
ATTENTION = 1
"""The exit code of a verb that worked and found something to look at."""

Row = Mapping[str, Any]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Rows(NamedTuple):
    """A list; every row carries the ids that other verbs take."""

    rows: Sequence[Row]
    counts: Mapping[str, Any] = _NOTHING
    truncated: bool = False
    next: str | None = None
    """Where to go on, when there is more."""
    exit_code: int = 0
    plain: Sequence[str] | None = None
    """The rows as lines of text, when a table would not do."""

    def as_dict(self, as_of: str) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "as_of": as_of,
            "counts": dict(self.counts),
            "rows": list(self.rows),
            "truncated": self.truncated,
            "next": self.next,
        }


def tally(rows: Sequence[Row], name: str) -> dict[str, int]:
    """How many rows have each value of a field, for `counts`."""
    return dict(sorted(Counter(str(row[name]) for row in rows).items()))


class Show(NamedTuple):
    """One thing."""

    data: Mapping[str, Any]
    text: str | None = None
    """How people should see it, when keys and values would not do; empty: not at all."""
    exit_code: int = 0
    exact: bool = False
    """Whether `text` is for programs, which get it to the byte: a patch, JSON, CSV, a page."""

    def as_dict(self, as_of: str) -> dict[str, Any]:
        return {"schema": SCHEMA, "as_of": as_of, "data": dict(self.data)}


class Change(NamedTuple):
    """Something was done, or was already so (`applied` is false, and that is no failure)."""

    target: str
    applied: bool
    detail: str
    """What happened, in a line."""
    data: Mapping[str, Any] = _NOTHING
    dry_run: bool = False
    exit_code: int = 0

    def as_dict(self, as_of: str) -> dict[str, Any]:
        """A change stands by itself: `as_of` is taken for uniformity and not shown."""
        return {
            "schema": SCHEMA,
            "target": self.target,
            "applied": self.applied,
            "dry_run": self.dry_run,
            "detail": self.detail,
            "data": dict(self.data),
        }


class Stream(NamedTuple):
    """Rows as they come, perhaps without end; it has no envelope, each row stands alone."""

    rows: Iterator[Row]
    exit_code: int = 0


Result = Rows | Show | Change | Stream


def error_envelope(error: HoldfastError) -> dict[str, Any]:
    return {"error": error.as_dict()}

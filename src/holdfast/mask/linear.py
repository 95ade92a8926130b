"""Patterns over bytes that take no longer than the text is long, whatever the text.

A thin face of RE2, which is loaded when the first pattern is made.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

Span = tuple[int, int]
_MEMORY = 64 << 20


@cache
def _re2() -> Any:
    # Loaded late, for most processes write nothing that has to be looked at; it has no types.
    return import_module("re2")


class Pattern:
    """One compiled pattern; bytes are bytes, never characters."""

    def __init__(self, pattern: str) -> None:
        re2 = _re2()
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = _MEMORY
        # The public face makes an object for each match, which costs more than to find it.
        self._match: Any = re2.compile(pattern.encode("latin-1"), options)._regexp.Match
        self._anywhere: Any = re2._re2.RE2.Anchor.UNANCHORED
        self._here: Any = re2._re2.RE2.Anchor.ANCHOR_START

    def find(self, data: bytes, at: int = 0) -> Span | None:
        """Where it matches first from `at` on."""
        span: Span = self._match(self._anywhere, data, at, len(data))[0]
        return span if span[0] >= 0 else None

    def begins(self, data: bytes, at: int) -> bool:
        """Whether it matches right there."""
        return self._match(self._here, data, at, len(data))[0][0] >= 0

"""Sealed texts of a log: ciphertext that opens in its own place only.

Prompts, replies, reasons and the hash of a request are sealed.  Speaker, time, model and cost stay
readable, so money, views and the ledger work without a key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from holdfast.codec import Record
from holdfast.errors import Corrupt, StorageError
from holdfast.keys import held

if TYPE_CHECKING:
    from holdfast.seal import Ring
    from holdfast.store.home import Home

MARK = "sealed"
"""The field of a line with sealed texts: the id of the key.  A text alone proves nothing, since
anyone can write one that looks sealed."""
_TRIES = 16
_CACHED = 4096

Change = Callable[[str, str], str]
"""Makes another text from a text and the name of its field."""


class Seals:
    """The sealed texts of one log; keys are looked up when the first text is met."""

    def __init__(self, home: Home, log: str) -> None:
        self._home, self._log = home, log
        self._opened: dict[tuple[str, str], str | None] = {}

    @cached_property
    def ring(self) -> Ring:
        return held(self._home.clock)

    @property
    def mark(self) -> Record:
        return {MARK: self.ring.current.id}

    def lock(self, text: str, part: str = "") -> str:
        """Sealed for `part` of the log, with secrets out before; the store keeps every letter."""
        clean = self._home.mask(text)
        for _ in range(_TRIES):
            sealed = self.ring.seal(clean, self._log + part)
            if self._home.mask(sealed) == sealed:
                return sealed
        raise StorageError(
            f"the text for {self._log}{part} would be taken for a secret and masked",
            hint="this is a bug in Holdfast: please report it",
        )

    def open(self, sealed: str, part: str = "", log: str = "") -> str | None:
        """None if the text was changed or moved; NoKey if its key is missing."""
        place = (log or self._log) + part
        if (sealed, place) not in self._opened:
            try:
                text = self.ring.open(sealed, place)
            except Corrupt:
                text = None
            if len(self._opened) >= _CACHED:
                self._opened.clear()
            self._opened[sealed, place] = text
        return self._opened[sealed, place]


def meta_of(record: Record) -> Record:
    """What a line says beside its text; anyone may have written it."""
    meta: Any = record.get("meta")
    return cast("Record", meta) if isinstance(meta, dict) else {}


def tries_of(meta: Record) -> list[Record]:
    listed: Any = meta.get("tries")
    rows = cast("list[Any]", listed) if isinstance(listed, list) else []
    return [row for row in rows if isinstance(row, dict)]


def with_texts(line: Record, change: Callable[[str, str], str | None]) -> Record:
    """A line of a conversation with each text that may be sealed changed, by its field."""
    meta = dict(meta_of(line))
    for name in ("request", "reply"):
        if isinstance(meta.get(name), str):
            meta[name] = change(meta[name], name)
    if "tries" in meta:
        meta["tries"] = [
            {**row, "message": change(str(row.get("message", "")), f"tries/{number}")}
            for number, row in enumerate(tries_of(meta))
        ]
    return {**line, "content": change(str(line.get("content", "")), "content"), "meta": meta}


def part_of(seq: int | None, field: str) -> str:
    """The place of a field in the line `seq`."""
    return f"#{seq or 0} {field}"

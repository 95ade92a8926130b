"""Lines of a log whose texts are sealed for the place that they stand in.

What is sealed is what was said: the text of a line, the reply that could not be used, what failed
tries told, and the hash of the request, by which a guess at it could be tried.  Who spoke, when,
with which model and at what cost can be read by everybody, so money, views and the ledger work
without a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.agents.privacy import without_secrets
from holdfast.codec import Record
from holdfast.errors import Corrupt, Indeterminate, StorageError
from holdfast.keys import held
from holdfast.store.projection import ref_of

if TYPE_CHECKING:
    from holdfast.seal import Ring
    from holdfast.store.home import Home
    from holdfast.store.primitives import Cursor, Decide, Line, Log

MARK = "sealed"
"""What is said of a line with sealed texts: the id of the key.  A text alone tells nothing; anybody
can write one that looks sealed."""
_FIELDS = ("request", "reply")
_TRIES = 16


class Seals:
    """The sealed lines of a log; keys are looked for when the first one is met."""

    def __init__(self, home: Home, log: Log) -> None:
        self._home, self._log = home, log
        self._held: Ring | None = None

    @property
    def ring(self) -> Ring:
        if self._held is None:
            self._held = held(self._home.clock)
        return self._held

    def transact(self, decide: Decide) -> list[Cursor]:
        """Append what `decide` returns, each line sealed for its place."""
        # A log whose disk failed puts a line of its own before the next one: let it do so now.
        self._log.append_all([])
        due = 0

        def sealing(head: Cursor) -> Sequence[Record]:
            nonlocal due
            lines = decide(head)
            due = head.seq + len(lines)
            return [self._locked(line, seq) for seq, line in enumerate(lines, head.seq + 1)]

        written = self._log.transact(sealing)
        if written and written[-1].seq != due:
            raise Indeterminate(
                f"the disk failed while a sealed line was written to {self._log.key}: it is there, "
                "but in a place in which it does not open",
                hint="look at the disk, then say it again",
                path=self._log.key,
            )
        return written

    def text(self, line: Line, log: str = "") -> str | None:
        """What a line says; None if it was changed or moved, NoKey if its key is not at hand.

        `log` is the key of the log that it stands in, if that is another one.
        """
        said, mark = str(line.record.get("content", "")), meta_of(line.record).get(MARK)
        if mark is None:
            return said
        return self._opened(said, line.seq, "content", log)

    def field(self, line: Line, name: str) -> str | None:
        """What `meta` says of a line, by one of the names that are sealed with it."""
        meta = meta_of(line.record)
        value = meta.get(name)
        if not isinstance(value, str) or MARK not in meta:
            return value if isinstance(value, str) else None
        return self._opened(value, line.seq, name)

    def tried(self, line: Line, number: int, message: object) -> str | None:
        """What the call of this number told, of those that failed on the way."""
        if not isinstance(message, str):
            return None
        return self._opened(message, line.seq, f"tries/{number}")

    def _opened(self, sealed: str, seq: int | None, field: str, log: str = "") -> str | None:
        place = f"{log or self._log.key}#{seq or 0} {field}"
        try:
            return self.ring.open(sealed, place)
        except Corrupt:
            return None

    def _locked(self, line: Record, seq: int) -> Record:
        def lock(text: str, field: str) -> str:
            return lasting(self._home, self.ring, text, f"{ref_of(self._log, seq)} {field}")

        meta = dict(meta_of(line))
        for name in _FIELDS:
            if isinstance(meta.get(name), str):
                meta[name] = lock(meta[name], name)
        if tries := cast("list[Record]", meta.get("tries")):
            meta["tries"] = [
                {**each, "message": lock(str(each["message"]), f"tries/{number}")}
                for number, each in enumerate(tries)
            ]
        meta[MARK] = self.ring.current.id
        return {**line, "content": lock(str(line["content"]), "content"), "meta": meta}


def lasting(home: Home, ring: Ring, text: str, place: str) -> str:
    """Sealed so that the store keeps every letter of it; secrets are out before."""
    clean = without_secrets(home, text)
    for _ in range(_TRIES):
        sealed = ring.seal(clean, place)
        if without_secrets(home, sealed) == sealed:
            return sealed
    raise StorageError(
        f"{place} would be taken for a secret and masked",
        hint="this is a fault of Holdfast: please tell us",
    )


def meta_of(record: Record) -> Record:
    """What is said of a line beside its text; anybody may have written it."""
    meta: Any = record.get("meta")
    return cast("Record", meta) if isinstance(meta, dict) else {}

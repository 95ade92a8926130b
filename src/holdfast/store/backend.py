"""The seam: what a store is for everything above it.

The file backend, the in-memory backend and later ones are held to the same conformance
suite, `holdfast.testing.conformance`.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from holdfast.clock import Clock
from holdfast.process import Owner
from holdfast.settings import Settings
from holdfast.store.primitives import (
    TRIES,
    Blob,
    Cell,
    Document,
    Instant,
    Lease,
    Log,
    Mailbox,
    Sheet,
)
from holdfast.store.view import Shape, State

Value = TypeVar("Value")


class Peek(NamedTuple, Generic[State]):
    """A view that was looked at."""

    state: State
    current: bool
    """Whether its file shows the state of its stamp."""
    warnings: list[str]
    """What is wrong with its log."""


class Backend(Protocol):
    """A store: opens primitives by key, and knows its time, its processes and its secrets.

    This is all that engines know of it.  Everything a key can hold comes into being when it is
    first written; looking at what is not there makes nothing.
    """

    @property
    def url(self) -> str:
        """Where it is, for people."""
        ...

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock:
        """For stamps, and for waiting in this process; never for deadlines that others read."""
        ...

    def log(self, key: str) -> Log:
        """A key that ends in `.jsonl` is one log; any other is a directory with one file a day."""
        ...

    def document(self, key: str) -> Document: ...
    def sheet(self, key: str) -> Sheet: ...
    def cell(self, key: str) -> Cell: ...
    def blob(self, key: str) -> Blob: ...
    def lease(self, key: str) -> Lease: ...
    def mailbox(self, key: str, *, tries: int = TRIES) -> Mailbox: ...
    def peek(self, view: str, log: str, shape: Shape[State]) -> Peek[State]:
        """The state of a view over a log, and what is wrong with it; nothing is written."""
        ...

    def keys(self, prefix: str = "") -> list[str]:
        """The keys below a prefix, in order; of a log the keys of its parts, of messages none."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """What stands directly below a prefix, by name and in order; an empty place may too."""
        ...

    def version(self, key: str) -> str:
        """A text that changes with a log, document, sheet, view or blob; "" where there is none."""
        ...

    def scratch(self, key: str) -> str:
        """The path of a folder of this machine, made if it is absent; it may vanish."""
        ...

    def mask(self, value: Value) -> Value:
        """The value with a tag for each secret, as the logs would show it."""
        ...

    def secret(self) -> bytes:
        """A key of this store alone that stands in no log: of its tags, and of proofs."""
        ...

    def day(self, instant: float | None = None) -> str:
        """The day of an instant, or today, by the zone of the store."""
        ...

    def notice(self, word: str, detail: str) -> None:
        """Record in the audit log what is wrong, once; a failure to must not hurt the caller."""
        ...

    def now(self) -> Instant:
        """This moment by the clock of the store."""
        ...

    def alive(self, owner: Owner) -> bool | None:
        """Whether a process still runs; None where the store cannot know."""
        ...

    def close(self) -> None: ...

"""The primitives of a store, which a `Backend` opens.  Values and protocols, no behaviour.

The file backend, the in-memory backend and later ones are held to the same conformance
suite, `holdfast.testing.conformance`.  Everything is addressed by key (`state/rio/tasks.json`),
never by path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from holdfast.codec import Record
from holdfast.process import Owner


class Cursor(NamedTuple):
    """A place in a log: just after the sealed line `seq`."""

    seq: int
    hash: str
    """Hex digest of that line; of nothing at all, zeros, at the start of a log."""
    segment: str
    offset: int


START = Cursor(0, "0" * 64, "", 0)
T = TypeVar("T")


CONTROL = "_log"
"""The field of a line that the log wrote about itself."""
FAILED, CUT = "segment_failed", "cut_tail"
"""What such a line can say."""


class Line(NamedTuple):
    """One line that holds a record; `seq` and `hash` are None where it is not ours."""

    seq: int | None
    hash: str | None
    record: Record
    segment: str
    offset: int
    end: int

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on after it."""
        return Cursor(self.seq or 0, self.hash or START.hash, self.segment, self.end)


class BadLine(NamedTuple):
    """Bytes in a log that are no record; kept where they are, and reported."""

    segment: str
    offset: int
    end: int
    reason: str
    line: int = 0
    """Its number in the segment, where somebody counted."""


class Problem(NamedTuple):
    """One place where a log is not what was written."""

    kind: str
    """edited, missing, misplaced, empty, damaged or cut."""
    segment: str
    line: int
    offset: int
    detail: str


class Verified(NamedTuple):
    """What `Log.verify` found; the log is sound when there are no problems."""

    sealed: int
    unchained: int
    bad: list[BadLine]
    loose: int
    """How many of the bad lines no sealed line follows yet."""
    problems: list[Problem]
    in_progress: int
    """Bytes of an unterminated tail: somebody is writing, or died writing."""
    head: Cursor


class Archived(NamedTuple):
    """What `Log.archive` did with one segment."""

    segment: str
    size: int
    """Bytes of its text."""
    packed: int
    """Bytes of the packed file; 0 if there is none."""
    left: str = ""
    """Why the plain file was left as it is, if it was."""


Decision = tuple[Sequence[Record], T]
"""The lines to write, and a value for the caller."""
Decide = Callable[[Cursor], Decision[T]]
"""Decides by the newest line.  Bytes after it that no line has sealed yet, such as the lines of
other programs, make its cursor one that no line has: its offset is -1."""


class Written(NamedTuple, Generic[T]):
    """What `Log.write` wrote."""

    lines: list[Line]
    """As they stand in the log: stamped, masked and numbered."""
    value: T
    """What the decision returned with its lines."""
    masked: bool
    """Whether a secret was taken out of a line."""


class Findings(NamedTuple):
    """What `Log.find` found."""

    lines: list[Line]
    damaged: list[tuple[str, int]]
    """Segment and offset of lines that are no records, as far as one had to look."""


class Question(NamedTuple):
    """Which lines `Log.find` looks for."""

    fields: Mapping[str, str]
    """Values that they have; an index may be kept of these."""
    newest: int | None = None
    """Only so many, the last ones."""
    since: str = ""
    """In no segment whose name is before this one: of a day, in a log by days."""
    wanted: Callable[[Line], bool] = lambda line: True
    """What else they have to be."""
    reads: Callable[[Line], Record] = lambda line: line.record
    """The fields of a line, where others write lines that have to be translated."""
    keep: bool = True
    """Whether an index may be written."""
    progress: Callable[[int, int], None] | None = None
    """Told how many bytes of how many were taken into an index."""
    worth: int = 1 << 20
    """A log of fewer bytes is read without an index."""
    behind: int = 1 << 20
    """So many bytes of the newest segment may lack in it before it is brought up to date."""

    def wants(self, line: Line) -> bool:
        if CONTROL in line.record:
            return False
        record = self.reads(line) if self.fields else line.record
        asked = all(record.get(name) == value for name, value in self.fields.items())
        return asked and self.wanted(line)


class Log(Protocol):
    """Append-only lines, chained by hash; acknowledged means durable."""

    @property
    def key(self) -> str: ...

    def append(self, record: Record) -> Cursor:
        """Write one line; it is on disk when this returns."""
        ...

    def append_all(self, records: Sequence[Record]) -> list[Cursor]: ...

    def write(self, decide: Decide[T]) -> Written[T]:
        """Append the lines that `decide(head)` returns, with no other line in between.

        A decision must be repeatable: it may be run on an older head and again on the newest
        one, and only the lines and the value of its last run count.  It does not write to the
        log itself.  An implementation may end a decision that takes longer than 10 seconds;
        then nothing of it is written, and its caller gets Busy.
        """
        ...

    def tell_of_cut(self, lost: Cursor) -> Cursor:
        """Put on record that the log once held the line `lost` and holds it no more."""
        ...

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]: ...

    def find(self, question: Question) -> Findings:
        """The lines that are asked for, oldest first; read backwards, by an index if it pays."""
        ...

    def segments(self) -> list[str]:
        """The names of its parts, oldest first; of days, for a log by days."""
        ...

    def head(self) -> Cursor:
        """The newest line that can be seen; it need not be durable yet."""
        ...

    def settle(self) -> Cursor:
        """Make every visible line durable; the newest of them.  Not for `decide`."""
        ...

    def contains(self, cursor: Cursor) -> bool:
        """Whether the line that the cursor names is there."""
        ...

    def verify(self) -> Verified: ...
    def archive(self, *, before: str | None = None, dry_run: bool = False) -> list[Archived]:
        """Pack segments that get no more lines; with `before`, only those of days before it.

        Nothing else changes: cursors stay valid, and every line is read as before.
        """
        ...

    def close(self) -> None: ...


class Text(NamedTuple):
    """The content of a document and its revision."""

    data: bytes
    revision: str


class Document(Protocol):
    """A file replaced whole or not at all."""

    def read(self) -> Text | None: ...

    def replace(self, data: bytes, *, expected: str | None = None) -> str:
        """Put new content; with `expected`, only if that is still the revision ("" = absent)."""
        ...

    def update(self, change: Callable[[bytes | None], bytes]) -> str:
        """Read, change and replace, with nobody writing in between."""
        ...

    def close(self) -> None: ...


class Sheet(Protocol):
    """A document that others edit too, without asking."""

    @property
    def key(self) -> str: ...

    def locked(self) -> AbstractContextManager[None]:
        """For the time of a block nobody else who asks is writing."""
        ...

    def read(self) -> Text | None: ...

    def left(self) -> Text | None:
        """What the last `put` took out, as it is now: its writer may not have known."""
        ...

    def base(self) -> Text | None:
        """What the text was made from, where the sheet knows it: a copy that only `put` renews.

        None where a text may come from an older one, such as a file that many have open.
        """
        ...

    def changed_at(self) -> float:
        """When the text was last written by anybody, in seconds since the epoch."""
        ...

    def put(self, data: bytes) -> None:
        """Change places with what is there; under the lock."""
        ...

    def close(self) -> None: ...


class Stamp(NamedTuple):
    """What a view has seen and the state it made of it."""

    log: str
    """Key of the log."""
    cursor: Cursor
    state: Any
    shown: bool = True
    """Whether the file beside it shows just this."""


class Cell(Protocol):
    """Where a view keeps its file and its stamp: a convenience that may vanish at any time."""

    def load(self, version: int) -> Stamp | None: ...

    def stranger(self) -> str | None:
        """The hash of the file that is shown, if the stamp does not account for it."""
        ...

    def save(
        self,
        version: int,
        stamp: Stamp,
        data: bytes,
        *,
        over: Cursor | None = None,
        ours: str | None = None,
    ) -> str | None:
        """Show `data`, unless a newer stamp than this, and another one than `over`, is there.

        A file that the stamp does not account for, and that is not `ours` by its hash, was
        edited by hand: the name under which it was kept aside, if there was one.
        """
        ...

    def close(self) -> None: ...


CLOCKS_DIFFER = 60.0
"""Seconds by which the wall clocks of two machines that share a store may differ."""


class Instant(NamedTuple):
    """A moment by the clock of the store: what deadlines are measured with."""

    host: str
    """The machine that measured it, and after a slash its pid namespace, as in `Owner`."""
    boot: str
    seconds: float
    """After that boot; the same number of another boot is another moment."""
    wall: float
    """Seconds since the epoch, for machines that do not share the boot."""

    def later(self, seconds: float) -> Instant:
        return self._replace(seconds=self.seconds + seconds, wall=self.wall + seconds)

    def left(self, deadline: Instant) -> float:
        """Seconds from now until a deadline; none if its machine was restarted since."""
        ours, theirs = self.host.partition("/")[0], deadline.host.partition("/")[0]
        # Containers of one machine share its boot, and have names of their own.
        if deadline.boot == self.boot and (self.boot or ours == theirs):
            return deadline.seconds - self.seconds
        # Another machine lives on, whatever our boot is: its deadline is read off the wall.
        return 0.0 if ours == theirs else deadline.wall + CLOCKS_DIFFER - self.wall


class Held(NamedTuple):
    """A lease somebody has."""

    owner: Owner
    purpose: str
    since: str
    alive: bool
    fence: int


class Lease(Protocol):
    """Ownership by one process, at least until it is ended by the rule of the store.

    On files that rule is the end of the process: a frozen owner keeps its lease.  A store that
    cannot see processes ends what gives no sign of life for a time that it states.  From then
    on the fencing number is refused; what its owner does outside the store is not fenced.
    """

    def acquire(
        self,
        purpose: str,
        *,
        patience: float = 0.0,
        steal: Callable[[Owner], None] | None = None,
    ) -> int:
        """Own it and return the fencing number, or raise Busy.

        `steal` has to end the owner and everything it started; it is called once, and only
        if somebody has the lease.
        """
        ...

    def release(self) -> None: ...
    def holder(self) -> Held | None: ...
    def close(self) -> None: ...


PRIORITIES = ("high", "normal", "low")
"""In the order in which messages are handed out."""
TRIES = 5
"""How often a message is handed out before it is taken for undeliverable."""


class Message(NamedTuple):
    """A message as it lies in a mailbox."""

    id: str
    """In `bad`, the name of a file that is no message."""
    size: int
    since: float
    """When it was delivered, by the wall clock."""
    attempt: int = 1
    """Which try handing it out will be, or was."""
    priority: str = "normal"
    """Of one that waits."""
    expired: bool = False
    """Done without having been handed out in time."""


class Claim(NamedTuple):
    """A message handed out: to be acknowledged, renewed or given back before the deadline."""

    id: str
    record: Record
    claimant: str
    fence: int
    attempt: int
    deadline: float
    """In boot time."""
    token: str
    """Names this claim and no other one."""

    @property
    def redelivered(self) -> bool:
        return self.attempt > 1


class Claimed(NamedTuple):
    """A message that somebody has, as others see it."""

    id: str
    size: int
    claimant: str
    fence: int
    attempt: int
    left: float
    """Seconds until the deadline; 0 if it has passed or its owner is dead."""
    token: str


Shelf = Literal["waiting", "claimed", "done", "expired", "dead", "bad"]


class Seen(NamedTuple):
    """A message with its record, as it was looked at."""

    shelf: Shelf
    name: str
    """Of its file, with what that says beside the id."""
    id: str
    """In `bad` the name."""
    record: Record | None
    since: float
    note: str = ""
    """Why it has no record, or is bad."""
    attempt: int = 0
    claim: Claimed | None = None


class Mailbox(Protocol):
    """Messages handed out at least once: high before normal before low, then the oldest first.

    A message is waiting, claimed, done, or dead (handed out too often); a file that is none
    is bad.  Its id is its identity: what is done is never handed out again.
    """

    @property
    def key(self) -> str: ...

    def deliver(
        self,
        record: Record,
        *,
        id: str | None = None,
        priority: str | None = None,
        expires: float | None = None,
    ) -> str:
        """Store a message; it is on disk when this returns its id.

        With an `id` that is waiting, claimed or done already, nothing is stored, and the answer
        is the same: a deliverer who does not know how it ended can just deliver again.
        Priority and expiry may stand in the record (`priority`, `expires_at`) instead.
        """
        ...

    def claim(
        self,
        claimant: str,
        *,
        fence: int,
        seconds: float,
        owner: Owner | None = None,
        limit: int = 1,
    ) -> list[Claim]:
        """Have up to `limit` messages for some seconds; shorter if the process `owner` dies."""
        ...

    def ack(self, claim: Claim | Claimed) -> None:
        """The message is done; LeaseLost if it is not ours any more."""
        ...

    def take(
        self,
        claimant: str,
        id: str,
        *,
        fence: int,
        seconds: float,
        owner: Owner | None = None,
    ) -> Claim | None:
        """Claim this one message, whatever waits before it; None if it cannot be handed out."""
        ...

    def set_aside(self, claim: Claim | Claimed, why: str) -> None:
        """Put a message that somebody has among the bad ones, if it is still that claim's."""
        ...

    def look(self, shelf: Shelf) -> list[Seen]:
        """What is on a shelf, with its records; what waits in order, the rest by name.

        A file that is no message has no record; it may still be among those that wait.
        """
        ...

    def remove(self, seen: Sequence[Seen]) -> None:
        """Drop messages that are done, expired or dead; whoever has them elsewhere may."""
        ...

    def renew(self, claim: Claim, seconds: float) -> Claim:
        """Have it for some seconds from now."""
        ...

    def give_back(self, claim: Claim | Claimed, reason: str) -> bool:
        """Let it be handed out again; False if that was the last try and it is dead now."""
        ...

    def redeliver(self) -> int:
        """Take back what was claimed by the dead and the late, as every `claim` does first."""
        ...

    def waiting(self) -> list[Message]:
        """In the order in which they will be handed out."""
        ...

    def claimed(self) -> list[Claimed]: ...
    def done(self) -> list[Message]: ...
    def dead(self) -> list[Message]: ...
    def bad(self) -> list[Message]: ...
    def close(self) -> None: ...


class Blob(Protocol):
    """Bytes too large to hold at once, replaced whole or not at all."""

    @property
    def key(self) -> str: ...

    def put(self, chunks: Iterable[bytes]) -> str:
        """Replace the content; its revision.  It is on disk when this returns."""
        ...

    def read(self, start: int = 0) -> Iterator[bytes]:
        """The content from an offset on, in pieces; nothing where there is no blob."""
        ...

    def size(self) -> int | None: ...
    def close(self) -> None: ...

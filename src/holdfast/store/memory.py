"""The store in memory: the same primitives without a disk.

For tests, simulations and as the proof that the seam is a seam: everything above the store
runs on this backend unchanged.  It is as durable as the process.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from datetime import UTC
from tempfile import TemporaryDirectory

from holdfast import mask
from holdfast.clock import Clock, SystemClock, local_stamp, utc_stamp
from holdfast.codec import MAX_DOCUMENT, Record, encode
from holdfast.errors import BadValue, Busy, Conflict
from holdfast.ids import key_parts
from holdfast.mask import Masker
from holdfast.process import Owner, alive, here, this_process
from holdfast.settings import Settings
from holdfast.store import chain
from holdfast.store.backend import Peek, Value
from holdfast.store.chain import ORIGIN, Link
from holdfast.store.commit import within_decision
from holdfast.store.document import revision_of
from holdfast.store.memory_mailbox import MemoryMailbox, Slots
from holdfast.store.peek import peek
from holdfast.store.primitives import (
    CONTROL,
    CUT,
    START,
    TRIES,
    Archived,
    BadLine,
    Cursor,
    Decide,
    Findings,
    Held,
    Instant,
    Line,
    Question,
    Stamp,
    T,
    Text,
    Verified,
    Written,
)
from holdfast.store.reader import Source, line_of, read_lines, verify
from holdfast.store.segments import log_at
from holdfast.store.view import Shape, State


class Memory:
    """A backend; primitives opened by the same key share one content."""

    def __init__(
        self, clock: Clock | None = None, masker: Masker = mask.nothing, *, host: str = ""
    ) -> None:
        self.clock, self._masker, self._host = clock or SystemClock(), masker, host
        self._logs: dict[str, MemoryLog] = {}
        self._documents: dict[str, MemoryDocument] = {}
        self._sheets: dict[str, MemorySheet] = {}
        self._cells: dict[str, MemoryCell] = {}
        self._leases: dict[str, _Slot] = {}
        self._mailboxes: dict[str, Slots] = {}
        self._blobs: dict[str, MemoryBlob] = {}
        self._noticed: set[tuple[str, str]] = set()
        self._folder: TemporaryDirectory[str] | None = None
        self.url, self.settings = "memory:", Settings()
        self._secret = secrets.token_bytes(32)

    def log(self, key: str) -> MemoryLog:
        log_at(key)
        return self._logs.setdefault(key, MemoryLog(key, self.clock, self._masker))

    def document(self, key: str) -> MemoryDocument:
        key_parts(key)
        return self._documents.setdefault(key, MemoryDocument(key))

    def sheet(self, key: str) -> MemorySheet:
        key_parts(key)
        return self._sheets.setdefault(key, MemorySheet(key, self.clock))

    def cell(self, key: str) -> MemoryCell:
        key_parts(key)
        return self._cells.setdefault(key, MemoryCell())

    def lease(self, key: str) -> MemoryLease:
        key_parts(key)
        slot = self._leases.setdefault(key, _Slot())
        return MemoryLease(self.clock, slot)

    def mailbox(self, key: str, *, tries: int = TRIES) -> MemoryMailbox:
        key_parts(key)
        slots = self._mailboxes.setdefault(key, Slots())
        return MemoryMailbox(key, slots, self, tries)

    def blob(self, key: str) -> MemoryBlob:
        key_parts(key)
        return self._blobs.setdefault(key, MemoryBlob(key))

    def peek(self, view: str, log: str, shape: Shape[State]) -> Peek[State]:
        return peek(self.log(log), self.cell(view), shape, self.clock)

    def names(self, prefix: str = "") -> list[str]:
        inside = f"{prefix}/" if prefix else ""
        boxes = [key for key, slots in self._mailboxes.items() if slots.is_used()]
        below = [*self.keys(prefix), *(key for key in boxes if key.startswith(inside))]
        return sorted({key.removeprefix(inside).partition("/")[0] for key in below})

    def version(self, key: str) -> str:
        key_parts(key)
        if key in self._logs:
            head = self._logs[key].head()
            return head.hash if head != START else ""
        if key in self._cells:
            data = self._cells[key].data
            return "" if data is None else revision_of(data)
        kept = self._documents.get(key) or self._sheets.get(key) or self._blobs.get(key)
        text = kept.read() if kept is not None and not isinstance(kept, MemoryBlob) else None
        if isinstance(kept, MemoryBlob):
            return revision_of(kept.data) if kept.data is not None else ""
        return text.revision if text is not None else ""

    def scratch(self, key: str) -> str:
        key_parts(key)
        self._folder = self._folder or TemporaryDirectory(prefix="holdfast-")
        path = f"{self._folder.name}/{key}"
        os.makedirs(path, exist_ok=True)  # direct write: a folder of the machine  # noqa: TID251
        return path

    def keys(self, prefix: str = "") -> list[str]:
        if prefix:
            key_parts(prefix)
        logs = [
            key if key.endswith(".jsonl") else f"{key}/{segment}"
            for key, log in self._logs.items()
            for segment in log.segments()
        ]
        kept = {**self._documents, **self._sheets}
        documents = [key for key, one in kept.items() if one.read() is not None]
        cells = {**self._cells, **self._blobs}
        views = [key for key, one in cells.items() if one.data is not None]
        inside = f"{prefix}/" if prefix else ""
        return sorted(key for key in (*logs, *documents, *views) if key.startswith(inside))

    def mask(self, value: Value) -> Value:
        return self._masker({"text": value})["text"]

    def secret(self) -> bytes:
        return self._secret

    def now(self) -> Instant:
        clock = self.clock
        return Instant(self._host or here(), clock.boot(), clock.boottime(), clock.now())

    def alive(self, owner: Owner) -> bool | None:
        return alive(owner, self._host)

    def day(self, instant: float | None = None) -> str:
        return local_stamp(self.clock.now() if instant is None else instant, UTC)[:10]

    def notice(self, word: str, detail: str) -> None:
        if (word, detail) not in self._noticed:
            self._noticed.add((word, detail))
            self.log("audit").append({"event": word, "detail": detail})

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def seen_from(self, host: str, clock: Clock) -> Memory:
        """The same content as another machine sees it."""
        other = copy(self)
        other._host, other.clock, other._folder = host, clock, None
        return other


class MemoryLog:
    def __init__(self, key: str, clock: Clock, masker: Masker) -> None:
        self.key = key
        self._clock, self._mask = clock, masker
        self._daily = not key.endswith(".jsonl")
        self._lock = threading.RLock()
        self._deciding = False
        self._segments: dict[str, bytearray] = {}
        self._link: Link = ORIGIN
        self._head = START

    def append(self, record: Record) -> Cursor:
        return self.append_all([record])[0]

    def append_all(self, records: Sequence[Record]) -> list[Cursor]:
        return [line.cursor for line in self._put_all([self._mask(each) for each in records])]

    def write(self, decide: Decide[T]) -> Written[T]:
        with self._writing():
            self._deciding = True
            try:
                records, value = decide(self._head)
            finally:
                self._deciding = False
            clean = [self._mask(each) for each in records]
            masked = any(one is not other for one, other in zip(clean, records, strict=True))
            return Written(self._put_all(clean), value, masked)

    def _put_all(self, records: list[Record]) -> list[Line]:
        bodies = [self._encoded(record) for record in records]
        with self._writing():
            return [self._put(*body) for body in bodies]

    @contextmanager
    def _writing(self) -> Generator[None]:
        with self._lock:
            if self._deciding:
                raise within_decision()
            yield

    def tell_of_cut(self, lost: Cursor) -> Cursor:
        with self._writing():
            record = {CONTROL: CUT, "lost": lost.seq, "hash_of_lost": lost.hash}
            return self._put(encode(record), own_stamp=False).cursor

    def _encoded(self, record: Record) -> tuple[bytes, bool]:
        own_stamp = "ts" in record
        if own_stamp and self._daily:
            raise BadValue("`ts` is set by the log", hint="give another time another name")
        return chain.body(record), own_stamp

    def _put(self, data: bytes, own_stamp: bool) -> Line:
        now = self._clock.now()
        local = local_stamp(now, UTC)
        stamp = local if self._daily else utc_stamp(now)
        if not own_stamp:
            data = b'{"ts":"%b",%b' % (stamp.encode(), data[1:])
        line, self._link = chain.seal(data, self._link)
        today = f"{local[:10]}.jsonl"
        segment = max(today, *self._segments, "") if self._daily else self.key
        text = self._segments.setdefault(segment, bytearray())
        text += line
        found = line_of(line[:-1], segment, len(text) - len(line), len(text))
        assert isinstance(found, Line)
        self._head = found.cursor
        return found

    def segments(self) -> list[str]:
        return sorted(self._segments)

    def read(self, after: Cursor = START) -> Iterator[Line | BadLine]:
        return read_lines(self._sources(after))

    def find(self, question: Question) -> Findings:
        found = Findings([], [])
        for line in self.read():
            if isinstance(line, Line) and line.segment >= question.since and question.wants(line):
                found.lines.append(line)
        if question.newest is not None:
            del found.lines[: max(0, len(found.lines) - question.newest)]
        return found

    def verify(self) -> Verified:
        return verify(self._sources(START))

    def _sources(self, after: Cursor) -> Iterator[Source]:
        with self._lock:
            texts = {name: bytes(text) for name, text in self._segments.items()}
        for name in sorted(texts):
            if name >= after.segment:
                start = after.offset if name == after.segment else 0
                yield Source(name, start, name == max(texts), iter([texts[name][start:]]))

    def archive(self, *, before: str | None = None, dry_run: bool = False) -> list[Archived]:
        """Nothing here takes less room when it is packed."""
        if before is not None and not self._daily:
            raise BadValue("only a log by days has days", hint="leave `before` out")
        return []

    def head(self) -> Cursor:
        return self._head

    def settle(self) -> Cursor:
        return self._head

    def contains(self, cursor: Cursor) -> bool:
        if cursor == START:
            return True
        text = self._segments.get(cursor.segment, b"")
        if not 0 < cursor.offset <= len(text):
            return False
        return text.endswith(chain.suffix(cursor.seq, cursor.hash), 0, cursor.offset)

    def close(self) -> None:
        """Nothing to let go."""


class MemoryDocument:
    def __init__(self, key: str) -> None:
        self.key = key
        self._data: bytes | None = None
        self._lock = threading.Lock()

    def read(self) -> Text | None:
        data = self._data
        return None if data is None else Text(data, revision_of(data))

    def replace(self, data: bytes, *, expected: str | None = None) -> str:
        def checked(old: bytes | None) -> bytes:
            if expected is not None and expected != ("" if old is None else revision_of(old)):
                raise Conflict(
                    f"{self.key} has changed since it was read",
                    hint="read it again and repeat the change",
                    path=self.key,
                )
            return data

        return self.update(checked)

    def update(self, change: Callable[[bytes | None], bytes]) -> str:
        with self._lock:
            data = change(self._data)
            if len(data) > MAX_DOCUMENT:
                raise BadValue(
                    f"too large for a document: {len(data)} bytes",
                    hint=f"at most {MAX_DOCUMENT}",
                    path=self.key,
                )
            self._data = data
        return revision_of(data)

    def close(self) -> None:
        """Nothing to let go."""


class MemoryBlob:
    def __init__(self, key: str) -> None:
        self.key = key
        self.data: bytes | None = None

    def put(self, chunks: Iterable[bytes]) -> str:
        data = b"".join(chunks)
        self.data = data
        return revision_of(data)

    def read(self, start: int = 0) -> Iterator[bytes]:
        if self.data is not None and start < len(self.data):
            yield self.data[start:]

    def size(self) -> int | None:
        return None if self.data is None else len(self.data)

    def close(self) -> None:
        """Nothing to let go."""


class MemorySheet:
    def __init__(self, key: str, clock: Clock) -> None:
        self.key = key
        self._clock = clock
        self._lock = threading.Lock()
        self._data: bytes | None = None
        self._left: bytes | None = None
        self._changed = 0.0

    @contextmanager
    def locked(self) -> Generator[None]:
        with self._lock:
            yield

    def read(self) -> Text | None:
        data = self._data
        return None if data is None else Text(data, revision_of(data))

    def left(self) -> Text | None:
        data = self._left
        return None if data is None else Text(data, revision_of(data))

    def base(self) -> Text | None:
        return None

    def changed_at(self) -> float:
        return self._changed

    def put(self, data: bytes) -> None:
        self._left, self._data = self._data, data

    def save(self, data: bytes) -> None:
        """What somebody does who does not ask."""
        self._data, self._changed = data, self._clock.now()

    def close(self) -> None:
        """Nothing to let go."""


class MemoryCell:
    def __init__(self) -> None:
        self.data: bytes | None = None
        self._stamp: tuple[int, Stamp] | None = None

    def load(self, version: int) -> Stamp | None:
        if self._stamp is None or self._stamp[0] != version:
            return None
        return deepcopy(self._stamp[1])

    def stranger(self) -> str | None:
        """Nobody can edit what is in memory."""

    def save(
        self,
        version: int,
        stamp: Stamp,
        data: bytes,
        *,
        over: Cursor | None = None,
        ours: str | None = None,
    ) -> str | None:
        seen = self.load(version)
        newer = seen is not None and seen.cursor.seq > stamp.cursor.seq
        if not newer or (seen is not None and seen.cursor == over):
            self.data, self._stamp = data, (version, deepcopy(stamp))

    def close(self) -> None:
        """Nothing to let go."""


class _Slot:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: Held | None = None
        self.fence = 0


class MemoryLease:
    def __init__(self, clock: Clock, slot: _Slot) -> None:
        self.slot, self._clock = slot, clock
        self._mine = False

    def acquire(
        self,
        purpose: str,
        *,
        patience: float = 0.0,
        steal: Callable[[Owner], None] | None = None,
    ) -> int:
        deadline = self._clock.boottime() + patience
        while not self.slot.lock.acquire(blocking=False):
            held = self.slot.held
            if steal is not None and held is not None:
                steal(held.owner)
                steal = None
                continue
            if self._clock.boottime() >= deadline:
                said = f"held since {held.since}: {held.purpose}" if held else "held"
                raise Busy(said, hint="wait for it")
            self._clock.sleep(0.01)
        self._mine = True
        self.slot.fence += 1
        since = utc_stamp(self._clock.now())
        owner = this_process()
        self.slot.held = Held(owner, purpose, since, alive=True, fence=self.slot.fence)
        return self.slot.fence

    def release(self) -> None:
        if self._mine:
            self._mine = False
            self.slot.held = None
            self.slot.lock.release()

    def holder(self) -> Held | None:
        return self.slot.held

    def close(self) -> None:
        self.release()

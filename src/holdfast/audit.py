"""The audit log: one line for each rule that was broken, each refusal, each secret taken out.

What the store notices of itself (`Home.notice`) stands in the same log, under words of its own.

Whoever may have died between doing something and telling of it tells again, with the same `ref`.
A `ref` is looked for in the newest files of the log, and again, in what was added since, under
its lock: two that tell the same at once tell it once.  What is older than those files is forgotten,
so that telling never costs more with the years.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack
from weakref import WeakKeyDictionary

from holdfast import mask
from holdfast.clock import instant
from holdfast.codec import Record, encode
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.layout import AUDIT
from holdfast.store.primitives import START, BadLine, Cursor, Decision, Line, Question
from holdfast.text import clip, plural

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.primitives import Log

KINDS = {
    "schema": "an answer that is no object of the form asked for",
    "action": "an answer whose action does not exist or is not accepted",
    "summary": "an answer whose summary is missing, too long, unreadable or an echo",
    "evidence_missing": "evidence that is not in the workspace",
    "evidence_escape": "evidence outside of the workspace",
    "timeout": "no answer in the time there was",
    "stale_approval": "an approval of something else than what is there now",
    "redaction": "secrets that were masked before anything was written",
    "refusal": "something that was not allowed to begin",
}
FILES_SEARCHED = 7
"""The newest files in which a `ref` is recognised: of a week, if every day has one."""
_MOST_REFS = 100_000
_MOST_DETAIL = 2000
_TAG = re.compile(rb"\[SECRET(?::[a-z-]+:[0-9a-f]{8})?\]")


class Entry(NamedTuple):
    record: Record
    line: Line

    @property
    def instant(self) -> float:
        """When it was told; 0 if that cannot be said."""
        return instant(self.record.get("ts")) or 0.0

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on behind it."""
        return _behind(self.line)


class About(TypedDict, total=False):
    """What an entry is about, and the `ref` by which it is known again."""

    job: str | None
    agent: str | None
    sequence: int | None
    ref: str | None


def tell(
    home: Home,
    kind: str,
    detail: str,
    data: Mapping[str, Any] | None = None,
    **about: Unpack[About],
) -> bool:
    """Record one entry; False if the same `ref` is recorded already."""
    if kind not in KINDS:
        raise UsageError(f"no kind of audit is called {kind[:80]!r}", hint=", ".join(KINDS))
    # What can be written of a text of unknown origin.
    clean = detail.encode("utf-8", "backslashreplace").decode()
    line: Record = {"event": kind, "detail": clip(clean, _MOST_DETAIL)}
    named = {"job_id" if name == "job" else name: value for name, value in about.items()}
    line |= {name: value for name, value in named.items() if value is not None}
    line |= {"data": dict(data)} if data else {}
    ref = about.get("ref")
    with closing(home.log(AUDIT)) as log:
        if ref is None:
            log.append(line)
            return True
        with _searching:
            searched = _searched.setdefault(home, _Refs())
            # The most of it outside of the lock that all who tell have to wait for.
            searched.follow(log)
            if ref in searched.known:
                return False

            def unless_told(head: Cursor) -> Decision[None]:
                searched.follow(log)
                return [] if ref in searched.known else [line], None

            return bool(log.write(unless_told).lines)


class _Refs:
    """The refs in the newest files, as far as they were read; goes on where it stopped."""

    def __init__(self) -> None:
        self.known: dict[str, None] = {}
        self._read = START

    def follow(self, log: Log) -> None:
        if self._read == START:
            newest = log.segments()[-FILES_SEARCHED:]
            self._read = START._replace(segment=newest[0]) if newest else START
        for line in log.read(self._read):
            self._read = _behind(line)
            if isinstance(line, Line) and isinstance(found := line.record.get("ref"), str):
                self.known[found] = None
        while len(self.known) > _MOST_REFS:
            del self.known[next(iter(self.known))]


_searched: WeakKeyDictionary[Home, _Refs] = WeakKeyDictionary()
_searching = Lock()


def _behind(line: Line | BadLine) -> Cursor:
    return START._replace(segment=line.segment, offset=line.end)


def refused(home: Home, what: str, error: HoldfastError, **about: Unpack[About]) -> None:
    """Tell that `what` was not allowed; failing to must not hide the refusal itself."""
    with suppress(HoldfastError):
        tell(home, "refusal", f"{what}: {error.message}", {"code": error.code}, **about)


def redacted(home: Home, what: str, record: Record, **about: Unpack[About]) -> int:
    """Tell how many secrets the store masks in `record` when it is written, if there are any."""
    hidden = _mask(record)
    if hidden is record:
        return 0
    count = len(_TAG.findall(encode(hidden))) - len(_TAG.findall(encode(record)))
    if count > 0:
        detail = f"{plural(count, 'secret')} masked in {what}"
        tell(home, "redaction", detail, {"count": count}, **about)
    return max(count, 0)


_mask = mask.hiding()


# --- reading --------------------------------------------------------------------------------


class Audit(AbstractContextManager["Audit"]):
    """The log, for those who look at it."""

    def __init__(self, home: Home) -> None:
        self._home, self._log = home, home.log(AUDIT)
        self.damaged: set[tuple[str, int]] = set()
        """Where lines were met that are no records."""

    def read(self, after: Cursor = START) -> Iterator[Entry]:
        """In the order of writing."""
        for line in self._log.read(after):
            if isinstance(line, BadLine):
                self.damaged.add((line.segment, line.offset))
            elif "event" in line.record:
                yield Entry(line.record, line)

    def newest(
        self, limit: int | None, wanted: Callable[[Entry], bool], since: float | None = None
    ) -> list[Entry]:
        """The last `limit` entries that are wanted, oldest first; reads file by file, backwards."""

        def fits(line: Line) -> bool:
            return "event" in line.record and wanted(Entry(line.record, line))

        day = "" if since is None else self._home.day(since)
        found = self._log.find(Question({}, limit, since=day, wanted=fits))
        self.damaged.update(found.damaged)
        return [Entry(line.record, line) for line in found.lines]

    def entry(self, seq: int) -> Entry:
        """The one with this number."""
        if found := self.newest(1, lambda each: each.line.seq == seq):
            return found[0]
        raise NotFound(
            f"the audit has no entry {seq}", hint="`holdfast audit list` shows their numbers"
        )

    def head(self) -> Cursor:
        return self._log.head()

    def close(self) -> None:
        self._log.close()

    def __exit__(self, *exc: object) -> None:
        self.close()

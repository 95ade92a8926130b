"""What people who build on Holdfast need for their own tests.

`holdfast.testing.conformance` is the suite for store backends; here is what such tests share, and
what tests of agents that work on jobs need.  No test framework is needed.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from typing import Any, Protocol, TypeVar

from holdfast.clock import FakeClock, SystemClock
from holdfast.errors import HoldfastError
from holdfast.mask import Masker, by_key_name
from holdfast.store.backend import Backend
from holdfast.store.primitives import (
    START,
    TRIES,
    BadLine,
    Cell,
    Cursor,
    Document,
    Lease,
    Line,
    Log,
    Mailbox,
    Stamp,
)
from holdfast.testing.jobs import next_state as next_state
from holdfast.testing.jobs import replay_job_history as replay_job_history
from holdfast.testing.jobs import unmarked as unmarked
from holdfast.testing.jobs import validate_agent_response as validate_agent_response

LOG, DAYS, DOCUMENT, VIEW, LEASE = "state/a.jsonl", "ledger/a", "a.md", "state/a.json", "jobs/a"
MAILBOX = "state/a/inbox"
DAY = 86_400.0
NOON = 1_699_963_200.0
"""2023-11-14T12:00:00Z."""

BAD_KEYS = (
    "", "/", "/etc/passwd", "..", "../x", "a/../b", "a//b", "a/", ".hidden", "a/.lock", "a b",
    "a\\b", "a\0b", "a\nb", "-a", "~a", "a/é", "a/e\u0301", "a/\u202e", "%2e%2e/x", "a:b",
    "x" * 300, "\udcff", "a/٣",
)  # fmt: skip
"""Keys that no backend may take."""

JSON_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**64 - 1, -(2**63), 0.1, -0.0, 1e308, 5e-324, "", "null",
    "\u2028\u2029\x85", "\0\x1f\x7f", "é\U0001f980", '"\\/', "a\nb\r\n", [], {}, [[[]]],
    {"": {"": []}}, {"b": 1, "a": 2},
)  # fmt: skip
"""Values that come back from every backend just as they were."""


class Odd(Enum):
    """What a careless encoder writes as null."""

    NAN = math.nan


BAD_VALUES: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, [math.nan], {"x": [None, math.inf]}, 2**64, -(2**63) - 1,
    b"bytes", {1, 2}, object(), "\ud800", {"\udfff": 1}, {1: 2}, Odd.NAN,
)  # fmt: skip
"""Values that no backend may write."""


class Turner(FakeClock):
    """A fake clock that lets something happen while somebody sleeps."""

    def __init__(self, now: float = NOON, *, boottime: float = 1_000.0, name: str = "boot") -> None:
        super().__init__(now, boottime=boottime, name=name)
        self.meanwhile: Callable[[], None] | None = None
        self.waits = False
        """Whether sleeping really waits while the time stands still, for tests with threads."""

    def sleep(self, seconds: float) -> None:
        if self.waits:
            SystemClock().sleep(seconds)
            return
        super().sleep(seconds)
        if self.meanwhile is not None:
            self.meanwhile()


@contextmanager
def refused(kind: type[HoldfastError], says: str = "") -> Generator[None]:
    """The block must fail with just this kind of error, which says what to do next."""
    try:
        yield
    except HoldfastError as error:
        assert type(error) is kind, f"{type(error).__name__} instead of {kind.__name__}: {error}"
        assert says in error.message, error.message
        assert error.hint, f"no hint: {error}"
        return
    raise AssertionError(f"{kind.__name__} was expected")


def all_refused(
    kind: type[HoldfastError], call: Callable[[Any], object], values: Iterable[object]
) -> None:
    """The call must fail with just this kind of error for each of the values."""
    for value in values:
        with refused(kind):
            call(value)


@contextmanager
def passing_on(kind: type[Exception]) -> Generator[None]:
    """The block must let an error of the caller's own through."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was lost")


def raising(kind: type[Exception]) -> Callable[..., Any]:
    """A decision, or a change, that fails."""

    def fail(*_: object) -> None:
        raise kind

    return fail


def together(*calls: Callable[[], object], seconds: float = 60.0) -> None:
    """Run all calls in threads of their own; the first failure is raised."""
    failures: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def lines_of(log: Log, after: Cursor = START) -> list[Line]:
    """What a reader sees behind `after`, which must be whole lines."""
    found = list(log.read(after))
    bad = [one for one in found if isinstance(one, BadLine)]
    assert not bad, bad
    return [one for one in found if isinstance(one, Line)]


def numbers_of(log: Log, after: Cursor = START) -> list[Any]:
    """The field `n` of every line behind `after`."""
    return [line.record.get("n") for line in lines_of(log, after)]


def data_of(document: Document) -> bytes:
    """The content of a document, which must be there."""
    found = document.read()
    assert found is not None, "the document is absent"
    return found.data


def stamp_of(cell: Cell, version: int = 1) -> Stamp:
    """The stamp of a cell, which must be there."""
    found = cell.load(version)
    assert found is not None, "the cell has no stamp"
    return found


def nested(depth: int) -> Any:
    """Lists in lists."""
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


class Closable(Protocol):
    def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


class Tidy:
    """Lets go at the end of a test of all that it opened."""

    @cached_property
    def _opened(self) -> list[Closable]:
        return []

    def teardown_method(self) -> None:
        while self._opened:
            self._opened.pop().close()

    tearDown = teardown_method

    def _keep(self, opened: Opened) -> Opened:
        self._opened.append(opened)
        return opened


class Conformance(Tidy):
    """What the parts share: how the backend is opened, and its clocks."""

    def open(self) -> Backend:
        """The backend under test, over the same data each time."""
        raise NotImplementedError

    def elsewhere(self) -> Backend:
        """The same data as another machine has it open: with another host name, and `far_clock`."""
        raise NotImplementedError

    def save_by_hand(self, key: str, data: bytes) -> None:
        """What an editor does to a sheet, without asking."""
        raise NotImplementedError

    @cached_property
    def far_clock(self) -> Turner:
        """The clock of that machine: another boot, long before, and a wall that is ahead."""
        return Turner(NOON + 30.0, boottime=7_000_000.0, name="far boot")

    @cached_property
    def clock(self) -> Turner:
        """It is noon on 2023-11-14, and stays so until a test turns the clock."""
        return Turner()

    @cached_property
    def masker(self) -> Masker:
        return by_key_name(lambda: b"conformance")

    def log(self, key: str = LOG) -> Log:
        return self._keep(self.open().log(key))

    def document(self, key: str = DOCUMENT) -> Document:
        return self._keep(self.open().document(key))

    def cell(self, key: str = VIEW) -> Cell:
        return self._keep(self.open().cell(key))

    def lease(self, key: str = LEASE) -> Lease:
        return self._keep(self.open().lease(key))

    def mailbox(self, key: str = MAILBOX, *, tries: int = TRIES) -> Mailbox:
        return self._keep(self.open().mailbox(key, tries=tries))

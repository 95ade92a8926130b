"""Sends what changes in a home to every open page: one watcher for all of them.

Four times a second the watcher compares sizes and times of the files that pages show, reads what
is new at the end of the logs among them, and hands it to the subscribers.  A page that was away
names the last event it has and gets the rest, or has to load itself again.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import Record, encode
from holdfast.errors import HoldfastError
from holdfast.ids import is_agent_id
from holdfast.improve.journal import JOURNAL, Place, campaigns
from holdfast.jobs.queue import folders
from holdfast.layout import SPENT
from holdfast.ledger.book import agents
from holdfast.store.primitives import CONTROL, START, Cursor, Line

if TYPE_CHECKING:
    from holdfast.layout import Layout, Part
    from holdfast.store.home import Home
    from holdfast.store.primitives import Log

PAUSE = 0.25
KEPT = 500
"""So many events a page may have missed."""
QUEUE = 200
_AGENTS_AGAIN = 2.0
LOGS: tuple[Part, ...] = ("ledger", "journal")
FILES: tuple[Part, ...] = ("inbox", "tasks", "notes", "manifest", "turns")
RUNS: tuple[Part, ...] = ("swarms", "runs")
_LONGEST = 300
_SHOWN = ("event", "ts", "task_id", "session_id", "summary", "outcome", "text")


def _mark(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
        marks = [found.st_mtime_ns, found.st_size, found.st_ino]
        if not os.path.isdir(path):
            return tuple(marks)
        days = [name for name in os.listdir(path) if name.endswith(".jsonl")]
        if days:
            newest = os.stat(os.path.join(path, max(days)))
            marks += [newest.st_mtime_ns, newest.st_size]
        return tuple(marks)
    except OSError:
        return ()


def _newest(folder: str) -> tuple[int, ...]:
    """The number of files in a folder, and when one of them was last written."""
    try:
        with os.scandir(folder) as found:
            times = [each.stat().st_mtime_ns for each in found if not each.name.startswith(".")]
        return (len(times), max(times, default=0))
    except OSError:
        return ()


class Event(NamedTuple):
    number: int
    data: bytes


class Watched:
    """A log, and how far it was sent."""

    def __init__(self, log: Log, cursor: Cursor) -> None:
        self.log, self.cursor = log, cursor

    def news(self) -> Iterator[Record]:
        for line in self.log.read(self.cursor):
            if not isinstance(line, Line):
                continue
            if line.seq is not None and line.hash is not None:
                self.cursor = Cursor(line.seq, line.hash, line.segment, line.end)
            if CONTROL not in line.record:
                yield line.record


class Live:
    def __init__(self, home: Home, layout: Layout) -> None:
        self._home, self._layout = home, layout
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self.number = 0
        self._queues: set[asyncio.Queue[Event | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched: dict[str, Watched] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        self._looked, self._began = float("-inf"), False
        self._names: list[str] = []
        self._jobs: list[str] = []
        self._campaigns: list[Place] = []
        self.run = f"{os.getpid():x}{home.clock.now():.0f}"
        """Numbers of events mean something only within one run."""

    # -- subscribers -------------------------------------------------------------------

    @asynccontextmanager
    async def subscription(self, since: str) -> AsyncGenerator[AsyncIterator[Event | None]]:
        """What happens from now on, and what was missed since an event; None: all is stale."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(QUEUE)
        self._begin()
        for event in self._missed(since):
            queue.put_nowait(event)
        self._queues.add(queue)
        try:
            yield self._from(queue)
        finally:
            self._queues.discard(queue)

    async def _from(self, queue: asyncio.Queue[Event | None]) -> AsyncIterator[Event | None]:
        while not self._stop.is_set():
            yield await queue.get()

    def _missed(self, since: str) -> list[Event | None]:
        run, _, number = since.rpartition("-")
        if not since:
            return []
        if run != self.run or not number.isdecimal():
            return [None]
        last = int(number)
        if self._kept and last + 1 < self._kept[0].number:
            return [None]
        missed: list[Event | None] = [each for each in self._kept if each.number > last]
        return missed if len(missed) < QUEUE else [None]

    def _begin(self) -> None:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        for queue in self._queues:
            _offer(queue, None)
        if self._thread is not None:
            self._thread.join()

    # -- the watcher -------------------------------------------------------------------

    def _watch(self) -> None:
        self._look()
        self._began = True  # what was there before is no news
        while not self._stop.wait(PAUSE):
            if self._queues:
                for event in self._look():
                    self._tell(event)

    def _look(self) -> list[Record]:
        events: list[Record] = []
        try:
            now = self._home.clock.boottime()
            if now - self._looked >= _AGENTS_AGAIN:
                self._looked, self._names = now, agents(self._home, self._layout)
                self._campaigns = campaigns(self._home)
                if "queue" in self._layout.paths:
                    self._jobs = folders(self._home, self._layout)
            for agent in self._names:
                events += self._look_at(agent)
            for job in self._jobs:
                if self._changed(f"{self._layout.path('job', job)}/history.jsonl"):
                    events.append({"kind": "job", "agent": None, "job": job})
            for place in self._campaigns:
                if self._changed(place.key(JOURNAL)):
                    events.append({"kind": "improve", "agent": None})
            if self._changed(SPENT):
                events.append({"kind": "spend", "agent": None})
            for part in RUNS:
                key = self._layout.paths.get(part)
                if key is not None and self._changed(key, _newest):
                    events.append({"kind": "swarm", "agent": None})
        except (HoldfastError, OSError) as error:
            self._home.notice("dashboard", f"watching failed: {error}"[:_LONGEST])
        return events

    def _look_at(self, agent: str) -> Iterator[Record]:
        if not is_agent_id(agent):
            return
        for kind in LOGS:
            key = self._layout.path(kind, agent)
            # Looked at before it is read: what comes in between is found the next time.
            changed, watched = self._changed(key), self._watched.get(key)
            if watched is None:
                log = self._home.log(key)
                watched = Watched(log, START if self._began else log.head())
                self._watched[key] = watched
            if changed:
                for record in watched.news():
                    texts = {each: record.get(each) for each in _SHOWN}
                    shown = {n: s[:_LONGEST] for n, s in texts.items() if isinstance(s, str)}
                    yield {"kind": kind, "agent": agent, **shown}
        for kind in FILES:
            if self._changed(self._layout.path(kind, agent)):
                yield {"kind": kind, "agent": agent}

    def _changed(self, key: str, mark: Callable[[str], tuple[int, ...]] = _mark) -> bool:
        """Whether a file or the newest file of a folder is another than last time."""
        now = mark(os.path.join(self._home.path, key))
        before = self._seen.get(key, ())
        self._seen[key] = now
        return self._began and before != now

    def _tell(self, event: Record) -> None:
        self.number += 1
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._hand_out, Event(self.number, encode(event)))

    def _hand_out(self, event: Event) -> None:
        self._kept.append(event)
        for queue in self._queues:
            _offer(queue, event)


def _offer(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        # Too slow for single events: it loads the page anew instead.
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

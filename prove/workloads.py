"""What the simulated writers do: every public operation of the store, as one letter each.

A scenario gives each writer a word of such letters; `play` runs them interleaved and notes in
the journal when each write began and when it was acknowledged.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from random import Random
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, Indeterminate, StorageError
from holdfast.settings import Settings
from holdfast.store import commit, view
from holdfast.store.document import FileDocument
from holdfast.store.home import Home
from holdfast.store.lease import FileLease
from holdfast.store.lock import Lock
from holdfast.store.log import FileLog
from holdfast.store.mailbox import FileMailbox
from holdfast.store.primitives import Claim, Cursor, Line
from holdfast.store.vfs import Vfs
from holdfast.store.view import Shape, View
from prove.schedule import Scheduler, SimClock, SimThreading
from prove.sim import EMPTY, Fault, Op, SimFs, SimVfs, State

NOON = 1_795_521_600.0
DAY = 86_400.0


def _fold(state: list[str], line: Line) -> list[str]:
    return [*state, line.record["id"]]


SHAPE: Shape[list[str]] = Shape(
    version=1,
    initial=list,
    fold=_fold,
    render=lambda state: json.dumps(state, indent=1).encode() + b"\n",
)


class Station:
    """A home as one process has it open."""

    def __init__(self, vfs: Vfs, clock: SimClock, rotate_at: int, path: str = "/") -> None:
        self.clock = clock
        self.home = Home(path, vfs.root(path), Settings(), vfs, clock)
        self._rotate_at = rotate_at

    @cached_property
    def journal(self) -> FileLog:
        return self.home.log("state/rio/journal.jsonl", rotate_at=self._rotate_at)

    @cached_property
    def ledger(self) -> FileLog:
        return self.home.log("ledger/rio", rotate_at=self._rotate_at)

    @cached_property
    def tasks(self) -> FileDocument:
        return self.home.document("state/rio/tasks.json")

    @cached_property
    def note(self) -> FileDocument:
        return self.home.document("state/rio/note.json")

    @cached_property
    def view(self) -> View[list[str]]:
        return self.home.view("state/rio/report.json", self.journal, SHAPE)

    @cached_property
    def inbox(self) -> FileMailbox:
        return self.home.mailbox("state/rio/inbox", tries=99)

    @cached_property
    def lease(self) -> FileLease:
        return self.home.lease("state/rio/agent")

    def with_own_view(self) -> Station:
        """The same objects for another thread, apart from the view, which is for one."""
        mine = copy(self)
        mine.journal, mine.ledger = self.journal, self.ledger
        mine.view = self.home.view("state/rio/report.json", self.journal, SHAPE)
        return mine

    def log(self, name: str) -> FileLog:
        return self.journal if name == "journal" else self.ledger


class Writer:
    """One thread of a process, working through its word."""

    def __init__(self, fs: SimFs, process: int, name: str, station: Station) -> None:
        self._fs, self._process, self._name, self._station = fs, process, name, station
        self._count = 0
        self.surprises: list[str] = []

    def work(self, word: str) -> None:
        for letter in word:
            self._one(letter)

    def _one(self, letter: str) -> None:
        try:
            OPERATIONS[letter](self)
        except HoldfastError:
            pass  # a typed answer that the caller can act on: it has been told
        except (OSError, AssertionError, LookupError, ValueError, TypeError) as error:
            if letter == "x" and isinstance(error, OSError):
                return  # not the store's doing
            self.surprises.append(f"{letter}: {type(error).__name__}: {error}")

    def _ids(self, stream: str, count: int) -> list[str]:
        names = [f"{self._name}.{self._count + i}" for i in range(count)]
        self._count += count
        self._fs.note("start", self._process, stream, tuple(names))
        return names

    def _attempt(self, stream: str, count: int, act: Callable[[list[str]], Sequence[int]]) -> None:
        """Do something that stores `count` ids, and note what the caller is told."""
        names = self._ids(stream, count)
        try:
            numbers = act(names)
        except Indeterminate:
            raise
        except HoldfastError:
            self._fs.note("refuse", self._process, stream, tuple(names))
            raise
        if len(numbers) != len(names):
            raise AssertionError(f"{len(names)} lines were acknowledged with {numbers} as places")
        self._fs.note("ack", self._process, stream, tuple(names), tuple(numbers))

    # -- the operations ----------------------------------------------------------------

    def append(self) -> None:
        log = self._station.journal
        self._attempt("journal", 1, lambda ids: [log.append(_record(ids[0])).seq])

    def group(self) -> None:
        log = self._station.journal
        self._attempt("journal", 3, lambda ids: _seqs(log.append_all([_record(i) for i in ids])))

    def transact(self) -> None:
        log = self._station.journal

        def act(ids: list[str]) -> list[int]:
            written = log.write(lambda head: ([{**_record(ids[0]), "saw": head.seq}], None))
            return [line.seq or 0 for line in written.lines]

        self._attempt("journal", 1, act)

    def entry(self) -> None:
        log = self._station.ledger
        self._attempt("ledger", 1, lambda ids: [log.append(_record(ids[0])).seq])

    def next_day(self) -> None:
        self._station.clock.step(DAY)
        self.entry()

    def clock_back(self) -> None:
        self._station.clock.step(-DAY)
        self.entry()

    def update(self) -> None:
        def act(ids: list[str]) -> list[int]:
            count = 0

            def change(old: bytes | None) -> bytes:
                nonlocal count
                held = json.loads(old) if old else []
                count = len(held) + 1
                return json.dumps([*held, ids[0]]).encode()

            self._station.tasks.update(change)
            return [count]

        self._attempt("tasks", 1, act)

    def swap(self) -> None:
        """Read, then replace only if nobody was faster."""
        document = self._station.tasks

        def act(ids: list[str]) -> list[int]:
            text = document.read()
            held = json.loads(text.data) if text else []
            data = json.dumps([*held, ids[0]]).encode()
            document.replace(data, expected=text.revision if text else "")
            return [len(held) + 1]

        self._attempt("tasks", 1, act)

    def replace(self) -> None:
        def act(ids: list[str]) -> list[int]:
            self._station.note.replace(json.dumps(ids[0]).encode())
            return [0]

        self._attempt("note", 1, act)

    def append_and_show(self) -> None:
        log = self._station.journal
        found: list[Cursor] = []

        def act(ids: list[str]) -> list[int]:
            found.append(log.append(_record(ids[0])))
            return [found[0].seq]

        self._attempt("journal", 1, act)
        self._station.clock.advance(0.06)
        self._station.view.refresh(found[0])

    def show(self) -> None:
        self._station.clock.advance(0.06)
        self._station.view.refresh()

    def settle(self) -> None:
        for name in ("journal", "ledger"):
            log = self._station.log(name)
            seen = log.head()
            cursor = log.settle()
            if cursor.seq < seen.seq:
                raise AssertionError(f"settled up to {cursor.seq}, but {seen.seq} could be seen")
            self._fs.note("settled", self._process, name, cursor)

    def drop_lock(self) -> None:
        """Somebody cleans up: takes the lock as one should, and removes its file."""
        home = self._station.home
        with home.opened_dir("state/rio") as directory:
            if directory is None:
                return
            lock = Lock(directory, ".journal.jsonl.lock", home.vfs, home.clock)
            try:
                lock.acquire()
                directory.unlink(".journal.jsonl.lock")
            finally:
                lock.close()

    def pack(self) -> None:
        for name in ("journal", "ledger"):
            try:
                self._station.log(name).archive()
            except StorageError as error:
                if "not the same" in str(error):
                    raise AssertionError(str(error)) from error
                raise

    def deliver(self) -> None:
        box = self._station.inbox

        def act(ids: list[str]) -> list[int]:
            box.deliver(_record(ids[0]), id=ids[0])
            return [0]

        self._attempt("inbox", 1, act)

    def take(self) -> None:
        """Have two messages, be done with the first and give back the second."""
        done, *rest = self._claim(2) or [None]
        if done is not None:
            self._finish(done)
        for claim in rest:
            if claim is not None:
                self._station.inbox.give_back(claim, "later")

    def drain(self) -> None:
        """Be done with everything that waits."""
        for claim in self._claim(99):
            self._finish(claim)

    def _claim(self, limit: int) -> list[Claim]:
        claims = self._station.inbox.claim(self._name, fence=1, seconds=9e6, limit=limit)
        for claim in claims:
            self._fs.note("handed", self._process, claim.id)
        return claims

    def _finish(self, claim: Claim) -> None:
        names = (f"done {claim.id}",)
        self._fs.note("start", self._process, "done", names)
        try:
            self._station.inbox.ack(claim)
        except Indeterminate:
            raise
        except HoldfastError:
            self._fs.note("refuse", self._process, "done", names)
            raise
        self._fs.note("ack", self._process, "done", names, (0,))

    def own(self) -> None:
        fence = self._station.lease.acquire("work", patience=30.0)
        self._fs.note("fence", self._process, fence)
        self._station.lease.release()


OPERATIONS: dict[str, Callable[[Writer], None]] = {
    "a": Writer.append,
    "g": Writer.group,
    "t": Writer.transact,
    "e": Writer.entry,
    "d": Writer.next_day,
    "b": Writer.clock_back,
    "u": Writer.update,
    "c": Writer.swap,
    "r": Writer.replace,
    "v": Writer.append_and_show,
    "w": Writer.show,
    "s": Writer.settle,
    "l": Writer.own,
    "x": Writer.drop_lock,
    "z": Writer.pack,
    "m": Writer.deliver,
    "k": Writer.take,
}


def _record(name: str) -> dict[str, Any]:
    return {"id": name, "text": "x" * 30}


def _seqs(cursors: Sequence[Cursor]) -> list[int]:
    return [cursor.seq for cursor in cursors]


# --- scenarios ------------------------------------------------------------------------------


class Scenario(NamedTuple):
    """Everything that decides a run, so that its text is enough to repeat it."""

    words: tuple[str, ...]
    """For each process its letters; `+` joins the words of threads of one process."""
    start: str = "empty"
    seed: int = 0
    rotate_at: int = 100 << 20
    torn_writes: bool = False
    fault: Fault | None = None
    lies: str = ""
    """What the disk only pretends to do, for controls: `sync`, `dirsync` or `lock`."""

    def __str__(self) -> str:
        parts = [",".join(self.words), self.start, str(self.seed), str(self.rotate_at)]
        parts.append("torn" if self.torn_writes else "whole")
        parts.append(str(self.fault) if self.fault else "-")
        return ":".join([*parts, self.lies] if self.lies else parts)

    @property
    def letters(self) -> str:
        return "".join(sorted(set("".join(self.words)) - {"+"}))

    @classmethod
    def parse(cls, text: str) -> Scenario:
        words, start, seed, rotate_at, torn, fault, *lies = text.split(":")
        return cls(
            tuple(words.split(",")),
            start,
            int(seed),
            int(rotate_at),
            torn == "torn",
            None if fault == "-" else parse_fault(fault),
            lies[0] if lies else "",
        )


def parse_fault(text: str) -> Fault:
    kind, _, rest = text.partition("@p")
    process, _, rest = rest.partition(".")
    at, _, times = rest.partition("x")
    return Fault(int(process), int(at), kind, int(times))


@dataclass
class Run:
    """What came out of playing a scenario."""

    scenario: Scenario
    before: State
    journal: list[Op]
    calls: list[list[str]]
    """For each process the kinds of its calls."""
    fired: bool
    fired_at: int
    """Length of the journal when the fault struck; 0 without one."""
    surprises: list[str] = field(default_factory=list[str])


STARTS = ("empty", "lines", "torn", "nul", "unlinked")


@lru_cache(maxsize=256)
def start_state(kind: str, rotate_at: int, letters: str) -> State:
    """A durable disk to begin with, holding what `letters` work on; ids in it start with `s`."""
    if kind == "empty":
        return EMPTY
    fs = SimFs()
    clock = SimClock(NOON - DAY, boots=0)
    station = Station(fs.process(), clock, rotate_at)
    writer = Writer(fs, 0, "s", station)
    writer.work(_start_word(letters))
    for name in ("journal", "ledger"):
        station.log(name).close()
    if kind in ("torn", "nul"):
        tail = b'{"ts":"2026-11-1' if kind == "torn" else bytes(90)
        for inode, data in fs.files.items():
            if data.startswith(b'{"ts"') and data.endswith(b"\n"):
                fs.files[inode] = data + tail
    state = fs.state()
    if kind == "unlinked":
        # Somebody removed all lock files, as `git clean` does.
        dirs = {
            inode: {name: i for name, i in entries.items() if not name.endswith(".lock")}
            for inode, entries in state.dirs.items()
        }
        state = State(state.files, dirs)
    return state


USED_BY = {
    "journal": "agtpvwsxz",
    "ledger": "edbsz",
    "tasks": "uc",
    "note": "r",
    "inbox": "mk",
}
"""For each stream the letters that work on it."""


def _start_word(letters: str) -> str:
    """One line of each log, one version of each document, one more line, and the view."""
    first = {"journal": "a", "ledger": "e", "tasks": "u", "note": "r", "inbox": "m"}
    word = "".join(first[name] for name, mine in USED_BY.items() if set(letters) & set(mine))
    more = "".join(letter for letter in "ae" if letter in word)
    return word + more + ("w" if set(letters) & set("vw") else "")


@lru_cache(maxsize=256)
def start_ids(kind: str, letters: str) -> dict[str, list[str]]:
    """For each stream the ids that the start state holds."""
    streams = {"a": "journal", "e": "ledger", "u": "tasks", "r": "note", "m": "inbox"}
    found: dict[str, list[str]] = {}
    if kind != "empty":
        for number, letter in enumerate(_start_word(letters).replace("w", "")):
            found.setdefault(streams[letter], []).append(f"s.{number}")
    return found


def play(scenario: Scenario) -> Run:
    """Run a scenario to its end."""
    rng = Random(f"{scenario.seed}|{scenario.words}")
    scheduler = Scheduler(rng, rng.choice((0.05, 0.2, 0.5, 1.0)), rng.choice((0.0, 0.02, 0.05)))
    before = start_state(scenario.start, scenario.rotate_at, scenario.letters)
    fs = SimFs(
        before,
        scheduler=scheduler,
        fault=scenario.fault,
        torn_writes=scenario.torn_writes,
        lies=scenario.lies,
    )
    clock = SimClock(NOON, scheduler)
    bodies: list[tuple[str, Callable[[], None], Callable[[], bool]]] = []
    writers: list[Writer] = []
    for number, word in enumerate(scenario.words):
        vfs = fs.process()
        shared: list[Station] = []
        for thread, part in enumerate(word.split("+")):
            name = f"p{number}" + (f"t{thread}" if "+" in word else "")
            body = _body(fs, vfs, clock, scenario, name, part, shared, writers)
            bodies.append((name, body, lambda process=vfs.process: process.dead))
    with _simulated_threading(scheduler):
        scheduler.run(*bodies)
    return Run(
        scenario,
        before,
        fs.journal,
        [process.calls for process in fs.processes],
        any(process.fired for process in fs.processes),
        fs.fired_at,
        [surprise for writer in writers for surprise in writer.surprises],
    )


@contextmanager
def _simulated_threading(scheduler: Scheduler) -> Iterator[None]:
    """Let the store's own mutexes be mutexes between tasks."""
    patched = [module for module in (commit, view) if hasattr(module, "threading")]
    for module in patched:
        module.threading = SimThreading(scheduler)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in patched:
            module.threading = threading  # type: ignore[attr-defined]


def _body(
    fs: SimFs,
    vfs: SimVfs,
    clock: SimClock,
    scenario: Scenario,
    name: str,
    word: str,
    shared: list[Station],
    writers: list[Writer],
) -> Callable[[], None]:
    def body() -> None:
        if not shared:
            shared.append(_open(vfs, clock, scenario.rotate_at))
        station = shared[0] if hasattr(view, "threading") else shared[0].with_own_view()
        writer = Writer(fs, vfs.process.number, name, station)
        writers.append(writer)
        writer.work(word)

    return body


def _open(vfs: SimVfs, clock: SimClock, rotate_at: int) -> Station:
    try:
        return Station(vfs, clock, rotate_at)
    except HoldfastError:
        return Station(vfs, clock, rotate_at)  # the one error is over

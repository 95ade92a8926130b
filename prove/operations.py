"""Every public operation of the store that writes: how it is done, and what it leaves.

Each has a home to begin with, is done once in a victim, and says afterwards what of it is
there.  `syscalls` does them with a fault at each system call.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, Indeterminate, NotFound
from holdfast.store import failpoints
from holdfast.store import vfs as files
from holdfast.store.home import Home
from holdfast.store.primitives import CONTROL, Line
from prove.actors import Calendar, tally

JOURNAL = "state/rio/journal.jsonl"
LEDGER = "ledger/rio"
TASKS = "state/rio/tasks.json"
REPORT = "state/rio/report.json"
LEASE = "state/rio/turn"
INBOX = "state/rio/inbox"
BEFORE = {JOURNAL: ["a1", "a2", "a3"], LEDGER: ["d1", "d2"]}
"""What every home holds at the beginning, acknowledged."""
MAIL = ("m1", "m2", "m3")
"""The messages that wait in every home."""
FIRST_FENCE = 2
_OLD, _NEW = b'{"text":"old"}', b'{"text":"new","pad":"' + b"n" * 3000 + b'"}'


class Seen(NamedTuple):
    """What of an operation is there: none of it, a part, or all."""

    none: bool
    whole: bool
    detail: str


@dataclass(frozen=True)
class Operation:
    """One thing that a caller can ask for."""

    name: str
    do: Callable[[str], Any]
    """Does it in the home at this path; what it answers is the acknowledgement."""
    look: Callable[[Home, Any], Seen] | None = None
    """What of it is there, given the answer, if there was one; None where both are fine."""
    prepare: Callable[[str], None] | None = None
    """Changes the home before."""
    makes_home: bool = False
    lines: tuple[str, ...] = ()
    """The ids of the lines it appends."""


def make_home(path: str) -> None:
    """The home that all operations begin with."""
    with Home.open(path, create=True, timezone="UTC", clock=Calendar(0)) as home:
        for key, names in BEFORE.items():
            log = home.log(key)
            for name in names:
                log.append({"id": name})
            log.close()
        home.document(TASKS).replace(_OLD)
        _refresh(home)
        box = home.mailbox(INBOX)
        for name in MAIL:
            box.deliver({"id": name}, id=name)
        for _ in range(FIRST_FENCE):
            lease = home.lease(LEASE)
            lease.acquire("before")
            lease.close()


def _refresh(home: Home) -> None:
    log = home.log(JOURNAL)
    view = home.view(REPORT, log, tally())
    view.refresh()
    view.close()
    log.close()


def _append(key: str, *names: str, day: int = 0, **options: Any) -> Callable[[str], Any]:
    def do(path: str) -> int:
        with Home.open(path, clock=Calendar(day)) as home:
            log = home.log(key, **options)
            try:
                if len(names) == 1:
                    return log.append({"id": names[0]}).seq
                return log.append_all([{"id": name} for name in names])[-1].seq
            finally:
                log.close()

    return do


def _appended(key: str, *names: str) -> Callable[[Home, Any], Seen]:
    def look(home: Home, answer: Any) -> Seen:
        found = ids(home, key)
        there = [name for name in names if name in found]
        detail = f"{there} of {list(names)} in {key}"
        return Seen(not there, there == list(names), detail)

    return look


def ids(home: Home, key: str) -> list[str]:
    """The ids of all lines of a log, in order."""
    lines = [line for line in home.log(key).read() if isinstance(line, Line)]
    return [str(line.record.get("id")) for line in lines if CONTROL not in line.record]


def _transact(path: str) -> int:
    with Home.open(path, clock=Calendar(0)) as home:
        log = home.log(JOURNAL)
        try:
            return log.write(lambda head: ([{"id": "t1"}, {"id": "t2"}], None)).lines[-1].seq
        finally:
            log.close()


def _replace(key: str) -> Callable[[str], Any]:
    def do(path: str) -> str:
        with Home.open(path, clock=Calendar(0)) as home:
            return home.document(key).replace(_NEW)

    return do


def _update(path: str) -> str:
    with Home.open(path, clock=Calendar(0)) as home:
        return home.document(TASKS).update(lambda old: _NEW)


def _replaced(key: str, before: bytes | None) -> Callable[[Home, Any], Seen]:
    def look(home: Home, answer: Any) -> Seen:
        text = home.document(key).read()
        held = text.data if text else None
        return Seen(held == before, held == _NEW, f"{key} holds {held!r:.40}")

    return look


def _view(path: str) -> int:
    with Home.open(path, clock=Calendar(0)) as home:
        _refresh(home)
    return 0


def _settle(key: str) -> Callable[[str], Any]:
    def do(path: str) -> int:
        with Home.open(path, clock=Calendar(0)) as home:
            return home.log(key).settle().seq

    return do


def _acquire(key: str) -> Callable[[str], Any]:
    def do(path: str) -> int:
        with Home.open(path, clock=Calendar(0)) as home:
            lease = home.lease(key)
            fence = lease.acquire("operation")
            lease.close()
            return fence

    return do


def _acquired(key: str, before: int) -> Callable[[Home, Any], Seen]:
    def look(home: Home, answer: Any) -> Seen:
        lease = home.lease(key)
        fence = lease.acquire("look")
        lease.close()
        good = fence > (answer or before)
        # Whether a number was given out that nobody heard of does not matter; going back does.
        return Seen(good, good, f"{key} gives {fence} after {answer or before}")

    return look


def _archive(key: str) -> Callable[[str], Any]:
    def do(path: str) -> int:
        with Home.open(path, clock=Calendar(2)) as home:
            return len(home.log(key).archive())

    return do


def _deliver(key: str) -> Callable[[str], Any]:
    def do(path: str) -> str:
        with Home.open(path, clock=Calendar(0)) as home:
            return home.mailbox(key).deliver({"id": "new"}, id="new")

    return do


def _delivered(key: str) -> Callable[[Home, Any], Seen]:
    def look(home: Home, answer: Any) -> Seen:
        count = mail_in(home, key).count("new")
        return Seen(count == 0, count == 1, f"{count} messages `new` in {key}")

    return look


def mail_in(home: Home, key: str) -> list[str]:
    """The ids of all messages, wherever they are."""
    box = home.mailbox(key)
    found = (*box.waiting(), *box.claimed(), *box.done(), *box.dead())
    return sorted(message.id for message in found)


def _take(path: str) -> list[str]:
    with Home.open(path, clock=Calendar(0)) as home:
        claims = home.mailbox(INBOX).claim("rio", fence=1, seconds=60.0, limit=2)
        return [claim.id for claim in claims]


def _taken(path: str) -> None:
    """Somebody has the first message."""
    with Home.open(path, clock=Calendar(0)) as home:
        home.mailbox(INBOX).claim("rio", fence=1, seconds=3600.0)


def _ack(path: str) -> str:
    with Home.open(path, clock=Calendar(0)) as home:
        (claimed,) = home.mailbox(INBOX).claimed()
        home.mailbox(INBOX).ack(claimed)
        return claimed.id


def _acked(home: Home, answer: Any) -> Seen:
    box = home.mailbox(INBOX)
    done, claimed = len(box.done()), len(box.claimed())
    return Seen(done == 0, done == 1 and not claimed, f"{done} done and {claimed} claimed")


def _give_back(path: str) -> bool:
    with Home.open(path, clock=Calendar(0)) as home:
        (claimed,) = home.mailbox(INBOX).claimed()
        return home.mailbox(INBOX).give_back(claimed, "later")


def _create(path: str) -> int:
    with Home.open(path, create=True, timezone="UTC", clock=Calendar(0)):
        return 0


# --- homes that somebody died in ------------------------------------------------------------


def _one_more_line(path: str) -> None:
    _append(JOURNAL, "a4")(path)


def _torn(path: str) -> None:
    with open(f"{path}/{JOURNAL}", "ab") as file:
        file.write(b'{"ts":"2027-01-15T08:00:00Z","id":"torn')


def _no_view(path: str) -> None:
    for name in ("report.json", ".report.json.view"):
        os.unlink(f"{path}/state/rio/{name}")


def _cut_tail(path: str) -> None:
    """The view has seen a line that is gone."""
    _append(JOURNAL, "a4")(path)
    _view(path)
    file = f"{path}/{JOURNAL}"
    with open(file, "rb") as lines:
        kept = b"".join(lines.readlines()[:3])
    os.truncate(file, len(kept))


def _dies_at(step: str) -> Callable[[str], None]:
    """Somebody began the next day and was killed at a step of it."""

    def prepare(path: str) -> None:
        _killed_at(step, lambda: _append(LEDGER, "d3", day=1)(path))

    return prepare


def _killed_at(step: str, act: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        failpoints.arm_from(f"{step}=kill")
        act()
        os._exit(1)
    if os.waitpid(pid, 0)[1] != signal.SIGKILL:
        raise RuntimeError(f"nobody died at {step}")


def _two_days(path: str) -> None:
    _append(LEDGER, "d3", day=1)(path)


def _archiver_dies_at(step: str) -> Callable[[str], None]:
    def prepare(path: str) -> None:
        _two_days(path)
        _killed_at(step, lambda: _archive(LEDGER)(path))

    return prepare


def _home_half_made(path: str) -> None:
    """A home without its settings: somebody died while making it."""
    os.unlink(f"{path}/holdfast.toml")


NEW_LOG, NEW_LEDGER = "state/new/deep/journal.jsonl", "ledger/new"
NEW_DOCUMENT, NEW_LEASE = "state/new/deep/tasks.json", "state/new/turn"
NEW_INBOX = "state/new/deep/inbox"
_THREE = ("n1", "n2", "n3")


def _appending(
    name: str,
    key: str,
    *lines: str,
    day: int = 0,
    prepare: Callable[[str], None] | None = None,
    **options: Any,
) -> Operation:
    do = _append(key, *lines, day=day, **options)
    return Operation(name, do, _appended(key, *lines), prepare, lines=lines)


OPERATIONS = {
    operation.name: operation
    for operation in (
        _appending("first_append", NEW_LOG, "n1"),
        _appending("append", JOURNAL, "n1"),
        _appending("append_to_torn", JOURNAL, "n1", prepare=_torn),
        _appending("first_day", NEW_LEDGER, "n1"),
        _appending("same_day", LEDGER, "n1"),
        _appending("next_day", LEDGER, "n1", day=1),
        _appending("next_day_orphan", LEDGER, "n1", day=1, prepare=_dies_at("segment.linked")),
        _appending("next_day_half_made", LEDGER, "n1", day=1, prepare=_dies_at("segment.written")),
        _appending("clock_went_back", LEDGER, "n1", day=-1),
        _appending("rotate", JOURNAL, "n1", rotate_at=1),
        _appending("append_all", JOURNAL, *_THREE),
        _appending("append_all_day", LEDGER, *_THREE, day=1),
        Operation("transact", _transact, _appended(JOURNAL, "t1", "t2"), lines=("t1", "t2")),
        Operation("first_document", _replace(NEW_DOCUMENT), _replaced(NEW_DOCUMENT, None)),
        Operation("replace", _replace(TASKS), _replaced(TASKS, _OLD)),
        Operation("update", _update, _replaced(TASKS, _OLD)),
        Operation("first_view", _view, prepare=_no_view),
        Operation("view", _view, prepare=_one_more_line),
        Operation("view_of_cut_tail", _view, prepare=_cut_tail),
        Operation("settle", _settle(JOURNAL)),
        Operation("settle_orphan", _settle(LEDGER), prepare=_dies_at("segment.linked")),
        Operation("first_lease", _acquire(NEW_LEASE), _acquired(NEW_LEASE, 0)),
        Operation("lease", _acquire(LEASE), _acquired(LEASE, FIRST_FENCE)),
        Operation("archive", _archive(LEDGER), prepare=_two_days),
        Operation(
            "archive_half_made", _archive(LEDGER), prepare=_archiver_dies_at("archive.written")
        ),
        Operation(
            "archive_half_done", _archive(LEDGER), prepare=_archiver_dies_at("archive.linked")
        ),
        Operation("first_message", _deliver(NEW_INBOX), _delivered(NEW_INBOX)),
        Operation("deliver", _deliver(INBOX), _delivered(INBOX)),
        Operation("claim", _take),
        Operation("ack", _ack, _acked, prepare=_taken),
        Operation("give_back", _give_back, prepare=_taken),
        Operation("make_home", _create, makes_home=True),
        Operation("make_home_again", _create, prepare=_home_half_made),
    )
}


# --- the role -------------------------------------------------------------------------------


class Half(NamedTuple):
    """A half write that the preloaded shim makes."""

    marker: str
    nth: int
    mode: str
    part: int


def operate(
    channel: socket.socket, *, home: str, name: str, half: Half | None = None, broken: str = ""
) -> None:
    """Do one operation when told to, and say what came of it."""
    operation = OPERATIONS[name]
    if broken == "retry":
        files.RealVfs.sync = staticmethod(sync_twice)
    channel.send(b"ready")
    channel.recv(16)
    if half is not None:
        marker, nth, mode, part = half
        arm = ctypes.CDLL(None).shim_arm
        arm(home.encode(), marker.encode(), nth, ord(mode), part)
    try:
        outcome: dict[str, Any] = {"answer": operation.do(home)}
    except HoldfastError as error:
        outcome = {
            "error": type(error).__name__,
            "says": str(error),
            "maybe": isinstance(error, Indeterminate),
        }
        if broken == "swallow":
            outcome = {"answer": 0}
        elif broken == "untyped":
            outcome = {"untyped": "OSError: as it came"}
    except BaseException as error:
        outcome = {"untyped": f"{type(error).__name__}: {error}"}
    channel.send(json.dumps(outcome).encode())
    channel.recv(16)


def sync_twice(fd: int) -> None:
    """What one must not do: a sync that failed says yes the second time."""
    try:
        os.fdatasync(fd)
    except OSError:
        os.fdatasync(fd)


def open_again(operation: Operation, path: str, *, acked: bool) -> Home | None:
    """The home as the next process opens it; None if it was never made."""
    try:
        return Home.open(path, clock=Calendar(0))
    except NotFound:
        if acked or operation.name not in ("make_home", "make_home_again"):
            raise
        return None

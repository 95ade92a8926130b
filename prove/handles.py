"""What a long-lived process does with handles that stay open, before and after a fault.

Each deed is an operation of `operations` on handles that are kept: done once under a fault,
and once more, by the same handles, when the fault is gone.  `endure` does both, and says
everything that is wrong: a lie, a loss, half of something in sight, a refusal without a reason,
or handles that are of no use any more.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, Indeterminate, NotFound, StorageError
from holdfast.store.home import Home
from holdfast.store.lease import FileLease
from holdfast.store.log import FileLog
from holdfast.store.vfs import RealVfs, Vfs
from prove.actors import Calendar, tally
from prove.aftermath import Outcome, inspect, truth, untouched
from prove.operations import (
    JOURNAL,
    LEASE,
    LEDGER,
    NEW_DOCUMENT,
    NEW_LEASE,
    NEW_LEDGER,
    NEW_LOG,
    OPERATIONS,
    REPORT,
    TASKS,
    Operation,
    ids,
    sync_twice,
)
from prove.strained import StrainedVfs

BETWEEN = ".between"
"""Ends the name of a file that is looked for after the first attempt, for who reads the trace."""
_NEW = b'{"text":"new","pad":"' + b"n" * 3000 + b'"}'
_AGAIN = b'{"text":"again"}'
_PAD = "p" * 1_000


class Handles:
    """One open home, and what this process has used of it."""

    def __init__(self, path: str, vfs: Vfs | None = None) -> None:
        self.path, self.vfs = path, vfs
        self.clock = Calendar(0)
        self._home: Home | None = None
        self._logs: dict[str, FileLog] = {}
        self._leases: dict[str, FileLease] = {}

    def home(self, *, create: bool = False) -> Home:
        if self._home is None:
            zone = "UTC" if create else None
            self._home = Home.open(
                self.path, create=create, timezone=zone, clock=self.clock, vfs=self.vfs
            )
        return self._home

    def log(self, key: str, **options: Any) -> FileLog:
        if key not in self._logs:
            self._logs[key] = self.home().log(key, **options)
        return self._logs[key]

    def lease(self, key: str) -> FileLease:
        return self._leases.setdefault(key, self.home().lease(key))

    def let_go(self) -> None:
        """Close what keeps files open for writing; the handles stay good."""
        for each in (*self._logs.values(), *self._leases.values()):
            each.close()

    def close(self) -> None:
        self.let_go()
        if self._home is not None:
            self._home.close()


@dataclass(frozen=True)
class Deed:
    operation: Operation
    do: Callable[[Handles, int], Any]
    """Does it for the nth time, and answers with the acknowledgement."""
    check: Callable[[Handles, Any], str | None]
    """Given the answer of the second time: what is wrong."""
    warm: Callable[[Handles], None] | None = None
    """What the handles were used for before."""

    @property
    def name(self) -> str:
        return self.operation.name


def again(name: str, attempt: int) -> str:
    return name if attempt == 0 else f"{name}.{attempt}"


# --- deeds ----------------------------------------------------------------------------------


def _append(
    name: str,
    key: str,
    *,
    day: int = 0,
    warm: Callable[[Handles], None] | None = None,
    like: str = "",
    extra: dict[str, Any] | None = None,
    **options: Any,
) -> Deed:
    operation = replace(OPERATIONS[like or name], name=name)
    lines = operation.lines

    def do(handles: Handles, attempt: int) -> int:
        handles.clock.day = day
        log = handles.log(key, **options)
        records = [{"id": again(line, attempt), **(extra or {})} for line in lines]
        return (log.append(records[0]) if len(records) == 1 else log.append_all(records)[-1]).seq

    return Deed(operation, do, _lines_are_there(key, lines), warm)


def _lines_are_there(key: str, lines: tuple[str, ...]) -> Callable[[Handles, Any], str | None]:
    def check(handles: Handles, answer: Any) -> str | None:
        found = ids(handles.home(), key)
        wanted = [again(line, 1) for line in lines]
        there = [name for name in found if name in wanted]
        return None if there == wanted else f"{wanted} were acknowledged, {key} holds {found}"

    return check


def _warmed(key: str, **options: Any) -> Callable[[Handles], None]:
    def warm(handles: Handles) -> None:
        handles.log(key, **options).append({"id": "warm"})

    return warm


def _torn_meanwhile(handles: Handles) -> None:
    _warmed(JOURNAL)(handles)
    with open(f"{handles.path}/{JOURNAL}", "ab") as file:
        file.write(b'{"id":"torn')


def _transact(handles: Handles, attempt: int) -> int:
    names = [again(name, attempt) for name in ("t1", "t2")]
    written = handles.log(JOURNAL).write(lambda head: ([{"id": name} for name in names], None))
    return written.lines[-1].seq or 0


def _document(name: str, key: str, *, update: bool = False) -> Deed:
    def do(handles: Handles, attempt: int) -> str:
        data = _AGAIN if attempt else _NEW
        document = handles.home().document(key)
        return document.update(lambda old: data) if update else document.replace(data)

    def check(handles: Handles, answer: Any) -> str | None:
        text = handles.home().document(key).read()
        held = text.revision if text else None
        return None if held == answer else f"{key} was acknowledged as {answer} and holds {held}"

    return Deed(OPERATIONS[name], do, check)


def _view(name: str) -> Deed:
    def do(handles: Handles, attempt: int) -> int:
        view = handles.home().view(REPORT, handles.log(JOURNAL), tally())
        view.refresh()
        view.close()
        return 0

    def check(handles: Handles, answer: Any) -> str | None:
        counted = handles.home().view(REPORT, handles.log(JOURNAL), tally()).read()["lines"]
        there = len(ids(handles.home(), JOURNAL))
        return None if counted == there else f"{REPORT} counts {counted} lines of {there}"

    return Deed(OPERATIONS[name], do, check)


def _settle(name: str, key: str) -> Deed:
    def do(handles: Handles, attempt: int) -> int:
        return handles.log(key).settle().seq

    return Deed(OPERATIONS[name], do, lambda handles, answer: None)


def _lease(name: str, key: str) -> Deed:
    def do(handles: Handles, attempt: int) -> int:
        lease = handles.lease(key)
        fence = lease.acquire("deed")
        lease.release()
        return fence

    def check(handles: Handles, answer: Any) -> str | None:
        fence = handles.lease(key).acquire("check")
        handles.lease(key).release()
        return None if fence > answer else f"{key} gave {answer}, and then {fence}"

    return Deed(OPERATIONS[name], do, check)


def _make_home(name: str) -> Deed:
    def do(handles: Handles, attempt: int) -> int:
        handles.home(create=True)
        return 0

    return Deed(OPERATIONS[name], do, lambda handles, answer: None)


_BIG = {"pad": _PAD}
_SECRET = {"password": "hunter2 is not it"}

DEEDS = {
    deed.name: deed
    for deed in (
        _append("first_append", NEW_LOG),
        _append("append", JOURNAL),
        _append("append_warm", JOURNAL, like="append", warm=_warmed(JOURNAL)),
        _append("append_big", JOURNAL, like="append", warm=_warmed(JOURNAL), extra=_BIG),
        _append("append_secret", JOURNAL, like="append", warm=_warmed(JOURNAL), extra=_SECRET),
        _append("append_to_torn", JOURNAL),
        _append("torn_meanwhile", JOURNAL, like="append", warm=_torn_meanwhile),
        _append("first_day", NEW_LEDGER),
        _append("same_day", LEDGER, warm=_warmed(LEDGER)),
        _append("next_day", LEDGER, day=1),
        _append("next_day_warm", LEDGER, like="next_day", day=1, warm=_warmed(LEDGER)),
        _append("next_day_orphan", LEDGER, day=1),
        _append("next_day_half_made", LEDGER, day=1),
        _append("clock_went_back", LEDGER, day=-1),
        _append("rotate", JOURNAL, rotate_at=1),
        _append(
            "rotate_warm", JOURNAL, like="rotate", rotate_at=1, warm=_warmed(JOURNAL, rotate_at=1)
        ),
        _append("append_all", JOURNAL),
        _append("append_all_warm", JOURNAL, like="append_all", warm=_warmed(JOURNAL), extra=_BIG),
        _append("append_all_day", LEDGER, day=1),
        Deed(OPERATIONS["transact"], _transact, _lines_are_there(JOURNAL, ("t1", "t2"))),
        _document("first_document", NEW_DOCUMENT),
        _document("replace", TASKS),
        _document("update", TASKS, update=True),
        _view("first_view"),
        _view("view"),
        _view("view_of_cut_tail"),
        _settle("settle", JOURNAL),
        _settle("settle_orphan", LEDGER),
        _lease("first_lease", NEW_LEASE),
        _lease("lease", LEASE),
        _make_home("make_home"),
        _make_home("make_home_again"),
    )
}


# --- one deed under one fault ---------------------------------------------------------------


def attempt(deed: Deed, handles: Handles, number: int) -> tuple[Outcome, str]:
    """What came of it, and what is wrong with the way it was said."""
    try:
        return Outcome(deed.do(handles, number)), ""
    except HoldfastError as error:
        maybe = isinstance(error, Indeterminate)
        said = Outcome(error=f"{type(error).__name__}: {error}", maybe=maybe)
        if not isinstance(error, StorageError):
            return said, f"refused as {type(error).__name__}, which is no StorageError: {error}"
        return said, "" if error.hint else f"refused without a hint: {error}"
    except Exception as error:
        return Outcome(untyped=f"{type(error).__name__}: {error}"), ""


class Endured:
    """What became of one deed under one fault."""

    def __init__(self) -> None:
        self.first = self.second = Outcome()
        self.complaints: list[str] = []


def endure(deed: Deed, home: Path, vfs: StrainedVfs, *, resumes: bool = True) -> Endured:
    """Do a deed under the strain of `vfs` and again without, with the same handles."""
    strain, found = vfs.strain, Endured()
    before = _descriptors()
    handles = Handles(str(home), vfs)
    try:
        if not deed.operation.makes_home and deed.name != "make_home_again":
            handles.home()
        if deed.warm is not None:
            deed.warm(handles)
        strain.arm()
        found.first, wrong = attempt(deed, handles, 0)
        found.complaints += [wrong] if wrong else []
        if found.first.untyped:
            found.complaints.append(f"what came out is no HoldfastError: {found.first.untyped}")
        found.complaints += in_sight(deed, home, found.first)
        strain.relieve()
        if resumes:
            found.complaints += _resumed(deed, handles, home, found)
    finally:
        strain.relieve()
        handles.close()
    if (left := _descriptors() - before - strain.kept) > 0:
        found.complaints.append(f"{left} descriptors were left open")
    return found


def judge(deed: Deed, home: Path) -> Iterator[str]:
    """The home as the next process finds it, once the truth about the deed was looked at."""
    yield from inspect(replace(deed.operation, look=None), home, Outcome())


def in_sight(deed: Deed, home: Path, outcome: Outcome) -> Iterator[str]:
    """What others see while the fault lasts."""
    try:
        with Home.open(str(home), clock=Calendar(0)) as seen:
            if not deed.operation.makes_home:
                yield from untouched(deed.operation, seen)
            # The look at a lease writes: it waits until there is room.
            if "lease" not in deed.name:
                yield from truth(deed.operation, seen, outcome)
    except NotFound as error:
        if not deed.name.startswith("make_home") or outcome.answer is not None:
            yield f"nothing is there any more: {error}"
    except HoldfastError as error:
        yield f"cannot be read while the fault lasts: {error}"


def _resumed(deed: Deed, handles: Handles, home: Path, found: Endured) -> Iterator[str]:
    """The same handles go on."""
    found.second, _ = attempt(deed, handles, 1)
    if found.second.answer is None:
        said = found.second.error or found.second.untyped
        yield f"the same handles are refused when the fault is gone: {said}"
        return
    if wrong := deed.check(handles, found.second.answer):
        yield wrong
    if deed.operation.lines:
        with Home.open(str(home), clock=Calendar(0)) as seen:
            yield from truth(deed.operation, seen, found.first)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- the role -------------------------------------------------------------------------------


def operate(
    channel: socket.socket, *, home: str, name: str, half: None = None, broken: str = ""
) -> None:
    """As the role of `operations`, but with handles that stay open and a second attempt."""
    deed = DEEDS[name]
    handles = Handles(home)
    if not deed.operation.makes_home and name != "make_home_again":
        handles.home()
    if deed.warm is not None:
        deed.warm(handles)
    channel.send(b"ready")
    channel.recv(16)
    if broken == "retry":
        RealVfs.sync = staticmethod(sync_twice)
    found = Endured()
    found.first, wrong = attempt(deed, handles, 0)
    wrongs = [wrong] if wrong else []
    with contextlib.suppress(FileNotFoundError):
        os.open(f"{home}{BETWEEN}", os.O_RDONLY)
    wrongs += [*in_sight(deed, Path(home), found.first)]
    wrongs += [*_resumed(deed, handles, Path(home), found)]
    outcome: dict[str, Any] = {"answer": found.first.answer}
    if found.first.error:
        outcome = {"error": "-", "says": found.first.error, "maybe": found.first.maybe}
    outcome["untyped"] = "; ".join(
        [found.first.untyped, *wrongs] if wrongs else [found.first.untyped]
    )
    channel.send(json.dumps(outcome).encode())
    channel.recv(16)

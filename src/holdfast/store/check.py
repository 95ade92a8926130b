"""Every invariant of a home, proved or named as broken.

`doctor` prints what comes out of here, `holdfast check` sets its exit code by it, and the
crash tests assert that it is empty.  Looks only; changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from holdfast.codec import MAX_DOCUMENT, DecodeError, decode
from holdfast.errors import BadName, HoldfastError, typed
from holdfast.ids import key_parts
from holdfast.store.letter import SUFFIX, Ticket, Waiting
from holdfast.store.segments import Series, plain_name, series_of
from holdfast.store.shelves import (
    BAD,
    CLAIMED,
    DEAD,
    DONE,
    EXPIRED,
    READY,
    SHELVES,
    NoMessage,
    is_mailbox,
    is_temporary,
    read_message,
)

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.vfs import Dir


class Finding(NamedTuple):
    kind: str
    """What kind of invariant is broken: one of the words below."""
    key: str
    detail: str
    repair: str
    """What to do about it."""


REPAIRS = {
    "alien": "look at it, then move it away",
    "temporary": "`holdfast doctor --fix` removes it",
    "corrupt": "restore it from a backup, or move it away",
    "stale": "nothing to do: whoever writes next shows it; `holdfast rebuild` does it now",
    "view": "`holdfast rebuild` folds it again from its log",
    "cut": "compare with a backup: lines were removed from the end of this log",
    "bad_line": "nothing to do: the bytes stay as evidence and are skipped",
    "edited": "compare with a backup: the line is not what was written",
    "missing": "compare with a backup: lines were removed",
    "misplaced": "compare with a backup: lines were moved or repeated",
    "empty": "compare with a backup: the file was emptied",
    "damaged": "look at the disk; the lines that are there are sound",
    "double": "nothing to do: it is never handed out twice; the next claims remove one name",
    "bad_message": "look at it; mended, it can be put back into the mailbox",
    "dead_message": "see why nobody could deal with it; put back, it is handed out again",
}
HARMLESS = frozenset({"bad_line", "stale", "temporary", "double", "bad_message", "dead_message"})
"""Traces of a crash that cost nothing, and what was set aside for somebody to look at."""


def check(home: Home) -> Iterator[Finding]:
    """Walk the whole home."""
    with typed("checking", home.path):
        yield from _directory(home, home.root, "")


def _directory(home: Home, directory: Dir, prefix: str) -> Iterator[Finding]:
    logs: set[Series] = set()
    names = set(directory.names())
    if is_mailbox(names):
        yield from _mailbox(home, directory, prefix, names)
        return
    for name in sorted(names):
        key = f"{prefix}/{name}" if prefix else name
        entry = directory.stat(name)
        if entry is None:
            continue
        if entry.kind == "dir" and _is_key(name):
            inner = directory.subdir(name)
            try:
                yield from _directory(home, inner, key)
            finally:
                inner.close()
        elif entry.kind != "file":
            yield _finding("alien", key, f"a {entry.kind} stands where files of ours belong")
        elif name.startswith("."):
            yield from _hidden(home, prefix, name)
        elif not _is_key(name):
            yield _finding("alien", key, "a name that Holdfast does not write")
        elif plain_name(name).endswith(".jsonl"):
            logs.add(series_of(plain_name(name)))
        elif name.endswith(".json") and f".{name}.view" not in names:
            yield from _document(home, key)
    for series in sorted(logs, key=str):
        key = f"{prefix}/{series.stem}.jsonl" if series.stem else prefix
        if key:
            yield from _log(home, key.removeprefix("/"))
        else:
            yield _finding("alien", "YYYY-MM-DD.jsonl", "days of a log that has no directory")


def _hidden(home: Home, prefix: str, name: str) -> Iterator[Finding]:
    key = f"{prefix}/{name}" if prefix else name
    if name.endswith(".tmp"):
        yield _finding("temporary", key, "somebody is writing, or died before it was done")
    elif name.endswith(".view"):
        shown = name[1:].removesuffix(".view")
        yield from _view(home, f"{prefix}/{shown}" if prefix else shown)


def _view(home: Home, key: str) -> Iterator[Finding]:
    try:
        found = home.cell(key).peek()
    except HoldfastError as error:
        yield _finding("corrupt", key, str(error))
        return
    if found is None:
        yield _finding("view", key, "its stamp is damaged")
        return
    if not found.shown and home.cell(key).stranger() is None:
        yield _finding("stale", key, "a writer died before it could show what it had seen")
    elif not found.shown:
        yield _finding("view", key, "the file is not what its stamp says")
    try:
        there = home.log(found.log).contains(found.cursor)
    except HoldfastError as error:
        yield _finding("view", key, f"it names a log that cannot be read: {error}")
        return
    if not there:
        detail = f"{key} has seen line {found.cursor.seq}, which the log no longer holds"
        yield _finding("cut", found.log, detail)


def _document(home: Home, key: str) -> Iterator[Finding]:
    try:
        text = home.document(key).read()
        if text is not None:
            decode(text.data.rstrip(b"\n"), limit=MAX_DOCUMENT)
    except (HoldfastError, DecodeError) as error:
        yield _finding("corrupt", key, str(error))


def _log(home: Home, key: str) -> Iterator[Finding]:
    try:
        found = home.log(key).verify()
    except HoldfastError as error:
        yield _finding("corrupt", key, str(error))
        return
    for problem in found.problems:
        where = f"{problem.segment}:{problem.line}"
        yield _finding(problem.kind, key, f"{where} (byte {problem.offset}): {problem.detail}")
    for bad in found.bad:
        yield _finding("bad_line", key, f"{bad.segment} (byte {bad.offset}): {bad.reason}")


def _mailbox(home: Home, inbox: Dir, key: str, names: set[str]) -> Iterator[Finding]:
    for name in sorted(names - {READY, *SHELVES}):
        if is_temporary(name):
            yield _finding("temporary", f"{key}/{name}", "somebody is delivering, or died over it")
        elif not name.endswith(SUFFIX):
            yield _finding("alien", f"{key}/{name}", "no message: its name does not end in .json")
        elif Waiting.parse(name) is None:
            detail = "not a name that a message can have; the next claim sets it aside"
            yield _finding("bad_message", f"{key}/{name}", detail)
        else:
            yield from _message(home, inbox, key, name)
    kept = _kept(inbox)
    for shelf, kind, detail in (
        (BAD, "bad_message", "set aside: it is no message"),
        (DEAD, "dead_message", "handed out too often"),
    ):
        for name in kept[shelf]:
            yield _finding(kind, f"{key}/{shelf}/{name}", detail)
    for name in kept[CLAIMED]:
        if Ticket.parse(name) is None:
            yield _finding("alien", f"{key}/{CLAIMED}/{name}", "no claim of ours")
    # Looked at twice: while we do, messages move.
    if doubles := _doubles(kept):
        for id in sorted(doubles & _doubles(_kept(inbox))):
            yield _finding("double", f"{key}/{id}", "a crash left it under two names")


def _kept(inbox: Dir) -> dict[str, list[str]]:
    """What lies on each shelf of a mailbox, and in itself under the empty name."""
    found: dict[str, list[str]] = {"": sorted(inbox.names())}
    for shelf in SHELVES:
        try:
            opened = inbox.subdir(shelf)
        except FileNotFoundError:
            found[shelf] = []
            continue
        try:
            found[shelf] = sorted(opened.names())
        finally:
            opened.close()
    return found


def _doubles(kept: dict[str, list[str]]) -> set[str]:
    """The ids of messages that are there more than once."""
    waiting = [Waiting.parse(name) for name in kept[""] if name.endswith(SUFFIX)]
    claimed = [Ticket.parse(name) for name in kept[CLAIMED]]
    ids = Counter(each.id for each in (*waiting, *claimed) if each is not None)
    ids.update(name.removesuffix(EXPIRED).removesuffix(SUFFIX) for name in kept[DONE])
    return {id for id, count in ids.items() if count > 1}


def _message(home: Home, inbox: Dir, key: str, name: str) -> Iterator[Finding]:
    try:
        read_message(home.vfs, inbox, name)
    except NoMessage as why:
        yield _finding("bad_message", f"{key}/{name}", f"{why}; the next claim sets it aside")
    except FileNotFoundError:
        pass  # claimed meanwhile


def _is_key(name: str) -> bool:
    try:
        key_parts(name)
    except BadName:
        return False
    return True


def _finding(kind: str, key: str, detail: str) -> Finding:
    return Finding(kind, key, detail, REPAIRS[kind])

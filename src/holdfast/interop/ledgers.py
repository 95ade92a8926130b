"""Ledger files of other systems in a ledger of ours.

Each file is kept byte for byte; one chained `info` line of ours, with `import` in its data,
names them with their sha256 and says what they come to: the status they leave the agent in and
the session numbers they used up.  Their entries are read from the copies, never rewritten.

Loads pydantic: ask `Ledger.has_imports` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import DecodeError, Record
from holdfast.contracts.kinds import kind
from holdfast.errors import HoldfastError
from holdfast.interop import copies
from holdfast.interop.copies import (
    FOLDER,
    Foreign,
    Sealed,
    Taken,
    errors_in,
    sealed,
    shown,
    value_in,
)
from holdfast.interop.records import Piece, pieces
from holdfast.ledger.book import Event, Found, Ledger
from holdfast.ledger.entry import IMPORT, IMPORTER
from holdfast.ledger.foreign import as_entry, instant_in
from holdfast.ledger.status import SHOWN, fold, initial, later
from holdfast.store.primitives import CONTROL, START, Cursor, Line, Problem
from holdfast.text import plural

if TYPE_CHECKING:
    from holdfast.store.home import Home

_FILES_PER_LINE = 2000
_STATUS = "/status.json"
_FOLDED = ("ts", "timestamp", "agent", "event", "task_id", "session_id", "summary")


class Imported(NamedTuple):
    """A file as a line of the ledger tells of it."""

    copy: Sealed
    entries: int
    last: float | None
    """When its latest entry happened."""
    supersedes: str | None
    """The hash of an earlier copy that this one begins with: the file had grown."""


# --- bringing in ----------------------------------------------------------------------------


def adopt(
    ledger: Ledger, home: Home, files: Iterable[Foreign], *, layout: str, dry_run: bool = False
) -> Iterator[Taken]:
    """Take in the files that are not there yet; a status.json among them counts if it is newest.

    The line that names them comes last: a crash before leaves only copies, which the next
    run finds in place.
    """
    before = {each.copy.sha256: each for each in imported(ledger)}
    news: list[dict[str, Any]] = []
    records: list[Record] = []
    status: Record | None = None
    for file in files:
        digest = copies.digest_of(file.data)
        if digest in before or any(each["sha256"] == digest for each in news):
            yield Taken(file.path, "known", copies.KNOWN)
            continue
        if file.path.endswith(_STATUS):
            taken, found = _look_at_status(file)
            status = found[0] if found else status
            found = []
        else:
            taken, found = _look_at(file)
        yield taken
        if taken.outcome == "skipped":
            continue
        if not dry_run:
            copies.keep(home, ledger.key, file)
        records += found
        news.append(_told(file, found, [*before.values()], home))
    if news and not dry_run:
        come_to = _come_to(ledger.agent, records, status)
        for start in range(0, len(news), _FILES_PER_LINE):
            part = news[start : start + _FILES_PER_LINE]
            many = plural(len(part), "file")
            summary = f"Imported {many} with {sum(each['entries'] for each in part)} entries"
            data = {IMPORT: {"layout": layout, "files": part, **come_to}}
            ledger.write(Event("info", summary, IMPORTER, data=data))
    if not dry_run:
        # Also when nothing is new: an earlier import may have crashed before this.
        ledger.refresh()


def _look_at_status(file: Foreign) -> tuple[Taken, list[Record]]:
    try:
        reading = kind("status").read(value_in(file))
    except DecodeError as error:
        return Taken(file.path, "quarantined", str(error)), []
    if reading.record is None:
        return Taken(file.path, "quarantined", shown(errors_in(reading)[:1])), []
    mended = shown(reading.findings)
    outcome = "repaired" if mended else "taken"
    return Taken(file.path, outcome, mended or "counts if nothing newer is there"), [reading.value]


def _look_at(file: Foreign) -> tuple[Taken, list[Record]]:
    if (unfit := copies.unfit(file)) is not None:
        return unfit, []
    parts = list(pieces(file.data))
    records = [_lean(as_entry(record)) for _, record in _entries(parts)]
    rejects = [part for part in parts if part.record is None]
    mended = sum(part.record is not None and not part.alone for part in parts)
    if not records:
        return Taken(file.path, "quarantined", _first(rejects) or "no entry in it"), []
    if not rejects and not mended:
        return Taken(file.path, "taken", f"{len(records)} entries", len(records)), records
    detail = f"{len(records)} entries, {mended} without a sound line of their own"
    if rejects:
        detail += f", {len(rejects)} lines that are none: {_first(rejects)}"
    return Taken(file.path, "repaired", detail, len(records)), records


def _first(rejects: list[Piece]) -> str:
    return f"line {rejects[0].line}: {rejects[0].why}" if rejects else ""


def _entries(parts: Iterable[Piece]) -> Iterator[tuple[Piece, Record]]:
    for part in parts:
        if part.record is not None and CONTROL not in part.record:
            yield part, part.record


def _lean(entry: Record) -> Record:
    """What the status is folded from, for a tree may hold more than the memory does."""
    data = entry.get("data")
    lean = {name: entry[name] for name in _FOLDED if name in entry}
    if isinstance(data, dict):
        entry = cast("Record", data)
        lean["data"] = {name: entry[name] for name in ("status", "error", "cause") if name in entry}
    return lean


def _told(
    file: Foreign, records: list[Record], before: list[Imported], home: Home
) -> dict[str, Any]:
    """What the line says of a file."""
    instants = [when for when in map(instant_in, records) if when is not None]
    last = utc_stamp(max(instants)) if instants else None
    entry = {**copies.noted(file), "entries": len(records), "last": last}
    for each in reversed(before):
        if each.copy.path == file.path:
            earlier = home.document(each.copy.key).read()
            if earlier is not None and file.data.startswith(earlier.data):
                return {**entry, "supersedes": each.copy.sha256}
    return entry


def _come_to(agent: str, records: list[Record], status: Record | None) -> dict[str, Any]:
    """What the files come to: the status of the agent, and the sessions that it had."""
    state = initial(agent)
    for record in sorted(records, key=lambda each: instant_in(each) or 0.0):
        fold(state, Line(None, None, record, "", 0, 0))
    if status is not None:
        newest = str(status["last_heartbeat"])
        if later(state["last_heartbeat"], newest) == newest:
            state |= {name: status.get(name) for name in SHOWN if name != "agent"}
    shown = {name: state[name] for name in SHOWN if name != "agent"}
    return {"status": shown, "sessions": state["sessions"]}


# --- reading --------------------------------------------------------------------------------


def imported(ledger: Ledger) -> list[Imported]:
    """Every file that the ledger tells of, in the order in which they came."""
    if not ledger.has_imports():
        return []
    found: list[Imported] = []
    for segment, offset in ledger.state()["imports"]:
        line = next(ledger.read(Cursor(0, START.hash, segment, offset)))
        for entry in line.record["data"][IMPORT]["files"]:
            if (copy := sealed(entry, ledger.key)) is None:
                continue
            entries, last, supersedes = map(entry.get, ("entries", "last", "supersedes"))
            when = None
            with suppress(ValueError):
                when = instant_of(last) if isinstance(last, str) else None
            count = entries if type(entries) is int else 0
            found.append(Imported(copy, count, when, supersedes))
    return found


def current(files: list[Imported]) -> list[Imported]:
    """Those with entries, without copies of which a longer one came later."""
    old = {each.supersedes for each in files}
    return [each for each in files if each.entries and each.copy.sha256 not in old]


def entries_of(home: Home, file: Imported) -> Iterator[Found]:
    """The entries of an imported file, in its order."""
    segment = f"{FOLDER}/{file.copy.key.rpartition('/')[2]}"
    for part, record in _entries(pieces(copies.load(home, file.copy))):
        end = part.offset + len(part.raw)
        yield Found(record, Line(None, None, record, segment, part.offset, end))


def newest(
    ledger: Ledger,
    home: Home,
    limit: int | None,
    wanted: Callable[[Found], bool],
    since: float | None = None,
) -> list[list[Found]]:
    """For each imported file its wanted entries, by the instants they name.

    Files that are too old to matter are not read.
    """
    streams: list[list[Found]] = []
    times: list[float] = []
    files = current(imported(ledger))
    for file in sorted(files, key=lambda each: each.last or 0.0, reverse=True):
        last = (file.last or 0.0) + 1
        if since is not None and file.last is not None and last < since:
            continue
        if limit is not None and len(times) >= limit and last < sorted(times)[-limit]:
            continue
        try:
            stream = _by_instant(found for found in entries_of(home, file) if wanted(found))
        except HoldfastError as error:
            # `verify` and `check` tell of it; the other entries can be read all the same.
            home.notice("import_unreadable", f"{file.copy.key}: {error.message}")
            continue
        times += [found.instant for found in stream]
        streams.append(stream)
    return streams


def _by_instant(entries: Iterable[Found]) -> list[Found]:
    """Without numbers of ours only the time tells; what names none stays behind the one before."""
    keyed: list[tuple[float, Found]] = []
    latest = 0.0
    for found in entries:
        latest = found.instant or latest
        keyed.append((latest, found))
    return [found for _, found in sorted(keyed, key=lambda each: each[0])]


def problems(ledger: Ledger, home: Home) -> Iterator[Problem]:
    """Copies that are not what was imported."""
    return copies.problems(home, (each.copy for each in imported(ledger)))

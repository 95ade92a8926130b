"""The data of a log by topic, and what became of them.

SQLite in `cache/`, one database for each log, brought up to date from the log by whoever reads it.
A datum that its own log forgot has a place in it and no text.  It may be deleted at any time; where
it cannot be used, one in memory is made of the whole log.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from holdfast.codec import decode_record, encode
from holdfast.errors import HoldfastError
from holdfast.layout import CACHE
from holdfast.memory.datum import Datum, Forgotten, Inherited, IvfNode, agent_of, entry_of
from holdfast.memory.names import ROOT
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Line, Log

_VERSION = 1
_PATIENCE = 30.0
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS line (
    seq INTEGER PRIMARY KEY, topic TEXT, ts REAL, segment TEXT, offset INTEGER, body BLOB);
CREATE INDEX IF NOT EXISTS of_topic ON line (topic, ts);
CREATE TABLE IF NOT EXISTS mark (
    kind TEXT, name TEXT, value TEXT, seq INTEGER, PRIMARY KEY (kind, name, seq)) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
COMMIT;
"""
GONE, SUPERSEDED, IVF, REACH = "gone", "superseded", "ivf", "reach"
_STATE = "state"
_Columns = tuple[int, str | None, float | None, str, int, bytes | None]


class Row(NamedTuple):
    """A line of the log."""

    seq: int
    topic: str
    ts: float
    segment: str
    offset: int
    body: bytes | None
    """Its record; None of a datum that was forgotten, and of what is not looked up by topic."""


class Mark(NamedTuple):
    """What a line says of a datum, of the index, or of the log that this one goes on from."""

    name: str
    value: str
    seq: int


class Catalogue:
    """Used by one thread at a time."""

    def __init__(self, home: Backend, log: Log) -> None:
        self._home, self._log, self.agent = home, log, agent_of(log.key)
        self._db: sqlite3.Connection | None = None

    # -- keeping it true ---------------------------------------------------------------

    def current(self) -> sqlite3.Connection:
        """The database, after every line of the log."""
        try:
            self._db = self._db or self._opened()
            self._take_in(self._db)
        except sqlite3.Error:
            # Damaged or locked for too long: the log says the same.
            self.close()
            self._db = _made(":memory:")
            self._take_in(self._db)
        return self._db

    def _opened(self) -> sqlite3.Connection:
        try:
            path = f"{self._home.scratch(f'{CACHE}/topics/{self.agent}')}/places.sqlite3"
        except HoldfastError:
            return _made(":memory:")  # a home that can only be read
        try:
            return _made(path)
        except sqlite3.DatabaseError:
            with suppress(OSError):
                os.remove(path)  # direct write: a damaged cache  # noqa: TID251
            return _made(path)

    def _take_in(self, db: sqlite3.Connection) -> None:
        after = _cursor_in(db)
        if next(iter(self._log.read(after)), None) is None and self._log.contains(after):
            return
        with db:
            db.execute("BEGIN IMMEDIATE")
            after = _cursor_in(db)
            if not self._log.contains(after):
                db.execute("DELETE FROM line")
                db.execute("DELETE FROM mark")
                after = START
            rows, marks, gone = list[_Columns](), list[tuple[str, str, str, int]](), list[str]()
            for line in self._log.read(after):
                if isinstance(line, Line) and line.seq is not None:
                    after = line.cursor
                    rows.append(self._row(line, marks, gone))
            db.executemany("INSERT OR REPLACE INTO line VALUES (?, ?, ?, ?, ?, ?)", rows)
            db.executemany("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, ?)", marks)
            ours = f"{self.agent}#"
            seqs = [(id.removeprefix(ours),) for id in gone if id.startswith(ours)]
            db.executemany("UPDATE line SET body = NULL WHERE seq = CAST(? AS INTEGER)", seqs)
            keep(db, "cursor", encode(list(after)).decode())

    def _row(self, line: Line, marks: list[tuple[str, str, str, int]], gone: list[str]) -> _Columns:
        topic, ts, body, seq = None, None, None, line.seq or 0
        match entry_of(self.agent, line):
            case Datum() as datum:
                topic, ts, body = datum.topic, datum.ts, encode(line.record)
                if datum.supersedes:
                    marks.append((SUPERSEDED, datum.supersedes, datum.id, seq))
            case Forgotten(ids, why, _):
                marks.extend((GONE, each, why, seq) for each in ids)
                gone.extend(ids)
            case IvfNode(node, _):
                marks.append((IVF, node.rpartition("/")[0], node, seq))
            case Inherited() as reach:
                marks.append((REACH, reach.log, encode(list(reach)).decode(), seq))
            case None:
                pass
        return seq, topic, ts, line.segment, line.offset, body

    # -- asking ------------------------------------------------------------------------

    def data(self, topic: str, upto: int | None, newest: int | None = None) -> list[Row]:
        """The places of the data at and below a topic, oldest first."""
        order = "" if newest is None else f" ORDER BY seq DESC LIMIT {newest:d}"
        where, names = _below(topic)
        if newest is not None:
            where = where.replace("topic", "+topic")  # in the order of lines: no index, no sort
        query = f"SELECT * FROM line WHERE {where} AND seq <= ?{order}"
        return sorted(map(Row._make, self.current().execute(query, (*names, _limit(upto)))))

    def topics(self, topic: str, upto: int | None) -> Iterator[tuple[str, int, float]]:
        """Each topic at and below one, with the number of its data and the time of the newest."""
        where, names = _below(topic)
        query = f"SELECT topic, count(*), max(ts) FROM line WHERE {where} AND seq <= ?"
        yield from self.current().execute(f"{query} GROUP BY topic", (*names, _limit(upto)))

    def rows(self, seqs: Iterable[int], upto: int | None) -> list[Row]:
        """The places of these lines, as far as they are there."""
        wanted = sorted({seq for seq in seqs if seq <= _limit(upto)})
        db, found = self.current(), list[Row]()
        for at in range(0, len(wanted), 500):
            part = wanted[at : at + 500]
            query = f"SELECT * FROM line WHERE seq IN ({','.join('?' * len(part))}) ORDER BY seq"
            found += map(Row._make, db.execute(query, part))
        return found

    def marks(self, kind: str, upto: int | None) -> list[Mark]:
        found = self.current().execute(
            "SELECT name, value, seq FROM mark WHERE kind = ? AND seq <= ? ORDER BY seq",
            (kind, _limit(upto)),
        )
        return list(map(Mark._make, found))

    def lines(self, rows: Iterable[Row]) -> Iterator[Line]:
        """These lines, those without a body from the log."""
        for row in rows:
            if row.body is not None:
                record = decode_record(row.body)
                yield Line(row.seq, None, record, row.segment, row.offset, 0)
                continue
            at = Cursor(row.seq - 1, START.hash, row.segment, row.offset)
            line = next(iter(self._log.read(at)), None)
            if isinstance(line, Line) and line.seq == row.seq:
                yield line

    # -- what was shown of it ----------------------------------------------------------

    def note(self, name: str) -> str:
        """A text that is kept beside the places; empty if there is none."""
        return kept(self.current(), name)

    def keep(self, name: str, value: str) -> None:
        with self.current() as db:
            keep(db, name, value)

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _made(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA secure_delete = ON")
        if path != ":memory:":
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError("made by another version")
        if version == 0:
            db.executescript(_TABLES)
    except sqlite3.Error:
        db.close()
        raise
    return db


def _limit(upto: int | None) -> int:
    return (1 << 63) - 1 if upto is None else upto


def _below(topic: str) -> tuple[str, tuple[str, ...]]:
    """A condition for the topics at and below one; `0` follows `/`."""
    if topic == ROOT:
        return "topic NOT NULL", ()
    return "(topic = ? OR topic > ? AND topic < ?)", (topic, f"{topic}/", f"{topic}0")


def kept(db: sqlite3.Connection, name: str) -> str:
    found = db.execute("SELECT value FROM mark WHERE kind = ? AND name = ?", (_STATE, name))
    row = found.fetchone()
    return row[0] if row else ""


def keep(db: sqlite3.Connection, name: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO mark VALUES (?, ?, ?, 0)", (_STATE, name, value))


def _cursor_in(db: sqlite3.Connection) -> Cursor:
    found = kept(db, "cursor")
    return Cursor(*decode_record(f'{{"at":{found}}}'.encode())["at"]) if found else START

"""The index of a home: one SQLite file of texts, postings and vectors, made from logs.

It may vanish at any time and is made again.  Texts and how far their log was read are written in
one transaction, so a crash leaves an index that is behind, never one that is wrong.

Texts have numbers; `BLOCK` of them share a row in every list.  A posting is two 16-bit numbers: the
place in the block, and how often the word stands there.  A filter (agent, source, topic, tag) is a
word like any other, which no text can contain.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, NamedTuple

from holdfast.memory.sources import LONGEST, Text
from holdfast.memory.terms import terms
from holdfast.store.primitives import START, Cursor

FORMAT = "1"
FILE = "index.sqlite3"
BLOCK = 8192
MOST_TIMES = 65_535
_DEEPEST = 32
_PATIENCE = 60.0
_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE origins(
    key TEXT PRIMARY KEY, agent TEXT, version TEXT, seq INT, hash TEXT, segment TEXT, offset INT);
CREATE TABLE groups(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE texts(
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, origin TEXT NOT NULL, agent TEXT, source TEXT,
    topic TEXT, grouped TEXT, ts REAL, until REAL, tags TEXT, text TEXT NOT NULL,
    fingerprint BLOB NOT NULL, embedded INT NOT NULL DEFAULT 0);
CREATE INDEX texts_id ON texts(id);
CREATE INDEX texts_origin ON texts(origin);
CREATE INDEX texts_same ON texts(fingerprint);
CREATE INDEX texts_waiting ON texts(number) WHERE embedded = 0;
CREATE TABLE superseded(old TEXT, new TEXT, agent TEXT, PRIMARY KEY(agent, old, new));
CREATE INDEX superseded_new ON superseded(new);
CREATE TABLE postings(term TEXT, block INT, entries BLOB, UNIQUE(term, block));
CREATE TABLE blocks(block INTEGER PRIMARY KEY, lengths BLOB, groups BLOB, times BLOB);
CREATE TABLE vectors(seq INTEGER PRIMARY KEY, number INT NOT NULL UNIQUE, data BLOB NOT NULL);
"""


class Row(NamedTuple):
    """A text as the index has it."""

    number: int
    id: str
    agent: str
    source: str
    topic: str
    group: str
    ts: float | None
    until: float | None
    tags: tuple[str, ...]
    text: str
    fingerprint: bytes


_ROW = "number, id, agent, source, topic, grouped, ts, until, tags, text, fingerprint"


def filter_terms(text: Text) -> Iterator[str]:
    """What a text can be filtered by; no word begins like this."""
    yield f"\x01agent {text.agent}"
    yield f"\x01source {text.source}"
    parts = text.topic.split("/")
    for depth in range(1, min(len(parts), _DEEPEST) + 1):
        yield f"\x01topic {'/'.join(parts[:depth])}"
    for tag in text.tags:
        yield f"\x01tag {tag}"


class Index:
    """Used by one thread at a time; several processes at once are safe."""

    def __init__(self, folder: str | None) -> None:
        """Without a folder it is in memory, for a home in which nothing may be written."""
        self.folder = folder
        self.path = f"{folder}/{FILE}" if folder else ":memory:"
        self._inode = 0
        self.changes = 0
        """Counts what was written through this object."""
        self.db = self._open()

    # -- the file ----------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.folder and not os.path.exists(self.path):
            # The log of a database that is gone would be taken for that of the new one.
            for left in ("-wal", "-shm"):
                self._remove(self.path + left)
        db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("PRAGMA secure_delete=ON")
            db.execute("PRAGMA cache_size=-65536")
            db.execute("CREATE TEMP TABLE kept(fingerprint BLOB PRIMARY KEY, data BLOB)")
            db.execute("BEGIN IMMEDIATE")
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name='facts'").fetchone():
                for statement in _SCHEMA.strip().split(";\n"):
                    db.execute(statement)
                first = (("format", FORMAT), ("epoch", os.urandom(8).hex()))
                db.executemany("INSERT INTO facts VALUES(?,?)", first)
            known = db.execute("SELECT value FROM facts WHERE name='format'").fetchone()
            db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            db.close()
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise
            return self._anew()
        if known != (FORMAT,):
            db.close()
            return self._anew()
        self._inode = os.stat(self.path).st_ino if self.folder else 0
        return db

    def _anew(self) -> sqlite3.Connection:
        """A damaged index, or one of another format, is thrown away."""
        for suffix in ("", "-wal", "-shm"):
            self._remove(self.path + suffix)
        return self._open()

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: TID251  # direct write: an index that can be made again

    def check(self) -> None:
        """Go on with a new file if somebody removed this one."""
        if not self.folder:
            return
        try:
            same = os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            self.db.close()
            os.makedirs(self.folder, exist_ok=True)  # noqa: TID251  # direct write: as above
            self.db = self._open()
            self.changes += 1

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """One transaction, with no other process writing."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield self.db
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")
        self.changes += 1

    @contextmanager
    def reading(self) -> Generator[None]:
        """One state of the index, whatever other processes write."""
        self.db.execute("BEGIN")
        self.db.execute("SELECT 1 FROM facts").fetchone()
        try:
            yield
        finally:
            self.db.execute("COMMIT")

    def version(self) -> tuple[int, int]:
        """Changes with what is in it."""
        return self.changes, self.db.execute("PRAGMA data_version").fetchone()[0]

    def fact(self, name: str) -> str | None:
        found = self.db.execute("SELECT value FROM facts WHERE name=?", (name,)).fetchone()
        return found[0] if found else None

    # -- how far origins were read -----------------------------------------------------

    def versions(self) -> dict[str, str]:
        return dict(self.db.execute("SELECT key, version FROM origins"))

    def origins_of(self, agents: Sequence[str] | None) -> set[str]:
        """The keys that were read of these agents, or of all."""
        rows = self.db.execute("SELECT key, agent FROM origins")
        return {key for key, agent in rows if agents is None or agent in agents}

    def position(self, key: str) -> Cursor:
        row = self.db.execute(
            "SELECT seq, hash, segment, offset FROM origins WHERE key=?", (key,)
        ).fetchone()
        return Cursor(*row) if row else START

    def reached(self, key: str, agent: str, version: str, at: Cursor) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO origins VALUES(?,?,?,?,?,?,?)", (key, agent, version, *at)
        )

    # -- writing, within a transaction -------------------------------------------------

    def add(self, origin: str, texts: Iterable[Text]) -> None:
        """Index texts under new numbers."""
        top = self.db.execute("SELECT MAX(block) FROM blocks").fetchone()[0] or 0
        found = self.db.execute("SELECT lengths FROM blocks WHERE block=?", (top,)).fetchone()
        number = top * BLOCK + (len(found[0]) // 4 if found else 0)
        postings: dict[tuple[str, int], array[int]] = {}
        columns: dict[int, tuple[array[int], array[int], array[float]]] = {}
        groups: dict[str, int] = {}
        for text in texts:
            block, place = divmod(number, BLOCK)
            counted = self._insert(number, origin, text)
            for term, times in counted.items():
                postings.setdefault((term, block), array("H")).extend(
                    (place, min(times, MOST_TIMES))
                )
            for term in filter_terms(text):
                postings.setdefault((term, block), array("H")).extend((place, 1))
            group = text.group or text.id
            if group not in groups:
                groups[group] = self._group(group)
            three = columns.setdefault(block, (array("I"), array("I"), array("d")))
            # One more than the length, so that 0 is a text that is gone.
            three[0].append(1 + counted.total())
            three[1].append(groups[group])
            three[2].append(float("nan") if text.ts is None else text.ts)
            number += 1
        self.db.executemany(
            "INSERT INTO postings VALUES(?,?,?) ON CONFLICT(term, block)"
            " DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)",
            ((term, block, found.tobytes()) for (term, block), found in sorted(postings.items())),
        )
        self.db.executemany(
            "INSERT INTO blocks VALUES(?,?,?,?) ON CONFLICT(block) DO UPDATE SET"
            " lengths = CAST(lengths || excluded.lengths AS BLOB),"
            " groups = CAST(groups || excluded.groups AS BLOB),"
            " times = CAST(times || excluded.times AS BLOB)",
            ((block, *(each.tobytes() for each in three)) for block, three in columns.items()),
        )

    def _insert(self, number: int, origin: str, text: Text) -> Counter[str]:
        said = text.text[:LONGEST]
        same = " ".join(said.lower().split())
        self.db.execute(
            f"INSERT INTO texts({_ROW}, origin) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                number,
                text.id,
                text.agent,
                text.source,
                text.topic,
                text.group or text.id,
                text.ts,
                text.until,
                "\x01".join(text.tags),
                said,
                sha256(same.encode("utf-8", "surrogatepass")).digest(),
                origin,
            ),
        )
        if text.supersedes:
            self.db.execute(
                "INSERT OR IGNORE INTO superseded VALUES(?,?,?)",
                (text.supersedes, text.id, text.agent),
            )
        return counted(said, text.source, text.topic)

    def _group(self, name: str) -> int:
        self.db.execute("INSERT OR IGNORE INTO groups(name) VALUES(?)", (name,))
        return self.db.execute("SELECT id FROM groups WHERE name=?", (name,)).fetchone()[0]

    def forget(self, agent: str, ids: Sequence[str]) -> list[int]:
        """Take out texts of an agent; their numbers."""
        found = [each for id in ids for each in self._numbers("id=? AND agent=?", id, agent)]
        self._drop(found)
        self.begin_epoch()  # what is being made of vectors that were read before is of no use
        return found

    def drop_origin(self, key: str) -> None:
        self._drop(self._numbers("origin=?", key))
        self.db.execute("DELETE FROM origins WHERE key=?", (key,))

    def _numbers(self, where: str, *values: Any) -> list[int]:
        rows = self.db.execute(f"SELECT number FROM texts WHERE {where}", values)
        return [number for (number,) in rows]

    def _drop(self, numbers: Sequence[int]) -> None:
        """Take texts out of every list: no word of them is left in the file."""
        gone: dict[tuple[str, int], set[int]] = {}
        for number in set(numbers):
            block, place = divmod(number, BLOCK)
            row = self.rows([number])[0]
            text = Text(row.id, row.agent, row.source, row.text, None, row.topic, tags=row.tags)
            for term in {*counted(row.text, row.source, row.topic), *filter_terms(text)}:
                gone.setdefault((term, block), set()).add(place)
            # One row of columns is patched in place.
            self.db.execute(
                "UPDATE blocks SET lengths = CAST(substr(lengths, 1, ?) || x'00000000'"
                " || substr(lengths, ?) AS BLOB) WHERE block=?",
                (place * 4, place * 4 + 5, block),
            )
            self.db.execute("DELETE FROM superseded WHERE new=? AND agent=?", (row.id, row.agent))
            self.db.execute("DELETE FROM vectors WHERE number=?", (number,))
            self.db.execute("DELETE FROM texts WHERE number=?", (number,))
        for (term, block), places in gone.items():
            which = "term=? AND block=?"
            found = self.db.execute(
                f"SELECT entries FROM postings WHERE {which}", (term, block)
            ).fetchone()
            entries = array("H", found[0] if found else b"")
            kept = array("H")
            for at in range(0, len(entries), 2):
                if entries[at] not in places:
                    kept.extend(entries[at : at + 2])
            if kept:
                self.db.execute(
                    f"UPDATE postings SET entries=? WHERE {which}", (kept.tobytes(), term, block)
                )
            else:
                self.db.execute(f"DELETE FROM postings WHERE {which}", (term, block))

    def clean(self) -> None:
        """See that no deleted text is left in the log of the database."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def wipe(self) -> None:
        """Forget everything but the vectors, which texts of the same words get again."""
        self.db.execute("DELETE FROM kept")
        self.db.execute(
            "INSERT OR IGNORE INTO kept SELECT fingerprint, data FROM vectors JOIN texts"
            " USING(number)"
        )
        for table in ("origins", "groups", "texts", "superseded", "postings", "blocks", "vectors"):
            self.db.execute(f"DELETE FROM {table}")
        self.db.execute("DELETE FROM facts WHERE name='ivf'")
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Say that numbers and vectors that were read before hold no more."""
        self.state("epoch", os.urandom(8).hex())

    def state(self, name: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts VALUES(?,?)", (name, value))

    # -- reading -----------------------------------------------------------------------

    def size(self) -> int:
        return self.db.execute("SELECT COUNT(*) FROM texts").fetchone()[0]

    def rows(self, numbers: Sequence[int]) -> list[Row]:
        """Texts by their numbers, in no order."""
        found: list[Row] = []
        for some in _some(numbers):
            marks = ",".join("?" * len(some))
            rows = self.db.execute(f"SELECT {_ROW} FROM texts WHERE number IN ({marks})", some)
            found += map(_row, rows)
        return found

    def postings(self, wanted: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
        """Of each term its blocks and their entries."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        for some in _some(wanted):
            marks = ",".join("?" * len(some))
            for term, block, entries in self.db.execute(
                f"SELECT term, block, entries FROM postings WHERE term IN ({marks})"
                " ORDER BY term, block",
                some,
            ):
                found.setdefault(term, []).append((block, entries))
        return found

    def sizes(self, wanted: Sequence[str]) -> dict[str, int]:
        """In how many texts each term stands."""
        found: dict[str, int] = {}
        for some in _some(wanted):
            marks = ",".join("?" * len(some))
            found.update(
                self.db.execute(
                    "SELECT term, SUM(LENGTH(entries)) / 4 FROM postings"
                    f" WHERE term IN ({marks}) GROUP BY term",
                    some,
                )
            )
        return found

    def columns(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Lengths, groups and times of all numbers, block by block."""
        yield from self.db.execute("SELECT lengths, groups, times FROM blocks ORDER BY block")

    def successors(self, row: Row) -> list[Row]:
        """What supersedes a text."""
        names = ", ".join(f"texts.{name.strip()}" for name in _ROW.split(","))
        found = self.db.execute(
            f"SELECT {names} FROM superseded JOIN texts ON texts.id = superseded.new"
            " AND texts.agent = superseded.agent WHERE old=? AND superseded.agent=?"
            " ORDER BY texts.number",
            (row.id, row.agent),
        )
        return list(map(_row, found))

    def vectors(self, numbers: Sequence[int]) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for some in _some(numbers):
            marks = ",".join("?" * len(some))
            found += self.db.execute(
                f"SELECT number, data FROM vectors WHERE number IN ({marks})", some
            )
        return found

    def vectors_after(self, seq: int) -> list[tuple[int, int, bytes]]:
        """Vectors that were made later, in order."""
        query = "SELECT seq, number, data FROM vectors WHERE seq > ? ORDER BY seq"
        return self.db.execute(query, (seq,)).fetchall()

    def vectors_of_same(self, fingerprints: Sequence[bytes]) -> dict[bytes, bytes]:
        """Vectors of texts that say the same, also of those before a `wipe`."""
        found: dict[bytes, bytes] = {}
        for some in _some(fingerprints):
            marks = ",".join("?" * len(some))
            for table in ("texts JOIN vectors USING(number)", "kept"):
                query = f"SELECT fingerprint, data FROM {table} WHERE fingerprint IN ({marks})"
                found.update(self.db.execute(query, some))
        return found

    def close(self) -> None:
        self.db.close()


def _row(found: Sequence[Any]) -> Row:
    row = Row._make(found)
    tags: str = found[8]
    return row._replace(tags=tuple(tags.split("\x01")) if tags else ())


def counted(text: str, source: str, topic: str) -> Counter[str]:
    """The words of a text, and of its topic where that was chosen for it."""
    named = topic if source in ("topic", "note", "chunk", "summary") else ""
    return Counter(terms(f"{named}\n{text}" if named else text))


def _some(values: Sequence[Any], at_once: int = 500) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), at_once):
        yield values[start : start + at_once]

"""The index of a home: one SQLite file of texts, postings and vectors, made from logs.

It may vanish at any time and is made again.  Texts and how far their log was read are written in
one transaction, so a crash leaves an index that is behind, never one that is wrong.

A text goes through stages: it is read (`memory show` finds it), its words are counted, it gets a
vector.  Texts have numbers, which are never used again; `BLOCK` of them share a row in every list.
A posting is two 16-bit numbers: the place in the block, and how often the word stands there.  A
filter (agent, source, topic, tag) is a word like any other, which no text can contain.  Of a word
only its hash is kept, so that nothing but its text says what was forgotten.
"""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from hashlib import blake2b
from struct import pack
from typing import Any, TypeVar, cast

from holdfast.codec import decode, encode
from holdfast.errors import DiskFull, HoldfastError, StorageError
from holdfast.layout import CACHE
from holdfast.memory.sources import CHUNK, NOTE, SUMMARY, TOPIC, Text
from holdfast.memory.terms import terms
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor

FORMAT = "3"
FOLDER, FILE = f"{CACHE}/memory", "index.sqlite3"
BLOCK = 8192
MOST_TIMES = 65_535
LONGEST = 32_768
"""Characters of one text that are indexed."""
READ, COUNTED, DONE = 0, 1, 2
"""Stages of a text; one that is not to be found is done at once."""
_COLUMN, _BYTES = "<IId", 16
"""Of each number, as `rank` reads it."""
_AT_ONCE = 5_000
_DEEPEST = 32
_PATIENCE = 60.0
_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE origins(
    key TEXT PRIMARY KEY, agent TEXT, version TEXT, seq INT, hash TEXT, segment TEXT, offset INT);
CREATE TABLE groups(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE texts(
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, agent TEXT, source TEXT,
    text TEXT NOT NULL, ts REAL, topic TEXT, grouped TEXT, tags TEXT, until REAL, record BLOB,
    origin TEXT NOT NULL, stage INT NOT NULL);
CREATE INDEX texts_id ON texts(id);
CREATE INDEX texts_topic ON texts(origin, topic, ts);
CREATE INDEX texts_waiting ON texts(stage, number) WHERE stage < 2;
CREATE TABLE marks(origin TEXT, kind TEXT, name TEXT, value BLOB, PRIMARY KEY(origin, kind, name));
CREATE TABLE superseded(old TEXT, new TEXT, agent TEXT, PRIMARY KEY(agent, old, new));
CREATE INDEX superseded_new ON superseded(new);
CREATE TABLE postings(term INT, block INT, entries BLOB, UNIQUE(term, block));
CREATE TABLE blocks(block INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE vectors(
    seq INTEGER PRIMARY KEY, number INT NOT NULL UNIQUE, same BLOB NOT NULL, data BLOB NOT NULL);
CREATE INDEX vectors_same ON vectors(same);
"""


_TEXT = "id, agent, source, text, ts, topic, grouped, tags, until, record, number"
"""As the fields of a `Text`."""


def open_index(home: Backend, *, keep: bool = True) -> Index:
    """The index of a home; one in memory where nothing may, or can, be written."""
    if keep:
        with suppress(HoldfastError, sqlite3.OperationalError):
            return Index(home.scratch(FOLDER))
    return Index(None)


class Index:
    """Used by one thread at a time; several processes at once are safe."""

    def __init__(self, folder: str | None) -> None:
        """Without a folder it is in memory."""
        self.folder = folder
        self.path = f"{folder}/{FILE}" if folder else ":memory:"
        self._inode = 0
        self.db = self._open()

    # -- the file ----------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.folder and not os.path.exists(self.path):
            # The log of a database that is gone would be taken for that of the new one.
            for left in ("-wal", "-shm"):
                self._remove(self.path + left)
        db = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        try:
            for setting in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
                db.execute(f"PRAGMA {setting}")
            db.execute("PRAGMA cache_size=-65536")
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
            if isinstance(error, sqlite3.OperationalError):
                raise  # locked for too long, or the disk is full
            return self._anew()
        if known != (FORMAT,):
            db.close()
            return self._anew()
        self._inode = os.stat(self.path).st_ino if self.folder else 0
        return db

    def renew(self, *, in_memory: bool) -> None:
        """Go on with a new one: a damaged index is thrown away, one on a full disk is left."""
        self.db.close()
        if in_memory:
            self.folder, self.path = None, ":memory:"
        self.db = self._open() if in_memory else self._anew()

    def _anew(self) -> sqlite3.Connection:
        """So is one that is damaged from the start, or of another format."""
        for suffix in ("", "-wal", "-shm"):
            self._remove(self.path + suffix)
        return self._open()

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: TID251  # direct write: an index that can be made again

    def check(self) -> None:
        """Go on with a new file if another process removed this one."""
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

    @contextmanager
    def reading(self) -> Generator[None]:
        """One state of the index, whatever other processes write."""
        self.db.execute("BEGIN")
        self.db.execute("SELECT 1 FROM facts").fetchone()
        try:
            yield
        finally:
            self.db.execute("COMMIT")

    def fact(self, name: str) -> str | None:
        found = self.db.execute("SELECT value FROM facts WHERE name=?", (name,)).fetchone()
        return found[0] if found else None

    def state(self, name: str, value: str) -> None:
        self.db.execute("INSERT OR REPLACE INTO facts VALUES(?,?)", (name, value))

    # -- how far origins were read -----------------------------------------------------

    def versions(self, agents: Sequence[str] | None = None) -> dict[str, str]:
        """What was read of these agents, or of all: keys, and the version of each."""
        rows = self.db.execute("SELECT key, version, agent FROM origins")
        return {key: version for key, version, agent in rows if agents is None or agent in agents}

    def position(self, key: str) -> Cursor:
        query = "SELECT seq, hash, segment, offset FROM origins WHERE key=?"
        row = self.db.execute(query, (key,)).fetchone()
        return Cursor(*row) if row else START

    def reached(self, key: str, agent: str, version: str, at: Cursor) -> None:
        query = "INSERT OR REPLACE INTO origins VALUES(?,?,?,?,?,?,?)"
        self.db.execute(query, (key, agent, version, *at))

    def mark(self, origin: str, kind: str, name: str, value: object) -> None:
        """Keep what a log says besides its texts."""
        self.db.execute(
            "INSERT OR REPLACE INTO marks VALUES(?,?,?,?)", (origin, kind, name, encode(value))
        )

    def unmark(self, origin: str, kind: str, name: str) -> object:
        """Take a mark away; what it held, or None."""
        query = "DELETE FROM marks WHERE origin=? AND kind=? AND name=? RETURNING value"
        found = self.db.execute(query, (origin, kind, name)).fetchone()
        return decode(found[0]) if found else None

    # -- writing, within a transaction -------------------------------------------------

    def add(self, origin: str, texts: Iterable[Text]) -> None:
        """Take in texts under new numbers; their words are counted when they are asked for."""
        for text in texts:
            said = text.text[:LONGEST]
            tags, stage = "\x01".join(text.tags), READ if text.found and said.strip() else DONE
            stored = text._replace(text=said, group=text.group or text.id)[:7]
            self.db.execute(
                f"INSERT INTO texts({_TEXT}, origin, stage) VALUES(?,?,?,?,?,?,?,?,?,?,NULL,?,?)",
                (*stored, tags, text.until, text.record, origin, stage),
            )
            self.db.executemany(
                "INSERT OR IGNORE INTO superseded VALUES(?,?,?)",
                [(old, text.id, text.agent) for old in text.supersedes],
            )

    def count(self) -> None:
        """Count the words of texts that wait for it, in transactions of their own."""
        waiting = "FROM texts WHERE stage<2 AND stage=0"
        while self.db.execute(f"SELECT 1 {waiting} LIMIT 1").fetchone():
            with self.writing() as db:
                query = f"SELECT {_TEXT} {waiting} ORDER BY number LIMIT {_AT_ONCE}"
                texts = list(map(_text, db.execute(query)))
                self._count(texts)
                numbers = [(text.number,) for text in texts]
                db.executemany("UPDATE texts SET stage=1 WHERE number=?", numbers)

    def _count(self, texts: Sequence[Text]) -> None:
        postings: dict[tuple[int, int], array[int]] = {}
        blocks: dict[int, bytearray] = {}
        groups: dict[str, int] = {}
        for text in texts:
            block, place = divmod(text.number, BLOCK)
            named = text.topic if text.source in (TOPIC, NOTE, CHUNK, SUMMARY) else ""
            words = Counter(terms(f"{named}\n{text.text}" if named else text.text))
            filters = dict.fromkeys(_filters(text), 1)
            for term, times in (*words.items(), *filters.items()):
                entries = postings.setdefault((key_of(term), block), array("H"))
                entries.extend((place, min(times, MOST_TIMES)))
            if text.group not in groups:
                self.db.execute("INSERT OR IGNORE INTO groups(name) VALUES(?)", (text.group,))
                query = "SELECT id FROM groups WHERE name=?"
                groups[text.group] = self.db.execute(query, (text.group,)).fetchone()[0]
            if block not in blocks:
                blocks[block] = bytearray(self._block(block))
            data = blocks[block]
            data += bytes(place * _BYTES - len(data))
            when = float("nan") if text.ts is None else text.ts
            data += pack(_COLUMN, 1 + words.total(), groups[text.group], when)
        self.db.executemany(
            "INSERT INTO postings VALUES(?,?,?) ON CONFLICT(term, block)"
            " DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)",
            ((term, block, found.tobytes()) for (term, block), found in sorted(postings.items())),
        )
        self.db.executemany("INSERT OR REPLACE INTO blocks VALUES(?,?)", blocks.items())

    def _block(self, block: int) -> bytes:
        found = self.db.execute("SELECT data FROM blocks WHERE block=?", (block,)).fetchone()
        return found[0] if found else b""

    def forget(self, origin: str, ids: Sequence[str]) -> list[int]:
        """Take out texts of a log; their numbers."""
        found = [each for id in ids for each in self._numbers("id=? AND origin=?", id, origin)]
        self._drop(found)
        return found

    def drop_origin(self, key: str) -> None:
        self._drop(self._numbers("origin=?", key))
        self.db.execute("DELETE FROM marks WHERE origin=?", (key,))
        self.db.execute("DELETE FROM origins WHERE key=?", (key,))

    def _numbers(self, where: str, *values: Any) -> list[int]:
        rows = self.db.execute(f"SELECT number FROM texts WHERE {where}", values)
        return [number for (number,) in rows]

    def _drop(self, numbers: Sequence[int]) -> None:
        """Take out texts; what is left of them is hashes of words, of a number that is not used."""
        blocks: dict[int, bytearray] = {}
        for text in self.texts(numbers):
            block, place = divmod(text.number, BLOCK)
            data = blocks.setdefault(block, bytearray(self._block(block)))
            if len(data) > (at := place * _BYTES):
                data[at : at + 4] = bytes(4)
            which = (text.id, text.agent)
            self.db.execute("DELETE FROM superseded WHERE new=? AND agent=?", which)
        self.db.executemany("INSERT OR REPLACE INTO blocks VALUES(?,?)", blocks.items())
        for table in ("vectors", "texts"):
            query = f"DELETE FROM {table} WHERE number=?"
            self.db.executemany(query, [(number,) for number in numbers])
        if numbers:  # what is being made of vectors that were read before is of no use
            self.begin_epoch()

    def clean(self) -> None:
        """See that no deleted text is left in the log of the database."""
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def wipe(self) -> None:
        """Forget everything but the vectors, which texts of the same words get again."""
        for table in ("origins", "groups", "texts", "marks", "superseded", "postings", "blocks"):
            self.db.execute(f"DELETE FROM {table}")
        self.db.execute("UPDATE vectors SET number = -seq")
        self.db.execute("DELETE FROM facts WHERE name='ivf'")
        self.begin_epoch()

    def begin_epoch(self) -> None:
        """Say that numbers and vectors that were read before hold no more."""
        self.state("epoch", os.urandom(8).hex())

    # -- reading -----------------------------------------------------------------------

    def size(self) -> int:
        return self.db.execute("SELECT COUNT(*) FROM texts").fetchone()[0]

    def texts(self, numbers: Sequence[int]) -> list[Text]:
        """Texts by their numbers, in no order."""
        return [_text(row) for row in self.rows(f"SELECT {_TEXT} FROM texts WHERE number", numbers)]

    def rows(self, query: str, values: Sequence[Any]) -> list[Any]:
        """What a query finds that ends in the column that has one of these values."""
        found: list[Any] = []
        for some in some_of(values):
            found += self.db.execute(f"{query} IN ({','.join('?' * len(some))})", some)
        return found

    def postings(self, wanted: Iterable[str]) -> dict[str, list[tuple[int, bytes]]]:
        """Of each term its blocks and their entries."""
        query = "SELECT block, entries FROM postings WHERE term=? ORDER BY block"
        return {term: self.db.execute(query, (key_of(term),)).fetchall() for term in wanted}

    def sizes(self, wanted: Iterable[str]) -> dict[str, int]:
        """In about how many texts each term stands; without those that stand in none."""
        query = "SELECT SUM(LENGTH(entries)) / 4 FROM postings WHERE term=?"
        found = {term: self.db.execute(query, (key_of(term),)).fetchone()[0] for term in wanted}
        return {term: size for term, size in found.items() if size}

    def successors(self, text: Text) -> list[Text]:
        """What supersedes a text."""
        newer = "SELECT new FROM superseded WHERE old=? AND agent=?"
        query = f"SELECT {_TEXT} FROM texts WHERE id IN ({newer}) AND agent=? ORDER BY number"
        return [_text(row) for row in self.db.execute(query, (text.id, text.agent, text.agent))]

    def close(self) -> None:
        self.db.close()


_Method = TypeVar("_Method", bound=Callable[..., Any])


def lasting(method: _Method) -> _Method:
    """Begins a method again on a new index: in memory where it is the disk that failed."""

    @wraps(method)
    def again(self: Any, *args: Any, **given: Any) -> Any:
        for last in (False, True):
            try:
                return method(self, *args, **given)
            except sqlite3.DatabaseError as error:
                failed, locked = isinstance(error, sqlite3.OperationalError), "locked" in str(error)
                if failed and (last or locked or self.index.folder is None):
                    kind, hint = StorageError if locked else DiskFull, "see `holdfast doctor`"
                    raise kind(f"the index cannot be written: {error}", hint=hint) from error
                self.index.renew(in_memory=failed)
        raise StorageError("the index was damaged twice", hint="see `holdfast doctor`")

    return cast("_Method", again)


def _text(row: Sequence[Any]) -> Text:
    found = Text(*row)
    return found._replace(tags=tuple(row[7].split("\x01")) if row[7] else ())


def _filters(text: Text) -> Iterator[str]:
    """What a text can be filtered by; no word begins like this."""
    yield f"\x01agent {text.agent}"
    yield f"\x01source {text.source}"
    parts = text.topic.split("/")
    for depth in range(1, min(len(parts), _DEEPEST) + 1):
        yield f"\x01topic {'/'.join(parts[:depth])}"
    for tag in text.tags:
        yield f"\x01tag {tag}"


@lru_cache(maxsize=100_000)
def key_of(term: str) -> int:
    digest = blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def some_of(values: Sequence[Any], at_once: int = 500) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), at_once):
        yield values[start : start + at_once]

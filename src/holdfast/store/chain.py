"""The hash chain: what makes a line of a log evidence.  Pure, no I/O.

A sealed line ends in exactly `,"seq":N,"hash":"<64 hex>"}` and

    hash = sha256(previous hash ‖ sha256(gap ‖ line up to `,"hash":`))

where the gap is every byte between the previous sealed line's LF and this line: foreign
lines and torn fragments are sealed by the next line that is ours.  A line later redacted to
`{"redacted":"<inner digest>","seq":N,"hash":…}` still verifies.  `tools/verify_log.py` is
this file again, written without it.
"""

from __future__ import annotations

import re
from binascii import hexlify
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from typing import NamedTuple, Protocol

from holdfast.codec import MAX_LINE, Record, encode
from holdfast.errors import BadValue
from holdfast.store.primitives import CONTROL

GENESIS = bytes(32)
SUFFIX = re.compile(rb',"seq":(0|[1-9]\d{0,18}),"hash":"([0-9a-f]{64})"\}')
SUFFIX_SPAN = 104
"""No suffix with its LF is longer than this."""
_AT_END = re.compile(SUFFIX.pattern + rb"\n\Z")
_HASH_PART = 75
_ROOM = 256
"""What time, number and hash add to a record at most."""
_LONGEST = MAX_LINE - _ROOM
_REDACTED = re.compile(rb'\{"redacted":"([0-9a-f]{64})","seq":\d+')
RESERVED = frozenset({"seq", "hash", CONTROL})


class Hash(Protocol):
    """A running digest, as hashlib makes it."""

    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...
    def copy(self) -> Hash: ...


def _small_sha256() -> Callable[[bytes], Hash]:
    """Python's own, where it has one.  OpenSSL's is twice as fast when it is called all the time;
    called once between two syncs, it takes longer to come back into the processor's cache."""
    for name in ("_sha2", "_sha256"):
        with suppress(ImportError):
            return import_module(name).sha256
    return sha256


_LITTLE = 1024
_sha256_of_little = _small_sha256()


class Seal(NamedTuple):
    seq: int
    digest: bytes
    covered: int
    """How many bytes of the line its own hash covers."""


class Link(NamedTuple):
    """The newest sealed line: what the next one is chained to."""

    seq: int
    digest: bytes


ORIGIN = Link(0, GENESIS)


def body(record: Record) -> bytes:
    """The bytes of a record that can be sealed."""
    if not record:
        raise BadValue("an empty record cannot be logged", hint="give it at least one field")
    if not RESERVED.isdisjoint(record):
        name = min(RESERVED.intersection(record))
        raise BadValue(f"{name!r} is set by the log", hint="choose another field name")
    return encode(record, limit=_LONGEST)


def seal(
    data: bytes, last: Link, gap: Hash | None = None, *, alone: bool = False
) -> tuple[bytes, Link]:
    """The line for `data`, LF included, and the link it makes; `alone`: no other is sealed now."""
    seq = last.seq + 1
    covered = b'%b,"seq":%d' % (data[:-1], seq)
    hashed = _sha256_of_little if alone and len(data) < _LITTLE else sha256
    if gap is None:
        inner = hashed(covered)
    else:
        inner = gap.copy()
        inner.update(covered)
    digest = hashed(last.digest + inner.digest()).digest()
    return b'%b,"hash":"%b"}\n' % (covered, hexlify(digest)), Link(seq, digest)


def suffix(seq: int, digest: str) -> bytes:
    """How the line ends that has this number and hash, LF included."""
    return f',"seq":{seq},"hash":"{digest}"}}\n'.encode("ascii", "replace")


def link_at_end(data: bytes) -> Link | None:
    """The link of the sealed line that `data` ends with, if it ends with one."""
    found = _AT_END.search(data)
    return Link(int(found[1]), bytes.fromhex(found[2].decode())) if found else None


def read_seal(line: bytes) -> Seal | None:
    """The seal of a line without its LF, or None for a line that is not ours."""
    found = SUFFIX.search(line, max(0, len(line) - SUFFIX_SPAN))
    if found is None or found.end() != len(line):
        return None
    return Seal(int(found[1]), bytes.fromhex(found[2].decode()), len(line) - _HASH_PART)


def is_sealed(line: bytes) -> bool:
    """Whether a line without its LF is ours."""
    found = SUFFIX.search(line, max(0, len(line) - SUFFIX_SPAN))
    return found is not None and found.end() == len(line)


def holds(line: bytes, found: Seal, previous: bytes, gap: Hash | None = None) -> bool:
    """Whether the line's hash follows from its bytes and the previous hash."""
    covered = line[: found.covered]
    inner: Hash = sha256() if gap is None else gap.copy()
    inner.update(covered)
    if sha256(previous + inner.digest()).digest() == found.digest:
        return True
    redacted = _REDACTED.fullmatch(covered)
    return (
        redacted is not None
        and sha256(previous + bytes.fromhex(redacted[1].decode())).digest() == found.digest
    )

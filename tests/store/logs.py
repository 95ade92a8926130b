"""Logs as bytes, made with and without the store, for tests that look at bytes."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from hypothesis import strategies as st

from holdfast.store.chain import ORIGIN, Link, seal
from holdfast.store.primitives import Verified
from holdfast.store.reader import Source, verify

HASH = "ab" * 32

RECORDS = st.dictionaries(
    st.text(max_size=3).filter(lambda name: name not in ("seq", "hash", "_log")),
    st.integers(-5, 5) | st.text(max_size=5) | st.lists(st.none(), max_size=2),
    min_size=1,
    max_size=3,
)
"""Records that can be sealed."""

FOREIGN = st.one_of(
    st.binary(max_size=30),
    RECORDS.map(lambda record: json.dumps(record).encode()),
    st.sampled_from(
        [
            b"",
            b"\0" * 40,
            b"hello",
            b'{"a":1,"seq":1,"hash":"%b"' % HASH.encode(),
            b'{"a":1,"seq":1,"hash":"%b"} ' % HASH.encode(),
            b'{"a":1,"seq":1,"hash":"%b"}\r' % HASH.encode(),
            b'{"a":1,"seq":1,"hash":"%b"}' % HASH.upper().encode(),
            b'{"a":1,"seq":-1,"hash":"%b"}' % HASH.encode(),
            b'{"a":1,"seq":01,"hash":"%b"}' % HASH.encode(),
            b'{"a":1,"seq":1.0,"hash":"%b"}' % HASH.encode(),
            b'{"a":1,"seq":99999999999999999999,"hash":"%b"}' % HASH.encode(),
            b'{"a":1, "seq":1,"hash":"%b"}' % HASH.encode(),
        ]
    ),
).map(lambda data: data.replace(b"\n", b"?"))
"""Lines that are not ours, some of them nearly."""


class Writer:
    """Seals lines as the rule in `chain` says."""

    def __init__(self) -> None:
        self.link: Link = ORIGIN
        self.data = b""
        self._gap = b""

    def foreign(self, line: bytes) -> None:
        self.data += line + b"\n"
        self._gap += line + b"\n"

    def record(self, record: dict[str, Any]) -> bytes:
        body = json.dumps(record, separators=(",", ":")).encode()
        line, self.link = seal(body, self.link, sha256(self._gap) if self._gap else None)
        self._gap = b""
        self.data += line
        return line


def verified(*segments: bytes) -> Verified:
    """What `verify` says of these bytes."""
    last = len(segments) - 1
    return verify(
        Source(f"{number}.jsonl", 0, number == last, iter([data] if data else []))
        for number, data in enumerate(segments)
    )


def summary(found: Verified) -> tuple[object, ...]:
    kinds = [problem.kind for problem in found.problems]
    return (found.sealed, found.unchained, len(found.bad), kinds, found.in_progress, found.head)

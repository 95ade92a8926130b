"""What holds for every kind: what is strictly right is written back as it was read."""

from __future__ import annotations

import re
from typing import Any

from holdfast.codec import MAX_DOCUMENT, decode, encode
from holdfast.contracts.kind import Kind
from holdfast.contracts.kinds import KINDS
from holdfast.contracts.record import Record


def assert_strict_round(kind: Kind, value: Any) -> Record:
    """No finding, and write, read, write gives the same; the record."""
    found = kind.read(value, strict=True)
    assert found.findings == []
    assert found.record is not None
    assert_written_as_read(kind, value)
    return found.record


def assert_written_as_read(kind: Kind, value: Any) -> None:
    """Nothing is lost or added on the way through the record and through bytes."""
    record = kind.read(value).record
    assert record is not None
    written = record.value()
    assert written == value
    again = decode(encode(written, limit=MAX_DOCUMENT), limit=MAX_DOCUMENT)
    second = kind.read(again).record
    assert second is not None
    assert second.value() == written


def alike(value: Any) -> list[str]:
    """The kinds that take a value for one of theirs."""
    return [each.name for each in KINDS if each.looks(value)]


def by_path(path: str) -> list[str]:
    """The kinds that take a path for one of theirs."""
    return [each.name for each in KINDS if any(re.search(pattern, path) for pattern in each.paths)]

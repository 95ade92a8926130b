"""Files of others: read, and kept byte for byte, sealed by their sha256 in a chained line.

A copy is named after its original and its hash, `2025-11-16.jsonl.sealed-1a2b3c4d5e6f7a8b`, so
that keeping it again changes nothing, after any crash.  No name ends in `.json` or
`.jsonl`: no such file is taken for one of Holdfast's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.codec import MAX_DOCUMENT, Json, decode
from holdfast.contracts.formats import read_moment, written
from holdfast.errors import HoldfastError, NotFound
from holdfast.store.primitives import Problem

if TYPE_CHECKING:
    from holdfast.contracts.kind import Finding, Reading
    from holdfast.store.home import Home

FOLDER = "imported"
_DIGITS = 16
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 150
KNOWN = "the same bytes were imported before"


Outcome = Literal["taken", "repaired", "quarantined", "known", "skipped"]


class Foreign(NamedTuple):
    """A file of another system."""

    path: str
    """Below what is imported."""
    data: bytes


class Taken(NamedTuple):
    """What became of a file."""

    path: str
    outcome: Outcome
    """`repaired`: taken, but something had to be mended to read it.  `quarantined`: kept, and not
    used.  `known`: taken before."""
    detail: str
    entries: int = 0


class Sealed(NamedTuple):
    """A copy, as a chained line tells of it."""

    path: str
    """Where the original was, below what was imported."""
    key: str
    sha256: str


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


def noted(file: Foreign) -> dict[str, Any]:
    """What a chained line says of a file and its copy."""
    digest = digest_of(file.data)
    stem = _UNFIT.sub("-", file.path.rpartition("/")[2])[-_LONGEST:].lstrip("._-") or "file"
    name = f"{stem}.sealed-{digest[:_DIGITS]}"
    return {"path": file.path, "name": name, "sha256": digest, "bytes": len(file.data)}


def sealed(entry: object, folder: str) -> Sealed | None:
    """The copy that a line names; None if the line only looks like one of Holdfast's."""
    match entry:
        case {"path": str(path), "name": str(name), "sha256": str(digest)} if "/" not in name:
            return Sealed(path, f"{folder}/{FOLDER}/{name}", digest)
        case _:
            return None


def unfit(file: Foreign, *, may_be_empty: bool = False) -> Taken | None:
    """Why there is nothing to take in of a file, whatever it is."""
    if not may_be_empty and not file.data.strip():
        return Taken(file.path, "skipped", f"empty: {len(file.data)} bytes")
    if len(file.data) > MAX_DOCUMENT:
        return Taken(file.path, "skipped", f"larger than {MAX_DOCUMENT} bytes")
    return None


def keep(home: Home, folder: str, file: Foreign) -> None:
    """Keep a copy; it is on disk when this returns."""
    entry = noted(file)
    document = home.document(f"{folder}/{FOLDER}/{entry['name']}")
    found = document.read()
    if found is None or found.revision != entry["sha256"]:
        document.replace(file.data)


def load(home: Home, copy: Sealed) -> bytes:
    found = home.document(copy.key).read()
    if found is None:
        raise NotFound(f"{copy.key} is gone", hint="compare with a backup", path=copy.key)
    return found.data


def problems(home: Home, copies: Iterable[Sealed]) -> Iterator[Problem]:
    """Copies that are gone, or are not what was imported."""
    for copy in {each.key: each for each in copies}.values():
        try:
            whole = digest_of(load(home, copy)) == copy.sha256
        except NotFound:
            yield Problem("missing", copy.key, 0, 0, f"the copy of {copy.path} is not there")
        except HoldfastError as error:
            yield Problem("damaged", copy.key, 0, 0, error.message)
        else:
            if not whole:
                detail = f"the copy of {copy.path} is not what was imported"
                yield Problem("edited", copy.key, 0, 0, detail)


# --- reading --------------------------------------------------------------------------------


def value_in(file: Foreign) -> Json:
    """The JSON that a file is; DecodeError if it is none."""
    return decode(file.data.strip().removeprefix(b"\xef\xbb\xbf"), limit=MAX_DOCUMENT)


def moment_in(value: object) -> str | None:
    """An instant in UTC as records have it; None if the value names none."""
    try:
        return str(written(read_moment(value), "utc"))
    except ValueError:
        return None


def text_in(file: Foreign) -> str:
    """The text that a file is; ValueError if it is none."""
    try:
        return file.data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None


def errors_in(reading: Reading) -> list[Finding]:
    return [each for each in reading.findings if each.level == "error"]


def shown(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{each.field}: {each.reason}".removeprefix(": ") for each in findings)

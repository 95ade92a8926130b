"""Files of others: read, and kept byte for byte, sealed by their sha256 in a chained line.

A copy is named after its original and its hash, `2025-11-16.jsonl.sealed-1a2b3c4d5e6f7a8b`, so
that keeping it again changes nothing, whoever died in between.  No name ends in `.json` or
`.jsonl`: nobody takes such a file for one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from holdfast.codec import MAX_DOCUMENT, Json, decode
from holdfast.errors import HoldfastError, NotFound
from holdfast.store.primitives import Problem

if TYPE_CHECKING:
    from holdfast.contracts.kind import Finding, Reading
    from holdfast.store.home import Home

FOLDER = "imported"
LARGEST = MAX_DOCUMENT
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


def key_for(folder: str, path: str, digest: str) -> str:
    """Where the copy of a file lies in the folder of its agent."""
    name = _UNFIT.sub("-", path.rpartition("/")[2])[-_LONGEST:].lstrip("._-") or "file"
    return f"{folder}/{FOLDER}/{name}.sealed-{digest[:_DIGITS]}"


def noted(file: Foreign) -> dict[str, Any]:
    """What a chained line says of a file and its copy."""
    digest = digest_of(file.data)
    name = key_for("", file.path, digest).rpartition("/")[2]
    return {"path": file.path, "name": name, "sha256": digest, "bytes": len(file.data)}


def unfit(file: Foreign, *, may_be_empty: bool = False) -> Taken | None:
    """Why there is nothing to take in of a file, whatever it is."""
    if not may_be_empty and not file.data.strip():
        return Taken(file.path, "skipped", f"empty: {len(file.data)} bytes")
    if len(file.data) > LARGEST:
        return Taken(file.path, "skipped", f"larger than {LARGEST} bytes")
    return None


def keep(home: Home, folder: str, path: str, data: bytes) -> Sealed:
    """Keep a copy; it is on disk when this returns."""
    digest = digest_of(data)
    copy = Sealed(path, key_for(folder, path, digest), digest)
    document = home.document(copy.key)
    found = document.read()
    if found is None or found.revision != digest:
        document.replace(data)
    return copy


def load(home: Home, copy: Sealed) -> bytes:
    found = home.document(copy.key).read()
    if found is None:
        raise NotFound(f"{copy.key} is gone", hint="compare with a backup", path=copy.key)
    return found.data


def problem_with(home: Home, copy: Sealed) -> Problem | None:
    """What is wrong with a copy: it is gone, or no more what it was."""
    try:
        data = load(home, copy)
    except NotFound:
        return Problem("missing", copy.key, 0, 0, f"the copy of {copy.path} is not there")
    except HoldfastError as error:
        return Problem("damaged", copy.key, 0, 0, error.message)
    if digest_of(data) == copy.sha256:
        return None
    detail = f"the copy of {copy.path} is not what was imported"
    return Problem("edited", copy.key, 0, 0, detail)


# --- reading --------------------------------------------------------------------------------


def value_in(file: Foreign) -> Json:
    """The JSON that a file is; DecodeError if it is none."""
    return decode(file.data.strip().removeprefix(b"\xef\xbb\xbf"), limit=MAX_DOCUMENT)


def errors_in(reading: Reading) -> list[Finding]:
    return [each for each in reading.findings if each.level == "error"]


def shown(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{each.field}: {each.reason}".removeprefix(": ") for each in findings)

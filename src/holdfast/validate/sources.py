"""The files that the paths of a command line mean, and their bytes.  Looks only."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.contracts.kind import Finding, Kind
from holdfast.errors import UsageError
from holdfast.layout import CACHE
from holdfast.settings import SETTINGS
from holdfast.userfile import read
from holdfast.validate.detect import by_path

STDIN = "-"
MOST = 1 << 30
"""So many bytes of one file are read and no more."""
PACKED = ".zst"
_CAMPAIGNS = ".omc"
_ENDINGS = (".json", ".jsonl", ".md")


class Source(NamedTuple):
    name: str
    """As it is shown."""
    path: str
    """From the root on; empty for the standard input."""
    named: bool
    """Whether the caller named this very file."""


class Trouble(NamedTuple):
    """A path that leads to nothing that can be read."""

    name: str
    finding: Finding
    unreadable: bool = True


class Content(NamedTuple):
    data: bytes
    findings: list[Finding]
    """What could not be unpacked."""


def sources(paths: Sequence[str], kinds: Sequence[Kind]) -> Iterator[Source | Trouble]:
    """Every file once, in the order of the paths; inside a directory by name."""
    seen: set[str] = set()
    for path in paths:
        for each in _meant(path, kinds):
            place = each.path if isinstance(each, Source) else each.name
            if place not in seen:
                seen.add(place)
                yield each


def _meant(path: str, kinds: Sequence[Kind]) -> Iterator[Source | Trouble]:
    if path == STDIN:
        yield Source("<stdin>", "", named=True)
    elif os.path.isdir(path):
        found = list(_below(path, kinds))
        yield from found
        if not found:
            reason = "nothing in here that could be checked"
            yield Trouble(path, Finding("warning", "nothing", "", reason), unreadable=False)
    elif os.path.lexists(path):
        yield Source(path, os.path.abspath(path), named=True)
    else:
        matches = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
        for match in matches:
            yield from _meant(match, kinds)
        if not matches:
            yield _trouble(path, "missing", "missing: there is no such file")


def _below(directory: str, kinds: Sequence[Kind]) -> Iterator[Source | Trouble]:
    try:
        with os.scandir(directory) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError as error:
        yield _trouble(directory, "unreadable", f"unreadable: {error.strerror}")
        return
    caches = {CACHE} if any(entry.name == SETTINGS for entry in entries) else set[str]()
    for entry in entries:
        if entry.name in caches:
            continue  # of a home: made again when it is lost
        # Names with a dot belong to the store or to other tools; `.omc` holds campaigns.
        if entry.name.startswith(".") and entry.name != _CAMPAIGNS:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path, kinds)
        elif _is_candidate(entry.path, kinds):
            if entry.is_symlink():
                finding = Finding("warning", "link", "", "a symbolic link, not followed")
                yield Trouble(entry.path, finding, unreadable=False)
            else:
                yield Source(entry.path, os.path.abspath(entry.path), named=False)


def _is_candidate(path: str, kinds: Sequence[Kind]) -> bool:
    plain = path.removesuffix(PACKED)
    if plain.endswith(".md"):
        return bool(by_path(plain, kinds))  # most Markdown is no record
    return plain.endswith(_ENDINGS) or bool(by_path(os.path.abspath(plain), kinds))


def _trouble(name: str, code: str, reason: str) -> Trouble:
    return Trouble(name, Finding("error", code, "", reason))


# --- bytes --------------------------------------------------------------------------------------


def content(source: Source) -> Content | Trouble:
    """The bytes of a source, unpacked if they are packed."""
    try:
        data = read(source.path or "-", MOST, plain=True)
    except OSError as error:
        code = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
        return _trouble(source.name, code, f"{code}: {error.strerror}")
    except UsageError:
        return _trouble(source.name, "unreadable", f"unreadable: more than {MOST >> 20} MiB")
    if not source.path.endswith(PACKED):
        return Content(data, [])
    return _unpacked(source, data)


def _unpacked(source: Source, data: bytes) -> Content | Trouble:
    from holdfast.store.packed import Lost, Packed  # noqa: PLC0415 - few files are packed

    chunks: list[bytes] = []
    findings: list[Finding] = []
    size = 0
    for chunk in Packed(lambda count, at: data[at : at + count], len(data)).chunks(0):
        if isinstance(chunk, Lost):
            lost = f", {chunk.size} bytes lost" if chunk.size else ""
            findings.append(Finding("error", "packed", "", f"{chunk.reason}{lost}"))
            continue
        chunks.append(chunk)
        size += len(chunk)
        if size > MOST:
            return _trouble(source.name, "unreadable", f"unreadable: more than {MOST >> 20} MiB")
    return Content(b"".join(chunks), findings)

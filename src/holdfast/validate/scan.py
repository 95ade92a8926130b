"""The bytes of any file as values, each with its line, and what is wrong with the rest.

Written for files as they are found: JSON lines with torn, doubled or overwritten ones between
them, objects that were pretty-printed one after the other into a `.jsonl`, lines under the name
of a document, arrays, marks and endings of other systems.  Line by line while that works; where
it does not, from one value to the next.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import combinations_with_replacement
from math import comb
from typing import Any, Literal, NamedTuple

import orjson

from holdfast.codec import MAX_DEPTH, MAX_DOCUMENT, MAX_LINE, DecodeError, decode
from holdfast.contracts.kind import Finding

OF_LINES = frozenset({"blank", "crlf", "unended"})
"""Codes of what is odd only where each line is a record."""

_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
_VISIBLE = re.compile(rb"[^ \t\r\n]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_MOST_WAYS = 5000
_DECODER = json.JSONDecoder()
_WRONG, _CUT = -1, -2


class Found(NamedTuple):
    """A value of a file."""

    line: int
    value: Any
    raw: bytes
    """The bytes it was read from; with the line feed where it has a line of its own."""
    start: int
    """Where they begin in the file, a byte order mark not counted."""
    sound: bool = True
    """False for what could be made of a bad line: told as an error, and of use for a repair."""


class Scan:
    """One walk through the bytes of a file."""

    def __init__(self, data: bytes) -> None:
        self.told: list[Finding] = []
        """Findings so far; the caller may take them out."""
        self.spread = 0
        """How many values do not stand on a line of their own."""
        self.bad = 0
        """How many lines hold no value."""
        if data.startswith(_BOM):
            self._tell("bom", "byte order mark", 1, level="warning")
            data = data[len(_BOM) :]
        self.data = data
        """The bytes without a byte order mark."""
        self._file = BytesIO(data)
        self._line = 0

    def values(self) -> Iterator[Found]:
        """The values in the order of the file."""
        if _VISIBLE.search(self.data) is None:
            said = f"{len(self.data)} bytes, all of them blank" if self.data else "0 bytes"
            self._tell("empty", f"empty: {said}", 0, level="warning")
        elif self.data.startswith(_OTHER_BOMS):
            self._tell("not_utf8", "UTF-16, not UTF-8", 1)
            self.bad = 1
        elif (whole := self._as_one()) is not None:
            yield whole
        else:
            yield from self._by_lines()

    # --- the plain ways -----------------------------------------------------------------------

    def _as_one(self) -> Found | None:
        """The file as one value over several lines."""
        begin = _VISIBLE.search(self.data)
        start = begin.start() if begin else 0
        end = self.data.find(b"\n", start)
        first = self.data[start:end] if end > 0 else b""
        if first[:1] not in (b"{", b"[") or _loads(first) is not None:
            return None
        value = _loads(self.data)
        if value is None:
            return None
        self._line = line = self.data.count(b"\n", 0, start) + 1
        if self._is_deep(self.data, MAX_DOCUMENT):
            return None
        self.spread += 1
        return Found(line, value, self.data, 0)

    def _by_lines(self) -> Iterator[Found]:
        # Called for every line of files with very many.
        loads, dumps, newline = orjson.loads, orjson.dumps, orjson.OPT_APPEND_NEWLINE
        file, size, end = self._file, MAX_LINE, 0
        while raw := file.readline():
            self._line = line = self._line + 1
            start, end = end, end + len(raw)
            try:
                value = loads(raw)
            except ValueError:
                yield from self._with_care(raw)
                end = file.tell()
                continue
            if (
                raw.count(b"{") + raw.count(b"[") > MAX_DEPTH
                or dumps(value, option=newline) != raw
                or len(raw) > size
            ) and self._is_odd(raw):
                continue
            if type(value) is dict or type(value) is list:
                yield Found(line, value, raw, start)
            else:
                self._bad("not_json", "neither an object nor an array")

    def _is_odd(self, raw: bytes) -> bool:
        """Tell what is odd about a line that has a value; whether it cannot be used."""
        if raw.endswith(b"\r\n"):
            self._tell("crlf", "line ends in CR LF", self._line, level="warning")
        elif not raw.endswith(b"\n"):
            self._tell("unended", "the last line has no line feed", self._line, level="warning")
        return self._is_deep(raw, MAX_LINE)

    def _is_deep(self, data: bytes, limit: int) -> bool:
        """Add what a strict reader refuses in a value; whether it is too deep to read."""
        try:
            decode(data.strip(), limit=limit)
        except DecodeError as error:
            deep = str(error).startswith("nested")
            self.bad += deep
            self._tell("not_strict", str(error), self._line)
            return deep
        return False

    # --- with care ----------------------------------------------------------------------------

    def _with_care(self, raw: bytes) -> Iterator[Found]:
        """A line that is no JSON by itself."""
        text = raw.strip(b" \t\r\n")
        if not text:
            self._tell("blank", "blank line", self._line, level="warning")
        elif not text.strip(b"\0"):
            self._bad("nul", f"{len(text)} NUL bytes")
        elif (at := _not_utf8(raw)) is not None:
            self._bad("not_utf8", f"not UTF-8 at byte {at}")
        elif text[:1] in (b"{", b"["):
            yield from self._begun(raw)
        elif b"\0" in text:
            self._bad("nul", "NUL bytes and text")
            yield from self._doubtful(_loads(text.strip(b"\0")), raw)
        else:
            self._bad("not_json", f"not JSON: {_beginning(text)}")

    def _begun(self, raw: bytes) -> Iterator[Found]:
        """From a line on which a value begins: it may end further down, or before the line does."""
        start, first = self._file.tell() - len(raw), self._line
        text, end = self._extent(start, len(raw))
        if end < 0:
            self._unfinished(raw, cut=end == _CUT)
            return
        span = text[:end].encode()
        rest = text[end:].partition("\n")[0].strip()
        lines = span.count(b"\n")
        if not lines and rest and rest[0] not in "{[":
            yield from self._overfull(raw, rest)
            return
        value = _loads(span)
        if value is None:
            self._bad("not_json", f"not JSON: {_beginning(span)}")
        elif not self._is_deep(span, MAX_DOCUMENT):
            self.spread += 1
            yield Found(first, value, span, start)
        self._line = first + lines
        self._file.seek(start + len(span))
        if rest[:1] in ("{", "["):
            self._line -= 1  # the next one begins on the same line
            return
        if rest:
            self._bad("not_json", f"text behind the value: {_beginning(rest.encode())}")
        self._file.readline()

    def _extent(self, start: int, size: int) -> tuple[str, int]:
        """Text from there on, and where in it the value ends; less than 0 if it does not."""
        while True:
            last = start + size >= len(self.data)
            data = self.data[start : start + size]
            try:
                text = (data if last else data[: data.rfind(b"\n") + 1]).decode()
                return text, _DECODER.raw_decode(text, len(text) - len(text.lstrip()))[1]
            except json.JSONDecodeError as error:
                at_end = error.pos >= len(error.doc.rstrip())
                if not at_end or last:
                    return "", _CUT if at_end else _WRONG
                if _depth(error.doc) > MAX_DEPTH:
                    return "", _WRONG
            except (RecursionError, UnicodeDecodeError):
                return "", _WRONG
            size *= 4

    def _unfinished(self, raw: bytes, *, cut: bool) -> None:
        """A value that does not end, or goes wrong on the way."""
        if not raw.endswith(b"\n"):
            self._bad("torn", f"torn: the file ends in the middle of {_beginning(raw)}")
        elif not cut:
            self._bad("not_json", f"not JSON: {_beginning(raw)}")
        else:
            self._bad("torn", f"torn: the file ends before the end of {_beginning(raw)}")
            rest = self.data[self._file.tell() :]
            if not any(map(_is_object, rest.split(b"\n"))):
                self._file.seek(0, 2)

    def _overfull(self, raw: bytes, rest: str) -> Iterator[Found]:
        """A line with more on it than its value."""
        value = without_extra_closings(raw.decode().strip())
        if value is not None:
            self._bad("not_json", "closing brackets too many")
            yield from self._doubtful(value, raw)
        else:
            self._bad("not_json", f"text behind the value: {_beginning(rest.encode())}")
            yield from self._doubtful(_loads(raw[: raw.rindex(rest.encode())]), raw)

    def _doubtful(self, value: Any, raw: bytes) -> Iterator[Found]:
        if value is not None:
            yield Found(self._line, value, raw, self._file.tell() - len(raw), sound=False)

    def _bad(self, code: str, reason: str) -> None:
        self.bad += 1
        self._tell(code, reason, self._line)

    def _tell(
        self, code: str, reason: str, line: int, *, level: Literal["error", "warning"] = "error"
    ) -> None:
        self.told.append(Finding(level, code, "", reason, line))


def _loads(data: bytes) -> Any:
    """The object or array; None if it is none."""
    try:
        value = orjson.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None  # pyright: ignore[reportUnknownVariableType]


def _depth(text: str) -> int:
    """How many brackets are open at the end."""
    bare = _STRING.sub("", text)
    return bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")


def _is_object(line: bytes) -> bool:
    return line.startswith(b"{") and _loads(line) is not None


def _not_utf8(data: bytes) -> int | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return None


def _beginning(data: bytes) -> str:
    text = data[:60].decode(errors="replace").strip()
    return repr(text + "…" if len(data.strip()) > len(text.encode()) else text)


# --- mending ------------------------------------------------------------------------------------


def without_extra_closings(text: str) -> Any:
    """The object in a line that has more closing brackets than opening ones; None if none.

    Which of them are too many cannot be known where something follows; the fewest in one place
    are taken out, and never so that a field stands twice.
    """
    depth, runs, run_end = 0, list[tuple[int, int]](), -1
    for token in _BRACKETS.finditer(text):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if runs and token.start() == run_end:
                runs[-1] = (runs[-1][0], token.end())
            else:
                runs.append((token.start(), token.end()))
            run_end = token.end()
    if depth >= 0:
        return None
    for drops in _ways([end - start for start, end in runs], -depth):
        value = _loads_once(_cut_out(text, runs, drops))
        if value is not None:
            return value
    return None


def _ways(sizes: list[int], many: int) -> list[tuple[int, ...]]:
    """How to take so many out of runs of these sizes, the most even ways first."""
    if comb(len(sizes) + many - 1, many) > _MOST_WAYS:
        return []
    picks = map(Counter, combinations_with_replacement(range(len(sizes)), many))
    ways = [tuple(pick[run] for run in range(len(sizes))) for pick in picks]
    fitting = [way for way in ways if all(map(int.__le__, way, sizes))]
    return sorted(fitting, key=lambda way: (max(way), way))


def _cut_out(text: str, runs: list[tuple[int, int]], drops: Iterable[int]) -> str:
    kept, at = "", 0
    for (_, end), drop in zip(runs, drops, strict=True):
        kept += text[at : end - drop]
        at = end
    return kept + text[at:]


def _loads_once(text: str) -> Any:
    try:
        value = decode(text.encode(), limit=MAX_DOCUMENT)
    except DecodeError:
        return None
    return value if isinstance(value, dict) else None


# --- inside a value -----------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]|[^\s{}\[\],:"]+')


def lines_of(raw: bytes, first: int = 1) -> dict[str, int]:
    """On which line each field of a value begins, by its path: `tasks[2].status`."""
    text = raw.decode(errors="replace")
    starts: dict[str, int] = {}
    holders: list[tuple[str, int]] = []
    """The path of each open container; the number of its current item, of an object -1."""
    path, name_next = "", False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("}", "]", ","):
            if not holders:
                break
            holder, number = holders.pop()
            name_next = word == "," and number < 0
            if word == ",":
                holders.append((holder, number if number < 0 else number + 1))
                path = f"{holder}[{number + 1}]"
        elif name_next:
            try:
                name: str = json.loads(word)
            except ValueError:
                break  # as far as it is JSON
            path, name_next = f"{holders[-1][0]}.{name}".removeprefix("."), False
            starts.setdefault(path, token.start())
        else:
            starts.setdefault(path, token.start())
            if word in ("{", "["):
                holders.append((path, 0 if word == "[" else -1))
                path, name_next = f"{path}[0]", word == "{"
    breaks = [found.start() for found in re.finditer("\n", text)]
    return {path: first + bisect_left(breaks, at) for path, at in starts.items()}

"""One strict JSON codec: what we write, and what we accept as a line or a document.

UTF-8 without BOM, no NaN or Infinity, no duplicate keys, no lone surrogates, integers of
64 bits, depth 64 at most, a line of 8 MiB and a document of 64 MiB at most.  Strict in both
directions: being liberal towards other people's files is the business of `contracts`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn, cast

import orjson

from holdfast.errors import BadValue

MAX_DEPTH = 64
MAX_LINE = 8 << 20
MAX_DOCUMENT = 64 << 20
_INT_RANGE = range(-(1 << 63), 1 << 64)

Json = dict[str, Any] | list[Any] | str | int | float | bool | None
Record = dict[str, Any]

_PLAIN = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class DecodeError(ValueError):
    """Bytes that are not strict JSON, and why."""


def encode(value: object, *, limit: int = MAX_LINE) -> bytes:
    """Compact JSON bytes of `value`, or BadValue; a NaN is never silently written as null."""
    try:
        data = orjson.dumps(value, option=_PLAIN)
    except (TypeError, RecursionError) as error:
        raise BadValue(f"cannot be written as JSON: {error}") from None
    if len(data) > limit:
        raise BadValue(
            f"too large: {len(data)} bytes, the limit is {limit}",
            hint="store the text as a file and put its path and sha256 into the record",
        )
    # Each walk is needed only if the bytes could hide what it looks for.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise BadValue(f"nested deeper than {MAX_DEPTH}")
    if b"null" in data and _has_nonfinite(value):
        raise BadValue("NaN and Infinity are not JSON", hint="use null or a string instead")
    return data


def pretty(value: object) -> bytes:
    """Indented JSON bytes for a document that people read, ending in a newline."""
    encode(value, limit=MAX_DOCUMENT)
    return orjson.dumps(value, option=_PLAIN | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def decode(data: bytes, *, limit: int = MAX_LINE) -> Json:
    """The value of strict JSON bytes, or DecodeError with the reason."""
    if len(data) > limit:
        raise DecodeError(f"longer than {limit} bytes")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _nesting(data) > MAX_DEPTH:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    try:
        value = orjson.loads(data)
    except ValueError as error:
        raise DecodeError(_reason(data, error)) from None
    # Equal bytes prove that no key stood twice and no number was rounded.
    if orjson.dumps(value) == data:
        return value
    return _careful(data)


def decode_record(data: bytes) -> Record:
    """The object on one line, or DecodeError."""
    value = decode(data)
    if isinstance(value, dict):
        return value
    raise DecodeError("not an object")


def _careful(data: bytes) -> Json:
    """Decode with every rule checked one by one: about ten times slower than the fast path."""
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except RecursionError:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}") from None


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DecodeError(f"duplicate key {twice[:80]!r}")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise DecodeError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    raise DecodeError(f"number out of range: {text[:40]}")


def _bounded(text: str) -> int:
    # 21 characters hold every 64-bit integer; int() of a huge literal would be quadratic.
    if len(text) <= 21 and (number := int(text)) in _INT_RANGE:
        return number
    raise DecodeError(f"integer beyond 64 bits: {text[:40]}")


def _reason(data: bytes, error: ValueError) -> str:
    if data.startswith(b"\xef\xbb\xbf"):
        return "byte order mark"
    if not data.strip(b"\0"):
        return "NUL bytes" if data else "empty line"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"not UTF-8 at byte {bad.start}"
    return f"not JSON: {error}"


def _nesting(data: bytes) -> int:
    """Depth of brackets outside strings, without parsing."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in data:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                return depth
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _depth(value: object) -> int:
    if isinstance(value, Mapping):
        inner = list(cast("Mapping[str, object]", value).values())
    elif isinstance(value, list | tuple):
        inner = list(cast("list[object]", value))
    else:
        return 0
    return 1 + max(map(_depth, inner), default=0)


def _has_nonfinite(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_nonfinite, cast("Mapping[str, object]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nonfinite, cast("list[object]", value)))
    return False

"""One strict JSON codec: what we write, and what we accept as a line or a document.

UTF-8 without BOM, no NaN or Infinity, no duplicate keys, no lone surrogates, integers of
64 bits, depth 64 at most, a line of 8 MiB and a document of 64 MiB at most.  Strict in both
directions: being liberal towards other people's files is the business of `contracts`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

import orjson

from holdfast.errors import BadValue

MAX_DEPTH = 64
MAX_LINE = 8 << 20
MAX_DOCUMENT = 64 << 20
_STRING = re.compile(rb'"[^"]*"')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'{}[]"')
_BLANKS = b" \t\r\n"
_OBJECT: type[Any] = dict
_SIMPLE = frozenset({str, int, bool, type(None)})
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
        raise BadValue(
            f"cannot be written as JSON: {error}", hint="use text, numbers, lists and objects"
        ) from None
    if len(data) > limit:
        raise BadValue(
            f"too large: {len(data)} bytes, the limit is {limit}",
            hint="store the text as a file and put its path and sha256 into the record",
        )
    if _is_flat(value):
        return data
    # Each walk is needed only if the bytes could hide what it looks for.
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _too_deep(data):
        raise BadValue(
            f"nested deeper than {MAX_DEPTH}", hint="put deep structures into a file and name it"
        )
    if b"null" in data and orjson.loads(data) != value and _has_nonfinite(value):
        raise BadValue("NaN and Infinity are not JSON", hint="use null or a string instead")
    return data


def _is_flat(value: Any) -> bool:
    """Whether it is a record as most are: texts and whole numbers, some of them one level down."""
    if type(value) is not _OBJECT:
        return False
    # Between two syncs a few looks at types cost less than as many searches in the bytes.
    for part in value.values():
        if type(part) not in _SIMPLE and not (
            type(part) is _OBJECT and _SIMPLE.issuperset(map(type, part.values()))
        ):
            return False
    return True


def pretty(value: object) -> bytes:
    """Indented JSON bytes for a document that people read, ending in a newline."""
    encode(value, limit=MAX_DOCUMENT)
    return orjson.dumps(value, option=_PLAIN | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def decode(data: bytes, *, limit: int = MAX_LINE) -> Json:
    """The value of strict JSON bytes, or DecodeError with the reason."""
    if len(data) > limit:
        raise DecodeError(f"longer than {limit} bytes")
    try:
        value = orjson.loads(data)
    except ValueError as error:
        raise DecodeError(_reason(data, error)) from None
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _too_deep(data):
        raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    # Equal bytes prove that no key stood twice and no number was rounded; so do bytes that are
    # equal without blanks, for then every value and every name that was read is written again.
    again = orjson.dumps(value)
    if again == data or again.translate(None, _BLANKS) == data.translate(None, _BLANKS):
        return value
    return json.loads(data, object_pairs_hook=_unique, parse_int=_bounded)


def decode_record(data: bytes) -> Record:
    """The object on one line, or DecodeError."""
    value = decode(data)
    if isinstance(value, dict):
        return value
    raise DecodeError("not an object")


def _unique(pairs: list[tuple[str, Any]]) -> Record:
    found: Record = {}
    for name, value in pairs:
        if name in found:
            raise DecodeError(f"duplicate key {name[:80]!r}")
        found[name] = value
    return found


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


def _too_deep(data: bytes) -> bool:
    """Whether JSON bytes are nested too deeply: take away the innermost pairs, level by level."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_SQUARE, _NO_STRUCTURE)
    # Strings side by side have nothing between them that counts, so most quotes go at once.
    brackets = _STRING.sub(b"", bare.replace(b'""', b""))
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _has_nonfinite(value: object) -> bool:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(map(_has_nonfinite, cast("Mapping[str, object]", value).values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nonfinite, cast("list[object]", value)))
    return False

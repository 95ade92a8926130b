"""One strict codec: what is written can be read, and what is not strict JSON is refused."""

from __future__ import annotations

import enum
import json
import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.codec import (
    MAX_DEPTH,
    MAX_DOCUMENT,
    MAX_LINE,
    DecodeError,
    decode,
    decode_record,
    encode,
    pretty,
)
from holdfast.errors import BadValue
from holdfast.testing import BAD_VALUES, JSON_VALUES, nested


class Odd(enum.Enum):
    NAN = math.nan
    INF = (math.inf,)
    DEEP = nested(MAX_DEPTH + 1)


class Text(str):
    __slots__ = ()


@dataclass
class Data:
    x: float = math.nan


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", JSON_VALUES, ids=ascii)
def test_a_json_value_comes_back_as_it_was(value: Any) -> None:
    for wrapped in (value, [value], {"a": value, "b": [value]}):
        data = encode(wrapped)
        assert repr(decode(data)) == repr(wrapped)
        assert b"\n" not in data
        assert repr(decode(pretty(wrapped), limit=MAX_DOCUMENT)) == repr(wrapped)


@pytest.mark.parametrize(
    "value",
    [
        *BAD_VALUES,
        *Odd,
        Data(),
        Text("x"),
        OrderedDict(a=1),
        datetime(2026, 1, 1, tzinfo=UTC),
        endless(),
        nested(MAX_DEPTH + 1),
        nested(300),
        nested(100_000),
        {"a": (1, math.nan)},
        range(3),
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_strict_json_is_never_written(value: Any) -> None:
    for write in (encode, pretty):
        with pytest.raises(BadValue) as caught:
            write({"value": value} if not isinstance(value, list) else value)
        assert caught.value.hint


def test_whatever_is_written_can_be_read() -> None:
    for value in ({"id": uuid.UUID(int=7)}, {"t": (1, (2, 3))}, {"null": "null", "b": [None]}):
        assert isinstance(decode(encode(value)), dict)


def test_nesting_ends_at_its_limit_in_both_directions() -> None:
    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    assert decode(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None
    with pytest.raises(DecodeError, match="nested deeper than 64"):
        decode(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))
    mixed = b'{"a":[' * 33 + b"]}" * 33
    with pytest.raises(DecodeError, match="nested deeper than 64"):
        decode(mixed)


def test_many_brackets_side_by_side_are_no_nesting() -> None:
    wide = [{"a": []}] * 1000
    assert decode(encode(wide)) == wide
    brackets = "[{" * 500
    assert decode(encode(brackets)) == brackets


def test_a_value_may_be_as_large_as_the_limit() -> None:
    assert len(encode("x" * 98, limit=100)) == 100
    assert decode(b'"%b"' % (b"x" * 98), limit=100) == "x" * 98
    with pytest.raises(BadValue, match="too large") as caught:
        encode("x" * 99, limit=100)
    assert "file" in (caught.value.hint or "")
    with pytest.raises(DecodeError, match="longer than 100 bytes"):
        decode(b'"%b"' % (b"x" * 99), limit=100)
    with pytest.raises(BadValue, match="too large"):
        encode("x" * MAX_LINE)
    with pytest.raises(BadValue, match="too large"):
        pretty("x" * MAX_DOCUMENT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty line"),
        (b"\0", "NUL bytes"),
        (b"\0" * 5000, "NUL bytes"),
        (b'{"a":1}\0\0', "not JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8 at byte 0"),
        ('{"a":1}'.encode("utf-16-le"), "not JSON"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b'"\xc0\xae"', "not UTF-8 at byte 1"),
        (b'"\xed\xa0\x80"', "not UTF-8 at byte 1"),
        (b"NaN", "not JSON"),
        (b"[Infinity]", "not JSON"),
        (b"-Infinity", "not JSON"),
        (b"1e999", "not JSON"),
        (b"[-1e999]", "not JSON"),
        (b'"\\ud800"', "not JSON"),
        (b'{"\\udfff":1}', "not JSON"),
        (b'{"a":1,"a":2}', "duplicate key 'a'"),
        (b'{"a":1,"a":1}', "duplicate key 'a'"),
        (b'{"a": 1, "a": 1}', "duplicate key 'a'"),
        (b'{\n "a b": [1],\n "a b": [1]\n}', "duplicate key 'a b'"),
        (b'[{"x":{"b":1,"\\u0062":2}}]', "duplicate key 'b'"),
        (b"1" * 30, "integer beyond 64 bits"),
        (b"[18446744073709551616]", "integer beyond 64 bits"),
        (b"[ 18446744073709551616 ]", "integer beyond 64 bits"),
        (b"-9223372036854775809", "integer beyond 64 bits"),
        (b"01", "not JSON"),
        (b"+1", "not JSON"),
        (b".5", "not JSON"),
        (b"1.", "not JSON"),
        (b"'a'", "not JSON"),
        (b"{a:1}", "not JSON"),
        (b"[1,]", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b"// x\n1", "not JSON"),
        (b'"a\nb"', "not JSON"),
        (b'"\t"', "not JSON"),
        (b'"\\x41"', "not JSON"),
        (b"1 2", "not JSON"),
        (b"\x0c1", "not JSON"),
        (b"\xc2\xa01", "not JSON"),
        (b"nul", "not JSON"),
        (b"True", "not JSON"),
        (b"hello", "not JSON"),
    ],
)
def test_what_is_not_strict_json_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b" \t\r\n1 \r\n", 1),
        (b"-0", 0),
        (b"-0.0", -0.0),
        (b"1E2", 100.0),
        (b"0.10000000000000000555", 0.1),
        (b"1e-999", 0.0),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b'"\\u2028\xe2\x80\xa8"', "\u2028\u2028"),
        (b'"\\ud83e\\udd80"', "\U0001f980"),
        (b'{ "b" : 1 , "a" : [ ] }', {"b": 1, "a": []}),
        (b'{"a b": 1, "ab": " 1 "}', {"a b": 1, "ab": " 1 "}),
    ],
)
def test_json_in_another_spelling_has_the_same_value(data: bytes, value: Any) -> None:
    assert repr(decode(data)) == repr(value)


def test_a_line_is_split_by_nothing_but_its_line_end() -> None:
    text = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg\rh"
    data = encode({"text": text})
    assert data.count(b"\n") == 0
    assert decode_record(data) == {"text": text}


@pytest.mark.parametrize("data", [b"[]", b"1", b'"{}"', b"null"])
def test_only_an_object_is_a_record(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not an object"):
        decode_record(data)


def test_a_pretty_document_is_indented_and_ends_its_line() -> None:
    assert pretty({"b": [1], "a": "é"}) == '{\n  "b": [\n    1\n  ],\n  "a": "é"\n}\n'.encode()


def keys(count: int) -> bytes:
    return b",".join(b'"%d":1' % number for number in range(count))


BOMBS: dict[str, Callable[[], bytes]] = {
    "deep lists": lambda: b"[" * 100_000,
    "deep lists, closed": lambda: b"[" * 100_000 + b"]" * 100_000,
    "deep objects": lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "all brackets": lambda: b"[" * MAX_LINE,
    "flat lists": lambda: b"[" + b",".join([b"[]"] * 2_000_000) + b"]",
    "many keys": lambda: b"{%b}" % keys(500_000),
    "many keys, spaced": lambda: b"{ %b}" % keys(500_000),
    "a duplicate behind many keys": lambda: b'{%b,"x":1,"x":2}' % keys(500_000),
    "a million digits": lambda: b"9" * 1_000_000,
    "a million decimals": lambda: b"0." + b"9" * 1_000_000,
    "escapes": lambda: b'"%b"' % (b"\\u0041" * 1_000_000),
    "quotes": lambda: b'"%b"' % (b'\\"' * 3_000_000),
    "brackets in a string": lambda: b'"%b"' % (b"[{" * 3_000_000),
    "open string": lambda: b'"' + b"x" * (MAX_LINE - 1),
    "backslashes": lambda: b'"' + b"\\" * (MAX_LINE - 1),
    "NULs": lambda: bytes(MAX_LINE),
    "not UTF-8 at the end": lambda: b'"' + b"x" * (MAX_LINE - 3) + b'\xff"',
    "longer than a line": lambda: b"x" * (4 * MAX_LINE),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_taken_or_refused_within_a_moment(name: str) -> None:
    data = BOMBS[name]()
    start = time.process_time()
    try:
        decode(data)
    except DecodeError as error:
        assert len(str(error)) < 300
    assert time.process_time() - start < 3.0


def test_a_large_document_is_checked_in_a_small_multiple_of_parsing_it() -> None:
    records = [{"id": number, "tags": ["a", "b"], "text": "x" * 100} for number in range(20_000)]
    data = encode(records)
    start = time.process_time()
    decode(data)
    ours = time.process_time() - start
    start = time.process_time()
    json.loads(data)
    assert ours < 12 * (time.process_time() - start) + 0.05

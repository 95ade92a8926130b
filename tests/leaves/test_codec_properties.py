"""The codec against a slow reference, over everything hypothesis can think of."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.codec import MAX_DEPTH, DecodeError, decode, decode_record, encode, pretty
from holdfast.errors import BadValue

TEXTS = st.text(st.characters(codec="utf-8"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=12
)
ANY_VALUES = st.recursive(
    SCALARS | st.floats() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
    max_leaves=10,
)


class Refused(Exception):
    pass


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Refused("twice")
    return dict(pairs)


def constant(text: str) -> None:
    raise Refused(text)


def number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise Refused(text)
    return float(text)


def whole(text: str) -> int:
    if not -(2**63) <= int(text) < 2**64:
        raise Refused(text)
    return int(text)


def walk(value: Any, depth: int) -> None:
    if isinstance(value, str):
        value.encode("utf-8")
    if not isinstance(value, dict | list):
        return
    if depth > MAX_DEPTH:
        raise Refused("deep")
    for inner in value:
        walk(inner, depth + 1)
        if isinstance(value, dict):
            walk(value[inner], depth + 1)


def reference(data: bytes) -> Any:
    """Strict decoding, rule by rule, with nothing of ours."""
    try:
        text = data.decode("utf-8", "strict")
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_constant=constant,
            parse_float=number,
            parse_int=whole,
        )
        walk(value, 1)
    except (ValueError, Refused, RecursionError) as error:
        raise Refused(str(error)) from None
    return value


def agrees_with_the_reference(data: bytes) -> None:
    try:
        expected = repr(reference(data))
    except Refused:
        with pytest.raises(DecodeError):
            decode(data)
    else:
        assert repr(decode(data)) == expected


@st.composite
def nearly_json(draw: st.DrawFn) -> bytes:
    """JSON in some spelling, with a few bytes changed."""
    text = json.dumps(
        draw(ANY_JSON),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, "\t"])),
        separators=draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
    )
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2)
            | st.sampled_from([b'"a":1,', b"[[", b"1e400", b"NaN", b"\xef\xbb\xbf", b"9" * 20])
        )
    return bytes(data)


ANY_JSON = st.recursive(
    SCALARS | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)


@given(VALUES)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    data = encode(value)
    assert repr(decode(data)) == repr(value)
    assert b"\n" not in data
    assert repr(decode(pretty(value))) == repr(value)


@given(ANY_VALUES)
def test_a_value_is_refused_or_can_be_read_again(value: Any) -> None:
    try:
        data = encode(value)
    except BadValue:
        return
    assert encode(decode(data)) == data


@given(st.dictionaries(TEXTS, SCALARS, max_size=6))
def test_a_record_is_decoded_as_the_object_it_is(record: dict[str, Any]) -> None:
    assert repr(decode_record(encode(record))) == repr(record)


@settings(max_examples=300)
@given(st.binary() | st.binary().map(lambda tail: b'{"a":' + tail))
@example(b"\xef\xbb\xbf1")
@example(b"-")
@example(b'"\\ud83d\\ude00\\ud83d"')
def test_arbitrary_bytes_raise_nothing_but_a_decode_error(data: bytes) -> None:
    agrees_with_the_reference(data)


@settings(max_examples=500)
@given(nearly_json())
@example(b'{"a":1,"a":1}')
@example(b"[" * 65 + b"]" * 65)
@example(b"[1e400]")
@example(b"[-0]")
@example(b"100000000000000000000000000000")
@example(b"0.1000000000000000055511151231257827")
@example(b'"\\u2028"')
@example(b'{"a":"\x7f"}')
def test_the_codec_agrees_with_a_slow_reference(data: bytes) -> None:
    agrees_with_the_reference(data)

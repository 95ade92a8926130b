"""Files as they are found: every value with its line, and what is wrong with the rest."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.validate.scan import Found, Scan, lines_of, without_extra_closings
from tests.contracts.fixtures import FOLDER
from tests.contracts.strategies import anything, texts

DAMAGED = FOLDER / "damaged"


def scanned(data: bytes) -> tuple[list[tuple[int, Any]], list[tuple[str, int]]]:
    """The sound values and the findings, each with its line."""
    scan = Scan(data)
    values = [(found.line, found.value) for found in scan.values() if found.sound]
    return values, [(each.code, each.line) for each in scan.told]


def rescued(data: bytes) -> list[tuple[int, Any]]:
    return [(each.line, each.value) for each in Scan(data).values() if not each.sound]


@pytest.mark.parametrize(
    ("data", "values", "findings"),
    [
        (b"", [], [("empty", 0)]),
        (b" \r\n\t\n", [], [("empty", 0)]),
        (b'{"a":1}\n{"b":2}\n', [(1, {"a": 1}), (2, {"b": 2})], []),
        (b'{"a": 1}\n{ "b":2 }\n', [(1, {"a": 1}), (2, {"b": 2})], []),
        (b'{"a":1}\n{"b":2}', [(1, {"a": 1}), (2, {"b": 2})], [("unended", 2)]),
        (b'{"a":1}\n{"b":', [(1, {"a": 1})], [("torn", 2)]),
        (b'{"a":1}\n{"b":"x', [(1, {"a": 1})], [("torn", 2)]),
        (b'{"a":1}\n{"b":\n{"c":3}\n', [(1, {"a": 1}), (3, {"c": 3})], [("torn", 2)]),
        (b'{"a":"x\n{"c":3}\n', [(2, {"c": 3})], [("not_json", 1)]),
        (b'{"a":1}\r\n{"b":2}\r\n', [(1, {"a": 1}), (2, {"b": 2})], [("crlf", 1), ("crlf", 2)]),
        (b'\xef\xbb\xbf{"a":1}\n', [(1, {"a": 1})], [("bom", 1)]),
        (b'\xff\xfe{\x00"\x00a\x00', [], [("not_utf8", 1)]),
        (b'{"a":1}\n\n{"b":2}\n', [(1, {"a": 1}), (3, {"b": 2})], [("blank", 2)]),
        (b'{"a":1}\n\0\0\0\0\n{"b":2}\n', [(1, {"a": 1}), (3, {"b": 2})], [("nul", 2)]),
        (b'{"a":1}\n\0\0\0', [(1, {"a": 1})], [("nul", 2)]),
        (b'{"a":"\xe4"}\n{"b":2}\n', [(2, {"b": 2})], [("not_utf8", 1)]),
        (b'{"a":1,"a":2}\n', [(1, {"a": 2})], [("not_strict", 1)]),
        (b'{"a":123456789012345678901234}\n', [(1, {"a": 123456789012345678901234.0})], None),
        (b'{"a":NaN}\n{"b":2}\n', [(2, {"b": 2})], [("not_json", 1)]),
        (b'7\n"x"\nnull\n{"b":2}\n', [(4, {"b": 2})], [("not_json", n) for n in (1, 2, 3)]),
        (b'{\n "a": 1\n}\n', [(1, {"a": 1})], []),
        (b'\n\n{\n "a": 1\n}\n', [(3, {"a": 1})], []),
        (b'[\n {"a":1},\n {"b":2}\n]\n', [(1, [{"a": 1}, {"b": 2}])], []),
        (b'{\n "a": 1\n}\n{\n "b": 2\n}\n', [(1, {"a": 1}), (4, {"b": 2})], []),
        (b'{"a":1}{"b":2} {"c":3}\n{"d":4}\n', None, []),
        (b'{\n"a":1}{"b":\n2}\n{"c":3}\n', [(1, {"a": 1}), (2, {"b": 2}), (4, {"c": 3})], []),
        (b'{\n "a": [\n  1,\n', [], [("torn", 1)]),
        (b"[" * 100 + b"]" * 100 + b'\n{"a":1}\n', [(2, {"a": 1})], [("not_strict", 1)]),
        (b"[" * 300 + b"]" * 300 + b'\n{"a":1}\n', [(2, {"a": 1})], [("not_strict", 1)]),
        (b"[" * 5000 + b'\n{"a":1}\n', [(2, {"a": 1})], [("not_json", 1)]),
    ],
)
def test_values_are_found_with_their_lines(
    data: bytes, values: list[Any] | None, findings: list[Any] | None
) -> None:
    found, told = scanned(data)
    assert values is None or found == values
    assert findings is None or told == findings


def test_values_on_one_line_are_found_one_after_the_other() -> None:
    scan = Scan(b'{"a":1}{"b":2} {"c":3}\n{"d":4}\n')
    found = list(scan.values())
    assert [(each.line, each.value) for each in found] == [
        (1, {"a": 1}),
        (1, {"b": 2}),
        (1, {"c": 3}),
        (2, {"d": 4}),
    ]
    assert scan.spread == 2, "the third one ends its line and was read as one"


def test_what_stands_at_a_place_is_told_with_its_bytes() -> None:
    data = b'{"a":1}\nbad\n{\n"b":2}\n{"c":3}}\n{"d":4}\n'
    for found in Scan(data).values():
        assert data[found.start : found.start + len(found.raw)] == found.raw


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a":1}}\n', {"a": 1}),
        (b'{"a":{"b":[1]}}}}\n', {"a": {"b": [1]}}),
        (b'{"a":{"b":1}}},"c":"}"}\n', {"a": {"b": 1}, "c": "}"}),
        (b'{"t":1,"m":{"x":{"d":1}}},"t":2}}}\n', {"t": 1, "m": {"x": {"d": 1}, "t": 2}}),
        (b'{"a":1},\n', {"a": 1}),
        (b'{"a":1} # note\n', {"a": 1}),
        (b'\0\0\0{"a":1}\n', {"a": 1}),
    ],
)
def test_a_bad_line_is_told_and_what_it_meant_is_offered(data: bytes, found: Any) -> None:
    values, told = scanned(data + b'{"z":1}\n')
    assert values == [(2, {"z": 1})]
    assert [line for _, line in told] == [1]
    assert rescued(data) == [(1, found)]


@pytest.mark.parametrize("line", ['{"a":1}', '{"a":', "}}}", '{"a":[}]}', "[1]]", '{"a":1}}x'])
def test_no_object_is_made_of_what_has_no_bracket_too_many(line: str) -> None:
    assert without_extra_closings(line) is None


def test_very_many_brackets_are_not_tried_in_all_ways() -> None:
    assert without_extra_closings('{"a":{}}' * 200 + "}" * 200) is None


# --- whole files ------------------------------------------------------------------------------


def test_every_line_with_brackets_too_many_is_bad_and_can_be_recovered() -> None:
    data = (DAMAGED / "extra-brackets.jsonl").read_bytes()
    values, told = scanned(data)
    assert values == []
    assert told == [("not_json", line) for line in range(1, 14)]
    found = rescued(data)
    assert [line for line, _ in found] == list(range(1, 14))
    assert all(value["session_id"] for _, value in found)
    assert found[1][1]["saved_by"] == "hook"
    assert found[2][1]["metadata"] == {
        "kind": "done",
        "metrics": {"duration": 2},
        "timestamp": "2026-10-30T06:02:21+0700",
    }


def test_pretty_objects_in_a_file_of_lines_are_all_found() -> None:
    scan = Scan((DAMAGED / "pretty.jsonl").read_bytes())
    found = list(scan.values())
    assert len(found) == 14
    assert scan.spread == 9
    assert [each.value["wo_id"] for each in found[:3]] == ["WO-0", "WO-1", "WO-2"]
    assert [each.line for each in found[:3]] == [1, 6, 11]
    assert (scan.bad, scan.told) == (0, [])


def test_a_script_over_a_ledger_has_only_bad_lines() -> None:
    values, told = scanned((DAMAGED / "script-over-a-ledger.jsonl").read_bytes())
    assert values == []
    assert told == [("not_json", line) for line in range(1, 25)]


def test_a_document_that_was_cut_off_is_one_torn_value() -> None:
    assert scanned((DAMAGED / "cut-off.json").read_bytes()) == ([], [("torn", 1)])


# --- anything ---------------------------------------------------------------------------------

objects = st.dictionaries(texts, anything, max_size=4)


@given(st.lists(objects, min_size=1, max_size=6), st.sampled_from(["orjson", "json", "ascii"]))
def test_lines_are_found_as_they_were_written(values: list[Any], how: str) -> None:
    writers: dict[str, Any] = {
        "orjson": orjson.dumps,
        "json": lambda value: json.dumps(value, ensure_ascii=False).encode(),
        "ascii": lambda value: json.dumps(value).encode(),
    }
    data = b"".join(writers[how](value) + b"\n" for value in values)
    assert scanned(data) == (list(enumerate(values, 1)), [])


@given(st.lists(st.tuples(objects, st.sampled_from([None, 1, 2])), min_size=1, max_size=5))
def test_pretty_objects_one_after_the_other_are_found(values: list[tuple[Any, int | None]]) -> None:
    pieces = [json.dumps(value, indent=indent) + "\n" for value, indent in values]
    lines = [1 + sum(piece.count("\n") for piece in pieces[:at]) for at in range(len(pieces))]
    found, told = scanned("".join(pieces).encode())
    assert found == list(zip(lines, (value for value, _ in values), strict=True))
    assert told == []


@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_a_file_cut_anywhere_keeps_every_line_before_the_cut(
    values: list[Any], data: st.DataObject
) -> None:
    whole = b"".join(orjson.dumps(value) + b"\n" for value in values)
    cut = data.draw(st.integers(0, len(whole)))
    kept = whole[:cut].count(b"\n")
    found, _ = scanned(whole[:cut])
    assert found[:kept] == list(enumerate(values[:kept], 1))
    assert len(found) <= kept + 1


noise = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\n",
        b"\r\n",
        b",",
        b":",
        b'{"a":1}',
        b"\0",
        b"\xff",
        b"1",
        b" ",
    ]
)


@given(st.lists(noise | st.binary(max_size=3), max_size=40).map(b"".join))
def test_no_bytes_break_the_scan(data: bytes) -> None:
    scan = Scan(data)
    found: list[Found] = list(scan.values())
    assert found or scan.told
    lines = [each.line for each in found]
    assert lines == sorted(lines)
    last = data.count(b"\n") + 1
    assert all(0 < line <= last for line in lines)
    assert all(each.line <= last for each in scan.told)
    for each in found:
        if each.sound:
            assert orjson.loads(each.raw) == each.value


@pytest.mark.parametrize("line", [b'{"a":\n', b"[\n", b'{"a":1,\n', b'{"a":"\n', b"{\n", b"x\n"])
def test_many_bad_lines_take_no_more_than_their_time(line: bytes) -> None:
    scan = Scan(line * 5_000)
    assert list(scan.values()) == []
    assert scan.bad == 1 or scan.bad > 4_000


# --- inside a value -----------------------------------------------------------------------------


def test_a_field_is_found_on_its_line() -> None:
    raw = b'{\n "a": 1, "b": [\n  {"c": "x\\"}y"},\n  2],\n "d":{}, "e f": null\n}'
    assert lines_of(raw, 10) == {
        "": 10,
        "a": 11,
        "b": 11,
        "b[0]": 12,
        "b[0].c": 12,
        "b[1]": 13,
        "d": 14,
        "e f": 14,
    }


@given(objects, st.sampled_from([None, 2]))
def test_every_field_has_a_line(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    found = lines_of(text.encode())
    assert set(value) <= set(found) | {""}
    rows = text.split("\n")
    for name in value:
        if name.isalnum():
            assert json.dumps(name) in rows[found[name] - 1]


@given(st.binary(max_size=30))
def test_no_bytes_break_the_search_for_lines(data: bytes) -> None:
    assert all(line >= 1 for line in lines_of(data).values())

"""What people and programs see of a result."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.output import Output, json_line
from holdfast.cli.render import clip, outline, table, width
from holdfast.cli.safe import safe, safe_json
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows
from tests.cli.process import run

HOSTILE = "a\x1b]0;title\x07b\x9b31mc\u202ed\u2066e\rf\x00g\x7fh\tj\u2028k\U000e0041l"
SHOWN = r"a\x1b]0;title\x07b\x9b31mc\u202ed\u2066e\rf\x00g\x7fh\tj\u2028k\U000e0041l"
DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def test_rows_are_an_aligned_table_of_the_chosen_columns() -> None:
    ran = run("toy", "list")
    assert ran.out.splitlines() == [
        "SEQ  AGENT  SUMMARY",
        "  9  rio    first",
        " 10  clay   two␊lines",
    ]
    assert ran.err == "events 2\n"


def test_rows_in_json_hold_every_key() -> None:
    answer = run("toy", "list", "--json").json()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.pop("as_of"))
    assert answer == {
        "schema": 1,
        "counts": {"events": 2},
        "rows": [
            {"seq": 9, "agent": "rio", "secret": "hidden", "summary": "first"},
            {"seq": 10, "agent": "clay", "secret": "hidden", "summary": "two\nlines"},
        ],
        "truncated": False,
        "next": None,
    }


def test_no_rows_are_silence_on_stdout_and_a_word_on_stderr() -> None:
    assert run("many", "0") == (0, "", "nothing to show\n")
    assert run("many", "0", "--json").json()["rows"] == []


def test_rows_that_have_little_in_common_are_told_in_words_behind_what_they_share() -> None:
    rows = [{"at": 1, "kind": "x", **{f"f{n}{row}": n for n in range(4)}} for row in range(3)]
    shown = list(outline({"rows": [*rows, {"at": 2, "kind": "y"}]}))
    assert shown[1].split() == ["AT", "KIND", "MORE"]
    assert shown[2] == "   1  x     f00=0, f10=1, f20=2, f30=3"
    assert shown[5] == "   2  y     -"


def test_a_document_is_shown_as_keys_and_values() -> None:
    data = {
        "name": "rio",
        "long_name": "",
        "on": True,
        "none": [],
        "tags": ["a", 2, None],
        "inner": {"x": 1, "deep": {"y": 2.5}},
        "rows": [{"a": 1, "b": "x"}, {"a": 20}],
        "mixed": [{"a": 1}, "b"],
        "text": "two\nlines\n",
        "empty": {},
    }
    assert list(outline(data)) == [
        "name:      rio",
        "long_name: -",
        "on:        yes",
        "none:      -",
        "tags:      a, 2, -",
        "inner:",
        "  x: 1",
        "  deep:",
        "    y: 2.5",
        "rows:",
        "   A  B",
        "   1  x",
        "  20  -",
        "mixed:",
        '  {"a": 1}',
        "  b",
        "text:",
        "  two",
        "  lines",
        "empty:     -",
    ]


def test_a_change_is_shown_as_its_detail_and_a_dry_run_says_so() -> None:
    assert run("toy", "write", "--agent", "a", "x").out == "wrote x\n"
    assert run("toy", "write", "--agent", "a", "--dry-run", "x").out == "dry run: wrote x\n"


@pytest.mark.parametrize("verb", [["toy", "echo"], ["document"], ["quote"]])
def test_hostile_data_is_shown_escaped(verb: list[str]) -> None:
    ran = run(*verb, "--", HOSTILE)
    assert SHOWN.replace(r"\t", "") in ran.out.replace(r"\t", "").replace("\t", "")
    assert not DANGEROUS.search(ran.out)


def test_newlines_stay_inside_their_cell_but_break_lines_of_text() -> None:
    assert run("toy", "echo", "a\nb").out == "AGENT  SUMMARY\nrio    a␊b\n"
    assert run("quote", "a\nb\tc").out == "a\nb\tc\n"


def test_hostile_data_in_json_is_escaped_and_unchanged() -> None:
    ran = run("quote", "--json", "--", HOSTILE)
    assert not DANGEROUS.search(ran.out.rstrip("\n"))
    assert ran.json()["data"]["text"] == HOSTILE


@given(st.text())
def test_safe_text_has_no_control_characters(text: str) -> None:
    assert not DANGEROUS.search(safe(text))
    assert "\n" not in safe(text)
    assert not DANGEROUS.search(safe(text, lines=True))


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Zl", "Zp"))))
def test_safe_text_leaves_ordinary_text_alone(text: str) -> None:
    assert safe(text) == text


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**64 - 1) | st.none()))
def test_a_line_of_json_means_the_same_after_it_was_made_safe(value) -> None:
    line = json_line(value)
    assert json.loads(line) == value
    assert not DANGEROUS.search(line)
    assert "\n" not in line


def test_json_can_say_a_file_name_that_is_not_utf_8() -> None:
    assert json.loads(json_line({"path": "caf\udce9"})) == {"path": "caf\udce9"}


def test_json_refuses_what_json_does_not_have() -> None:
    with pytest.raises(TypeError):
        json_line({"value": object()})


def test_safe_json_escapes_characters_beyond_the_basic_plane() -> None:
    assert json.loads(safe_json('"\U000e0041"')) == "\U000e0041"
    assert safe_json('"\U000e0041"').isascii()


def test_wide_and_combining_characters_are_measured_in_columns() -> None:
    assert [width(text) for text in ("abc", "日本", "e\u0301", "")] == [3, 4, 1, 0]
    assert table([{"a": "日本", "b": 1}, {"a": "x", "b": 2}]) == [
        "A     B",
        "日本  1",
        "x     2",
    ]


def test_a_clipped_line_fits_and_shows_that_it_was_cut() -> None:
    assert clip("abcdef", 6) == "abcdef"
    assert clip("abcdef", 5) == "abcd…"
    assert clip("日本語", 5) == "日本…"
    assert clip("日本語", 4) == "日…"


def test_one_huge_cell_pushes_only_its_own_line_out() -> None:
    lines = table([{"a": "x" * 1000, "b": "y"}, {"a": "x", "b": "y"}])
    assert lines[1] == "x" * 1000 + "  y"
    assert len(lines[2]) < 60


def test_columns_that_no_row_has_are_not_shown() -> None:
    assert table([{"a": 1}], ["a", "b"]) == ["A", "1"]


def test_a_missing_number_leaves_its_column_right_aligned() -> None:
    assert table([{"n": None, "b": "x"}, {"n": 100, "b": "y"}]) == ["  N  B", "  -  x", "100  y"]


def test_truth_values_are_words_and_not_numbers() -> None:
    assert table([{"a": True, "b": 1}, {"a": False, "b": 2}]) == ["A    B", "yes  1", "no   2"]


def test_a_list_that_was_cut_says_so_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows([{"a": 1}], {"all\x1b": "9\x1b"}, truncated=True, next="seq:7")
    Output(json=False).result(rows, "now", (), Context())
    seen = capsys.readouterr()
    assert seen.out == "A\n1\n"
    assert seen.err == "all\\x1b 9\\x1b\nthere is more, it goes on at seq:7\n"


def test_a_long_name_leaves_room_on_a_terminal_for_what_is_said_of_it() -> None:
    name, goal = "a-long-name-of-a-run-" + "x" * 43, "Plan the week"
    rows = [{"run": name, "status": "done", "ticks": "1/1", "cost": 0.0, "goal": goal}]
    header, line = table(rows, ["run", "status", "ticks", "cost", "goal"], 60)
    assert line == f"{name[:24]}…  done    1/1     0.0  {goal}"
    assert header.index("GOAL") == line.index(goal)
    assert len(line) - len(goal) + 12 == 60
    assert name in table(rows)[1]
    short = [{**rows[0], "run": "week"}]
    assert table(short, (), 60) == table(short)

"""What reaches a verb from a command line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.process import run, spawn

TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)


def written(*words: str) -> dict[str, object]:
    ran = run("toy", "write", "--json", *words)
    assert ran.code == 0, ran.err
    return ran.json()["data"]


@pytest.mark.parametrize(
    "words",
    [
        ["--home", "/h", "--json", "toy", "write", "--agent", "a", "x"],
        ["--json", "toy", "--home", "/h", "write", "--agent", "a", "x"],
        ["toy", "--json", "write", "--agent", "a", "--home", "/h", "x"],
        ["toy", "write", "--agent", "a", "x", "--home=/h", "--json"],
    ],
)
def test_home_and_json_are_accepted_before_and_after_the_verb(words: list[str]) -> None:
    ran = run(*words)
    assert ran.code == 0
    assert ran.json()["data"]["home"] == "/h"


def test_the_home_nearest_to_the_verb_wins() -> None:
    assert written("--agent", "a", "x", "--home", "/later")["home"] == "/later"
    ran = run("--home", "/first", "toy", "write", "--json", "--agent", "a", "x")
    assert ran.json()["data"]["home"] == "/first"


def test_json_after_two_dashes_is_text() -> None:
    ran = run("toy", "write", "--agent", "a", "--", "--json")
    assert ran == (0, "wrote --json\n", "")


def test_text_may_begin_with_a_dash_after_two_dashes() -> None:
    assert written("--agent", "a", "--", "-weird")["text"] == "-weird"


def test_a_text_that_looks_like_an_option_is_refused_with_the_way_out() -> None:
    ran = run("toy", "write", "--agent", "a", "-weird")
    assert ran.code == 2
    assert "goes after `--`" in ran.err


def test_the_value_of_an_option_may_begin_with_a_dash() -> None:
    assert written("--agent", "--tag", "--tag", "-x", "y")["agent"] == "--tag"
    assert written("--agent", "a", "--tag", "-x", "y")["tag"] == ["-x"]


def test_json_as_the_value_of_an_option_asks_for_nothing() -> None:
    assert run("toy", "write", "--agent", "--json", "x") == (0, "wrote x\n", "")


def test_an_empty_text_is_a_text() -> None:
    assert written("--agent", "a", "")["text"] == ""


@given(TEXTS)
@settings(max_examples=150, deadline=None)
def test_any_text_reaches_the_verb_untouched(text: str) -> None:
    assert written("--agent", "a", "--", text)["text"] == text
    assert written(f"--agent={text}", "x")["agent"] == text


def test_hostile_text_survives_a_real_process() -> None:
    text = 'it\'s "ok" $(touch x) `y` \\n\ntwo\u2028lines 😀\x1b[31m'
    ran = spawn("toy", "write", "--json", "--agent", "a", "--", text)
    assert ran.json()["data"]["text"] == text


def test_options_left_out_have_the_defaults_of_the_signature() -> None:
    assert written("--agent", "a", "x") == {
        "text": "x",
        "agent": "a",
        "event": "info",
        "tag": [],
        "data": None,
        "limit": None,
        "cost": None,
        "from": None,
        "home": None,
    }


def test_zero_is_a_value_and_not_an_option_left_out() -> None:
    seen = written("--agent", "a", "--limit", "0", "--cost", "0", "x")
    assert (seen["limit"], seen["cost"]) == (0, 0.0)


def test_a_repeated_option_collects_its_values_in_order() -> None:
    assert written("--agent", "a", "--tag", "z", "--tag", "b", "x")["tag"] == ["z", "b"]


def test_a_parameter_named_like_a_python_keyword_loses_its_underscore() -> None:
    assert written("--agent", "a", "--from", "theseus", "x")["from"] == "theseus"


def test_a_flag_switches_on() -> None:
    ran = run("toy", "write", "--agent", "a", "--dry-run", "x", "--json")
    assert (ran.json()["applied"], ran.json()["dry_run"]) == (False, True)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999", "many"])
def test_an_amount_that_is_no_finite_number_is_refused(number: str) -> None:
    assert run("toy", "write", "--agent", "a", f"--cost={number}", "x").code == 2


def test_a_value_may_come_from_a_file(tmp_path) -> None:
    file = tmp_path / "data.json"
    file.write_text('{"ü": 1}', encoding="utf-8")
    assert written("--agent", "a", "--data", f"@{file}", "x")["data"] == '{"ü": 1}'


def test_a_value_may_come_from_standard_input() -> None:
    ran = spawn("toy", "write", "--json", "--agent", "a", "--data", "-", "x", input=b'{"a":1}\n')
    assert ran.json()["data"]["data"] == '{"a":1}\n'


def test_only_a_parameter_that_says_so_reads_files() -> None:
    assert written("--agent", "@/etc/passwd", "--", "-")["agent"] == "@/etc/passwd"


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path) -> None:
    ran = run("toy", "write", "--agent", "a", "--data", f"@{tmp_path}/none", "x")
    assert ran.code == 2
    assert "No such file" in ran.err and "hint: name a file that exists" in ran.err
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    ran = run("toy", "write", "--agent", "a", "--data", f"@{tmp_path}/latin", "x")
    assert ran.code == 2
    assert "not UTF-8 at byte 3" in ran.err


def test_an_argument_that_is_not_utf_8_is_refused_and_shown_escaped() -> None:
    ran = spawn("toy", "write", "--agent", "a", b"caf\xe9")
    assert ran.code == 2
    error, hint = ran.err.splitlines()
    assert error == r"error: argument 5 is not UTF-8: caf\udce9"
    assert hint.startswith("hint: ")


def test_an_argument_that_is_not_utf_8_is_an_error_envelope_with_json() -> None:
    ran = spawn("--json", "toy", "write", "--agent", "a", b"\xff")
    assert (ran.code, ran.error()["code"]) == (2, "usage")


def test_text_is_utf_8_in_and_out_whatever_the_locale_says() -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = spawn("toy", "write", "--agent", "a", "naïve 😀", env=plain)
    assert ran == (0, "wrote naïve 😀\n", "")
    ran = spawn("toy", "write", "--json", "--agent", "a", "naïve 😀", env=plain)
    assert json.loads(ran.out)["data"]["text"] == "naïve 😀"

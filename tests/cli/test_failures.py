"""How a run that fails ends: exit code, message, hint, envelope."""

import pytest

from holdfast import errors
from tests.cli.process import Ran, run, spawn

KINDS = [
    (name, kind)
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)
]


def lines(ran: Ran) -> list[str]:
    return ran.err.splitlines()


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_error_has_its_own_exit_code_and_its_hint_stands_last(name, kind) -> None:
    ran = run("fail", name)
    assert ran.code == kind.exit_code
    assert ran.out == ""
    assert lines(ran)[-2:] == [f"error: {name} happened", "hint: try something else"]


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_every_error_has_its_envelope(name, kind) -> None:
    ran = run("--json", "fail", name)
    assert ran.code == kind.exit_code
    assert ran.out == ""
    assert ran.error() == {
        "code": kind.code,
        "message": f"{name} happened",
        "hint": "try something else",
        "retryable": kind.retryable,
        "path": None,
    }


def test_the_exit_codes_are_those_that_are_promised() -> None:
    promised = {"UsageError": 2, "ConfigError": 3, "NotFound": 4, "Busy": 5, "Corrupt": 6}
    assert {name: run("fail", name).code for name in promised} == promised


def test_an_error_names_its_path_before_the_hint() -> None:
    assert lines(run("fail", "no-hint"))[1:] == ["error: nothing there", "path: /some/where"]


def test_an_error_of_the_operating_system_gets_its_type_and_path() -> None:
    error = run("--json", "fail", "os").error()
    assert (error["code"], error["path"]) == ("not_ours", "/some/where")


@pytest.mark.parametrize("kind", ["interrupt", "stop"])
def test_an_interrupted_verb_exits_with_130(kind: str) -> None:
    assert run("fail", kind).code == 130
    assert run("--json", "fail", kind).error()["code"] == "interrupted"


def test_a_bug_is_one_line_and_says_that_it_is_one() -> None:
    ran = run("fail", "bug")
    assert ran.code == 1
    assert lines(ran)[1:] == [
        "error: ZeroDivisionError: division by zero",
        "hint: this is a bug in holdfast; HOLDFAST_DEBUG=1 shows where",
    ]
    assert run("--json", "fail", "bug").error()["code"] == "bug"


def test_the_traceback_of_a_bug_is_shown_when_asked_for(monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")
    ran = run("fail", "bug")
    assert "Traceback" in ran.err
    assert "toys.py" in ran.err
    assert lines(ran)[-1].startswith("hint: ")
    monkeypatch.setenv("HOLDFAST_DEBUG", "0")
    assert "Traceback" not in run("fail", "bug").err


def test_a_verb_that_cannot_be_imported_is_a_bug() -> None:
    ran = run("toy", "absent")
    assert ran.code == 1
    assert "no_such_module" in ran.err


def test_warnings_come_before_the_error() -> None:
    assert lines(run("fail", "Busy"))[0] == "warning: about to fail"
    assert run("--json", "fail", "Busy").err.startswith('{"warning":"about to fail"}\n')


def test_warnings_are_talk_and_not_data() -> None:
    assert run("warn", "hm\x1b[2J") == (0, "fine: yes\n", "warning: hm\\x1b[2J\n")
    ran = run("--json", "warn", "hm")
    assert ran.json()["data"] == {"fine": True}
    assert ran.err == '{"warning":"hm"}\n'


def test_attention_needed_is_data_with_exit_code_1() -> None:
    assert run("toy", "list", "--found").code == 1
    ran = run("--json", "toy", "list", "--found")
    assert (ran.code, len(ran.json()["rows"]), ran.err) == (1, 2, "")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["toy", "lst"], "`holdfast toy list`"),
        (["tyo"], "`holdfast toy`"),
        (["documnet", "x"], "`holdfast document`"),
        (["write"], "`holdfast toy write`"),
        (["toy-write"], "`holdfast toy write`"),
        (["toy", "quote"], "`holdfast quote`"),
        (["toy", "write", "--agnet", "a", "x"], "--agent"),
        (["toy", "write", "--agent", "a", "--event", "eror", "x"], "error"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(words: list[str], meant: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert lines(ran)[-1] == f"hint: did you mean {meant}?"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["zzz"], "no verb `holdfast zzz`"),
        (["toy", "zzz"], "no verb `holdfast toy zzz`"),
        (["toy", "write", "x"], "needs --agent"),
        (["toy", "write", "--agent", "a"], "needs TEXT"),
        (["toy", "write", "--agent"], "'--agent' requires an argument"),
        (["toy", "write", "--agent", "a", "x", "y"], "unexpected extra argument (y)"),
        (["toy", "write", "--agent", "a", "--limit", "lots", "x"], "'lots' is not a valid integer"),
        (["toy", "write", "--agent", "a", "--event", "zzz", "x"], "'zzz' is not one of"),
        (["--bogus"], "no option --bogus"),
        (["toy", "write", "--agent", "a", "--dry-run=1", "x"], "does not take a value"),
    ],
)
def test_a_usage_error_has_our_form_in_both_languages(words: list[str], says: str) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    error, hint = lines(ran)
    assert error.startswith("error: ")
    assert says in error
    assert hint.startswith("hint: ")
    ran = run("--json", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error()["code"] == "usage"
    assert says in ran.error()["message"]


def test_a_word_too_many_is_answered_with_an_example() -> None:
    ran = run("toy", "write", "--agent", "a", "x", "y")
    assert lines(ran)[-1].startswith("hint: put text of several words in quotes; for example: ")


def test_a_usage_error_after_the_verb_still_answers_in_json() -> None:
    assert run("toy", "write", "x", "--json").error()["code"] == "usage"
    assert run("toy", "write", "--", "--json").err.startswith("error: ")


def test_a_verb_of_another_face_is_not_there() -> None:
    assert run("toy", "remote").code == 2
    assert run("web", "only").code == 2
    assert "remote" not in run("toy", "remot").err.replace("`holdfast toy remot`", "")
    assert "web" not in run("--help").out


def test_what_is_missing_is_shown_by_example() -> None:
    assert lines(run("toy", "write", "x"))[-1] == "hint: for example: holdfast toy write x"


def test_a_huge_argument_does_not_make_a_huge_message() -> None:
    assert len(run("toy", "write", "--agent", "a", "x", "y" * 100_000).err) < 1000


def test_a_usage_error_shows_hostile_words_escaped() -> None:
    assert "\x1b" not in run("evil\x1b[31m").err


@pytest.mark.parametrize("words", [[], ["toy"]])
def test_a_missing_verb_shows_the_help_on_stderr(words: list[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Usage: {' '.join(['holdfast', *words])} ")
    assert run("--json", *words).error()["message"].endswith("needs a verb")


def test_a_real_process_exits_with_the_code_of_its_error() -> None:
    ran = spawn("fail", "Corrupt")
    assert (ran.code, ran.out) == (6, "")
    assert lines(ran)[-1] == "hint: try something else"


def test_an_option_without_its_value_is_told_with_the_help_of_its_verb() -> None:
    assert lines(run("toy", "write", "--agent"))[-1].startswith("hint: `holdfast toy write --help`")

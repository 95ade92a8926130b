"""`holdfast prime`: short, true, and every command in it is one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from holdfast.cli.commands import Request, parse
from holdfast.ops.prime import MOST_LINES
from holdfast.ops.table import TABLE
from tests.ledger.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "rio", "--timezone", "UTC")
    return made


def commands(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("holdfast ")]


@pytest.mark.parametrize("words", [("--agent", "rio"), ("--agent", "nobody"), ()])
def test_it_is_short_and_every_command_in_it_parses(shell: Shell, words: tuple[str, ...]) -> None:
    ran = shell("prime", *words)
    assert ran.code == 0
    assert len(ran.out.splitlines()) <= MOST_LINES == 40
    found = commands(ran.out)
    assert len(found) >= 8
    for line in found:
        assert isinstance(parse(shlex.split(line)[1:], TABLE), Request), line


def test_it_says_who_one_is_and_which_session_is_under_way(shell: Shell) -> None:
    assert "No session is under way" in shell("prime", "--agent", "rio").out
    begun = shell("session", "start", "--agent", "rio", "--json").json()["target"]
    by_name = shell("prime", "--agent", "Rio").out
    assert "You are rio." in by_name and begun in by_name
    assert shell("prime", env={"HOLDFAST_AGENT": "rio"}).out == by_name
    assert str(shell.home) in by_name


def test_the_commands_in_it_do_what_it_says(shell: Shell) -> None:
    for line in commands(shell("prime", "--agent", "rio").out)[:2]:
        assert shell(*shlex.split(line)[1:]).code == 0
    shell("session", "start", "--agent", "rio")
    for line in commands(shell("prime", "--agent", "rio").out):
        if " inbox " in line:
            shell("init", "clay")
        ran = shell(*shlex.split(line)[1:])
        assert ran.code in (0, 1), f"{line}: {ran.err}"
        assert "error:" not in ran.err, line
    session = shell("session", "context", "--agent", "rio").out
    assert "Three are left" in session


def test_it_names_what_must_not_be_touched(shell: Shell) -> None:
    text = shell("prime", "--agent", "rio").out
    never = text.partition("Never:")[2]
    assert "report.json" in never and "journal.jsonl" in never and "ledger/" in never


def test_a_name_that_is_none_is_refused(shell: Shell) -> None:
    assert shell("prime", "--agent", "../rio").code == 2

"""Hooks of Claude Code and a budget of which nothing is left: the one reason to stop an agent."""

from __future__ import annotations

import json

import pytest

from tests.agents.test_hook import did, event, hook, journal, used
from tests.ledger.shell import Shell


def without_money(shell: Shell) -> None:
    with (shell.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write("[budget]\nagent_day_usd = 1.0\n")
    assert shell("run", "--agent", "rio", "--", "true").code == 0


def test_a_prompt_without_money_for_it_is_refused_with_the_reason(shell: Shell) -> None:
    without_money(shell)
    before = journal(shell)
    for name in ("SessionStart", "UserPromptSubmit"):
        refused = hook(shell, event(name))
        assert (refused.code, refused.out.strip()) == (2, "")
        assert "rio today may spend 1.00 USD" in refused.err
        assert "session set" in refused.err
    assert journal(shell) == before


def test_a_tool_call_without_money_for_its_session_is_the_last_one(shell: Shell) -> None:
    without_money(shell)
    stopped = hook(shell, used("t1", command="ls"))
    assert stopped.code == 0
    answer = json.loads(stopped.out)
    assert answer["continue"] is False
    assert "may spend 1.00 USD" in answer["stopReason"]


@pytest.mark.parametrize("name", ["Stop", "SubagentStop", "PreCompact", "SessionEnd"])
def test_where_a_code_would_make_it_go_on_there_is_none(shell: Shell, name: str) -> None:
    without_money(shell)
    ran = hook(shell, event(name))
    assert (ran.code, ran.out.strip()) == (0, "")


def test_a_session_under_way_goes_on_when_the_money_of_the_day_is_set_aside(shell: Shell) -> None:
    with (shell.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write("[budget]\nagent_day_usd = 1.0\n")
    assert did(shell, event("SessionStart")) == "began"
    assert hook(shell, event("UserPromptSubmit")).code == 0
    assert did(shell, used("t1", command="ls")) == "noted"

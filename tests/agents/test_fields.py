"""Every field of session.json and report.json, said in every way there is, and read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.contracts.agents import Report, Session
from tests.agents.world import journal, run, shown
from tests.ledger.shell import Shell

AT_START = {
    "domain": "finance",
    "branch": "rio/research",
    "model": "sonnet",
    "question": "How?",
    "belief": "Markets know",
    "disconfirm": "Markets that failed",
    "sources-expected": "10",
}
AT_END = {
    "sources": "8",
    "pr": "247",
    "summary": "Eight sources",
    "next": "Follow up",
    "blocked-by": "a key",
    "tokens": "1200",
    "cost": "0.25",
    "handoff": "three are left",
}
EXPECTED = {
    "domain": "finance",
    "branch": "rio/research",
    "model": "sonnet",
    "research_question": "How?",
    "belief_targeted": "Markets know",
    "disconfirmation_target": "Markets that failed",
    "sources_expected": 10,
    "sources_archived": 8,
    "tokens_used": 1200,
    "cost_usd": 0.25,
    "handoff_notes": "three are left",
}
START = ("--type", "research", "--timeout", "90m", "--task", "task-001")


def flags(values: dict[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", value)]


def by_start_and_end(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", *START, *flags(AT_START))
    failed = ("--outcome", "error", "--error", "one thing broke")
    shell("session", "end", "--agent", "rio", *failed, *flags(AT_END))


def by_set_meanwhile(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", *START)
    shell("session", "set", "--agent", "rio", *flags({**AT_START, **AT_END}))
    failed = ("--outcome", "error", "--error", "one thing broke", "--summary", "Eight sources")
    shell("session", "end", "--agent", "rio", *failed)


def by_set_afterwards(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", *START)
    shell("session", "end", "--agent", "rio", "--outcome", "error", "--error", "one thing broke")
    shell("session", "set", "--agent", "rio", *flags({**AT_START, **AT_END}))


def by_end_alone(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", *START)
    failed = ("--outcome", "error", "--error", "one thing broke")
    shell("session", "end", "--agent", "rio", *failed, *flags({**AT_START, **AT_END}))


def by_report(shell: Shell) -> None:
    said: dict[str, Any] = {
        name.replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in {**AT_START, **AT_END}.items()
    }
    said |= {"cost": 0.25, "error": "one thing broke"}
    text = json.dumps(json.dumps(said))
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({text}); os._exit(3)"
    assert run(shell, *START, code=code).code == 3


def by_flags_of_run(shell: Shell) -> None:
    said = {
        name.replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in {**AT_END, "cost": ""}.items()
        if value
    }
    text = json.dumps(json.dumps({**said, "cost_usd": 0.25, "error": "one thing broke"}))
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({text}); os._exit(3)"
    assert run(shell, *START, *flags(AT_START), code=code).code == 3


WAYS = [
    by_start_and_end,
    by_end_alone,
    by_set_meanwhile,
    by_set_afterwards,
    by_report,
    by_flags_of_run,
]


@pytest.mark.parametrize("way", WAYS)
def test_every_field_can_be_filled_and_is_read_back(shell: Shell, way: Any) -> None:
    way(shell)
    session, report = shown(shell, "session.json"), shown(shell, "report.json")
    name = journal(shell)[0]["session_id"]
    assert session["session_id"] == report["last_session"]["id"] == name
    assert {field: session[field] for field in EXPECTED} == EXPECTED
    assert (session["agent"], session["type"], session["status"]) == ("rio", "research", "error")
    assert (session["timeout_seconds"], session["task"]) == (5400, "task-001")
    assert session["errors"] == ["one thing broke"]
    required = {name for name, field in Session.model_fields.items() if field.is_required()}
    documented = required | Session.often_missing
    assert [field for field in documented if session[field] is None] == []
    last = report["last_session"]
    assert (last["outcome"], last["sources_archived"]) == ("error", 8)
    assert (last["branch"], last["pr_number"]) == ("rio/research", 247)
    assert last["ended_at"] == session["ended_at"] >= session["started_at"] == last["started_at"]
    said = {field: report[field] for field in ("summary", "next_priority", "blocked_by", "status")}
    assert said == {
        "summary": "Eight sources",
        "next_priority": "Follow up",
        "blocked_by": "a key",
        "status": "error",
    }
    assert set(report) >= {field.rstrip("_") for field in Report.model_fields} - {"roles"}
    for file in ("session.json", "report.json", "metrics.json"):
        checked = shell("validate", str(shell.home / "state/rio" / file))
        assert checked.code == 0, checked.out + checked.err


def test_an_error_can_be_said_meanwhile_and_afterwards_and_ends_nothing(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio")
    assert shell("session", "set", "--agent", "rio", "--error", "the feed is empty").code == 0
    assert shown(shell, "session.json")["status"] == "running"
    shell("session", "end", "--agent", "rio", "--outcome", "completed")
    shell("session", "start", "--agent", "rio")
    first = journal(shell)[0]["session_id"]
    shell("session", "set", "--agent", "rio", "--session", first, "--error", "so is the other")
    told = shell("session", "show", first, "--json").json()["data"]
    assert told["errors"] == ["the feed is empty", "so is the other"]
    assert told["status"] == "completed"
    assert shown(shell, "session.json")["errors"] == []


def test_a_command_that_says_what_went_wrong_has_failed_whatever_its_exit_code(
    shell: Shell,
) -> None:
    said = "import os; open(os.environ['HOLDFAST_REPORT'], 'w').write('{\"error\": \"no feed\"}')"
    assert run(shell, code=said).code == 1
    assert (shown(shell, "session.json")["status"], shown(shell, "report.json")["summary"]) == (
        "error",
        "no feed",
    )
    run(shell, "--timeout", "1s", code=f"{said}; import time; time.sleep(60)")
    (error,) = shown(shell, "session.json")["errors"]
    assert "timeout" in error
    assert "no feed" in error


NEGATIVE = [
    ("--cost", "-3"),
    ("--cost", "1e9"),
    ("--tokens", "-3"),
    ("--sources", "-3"),
    ("--sources-expected", "-1"),
    ("--pr", "-247"),
    ("--pr", "9999999999999"),
]


@pytest.mark.parametrize("words", NEGATIVE)
def test_a_number_that_cannot_be_is_refused_wherever_it_is_said(
    shell: Shell, words: tuple[str, str]
) -> None:
    shell("session", "start", "--agent", "rio")
    before = journal(shell)
    for verb in (("set",), ("end", "--outcome", "completed")):
        refused = shell("session", *verb, "--agent", "rio", *words, "--json")
        assert (refused.code, refused.error()["code"]) == (2, "bad_value")
        assert refused.error()["hint"].startswith("from 0 to")
    assert journal(shell) == before


@pytest.mark.parametrize("session", ["2026-11-15_rio_099", "2026-11-15_clay_001"])
@pytest.mark.parametrize(
    "words",
    [
        ("session", "set", "--agent", "rio", "--pr", "7"),
        ("session", "note", "--agent", "rio", "--event", "finding", "Something"),
        ("agent", "count", "--agent", "rio", "--source", "ci", "claims_accepted=1"),
    ],
)
def test_nothing_is_said_of_a_session_that_never_was(
    shell: Shell, words: tuple[str, ...], session: str
) -> None:
    shell("session", "start", "--agent", "rio")
    before = journal(shell)
    refused = shell(*words, "--session", session, "--json")
    assert refused.code == 4
    assert "session list" in refused.error()["hint"]
    assert journal(shell) == before


def test_what_is_counted_can_belong_to_a_session_that_only_the_ledger_knows(shell: Shell) -> None:
    written = shell("ledger", "write", "--agent", "rio", "--event", "info", "Hello", "--json")
    session = written.json()["data"]["session_id"]
    count = ("agent", "count", "--agent", "rio", "--source", "ci", "claims_accepted=1")
    assert shell(*count, "--session", session).code == 0


@pytest.mark.parametrize("number", ["", "x", "1.5", "1_0", "99999999999999999999999"])
def test_a_count_that_is_no_number_is_refused_and_shown_right(shell: Shell, number: str) -> None:
    words = ("agent", "count", "--agent", "rio", "--source", "ci", f"claims_accepted={number}")
    refused = shell(*words, "--json")
    assert refused.code == 2
    assert refused.error()["hint"] == "write claims_accepted=3"


def test_the_task_under_way_is_in_the_report(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio", "--task", "task-001")
    assert shown(shell, "report.json")["current_task"] == "task-001"
    shell("session", "end", "--agent", "rio", "--outcome", "completed")
    assert shown(shell, "report.json")["current_task"] is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ('{"sources": "many"}', "sources_archived"),
        ('{"sources": -4}', "sources_archived"),
        ('{"sources": 1e300}', "sources_archived"),
        ('{"cost": "free"}', "cost_usd"),
        ('{"cost": -1}', "cost_usd"),
        ('{"cost": true}', "cost_usd"),
        ('{"handoff": {"a": [1]}}', "handoff_notes"),
        ('{"pr": 1.5}', "pr_number"),
        ('{"timeout_seconds": 9}', "timeout_seconds"),
    ],
)
def test_a_claim_that_cannot_be_true_is_left_out_and_told(
    shell: Shell, said: str, field: str
) -> None:
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({said!r})"
    ran = run(shell, "--max-cost", "1", code=code)
    assert ran.code == 0
    assert field in ran.err
    assert shown(shell, "session.json").get(field) is None
    assert shown(shell, "session.json")["status"] == "completed"


def test_a_claim_of_a_megabyte_is_cut(shell: Shell) -> None:
    code = (
        "import json, os; open(os.environ['HOLDFAST_REPORT'], 'w')"
        ".write(json.dumps({'handoff': 'x' * 1_000_000, 'sources': 2}))"
    )
    assert run(shell, code=code).code == 0
    session = shown(shell, "session.json")
    assert session["sources_archived"] == 2
    assert len(session["handoff_notes"]) < 50_000


@pytest.mark.parametrize(
    "makes",
    [
        "os.mkfifo(path)",
        "os.symlink('/dev/zero', path)",
        "os.mkdir(path)",
        "open(path, 'wb').truncate(1 << 40)",
        "open(path, 'wb').write(b'\\xff\\xfe{')",
        "open(path, 'w').write('[' * 100000)",
        "import shutil; shutil.rmtree(os.path.dirname(path))",
    ],
)
def test_whatever_stands_in_place_of_the_report_the_session_ends(shell: Shell, makes: str) -> None:
    ran = run(
        shell, "--max-cost", "1", code=f"import os; path = os.environ['HOLDFAST_REPORT']; {makes}"
    )
    assert ran.code == 0, ran.err
    assert shown(shell, "session.json")["status"] == "completed"

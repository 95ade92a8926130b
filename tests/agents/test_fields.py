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


def by_report(shell: Shell) -> None:
    said: dict[str, Any] = {
        name.replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in {**AT_START, **AT_END}.items()
    }
    said["cost"] = 0.25
    text = json.dumps(json.dumps(said))
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({text}); os._exit(3)"
    assert run(shell, *START, code=code).code == 3


def by_flags_of_run(shell: Shell) -> None:
    said = {
        name.replace("-", "_"): int(value) if value.isdecimal() else value
        for name, value in {**AT_END, "cost": ""}.items()
        if value
    }
    text = json.dumps(json.dumps({**said, "cost_usd": 0.25}))
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({text}); os._exit(3)"
    assert run(shell, *START, *flags(AT_START), code=code).code == 3


WAYS = [by_start_and_end, by_set_meanwhile, by_set_afterwards, by_report, by_flags_of_run]


@pytest.mark.parametrize("way", WAYS)
def test_every_field_can_be_filled_and_is_read_back(shell: Shell, way: Any) -> None:
    way(shell)
    session, report = shown(shell, "session.json"), shown(shell, "report.json")
    name = journal(shell)[0]["session_id"]
    assert session["session_id"] == report["last_session"]["id"] == name
    assert {field: session[field] for field in EXPECTED} == EXPECTED
    assert (session["agent"], session["type"], session["status"]) == ("rio", "research", "error")
    assert (session["timeout_seconds"], session["task"]) == (5400, "task-001")
    assert len(session["errors"]) == 1
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

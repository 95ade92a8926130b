"""Tasks that were begun and never finished, and runs that never leave one behind."""

from __future__ import annotations

import pytest

from holdfast.testing import DAY, Turner
from tests.ledger.shell import Shell, Verbs

HOUR = 3600.0


def orphans(verbs: Verbs, **more: str) -> list[tuple[str, str]]:
    found = verbs("ledger orphans", **more)
    assert found.exit_code == (1 if found.rows else 0)
    return [(row["task_id"], row["why"]) for row in found.rows]


def test_a_task_of_an_agent_that_is_at_work_is_none(verbs: Verbs, clock: Turner) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    clock.advance(60)
    assert orphans(verbs) == []


def test_a_task_is_one_when_its_agent_fell_silent_and_none_once_it_has_a_result(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    clock.advance(600)
    assert orphans(verbs) == [("wo-1", "the agent is offline")]
    verbs.write("done", event="task_result", task="wo-1", data='{"status":"failure"}')
    clock.advance(600)
    assert orphans(verbs) == []


def test_a_task_is_one_when_its_session_is_over(verbs: Verbs) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    verbs.write("b", event="task_start", task="wo-2", session="new")
    assert orphans(verbs) == [("wo-1", "its session is over")]


def test_a_task_is_one_after_so_many_hours_though_its_agent_lives(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    clock.advance(3 * HOUR)
    verbs.write("", event="heartbeat")
    assert orphans(verbs) == []
    assert orphans(verbs, older_than="2h") == [("wo-1", "nothing was heard of it for too long")]


def test_only_tasks_begun_since_then_and_only_of_one_agent(verbs: Verbs, clock: Turner) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    clock.advance(40 * DAY)
    verbs.write("b", event="task_start", task="wo-2", agent="clay")
    clock.advance(600)
    assert [task for task, _ in orphans(verbs)] == ["wo-2"]
    assert [task for task, _ in orphans(verbs, since="60d")] == ["wo-2", "wo-1"]
    assert orphans(verbs, agent="rio") == []


def test_a_task_begun_again_is_open_until_its_last_start_has_a_result(verbs: Verbs) -> None:
    for event in ("task_start", "task_result", "task_start"):
        verbs.write("a", event=event, task="wo-1")
    verbs.write("next", session="new")
    assert [task for task, _ in orphans(verbs)] == ["wo-1"]


ENDS = [
    ("true", 0, "success"),
    ("exit 7", 7, "failure"),
    ("kill -9 $$", 137, "failure"),
    ("sleep 60", 124, "failure"),
]


@pytest.mark.parametrize(("script", "code", "status"), ENDS)
def test_a_run_has_exactly_one_result_whatever_becomes_of_it(
    shell: Shell, script: str, code: int, status: str
) -> None:
    limit = ("--timeout", "1s") if code == 124 else ()
    ran = shell("run", "--agent", "cls", "--task", "wo-9", *limit, "--", "sh", "-c", script)
    assert ran.code == code
    rows = shell("ledger", "list", "--task", "wo-9", "--json").rows()
    assert [row["event"] for row in rows if row["event"].startswith("task_")] == [
        "task_start",
        "task_result",
    ]
    data = rows[-1]["data"]
    assert (data["status"], "duration_sec" in data) == (status, True)
    if code < 124:
        assert data["exit_code"] == code
    assert shell("ledger", "orphans").code == 0

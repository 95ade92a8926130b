"""However sessions begin and end, each has one beginning and one end, and the counts add up."""

from __future__ import annotations

import sys
from collections import Counter
from random import Random

import pytest

from tests.agents.world import (
    assert_counts,
    assert_one_end_each,
    events,
    journal,
    lifetime,
    run,
    shown,
    until,
)
from tests.ledger.shell import Shell

FIND_WRAPPER = """
import os, signal
keeper = os.getppid()
with open(f"/proc/{keeper}/stat") as file:
    wrapper = int(file.read().rpartition(")")[2].split()[1])
os.kill(wrapper, signal.SIGKILL)
signal.pause()
"""
"""Kills the process that wraps it, which a command in a pid namespace could not."""


def test_a_session_begins_goes_on_and_ends(shell: Shell) -> None:
    (shell.home / "state/rio/memory.md").write_text("# Rio\n\n## Dead Ends\n- fees\n", "utf-8")
    words = ("session", "start", "--agent", "rio", "--type", "research", "--timeout", "5400s")
    name = shell("--json", *words).json()["data"]["session_id"]
    session, report = shown(shell, "session.json"), shown(shell, "report.json")
    assert (session["status"], session["session_id"]) == ("running", name)
    assert session["timeout_seconds"] == 5400
    assert report["status"] == "researching"
    assert [(line["event"], line["session_id"]) for line in journal(shell)] == [
        ("session_start", name)
    ]
    assert "- fees" in shell("session", "context", "--agent", "rio").out
    words = ("session", "end", "--agent", "rio", "--outcome", "completed", "--sources", "8")
    assert shell(*words).code == 0
    session, report = shown(shell, "session.json"), shown(shell, "report.json")
    assert session["ended_at"] >= session["started_at"]
    assert report["status"] == "idle"
    assert report["last_session"]["outcome"] == "completed"
    counted = lifetime(shell)
    assert (counted["sessions_total"], counted["sessions_completed"]) == (1, 1)
    assert counted["sources_archived"] == 8
    end = journal(shell)[-1]
    assert (end["event"], end["session_id"]) == ("session_end", name)
    assert_one_end_each(shell)


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_all_sessions_are_counted_once(shell: Shell, seed: int) -> None:
    chance = Random(seed)
    expected: Counter[str] = Counter()
    open_roles: set[str] = set()
    for _ in range(14):
        role = chance.choice(["", "extract"])
        as_role = ("--role", role) if role else ()
        act = chance.choice(["completed", "timeout", "error", "run", "fails", "slow", "refused"])
        if act in ("completed", "timeout", "error"):
            if role not in open_roles:
                assert shell("session", "start", "--agent", "rio", *as_role).code == 0
                open_roles.add(role)
            if chance.random() < 0.7:
                done = shell("session", "end", "--agent", "rio", *as_role, "--outcome", act)
                assert done.code == 0, done.err
                open_roles.remove(role)
                expected[act] += 1
        elif role in open_roles or act == "refused":
            if role in open_roles:
                assert run(shell, *as_role, code="pass").code == 5
            else:
                assert shell(
                    "session", "end", "--agent", "rio", *as_role, "--outcome", "error"
                ).code
        elif act == "run":
            assert run(shell, *as_role, code="pass").code == 0
            expected["completed"] += 1
        elif act == "fails":
            assert run(shell, *as_role, code="raise SystemExit(3)").code == 3
            expected["error"] += 1
        else:
            ran = run(shell, "--timeout", "0.2s", *as_role, code="import time; time.sleep(600)")
            assert ran.code == 124
            expected["timeout"] += 1
        counted, lines = lifetime(shell), journal(shell)
        assert_counts(counted, lines)
        started = sum(line["event"] == "session_start" for line in lines)
        assert started == counted["sessions_total"] + len(open_roles)
    for role in open_roles:
        as_role = ("--role", role) if role else ()
        shell("session", "end", "--agent", "rio", *as_role, "--outcome", "error")
        expected["error"] += 1
    assert_one_end_each(shell)
    counted = lifetime(shell)
    for outcome in ("completed", "timeout", "error"):
        assert counted[f"sessions_{outcome}"] == expected[outcome]
    listed = shell("--json", "session", "list", "--limit", "0").rows()
    assert len(listed) == expected.total()


def test_a_wrapper_killed_by_its_own_command_is_one_crash(shell: Shell) -> None:
    code = FIND_WRAPPER
    killed = shell("run", "--agent", "rio", "--", sys.executable, "-c", code)
    if killed.code != -9:
        pytest.skip("the command does not see its wrapper here")
    until(lambda: events(shell)[-1:] == ["session_end"])
    assert run(shell, code="pass").code == 0
    assert lifetime(shell)["sessions_crashed"] == 1
    assert_one_end_each(shell)


def test_a_child_that_fails_keeps_its_code_and_a_slow_one_is_a_timeout(shell: Shell) -> None:
    assert run(shell, code="raise SystemExit(3)").code == 3
    session = shown(shell, "session.json")
    assert (session["status"], session["exit_code"]) == ("error", 3)
    code = "import time; time.sleep(600)"
    assert run(shell, "--timeout", "0.3s", code=code).code == 124
    session = shown(shell, "session.json")
    assert (session["status"], session["exit_code"]) == ("timeout", 124)
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run(shell, code=code).code == 128 + 11
    session = shown(shell, "session.json")
    assert (session["status"], session["signal"], session["exit_code"]) == ("error", 11, 139)
    assert_one_end_each(shell)


def test_sources_are_counted_whenever_they_are_told(shell: Shell) -> None:
    def session(*words: str) -> None:
        done = shell("session", words[0], "--agent", "rio", *words[1:])
        assert done.code == 0, done.err

    session("start")
    session("set", "--sources", "5")
    session("end", "--outcome", "completed")
    assert lifetime(shell)["sources_archived"] == shown(shell, "session.json")["sources_archived"]
    session("set", "--sources", "7", "--disconfirm", "a counterexample")
    assert lifetime(shell)["sources_archived"] == 7
    assert lifetime(shell)["disconfirmation_attempts"] == 1
    session("set", "--sources", "7", "--disconfirm", "the same again")
    assert lifetime(shell)["sources_archived"] == 7
    assert lifetime(shell)["disconfirmation_attempts"] == 1


def test_what_is_said_late_is_said_of_the_session_it_names(shell: Shell) -> None:
    for summary in ("first", "second"):
        shell("session", "start", "--agent", "rio")
        words = ("--outcome", "completed", "--summary", summary)
        shell("session", "end", "--agent", "rio", *words)
    first, second = (line["session_id"] for line in journal(shell)[::2])
    words = ("--session", first, "--pr", "247", "--summary", "told late")
    assert shell("session", "set", "--agent", "rio", *words).code == 0
    assert shell("session", "set", "--agent", "rio", "--pr", "248").code == 0
    found = [shell("--json", "session", "show", name).json()["data"] for name in (first, second)]
    assert [each["pr_number"] for each in found] == [247, 248]
    report = shown(shell, "report.json")
    assert report["last_session"]["pr_number"] == 248
    assert report["summary"] == "second"

"""An agent over days, as its people meet it: told, killed, written to, renamed, and still whole."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.agents.tasks import New
from holdfast.process import process_start, this_process
from holdfast.store.home import Home
from tests.agents.world import (
    PATIENCE,
    assert_one_end_each,
    events,
    journal,
    lifetime,
    run,
    running,
    shown,
    until,
)
from tests.desk.test_inbox import SENDER
from tests.ledger.shell import Shell
from tests.ops.foreign import put, report
from tests.store.children import fork


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    return made


def parsed_files(folder: Path) -> dict[str, Any]:
    """Every file of an agent that programs read, parsed; a broken one is an error."""
    found: dict[str, Any] = {}
    for file in folder.rglob("*"):
        if file.suffix == ".json" and file.name[0] != ".":
            found[file.name] = json.loads(file.read_bytes())
        elif file.suffix == ".jsonl" and file.name[0] != ".":
            *whole, _ = file.read_bytes().split(b"\n")
            found[file.name] = [json.loads(line) for line in whole]
    return found


# --- sessions -------------------------------------------------------------------------------


def test_who_begins_a_session_is_given_the_notes_and_what_is_to_be_done(shell: Shell) -> None:
    shell("memory", "note", "--agent", "rio", "--section", "dead ends", "The fee page is empty")
    shell("task", "add", "--agent", "rio", "Find out who votes")
    shell("task", "add", "--agent", "rio", "Ask for a key")
    shell("task", "done", "--agent", "rio", "task-002")
    before = events(shell)
    words = ("session", "start", "--agent", "rio", "--type", "research", "--timeout", "5400")
    begun = shell(*words, "--json").json()["data"]
    given = Path(begun["context"]).read_text("utf-8")
    for text in (given, shell("session", "context", "--agent", "rio").out):
        assert "The fee page is empty" in text
        assert "Find out who votes" in text
        assert "Ask for a key" not in text
    assert events(shell) == [*before, "session_start"]
    assert journal(shell)[-1]["session_id"] == begun["session_id"]
    assert shown(shell, "session.json")["session_id"] == begun["session_id"]
    assert shown(shell, "session.json")["timeout_seconds"] == 5400


def children(pid: int) -> list[int]:
    return [
        int(each)
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for each in file.read_text().split()
    ]


def test_a_wrapper_that_dies_with_all_its_helpers_is_a_crash_that_the_next_one_records(
    shell: Shell, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    code = f"import time; open({str(up)!r}, 'w').write('x'); time.sleep(600)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words) as wrapper:
        until(lambda: up.exists() and up.read_text())
        helpers = children(wrapper.pid)
        assert helpers
        for pid in (*helpers, wrapper.pid):
            os.kill(pid, signal.SIGSTOP)
        for pid in (wrapper.pid, *helpers):
            os.kill(pid, signal.SIGKILL)
        wrapper.wait(PATIENCE)
    # Dead is enough: whoever got them as children may take his time to take note of it.
    until(lambda: not any(map(process_start, helpers)))
    assert events(shell) == ["session_start"], "nobody was left to put it on record"

    (row,) = shell("status", "--json").rows()
    assert (row["state"], row["recorded_state"]) == ("crashed", "busy")
    assert [each["status"] for each in row["sessions"]] == ["crashed"]
    assert parsed_files(shell.home / "state/rio")["session.json"]["status"] == "running"

    dead = journal(shell)[0]["session_id"]
    assert f"{dead} had crashed" in run(shell, code="pass").err
    buried = ["session_start", "error", "session_end"]
    assert events(shell) == [*buried, "session_start", "session_end"]
    assert (lifetime(shell)["sessions_crashed"], lifetime(shell)["sessions_total"]) == (1, 2)
    assert_one_end_each(shell)


KILLS = 40
"""The harness `sessions` kills many more, and proves of each that it struck."""


def _work(path: str, out: int) -> None:
    with Home.open(path) as home, Agent(home, "rio") as rio:
        os.write(out, b"up\n")
        while True:
            opened = rio.start(Start("research"), owner=this_process())
            rio.desk.tasks.add(New("read on"))
            said = {"summary": opened.id, "sources_archived": 1}
            rio.end("", opened.fence, End("completed", fields=said))
            os.write(out, f"{opened.id}\n".encode())


def _killed_at_work(path: str, seconds: float | None) -> list[str]:
    """The sessions that somebody acknowledged before he was killed; without a time, one."""
    read, write = os.pipe()
    pid = fork()
    if pid == 0:
        try:
            _work(path, write)
        finally:
            os._exit(1)
    os.close(write)
    with open(read, encoding="utf-8") as told:
        try:
            assert told.readline() == "up\n"
            first = told.readline() if seconds is None else ""
            time.sleep(seconds or 0.0)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return [*first.split(), *told.read().split()]


def test_kills_leave_every_file_as_it_was_before_or_after_a_change(
    tmp_path: Path,
) -> None:
    home, dice = tmp_path / "home", random.Random(11)
    Home.open(str(home), create=True, timezone="UTC").close()
    begun_at = time.monotonic()
    acked = _killed_at_work(str(home), None)
    whole = time.monotonic() - begun_at
    in_between, shown_last, counted_last = 0, -1, 0
    for _ in range(KILLS):
        acked += _killed_at_work(str(home), dice.uniform(0.0, 1.6 * whole))
        files = parsed_files(home / "state/rio")
        lines = [line for line in files.get("journal.jsonl", []) if "event" in line]
        told = Counter(str(line["event"]) for line in lines)
        ends = [line for line in lines if line["event"] == "session_end"]
        completed = [line["session_id"] for line in ends if line["outcome"] == "completed"]
        assert set(acked) <= set(completed)
        if "metrics.json" in files:
            counted = files["metrics.json"]["lifetime"]
            # Whoever dies before the views does so again and again: old, but never older.
            assert counted_last <= counted["sessions_completed"] <= len(completed)
            counted_last = counted["sessions_completed"]
            assert counted["sources_archived"] == counted["sessions_completed"]
            in_between += len(completed) != counted["sessions_completed"]
        if "tasks.json" in files:
            assert told["task_added"] - len(files["tasks.json"]["tasks"]) in (0, 1)
        if files.get("report.json", {}).get("last_session"):
            begun = [line["session_id"] for line in lines if line["event"] == "session_start"]
            at = begun.index(files["report.json"]["last_session"]["id"])
            in_between += at < len(begun) - 1
            assert at >= shown_last
            shown_last = at
    assert len(acked) > 1, "no kill came after an acknowledgement"
    assert in_between, "no kill came between a line and its view"
    shell = Shell(tmp_path)
    assert shell("run", "--agent", "rio", "--", "true").code == 0
    metrics = shell("agent", "show", "rio", "--json").json()["data"]["metrics"]["lifetime"]
    assert metrics["sessions_completed"] >= len(acked) + 1
    assert shell("--json", "check").json()["counts"]["broken"] == 0
    assert_one_end_each(shell)


def test_a_second_session_of_the_day_leaves_the_record_of_the_first_alone(shell: Shell) -> None:
    def session(text: str) -> str:
        """The id of a session that leaves some notes behind."""
        shell("session", "start", "--agent", "rio", "--branch", f"rio/{text}")
        shell("session", "note", "--agent", "rio", "--event", "finding", text)
        words = ("--outcome", "completed", "--handoff", text)
        assert shell("session", "end", "--agent", "rio", *words).code == 0
        return str(shown(shell, "session.json")["session_id"])

    first = session("first")
    before = shell("session", "show", first, "--json").json()["data"]
    assert session("second") != first
    again = shell("session", "show", first, "--json").json()["data"]
    assert again == before
    assert (again["branch"], again["handoff_notes"]) == ("rio/first", "first")
    assert len({each["session_id"] for each in shell("session", "list", "--json").rows()}) == 2


# --- messages -------------------------------------------------------------------------------


def test_a_reader_sees_whole_messages_only_while_others_deliver(shell: Shell) -> None:
    folder = shell.home / "state/rio/inbox"
    seen: dict[str, bytes] = {}

    def look() -> None:
        for name in os.listdir(folder):
            if name not in seen and name.endswith(".json") and name[0] != ".":
                seen[name] = (folder / name).read_bytes()
                assert json.loads(seen[name])["body"] == "b" * 300

    command = [sys.executable, "-c", SENDER, str(shell.home)]
    senders = [
        subprocess.Popen([*command, str(number), "50"], env=shell.environment())
        for number in range(5)
    ]
    try:
        deadline = time.monotonic() + PATIENCE
        while any(each.poll() is None for each in senders):
            assert time.monotonic() < deadline
            look()
    finally:
        for each in senders:
            each.kill()
            each.wait()
    assert [each.returncode for each in senders] == [0] * 5
    look()
    subjects = {json.loads(data)["subject"] for data in seen.values()}
    assert len(seen) == len(subjects) == 250
    assert {name: (folder / name).read_bytes() for name in seen} == seen


def test_a_message_under_a_name_that_is_taken_replaces_nothing(shell: Shell) -> None:
    send = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "s", "--id", "abc")
    assert shell(*send, "first").code == 0
    before = (shell.home / "state/rio/inbox/abc.json").read_bytes()
    assert shell(*send, "second").code == 1
    assert (shell.home / "state/rio/inbox/abc.json").read_bytes() == before
    shell("inbox", "take", "--agent", "rio")
    shell("inbox", "ack", "abc", "--agent", "rio")
    assert shell(*send, "third").code == 1
    assert shell("inbox", "list", "--agent", "rio", "--json").rows() == []
    (done,) = shell("inbox", "list", "--agent", "rio", "--done", "--json").rows()
    show = shell("inbox", "show", done["id"], "--agent", "rio", "--json").json()["data"]
    assert show["body"] == "first"


# --- tasks and reports ----------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "status"), [("done", "completed"), ("drop", "dropped")])
def test_the_end_of_a_task_has_a_time_and_an_outcome(shell: Shell, verb: str, status: str) -> None:
    shell("task", "add", "--agent", "rio", "Find out who votes")
    ran = shell("task", verb, "--agent", "rio", "task-001", "--outcome", "nobody does", "--json")
    assert ran.code == 0
    (task,) = shown(shell, "tasks.json")["tasks"]
    assert (task["status"], task["outcome"]) == (status, "nobody does")
    assert task["completed_at"] >= task["created_at"]
    refused = shell("task", "start", "--agent", "rio", "task-001", "--json")
    assert (refused.code, refused.error()["hint"]) == (2, "allowed: reopen")
    assert shown(shell, "tasks.json")["tasks"] == [task]
    assert shell("task", "reopen", "--agent", "rio", "task-001").code == 0
    (task,) = shown(shell, "tasks.json")["tasks"]
    assert (task["status"], task["completed_at"], task["outcome"]) == ("pending", None, None)


def test_a_field_that_only_another_system_knows_survives_sessions_of_ours(shell: Shell) -> None:
    theirs = report("clay", mood={"of": ["the", 1]})
    put(shell.cwd / "tree/clay/report.json", json.dumps(theirs))
    assert shell("import", str(shell.cwd / "tree"), "--layout", "teleo").code == 0
    for summary in ("first", "second"):
        assert run(shell, agent="clay", code="pass").code == 0
        words = ("session", "set", "--agent", "clay", "--summary", summary)
        assert shell(*words).code == 0
        found = shown(shell, "report.json", "clay")
        assert found["mood"] == {"of": ["the", 1]}
        assert (found["summary"], found["last_session"]["outcome"]) == (summary, "completed")
    file = shell.home / "state/clay/report.json"
    before = file.read_bytes()
    judged = shell("validate", str(file), "--json")
    assert (judged.code, [row["level"] for row in judged.rows()]) == (0, ["warning"])
    file.unlink()
    assert shell("rebuild").code == 0
    assert file.read_bytes() == before


def test_a_hand_written_field_of_a_report_is_kept_beside_it(shell: Shell) -> None:
    file = shell.home / "state/rio/report.json"
    mine = json.dumps(json.loads(file.read_bytes()) | {"mood": "good"}, indent=2)
    file.write_text(mine, encoding="utf-8")
    assert shell("validate", str(file)).code == 0
    assert run(shell, code="pass").code == 0
    (kept,) = file.parent.glob("report.json.edited-*")
    assert kept.read_text("utf-8") == mine

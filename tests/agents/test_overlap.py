"""One agent, many who would start it: one session at a time, and two if they have roles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.clock import FakeClock
from holdfast.process import Owner, process_start, this_process
from holdfast.store.home import Home
from tests.agents.world import (
    PATIENCE,
    assert_one_end_each,
    events,
    files,
    journal,
    lifetime,
    run,
    running,
    shown,
    until,
)
from tests.ledger.shell import Shell

CONTENDERS = 10


def test_of_many_at_once_one_runs_and_the_others_name_it(shell: Shell, tmp_path: Path) -> None:
    fifo, ran = tmp_path / "fifo", tmp_path / "ran"
    os.mkfifo(fifo)
    code = f"open({str(ran)!r}, 'a').write('x'); print(open({str(fifo)!r}).read())"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with ExitStack() as stack:
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        all_of_them = [
            stack.enter_context(running(shell, *words, **options)) for _ in range(CONTENDERS)
        ]
        until(lambda: sum(each.poll() is None for each in all_of_them) <= 1)
        (winner,) = [each for each in all_of_them if each.poll() is None]
        losers = [each for each in all_of_them if each is not winner]
        assert {each.returncode for each in losers} == {5}
        for each in losers:
            _, said = each.communicate()
            assert f"process {winner.pid}".encode() in said
            assert journal(shell)[0]["session_id"].encode() in said
        until(ran.exists)
        fifo.write_text("go\n")
        assert winner.wait(PATIENCE) == 0
    assert ran.read_text() == "x"
    assert events(shell) == ["session_start", "session_end"]
    assert_one_end_each(shell)


def test_a_refused_start_changes_no_file(shell: Shell) -> None:
    assert shell("session", "start", "--agent", "rio").code == 0
    before = files(shell, "state/rio", "ledger")
    refused = shell("session", "start", "--agent", "rio")
    assert refused.code == 5
    assert "hint:" in refused.err
    assert run(shell, code="pass").code == 5
    assert files(shell, "state/rio", "ledger") == before


def _gone() -> Owner:
    process = subprocess.Popen(["true"])
    owner = this_process()._replace(pid=process.pid, started=process_start(process.pid) or 1)
    process.wait()
    return owner


def _another_program() -> Owner:
    """A number that has been given to somebody else since."""
    return this_process()._replace(pid=os.getppid(), started=process_start(os.getppid()) + 7)


def _another_boot() -> Owner:
    return this_process()._replace(boot="00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize("owner", [_gone, _another_program, _another_boot])
def test_a_lease_of_somebody_who_is_gone_stops_nobody(shell: Shell, owner: Any) -> None:
    with Home.open(str(shell.home)) as home, Agent(home, "rio") as rio:
        dead = rio.start(Start("research"), owner=owner()).id
    listed = shell("--json", "session", "list").rows()
    assert [(row["session_id"], row["status"]) for row in listed] == [(dead, "crashed")]
    ran = run(shell, code="pass")
    assert ran.code == 0
    assert f"{dead} had crashed" in ran.err
    assert events(shell)[:3] == ["session_start", "error", "session_end"]
    assert lifetime(shell)["sessions_crashed"] == 1
    assert_one_end_each(shell)


def test_a_detached_session_of_an_earlier_boot_stops_nobody(shell: Shell) -> None:
    clock = FakeClock(time.time() - 600)
    with Home.open(str(shell.home), clock=clock) as home, Agent(home, "rio") as rio:
        dead = rio.start(Start("research", timeout=86_400.0)).id
    started = shell("session", "start", "--agent", "rio")
    assert started.code == 0
    assert f"{dead} had crashed" in started.err


def test_a_frozen_wrapper_keeps_its_session(shell: Shell) -> None:
    code = "import time; print('up', flush=True); time.sleep(600)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        assert wrapper.stdout.readline() == b"up\n"
        wrapper.send_signal(signal.SIGSTOP)
        assert run(shell, code="pass").code == 5
        assert shell("--json", "session", "list").rows()[0]["status"] == "running"
        wrapper.send_signal(signal.SIGCONT)
        wrapper.send_signal(signal.SIGTERM)
        assert wrapper.wait(PATIENCE) == 128 + signal.SIGTERM
    assert_one_end_each(shell)


def test_two_roles_at_once_are_both_seen_and_counted(shell: Shell, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ("run", "--agent", "rio", "--type", "research", "--", "cat", str(fifo))
    with running(shell, *words) as research:
        until(lambda: events(shell) == ["session_start"])
        extract = run(shell, "--type", "extract", "--role", "extract", code="print('done')")
        assert extract.code == 0
        assert research.poll() is None
        one, other = shown(shell, "report.json"), shown(shell, "session.extract.json")
        assert one["status"] == "researching"
        assert one["roles"]["extract"]["last_session"]["outcome"] == "completed"
        assert other["status"] == "completed"
        listed = shell("--json", "session", "list").rows()
        assert [(row["role"], row["status"]) for row in listed] == [
            (None, "running"),
            ("extract", "completed"),
        ]
        fifo.write_text("")
        assert research.wait(PATIENCE) == 0
    newest = shown(shell, "session.json")
    assert (newest["type"], newest["status"]) == ("research", "completed")
    assert shown(shell, "session.extract.json") == other
    assert lifetime(shell)["sessions_total"] == 2
    assert_one_end_each(shell)


@pytest.mark.parametrize("role", ["../leo", "a/b", "x" * 65, ".", "a b"])
def test_a_hostile_role_is_refused_before_anything_is_written(shell: Shell, role: str) -> None:
    before = files(shell, "state", "ledger")
    assert run(shell, "--role", role, code="pass").code == 2
    assert shell("session", "start", "--agent", "rio", "--role", role).code == 2
    assert files(shell, "state", "ledger") == before


def test_two_sessions_within_a_second_are_two_records(tmp_path: Path) -> None:
    clock, found = FakeClock(1_795_000_000.0), list[dict[str, Any]]()
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC", clock=clock) as home:
        for text in ("first", "second"):
            with Agent(home, "rio") as rio:
                opened = rio.start(Start("research"))
                rio.note("finding", text, {})
                rio.end("", opened.fence, End("completed", fields={"handoff_notes": text}))
        with Agent(home, "rio") as rio:
            found = [line.record for line in rio.lines()]
    ids = [line["session_id"] for line in found if line.get("event") == "session_start"]
    assert len(set(ids)) == 2
    notes = [(each["session_id"], each["text"]) for each in found if each.get("event") == "finding"]
    assert notes == [(ids[0], "first"), (ids[1], "second")]
    handoffs = [each["handoff_notes"] for each in found if each.get("event") == "session_end"]
    assert handoffs == ["first", "second"]


@pytest.fixture
def in_memory() -> Iterator[Shell]:
    """A home where a sync costs nothing: what it keeps is tried elsewhere."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        made = Shell(Path(place))
        made("init", "rio", "--timezone", "UTC")
        yield made


def test_eight_who_write_at_once_lose_no_line(in_memory: Shell) -> None:
    shell = in_memory
    code = (
        "import sys\n"
        "from holdfast.store.home import Home\n"
        "from holdfast.agents.agent import Agent\n"
        "with Home.open(sys.argv[1]) as home, Agent(home, 'rio') as rio:\n"
        "    for n in range(1000):\n"
        "        rio.journal.log.append({'event': 'finding', 'by': sys.argv[2], 'n': n})\n"
    )
    command = [sys.executable, "-c", code, str(shell.home)]
    writers = [
        subprocess.Popen([*command, str(number)], env=shell.environment()) for number in range(8)
    ]
    assert [writer.wait(PATIENCE) for writer in writers] == [0] * 8
    told = [(line["by"], line["n"]) for line in journal(shell)]
    assert len(told) == len(set(told)) == 8000
    for number in range(8):
        assert [n for by, n in told if by == str(number)] == list(range(1000))
    assert shell("check").code == 0


def test_a_torn_last_line_is_one_bad_line_and_the_next_stands_on_its_own(shell: Shell) -> None:
    shell("session", "start", "--agent", "rio")
    with (shell.home / "state/rio/journal.jsonl").open("ab") as file:
        file.write(b'{"ts":"2026-11-15T10:00:00Z","event":"find')
    noted = shell("session", "note", "--agent", "rio", "--event", "finding", "whole")
    assert noted.code == 0
    lines = (shell.home / "state/rio/journal.jsonl").read_bytes().splitlines()
    bad = [line for line in lines if not _parses(line)]
    assert len(bad) == 1
    assert json.loads(lines[-1])["text"] == "whole"
    assert shell("session", "end", "--agent", "rio", "--outcome", "completed").code == 0
    assert lifetime(shell)["sessions_completed"] == 1
    counts = shell("--json", "check").json()["counts"]
    assert (counts["broken"], counts["harmless"]) == (0, 1)


def _parses(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True

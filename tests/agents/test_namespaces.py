"""Sessions seen from another pid namespace, where the number of their owner says nothing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.agents.world import journal, running, shown, until
from tests.ledger.shell import PATIENCE, PROGRAM, Shell, ended
from tests.machines import machine, needs_machines

_ALONE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")


def _is_to_be_had() -> bool:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run([*_ALONE, "true"], check=False).returncode == 0


pytestmark = pytest.mark.skipif(not _is_to_be_had(), reason="needs root and pid namespaces")
HELD = {"HOLDFAST_CGROUP": "/nonexistent"}
"""What makes root hold a command by a pid namespace."""


def holdfast(shell: Shell, *words: str) -> str:
    return shlex.join(map(str, [PROGRAM, "--home", str(shell.home), *words]))


def started_in_a_namespace(shell: Shell, program: str) -> subprocess.Popen[bytes]:
    command = [*_ALONE, *map(str, shell.command(("run", "--agent", "rio", "--", "sh", "-c")))]
    return shell.start(command=[*command, program], env=HELD)


def test_a_command_in_a_namespace_sees_its_session_running(shell: Shell) -> None:
    hook = json.dumps({"session_id": "c1", "hook_event_name": "SessionStart"})
    program = "; ".join(
        (
            holdfast(shell, "--json", "session", "list"),
            holdfast(shell, "--json", "session", "sweep"),
            f"echo {shlex.quote(hook)} | {holdfast(shell, 'hook', 'claude-code')} >/dev/null",
            holdfast(shell, "--json", "run", "--agent", "rio", "--", "true"),
            "echo code $?",
        )
    )
    ran = shell("run", "--agent", "rio", "--", "sh", "-c", program, env=HELD)
    listed, swept, *_, last = ran.out.splitlines()
    assert [row["status"] for row in json.loads(listed)["rows"]] == ["running"]
    assert json.loads(swept)["rows"] == []
    assert last == "code 5"
    events = [line["event"] for line in journal(shell)]
    assert (events.count("session_start"), events.count("session_end")) == (1, 1)
    assert journal(shell)[-1]["outcome"] == "completed"


def test_a_session_in_a_namespace_is_running_for_those_outside(
    shell: Shell, tmp_path: Path
) -> None:
    began, fifo = tmp_path / "began", tmp_path / "fifo"
    os.mkfifo(fifo)
    with ended(started_in_a_namespace(shell, f"echo > {began}; cat {fifo}")) as owner:
        until(began.exists)
        (row,) = shell("--json", "session", "list").rows()
        assert row["status"] == "running"
        assert shell("run", "--agent", "rio", "--", "true").code == 5
        assert shell("--json", "session", "sweep").rows() == []
        fifo.write_text("done\n")
        owner.wait(PATIENCE)
    assert journal(shell)[-1]["outcome"] == "completed"
    assert shell("run", "--agent", "rio", "--", "true").code == 0


def test_a_session_that_crashed_in_a_namespace_is_found_from_outside(
    shell: Shell, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    with ended(started_in_a_namespace(shell, f"echo > {began}; sleep 600")):
        until(began.exists)
    until(lambda: shell("--json", "session", "list").rows()[0]["status"] != "running")
    assert shell("--json", "status").rows()[0]["state"] == "crashed"
    ran = shell("run", "--agent", "rio", "--", "true")
    assert (ran.code, "crashed" in ran.err) == (0, True)
    assert shown(shell, "metrics.json")["lifetime"]["sessions_crashed"] == 1


def test_a_session_that_crashed_outside_is_found_from_a_namespace(
    shell: Shell, tmp_path: Path
) -> None:
    began = tmp_path / "began"
    program = f"echo > {began}; exec sleep 600"
    with running(shell, "run", "--agent", "rio", "--", "sh", "-c", program, env=HELD):
        until(began.exists)
        listed = shell.run([*_ALONE, *shell.command(("--json", "session", "list"))])
        assert listed.rows()[0]["status"] == "running"
    listed = shell.run([*_ALONE, *shell.command(("--json", "session", "list"))])
    assert listed.rows()[0]["status"] in ("crashed", "error")


@needs_machines
def test_a_session_and_a_claim_of_another_machine_are_left_to_it(
    shell: Shell, tmp_path: Path
) -> None:
    far = machine(tmp_path)
    sent = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "See #12")
    assert shell("init", "rio", "leo").code == 0
    assert shell(*sent).code == 0
    for words in (("session", "start", "--agent", "rio"), ("inbox", "take", "--agent", "rio")):
        command = [*far, *map(str, shell.command(words))]
        assert shell.run(command).code == 0
    listed = shell("--json", "session", "list").rows()
    assert [row["status"] for row in listed] == ["running"]
    assert shell("session", "start", "--agent", "rio").code == 5
    assert shell("--json", "session", "sweep").rows() == []
    assert shell("--json", "inbox", "take", "--agent", "rio").rows() == []
    again = [*machine(tmp_path, boot=2), *map(str, shell.command(("session", "list", "--json")))]
    (row,) = json.loads(shell.run(again).out)["rows"]
    assert row["status"] == "crashed", "that machine was restarted"

"""Whoever watches over the programs of a job is killed or stopped: nothing of them goes on."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.proc import procfs
from tests.jobs.desk import DONE, Desk
from tests.ledger.shell import PATIENCE, ended
from tests.proc.world import eventually, lacking, living, named

SEEN = pytest.mark.skipif(
    lacking("cgroup") is not None and os.geteuid() == 0,
    reason="in a pid namespace a program sees no keeper, and the kernel ends all of it",
)

BEGIN = """
import json, os, signal, subprocess, sys, time
sys.stdin.read()
def told(word):
    with open(sys.argv[1], "a") as file:
        file.write(word + "\\n")
def daemon():
    subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL,
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
tries = os.path.exists(sys.argv[1]) and open(sys.argv[1]).read().count("began")
told("began")
"""
ANSWER = f"\nprint(json.dumps({DONE!r}))"
STAY = "\nwhile True: time.sleep(1000)"
KILL_KEEPER = """
if not tries:
    daemon()
    print("HTTP 429 Too Many Requests, try again in 1 s", file=sys.stderr, flush=True)
    os.kill(os.getppid(), signal.SIGKILL)
    while True: time.sleep(1000)
"""


@pytest.fixture
def word(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """In the environment of all that a test starts; whoever has it afterwards is a survivor."""
    word = f"word-{secrets.token_hex(8)}"
    monkeypatch.setenv("WORD", word)
    yield word
    eventually(lambda: not living(word))  # whom the kernel has just killed may still be going


class Log:
    """What a program told of itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def words(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []


@pytest.fixture
def log(desk: Desk) -> Log:
    return Log(desk.cwd / "effects.log")


def killed(desk: Desk, log: Log, last: str, *also: str) -> None:
    """Run the job and kill whoever runs it when its program says so; `also` its keeper."""
    with ended(desk.shell.start("job", "run", "demo")) as process:
        eventually(lambda: last in log.words())
        if also:
            process.send_signal(signal.SIGSTOP)
            (keeper,) = (
                each for each in procfs.descendants(process.pid) if procfs.kept_by(each.pid)
            )
            os.kill(keeper.pid, signal.SIGKILL)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def tree_of(word: str) -> list[str]:
    """What is left of the program; who runs it has the word as well."""
    return [named(pid) for pid in living(word)]


@SEEN
def test_a_program_that_stops_its_keeper_does_not_outlive_whoever_runs_the_job(
    desk: Desk, word: str, log: Log
) -> None:
    code = "daemon(); os.kill(os.getppid(), signal.SIGSTOP); told('stopped')"
    desk.new("--worker", desk.program(BEGIN + code + STAY, str(log.path)))
    killed(desk, log, "stopped")
    eventually(lambda: not tree_of(word))  # nobody called us meanwhile


@SEEN
def test_what_a_runner_and_its_keeper_left_is_ended_before_the_job_goes_on(
    desk: Desk, word: str, log: Log
) -> None:
    desk.new("--worker", desk.program(BEGIN + "daemon(); told('ready')" + STAY, str(log.path)))
    killed(desk, log, "ready", "keeper")
    eventually(lambda: len(tree_of(word)) == 1)  # what has left the command
    data = desk.ran(code=1)
    assert tree_of(word) == []
    assert data["status"] == "INTERVENTION_REQUIRED"
    assert "the runner died while" in data["why"]
    assert "1 process of it still ran and was ended" in data["why"]
    assert log.words() == ["began", "ready"]


@SEEN
def test_what_a_runner_and_its_keeper_left_is_ended_when_the_job_is_cancelled(
    desk: Desk, word: str, log: Log
) -> None:
    desk.new("--worker", desk.program(BEGIN + "daemon(); told('ready')" + STAY, str(log.path)))
    killed(desk, log, "ready", "keeper")
    eventually(lambda: len(tree_of(word)) == 1)
    desk.ok("job", "cancel", "demo", "--reason", "enough")
    assert tree_of(word) == []
    assert desk.show()["status"] == "CANCELED"
    assert desk.show()["why"] == "enough; 1 process of it still ran and was ended"


@SEEN
def test_what_a_gate_left_is_ended_before_the_gate_is_tried_again(
    desk: Desk, word: str, log: Log
) -> None:
    gate = desk.program(
        BEGIN + "if not tries: daemon(); told('ready'); time.sleep(1000)", str(log.path)
    )
    _with_gate(desk, gate)
    killed(desk, log, "ready", "keeper")
    eventually(lambda: len(tree_of(word)) == 1)
    assert desk.ran()["status"] == "SUCCESS"
    assert tree_of(word) == []
    (note,) = desk.lines(event="note")
    assert note["reason"] == "the runner died: 1 process of it still ran and was ended"


@SEEN
@pytest.mark.parametrize("decision", ["answer", "continue"])
def test_a_call_whose_keeper_was_killed_is_for_a_person_and_never_made_again_by_itself(
    desk: Desk, word: str, log: Log, decision: str
) -> None:
    desk.new("--worker", desk.program(BEGIN + KILL_KEEPER + ANSWER, str(log.path)))
    data = desk.ran(code=1)
    assert tree_of(word) == []
    assert data["status"] == "INTERVENTION_REQUIRED"
    said = "the process that watched over it was killed, and all of it was ended: command:"
    assert data["why"].startswith(said)
    assert data["why"].endswith("which may have had an effect: look, then decide")
    (call,) = desk.calls()
    assert call["response"]["status"] == "ERROR"
    assert call["response"]["action"] == "STUCK"
    assert call["response"]["error"] == data["why"]
    assert log.words() == ["began"]

    desk.refused("job", "run", "demo", says="INTERVENTION_REQUIRED")
    assert log.words() == ["began"]
    shown = next(each for each in data["next"] if decision in each)
    typed = [each.replace("…", "Nothing was done yet") for each in shlex.split(shown)]
    assert typed[0] == "holdfast"
    desk.ok(*typed[1:])
    assert desk.ran()["status"] == "SUCCESS"
    assert log.words() == ["began", "began"]


@SEEN
def test_a_call_that_may_be_repeated_is_repeated_when_its_keeper_was_killed(
    desk: Desk, word: str, log: Log
) -> None:
    models = {"worker": desk.program(BEGIN + KILL_KEEPER + ANSWER, str(log.path))}
    phases = [{"name": "look", "repeatable": True}]
    desk.ok("job", "new", desk.spec(job_id="demo", prompt="Do", models=models, phases=phases))
    assert desk.ran()["status"] == "SUCCESS"
    assert log.words() == ["began", "began"]
    assert [each["response"]["action"] for each in desk.calls()] == ["RETRY", "COMPLETED"]


@SEEN
def test_a_gate_whose_keeper_was_killed_says_nothing_about_the_work(
    desk: Desk, word: str, log: Log
) -> None:
    _with_gate(desk, desk.program(BEGIN + KILL_KEEPER, str(log.path)))
    data = desk.ran(code=1)
    assert data["status"] == "INTERVENTION_REQUIRED"
    assert "the process that watched over it was killed, and all of it was ended" in data["why"]
    assert len(desk.calls()) == 1


def _with_gate(desk: Desk, gate: str) -> None:
    phase: dict[str, Any] = {"name": "a", "gates": [gate.removeprefix("command:")]}
    models = {"worker": desk.script(DONE, DONE)}
    desk.ok("job", "new", desk.spec(job_id="demo", prompt="Do", models=models, phases=[phase]))

"""What tests of sessions share: an agent behind the command line, and what it left on disk."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ledger.shell import Ran, Shell, entries_in

PATIENCE = 120.0
"""Seconds until a wait is given up; reached only when something is broken."""


def run(shell: Shell, *words: str, code: str, agent: str = "rio") -> Ran:
    """`holdfast run` of a Python program."""
    return shell("run", "--agent", agent, *words, "--", sys.executable, "-c", code)


@contextmanager
def running(shell: Shell, *words: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A `holdfast` process beside the test; killed if the test leaves it."""
    before = options.pop("preexec_fn", None)
    process = subprocess.Popen(
        shell.command(words),
        env=shell.environment(options.pop("env", {})),
        cwd=shell.cwd,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options},
        # What we were started with is nobody's business: under `nohup` SIGHUP is ignored.
        preexec_fn=lambda: _listening(before),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            pipe.close()


def _listening(then: Callable[[], object] | None) -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if then is not None:
        then()


def journal(shell: Shell, agent: str = "rio") -> list[dict[str, Any]]:
    """What the journal tells, without the lines of leases."""
    file = shell.home / "state" / agent / "journal.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    return [record for line in lines if "event" in (record := json.loads(line))]


def events(shell: Shell, agent: str = "rio") -> list[str]:
    return [line["event"] for line in journal(shell, agent)]


def results(shell: Shell, agent: str = "rio") -> list[dict[str, Any]]:
    """The ends that the ledger tells of."""
    return [line for line in entries_in(shell.home, agent) if line["event"] == "task_result"]


def shown(shell: Shell, name: str, agent: str = "rio") -> dict[str, Any]:
    return json.loads((shell.home / "state" / agent / name).read_bytes())


def lifetime(shell: Shell, agent: str = "rio") -> dict[str, int]:
    return shown(shell, "metrics.json", agent)["lifetime"]


def files(shell: Shell, *below: str) -> dict[str, bytes]:
    """Every file of some folders of the home, by its path."""
    found = [file for each in below for file in (shell.home / each).rglob("*") if file.is_file()]
    return {str(file.relative_to(shell.home)): file.read_bytes() for file in found}


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def new_word() -> str:
    """A word that no other process has in its environment."""
    return f"holdfast-test-{secrets.token_hex(8)}"


def living(word: str) -> list[int]:
    """Processes other than this one with the word in their environment or arguments."""
    found: list[int] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        if int(name) != os.getpid() and any(_holds(f"/proc/{name}/{file}", word) for file in _TOLD):
            found.append(int(name))
    return found


_TOLD = ("environ", "cmdline")


def _holds(path: str, word: str) -> bool:
    try:
        return word.encode() in Path(path).read_bytes()
    except OSError:
        return False


def assert_one_end_each(shell: Shell, agent: str = "rio") -> None:
    """Every session that began has one end, in the journal and in the ledger, and all add up."""
    lines = journal(shell, agent)
    begun = [line["session_id"] for line in lines if line["event"] == "session_start"]
    ended = [line["session_id"] for line in lines if line["event"] == "session_end"]
    assert len(set(begun)) == len(begun)
    assert sorted(ended) == sorted(begun)
    told = results(shell, agent)
    assert sorted(line["session_id"] for line in told) == sorted(begun)
    for line in told:
        data = line["data"]
        assert data["status"] in ("success", "failure")
        assert data["duration_sec"] >= 0
        assert "exit_code" in data
    assert_counts(lifetime(shell, agent), lines)


def assert_counts(counted: dict[str, int], lines: Sequence[dict[str, Any]]) -> None:
    ends = [line for line in lines if line["event"] == "session_end"]
    outcomes = [line["outcome"] for line in ends]
    for outcome in ("completed", "timeout", "error"):
        assert counted[f"sessions_{outcome}"] == outcomes.count(outcome)
    assert counted["sessions_total"] == len(ends)
    assert counted["sessions_crashed"] == sum(line.get("cause") == "crashed" for line in ends)

"""Commands that misbehave: limits hold, one end is on record, and nobody survives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.world import (
    PATIENCE,
    assert_one_end_each,
    journal,
    living,
    new_word,
    results,
    running,
    shown,
    until,
)
from tests.ledger.shell import Shell

DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if sys.argv[1:]:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in range(3): os.dup2(null, fd)
        time.sleep(600)
    os._exit(0)
os.wait()
"""
STUBBORN = DAEMON + "print('up', flush=True)\ntime.sleep(600)"
FLOOD = """
import os, threading
def pour(fd):
    for _ in range(100): os.write(fd, b"x" * 999_999 + b"\\n")
threads = [threading.Thread(target=pour, args=(fd,)) for fd in (1, 2)]
[each.start() for each in threads]
[each.join() for each in threads]
for fd in (2, 1): os.write(fd, b"the last line\\n")
"""
"""Says its last line on both, since nobody knows which of two full pipes was written to last."""
EATER = """
import time
eaten = []
while True:
    eaten.append(bytearray(4 << 20))
    time.sleep(0.001)
"""
FORKS = """
import os, time
print('up', flush=True)
for _ in range(100):
    try: child = os.fork()
    except OSError: break
    if child == 0:
        os.setsid()
        time.sleep(600)
time.sleep({})
"""


def most_memory(pid: int) -> int | None:
    """Not by `wait4`: that also counts what a process was before its exec, a copy of this one."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return int(found[1]) * 1024 if found else None


class Told:
    """A run that is over: how, and what it cost the wrapper."""

    def __init__(self, shell: Shell, *words: str, code: str, more: tuple[str, ...] = ()) -> None:
        self.word, self.peak = new_word(), 0
        command = ("run", "--agent", "rio", *words, "--", sys.executable, "-c", code, *more)
        with running(shell, *command, env={"WORD": self.word}) as process:

            def has_ended() -> bool:
                self.peak = most_memory(process.pid) or self.peak
                return process.poll() is not None

            until(has_ended)
            self.code = process.returncode
        self.end = journal(shell)[-1]
        assert living(self.word) == []
        assert_one_end_each(shell)


@pytest.mark.parametrize("more", [(), ("closes its pipes",)])
def test_a_daemon_is_gone_when_the_run_is(shell: Shell, more: tuple[str, ...]) -> None:
    told = Told(shell, code=DAEMON, more=more)
    assert (told.code, told.end["outcome"]) == (0, "completed")
    assert told.end["measured"]["survivors_killed"] == 1


def test_one_that_ignores_sigterm_is_ended_in_time(shell: Shell) -> None:
    told = Told(shell, "--timeout", "0.5s", code=STUBBORN)
    assert (told.code, told.end["outcome"], told.end["exit_code"]) == (124, "timeout", 124)
    assert told.end["measured"]["survivors_killed"] >= 1
    assert told.end["duration_seconds"] < PATIENCE / 2


def test_a_flood_on_both_pipes_is_drained_and_little_of_it_is_kept(shell: Shell) -> None:
    told = Told(shell, "--quiet", code=FLOOD)
    assert (told.code, told.end["outcome"]) == (0, "completed")
    assert told.end["measured"]["output_bytes"] > 200_000_000
    assert told.end["summary"] == "the last line"
    kept = next((shell.home / "state/rio/output").glob("*.txt"))
    assert kept.stat().st_size < 1 << 20
    assert kept.read_text("utf-8").count("the last line") == 2
    assert 1 << 20 < told.peak < 150 << 20


def test_a_flood_ends_at_the_limit(shell: Shell) -> None:
    told = Told(shell, "--quiet", "--max-output", "1MB", code=FLOOD)
    assert told.code != 0
    assert (told.end["outcome"], told.end["cause"]) == ("error", "output")
    assert told.end["duration_seconds"] < PATIENCE / 2


def test_one_that_eats_memory_is_ended(shell: Shell) -> None:
    told = Told(shell, "--max-memory", "150MB", code=EATER)
    assert told.code != 0
    assert (told.end["outcome"], told.end["cause"]) == ("error", "memory")
    assert results(shell)[-1]["data"]["status"] == "failure"


def test_one_that_closes_its_output_runs_on(shell: Shell) -> None:
    code = "import os, time; os.close(1); os.close(2); time.sleep(0.3); os._exit(4)"
    told = Told(shell, code=code)
    assert (told.code, told.end["exit_code"]) == (4, 4)
    assert told.end["duration_seconds"] >= 0.3


@pytest.mark.parametrize(("seconds", "code"), [("0", 0), ("600", 124)])
def test_a_hundred_forks_are_gone(shell: Shell, seconds: str, code: int) -> None:
    assert Told(shell, "--timeout", "5s", code=FORKS.format(seconds)).code == code


def test_one_that_stops_itself_is_ended_in_time(shell: Shell) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    told = Told(shell, "--timeout", "0.5s", code=code)
    assert told.code == 124


def test_a_reader_who_does_not_read_does_not_hold_up_the_limit(shell: Shell) -> None:
    """Nobody takes the output, and the pipe to nobody is full."""
    code = "import os\nwhile True: os.write(1, b'x' * 4096)"
    words = ("run", "--agent", "rio", "--timeout", "1s", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        until(lambda: journal(shell)[-1:] and journal(shell)[-1]["event"] == "session_end")
        assert journal(shell)[-1]["outcome"] == "timeout"
        wrapper.stdout.close()
        assert wrapper.wait(PATIENCE) == 124
    assert_one_end_each(shell)


def test_a_slow_reader_gets_every_byte(shell: Shell, tmp_path: Path) -> None:
    code = "import os\nfor n in range(3000): os.write(1, b'%0999d\\n' % n)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        read = b""
        while data := wrapper.stdout.read(30_000):
            read += data
        assert wrapper.wait(PATIENCE) == 0
    assert read == b"".join(b"%0999d\n" % n for n in range(3000))
    assert shown(shell, "session.json")["status"] == "completed"

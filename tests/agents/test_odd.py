"""`holdfast run` where somebody does what nobody thought of."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, End, Start
from holdfast.clock import FakeClock
from holdfast.store.home import Home
from tests.agents.world import (
    PATIENCE,
    assert_one_end_each,
    events,
    journal,
    living,
    new_word,
    run,
    running,
    shown,
    until,
)
from tests.ledger.shell import Shell

SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


def started(wrapper: subprocess.Popen[bytes]) -> None:
    assert wrapper.stdout is not None
    assert wrapper.stdout.readline() == b"up\n"


# --- signals --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_a_signal_that_would_end_us_ends_the_command(shell: Shell, number: signal.Signals) -> None:
    word = new_word()
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", SLEEPER)
    with running(shell, *words, stdout=subprocess.PIPE, env={"WORD": word}) as wrapper:
        started(wrapper)
        wrapper.send_signal(number)
        assert wrapper.wait(PATIENCE) == 128 + signal.SIGTERM
    end = journal(shell)[-1]
    assert (end["outcome"], end["cause"], end["signal"]) == ("error", "stopped", signal.SIGTERM)
    assert living(word) == []
    assert_one_end_each(shell)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_was_ignored_stays_ignored(shell: Shell, number: signal.Signals) -> None:
    """As under `nohup`, or in the background of a script."""
    ignore = lambda: signal.signal(number, signal.SIG_IGN)  # noqa: E731
    code = "import time; print('up', flush=True); time.sleep(1)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE, preexec_fn=ignore) as wrapper:
        started(wrapper)
        wrapper.send_signal(number)
        assert wrapper.wait(PATIENCE) == 0
    assert journal(shell)[-1]["outcome"] == "completed"


def test_a_signal_before_the_command_begins_leaves_an_end(shell: Shell) -> None:
    """Whatever it meets, a session that began has an end that says what happened."""
    for pause in (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
        with running(shell, "run", "--agent", "rio", "--", "sleep", "600") as wrapper:
            time.sleep(pause)
            wrapper.send_signal(signal.SIGINT)
            assert wrapper.wait(PATIENCE) != 0
    lines = journal(shell)
    assert {each.get("cause") for each in lines if each["event"] == "session_end"} <= {"stopped"}
    assert events(shell).count("session_start") == events(shell).count("session_end")


INTERRUPTED = """
import os, signal, sys, weakref
class Finder:
    def find_spec(self, name, path, target=None):
        if name == os.environ["STRIKE_AT"]:
            weakref.ref(Finder(), strike)
def strike(_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
sys.meta_path.insert(0, Finder())
from holdfast.cli.main import main
sys.exit(main())
"""
"""Is interrupted where Python drops the exception, as in a callback of its import system."""


@pytest.mark.parametrize("module", ["holdfast.agents.run", "holdfast.ops.opening"])
def test_no_interrupt_is_lost_while_modules_are_loaded(shell: Shell, module: str) -> None:
    words = ["--home", str(shell.home), "run", "--agent", "rio", "--", "true"]
    command = [sys.executable, "-c", INTERRUPTED, *words]
    ran = shell.run(command, env={"STRIKE_AT": module})
    assert ran.code == 130
    assert journal(shell) == []


def test_a_wrapper_that_sleeps_for_a_while_goes_on(shell: Shell, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = f"print('up', flush=True); print(open({str(fifo)!r}).read())"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE) as wrapper:
        started(wrapper)
        wrapper.send_signal(signal.SIGSTOP)
        until(lambda: _state(wrapper.pid) == "T")
        fifo.write_text("done\n")
        wrapper.send_signal(signal.SIGCONT)
        assert wrapper.wait(PATIENCE) == 0
    assert_one_end_each(shell)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_bytes().decode().rpartition(")")[2].split()[0]


# --- standard streams -----------------------------------------------------------------------


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_become_no_file_of_the_home(shell: Shell, closed: tuple[int, ...]) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(6)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, preexec_fn=close) as wrapper:
        assert wrapper.wait(PATIENCE) == 6
    kept = next((shell.home / "state/rio/output").glob("*.txt")).read_text("utf-8")
    assert "out" in kept and "err" in kept
    assert shell("check").code == 0
    assert_one_end_each(shell)


def test_the_command_has_no_terminal_to_wait_for(shell: Shell) -> None:
    master, slave = pty.openpty()
    code = "import sys; print(sys.stdin.isatty(), repr(sys.stdin.read()))"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdin=slave, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        assert wrapper.stdout.read() == b"False ''\n"
        assert wrapper.wait(PATIENCE) == 0
    os.close(master)
    os.close(slave)


def test_output_that_is_no_text_is_passed_on_and_kept_as_well_as_it_can_be(shell: Shell) -> None:
    code = "import os; os.write(1, b'\\xff\\xfe\\x00\\x1b[31m last'); os._exit(9)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        assert wrapper.stdout.read() == b"\xff\xfe\x00\x1b[31m last"
        assert wrapper.wait(PATIENCE) == 9
    assert journal(shell)[-1]["exit_code"] == 9
    assert shell("check").code == 0


# --- commands and places --------------------------------------------------------------------


def test_a_program_that_the_kernel_refuses_is_a_session_that_says_so(shell: Shell) -> None:
    script = shell.cwd / "broken"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    ran = shell("run", "--agent", "rio", "--", "./broken")
    assert ran.code == 126
    assert "interpreter" in ran.err
    end = journal(shell)[-1]
    assert (end["outcome"], end["cause"]) == ("error", "not_started")
    assert_one_end_each(shell)


@pytest.mark.parametrize("command", ["./absent", "no-such-command", ".", "/etc/passwd"])
def test_what_is_no_program_becomes_no_session(shell: Shell, command: str) -> None:
    ran = shell("run", "--agent", "rio", "--", command)
    assert ran.code in (2, 4)
    assert "hint:" in ran.err
    assert journal(shell) == []


def test_a_relative_command_counts_from_where_we_are(shell: Shell) -> None:
    script = shell.cwd / "mine"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    assert shell("run", "--agent", "rio", "--", "./mine").out.strip() == str(shell.cwd)


def test_a_very_long_command_line_is_passed_on(shell: Shell) -> None:
    words = [f"{number:0100d}" for number in range(10_000)]
    code = "import sys; print(len(sys.argv), sys.argv[-1])"
    ran = shell("run", "--agent", "rio", "--", sys.executable, "-c", code, *words)
    assert ran.out == f"10001 {words[-1]}\n"


def test_a_home_given_by_a_relative_path_is_found_by_the_command_too(shell: Shell) -> None:
    place = shell.cwd / "elsewhere"
    place.mkdir()
    code = (
        "import os, subprocess, sys; os.chdir('/'); note = ['session', 'note', '--agent', 'rio']\n"
        "words = [sys.executable, '-m', 'holdfast', *note, '--event', 'finding', 'from inside']\n"
        "subprocess.run(words, check=True)"
    )
    words = (sys.executable, "-m", "holdfast", "run", "--agent", "rio", "--")
    command = [*words, sys.executable, "-c", code]
    ran = shell.run(command, env={"HOLDFAST_HOME": "../../home"}, cwd=place)
    assert ran.code == 0, ran.err
    assert events(shell) == ["session_start", "finding", "session_end"]
    assert len({each["session_id"] for each in journal(shell)}) == 1


def test_a_working_directory_that_is_gone_is_told(shell: Shell) -> None:
    place = shell.cwd / "gone"
    place.mkdir()
    command = ["sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh"]
    ran = shell.run([*command, *shell.command(("run", "--agent", "rio", "--", "true"))])
    assert ran.code == 4
    assert "working directory" in ran.err
    assert journal(shell) == []


def test_a_command_may_remove_the_directory_it_runs_in(shell: Shell) -> None:
    place = shell.cwd / "gone"
    place.mkdir()
    words = shell.command(("run", "--agent", "rio", "--", "rmdir", "../gone"))
    ran = shell.run(words, cwd=place)
    assert ran.code == 0, ran.err
    assert journal(shell)[-1]["outcome"] == "completed"


@pytest.mark.parametrize(
    "flags",
    [
        ("--timeout", "0"),
        ("--timeout", "-1s"),
        ("--timeout", "nan"),
        ("--max-memory", "0"),
        ("--max-output", "0"),
        ("--max-output", "-1"),
        ("--max-cost", "nan"),
        ("--max-cost", "-1"),
    ],
)
def test_a_limit_that_is_none_is_refused_before_the_session(
    shell: Shell, flags: tuple[str, str]
) -> None:
    ran = run(shell, *flags, code="pass")
    assert ran.code == 2, ran.err
    assert journal(shell) == []


def test_a_limit_beyond_all_measure_is_no_limit(shell: Shell) -> None:
    flags = ("--timeout", "999999999w", "--max-memory", "999TB", "--max-output", "999TB")
    assert run(shell, *flags, code="pass").code == 0
    assert shell("session", "start", "--agent", "rio", "--timeout", "999999999w").code == 0
    assert shell("session", "end", "--agent", "rio", "--outcome", "completed").code == 0
    assert shell("check").code == 0
    assert_one_end_each(shell)


def test_a_run_within_a_run_of_another_agent_is_a_session_of_its_own(shell: Shell) -> None:
    code = (
        "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-m', 'holdfast', 'run',"
        "'--agent', 'leo', '--', 'sh', '-c', 'exit 5']).returncode)"
    )
    assert run(shell, code=code).code == 5
    assert_one_end_each(shell)
    assert_one_end_each(shell, "leo")
    assert run(shell, code=code.replace("leo", "rio")).code == 5
    assert "give the new one a --role" in shown(shell, "session.json")["errors"][0]


# --- time -----------------------------------------------------------------------------------


def test_a_clock_that_steps_back_over_midnight_gives_new_numbers(tmp_path: Path) -> None:
    clock = FakeClock(1_795_046_400.0 + 5)
    days: list[Any] = []
    with Home.open(str(tmp_path / "home"), create=True, timezone="UTC", clock=clock) as home:
        for step in (-10.0, 10.0, -86_400.0, 2 * 86_400.0):
            with Agent(home, "rio") as rio:
                opened = rio.start(Start("research"))
                days.append(opened.id)
                clock.step(step)
                rio.end("", opened.fence, End("completed"))
        with Agent(home, "rio") as rio:
            lines = [each.record for each in rio.lines()]
            counted = rio.metrics()["lifetime"]
        ledger = [each.record for each in Agent(home, "rio").ledger.read()]
    assert len(set(days)) == 4
    assert counted["sessions_total"] == counted["sessions_completed"] == 4
    ends = [each for each in lines if each.get("event") == "session_end"]
    assert sorted(each["session_id"] for each in ends) == sorted(days)
    assert all(each["duration_seconds"] >= 0 for each in ends)
    results = [each["session_id"] for each in ledger if each["event"] == "task_result"]
    assert sorted(results) == sorted(days)

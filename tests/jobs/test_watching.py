"""What somebody sees while a job runs: lines in a pipe, and a line that moves on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.jobs.desk import AGAIN, DONE, Desk
from tests.ledger.shell import PATIENCE

ERASED = "\r\x1b[K"


def told(desk: Desk, code: int = 0) -> list[str]:
    """The lines of `job run`, without the time before each."""
    ran = desk("job", "run", "demo")
    assert ran.code == code, ran.out + ran.err
    return [line[10:] for line in ran.out.splitlines() if re.match(r" *[0-9.]+s  ", line)]


def two_phases(desk: Desk, worker: str, supervisor: str, **work: object) -> None:
    phases = [
        {"name": "work", "role": "worker", **work},
        {"name": "review", "role": "supervisor"},
    ]
    models = {"worker": worker, "supervisor": supervisor}
    spec = desk.spec(prompt="Say hello", phases=phases, models=models)
    desk.ok("job", "new", spec, "--id", "demo")


def test_a_line_tells_the_phase_that_was_answered_and_the_calls_made_so_far(desk: Desk) -> None:
    one = desk.script(DONE, DONE)  # the same for both, so the next intent is written with a reply
    two_phases(desk, one, one)
    first, second, third, fourth = told(desk)
    assert first == f"1/2 work  asking {one}  (1 call, 0.0000 of 10 USD)"
    assert second.startswith("1/2 work  worker said COMPLETED: It is done. → REVIEWING  (1 call, ")
    assert third.startswith(f"2/2 review  asking {one}  (2 calls, ")
    assert fourth.startswith("2/2 review  supervisor said COMPLETED: It is done. → SUCCESS  (2 c")


def test_nothing_is_said_of_the_time_to_go_before_a_call_has_ended(desk: Desk) -> None:
    two_phases(desk, desk.script(DONE), desk.script(DONE))
    first, second, *_ = told(desk)
    assert "to go" not in first
    assert "about 1 s to go behind this phase" in second


def test_who_is_sent_back_tries_again_and_who_looks_at_it_does_not(desk: Desk) -> None:
    two_phases(desk, desk.script(DONE, DONE), desk.script(AGAIN, DONE))
    asked = [line.split("  (")[0] for line in told(desk) if "asking" in line]
    assert [line.startswith("1/2 work") for line in asked] == [True, False, True, False]
    assert [line.endswith(", try 2") for line in asked] == [False, False, True, False]


def test_new_work_is_tried_for_the_first_time(desk: Desk) -> None:
    models = {"worker": desk.script(AGAIN, DONE, DONE)}
    phases = [{"name": "one", "role": "worker"}, {"name": "two", "role": "worker"}]
    desk.ok("job", "new", desk.spec(prompt="Hi", phases=phases, models=models), "--id", "demo")
    asked = [line.split("  (")[0] for line in told(desk) if "asking" in line]
    assert [line.endswith(", try 2") for line in asked] == [False, True, False]


def test_a_gate_that_fails_is_told_beside_what_the_worker_really_said(desk: Desk) -> None:
    gate = {"run": "sh -c 'test -e seen || { touch seen; echo no; exit 3; }'", "name": "tests"}
    two_phases(desk, desk.script(DONE, DONE), desk.script(DONE), gates=[gate])
    lines = told(desk)
    assert "worker said COMPLETED, not accepted: gate tests ended with 3: no → PENDING" in lines[1]
    assert not any("RETRY" in line for line in lines)
    assert ", try 2" in lines[2]
    first, second, _ = desk.calls()
    assert first["response"]["action"] == "RETRY"
    assert "action: COMPLETED\n" in second["request"]["prompt"]
    assert "not accepted: gate tests ended with 3" in second["request"]["prompt"]


def test_an_answer_that_breaks_the_rules_is_not_put_into_anybodys_mouth(desk: Desk) -> None:
    two_phases(desk, desk.script("Well, hello.", DONE), desk.script(DONE))
    _, line = told(desk, code=1)
    assert "the answer of the worker was refused: the answer is not one JSON object" in line
    assert "said" not in line
    assert "worker was refused" in desk("job", "show", "demo").out
    desk.ok("job", "steward", "demo", "continue")
    desk.ran()
    prompt = desk.calls()[1]["request"]["prompt"]
    assert "Nothing that was taken for an answer: The answer breaks the rules" in prompt
    assert "action: STUCK" not in prompt and "Its words" not in prompt


def test_a_provider_that_fails_is_told_as_that_and_asking_again_is_a_try(desk: Desk) -> None:
    worker = desk.script({"error": "unavailable", "message": "503"}, DONE)
    two_phases(desk, worker, desk.script(DONE))
    first, failed, again, *_ = told(desk)
    assert "try" not in first
    assert re.search(
        rf"{re.escape(worker)} failed: unavailable: 503.*; asked again in \d s → PENDING", failed
    ), failed
    assert again.startswith(f"1/2 work  asking {worker}, try 2  (2 calls, ")
    assert re.search(r" ERROR +RETRY +PENDING ", desk("job", "history", "demo").out)


def test_no_answer_in_time_is_told_as_that(desk: Desk) -> None:
    worker = desk.script({"error": "timed_out", "message": "too late"})
    two_phases(desk, worker, desk.script(DONE))
    _, line = told(desk, code=1)
    assert f"no answer in time from {worker} → INTERVENTION_REQUIRED" in line


@pytest.mark.parametrize(("most", "times"), [(1, "1 time:"), (2, "2 times:")])
def test_one_is_singular(desk: Desk, most: int, times: str) -> None:
    worker = desk.program(f"print('{json.dumps(AGAIN)}')")
    two_phases(desk, worker, desk.script(DONE), max_retries=most)
    assert "(1 call, " in told(desk, code=1)[0]
    assert f"work was tried again {times} The total is wrong." in desk.show()["why"]


def test_one_call_of_unknown_cost_is_singular(desk: Desk) -> None:
    two_phases(desk, desk.program(f"print('{json.dumps(DONE)}')"), desk.script(DONE))
    assert any("cost unknown for 1 call" in line for line in told(desk))
    assert "cost unknown for 1 call" in desk("job", "show", "demo").out


def test_what_is_odd_about_an_answer_that_is_taken_is_told_with_it(desk: Desk) -> None:
    odd = {**DONE, "evidence_files": ["gone.md"], "summary_for_supervisor": "A. B. C. D."}
    two_phases(desk, desk.script(odd), desk.script(DONE))
    _, _, *warnings = desk("job", "step", "demo").out.splitlines()[:4]
    assert [each.strip() for each in warnings] == [
        "warning: gone.md: evidence that is not in the workspace",
        "warning: summary_for_supervisor: 4 sentences, 3 are enough",
    ]
    assert "warning" not in desk("job", "step", "demo").out


def test_of_very_much_that_is_odd_the_first_is_told(desk: Desk) -> None:
    odd = {**DONE, "evidence_files": [f"gone-{number}.md" for number in range(40)]}
    two_phases(desk, desk.script(odd), desk.script(DONE))
    out = desk("job", "step", "demo").out
    assert out.count("warning: gone-") == 5
    assert "warning: and more, see `holdfast job history demo --format json`" in out


def test_nobody_is_said_to_be_asked_where_an_answer_is_given(desk: Desk) -> None:
    two_phases(desk, desk.script(), desk.script(DONE))
    out = desk("job", "step", "demo", "--response", json.dumps(DONE)).out
    assert "asking" not in out
    assert "worker said COMPLETED" in out


def test_a_gate_that_begins_with_a_line_of_signs_is_told_without_them(desk: Desk) -> None:
    gate = [{"run": "sh -c 'echo ======; echo FAIL: it; exit 3'", "name": "tests"}]
    two_phases(desk, desk.program(f"print('{json.dumps(DONE)}')"), desk.script(DONE), gates=gate)
    assert "not accepted: gate tests ended with 3 → PENDING" in desk("job", "step", "demo").out


# --- on a terminal --------------------------------------------------------------------------


class Terminal:
    """A process whose every stream is a terminal, as it controls it."""

    def __init__(self, process: subprocess.Popen[bytes], ours: int) -> None:
        self.process, self._ours, self.seen = process, ours, ""

    def until(self, pattern: str) -> str:
        while not re.search(pattern, self.seen, re.DOTALL):
            assert self._more(), self.seen
        return self.seen

    def rest(self) -> str:
        while self._more():
            pass
        return self.seen

    def _more(self) -> bool:
        try:
            chunk = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += chunk.decode()
        return bool(chunk)


@contextmanager
def terminal(desk: Desk, *words: str, columns: int = 200, **env: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        desk.shell.command(words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=desk.shell.environment({"TERM": "xterm", **env}),
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        os.close(ours)


def waiting_for(desk: Desk, file: Path, reply: str) -> str:
    """A program that answers once there is a file."""
    return desk.program(
        "import os, time\n"
        f"while not os.path.exists({str(file)!r}): time.sleep(0.02)\n"
        f"print({reply!r})\n"
    )


def test_on_a_terminal_a_line_moves_while_somebody_is_asked(desk: Desk, tmp_path: Path) -> None:
    go = tmp_path / "go"
    two_phases(desk, waiting_for(desk, go, json.dumps(DONE)), desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        text = seen.until(r"asking command:.*asking command:")
        drawn = [each for each in text.split(ERASED) if "asking" in each]
        assert len({each.split("s  ")[0] for each in drawn}) > 1, drawn
        assert all("1/2 work" in each and "\n" not in each for each in drawn)
        go.touch()
        text = seen.rest()
    assert seen.process.returncode == 0
    assert "\x1b[3" not in text  # no colour
    lines = [each.rpartition(ERASED)[2] for each in text.split("\r\n")]
    assert "worker said COMPLETED: It is done. → REVIEWING" in lines[0]
    assert "supervisor said COMPLETED" in lines[1]
    assert lines[2] == "demo is SUCCESS"


def test_it_tells_when_the_answer_is_there_and_a_gate_is_tried(desk: Desk, tmp_path: Path) -> None:
    go = tmp_path / "go"
    gate = {"run": f"sh -c 'until test -e {go}; do sleep 0.02; done'", "name": "tests"}
    two_phases(desk, desk.script(DONE), desk.script(DONE), gates=[gate])
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        seen.until(r"1/2 work for [^\n]*checking the answer of scripted:")
        go.touch()
        assert "demo is SUCCESS" in seen.rest()


def test_it_tells_for_how_long_a_provider_is_left_alone(desk: Desk) -> None:
    worker = desk.script({"error": "unavailable", "message": "503"}, DONE)
    two_phases(desk, worker, desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        seen.until(r"failed: unavailable: 503.*s  asks again in \d s")
        assert "demo is SUCCESS" in seen.rest()


def test_it_tells_how_long_the_rest_takes_once_a_call_has_ended(desk: Desk, tmp_path: Path) -> None:
    go, seen_once = tmp_path / "go", tmp_path / "once"
    worker = desk.program(
        "import os, time\n"
        f"if not os.path.exists({str(seen_once)!r}):\n"
        f"    open({str(seen_once)!r}, 'w').close()\n"
        f"    print({json.dumps(AGAIN)!r})\n"
        "else:\n"
        f"    while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        f"    print({json.dumps(DONE)!r})\n"
    )
    two_phases(desk, worker, desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        again = r"1/2 work, try 2 for \d+ s  \(2 calls, cost not known, about \d+ s to go\)"
        assert "to go)  asking" not in seen.until(again).partition("worker said")[0]
        go.touch()
        assert "demo is SUCCESS" in seen.rest()


def test_the_line_is_coloured_unless_somebody_minds(desk: Desk, tmp_path: Path) -> None:
    two_phases(desk, waiting_for(desk, tmp_path / "go", json.dumps(DONE)), desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="") as seen:
        seen.until(r"\x1b\[36m[^\n]*asking command:[^\n]*\x1b\[0m")


def test_it_is_no_wider_than_the_terminal(desk: Desk, tmp_path: Path) -> None:
    two_phases(desk, waiting_for(desk, tmp_path / "go", json.dumps(DONE)), desk.script(DONE))
    with terminal(desk, "job", "run", "demo", columns=60, NO_COLOR="1") as seen:
        drawn = seen.until("(1/2 work.*){3}").split(ERASED)
    assert max(map(len, drawn)) == 59


def test_ctrl_c_takes_the_line_away(desk: Desk, tmp_path: Path) -> None:
    two_phases(desk, waiting_for(desk, tmp_path / "go", json.dumps(DONE)), desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        seen.until("asking command:")
        seen.process.send_signal(signal.SIGINT)
        text = seen.rest()
        assert seen.process.wait(PATIENCE) == 130
    assert "asking" not in text.rpartition(ERASED)[2]
    assert "Traceback" not in text


def test_what_a_model_says_cannot_steer_the_terminal(desk: Desk) -> None:
    hostile = {"error": "not_authorised", "message": "no\x1b[2J\x1b]0;owned\x07"}
    two_phases(desk, desk.script(hostile), desk.script(DONE))
    with terminal(desk, "job", "run", "demo", NO_COLOR="1") as seen:
        text = seen.rest()
    assert "failed: not_authorised: no" in text
    assert "\x1b[2J" not in text and "\x1b]0" not in text and "\x07" not in text


@pytest.mark.parametrize("how", ["--json", "dumb"])
def test_there_is_no_moving_line_where_it_is_not_wanted(desk: Desk, how: str) -> None:
    two_phases(desk, desk.program(f"print('{json.dumps(DONE)}')"), desk.script(DONE))
    more, term = (["--json"], "xterm") if how == "--json" else ([], "dumb")
    with terminal(desk, "job", "run", "demo", *more, TERM=term) as seen:
        text = seen.rest()
    assert ERASED not in text
    assert ("asking" in text) == (how == "dumb")

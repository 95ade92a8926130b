"""`holdfast run`: real commands, real signals, one end each."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.proc import procfs
from holdfast.process import this_process
from holdfast.store.home import Home
from tests.agents.world import PATIENCE, journal, living, new_word, run, running, shown, until
from tests.ledger.shell import Shell
from tests.proc.world import lacking

SEEN = pytest.mark.skipif(
    lacking("cgroup") is not None and os.geteuid() == 0,
    reason="in a pid namespace a command sees no keeper, and the kernel ends all of it",
)


def test_the_exit_code_and_the_output_are_those_of_the_command(shell: Shell) -> None:
    ran = run(shell, code="import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (ran.code, ran.out) == (7, "out\n")
    assert ran.err.startswith("err\n")
    start, error, end = journal(shell)
    assert (start["event"], error["event"], end["event"]) == (
        "session_start",
        "error",
        "session_end",
    )
    assert (end["outcome"], end["cause"], end["exit_code"]) == ("error", "exit", 7)
    assert "err" in error["output_tail"]
    output = next((shell.home / "state/rio/output").glob("*.txt")).read_text("utf-8")
    assert "out" in output and "err" in output


def test_a_secret_on_the_cut_of_a_long_output_is_not_kept(shell: Shell) -> None:
    secret = "ghp_Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zQq7r"
    parts = ("a" * 180_000, f" {secret} ", "b" * 65_510)
    (shell.cwd / "lines").write_text("\n".join(parts))
    (shell.cwd / "line").write_text("".join(parts))
    for name in ("lines", "line"):
        assert shell("run", "--agent", "rio", "--quiet", "--", "cat", name).code == 0
    found = [file.read_text("utf-8") for file in shell.home.rglob("*") if file.is_file()]
    pieces = [secret[at : at + 8] for at in range(4, 33)]
    assert not any(piece in text for piece in pieces for text in found)


def test_every_field_of_session_and_report_can_be_filled(shell: Shell) -> None:
    said = {
        "sources": 8,
        "pr": 247,
        "next": "Follow up",
        "blocked_by": "a key",
        "tokens": 1200,
        "cost": 0.25,
        "handoff": "three are left",
        "summary": "Eight sources",
    }
    code = (
        f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({json.dumps(json.dumps(said))})"
    )
    flags = {
        "type": "research",
        "timeout": "90m",
        "task": "task-001",
        "domain": "finance",
        "branch": "rio/research",
        "model": "sonnet",
        "question": "How?",
        "belief": "Markets",
        "disconfirm": "Failures",
        "sources-expected": "10",
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    assert run(shell, *words, code=code).code == 0
    session, report = shown(shell, "session.json"), shown(shell, "report.json")
    assert [name for name, value in session.items() if value is None] == []
    assert session["errors"] == []
    assert (session["sources_archived"], session["cost_usd"]) == (8, 0.25)
    assert (session["research_question"], session["handoff_notes"]) == ("How?", "three are left")
    assert report["last_session"]["pr_number"] == 247
    assert (report["summary"], report["next_priority"]) == ("Eight sources", "Follow up")
    assert report["blocked_by"] == "a key"
    assert report["status"] == "idle"


def test_what_an_agent_answers_in_its_json_is_the_summary_and_no_half_of_a_secret(
    shell: Shell,
) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    told = {"type": "result", "is_error": False, "result": "I made\ntwo files.", "usage": {}}
    assert run(shell, code=f"print({json.dumps(told)!r})").code == 0
    assert shown(shell, "report.json")["summary"] == "I made two files."
    told["result"] = "word " * 36 + secret
    assert run(shell, code=f"print({json.dumps(told)!r})").code == 0
    assert shown(shell, "report.json")["summary"].startswith("word word")
    assert secret[:10] not in shown(shell, "report.json")["summary"]
    told |= {"result": "I could not.", "is_error": True}
    run(shell, code=f"print({json.dumps(told)!r})")
    assert "I could not." in shown(shell, "report.json")["summary"]


def test_what_the_command_did_is_measured_and_its_claim_kept_apart(shell: Shell) -> None:
    code = (
        "import os; open('made.md', 'w').write('x');"
        "open(os.environ['HOLDFAST_REPORT'], 'w').write('{\"sources\": 12}')"
    )
    run(shell, code=code)
    session = shown(shell, "session.json")
    assert session["measured"]["files_touched"] == ["made.md"]
    assert session["claimed"] == {"sources_archived": 12}


def test_a_command_that_takes_too_long_is_a_timeout_and_leaves_nobody(shell: Shell) -> None:
    mark = f"holdfast-test-{os.getpid()}"
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n os.setsid()\n if os.fork(): os._exit(0)\n"
        f"print('up', flush=True); mark = {mark!r}; time.sleep(600)"
    )
    ran = run(shell, "--timeout", "1s", code=code)
    assert ran.code == 124
    end = journal(shell)[-1]
    assert (end["outcome"], end["cause"]) == ("timeout", "timeout")
    assert living(mark) == []


def test_a_second_run_is_refused_and_names_the_holder(shell: Shell, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    words = ("run", "--agent", "rio", "--", "cat", str(fifo))
    first = subprocess.Popen(shell.command(words), env=shell.environment(), cwd=shell.cwd)
    until(lambda: (shell.home / "state/rio/journal.jsonl").exists() and len(journal(shell)) == 1)
    others = [shell("run", "--agent", "rio", "--", "true") for _ in range(3)]
    assert [ran.code for ran in others] == [5, 5, 5]
    assert str(first.pid) in others[0].err
    fifo.write_text("done\n")
    assert first.wait(PATIENCE) == 0
    assert [line["event"] for line in journal(shell)] == ["session_start", "session_end"]


def test_a_command_cannot_end_the_session_that_its_wrapper_runs(shell: Shell) -> None:
    ended = shell.command(("session", "end", "--agent", "rio", "--outcome", "completed"))
    program = f"{shlex.join(map(str, ended))}; echo code $?; exit 3"
    ran = shell("run", "--agent", "rio", "--", "sh", "-c", program)
    assert (ran.code, ran.out) == (3, "code 5\n")
    assert "holdfast session set" in ran.err
    (end,) = [line for line in journal(shell) if line["event"] == "session_end"]
    assert (end["outcome"], end["exit_code"]) == ("error", 3)


def test_nobody_else_ends_a_session_whose_wrapper_runs(shell: Shell, tmp_path: Path) -> None:
    began = tmp_path / "began"
    program = f"echo > {began}; sleep 600"
    with running(shell, "run", "--agent", "rio", "--", "sh", "-c", program) as wrapper:
        until(began.exists)
        ran = shell("session", "end", "--agent", "rio", "--outcome", "completed")
        assert (ran.code, f"kill {wrapper.pid}" in ran.err) == (5, True)
        wrapper.terminate()
        wrapper.wait(PATIENCE)
    assert journal(shell)[-1]["cause"] == "stopped"


def test_a_session_whose_wrapper_is_gone_is_ended_by_anybody(shell: Shell) -> None:
    with Home.open(str(shell.home)) as home, Agent(home, "rio") as rio:
        rio.start(Start("research"), owner=this_process()._replace(started=1))
    assert shell("session", "end", "--agent", "rio", "--outcome", "error").code == 0


def test_a_killed_wrapper_is_a_crash_on_record_and_its_command_is_gone(
    shell: Shell, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    code = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    wrapper = subprocess.Popen(shell.command(words), env=shell.environment(), cwd=shell.cwd)
    until(lambda: mark.exists() and mark.read_text())
    child = int(mark.read_text())
    wrapper.send_signal(signal.SIGKILL)
    wrapper.wait(PATIENCE)
    until(lambda: journal(shell)[-1]["event"] == "session_end")
    assert (journal(shell)[-1]["outcome"], journal(shell)[-1]["cause"]) == ("error", "crashed")
    assert not Path(f"/proc/{child}").exists()
    until(lambda: shown(shell, "metrics.json")["lifetime"]["sessions_crashed"] == 1)
    assert shell("run", "--agent", "rio", "--", "true").code == 0


@SEEN
def test_a_command_that_stops_its_keeper_does_not_outlive_its_wrapper(
    shell: Shell, tmp_path: Path
) -> None:
    word, mark = new_word(), tmp_path / "stopped"
    code = (
        "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP); "
        f"open({str(mark)!r}, 'w').close(); time.sleep(600)"
    )
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, env={"WORD": word}) as wrapper:
        until(mark.exists)
        wrapper.send_signal(signal.SIGKILL)
        until(lambda: journal(shell)[-1]["event"] == "session_end")
    assert journal(shell)[-1]["cause"] == "crashed"
    until(lambda: not living(word))


@SEEN
def test_what_a_wrapper_and_its_keeper_left_is_ended_by_the_next_start_which_says_so(
    shell: Shell, tmp_path: Path
) -> None:
    word, mark = new_word(), tmp_path / "ready"
    code = (
        "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "
        f"open({str(mark)!r}, 'w').close(); time.sleep(600)"
    )
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with running(shell, *words, env={"WORD": word}) as wrapper:
        until(mark.exists)
        wrapper.send_signal(signal.SIGSTOP)
        (keeper,) = (each for each in procfs.descendants(wrapper.pid) if procfs.kept_by(each.pid))
        os.kill(keeper.pid, signal.SIGKILL)
        wrapper.send_signal(signal.SIGKILL)
        wrapper.wait(PATIENCE)
    until(lambda: len(living(word)) == 1)  # what has left the command
    ran = shell("run", "--agent", "rio", "--", "true")
    assert living(word) == []
    assert "what still ran of it was ended (processes: 1)" in ran.err
    crash = next(line for line in journal(shell) if line.get("cause") == "crashed")
    assert crash["summary"].endswith("what still ran of it was ended (processes: 1)")


@SEEN
def test_a_command_whose_keeper_is_killed_is_said_to_have_lost_it(shell: Shell) -> None:
    word = new_word()
    code = (
        "import os, signal, subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True, "
        f"env={{**os.environ, 'WORD': {word!r}}}); "
        "print('working', flush=True); os.kill(os.getppid(), signal.SIGKILL); signal.pause()"
    )
    assert run(shell, code=code).code == 1
    assert living(word) == []
    _, error, end = journal(shell)
    said = "the process that watched over it was killed, and all of it was ended: working"
    assert (error["kind"], error["message"]) == ("lost", said)
    assert (end["outcome"], end["cause"], end["summary"]) == ("error", "lost", said)


@pytest.mark.parametrize("listener", ["gone", "full"])
def test_output_that_nobody_can_take_does_not_end_the_agent(shell: Shell, listener: str) -> None:
    code = "for n in range(2000): print('line', n, flush=True)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    with open("/dev/full", "wb") as full:
        out = subprocess.PIPE if listener == "gone" else full
        process = subprocess.Popen(
            shell.command(words),
            env=shell.environment(),
            cwd=shell.cwd,
            stdout=out,
            stderr=subprocess.PIPE,
        )
        if process.stdout is not None:
            process.stdout.close()
        assert process.stderr is not None
        with process.stderr as talk:
            said = talk.read().decode()
        assert process.wait(PATIENCE) == 0, said
    assert "could not be shown" in said
    assert "Traceback" not in said
    assert journal(shell)[-1]["outcome"] == "completed"
    kept = next((shell.home / "state/rio/output").glob("*.txt")).read_text("utf-8")
    assert "line 1999" in kept


def test_ctrl_c_stops_the_command_and_the_session_has_an_end(shell: Shell, tmp_path: Path) -> None:
    mark = tmp_path / "up"
    code = f"import time; open({str(mark)!r}, 'w').write('x'); time.sleep(600)"
    words = ("run", "--agent", "rio", "--", sys.executable, "-c", code)
    wrapper = subprocess.Popen(shell.command(words), env=shell.environment(), cwd=shell.cwd)
    until(mark.exists)
    wrapper.send_signal(signal.SIGTERM)
    assert wrapper.wait(PATIENCE) == 128 + signal.SIGTERM
    assert journal(shell)[-1]["cause"] == "stopped"


def test_a_command_that_is_not_there_becomes_no_session(shell: Shell) -> None:
    ran = shell("run", "--agent", "rio", "--", "no-such-command")
    assert ran.code == 4
    assert "hint:" in ran.err
    assert journal(shell) == []


def test_what_a_cli_agent_prints_about_cost_is_read(shell: Shell) -> None:
    result = {
        "type": "result",
        "result": "done",
        "total_cost_usd": 0.42,
        "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 5},
    }
    run(shell, code=f"print({json.dumps(json.dumps(result))})")
    session = shown(shell, "session.json")
    assert (session["cost_usd"], session["tokens_used"]) == (0.42, 35)


def test_the_context_comes_by_file_environment_or_standard_input(shell: Shell) -> None:
    (shell.home / "state/rio").mkdir(parents=True, exist_ok=True)
    (shell.home / "state/rio/memory.md").write_text("# Rio\n\n## Dead Ends\n- fees\n", "utf-8")
    by_file = run(shell, code="import os; print(open(os.environ['HOLDFAST_CONTEXT']).read())")
    by_env = run(
        shell, "--context", "env", code="import os; print(os.environ['HOLDFAST_CONTEXT_TEXT'])"
    )
    by_stdin = run(shell, "--context", "stdin", code="import sys; print(sys.stdin.read())")
    template = run(shell, "--stdin", "Say: {context}", code="import sys; print(sys.stdin.read())")
    for ran in (by_file, by_env, by_stdin, template):
        assert "- fees" in ran.out
    assert template.out.startswith("Say: # What rio should know")


def test_the_state_on_disk_is_what_the_api_says(shell: Shell) -> None:
    run(shell, code="pass")
    with Home.open(str(shell.home)) as home, Agent(home, "rio") as rio:
        assert rio.report() == shown(shell, "report.json")
        assert rio.session() == shown(shell, "session.json")
    assert shell("check").code == 0


def test_no_file_of_the_home_holds_a_secret_that_a_command_printed(shell: Shell) -> None:
    token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
    code = f"import sys; print('{token}'); sys.exit('login with password=hunter2 failed')"
    ran = run(shell, code=code)
    assert token in ran.out
    output = next((shell.home / "state/rio/output").glob("*.txt")).read_text("utf-8")
    assert output.startswith("[SECRET:github:")
    for path in shell.home.rglob("*"):
        held = path.read_bytes() if path.is_file() else b""
        assert token.encode() not in held, path
        assert b"password=hunter2" not in held, path


def test_a_line_is_shortened_after_it_was_masked_not_before(shell: Shell) -> None:
    token = "AKIA" + "Q3EGWRZJ5BUKNYX7"
    run(shell, code=f"import sys; sys.exit('x ' * 91 + ' {token} refused')")
    for path in shell.home.rglob("*"):
        held = path.read_bytes() if path.is_file() else b""
        assert token[:14].encode() not in held, path


def test_a_command_that_says_it_failed_does_not_look_like_one_that_did_not(shell: Shell) -> None:
    report = "import os; open(os.environ['HOLDFAST_REPORT'], 'w').write('{\"error\": \"no keys\"}')"
    ran = run(shell, code=report)
    assert ran.code == 1
    assert (journal(shell)[-1]["outcome"], journal(shell)[-1]["exit_code"]) == ("error", 0)
    printed = 'print(\'{"type": "result", "is_error": true, "result": "no keys"}\')'
    assert run(shell, code=printed).code == 1


@pytest.mark.parametrize("left", ["mkfifo $P", "ln -s /etc/passwd $P", "mkdir $P; touch $P/x"])
def test_nothing_that_a_command_puts_beside_its_report_stays(shell: Shell, left: str) -> None:
    program = left.replace("$P", '"$HOLDFAST_REPORT"')
    seen = f"{program}; {shlex.join(map(str, shell.command(('check',))))} >&2"
    ran = shell("run", "--agent", "rio", "--", "sh", "-c", seen)
    assert ran.code == 0, ran.err
    assert list((shell.home / "cache/sessions").iterdir()) == []
    assert Path("/etc/passwd").exists()
    assert shell("check").code == 0

"""Real processes: rows that flow, readers that leave, terminals, closed descriptors."""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.cli.process import PATIENCE, REPO, command, environment, spawn, started
from tests.ledger.shell import PROGRAM


def test_each_row_of_a_stream_is_out_before_the_next_is_asked_for() -> None:
    with started("toy", "follow", "one") as toy:
        assert toy.read_line() == "SEQ  SUMMARY"
        assert toy.read_line() == "1    one"
        toy.say(b"two\n")
        assert toy.read_line() == "2    two"
        toy.stdin.close()
        assert toy.ended() == (0, "warning: line 2\nstream closed\n")


def test_a_stream_in_json_is_one_row_per_line() -> None:
    with started("--json", "toy", "follow", "one") as toy:
        assert toy.read_line() == '{"seq":1,"summary":"one","secret":"hidden"}'
        toy.say(b"two\n")
        assert toy.read_line() == '{"seq":2,"summary":"two","secret":"hidden"}'


def test_ctrl_c_ends_a_stream_with_130_and_closes_it() -> None:
    with started("--json", "toy", "follow", "one") as toy:
        toy.read_line()
        toy.process.send_signal(signal.SIGINT)
        code, err = toy.ended()
    assert code == 130
    assert err.startswith("stream closed\n")
    assert '"code":"interrupted"' in err
    assert "Traceback" not in err


def test_a_stream_ends_quietly_when_its_reader_leaves() -> None:
    with started("--json", "toy", "follow", "one") as toy:
        toy.read_line()
        toy.stdout.close()
        # Standard input stays open: it must be the lost reader that ends the stream.
        toy.say(b"two\n")
        assert toy.ended() == (0, '{"warning":"line 2"}\nstream closed\n')


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    with started("many", "20000") as toy:
        toy.read_line()
        toy.stdout.close()
        assert toy.ended() == (0, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["toy", "write", "--agent", "a", "x"], 0),
        (["toy", "list", "--found"], 1),
        (["--help"], 0),
    ],
)
def test_nobody_reading_at_all_leaves_the_exit_code_alone(words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = spawn(*words, stdout=writer)
    os.close(writer)
    assert ran.code == code
    assert ran.err in ("", "events 2\n")


def test_output_that_cannot_be_written_is_a_failure_that_warns_of_repeating() -> None:
    with Path("/dev/full").open("wb") as full:
        ran = spawn("toy", "write", "--agent", "a", "x", stdout=full)
    assert ran.code == 1
    error, hint = ran.err.splitlines()
    assert error == "error: the output could not be written: No space left on device"
    assert hint.startswith("hint: what the verb did is done")


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_a_closed_standard_descriptor_never_becomes_a_file_of_ours(closed: str) -> None:
    # `$@` is the command: no quoting of ours in between.
    script = f'exec "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command("descriptors", "--json")],
        cwd=REPO,
        env=environment({}),
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
    )
    assert b'{"next":3}' in done.stdout


def test_closed_output_is_no_failure() -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command("toy", "list", "--found")],
        cwd=REPO,
        env=environment({}),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1


def test_garbage_is_collected_while_a_verb_runs() -> None:
    assert spawn("collector").out == "enabled: yes\n"


def on_terminal(*words: str, columns: int = 80, **env: str) -> list[str]:
    """What a terminal of so many columns receives."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command(*words),
        cwd=REPO,
        env=environment({"TERM": "xterm", **env}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError as error:
        # A terminal whose last user left answers so.
        assert error.errno == errno.EIO
    finally:
        os.close(ours)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
    return seen.decode().replace("\r\n", "\n").splitlines()


def test_what_programs_read_is_escaped_on_a_terminal_only() -> None:
    hostile = "a\rb\x0cc\x1b[31md\x9be\u202ef"
    assert spawn("payload", hostile).out == f"{hostile}\n"
    assert on_terminal("payload", hostile) == [r"a\rb\x0cc\x1b[31md\x9be\u202ef"]


def test_colour_marks_headers_and_errors_on_a_terminal() -> None:
    assert on_terminal("toy", "list")[0] == "\x1b[1mSEQ  AGENT  SUMMARY\x1b[0m"
    assert on_terminal("fail", "Busy")[1].startswith("\x1b[1;31merror:\x1b[0m ")


@pytest.mark.parametrize("why", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("words", [("toy", "list"), ("fail", "Busy")])
def test_there_is_no_colour_where_it_is_not_wanted(why: dict[str, str], words) -> None:
    assert not any("\x1b" in line for line in on_terminal(*words, **why))


def test_there_is_no_colour_in_a_pipe() -> None:
    assert "\x1b" not in spawn("toy", "list").out


def test_lines_are_cut_to_the_terminal_and_whole_in_a_pipe() -> None:
    header, line = on_terminal("many", "1", columns=40, NO_COLOR="1")
    assert (header, line) == ("N  PAD", "0  " + "x" * 36 + "…")
    assert "x" * 100 in spawn("many", "1").out


@pytest.mark.parametrize("module", ["holdfast.cli.main", "gc", "holdfast.cli.output", "click"])
@pytest.mark.parametrize("program", [[PROGRAM], [sys.executable, "-m", "holdfast"]])
def test_ctrl_c_during_imports_leaves_no_traceback(
    tmp_path: Path, program: list[str], module: str
) -> None:
    """The signal comes as the module is looked for, which is while the program still starts."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), 2)\n"
        "sys.meta_path.insert(0, Interrupting())\n",
        encoding="utf-8",
    )
    environ = environment({"PYTHONPATH": str(tmp_path)})
    done = subprocess.run([*program, "--help"], env=environ, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_ctrl_c_during_start_up_leaves_no_traceback() -> None:
    code = (
        "import sys, holdfast.cli.main as m\n"
        "def stop(*_): raise KeyboardInterrupt\n"
        "m._run = stop\n"
        "sys.exit(m.main(['--help']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=environment({}), stderr=subprocess.PIPE
    )
    assert done.returncode == 130
    assert done.stderr == b"error: interrupted\n"

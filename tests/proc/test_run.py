"""A command from its start to its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import NotFound, UsageError
from holdfast.proc.limits import Limits, Means, Progress
from holdfast.proc.output import Keep
from holdfast.proc.tree import Child, Tree
from holdfast.testing import refused
from tests.proc.world import PYTHON


def shell(script: str, **given: object) -> Tree:
    return Tree(["sh", "-c", script], **given)  # type: ignore[arg-type]


def test_the_exit_code_is_the_commands(means: Means) -> None:
    ended = shell("exit 7", means=[means]).run()
    assert (ended.outcome, ended.code, ended.signal, ended.exit_code) == ("exited", 7, None, 7)
    assert ended.means == means


def test_a_signal_is_told_from_an_exit(means: Means) -> None:
    ended = shell("kill -9 $$", means=[means]).run()
    assert (ended.outcome, ended.code, ended.signal) == ("signaled", None, 9)
    assert ended.exit_code == 137


def test_both_outputs_are_kept_apart_and_the_last_line_is_of_either(means: Means) -> None:
    ended = shell("echo one; echo two >&2; printf '\\n  \\n'", means=[means]).run()
    assert ended.stdout.head == b"one\n\n  \n"
    assert ended.stderr.head == b"two\n"
    assert ended.last_line in ("one", "two")
    assert ended.output_bytes == 12
    assert not ended.stdout.dropped


def test_a_last_line_without_its_end_is_captured() -> None:
    assert shell("echo first; printf last").run().last_line == "last"


def test_output_comes_as_it_is_printed(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    came: list[tuple[str, bytes]] = []

    def on_output(stream: str, data: bytes) -> None:
        came.append((stream, data))
        if data == b"before\n":
            fifo.write_text("go\n", encoding="ascii")

    shell(f"echo before; read x < {fifo}; echo after >&2", on_output=on_output).run()
    assert came == [("out", b"before\n"), ("err", b"after\n")]


def test_more_input_than_a_pipe_holds_goes_through(means: Means) -> None:
    text = "round and round\n" * 300_000
    ended = Tree(["cat"], stdin=text, means=[means], keep=Keep(len(text), 0)).run()
    assert ended.stdout.head.decode() == text


def test_input_that_nobody_reads_does_not_hang() -> None:
    ended = Tree(["true"], stdin=b"x" * 5_000_000).run()
    assert ended.outcome == "exited"


def test_a_pipe_of_the_callers_is_read_for_as_long_as_it_is_open(means: Means) -> None:
    theirs, ours = os.pipe()
    os.write(ours, b"one ")

    def answered(stream: str, data: bytes) -> None:
        if data.endswith(b"one "):
            os.write(ours, b"two")
            os.close(ours)

    tree = Tree(["cat"], stdin=theirs, on_output=answered, means=[means])
    assert tree.run().stdout.head == b"one two"
    os.close(theirs)


def test_without_input_the_command_reads_an_end() -> None:
    assert Tree(["cat"]).run().output_bytes == 0


def test_environment_and_directory_are_the_given_ones(tmp_path: Path, means: Means) -> None:
    env = {"PATH": os.environ["PATH"], "WHO": "dé"}
    ended = shell("pwd; echo $WHO; env | wc -l", env=env, cwd=str(tmp_path), means=[means]).run()
    where, who, count = ended.stdout.text.split()
    assert (where, who) == (str(tmp_path), "dé")
    assert int(count) <= 5  # with PWD, HOLDFAST_TREE and what a shell adds


def test_the_command_has_three_descriptors_and_plain_signals(means: Means) -> None:
    script = (
        "import os; print(os.listdir('/proc/self/fd')); print(open('/proc/self/status').read())"
    )
    ended = Tree([*PYTHON, script], means=[means]).run()
    fds, _, status = ended.stdout.text.partition("\n")
    assert sorted(eval(fds)) == ["0", "1", "2", "3"]  # the fourth lists them
    table = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    # Python itself ignores SIGPIPE and SIGXFSZ; what we were started with, `nohup` may want.
    expected = 1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1
    own = Path("/proc/self/status").read_text(encoding="utf-8").partition("SigIgn:\t")[2]
    assert int(table["SigIgn"], 16) & ~expected & ~int(own.split()[0], 16) == 0
    assert int(table["SigBlk"], 16) == 0


def test_the_command_is_known_before_it_begins(tmp_path: Path, means: Means) -> None:
    begun = tmp_path / "begun"
    seen: list[Child] = []

    def on_start(child: Child) -> None:
        seen.append(child)
        fields = (
            Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        assert int(fields[19]) == child.start
        assert child.boot == SystemClock().boot()
        assert not begun.exists()

    with shell(f"touch {begun}", means=[means], on_start=on_start) as tree:
        tree.wait()
    assert begun.exists()
    assert seen == [tree.child]


def test_it_beats_while_the_command_runs(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    beats: list[Progress] = []

    def on_beat(progress: Progress) -> None:
        beats.append(progress)
        if len(beats) == 3:
            fifo.write_text("go\n", encoding="ascii")

    shell(f"echo working; read x < {fifo}", on_beat=on_beat, beat_every=0.01).run()
    assert len(beats) >= 3
    assert beats[2].last_line == "working"
    assert beats[0].elapsed < beats[1].elapsed < beats[2].elapsed


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["no-such-command-anywhere"], NotFound),
        (["./no/such/file"], NotFound),
        (["/etc/passwd"], UsageError),
        (["/"], UsageError),
        ([], UsageError),
        ([""], UsageError),
        (["true", "a\0b"], UsageError),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(
    command: list[str], kind: type[NotFound]
) -> None:
    with refused(kind):
        Tree(command)


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with refused(NotFound):
        Tree(["true"], cwd=str(tmp_path / "gone"))


def test_a_command_is_looked_for_on_the_path_of_its_own_environment(tmp_path: Path) -> None:
    script = tmp_path / "mine"
    script.write_text("#!/bin/sh\necho found\n", encoding="ascii")
    script.chmod(0o755)
    assert Tree(["mine"], env={"PATH": str(tmp_path)}).run().last_line == "found"
    assert Tree(["./mine"], cwd=str(tmp_path)).run().last_line == "found"
    with refused(NotFound):
        Tree(["mine"])


@pytest.mark.parametrize(
    ("text", "says"), [("echo no first line\n", "#!"), ("#!/no/such/shell\n", "interpreter")]
)
def test_a_program_that_the_kernel_refuses_is_not_started(
    tmp_path: Path, means: Means, text: str, says: str
) -> None:
    script = tmp_path / "script"
    script.write_text(text, encoding="ascii")
    script.chmod(0o755)
    ended = Tree([str(script)], means=[means]).run()
    assert (ended.outcome, ended.code, ended.exit_code) == ("not_started", None, 126)
    assert ended.error is not None
    assert says in ended.error


def test_it_stops_when_another_thread_asks(means: Means, word: str) -> None:
    tree = shell("echo ready; sleep 1000", means=[means], env={**os.environ, "W": word})
    threads: list[threading.Thread] = []

    def on_output(*_: object) -> None:
        threads.append(threading.Thread(target=tree.stop))
        threads[0].start()

    tree._on_output = on_output
    ended = tree.run()
    threads[0].join()
    assert (ended.outcome, ended.signal) == ("stopped", signal.SIGTERM)


def test_it_stops_when_a_signal_handler_asks(word: str) -> None:
    script = f"kill -USR1 {os.getpid()}; exec sleep 1000"
    tree = shell(script, means=["group"], env={**os.environ, "W": word})
    before = signal.signal(signal.SIGUSR1, lambda *_: tree.stop())
    try:
        assert tree.run().outcome == "stopped"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_it_says_while_it_is_stopped_is_captured(means: Means) -> None:
    script = "trap 'echo put in order; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    tree = shell(script, means=[means])
    tree._on_output = lambda stream, data: tree.stop()
    ended = tree.run()
    assert (ended.outcome, ended.code) == ("stopped", 3)
    assert ended.stdout.head == b"ready\nput in order\n"


def test_a_stop_before_the_start_ends_it_at_once(word: str) -> None:
    tree = Tree(["sleep", "1000"], env={**os.environ, "W": word})
    tree.stop()
    assert tree.run().outcome == "stopped"
    tree.stop()  # and one afterwards harms nobody


@pytest.mark.parametrize("when", ["before", "at the gate"])
def test_what_is_stopped_before_it_begins_never_does(
    tmp_path: Path, means: Means, when: str
) -> None:
    began = tmp_path / "began"
    tree = shell(f"echo > {began}; sleep 5", means=[means])
    if when == "before":
        tree.stop()
    else:
        tree._on_start = lambda child: tree.stop()
    ended = tree.run()
    assert (ended.outcome, ended.exit_code) == ("stopped", 128 + signal.SIGKILL)
    assert not began.exists()


def test_a_callback_that_fails_ends_the_tree(means: Means, word: str) -> None:
    def on_output(*_: object) -> None:
        raise RuntimeError("full disk")

    tree = shell("echo hello; sleep 1000", on_output=on_output, means=[means])
    tree._environment["W"] = word
    with pytest.raises(RuntimeError, match="full disk"):
        tree.run()


def test_one_that_fails_at_the_start_lets_nothing_begin(tmp_path: Path, means: Means) -> None:
    def on_start(child: Child) -> None:
        raise RuntimeError("not recorded")

    with pytest.raises(RuntimeError, match="not recorded"):
        shell(f"touch {tmp_path}/begun", on_start=on_start, means=[means]).run()
    assert not (tmp_path / "begun").exists()


def test_leaving_the_block_ends_the_tree(means: Means, word: str) -> None:
    with shell("sleep 1000 & sleep 1000", means=[means], env={**os.environ, "W": word}):
        pass


def test_a_tree_runs_once() -> None:
    tree = Tree(["true"])
    with refused(UsageError):
        tree.wait()
    ended = tree.run()
    assert tree.wait() is ended
    with refused(UsageError):
        tree.start()


def test_nothing_is_left_open(means: Means, no_leak: None) -> None:
    threads = threading.enumerate()
    for stdin in (None, "text"):
        shell("cat; echo error >&2", stdin=stdin, means=[means]).run()
    with pytest.raises(RuntimeError):
        tree = shell("echo out; sleep 1000", means=[means])
        tree._on_output = lambda *_: (_ for _ in ()).throw(RuntimeError)
        tree.run()
    with refused(NotFound):
        Tree(["no-such-command-anywhere"])
    assert threading.enumerate() == threads
    with pytest.raises(ChildProcessError):  # no zombie either
        os.waitpid(-1, os.WNOHANG)
    if tree.mark.cgroup is not None:
        assert not os.path.exists(tree.mark.cgroup)


def test_a_tree_that_never_starts_takes_nothing(no_leak: None) -> None:
    tree = Tree(["true"], stdin="text")
    assert tree.mark.cgroup is None or not os.path.exists(tree.mark.cgroup)


def test_many_run_at_once_in_threads(word: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        scripts = [f"sleep 1000 & cat; exit {number}" for number in range(16)]
        env = {**os.environ, "WORD": word}
        trees = [shell(script, env=env, stdin="text") for script in scripts]
        ended = list(pool.map(Tree.run, trees))
    assert [one.code for one in ended] == list(range(16))
    assert {one.last_line for one in ended} == {"text"}


def test_a_tree_within_a_tree_carries_both_marks(means: Means) -> None:
    script = (
        "from holdfast.proc.tree import Tree\n"
        f"ended = Tree(['sh', '-c', 'echo $HOLDFAST_TREE'], means=['{means}']).run()\n"
        "print(ended.last_line)"
    )
    tree = Tree([sys.executable, "-c", script], means=[means])
    outer, inner = tree.run().last_line.split(":")
    assert outer == tree.mark.id != inner


def test_limits_have_to_be_possible() -> None:
    for limits in ({"time": 0}, {"memory": -1}, {"cpu": float("nan")}, {"grace": -0.1}):
        with refused(UsageError):
            Limits(**limits)

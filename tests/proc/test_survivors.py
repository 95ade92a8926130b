"""Nothing outlives its tree, whoever is killed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import UsageError
from holdfast.proc import procfs
from holdfast.proc.around import Around
from holdfast.proc.limits import Limits, Means
from holdfast.proc.survivors import Mark, end, end_around, find_survivors
from holdfast.proc.tree import Child, Tree
from holdfast.testing import refused
from tests.proc.killing import Wrapper
from tests.proc.world import DAEMON, PYTHON, eventually, living

SEIZE, WALL = 0x4206, 0x40000000
STAY = "\nimport time\nwhile True: time.sleep(1000)"


def daemon(word: str, environment: str = "kept", then: str = "") -> list[str]:
    return [*PYTHON, DAEMON.format(environment=environment, word=word) + then]


@pytest.mark.parametrize("environment", ["kept", "empty"])
def test_a_daemon_that_holds_the_pipes_ends_with_the_command(
    means: Means, word: str, environment: str
) -> None:
    env = {**os.environ, "WORD": word}
    # The command waits until its daemon has settled, through a pipe of their own.
    script = (
        "import subprocess, sys\n"
        "daemon = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)\n"
        "print(daemon.stdout.readline().decode(), end='')"
    )
    ended = Tree([sys.executable, "-c", script, *daemon(word, environment)], env=env, means=[means])
    result = ended.run()
    assert (result.outcome, result.code, result.last_line) == ("exited", 0, "settled")
    assert result.survivors_killed == 1


def test_a_pipe_held_by_a_stranger_does_not_hang_us(means: Means) -> None:
    held: list[int] = []

    def on_start(child: Child) -> None:
        held.append(os.open(f"/proc/{child.pid}/fd/1", os.O_WRONLY))

    try:
        ended = Tree(["echo", "done"], on_start=on_start, means=[means]).run()
        assert (ended.outcome, ended.last_line) == ("exited", "done")
    finally:
        os.close(held[0])


def test_what_ends_by_itself_shortly_after_the_command_may_finish(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    script = f"(read x < {fifo}; echo written) & echo gone > {fifo}"
    ended = Tree(["sh", "-c", script]).run()
    assert ended.last_line == "written"
    assert ended.survivors_killed == 0


# --- somebody is killed ---------------------------------------------------------------------


def test_when_the_keeper_is_killed_the_wrapper_ends_the_tree(means: Means, word: str) -> None:
    env = {**os.environ, "WORD": word}
    tree = Tree(daemon(word, then=STAY), env=env, means=[means])

    def on_output(*_: object) -> None:
        assert tree.keeper is not None
        os.kill(tree.keeper, signal.SIGKILL)

    tree._on_output = on_output
    ended = tree.run()
    assert (ended.outcome, ended.code, ended.left) == ("lost", None, 0)


def test_when_the_keeper_is_stopped_limits_still_hold(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.proc.tree._PATIENCE", 0.1)
    tree = Tree(
        ["sh", "-c", "echo ready; sleep 1000"],
        env={**os.environ, "WORD": word},
        limits=Limits(grace=0),
    )

    def on_output(*_: object) -> None:
        assert tree.keeper is not None
        os.kill(tree.keeper, signal.SIGSTOP)
        tree.stop()

    tree._on_output = on_output
    assert tree.run().outcome == "stopped"


def test_a_keeper_that_the_command_stopped_still_tells_how_it_ended(word: str) -> None:
    script = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); print('stopped it')"
    ended = Tree(
        [*PYTHON, script],
        env={**os.environ, "WORD": word},
        means=["group"],
        limits=Limits(time=30, grace=0),
    ).run()
    assert (ended.outcome, ended.code, ended.last_line) == ("exited", 0, "stopped it")


@pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # the keeper outlives our wait
def test_one_that_cannot_be_reaped_does_not_hang_us(
    means: Means, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.proc.tree._STUCK_AFTER", 0.1)
    tree = Tree(
        ["sh", "-c", "echo ready; sleep 1000"],
        env={**os.environ, "WORD": word},
        means=[means],
        limits=Limits(grace=0),
    )

    def on_output(*_: object) -> None:
        # What a debugger holds stays a zombie until the debugger has seen it.
        assert tree.child is not None
        assert ctypes.CDLL(None).ptrace(SEIZE, tree.child.pid, None, None) == 0
        tree.stop()

    tree._on_output = on_output
    with tree:
        ended = tree.wait()
        keeper = tree.keeper
    assert (ended.outcome, ended.left) == ("stopped", 0)
    assert tree.child is not None
    os.waitpid(tree.child.pid, WALL)
    assert keeper is not None
    os.waitpid(keeper, 0)  # it went on until all had gone


@pytest.fixture
def wrapper(means: Means, word: str, tmp_path: Path) -> Iterator[Wrapper]:
    """A process of its own that runs a tree with a daemon in it."""
    with Wrapper(daemon(word, then=STAY), word, means, tmp_path) as wrapper:
        assert wrapper.line() == "settled"
        yield wrapper


def test_when_the_wrapper_is_killed_the_keeper_ends_the_tree_and_runs_the_command_for_it(
    wrapper: Wrapper, word: str
) -> None:
    wrapper.kill()
    assert wrapper.orphaned() == "nothing is left"
    assert living(word) == []
    assert find_survivors(wrapper.mark) == []
    if wrapper.mark.cgroup is not None:
        assert not os.path.exists(wrapper.mark.cgroup)


def test_a_wrapper_that_is_killed_while_its_keeper_is_stopped_leaves_nothing(
    wrapper: Wrapper, word: str
) -> None:
    # Both stand still at once, as the living wrapper would have its keeper go on.
    os.kill(wrapper.process.pid, signal.SIGSTOP)
    keeper = wrapper.keeper()
    assert keeper is not None
    os.kill(keeper, signal.SIGSTOP)
    eventually(lambda: is_stopped(keeper))
    wrapper.kill()
    assert wrapper.orphaned() == "nothing is left"
    assert living(word) == []
    assert find_survivors(wrapper.mark) == []


def is_stopped(pid: int) -> bool:
    seen = procfs.stat(pid)
    return seen is not None and seen.state == "T"


def test_the_next_start_has_a_keeper_go_on_that_is_still_stopped(word: str) -> None:
    script = "kill -STOP $$; echo goes on"
    with subprocess.Popen(
        ["sh", "-c", script, procfs.KEEPER, word], stdout=subprocess.PIPE
    ) as keeper:
        try:
            eventually(lambda: is_stopped(keeper.pid))
            assert end(Mark("other", SystemClock().boot())) == 0
            assert is_stopped(keeper.pid)
            assert end(Mark(word, SystemClock().boot())) == 0
            eventually(lambda: not is_stopped(keeper.pid))
            assert keeper.communicate(timeout=60)[0] == b"goes on\n"
        finally:
            keeper.kill()


def test_a_fork_of_the_wrapper_does_not_hide_its_death(
    means: Means, word: str, tmp_path: Path
) -> None:
    with Wrapper(["sleep", "1000"], word, means, tmp_path, forks=True) as wrapper:
        assert wrapper.line() == "forked"
        wrapper.kill()
        assert wrapper.orphaned() == "nothing is left"
        eventually(lambda: living(word) == [])  # the fork has the word in its arguments


def test_a_wrapper_that_dies_before_it_has_recorded_the_end_is_an_orphaning(
    word: str, tmp_path: Path
) -> None:
    with Wrapper(["true"], word, "group", tmp_path, dies="before the record") as wrapper:
        assert wrapper.orphaned() == "nothing is left"


def test_a_wrapper_that_has_recorded_the_end_leaves_nothing_to_do(
    word: str, tmp_path: Path
) -> None:
    with Wrapper(["true"], word, "group", tmp_path) as wrapper:
        assert wrapper.process.wait(60) == 0
        eventually(lambda: wrapper.keeper() is None)
        assert not wrapper.was_orphaned()


def test_when_both_are_killed_the_next_start_ends_the_tree(
    wrapper: Wrapper, word: str, means: Means
) -> None:
    os.kill(wrapper.process.pid, signal.SIGSTOP)
    keeper = wrapper.keeper()
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    wrapper.kill()
    if means == "pidns":
        eventually(lambda: living(word) == [])
    else:
        # The command goes with the keeper; what has left it does not.
        eventually(lambda: len(find_survivors(wrapper.mark)) == 1)
        assert end(wrapper.mark) == 1
    assert living(word) == []
    assert end(wrapper.mark) == 0


@pytest.mark.parametrize("environment", ["kept", "empty"])
def test_trees_of_which_nothing_was_written_down_are_found_by_the_name_around_them(
    means: Means, word: str, environment: str, tmp_path: Path
) -> None:
    if means == "group" and environment == "empty":
        pytest.skip("nothing tells whose it is")
    command = daemon(word, environment, then=STAY)
    with Wrapper(command, word, means, tmp_path, around=word) as wrapper:
        assert wrapper.line() == "settled"
        os.kill(wrapper.process.pid, signal.SIGSTOP)
        keeper = wrapper.keeper()
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        wrapper.kill()
        assert end_around(f"{word}-other") == end_around(word[:-1]) == 0
        found = end_around(word)
        assert found >= 1 or means == "pidns"  # there the kernel was faster
        eventually(lambda: living(word) == [])
        assert end_around(word) == 0
        if wrapper.mark.cgroup is not None:
            assert not os.path.exists(wrapper.mark.cgroup)


def test_whoever_is_around_a_tree_learns_that_its_keeper_was_killed(word: str) -> None:
    script = "import os, signal; os.kill(os.getppid(), signal.SIGKILL); signal.pause()"
    env = {**os.environ, "WORD": word}
    with Around(word) as around:
        assert Tree([*PYTHON, script], env=env, means=["group"]).run().outcome == "lost"
    assert (around.lost_keeper, around.left) == (True, 0)
    with around:
        assert Tree(["true"], env=env).run().outcome == "exited"
    assert not around.lost_keeper


# --- marks ----------------------------------------------------------------------------------


@contextmanager
def marked(word: str) -> Iterator[tuple[Mark, subprocess.Popen[bytes]]]:
    """A process that a tree could have left behind."""
    mark = Mark(word, SystemClock().boot())
    env = {"HOLDFAST_TREE": f"outer:{word}"}
    with subprocess.Popen(["/bin/sleep", "1000"], env=env) as process:
        eventually(lambda: living(word))
        try:
            yield mark, process
        finally:
            process.kill()


def test_a_mark_of_another_boot_finds_nothing(word: str) -> None:
    with marked(word) as (mark, process):
        assert [pid for pid, _ in find_survivors(mark)] == [process.pid]
        other = replace(mark, boot="another boot")
        assert (find_survivors(other), end(other)) == ([], 0)


def test_a_mark_goes_through_json(word: str) -> None:
    mark = Tree(["true"]).mark
    assert Mark.of(json.loads(json.dumps(mark.as_dict()))) == mark
    for bad in (
        None,
        [],
        {},
        {"id": 1, "boot": "", "cgroup": None},
        {**mark.as_dict(), "id": "../"},
    ):
        with refused(UsageError):
            Mark.of(bad)


def test_a_mark_cannot_name_a_group_of_somebody_else(means: Means, word: str) -> None:
    with Tree(["sleep", "1000"], env={**os.environ, "W": word}, means=[means]) as tree:
        forged = Mark("other", tree.mark.boot, tree.mark.cgroup)
        assert find_survivors(forged) == []
        assert end(forged) == 0
        assert tree.child is not None
        assert procfs.is_alive((tree.child.pid, tree.child.start))


def test_a_member_cannot_end_its_own_tree(means: Means, word: str) -> None:
    script = (
        "import os\nfrom holdfast.clock import SystemClock\n"
        "from holdfast.errors import UsageError\nfrom holdfast.proc.survivors import *\n"
        "try: end(Mark(os.environ['HOLDFAST_TREE'], SystemClock().boot()))\n"
        "except UsageError as error: print(error)"
    )
    ended = Tree([sys.executable, "-c", script], means=[means]).run()
    assert "is itself in the tree" in ended.last_line


def test_a_signal_goes_to_the_very_process_or_to_none(word: str) -> None:
    with marked(word) as (_, process):
        seen = procfs.stat(process.pid)
        assert seen is not None
        assert not procfs.send((seen.pid, seen.start + 1), signal.SIGKILL)
        assert process.poll() is None
        assert procfs.send(seen.process, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    assert not procfs.send(seen.process, signal.SIGKILL)

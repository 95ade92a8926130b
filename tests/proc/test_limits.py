"""Trees that take too much."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast.clock import FakeClock
from holdfast.proc.limits import Limits, Means, Progress
from holdfast.proc.output import Keep
from holdfast.proc.tree import Tree
from tests.proc.world import PYTHON, eventually

MB = 1 << 20


def python(script: str, word: str, **given: object) -> Tree:
    env = {**os.environ, "WORD": word}
    return Tree([*PYTHON, script], env=env, **given)  # type: ignore[arg-type]


def test_its_time_runs_out(means: Means, word: str) -> None:
    clock = FakeClock()
    ended = python(
        "import time; print('ready', flush=True); time.sleep(1000)",
        word,
        clock=clock,
        means=[means],
        limits=Limits(time=3600),
        on_output=lambda *_: clock.advance(3600),
    ).run()
    assert (ended.outcome, ended.signal, ended.exit_code) == ("timeout", signal.SIGTERM, 124)
    assert ended.duration == 3600


def test_within_its_time_nothing_happens() -> None:
    clock = FakeClock()
    tree = Tree(["echo"], clock=clock, limits=Limits(time=3600))
    tree._on_output = lambda *_: clock.advance(3599)
    assert tree.run().outcome == "exited"


def test_one_that_ignores_sigterm_is_killed_after_the_grace(means: Means, word: str) -> None:
    tree = python(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(1000)",
        word,
        means=[means],
        limits=Limits(grace=0.1),
    )
    tree._on_output = lambda *_: tree.stop()
    ended = tree.run()
    assert (ended.outcome, ended.signal, ended.exit_code) == ("stopped", signal.SIGKILL, 137)
    assert ended.survivors_killed == 1


def test_one_that_stops_its_keeper_is_ended_all_the_same(means: Means, word: str) -> None:
    script = (
        "import os, signal, time; os.kill(os.getppid(), signal.SIGSTOP)\n"
        "print('ready', flush=True); time.sleep(1000)"
    )
    tree = python(script, word, means=[means])
    tree._on_output = lambda *_: tree.stop()
    ended = tree.run()
    # Without its keeper it could only be killed, and how it ended would not be known.
    assert (ended.outcome, ended.signal) == ("stopped", signal.SIGTERM)


def test_one_that_is_stopped_gets_to_see_its_end(means: Means, word: str) -> None:
    tree = Tree(
        ["sh", "-c", "trap 'echo seen; exit' TERM; echo ready; kill -STOP $$"],
        env={**os.environ, "WORD": word},
        means=[means],
    )

    def on_output(stream: str, data: bytes) -> None:
        if data == b"ready\n":
            assert tree.child is not None
            stat = Path(f"/proc/{tree.child.pid}/stat")
            eventually(lambda: ") T " in stat.read_text(encoding="utf-8"))
            tree.stop()

    tree._on_output = on_output
    assert tree.run().last_line == "seen"


def test_a_second_stop_does_not_wait_for_the_grace(word: str) -> None:
    tree = python(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'no\\n'))\n"
        "os.write(1, b'ready\\n')\nwhile True: time.sleep(1000)",
        word,
        limits=Limits(grace=3600),
    )
    tree._on_output = lambda stream, data: tree.stop(now=data == b"no\n")
    assert tree.run().signal == signal.SIGKILL


def test_200_mb_on_both_pipes_are_drained_and_counted(means: Means, word: str) -> None:
    keep = Keep(1000, 1000)
    script = "head -c 104857600 /dev/zero >&2 & head -c 104857600 /dev/zero; wait; echo; echo end"
    env = {**os.environ, "WORD": word}
    ended = Tree(["sh", "-c", script], env=env, means=[means], keep=keep).run()
    assert (ended.outcome, ended.stdout.tail[-4:]) == ("exited", b"end\n")
    assert ended.output_bytes == 200 * MB + 5
    assert ended.stdout.dropped
    assert ended.stderr.total == 100 * MB
    assert len(ended.stdout.head) == len(ended.stdout.tail) == 1000


def test_a_flood_is_cut_off_at_the_limit(means: Means, word: str) -> None:
    got = bytearray()
    ended = Tree(
        ["sh", "-c", "yes >&2 & yes"],
        env={**os.environ, "WORD": word},
        means=[means],
        limits=Limits(output=5 * MB),
        on_output=lambda stream, data: got.extend(data),
    ).run()
    assert (ended.outcome, len(got)) == ("output", 5 * MB)
    assert ended.output_bytes > 5 * MB
    assert ended.stdout.total + ended.stderr.total == 5 * MB


def test_output_up_to_the_limit_is_no_fault() -> None:
    assert Tree(["echo", "four"], limits=Limits(output=5)).run().outcome == "exited"


def test_one_that_eats_memory_is_ended(means: Means, word: str) -> None:
    ended = python(
        "import time\nkept = []\n"
        "for _ in range(100): kept.append(b'x' * (20 << 20)); time.sleep(0.01)\n"
        "print('full')\ntime.sleep(1000)",
        word,
        means=[means],
        limits=Limits(memory=150 * MB, grace=0),
    ).run()
    assert (ended.outcome, ended.signal) == ("memory", signal.SIGKILL)
    assert ended.peak_memory >= 140 * MB


def test_many_that_eat_a_little_are_ended_too(means: Means, word: str) -> None:
    ended = python(
        "import os, time\n"
        "for _ in range(5):\n    if os.fork() == 0: kept = b'x' * (50 << 20); time.sleep(1000)\n"
        "time.sleep(1000)",
        word,
        means=[means],
        limits=Limits(memory=150 * MB, grace=0),
    ).run()
    assert ended.outcome == "memory"


def test_memory_that_is_shared_counts_once(means: Means, word: str, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    seen: list[Progress] = []

    def on_beat(progress: Progress) -> None:
        seen.append(progress)
        if progress.sample.processes >= 6 and len(seen) >= 3:
            with open(fifo, "w", encoding="ascii") as end:
                end.write("go\n")
            tree._on_beat = None

    tree = python(
        "import os\nkept = b'x' * (60 << 20)\nalive, held = os.pipe()\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0: os.close(held); os.read(alive, 1); os._exit(0)\n"
        f"open({str(fifo)!r}).read()\nos.close(held)\nfor _ in range(5): os.wait()",
        word,
        means=[means],
        limits=Limits(memory=150 * MB),
        on_beat=on_beat,
        beat_every=0.15,
    )
    ended = tree.run()
    assert (ended.outcome, ended.code) == ("exited", 0)
    assert ended.peak_memory >= 60 * MB


def test_one_that_burns_cpu_is_ended(means: Means, word: str) -> None:
    ended = python("while True: pass", word, means=[means], limits=Limits(cpu=0.3, grace=0)).run()
    assert ended.outcome == "cpu"
    assert 0.3 <= ended.cpu_seconds < 5


def test_cpu_of_children_that_have_ended_counts(means: Means, word: str) -> None:
    ended = python(
        "import os, time\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        while time.process_time() < 0.05: pass\n"
        "        os._exit(0)\n"
        "    os.wait()",
        word,
        means=[means],
        limits=Limits(cpu=0.5, grace=0),
    ).run()
    assert ended.outcome == "cpu"


def test_what_a_short_command_used_is_told(means: Means, word: str) -> None:
    script = "import time\nkept = b'x' * (50 << 20)\nwhile time.process_time() < 0.05: pass"
    ended = python(script, word, means=[means]).run()
    assert ended.cpu_seconds >= 0.05
    assert ended.peak_memory >= 50 * MB


BOMB = """
import os, signal, time
{ignore}
for _ in range(50):
    if os.fork() == 0:
        {leave}
        while True: time.sleep(1000)
print("all there", flush=True)
while True: time.sleep(1000)
"""


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"])
def test_a_fork_bomb_is_ended(means: Means, word: str, leave: str) -> None:
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    tree = python(BOMB.format(ignore=ignore, leave=leave), word, means=[means])
    tree._on_output = lambda *_: tree.stop(now=True)
    ended = tree.run()
    assert (ended.outcome, ended.left) == ("stopped", 0)
    assert ended.survivors_killed == 51


def test_one_that_goes_on_forking_is_ended(means: Means, word: str) -> None:
    script = (
        "import os, time\n"
        "if os.fork() == 0: print('growing', flush=True)\n"
        "while True:\n"
        "    if len(os.listdir('/proc')) < 600: os.fork()\n"
        "    time.sleep(0.001)"
    )
    tree = python(script, word, means=[means])
    tree._on_output = lambda *_: tree.stop(now=True)
    assert tree.run().left == 0


def test_too_many_processes_are_ended(means: Means, word: str) -> None:
    script = BOMB.format(ignore="", leave="pass")
    ended = python(script, word, means=[means], limits=Limits(processes=20)).run()
    assert ended.outcome == "processes"

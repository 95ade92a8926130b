"""Wrappers to kill: processes of their own that run a tree, at any instant of it.

python -m tests.proc.killing [RUNS] [SEED]     200 kills at random instants
"""

from __future__ import annotations

import json
import os
import random
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

from holdfast.clock import SystemClock
from holdfast.proc.limits import Means
from holdfast.proc.survivors import Mark, end, find_survivors
from tests.proc.world import BREEDER, PATIENCE, PYTHON, eventually, lacking, living, next_line

Victim = Literal["wrapper", "keeper", "both"]
VICTIMS: tuple[Victim, ...] = ("wrapper", "keeper", "both")
WRAPPER = Path(__file__).with_name("wrapper.py")


class Wrapper:
    """A process that runs `command` in a tree; the word is in the tree's environment only."""

    def __init__(
        self,
        command: Sequence[str],
        word: str,
        means: Means,
        scratch: Path,
        *,
        forks: bool = False,
        dies: str = "",
        around: str = "",
    ) -> None:
        self._fifo = scratch / f"orphaned-{secrets.token_hex(4)}"
        os.mkfifo(self._fifo)
        # Held open for reading, so that whoever is the orphan's command never waits for us.
        self._orphaned = os.open(self._fifo, os.O_RDONLY | os.O_NONBLOCK)
        given = {
            "command": list(command),
            "word": word,
            "means": means,
            "fifo": str(self._fifo),
            "forks": forks,
            "dies": dies,
            "around": around,
        }
        self.process = subprocess.Popen(
            [sys.executable, WRAPPER, json.dumps(given)],
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.mark = Mark.of(json.loads(self.line()))

    def line(self) -> str:
        assert self.process.stdout is not None
        return next_line(self.process.stdout)

    def keeper(self) -> int | None:
        """By its name, as somebody would who wants to kill it."""
        return next(iter(living(f"holdfast-keeper\0{self.mark.id}\0")), None)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def was_orphaned(self) -> bool:
        return bool(select.select([self._orphaned], [], [], 0)[0]) and self.orphaned() != ""

    def orphaned(self) -> str:
        """What the command for orphans says."""
        deadline = time.monotonic() + PATIENCE
        said = b""
        while not said.endswith(b"\n") and time.monotonic() < deadline:
            select.select([self._orphaned], [], [], 0.05)
            with suppress(BlockingIOError):
                said += os.read(self._orphaned, 100)
        return said.decode().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._orphaned)
        eventually(lambda: self.keeper() is None)
        end(self.mark)


def kill_once(chance: random.Random, means: Means, victim: Victim, scratch: Path) -> str:
    """Kill at a random instant of a life that leaves daemons all the time; what was killed."""
    word = f"word-{secrets.token_hex(8)}"
    with Wrapper([*PYTHON, BREEDER], word, means, scratch) as wrapper:
        time.sleep(chance.choice((0.0, 0.03, 0.3)) + chance.uniform(0, 0.1))
        os.kill(wrapper.process.pid, signal.SIGSTOP)
        keeper = wrapper.keeper()
        if keeper is not None and victim != "wrapper":
            os.kill(keeper, signal.SIGKILL)
        if victim != "keeper":
            wrapper.kill()
        else:
            os.kill(wrapper.process.pid, signal.SIGCONT)
        if victim == "wrapper":
            eventually(lambda: wrapper.keeper() is None)
            assert find_survivors(wrapper.mark) == []
        elif victim == "both":
            end(wrapper.mark)
            if keeper is None:
                # Until it is a program of its own, a new keeper has the words of its wrapper.
                eventually(lambda: living(word) == [])
        elif keeper is not None:
            while (line := wrapper.line()) and not line.startswith("ended"):
                pass
            assert line in ("ended lost 0", "ended busy"), line
        else:
            wrapper.kill()
    left = living(word)
    assert left == [], f"{means}, {victim} killed: {left} survived"
    group = wrapper.mark.cgroup
    assert group is None or not os.path.exists(group), "the control group is still there"
    return f"{means} {victim} {'kept' if keeper else 'before the keeper'}"


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    usable: list[Means] = [one for one in ("cgroup", "pidns", "group") if not lacking(one)]
    began = SystemClock().boottime()
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(runs):
            means, victim = usable[number % len(usable)], VICTIMS[number // len(usable) % 3]
            what = kill_once(chance, means, victim, Path(scratch))
            counts[what] = counts.get(what, 0) + 1
    for what, count in sorted(counts.items()):
        print(f"{count:5}  {what}")
    print(f"{runs} kills, no survivor, {SystemClock().boottime() - began:.0f} s, seed {seed}")


if __name__ == "__main__":
    main()

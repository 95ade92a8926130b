"""The benchmark's side of the talk with a driver: see `driver.py` for the words."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.frame import REPO, child_environment
from bench.peers import environment
from bench.peers.driver import LENGTH

PATIENCE = 3600.0
PIPE_SIZE = 4096
QUIET = {
    # Nobody is asked or told anything over a network.
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    # So that strace shows no looks at /etc/localtime.
    "TZ": "UTC",
}


class Peer(NamedTuple):
    """One way to keep the steps of an agent."""

    name: str
    script: str
    form: str
    about: str
    """How it is set up, for the docs."""

    @property
    def installed(self) -> bool:
        """Whether it needs packages that are not ours."""
        return self.script not in ("holdfast_log", "holdfast_job", "plain_sqlite")


class Task(NamedTuple):
    """The conversation to keep."""

    seed: int
    steps: int
    length: int = LENGTH
    """Bytes of a message as JSON, about."""


class Talk:
    """A driver that runs."""

    def __init__(self, peer: Peer, store: Path, task: Task, under: Sequence[str] = ()) -> None:
        self._peer = peer
        self._buffer = b""
        self._errors = store.with_suffix(".stderr")
        interpreter = environment.python() if peer.installed else Path(sys.executable)
        script = REPO / f"bench/peers/{peer.script}.py"
        command = [*under, str(interpreter), str(script), str(store), peer.form]
        variables = child_environment() | QUIET
        if peer.installed:
            del variables["PYTHONPATH"]
        self.started = time.perf_counter()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, *map(str, task)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # One that acknowledges faster than we read cannot run far ahead of us.
                pipesize=PIPE_SIZE,
                env=variables,
                # DBOS looks for a file of settings where it is started.
                cwd=store.parent,
            )

    def say(self, order: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """The next line: a report, or the number of a step."""
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            if not self._fill(max(0.0, deadline - time.monotonic())):
                told = self._errors.read_text(encoding="utf-8", errors="replace")[-1500:]
                raise AssertionError(f"{self._peer.name} is silent: {told}")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _fill(self, seconds: float) -> bool:
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        if not select.select([pipe], [], [], seconds)[0]:
            return False
        data = os.read(pipe, 1 << 16)
        self._buffer += data
        return bool(data)

    def pause(self) -> None:
        """What a peer does in the background shall not run in another's turn."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Let it close its store and end."""
        self.say("close")
        self._process.wait(PATIENCE)
        self.kill()

    def kill(self) -> list[int]:
        """End it as a crash does; the numbers of steps that were still in the pipe."""
        self._process.kill()
        self._process.wait()
        while self._fill(PATIENCE):
            pass
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # it died before it read its last order
        *whole, _ = self._buffer.split(b"\n")
        self._buffer = b""
        return [int(line) for line in whole if line.isdigit()]

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()

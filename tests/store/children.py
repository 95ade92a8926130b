"""Other processes for tests: started, spoken to over pipes, always ended.

Nothing here sleeps: a parent waits for a line that the child prints, or for its end, and
gives up when that does not come.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SECONDS = 30.0

_PRELUDE = """\
import os, sys, signal
sys.path[:0] = [{src!r}, {repo!r}]
from holdfast.store.home import Home
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def listen():
    return sys.stdin.readline().strip()
"""


def arguments(script: str) -> list[str]:
    prelude = _PRELUDE.format(src=str(REPO / "src"), repo=str(REPO))
    return [sys.executable, "-c", prelude + script]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | dict(extra or {})


class Child:
    """One process that runs a script."""

    def __init__(
        self, script: str, env: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> None:
        self._rest = b""
        self.process = subprocess.Popen(
            [*within, *arguments(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(env),
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self._out, self._in = self.process.stdout, self.process.stdin

    @property
    def pid(self) -> int:
        return self.process.pid

    def hear(self) -> str:
        """The next line that it prints."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], SECONDS)
            assert ready, "the child is silent"
            data = os.read(self._out.fileno(), 1 << 16)
            assert data, f"the child ended: {self.process.wait(SECONDS)}"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def tell(self, line: str) -> None:
        self._in.write(line.encode() + b"\n")
        self._in.flush()

    def wait(self) -> int:
        """Its exit status, negative if a signal ended it."""
        self._in.close()
        return self.process.wait(SECONDS)

    def freeze(self) -> None:
        """Stop it, and come back when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        assert state_when(self.pid, lambda state: state == "T") == "T"

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self._out.close()
        if not self._in.closed:
            self._in.close()


@contextmanager
def child(
    script: str, env: Mapping[str, str] | None = None, within: Sequence[str] = ()
) -> Iterator[Child]:
    """A process that is ended with the block; `within` is a command that runs it."""
    made = Child(script, env, within)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def children(scripts: list[str]) -> Iterator[list[Child]]:
    made: list[Child] = []
    try:
        for script in scripts:
            made.append(Child(script))
        yield made
    finally:
        for each in made:
            each.end()


def wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Come back when the condition holds; fail if it never does."""
    never = threading.Event()
    for _ in range(int(seconds / 0.002)):
        if condition():
            return
        never.wait(0.002)
    raise AssertionError("it never came to pass")


def state_when(pid: int, wanted: Callable[[str], bool]) -> str:
    """The state letter of a process once it is the wanted one."""

    def state() -> str:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return text.rpartition(")")[2].split()[0]

    wait_until(lambda: wanted(state()))
    return state()


def fork() -> int:
    """`os.fork`, beside threads as well: that is what is tried here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_fork(act: Callable[[], object]) -> None:
    """Run `act` in a forked child of this very process; fail if it fails or hangs."""
    pid = fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(status)
    watch = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([watch], [], [], SECONDS)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(watch)
    assert ready, "the forked child hangs"
    assert os.waitstatus_to_exitcode(status) == 0

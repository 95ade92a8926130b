"""Processes of ours for tests that have threads: copies of a process that has none.

A browser and a listener bring threads into the process that runs the tests, and a copy of such a
process may stop for ever.  The nursery is a copy from before; it makes those that are asked for.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from tests.forked import become, listen, load, streams

_DONE = 8
"""Bytes that tell a pid or how a process ended."""


class Born:
    """A process of the nursery; what tests use of `subprocess.Popen`."""

    def __init__(self, wire: socket.socket, patience: float) -> None:
        self._wire = wire
        wire.settimeout(patience)
        self.pid = self._number()
        self.returncode: int | None = None

    def fileno(self) -> int:
        """Can be read from when the process has ended."""
        return self._wire.fileno()

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._wire], [], [], 0)[0]:
            self.returncode = self._number()
            self._wire.close()
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            select.select([self._wire], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("a copy", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        return int(self._wire.recv(_DONE))


class Nursery:
    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire

    def born(
        self,
        words: Sequence[str | bytes],
        env: Mapping[str, str],
        cwd: Path,
        streams: tuple[int, int, int],
        patience: float,
    ) -> Born:
        """`holdfast words…` with these descriptors as its standard streams."""
        asked = [[os.fsdecode(word) for word in words], dict(env), str(cwd)]
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as file, there:
            file.write(json.dumps(asked).encode())
            file.seek(0)
            socket.send_fds(self._wire, [b"!"], [*streams, file.fileno(), there.fileno()])
        return Born(here, patience)

    def ran(
        self,
        words: Sequence[str | bytes],
        env: Mapping[str, str],
        cwd: Path,
        said: bytes,
        patience: float,
    ) -> tuple[int, bytes, bytes]:
        """As `forked`."""
        with streams(said) as (given, heard):
            born = self.born(words, env, cwd, given, patience)
            listen(born.fileno(), given, heard, patience, born.kill)
        out, err = heard.values()
        return born.wait(patience), out, err


nurseries: list[Nursery] = []
"""The one that is open, if any."""


@contextmanager
def open_nursery() -> Iterator[None]:
    """Has to be called before there are threads."""
    load()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    if (pid := os.fork()) == 0:
        here.close()
        _serve(there)
    there.close()
    nurseries.append(Nursery(here))
    try:
        yield
    finally:
        nurseries.pop()
        here.close()
        os.waitpid(pid, 0)


def _serve(wire: socket.socket) -> NoReturn:
    """Until nobody asks any more."""
    try:
        while True:
            data, descriptors, *_ = socket.recv_fds(wire, 1, 5)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not data:
                break
            if os.fork() == 0:
                _attend(descriptors)
            for each in descriptors:
                os.close(each)
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _attend(descriptors: Sequence[int]) -> NoReturn:
    """Make the copy, and tell how it ended."""
    *streams, file, wire = descriptors
    with open(file, "rb") as asked:
        words, env, cwd = json.load(asked)
    if (pid := os.fork()) == 0:
        become(words, env, Path(cwd), (streams[0], streams[1], streams[2]))
    for each in streams:
        os.close(each)
    # Nobody need listen any more.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with suppress(OSError):
        os.write(wire, b"%d" % pid)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        os.write(wire, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)

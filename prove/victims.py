"""Processes to kill, stop and cut off, forked from a warm interpreter.

A `Nursery` is a child that has Holdfast imported and forks a victim within a millisecond of
being asked.  Each victim has a channel to the harness, which lies outside of any home: what
comes out of it before the fault is what the victim acknowledged.

    nursery = Nursery(source=…)             # a tree with another `holdfast` in it, or ours
    victim = nursery.start("writer", home="…", me=3)
    victim.channel.recv(4096)
    victim.kill()                           # its wait status, to prove how it died
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from prove import frame

_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_PAUSE = 0.0005


class Stuck(Exception):
    """A victim did not do in time what it has to."""


class Victim:
    """One process that a harness may do anything to."""

    def __init__(self, nursery: Nursery, pid: int, channel: socket.socket) -> None:
        self.nursery, self.pid, self.channel = nursery, pid, channel
        self.status: int | None = None
        self.gone = False
        """Whether its channel has come to an end."""

    def signal(self, number: signal.Signals) -> None:
        if self.status is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        """SIGKILL, and how it ended: by that, or by something that was faster."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def wait(self, patience: float = 30.0) -> int:
        """Its wait status."""
        deadline = time.monotonic() + patience
        while self.status is None:
            self.status = self.nursery.reap(self.pid)
            if self.status is None:
                if time.monotonic() > deadline:
                    raise Stuck(f"process {self.pid} is still there after {patience} s")
                time.sleep(_PAUSE)
        return self.status

    def wait_until_stopped(self, patience: float = 5.0) -> bool:
        """Whether it stops, as one that a failpoint stops does, rather than ending."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
            except OSError:
                return False
            state = text.rpartition(")")[2].split()[0]
            if state in "tT":
                return True
            if state in "ZX":
                return False
            time.sleep(_PAUSE)
        return False

    def tell(self, **command: Any) -> None:
        self.channel.send(json.dumps(command).encode())

    def hear(self, patience: float = 20.0) -> bytes:
        """The next packet; empty when the victim is gone."""
        ready, _, _ = select.select([self.channel], [], [], patience)
        if not ready:
            raise Stuck(f"process {self.pid} said nothing for {patience} s")
        try:
            return self.channel.recv(1 << 16)
        except ConnectionResetError:
            return b""

    def ask(self, **command: Any) -> dict[str, Any] | None:
        """Have a command done; None when the victim died over it."""
        try:
            self.tell(**command)
        except OSError:
            return None
        answer = self.hear()
        return json.loads(answer) if answer else None

    def packets(self) -> list[bytes]:
        """What it has said so far."""
        found: list[bytes] = []
        try:
            while packet := self.channel.recv(1 << 16, socket.MSG_DONTWAIT):
                found.append(packet)
            self.gone = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.gone = True
        return found

    def end(self) -> list[bytes]:
        """Kill it, and what it had said before."""
        self.kill()
        found = self.packets()
        self.channel.close()
        return found


class Nursery:
    """A warm interpreter that forks victims."""

    def __init__(
        self,
        *,
        source: Path | None = None,
        preload: Path | None = None,
        roles: str = "prove.actors",
    ) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = frame.child_environment(source)
        if preload is not None:
            environment["LD_PRELOAD"] = str(preload)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "prove.victims", str(theirs.fileno()), roles],
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd="/",
                # What a broken copy complains of is for the harness to see, not for the user.
                stderr=subprocess.DEVNULL if source else None,
            )
        self._expect()

    def _expect(self) -> int:
        answer = self._control.recv(64)
        if not answer:
            raise Stuck("the process that forks victims is gone")
        return int(answer)

    def start(self, role: str, **arguments: Any) -> Victim:
        """Fork a victim that calls `role(channel, **arguments)`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = json.dumps([role, arguments]).encode()
            socket.send_fds(self._control, [message], [theirs.fileno()])
            return Victim(self, self._expect(), ours)

    def reap(self, pid: int) -> int | None:
        """The wait status of a victim, or None as long as it lives."""
        self._control.send(b"%d" % pid)
        status = self._expect()
        return None if status < 0 else status

    def close(self) -> None:
        """End it and every victim that is left."""
        self._control.close()
        self._process.wait()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# --- in the child ---------------------------------------------------------------------------


def serve(control: socket.socket, roles: Any) -> None:
    """Fork and reap as we are told, until nobody tells us any more."""
    alive: set[int] = set()
    control.send(b"0")
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            break
        if not fds:
            pid, status = os.waitpid(int(message), os.WNOHANG)
            alive.discard(pid)
            control.send(b"%d" % (status if pid else -1))
            continue
        pid = os.fork()
        if pid == 0:
            _LIBC.prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            control.close()
            _live(socket.socket(fileno=fds[0]), roles, *json.loads(message))
        os.close(fds[0])
        alive.add(pid)
        control.send(b"%d" % pid)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _live(channel: socket.socket, roles: Any, role: str, arguments: dict[str, Any]) -> None:
    """The whole life of a victim."""
    code = 1
    try:
        getattr(roles, role)(channel, **arguments)
        code = 0
    except BrokenPipeError:
        code = 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            channel.send(b"!" + f"{type(error).__name__}: {error}".encode()[:2000])
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(
        socket.socket(fileno=int(sys.argv[1])),
        importlib.import_module(sys.argv[2]),
    )

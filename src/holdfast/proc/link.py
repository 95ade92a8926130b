"""The wrapper's end of the line to a keeper."""

from __future__ import annotations

import marshal
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from signal import SIGCONT

from holdfast.errors import from_os
from holdfast.proc import procfs

_PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[2]); from holdfast.proc.keeper import main; main()"
)


class Link:
    """A keeper that was just started; it has the standard streams that the command will have."""

    def __init__(self, name: str, stdin: int, stdout: int, stderr: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # Neither our environment's wishes for Python nor installed packages are its
                # business, and reading them takes longer than all the rest.
                python = [sys.executable, "-I", "-S", "-c", _PROGRAM]
                self._process = subprocess.Popen(
                    [*python, str(theirs.fileno()), _PACKAGES, procfs.KEEPER, name],
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise from_os(error, "starting the keeper of a command") from error
        self._socket = ours
        self._partial = b""
        self.lost = False
        """Whether the keeper has gone."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def order(self, order: Mapping[str, object]) -> None:
        data = marshal.dumps(dict(order))
        with suppress(OSError):  # that it has gone is noticed where we listen
            self._socket.sendall(len(data).to_bytes(8, "little") + data)

    def tell(self, letter: str) -> None:
        with suppress(OSError):
            self._socket.send(letter.encode())
        self.wake()

    def wake(self) -> None:
        """Have the keeper go on; what it keeps may have stopped it."""
        with suppress(OSError):
            self._process.send_signal(SIGCONT)

    def watch(self, selector: selectors.BaseSelector, note: Callable[[list[str]], None]) -> None:
        """Have the selector call for each line of the keeper, with its words."""

        def receive() -> None:
            data = b""
            with suppress(OSError):
                data = self._socket.recv(4096)
            if not data:
                selector.unregister(self._socket)
                self.lost = True
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                note(line.decode().split())

        selector.register(self._socket, selectors.EVENT_READ, receive)

    def kill(self) -> None:
        """For a keeper that does not do its work: the tree is then ended without it."""
        self._process.kill()

    def close(self, *, wait: bool) -> None:
        """Hang up; a keeper that has nothing left to end goes."""
        self._socket.close()
        if wait:
            self._process.wait()

"""A dashboard as a process, and somebody who talks to it byte by byte."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any, NamedTuple

from tests.ledger.shell import PATIENCE, Shell
from tests.nursery import Born, nurseries

LINK = re.compile(r"(http://(hf-[0-9a-f]{20}\.localhost):(\d+))/login\?key=(\S+)")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Board:
    def __init__(self, shell: Shell, process: subprocess.Popen[bytes] | Born, link: str) -> None:
        self.shell, self.process, self.link = shell, process, link
        found = LINK.fullmatch(link)
        assert found is not None
        self.url, self.port, self.key = found[1], int(found[3]), found[4]
        self.host = f"{found[2]}:{self.port}"
        self.cookie = ""
        self.token = ""
        self.tab: Any = None
        """Where a browser shows it, if one does."""
        self.said: list[bytes] = []
        """Lines on its standard error since it is up."""

    def raw(
        self, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes = b""
    ) -> Answer:
        """Exactly these headers and no others."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        text = "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1", "replace")
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as wire:
            wire.sendall(text + body)
            data = b""
            while piece := wire.recv(1 << 16):
                data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *others = head.decode("latin-1").split("\r\n")
        found = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in others)
        }
        if found.get("transfer-encoding") == "chunked":
            rest = _joined(rest)
        return Answer(int(first.split()[1]), found, rest)

    def get(self, path: str, headers: Mapping[str, str] = {}) -> Answer:
        cookie = [("Cookie", self.cookie)] if self.cookie else []
        return self.raw("GET", path, [("Host", self.host), *cookie, *headers.items()])

    def post(self, path: str, body: object) -> Answer:
        data = json.dumps(body).encode()
        headers = [
            ("Host", self.host),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(data))),
            ("X-Holdfast-Token", self.token),
        ]
        return self.raw("POST", path, headers, data)

    def log_in(self) -> None:
        answer = self.get(f"/login?key={self.key}")
        assert answer.status == 303, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.token = answer.headers["location"].partition("#token=")[2]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


def _joined(data: bytes) -> bytes:
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            break
        whole, data = whole + data[:length], data[length + 2 :]
    return whole


def page_of(board: Board, path: str) -> str:
    answer = board.get(path)
    assert answer.status == 200, answer
    return answer.body.decode()


@contextmanager
def up(shell: Shell, *words: str, before: Sequence[str] = ()) -> Iterator[Board]:
    """A dashboard; in a program of its own if something comes `before` it."""
    spoken, end = os.pipe()
    all_words = shell.command(("up", *words))
    with open(spoken, "rb") as hears, open(os.devnull, "r+b") as null:
        process: subprocess.Popen[bytes] | Born
        if before:
            process = subprocess.Popen(
                [*before, *all_words],
                env=shell.environment(),
                cwd=shell.cwd,
                stdout=null,
                stderr=end,
            )
        else:
            given = (null.fileno(), null.fileno(), end)
            process = nurseries[-1].born(
                all_words[1:], shell.environment(), shell.cwd, given, PATIENCE
            )
        os.close(end)
        listener: Thread | None = None
        try:
            board = Board(shell, process, link_from(process, hears))
            os.set_blocking(spoken, True)
            # Nobody who writes to a pipe that is full gets any further.
            listener = Thread(target=board.said.extend, args=(hears,))
            listener.start()
            yield board
            if board.tab is not None:
                board.tab.context.close()
        finally:
            process.terminate()
            process.wait(PATIENCE)
            if listener is not None:
                listener.join(PATIENCE)


def link_from(process: subprocess.Popen[bytes] | Born, hears: IO[bytes]) -> str:
    """The link that it prints once it is up."""
    said, until = b"", time.monotonic() + PATIENCE
    os.set_blocking(hears.fileno(), False)
    while time.monotonic() < until and process.poll() is None:
        select.select([hears], [], [], 0.2)
        said += hears.read() or b""
        if found := LINK.search(said.decode()):
            return found[0]
    raise AssertionError(f"it did not come up: {said.decode()}")


def a_home(tmp_path: Path) -> Shell:
    """A home in which something happened."""
    shell = Shell(tmp_path)
    assert shell("init", "rio", "clay").code == 0
    assert shell("run", "--agent", "rio", "--type", "research", "--", "echo", "hello").code == 0
    assert shell("run", "--agent", "clay", "--", "sh", "-c", "echo no >&2; exit 3").code == 3
    return shell

"""Whoever can connect but has no key keeps nobody out, and fills no log."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.ledger.shell import PATIENCE, Shell
from tests.web.board import Board, up

FEW_FILES = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh"]
UNFINISHED = b"GET / HTTP/1.1\r\nHost: l"
LOUD = 4_096
"""Bytes on standard error that a flood may cost."""


@pytest.fixture(scope="module")
def small(shell: Shell) -> Iterator[Board]:
    """One that may have few files open, and goes through every flood."""
    with up(shell, before=FEW_FILES) as board:
        board.log_in()
        yield board


def connected(board: Board, stack: ExitStack, said: bytes = UNFINISHED) -> socket.socket:
    wire = stack.enter_context(socket.create_connection(("127.0.0.1", board.port), PATIENCE))
    wire.sendall(said)
    return wire


def is_closed(wire: socket.socket) -> bool:
    try:
        return wire.recv(1) == b""
    except ConnectionError:
        return True


def test_unfinished_requests_stop_no_answer_and_are_closed(small: Board) -> None:
    stream = f"GET /events HTTP/1.1\r\nHost: {small.host}\r\nCookie: {small.cookie}\r\n\r\n"
    with ExitStack() as stack:
        listening = connected(small, stack, stream.encode())
        assert listening.recv(1 << 16).startswith(b"HTTP/1.1 200")
        wires = [connected(small, stack) for _ in range(200)]
        for _ in range(5):
            began = time.monotonic()
            assert small.get("/api/status").status == 200
            assert time.monotonic() - began < 5
        assert all(is_closed(wire) for wire in wires)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            while listening.recv(1 << 16):
                pass
    assert small.get("/api/status").status == 200
    assert sum(map(len, small.said)) < LOUD


def test_a_request_that_drips_does_not_last_either(small: Board) -> None:
    with ExitStack() as stack:
        wire, until = connected(small, stack, b"GET / HTTP/1.1\r\n"), time.monotonic() + 20
        with pytest.raises(ConnectionError):
            while time.monotonic() < until:
                wire.sendall(b"A: b\r\n")
                time.sleep(0.1)  # it is the pace that is tried
        assert time.monotonic() < until


def test_what_is_no_request_is_said_once(small: Board) -> None:
    with ExitStack() as stack:
        for _ in range(300):
            assert is_closed(connected(small, stack, b"\0nonsense\r\n\r\n")) is False
    assert small.get("/api/status").status == 200
    assert sum(map(len, small.said)) < LOUD


def test_who_asks_without_a_key_over_and_over_keeps_no_connection(small: Board) -> None:
    with ExitStack() as stack:
        ask = f"GET / HTTP/1.1\r\nHost: {small.host}\r\n\r\n".encode()
        wires = [connected(small, stack, ask) for _ in range(200)]
        assert small.get("/api/status").status == 200
        for wire in wires:
            try:
                while wire.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
    assert sum(map(len, small.said)) < LOUD

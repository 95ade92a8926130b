"""The stream of events: everybody gets everything, and whoever was away gets the rest."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from tests.ledger.shell import PATIENCE
from tests.web.board import Board, a_home, up

CLIENTS = 50


class Listener:
    def __init__(self, board: Board, since: str = "") -> None:
        self.wire = socket.create_connection(("127.0.0.1", board.port), timeout=PATIENCE)
        lines = ["GET /events HTTP/1.1", f"Host: {board.host}", f"Cookie: {board.cookie}"]
        lines += [f"Last-Event-ID: {since}"] if since else []
        self.wire.sendall("\r\n".join([*lines, "", ""]).encode())
        self.data = b""
        self.wait_for(b"event: hello")

    def wait_for(self, what: bytes) -> float:
        """When it came."""
        until = time.monotonic() + PATIENCE
        while what not in self.data:
            assert time.monotonic() < until, self.data[-500:]
            self.data += self.wire.recv(1 << 16)
        return time.monotonic()

    def events(self) -> list[dict[str, Any]]:
        lines = self.data.decode().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    def last(self) -> str:
        return [line[4:] for line in self.data.decode().splitlines() if line.startswith("id: ")][-1]

    def close(self) -> None:
        self.wire.close()


def write(board: Board, text: str) -> None:
    ran = board.shell("ledger", "write", "--agent", "rio", "--event", "info", text)
    assert ran.code == 0, ran


def memory_of(board: Board) -> int:
    with open(f"/proc/{board.process.pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_fifty_listeners_hear_within_a_second_and_cost_little(board: Board) -> None:
    listeners = [Listener(board) for _ in range(CLIENTS)]
    try:
        late: list[float] = []
        for number in range(3):
            write(board, f"for all {number}")
            began = time.monotonic()
            heard = sorted(each.wait_for(f"for all {number}".encode()) for each in listeners)
            late.append(heard[int(CLIENTS * 0.95)] - began)
        assert min(late) <= 1.0, late
        assert memory_of(board) <= 250 << 20
    finally:
        for each in listeners:
            each.close()


def test_who_was_away_gets_what_he_missed(board: Board) -> None:
    first = Listener(board)
    write(board, "heard by the first")
    first.wait_for(b"heard by the first")
    last = first.last()
    other = Listener(board)  # somebody goes on listening
    first.close()
    write(board, "missed by the first")
    other.wait_for(b"missed by the first")
    again = Listener(board, since=last)
    again.wait_for(b"missed by the first")
    assert b"heard by the first" not in again.data
    for each in (other, again):
        each.close()


def test_who_comes_from_another_run_is_told_that_all_is_stale(board: Board) -> None:
    listener = Listener(board, since="somewhere-17")
    listener.wait_for(b"event: stale")
    listener.close()


def test_a_message_a_task_and_a_new_agent_are_heard_of(board: Board) -> None:
    listener = Listener(board)
    board.shell("inbox", "send", "--from", "clay", "--to", "rio", "--subject", "s", "b")
    listener.wait_for(b'"kind":"inbox"')
    board.shell("task", "add", "--agent", "rio", "--type", "research", "t")
    listener.wait_for(b'"kind":"tasks"')
    board.shell("ledger", "write", "--agent", "nova", "--event", "info", "I am new")
    listener.wait_for(b"I am new")
    assert {event.get("agent") for event in listener.events()} >= {"rio", "nova"}
    listener.close()


def test_a_server_that_is_ended_lets_its_listeners_go(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        board.log_in()
        listeners = [Listener(board) for _ in range(3)]
        assert board.end() == 0
        for each in listeners:
            each.close()
    # Otherwise it waits, cuts them off, and tells of each in a traceback.
    assert not any(b"ERROR" in line for line in board.said), board.said

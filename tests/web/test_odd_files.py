"""A file that nobody can read takes away what it says, and nothing else of a page or a list."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.notes import LARGEST
from tests.ledger.shell import PATIENCE
from tests.web.board import Board, a_home, up


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    shell = a_home(tmp_path_factory.mktemp("odd"))
    for name in ("rio", "clay"):
        send = ("inbox", "send", "--from", "leo", "--to", name, "--subject", "Fees")
        assert shell(*send, "Who sets them?").code == 0
        assert shell("task", "add", "--agent", name, "Look at the fees").code == 0
    with up(shell) as board:
        board.log_in()
        yield board


def test_a_file_whose_name_is_no_text_is_listed_among_the_bad(board: Board) -> None:
    folder = os.fsencode(board.shell.home / "state/rio/inbox")
    for place in (b"", b".done/", b".dead/"):
        Path(os.fsdecode(folder + b"/" + place + b"\xff.json")).write_bytes(b'{"from": "leo"}')
    page = board.get("/agent/rio")
    assert page.status == 200
    assert b"Fees" in page.body
    assert b"\\xff.json" in page.body
    rows = board.get("/api/inbox/list?agent=rio&bad=true&done=true&dead=true").json()["rows"]
    names = sorted((row["state"], row["id"]) for row in rows)
    assert names == [("bad", "\\xff.json"), ("dead", "\\xff"), ("done", "\\xff")]
    ran = board.shell("--json", "inbox", "show", "--agent", "rio", "\\xff.json")
    assert (ran.code, ran.json()["data"]["state"]) == (0, "bad")


@pytest.mark.parametrize(
    ("broken", "why"), [(b"caf\xe9\n", b"cannot be read"), (b"x\n" * LARGEST, b"at most")]
)
def test_a_memory_that_cannot_be_read_is_told_where_it_would_stand(
    board: Board, broken: bytes, why: bytes
) -> None:
    (board.shell.home / "state/clay/memory.md").write_bytes(broken)
    page = board.get("/agent/clay")
    assert page.status == 200
    assert b"Who sets them?" in page.body
    assert b"Look at the fees" in page.body
    _, _, notes = page.body.partition(b'<section id="notes"')
    assert why in notes.partition(b"</section>")[0]


@pytest.mark.parametrize("what", ["no JSON", "a link"])
def test_tasks_that_cannot_be_read_leave_the_messages_there(board: Board, what: str) -> None:
    tasks = board.shell.home / "state/rio/tasks.json"
    kept = tasks.rename(tasks.with_name("kept"))
    if what == "a link":
        tasks.symlink_to("/etc/passwd")
    else:
        tasks.write_bytes(b"{{{ no tasks")
    try:
        page = board.get("/agent/rio")
    finally:
        kept.replace(tasks)
    assert page.status == 200
    assert b"Who sets them?" in page.body
    _, _, shown = page.body.partition(b'<section id="tasks"')
    assert b'class="wrong"' in shown.partition(b"</section>")[0]
    assert b"No tasks." not in page.body


@pytest.mark.parametrize("host", ["evil.example", ""])
def test_a_web_socket_is_refused_and_nothing_is_logged(board: Board, host: str) -> None:
    before = len(board.said)
    lines = ("GET / HTTP/1.1", f"Host: {host or board.host}", "Upgrade: websocket")
    lines += ("Connection: Upgrade", "Sec-WebSocket-Version: 13")
    lines += ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "", "")
    with socket.create_connection(("127.0.0.1", board.port), timeout=PATIENCE) as wire:
        wire.sendall("\r\n".join(lines).encode())
        assert wire.recv(1 << 10).startswith(b"HTTP/1.1 403")
    assert board.get("/api/status").status == 200
    assert board.said[before:] == []

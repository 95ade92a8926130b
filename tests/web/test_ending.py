"""A dashboard that is told to end: it waits for nobody, and calls nothing undone that may be."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.ops.context import Context
from holdfast.store.lock import PATIENCE as PATIENCE_OF_A_LOCK
from tests.agents.world import until
from tests.ledger.shell import PATIENCE
from tests.web.board import Board, a_home, up


def waiters(board: Board, lock: Path) -> int:
    """How many calls of the dashboard have a lock file open."""
    found = 0
    for each in Path(f"/proc/{board.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(each) == str(lock)
    return found


def test_a_change_that_goes_on_is_not_called_undone_and_nobody_who_looks_holds_up_the_end(
    tmp_path: Path,
) -> None:
    shell = a_home(tmp_path)
    shell("task", "add", "--agent", "rio", "Who sets the fees?")
    tasks = shell.home / "state/rio/tasks.json"
    with (
        up(shell) as board,
        ThreadPoolExecutor() as others,
        Context(str(shell.home)) as context,
        context.home_to_change().sheet("state/rio/tasks.json").locked(),
    ):
        board.log_in()
        tasks.write_bytes(tasks.read_bytes().replace(b"Who", b"who"))
        began = time.monotonic()
        lock = shell.home / "state/rio/.tasks.json.lock"
        change = others.submit(board.post, "/api/task/add", {"agent": "rio", "text": "More"})
        look = others.submit(board.get, "/api/task/list?agent=rio")
        page = others.submit(board.get, "/agent/rio")
        until(lambda: waiters(board, lock) == 3)
        board.process.send_signal(signal.SIGTERM)
        assert board.process.wait(PATIENCE) == 0
        assert time.monotonic() - began < PATIENCE_OF_A_LOCK
        told = change.result()
        assert (told.status, told.json()["error"]["code"]) == (409, "indeterminate")
        assert told.json()["error"]["retryable"] is False
        assert (look.result().status, look.result().json()["error"]["code"]) == (423, "busy")
        assert page.result().status == 423
        assert b"the dashboard ends" in page.result().body
    assert not any(b"Traceback" in line for line in board.said), board.said

"""The page of an agent reads its inbox a few times, however many messages wait."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from holdfast.ops.context import Context
from holdfast.ops.table import TABLE
from holdfast.store import mailbox
from holdfast.web.calls import Calls
from holdfast.web.pages import MOST_LETTERS, routes
from tests.ledger.shell import Shell

MESSAGES = 40


def test_the_page_of_an_agent_reads_no_message_for_each_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(tmp_path)
    assert shell("init", "rio", "leo").code == 0
    with Context(str(shell.home)) as context:
        box = context.home_to_change().mailbox("state/rio/inbox")
        for number in range(MESSAGES):
            said: dict[str, Any] = {"from": "leo", "to": "rio", "subject": f"s{number}"}
            box.deliver(said | {"body": f"body {number}.", "type": "flag"}, id=f"m{number:03d}")
        box.close()
    reads: list[str] = []
    read = mailbox.read_message

    def counted(vfs: Any, directory: Any, name: str) -> Any:
        reads.append(name)
        return read(vfs, directory, name)

    monkeypatch.setattr(mailbox, "read_message", counted)
    router = routes(TABLE, lambda: Context(str(shell.home)), Calls(), read_only=False)
    (agent,) = [
        each.endpoint
        for each in router.routes
        if isinstance(each, APIRoute) and each.path == "/agent/{name}"
    ]
    page: str = inspect.unwrap(agent)(name="rio", turns=15)
    assert [f"body {number}." in page for number in range(MESSAGES)] == [
        *[True] * MOST_LETTERS,
        *[False] * (MESSAGES - MOST_LETTERS),
    ]
    assert f"{MESSAGES - MOST_LETTERS} more" in page
    assert len(reads) <= 4 * MESSAGES

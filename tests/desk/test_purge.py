"""Two who purge the same inbox at the same moment pack each message once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path

import pytest
import zstandard

from holdfast.agents.agent import Agent
from holdfast.agents.inbox import Inbox, New
from holdfast.ops.context import Context
from tests.ledger.shell import Shell

FOLDER = "state/rio/purged"
MESSAGES = 5
_ONE_SECOND = 1.0


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "leo").code == 0
    return made


@pytest.fixture
def both(shell: Shell) -> Iterator[list[Inbox]]:
    """The inbox as two processes have it."""
    with ExitStack() as open_ones:
        homes = [open_ones.enter_context(Context(str(shell.home))).home() for _ in range(2)]
        yield [open_ones.enter_context(Agent(home, "rio")).desk.inbox for home in homes]


def later() -> float:
    return time.time() + 60


def fill(inbox: Inbox) -> None:
    for number in range(MESSAGES):
        inbox.deliver(New("leo", "s", "b", id=f"m{number}"))
    for claim in inbox.take("rio", seconds=60, limit=MESSAGES):
        inbox.box.ack(claim)


def packed(shell: Shell) -> int:
    """How many messages lie in the packs."""
    lines = 0
    for file in (shell.home / FOLDER).glob("*.zst"):
        with zstandard.ZstdDecompressor().stream_reader(
            file.read_bytes(), read_across_frames=True
        ) as reader:
            lines += reader.read().count(b"\n")
    return lines


def test_of_two_purges_at_once_one_has_the_messages(
    shell: Shell, both: list[Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = both
    fill(one)
    found: list[Future[tuple[int, list[str]]]] = []
    pack = Inbox._pack  # pyright: ignore[reportPrivateUsage]
    with ThreadPoolExecutor() as threads:

        def meanwhile(inbox: Inbox, folder: str, lines: list[bytes]) -> str:
            if inbox is one:
                found.append(threads.submit(other.purge, later(), FOLDER))
                wait(found, _ONE_SECOND)
            return pack(inbox, folder, lines)

        monkeypatch.setattr(Inbox, "_pack", meanwhile)
        assert one.purge(later(), FOLDER)[0] == MESSAGES
    assert found[0].result() == (0, [])
    assert packed(shell) == MESSAGES


def test_a_message_that_somebody_removes_meanwhile_stops_no_purge(
    shell: Shell, both: list[Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = both
    fill(one)
    pack = Inbox._pack  # pyright: ignore[reportPrivateUsage]

    def meanwhile(inbox: Inbox, folder: str, lines: list[bytes]) -> str:
        (shell.home / "state/rio/inbox/.done/m0.json").unlink()
        return pack(inbox, folder, lines)

    monkeypatch.setattr(Inbox, "_pack", meanwhile)
    assert one.purge(later(), FOLDER)[0] == MESSAGES
    assert one.finished("done") == []

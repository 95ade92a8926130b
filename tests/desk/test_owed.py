"""A flag whose note cannot be written is done all the same, and noted as soon as it can be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent
from holdfast.agents.inbox import New
from holdfast.agents.notes import LARGEST
from holdfast.store.home import Home
from tests.desk.saved import saved_long_ago
from tests.ledger.shell import Ran, Shell

NOT_UTF_8 = b"caf\xe9\n"
TOO_LARGE = b"- noted\n" * (LARGEST // 8 + 1)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "kim", "lee", "--timezone", "UTC")
    return made


def flag(shell: Shell, id: str = "m1") -> None:
    words = ("--from", "lee", "--to", "kim", "--priority", "high", "--subject", "Fees")
    assert shell("inbox", "send", *words, "--id", id, "Who sets them?").code == 0


def listed(shell: Shell, *words: str) -> Ran:
    return shell("inbox", "list", "--agent", "kim", *words, "--json")


def received(shell: Shell) -> int:
    metrics = json.loads((shell.home / "state/kim/metrics.json").read_bytes())
    return metrics["lifetime"]["cross_agent_flags_received"]


@pytest.mark.parametrize("broken", [NOT_UTF_8, TOO_LARGE])
def test_a_session_is_done_with_its_flag_although_it_cannot_be_noted(
    shell: Shell, broken: bytes
) -> None:
    memory = shell.home / "state/kim/memory.md"
    before = memory.read_bytes()
    saved_long_ago(memory, before + broken)
    flag(shell)
    for _ in range(3):
        assert shell("run", "--agent", "kim", "--", "true").code == 0
    assert [row["id"] for row in listed(shell, "--done").rows()] == ["m1"]
    assert received(shell) == 1
    assert memory.read_bytes() == before + broken
    audit = b"".join(each.read_bytes() for each in (shell.home / "audit").glob("*.jsonl"))
    assert b"m1 is done, but not noted" in audit
    memory.write_bytes(before)
    assert shell("run", "--agent", "kim", "--", "true").code == 0
    assert shell("run", "--agent", "kim", "--", "true").code == 0
    assert memory.read_text(encoding="utf-8").count("Fees: Who sets them?") == 1
    assert received(shell) == 1


@pytest.mark.parametrize("broken", [NOT_UTF_8, TOO_LARGE])
def test_who_acknowledges_such_a_flag_by_hand_is_warned(shell: Shell, broken: bytes) -> None:
    memory = shell.home / "state/kim/memory.md"
    saved_long_ago(memory, memory.read_bytes() + broken)
    flag(shell)
    assert shell("inbox", "take", "--agent", "kim").code == 0
    ran = shell("inbox", "ack", "--agent", "kim", "m1")
    assert ran.code == 0, ran
    assert "memory.md" in ran.err
    assert "noted when that is mended" in ran.err
    assert listed(shell, "--done").json()["counts"]["messages"] == 1


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


def test_of_two_who_owe_the_same_note_one_line_comes(rio: Agent, path: str) -> None:
    """Whoever is killed between the note that he owes and the end of the message owes it twice."""
    rio.desk.inbox.deliver(New("leo", "Fees", "Who?", id="m1"))
    rio.desk.inbox.take("rio", seconds=60, limit=1)
    letter = rio.desk.inbox.claim_of("m1")
    assert letter is not None
    memory = Path(path, "state/rio/memory.md")
    memory.write_bytes(NOT_UTF_8)
    file = Path(path, "state/rio/inbox/.claimed", letter.claimed.token if letter.claimed else "")
    data = file.read_bytes()
    assert rio.desk.ack(letter)
    file.write_bytes(data)
    Path(path, "state/rio/inbox/.done/m1.json").unlink()
    assert rio.desk.ack(letter)
    memory.write_bytes(b"")
    rio.desk.settle()
    assert memory.read_text(encoding="utf-8").count("Fees: Who?") == 1
    assert rio.metrics()["lifetime"]["cross_agent_flags_received"] == 1

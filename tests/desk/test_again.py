"""What is sent twice, had too long, or given up: seen as it is, and never silently lost."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.agents.context import gather
from holdfast.agents.inbox import Inbox, New
from holdfast.errors import NotFound
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import Shell

TRIES = 5


@pytest.fixture
def rio(home: Home) -> Iterator[Agent]:
    with Agent(home, "rio") as agent:
        yield agent


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "clay").code == 0
    return made


def send(inbox: Inbox, home: Home, priority: str = "normal") -> str:
    new = New(sender="leo", subject="Fees", body="Who sets them?", priority=priority)
    return inbox.deliver(new.named(home.clock.now()))


def test_another_message_under_a_known_id_is_refused_and_not_called_sent(shell: Shell) -> None:
    words = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "--id", "m-1")
    key = "sk-ant-api03-" + "a1B2" * 20
    for _ in range(2):  # the same again is the same, also where a secret was taken out
        assert shell(*words, "--expires", "2h", f"the key is {key}").code == 0
    other = shell("--json", *words, "something else")
    assert other.code != 0
    assert "its body differs" in other.err
    (row,) = shell("--json", "inbox", "list", "--agent", "rio").json()["rows"]
    assert shell("inbox", "ack", "--agent", "rio", row["id"]).code == 2  # nobody has it yet
    shell("inbox", "take", "--agent", "rio")
    shell("inbox", "ack", "--agent", "rio", "m-1")
    assert shell(*words, "something else").code != 0  # one that is done as well


def test_what_somebody_had_too_long_waits_and_goes_to_the_next_session(
    rio: Agent, home: Home, clock: Turner
) -> None:
    inbox = rio.desk.inbox
    id = send(inbox, home, "high")
    inbox.take("somebody", seconds=60, limit=1)
    assert [each.state for each in inbox.claimed()] == ["claimed"]
    assert inbox.takeable() == []
    clock.advance(61)
    (letter,) = inbox.takeable()
    assert (letter.id, letter.state, letter.attempt) == (id, "waiting", 2)
    assert "somebody had it" in letter.note
    assert [each.id for each in gather(home, rio).urgent] == [id]
    begun = rio.start(Start("research"))
    rio.desk.hand_out(begun.id, begun.fence)
    assert [each.id for each in rio.desk.handed_out(begun.id)] == [id]


def test_who_let_his_time_pass_can_still_acknowledge_what_nobody_else_took(
    rio: Agent, home: Home, clock: Turner
) -> None:
    id = send(rio.desk.inbox, home)
    rio.desk.inbox.take("somebody", seconds=60, limit=1)
    clock.advance(61)
    letter = rio.desk.inbox.claim_of(id)
    assert letter is not None
    rio.desk.ack(letter)
    assert [each.id for each in rio.desk.inbox.finished("done")] == [id]


def test_a_dead_message_that_got_another_chance_is_not_dead(rio: Agent, home: Home) -> None:
    inbox = rio.desk.inbox
    id = send(inbox, home)
    for _ in range(2):  # it dies twice, and is listed once
        for _ in range(TRIES):
            inbox.box.give_back(inbox.take("rio", seconds=60, limit=1)[0], "no")
        (dead,) = inbox.dead()
        assert dead.id == id
        assert "inbox return" in dead.note
        inbox.box.deliver(dead.record, id=dead.id)
        assert inbox.dead() == []
    inbox.box.ack(inbox.take("rio", seconds=60, limit=1)[0])
    assert inbox.dead() == []
    assert inbox.purge(time.time() + 60, "state/rio/purged")[0] == 1
    assert (inbox.dead(), inbox.finished("done")) == ([], [])
    with pytest.raises(NotFound):
        inbox.find(id)


def test_status_counts_what_would_be_handed_out(shell: Shell) -> None:
    send = ("inbox", "send", "--from", "clay", "--to", "rio", "--subject", "Fees")
    inbox = shell.home / "state" / "rio" / "inbox"
    assert shell(*send, "one").code == 0
    late = shell("--json", *send, "--priority", "high", "--expires", "1h", "two").json()["target"]
    said = json.loads((inbox / f"{late}.json").read_bytes())
    (inbox / f"{late}.json").write_text(json.dumps(said | {"expires_at": "2026-01-01T00:00:00Z"}))
    stray = {"from": "clay", "subject": "x", "body": "y"}
    (inbox / "other.json").write_text(json.dumps({**stray, "to": "clay"}), encoding="utf-8")
    (inbox / "forged.json").write_text(json.dumps({**stray, "from": "../x"}), encoding="utf-8")
    ours = late[:-4]
    (inbox / f"{ours}0000.json").symlink_to("/etc/passwd")
    (inbox / f"{ours}0001.json").write_bytes(b"")
    (row,) = shell("--json", "status", "rio").json()["rows"]
    assert (row["inbox"], row["inbox_high"], row["report"]) == (1, 0, "ok")
    taken = shell("--json", "inbox", "take", "--agent", "rio", "--limit", "9").json()["rows"]
    assert [each["body"] for each in taken] == ["one"]
    assert shell("--json", "status", "rio").json()["rows"][0]["inbox"] == 0
    for number in ("0002", "0003"):  # nothing but links and empty files under names of ours
        (inbox / f"{ours}{number}.json").symlink_to("/etc/passwd")
    (row,) = shell("--json", "status", "rio").json()["rows"]
    assert (row["inbox"], row["report"]) == (0, "ok")

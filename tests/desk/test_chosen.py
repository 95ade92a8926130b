"""One message that somebody picks out of those that wait."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.agent import Agent
from holdfast.agents.inbox import Inbox, New
from holdfast.errors import NotFound, UsageError
from holdfast.store.home import Home
from holdfast.testing import Turner
from tests.ledger.shell import Shell, ended


@pytest.fixture
def inbox(home: Home) -> Iterator[Inbox]:
    with Agent(home, "rio") as agent:
        yield agent.desk.inbox


def send(inbox: Inbox, home: Home, expires: float | None = None) -> str:
    new = New(sender="leo", subject="Fees", body="Who sets them?", expires=expires)
    return inbox.deliver(new.named(home.clock.now()))


def test_the_others_wait_on_as_if_nobody_had_looked(
    inbox: Inbox, home: Home, clock: Turner
) -> None:
    ids = [send(inbox, home) for _ in range(3)]
    claim = inbox.take_chosen("rio", ids[2], seconds=60)
    assert (claim.id, claim.attempt, claim.record["body"]) == (ids[2], 1, "Who sets them?")
    # All were sent at the same instant: in which order they wait is nobody's.
    waiting = {(each.id, each.attempt) for each in inbox.waiting()}
    assert waiting == {(ids[0], 1), (ids[1], 1)}
    inbox.box.ack(claim)
    assert [each.id for each in inbox.finished("done")] == [ids[2]]


def test_who_lets_his_time_pass_has_it_no_longer(inbox: Inbox, home: Home, clock: Turner) -> None:
    id = send(inbox, home)
    inbox.take_chosen("rio", id, seconds=60)
    with pytest.raises(UsageError, match="is claimed"):
        inbox.take_chosen("rio", id, seconds=60)
    clock.advance(61)
    assert inbox.take_chosen("rio", id, seconds=60).redelivered


def test_only_what_waits_can_be_chosen(inbox: Inbox, home: Home, clock: Turner) -> None:
    late, done = send(inbox, home, clock.now() + 10), send(inbox, home)
    inbox.box.ack(inbox.take_chosen("rio", done, seconds=60))
    clock.advance(11)
    for id, why in ((late, "is expired"), (done, "is done")):
        with pytest.raises(UsageError, match=why):
            inbox.take_chosen("rio", id, seconds=60)
    with pytest.raises(NotFound):
        inbox.take_chosen("rio", "no-such", seconds=60)


def test_what_a_crash_put_back_after_it_was_done_is_not_taken_again(
    inbox: Inbox, home: Home, path: str
) -> None:
    id = send(inbox, home)
    folder = Path(path, "state/rio/inbox")
    shutil.copy(folder / f"{id}.json", folder / "kept")
    inbox.box.ack(inbox.take_chosen("rio", id, seconds=60))
    (folder / "kept").rename(folder / f"{id}.json")
    with pytest.raises(UsageError, match="is done"):
        inbox.take_chosen("rio", id, seconds=60)
    assert inbox.waiting() == []


def test_of_many_who_choose_the_same_one_has_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "leo")
    words = ("inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "Who?")
    ids = [shell("--json", *words).json()["target"] for _ in range(2)]
    takers = [shell.start("--json", "inbox", "take", "--agent", "rio", ids[1]) for _ in range(6)]
    codes: list[int] = []
    for each in takers:
        with ended(each):
            codes.append(each.wait(60))
    assert sorted(codes)[0] == 0
    assert codes.count(0) == 1, codes
    rows = shell("--json", "inbox", "list", "--agent", "rio").rows()
    assert {row["id"]: row["state"] for row in rows} == {ids[0]: "waiting", ids[1]: "claimed"}

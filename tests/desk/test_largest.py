"""What `send` takes, the receiver gets: the limit of a body is the same on both sides."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.agents.agent import Agent
from holdfast.agents.inbox import MOST_BODY, MOST_SUBJECT, Inbox, New
from holdfast.errors import UsageError
from holdfast.store.home import Home


@pytest.fixture
def inbox(home: Home) -> Iterator[Inbox]:
    with Agent(home, "rio") as agent:
        yield agent.desk.inbox


@pytest.mark.parametrize("letter", ['"', "\\", "\n", "\x01", "é", "a"])
def test_the_largest_body_arrives_whatever_json_makes_of_it(inbox: Inbox, letter: str) -> None:
    body = letter * (MOST_BODY // len(letter.encode()))
    new = New("leo", '"' * MOST_SUBJECT, body, source_ref="\x01" * MOST_SUBJECT, thread="é", id="m")
    new.check()
    inbox.deliver(new)
    assert inbox.bad() == []
    (taken,) = inbox.take("rio", seconds=60, limit=1)
    assert taken.record["body"] == body


def test_one_byte_more_is_refused_by_the_sender(inbox: Inbox) -> None:
    with pytest.raises(UsageError, match="has room for"):
        New("leo", "s", "a" * (MOST_BODY + 1)).check()


def test_a_body_that_grows_too_large_without_its_secrets_is_refused_too(inbox: Inbox) -> None:
    login = "https://a:b@c "
    new = New("leo", "s", login * (MOST_BODY // len(login)), id="m")
    new.check()
    with pytest.raises(UsageError, match="without its secrets"):
        inbox.deliver(new)
    assert (inbox.waiting(), inbox.bad()) == ([], [])


def test_a_body_that_somebody_else_put_there_may_be_as_large_and_no_larger(
    inbox: Inbox, home: Home
) -> None:
    box = home.mailbox(inbox.key)
    box.deliver({"from": "leo", "to": "rio", "body": '"' * (2 * MOST_BODY - 1_000)}, id="fits")
    box.deliver({"from": "leo", "to": "rio", "body": "a" * (2 * MOST_BODY)}, id="body")
    box.deliver({"from": "leo", "to": "rio", "more": "a" * (2 * MOST_BODY)}, id="more")
    assert [each.id for each in inbox.waiting()] == ["fits"]
    assert sorted(each.id for each in inbox.bad()) == ["body.json", "more.json"]

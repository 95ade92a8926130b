"""A disk that takes a line and then nothing more: what is on record is not reported as failed."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from holdfast.store.cell import FileCell
from tests.jobs.desk import DONE, STUCK, Desk

DECISIONS = {
    "steward": (("steward", "demo", "continue"), "move", "PENDING"),
    "answer": (("steward", "demo", "answer", "--guidance", "Port 8080"), "move", "PENDING"),
    "halt": (("steward", "demo", "halt"), "move", "CANCELED"),
    "suspend": (("suspend", "demo"), "hold", "INTERVENTION_REQUIRED"),
    "cancel": (("cancel", "demo"), "move", "CANCELED"),
}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let no view be written from now on; logs still have the room that they were given.

    A disk that has room for just one more line and no file cannot be had otherwise.
    """

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    return lambda: monkeypatch.setattr(FileCell, "_save", refuse)


@pytest.mark.parametrize(("words", "event", "status"), DECISIONS.values(), ids=DECISIONS.keys())
def test_a_decision_that_is_on_record_is_done_also_if_it_cannot_be_shown(
    desk: Desk,
    full: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    event: str,
    status: str,
) -> None:
    desk.new("--worker", desk.script(STUCK, DONE))
    desk.ran(code=1)
    before = len(desk.lines(event=event))
    full()
    ran = desk("job", *words, "--json")
    # The line is there: who is told that it failed decides again, or believes nothing happened.
    assert len(desk.lines(event=event)) == before + 1
    assert ran.code == 0, (ran.out, ran.err)
    assert ran.json()["applied"] is True
    monkeypatch.undo()
    assert desk.show()["status"] == status
    desk("rebuild")
    assert desk.manifest()["status"] == status

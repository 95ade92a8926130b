"""What people decide, and what they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.jobs.job import Job
from holdfast.store.home import Home
from tests.jobs.desk import DONE, STUCK, Desk


def folded(desk: Desk, id: str = "demo") -> dict[str, Any]:
    """The state of a job, all of it."""
    with Home.open(str(desk.home)) as home, Job(home, id) as job:
        return job.state()


# --- decisions ------------------------------------------------------------------------------


def stuck(desk: Desk, *replies: object) -> None:
    desk.new("--worker", desk.script(STUCK, *replies))
    desk.ran(code=1)


def test_a_halt_holds_for_what_was_shown_too(desk: Desk) -> None:
    stuck(desk)
    words = ("job", "steward", "demo", "halt", "--shown")
    desk.refused(*words, "deadbeefdeadbeef", says="has changed since")
    assert desk.status() == "INTERVENTION_REQUIRED"
    desk.ok(*words, desk.show()["shown"])
    assert desk.status() == "CANCELED"


@pytest.mark.parametrize(
    ("named", "done"),
    [
        (["a.txt", "a.txt", "./a.txt"], False),
        (["a.txt", "b.txt", "c.txt"], True),
        (["./a.txt", "b.txt", ".//c.txt"], True),
    ],
)
def test_the_same_file_under_two_names_is_one_piece_of_evidence(
    desk: Desk, named: list[str], done: bool
) -> None:
    phase = {"name": "work", "evidence": {"at_least": 3, "required": ["a.txt"]}}
    models = {"worker": desk.script({**DONE, "evidence_files": named})}
    desk.ok("job", "new", desk.spec(prompt="P", phases=[phase], models=models), "--id", "demo")
    desk.ok("job", "activate", "demo")
    for name in "abc":
        (desk.workspace() / f"{name}.txt").write_text(name, encoding="utf-8")
    desk("job", "step", "demo")
    assert desk.status() == ("SUCCESS" if done else "PENDING")

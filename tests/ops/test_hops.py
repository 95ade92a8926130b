"""Work per verb and per page, in counts that are the same on every machine.

Each is done twice in a home of its own and counted the second time.  A count above its number here
is red; a change that lowers a count lowers the number too, and the test says when.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from holdfast.ops.table import TABLE
from holdfast.web.app import Setting, dashboard
from tests.jobs.desk import DONE, Desk
from tests.ledger.shell import on_its_own
from tests.recorder import Recorded, recording


class Hops(NamedTuple):
    opens: int
    """Files that are opened."""
    appends: int
    """Writes to logs."""
    frames: int
    """Functions of Holdfast, one inside the other."""


VERBS = {
    "ledger write": Hops(12, 1, 19),
    "status": Hops(9, 0, 22),
    "inbox send": Hops(25, 1, 21),
    "inbox take": Hops(2, 0, 16),
    "run -- true": Hops(90, 6, 42),
    # On a slow machine the job is shown twice more, 5 opens each.
    "job run": Hops(113, 4, 32),
    "session start": Hops(55, 2, 35),
    "session end": Hops(67, 4, 29),
    "task add": Hops(25, 1, 26),
    "memory note": Hops(8, 0, 22),
}
PAGES = {
    "/": Hops(12, 0, 23),
    "/agent/rio": Hops(27, 0, 24),
    "/agent/rio/memory?q=fees": Hops(8, 0, 22),
    "/jobs/demo": Hops(13, 0, 22),
    "/swarms": Hops(3, 0, 18),
    "/swarms/week": Hops(4, 0, 19),
}
FEW = 0.1
"""The share by which a number may lie above what was counted before the test asks to lower it."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    assert made("init", "rio", "leo", "--timezone", "UTC").code == 0
    monkeypatch.chdir(made.cwd)
    return made


def prepare(desk: Desk, verb: str, turn: int) -> list[str]:
    """Bring about what the verb works on, and give its words."""
    match verb:
        case "ledger write":
            return ["ledger", "write", "--agent", "rio", "--event", "info", "Hello"]
        case "inbox take":
            desk.ok(*prepare(desk, "inbox send", turn))
            return ["inbox", "take", "--agent", "rio"]
        case "inbox send":
            return ["inbox", "send", "--from", "leo", "--to", "rio", "--subject", "Fees", "See #12"]
        case "run -- true":
            return ["run", "--agent", "rio", "--", "true"]
        case "job run":
            desk.new("--worker", desk.script(DONE), id=f"demo-{turn}")
            return ["job", "run", f"demo-{turn}"]
        case "session start":
            return ["session", "start", "--agent", "rio", "--role", f"role-{turn}"]
        case "session end":
            assert desk(*prepare(desk, "session start", turn)).code == 0
            role = f"role-{turn}"
            return ["session", "end", "--agent", "rio", "--role", role, "--outcome", "completed"]
        case "task add":
            return ["task", "add", "--agent", "rio", "Who sets the fees?"]
        case "memory note":
            return ["memory", "note", "--agent", "rio", "--section", "Dead Ends", "No page."]
        case _:
            return [verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_does_no_more_work_than_its_numbers_allow(
    desk: Desk, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk(*prepare(desk, verb, 1)).code == 0
    words = prepare(desk, verb, 2)
    with recording() as found:
        ran = desk(*words)
    assert ran.code == 0, ran
    judge(verb, VERBS[verb], found, capsys)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_does_no_more_work_than_its_numbers_allow(
    desk: Desk, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert desk(*prepare(desk, "run -- true", 0)).code == 0
    desk.ok(*prepare(desk, "inbox send", 0))
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    if "/memory" in path:
        words = ["--agent", "rio", "--topic", "fees", "--text", "The fees are 2 %"]
        desk.ok("memory", "add", *words)
    if path.startswith("/swarms"):
        swarm = ["--agents", "rio,leo", "--goal", "Who sets the fees?", "--name", "week"]
        desk.ok("swarm", "run", *swarm, "--ticks", "3", "--model", "scripted:echo")
    board = dashboard(Setting(str(desk.home), None, (), 8080, sites=("hf-1.localhost",)), TABLE)
    at = ("127.0.0.1", 50_000)
    client = TestClient(board.app, base_url="http://hf-1.localhost:8080", client=at)
    client.get("/login", params={"key": board.keys.link()})
    client.get(path)
    with recording() as found:
        answer = client.get(path)
    assert answer.status_code == 200, answer.text
    judge(path, PAGES[path], found, capsys)


def judge(name: str, most: Hops, found: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    counted = Hops(found.opens, found.appends, found.frames)
    pairs = list(zip(counted, most, strict=True))
    assert all(have <= limit for have, limit in pairs), f"{name}: {counted}, at most {most}"
    if any(have < limit * (1 - FEW) for have, limit in pairs):
        with capsys.disabled():
            print(f"\n{name}: lower the table of tests/ops/test_hops.py to {counted}")

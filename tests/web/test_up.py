"""`holdfast up` when a dashboard is up already, or comes up at the same moment."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from holdfast.store.vfs import this_process
from tests.agents.world import until
from tests.ledger.shell import PATIENCE, Shell
from tests.web.board import LINK, a_home, up


def begun(shell: Shell, said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as file:
        return subprocess.Popen(
            shell.command(("up",)),
            env=shell.environment(),
            cwd=shell.cwd,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )


def test_one_that_only_shows_hands_out_another_link(tmp_path: Path) -> None:
    with up(a_home(tmp_path), "--read-only") as board:
        told = board.shell("--json", "up").json()["data"]
        assert told["attached"]
        answer = board.raw("GET", told["link"].removeprefix(board.url), [("Host", board.host)])
        assert answer.status == 303


def test_of_two_that_come_up_at_once_one_serves_and_the_other_gives_a_link_to_it(
    tmp_path: Path,
) -> None:
    shell = a_home(tmp_path)
    said = [tmp_path / "one", tmp_path / "other"]
    both = [begun(shell, each) for each in said]
    try:
        until(lambda: all(LINK.search(each.read_text("utf-8")) for each in said))
        until(lambda: any(each.poll() is not None for each in both))
        assert [each.poll() for each in both].count(0) == 1
        assert len({url for each in said for url, *_ in LINK.findall(each.read_text("utf-8"))}) == 1
        (serving,) = [each for each in both if each.poll() is None]
        record = json.loads((shell.home / "cache/dashboard.json").read_bytes())
        assert record["owner"][2] == serving.pid
    finally:
        for each in both:
            each.terminate()
            each.wait(PATIENCE)
    assert json.loads((shell.home / "cache/dashboard.json").read_bytes()) == {}


def test_one_that_ends_leaves_the_record_of_another_alone(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        record = board.shell.home / "cache/dashboard.json"
        told = json.loads(record.read_bytes()) | {"owner": list(this_process())}
        record.write_text(json.dumps(told), encoding="utf-8")
        board.end()
        assert json.loads(record.read_bytes()) == told

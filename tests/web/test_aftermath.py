"""Every page on a home in which everything went wrong: it says so, and is itself whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.aftermath import HOSTILE, LONG_NAME, WIDE, aftermath
from tests.web.board import Board, up
from tests.web.browsing import NEEDS_CHROMIUM, Visit, visiting

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def ruin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with up(aftermath(tmp_path_factory.mktemp("ruin"))) as board:
        board.log_in()
        yield board
    assert not any(b"Traceback" in line for line in board.said), board.said


def sessions(board: Board) -> dict[str, str]:
    """How each session of rio ended, and where its page is."""
    rows = board.get("/api/session/list?agent=rio").json()["rows"]
    return {row.get("cause") or row["status"]: f"/session/{row['session_id']}" for row in rows}


def shown(visit: Visit, path: str) -> str:
    """What a page says, with everything open that can be opened."""
    visit.go(path)
    visit.page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
    return visit.text()


def test_the_fleet_tells_what_is_wrong_with_whom(browser: Any, ruin: Board) -> None:
    with visiting(browser, ruin) as visit:
        visit.go("/")
        trouble = {
            name: str(visit.page.inner_text(f"#a-{name} .trouble"))
            for name in ("rio", "clay", "vida", "leo", "astra")
        }
        assert "crashed" in trouble["rio"]
        assert "report.json unreadable" in trouble["clay"]
        assert "stale" in trouble["vida"]
        assert visit.page.inner_text("#a-rio .state") == "error"
        assert int(visit.page.inner_text(".strip b")) >= 3
        assert visit.page.inner_text(f"#a-{LONG_NAME} .name") == LONG_NAME


def test_an_agent_shows_how_each_of_its_sessions_went(browser: Any, ruin: Board) -> None:
    with visiting(browser, ruin) as visit:
        visit.go("/agent/rio")
        states = visit.page.locator("#sessions .state").all_inner_texts()
        assert sorted(states) == ["completed", "crashed", "error", "timeout"]
        # The one that was refused never began: it is no session.
        assert len(states) == 4


@pytest.mark.parametrize(
    ("how", "told"), [("crashed", "crashed"), ("timeout", "timeout"), ("exit", "exit code\n3")]
)
def test_a_session_tells_how_it_ended(browser: Any, ruin: Board, how: str, told: str) -> None:
    found = next((path for cause, path in sessions(ruin).items() if how in cause), None)
    assert found is not None, sessions(ruin)
    with visiting(browser, ruin) as visit:
        assert told in shown(visit, found)


def test_messages_that_never_arrived_are_told_with_the_reason(browser: Any, ruin: Board) -> None:
    with visiting(browser, ruin) as visit:
        shown(visit, "/agent/leo")
        waiting = visit.page.locator("#inbox > .letter").all_inner_texts()
        assert [each.split("\n")[0].split(" flag")[0] for each in waiting] == ["Came back", "Waits"]
        assert "handed out before" in waiting[0]
        aside = visit.page.locator("#aside .letter").all_inner_texts()
        assert len(aside) == 6
        for name, why in (
            ("Nobody could", "dead"),
            ("Too late", "expired"),
            ("empty.json", "bad"),
            ("broken.json", "bad"),
            ("folder.json", "bad"),
            ("linked.json", "bad"),
        ):
            (entry,) = [each for each in aside if name in each]
            assert entry.startswith(why), entry
        assert ruin.shell.run(["hostname"]).out.strip() not in visit.text()
        assert "By hand: ask about the fees again." in visit.text()
        assert "The fee page is empty" in visit.text()


def test_tasks_are_shown_as_they_stand(browser: Any, ruin: Board) -> None:
    with visiting(browser, ruin) as visit:
        shown(visit, "/agent/clay")
        found = visit.page.locator(".task").all_inner_texts()
        states = {each.split()[1]: each.split()[0] for each in found}
        assert states == {
            "task-001": "parked",
            "task-002": "completed",
            "task-003": "dropped",
            "task-004": "active",
            "task-005": "pending",
        }
        assert "failed 3 times" in next(each for each in found if "task-001" in each)


def test_a_ledger_that_somebody_changed_is_called_broken(browser: Any, ruin: Board) -> None:
    with visiting(browser, ruin) as visit:
        visit.go("/agent/astra")
        visit.page.click("button[data-verify]")
        visit.page.wait_for_selector("[data-verdict][data-is=bad]")
        verdict = visit.page.inner_text("[data-verdict]")
        assert "intact" not in verdict
        assert "line 2" in verdict or "edited" in verdict, verdict


def test_hostile_names_and_texts_are_only_text(browser: Any, ruin: Board) -> None:
    session = ruin.get(f"/api/session/list?agent={LONG_NAME}").json()["rows"][-1]["session_id"]
    with visiting(browser, ruin) as visit:
        for path in (
            "/",
            f"/agent/{LONG_NAME}",
            f"/session/{session}",
            f"/ledger?agent={LONG_NAME}",
        ):
            said = shown(visit, path)
            assert visit.page.evaluate("window.pwned") is None, path
            assert visit.page.locator("main script, main img").count() == 0
            for text in (*HOSTILE, WIDE, r"report\u202etxt.exe \u2066x") if path != "/" else ():
                assert text in said, (path, text)


def test_no_page_is_wider_than_its_screen(browser: Any, ruin: Board) -> None:
    session = ruin.get(f"/api/session/list?agent={LONG_NAME}").json()["rows"][-1]["session_id"]
    paths = {
        "fleet": "/",
        "rio": "/agent/rio",
        "clay": "/agent/clay",
        "leo": "/agent/leo",
        "long": f"/agent/{LONG_NAME}",
        "crashed": sessions(ruin)["crashed"],
        "hostile-session": f"/session/{session}",
        "ledger": "/ledger",
        "lost": "/agent/nobody",
    }
    with visiting(browser, ruin) as visit:
        for name, path in paths.items():
            if name == "lost":
                visit.page.goto(ruin.url + path)
                assert "Not found" in visit.text()
                visit.wrong.clear()  # the console tells of a 404
            else:
                shown(visit, path)
            assert len(list(visit.looks(f"ruin-{name}"))) == 4

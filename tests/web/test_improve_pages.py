"""The pages of campaigns: all of them, and one with scores, rounds, plans, diffs and lessons."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.improve.campaigns import Campaigns
from tests.ledger.shell import PATIENCE, on_its_own
from tests.web.aftermath import HOSTILE, WIDE
from tests.web.board import Board, page_of, up
from tests.web.browsing import NEEDS_CHROMIUM, visiting


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaigns]:
    """Three rounds: a gain, a hostile executor whose plan is kept, and one that breaks."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("improve")
        on_its_own(patch, place)
        made = Campaigns(place)
        made.init("--planners", "2", "--direction", "higher", "--target", "40")
        evil = {"factor": 2, "reply": {"hypothesis": f"{HOSTILE[0]} {HOSTILE[4]} {WIDE}"}}
        made.play(
            {
                "1/executor_1": evil,
                "1/executor_2": {"factor": 4, "reply": {"hypothesis": "A larger factor"}},
                "2/executor_1": {"write": {"solve.py": "FACTOR = (\n"}},
                "2/executor_2": {"factor": 4},
                "3/executor_2": {"factor": 5},
            }
        )
        made.loop("--rounds", "3", code=0)
        yield made


@pytest.fixture(scope="module")
def board(desk: Campaigns) -> Iterator[Board]:
    with up(desk.shell) as board:
        board.log_in()
        yield board


def part(page: str, id: str) -> str:
    return page.partition(f'<section id="{id}"')[2].partition("</section>")[0]


def test_campaigns_are_listed_with_where_they_stand(board: Board) -> None:
    (row,) = [each for each in page_of(board, "/improve").split("<tr") if "campaign-sort" in each]
    assert "Sort faster" in row and ">18<" in row
    assert ">30<" in row or ">36<" in row, "before and after the run that somebody looks at"


def test_a_campaign_opens_with_its_state_and_what_to_do_next(board: Board) -> None:
    page = page_of(board, "/improve/sort")
    assert page.index("Next: <code>holdfast improve run sort") < page.index('id="charts"')
    assert "18 → 3" in page and "<dt>Random search</dt>" in page and "N = 2" in page


def test_the_score_chart_has_baseline_target_winners_and_losers(board: Board) -> None:
    charts = part(page_of(board, "/improve/sort"), "charts")
    for wanted in ("baseline 18", "target 40", "winners, round 1: 24", "losers, round 1: 12"):
        assert wanted in charts
    assert "Candidates by family" in charts


def test_a_round_shows_its_plans_with_both_reviews_results_and_the_diff(board: Board) -> None:
    page = page_of(board, "/improve/sort?round=1")
    plans = part(page, "round")
    assert plans.count("<article") == 2 and plans.count("Architect") == 2
    assert "h001_hypothesis_count pass" in plans and "regression" in plans
    assert "merged</span>" in plans and "success" not in plans
    assert "<ins>+FACTOR = 4</ins>" in part(page, "diff")
    other = page_of(board, "/improve/sort?round=1&executor=executor_1")
    assert "<ins>+FACTOR = 2</ins>" in part(other, "diff")


def test_failures_stand_there_with_their_lessons(board: Board) -> None:
    lessons = part(page_of(board, "/improve/sort"), "lessons")
    assert "this change makes the score worse" in lessons
    broken = part(page_of(board, "/improve/sort?round=2"), "round")
    assert "logic_error" in broken and "make sure that the changed code runs" in broken


def test_texts_of_executors_are_text(board: Board) -> None:
    page = page_of(board, "/improve/sort?round=1")
    assert HOSTILE[0] not in page and " style=" not in page


def test_a_campaign_that_is_not_there_leads_back_to_the_others(board: Board) -> None:
    answer = board.get("/improve/nothing")
    assert answer.status == 404 and b"To the campaigns" in answer.body


def test_a_home_without_a_campaign_says_how_to_begin_one(tmp_path: Path) -> None:
    empty = Campaigns(tmp_path / "empty")
    with up(empty.shell) as board:
        board.log_in()
        assert "holdfast improve init" in page_of(board, "/improve")


@NEEDS_CHROMIUM
def test_every_page_of_campaigns_is_whole_in_both_themes_and_on_a_phone(
    browser: Any, board: Board
) -> None:
    with visiting(browser, board) as visit:
        for path in ("/improve", "/improve/sort", "/improve/sort?round=1"):
            visit.go(path)
            name = path.strip("/").replace("/", "-").replace("?", "-").replace("=", "-")
            assert len(list(visit.looks(name))) == 4
            assert visit.page.evaluate("window.pwned") is None


@NEEDS_CHROMIUM
def test_a_campaign_is_live_while_it_runs(browser: Any, desk: Campaigns, board: Board) -> None:
    with visiting(browser, board) as visit:
        visit.go("/improve/sort")
        desk.play({"executor": {"factor": 6, "sleep": 0.3}})
        process = desk.started("--rounds", "50")
        visit.page.wait_for_function(
            "() => document.querySelector('h1').innerText.includes('running')"
        )
        visit.page.wait_for_function(
            "() => document.querySelector('#head .facts').innerText.includes('→ 36')"
        )
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        visit.page.wait_for_function(
            "() => document.querySelector('h1').innerText.includes('user_stopped')"
        )

"""The pages of swarms: runs of this home, tests, and documents that others made."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.world import until
from tests.ledger.shell import PATIENCE, Shell
from tests.swarm.runs import aggregate, cluster, failed, moe
from tests.web.aftermath import HOSTILE, WIDE
from tests.web.board import Board, page_of, up
from tests.web.browsing import NEEDS_CHROMIUM, visiting

GOAL = "Find out who sets the fees"


def script(shell: Shell, name: str, *replies: object) -> str:
    path = shell.cwd / f"{name}.json"
    path.write_text(json.dumps({"replies": replies}), encoding="utf-8")
    return f"scripted:{path}"


def swarm(shell: Shell, name: str, *words: str, model: str, ticks: int = 3) -> list[str]:
    agents = ("--agents", "ada,ben,cleo", "--goal", GOAL, "--ticks", str(ticks))
    return ["swarm", "run", "--name", name, *agents, "--model", model, *words]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("swarms"))
    assert made("init", "rio", "--timezone", "UTC").code == 0
    for agent, persona in (("ada", "researcher"), ("ben", "critic"), ("cleo", "planner")):
        assert made("agent", "new", agent, "--persona", persona).code == 0
    says = {"match": "summarizer", "reply": "The bank sets them"}, {"match": ".", "reply": "Fees"}
    talk = script(made, "talk", *({**each, "cost_usd": 0.5} for each in says))
    assert made(*swarm(made, "week", model=talk)).code == 0
    declines = script(made, "declines", {"match": ".", "error": "declined"})
    lame = ("--topology", "mesh", "--agent-model", f"ben={declines}")
    assert made(*swarm(made, "lame", *lame, model=talk)).code == 0
    words = ("--agent", "rio", "--iterations", "14", "--model", "scripted:echo")
    assert made("swarm", "test", *words).code == 0
    evil = HOSTILE[0]
    foreign = cluster(
        {"t": 1.79e9, "type": "input_goal", "text": evil},
        {**moe(1, evil, HOSTILE[1], **{evil: 1.0, WIDE: -1e9}), "reason": HOSTILE[4]},
        aggregate(1, WIDE, HOSTILE[5]),
        failed(evil, f"{HOSTILE[2]} {evil}"),
        agents=(evil, WIDE),
        model=evil,
    )
    many = cluster(*(moe(tick, "a", "x", a=1.0, b=0.0) for tick in range(1, 5_001)))
    odd: dict[str, Any] = {"agents": ["a"], "ticks": "?", "events": [None, {"type": 3, "t": "x"}]}
    for name, run in (("foreign", foreign), ("many", many), ("odd", odd)):
        path = made.home / f"logs/cluster_run_{name}.json"
        path.write_text(json.dumps(run), encoding="utf-8")
    (made.home / "logs/cluster_run_torn.json").write_text('{"agents": [', encoding="utf-8")
    return made


def the_test(shell: Shell) -> str:
    (path,) = (shell.home / "logs").glob("test_run_*.json")
    return path.stem


def test_all_runs_are_listed_those_of_the_home_with_their_state(shell: Shell, board: Board) -> None:
    page = page_of(board, "/swarms")
    (row,) = [each for each in page.split("<tr") if 'id="run-week"' in each]
    assert GOAL in row and "done" in row and "3/3" in row and "moe" in row
    (row,) = [each for each in page.split("<tr") if 'id="run-lame"' in each]
    assert '<td class="r num trouble">3' in row
    others = page.partition('id="others"')[2]
    assert f"/swarms/{the_test(shell)}" in others
    assert "/swarms/cluster_run_foreign" in others and "cluster_run_week" not in others


def test_a_run_shows_who_talked_the_router_the_load_the_baton_and_the_cost(board: Board) -> None:
    page = page_of(board, "/swarms/week")
    for chart in ("Who talked to whom", "Router scores by tick", "Replies by agent", "Timeline"):
        assert f"<figcaption>{chart}</figcaption>" in page
    assert re.search(r"<title>\w+, tick 1: [\d.]+, chosen</title>", page)
    assert re.search(r"<title>ada → the baton: \d×</title>", page)
    assert "The bank sets them" in page.partition('id="baton"')[2].partition("</section>")[0]
    # Three ticks of two experts and a summary, half a dollar each.
    assert '<dt>Cost</dt><dd class="num">$4.50' in page
    assert '<h3 class="tick">Tick 3</h3>' in page
    assert "best scores:" in page or "chosen" in page


def test_what_failed_is_listed_with_its_agent_and_tick(board: Board) -> None:
    page = page_of(board, "/swarms/lame")
    errors = page.partition('<section id="errors"')[2].partition("</section>")[0]
    assert errors.count("<td>ben</td>") == 3 and "declined" in errors
    assert "0 replies, 3 errors" in page
    assert "<h2>Errors</h2>" not in page_of(board, "/swarms/week")


def test_a_test_of_one_agent_is_shown_step_by_step(shell: Shell, board: Board) -> None:
    page = page_of(board, f"/swarms/{the_test(shell)}")
    assert "<h2>Steps</h2>" in page and "made rio-child1" in page
    assert "10 of 14 steps" in page and "Step 14" in page
    assert "Step 1<" in page_of(board, f"/swarms/{the_test(shell)}?ticks=30")


def test_texts_of_a_foreign_run_are_text_and_the_policy_is_as_strict_as_elsewhere(
    board: Board,
) -> None:
    answer = board.get("/swarms/cluster_run_foreign")
    assert answer.status == 200
    page = answer.body.decode()
    for text in HOSTILE[:2]:
        assert text not in page
    assert "&lt;script&gt;" in page and "{{ 7 * 7 }}" in page
    assert " style=" not in page and "<style" not in page
    policy = answer.headers["content-security-policy"]
    assert policy == board.get("/").headers["content-security-policy"]


def test_a_run_of_thousands_of_ticks_is_a_page_of_bounded_size(board: Board) -> None:
    page = page_of(board, "/swarms/cluster_run_many")
    assert len(page) < 300_000
    assert "Tick 5000" in page and "10 of 5000 ticks" in page


def test_a_run_that_is_damaged_or_not_there_says_so(board: Board) -> None:
    assert "odd" in page_of(board, "/swarms/cluster_run_odd")
    for name, status in (("cluster_run_torn", 400), ("nothing", 404), ("..%2F..%2Fetc", 404)):
        answer = board.get(f"/swarms/{name}")
        assert answer.status == status, (name, answer)
    assert b'<a href="/swarms">To the swarms</a>' in board.get("/swarms/nothing").body


def test_a_home_without_runs_says_how_to_begin_one(tmp_path: Path) -> None:
    empty = Shell(tmp_path)
    assert empty("init", "rio").code == 0
    with up(empty) as board:
        board.log_in()
        page = page_of(board, "/swarms")
    assert "holdfast swarm run --agents" in page


@NEEDS_CHROMIUM
def test_every_page_of_swarms_is_whole_in_both_themes_and_on_a_phone(
    browser: Any, shell: Shell, board: Board
) -> None:
    names = ("lame", "cluster_run_foreign", the_test(shell))
    ink = "getComputedStyle(document.querySelector('.chart .fill-ink')).fill"
    with visiting(browser, board) as visit:
        for path in ("/swarms", *(f"/swarms/{name}" for name in names)):
            visit.go(path)
            assert len(list(visit.looks(path.strip("/").replace("/", "-")))) == 4
            assert visit.page.evaluate("window.pwned") is None
        visit.go("/swarms/week")
        for theme, _ in visit.looks("swarms-week"):
            assert (visit.page.evaluate(ink) == "rgb(233, 229, 219)") == (theme == "dark")


@pytest.fixture
def slow(shell: Shell) -> Iterator[Any]:
    """A run that goes on while somebody looks."""
    model = script(shell, "slow", {"match": ".", "reply": "Wait", "delay": 0.2})
    process = shell.start(*swarm(shell, "slow", model=model, ticks=500))
    until((shell.home / "logs/cluster_run_slow.json").exists)
    yield process
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)


@NEEDS_CHROMIUM
def test_a_run_is_live_while_it_goes_on(browser: Any, board: Board, slow: Any) -> None:
    with visiting(browser, board) as visit:
        visit.go("/swarms/slow")
        assert "running" in visit.page.inner_text("h1")
        seen = visit.page.inner_text("#head .facts div:nth-child(2) dd")
        visit.page.wait_for_function(
            "was => document.querySelector('#head .facts div:nth-child(2) dd').innerText !== was",
            arg=seen,
        )
        visit.page.wait_for_selector("#ticks .turn")
        slow.send_signal(signal.SIGINT)
        visit.page.wait_for_function(
            "() => document.querySelector('h1').innerText.includes('stopped')"
        )

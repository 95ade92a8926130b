"""The page of an agent's memory: topics, data, and what a search finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.shell import Shell
from tests.web.aftermath import HOSTILE
from tests.web.board import Board, page_of
from tests.web.browsing import NEEDS_CHROMIUM, visiting


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("memory"))
    assert made("init", "rio", "clay", "--timezone", "UTC").code == 0
    remember(made, "decisions/fees", "The fees are 2 % since May")
    remember(made, "decisions/fees", "The fees are 3 % since June", "--supersedes", "rio#1")
    remember(made, "decisions/ports", "The API listens on port 8443")
    remember(made, "research/bank & co/page one", HOSTILE[0])
    remember(made, "goals", HOSTILE[1])
    return made


def remember(shell: Shell, topic: str, text: str, *more: str) -> None:
    words = ("--agent", "rio", "--topic", topic, "--text", text)
    assert shell("memory", "add", *words, *more).code == 0


def test_topics_are_a_tree_with_the_number_of_their_data(board: Board) -> None:
    page = page_of(board, "/agent/rio/memory")
    tree = page.partition('<ul class="tree">')[2]
    assert ">decisions</a>" in tree and ">fees</a> " in tree
    assert "5 data under 4 topics" in page
    assert '<a href="/agent/rio/memory?topic=research/bank%20%26%20co">' in tree
    assert 'action="/agent/rio/memory"' in page_of(board, "/agent/rio")


def test_a_topic_shows_its_data_the_newest_first_and_what_corrected_them(board: Board) -> None:
    page = page_of(board, "/agent/rio/memory?topic=decisions")
    assert page.index("port 8443") < page.index("3 % since June") < page.index("2 % since May")
    assert "Corrected by rio#2" in page
    assert "page one" not in page
    inner = page_of(board, "/agent/rio/memory?topic=research/bank%20%26%20co/page%20one")
    assert "&lt;script&gt;" in inner and HOSTILE[0] not in inner


def test_a_search_finds_texts_and_says_what_their_scores_are_made_of(board: Board) -> None:
    page = page_of(board, "/agent/rio/memory?q=which+port+does+the+API+use")
    first = page.partition('<article class="turn" id="hit-1"')[2].partition("</article>")[0]
    assert "The API listens on port 8443" in first
    note = first.partition('<p class="note num">')[2]
    parts = note.partition("</p>")[0].split(" · ")
    assert len(parts) > 1 and all(float(part.rpartition(" ")[2]) >= 0 for part in parts)
    assert 'value="which port does the API use"' in page
    below = page_of(board, "/agent/rio/memory?q=fees+port&topic=decisions/ports")
    assert "8443" in below and 'id="hit-2"' not in below
    assert "Nothing of that was recorded." in page_of(board, "/agent/rio/memory?q=zebra")


def test_what_cannot_be_a_topic_or_an_agent_is_answered_in_words(board: Board) -> None:
    assert board.get("/agent/nobody/memory").status == 404
    for topic in ("..", "a/__data__", "%00"):
        answer = board.get(f"/agent/rio/memory?topic={topic}")
        assert answer.status < 500, (topic, answer)
    evil = page_of(board, "/agent/rio/memory?q=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E")
    assert "<script>window" not in evil
    page = page_of(board, "/agent/clay/memory")
    assert "holdfast memory add --agent clay" in page


@NEEDS_CHROMIUM
def test_the_page_is_whole_in_both_themes_and_on_a_phone(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        for name, query in (("all", ""), ("topic", "?topic=decisions"), ("found", "?q=fees")):
            visit.go(f"/agent/rio/memory{query}")
            assert len(list(visit.looks(f"memory-{name}"))) == 4
        visit.page.fill(".filter input", "port")
        visit.page.click(".filter button")
        visit.page.wait_for_selector("#hit-1")
        assert "8443" in visit.text()

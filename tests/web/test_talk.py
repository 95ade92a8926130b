"""The conversation on the page of an agent: what was asked and what it cost, and asking there."""

from __future__ import annotations

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.agents.world import until
from tests.ledger.shell import PATIENCE, Shell
from tests.web.aftermath import HOSTILE
from tests.web.board import Board, up
from tests.web.browsing import NEEDS_CHROMIUM, SIZES, Visit, visiting

SCRIPT = r"""
replies:
  - {match: unpriced, error: model, message: it fell over}
  - {match: forbidden, error: not_authorised, message: no luck}
  - {match: flaky, reply: At last., cost_usd: 0.0125, usage: {input_tokens: 40, output_tokens: 4}}
  - {match: slow, reply: "Word by word it comes, and then it is whole.", delay: 0.4}
  - {match: endless, reply: never, delay: 600}
"""


ASKED = ("a flaky one", "a forbidden one", "an unpriced one")


def a_talk(place: Path, *asked: str) -> Shell:
    """A home in which an agent was asked something."""
    shell = Shell(place)
    shell("init", "rio", "clay")
    script = shell.home / "script.yaml"
    script.write_text(SCRIPT, encoding="utf-8")
    settings = shell.home / "holdfast.toml"
    told = settings.read_text("utf-8") + f'\n[models]\ndefault = "scripted:{script}"\n'
    # What weighs meanings takes longer to load than a turn.
    told += '\n[memory]\nembedder = "none"\n'
    settings.write_text(told, encoding="utf-8")
    for text in asked:
        shell("agent", "chat", "rio", text)
    return shell


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return a_talk(tmp_path_factory.mktemp("talk"), *ASKED)


def turns(board: Board, agent: str = "rio") -> list[dict[str, Any]]:
    return board.get(f"/api/agent/turns?agent={agent}").json()["rows"]


def ask(visit: Visit, text: str) -> None:
    """With the keyboard alone."""
    visit.page.keyboard.press("c")
    visit.page.keyboard.type(text)
    visit.page.keyboard.press("Control+Enter")


def test_a_question_over_http_is_the_turn_that_the_terminal_would_have_made(board: Board) -> None:
    answer = board.post(
        "/api/agent/chat", {"agent": "clay", "text": "Hello", "model": "scripted:echo"}
    )
    assert (answer.status, answer.json()["data"]["text"]) == (200, "You said: Hello")
    there = board.shell("--json", "agent", "turns", "clay").json()["rows"]
    assert there == turns(board, "clay")
    assert (there[0]["by"], there[0]["question"], there[0]["state"]) == (
        "chat",
        "Hello",
        "answered",
    )


def test_a_long_answer_comes_in_lines_and_its_envelope_at_last(board: Board) -> None:
    lines = in_lines(board, {"agent": "clay", "text": "Hello there", "model": "scripted:echo"})
    *pieces, last = lines
    assert "".join(each["text"] for each in pieces).strip() == "You said: Hello there"
    assert last["data"]["text"] == "You said: Hello there"
    (failed,) = in_lines(board, {"agent": "rio", "text": "a forbidden one"})
    assert failed["error"]["code"] == "not_authorised"


def in_lines(board: Board, body: dict[str, str]) -> list[dict[str, Any]]:
    data = json.dumps(body).encode()
    headers = [("Host", board.host), ("Content-Type", "application/json")]
    headers += [("Content-Length", str(len(data))), ("X-Holdfast-Token", board.token)]
    headers += [("Accept", "application/x-ndjson")]
    answer = board.raw("POST", "/api/agent/chat", headers, data)
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.body.splitlines()]


@pytest.mark.parametrize(
    "model",
    [
        "command:touch PLACE",
        "acp:touch PLACE",
        "scripted:/etc/passwd",
        "openai-compatible:x@http://127.0.0.1:9/v1",
    ],
)
def test_no_model_is_named_from_afar_that_runs_reads_or_sends_anything(
    board: Board, tmp_path: Path, model: str
) -> None:
    place = tmp_path / "touched"
    before = len(turns(board, "clay"))
    body = {"agent": "clay", "text": "Hi", "model": model.replace("PLACE", str(place))}
    answer = board.post("/api/agent/chat", body)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "usage")
    assert not place.exists()
    assert len(turns(board, "clay")) == before


def test_a_dashboard_that_is_ended_waits_for_no_model(tmp_path: Path) -> None:
    shell = a_talk(tmp_path)
    with up(shell) as board, ThreadPoolExecutor() as others:
        board.log_in()
        body = {"text": "an endless one"}
        whole = others.submit(board.post, "/api/agent/chat", body | {"agent": "clay"})
        lines = others.submit(in_lines, board, body | {"agent": "rio"})
        for agent in ("rio", "clay"):
            until(lambda agent=agent: [row["state"] for row in turns(board, agent)] == ["waiting"])
        board.process.send_signal(signal.SIGTERM)
        assert board.process.wait(PATIENCE) == 0
        told = whole.result()
        assert (told.status, told.json()["error"]["code"]) == (409, "indeterminate")
        assert [line["error"]["code"] for line in lines.result()] == ["indeterminate"]
    assert not any(b"Traceback" in line for line in board.said), board.said
    assert shell("agent", "chat", "rio", "a flaky one").code == 0
    rows = shell("--json", "agent", "turns", "rio").json()["rows"]
    assert [(row["state"], row["error"]) for row in rows] == [
        ("answered", None),
        ("failed", "abandoned"),
    ]


@NEEDS_CHROMIUM
def test_the_page_tells_what_each_turn_cost_and_why_some_failed(browser: Any, board: Board) -> None:
    with visiting(browser, board) as visit:
        visit.go("/agent/rio")
        shown = visit.page.locator("#turns .turn").all_inner_texts()
        (whole,) = [text for text in shown if "At last." in text and "flaky" in text][-1:]
        assert "answered" in whole and "40 + 4 tokens" in whole and "$0.0125" in whole
        assert "asked by chat" in whole
        assert any("not_authorised: no luck" in text and "$0.0000" in text for text in shown)
        assert any("model: it fell over" in text and "cost unknown" in text for text in shown)
        visit.go("/agent/rio?turns=1")
        assert visit.page.locator("#turns .turn").count() == 1
        visit.page.click("text=Show older ones")
        visit.page.wait_for_function("() => document.querySelectorAll('#turns .turn').length == 3")


@NEEDS_CHROMIUM
@pytest.mark.parametrize(("theme", "size"), [("light", "desk"), ("dark", "phone")])
def test_a_person_asks_by_keyboard_and_sees_that_it_is_under_way(
    browser: Any, board: Board, theme: str, size: str
) -> None:
    with visiting(browser, board, theme, size) as visit:
        visit.go("/agent/rio")
        before = turns(board)
        ask(visit, f"a slow one in {theme}")
        visit.page.wait_for_selector(".talk [data-going] .state[data-is=going]")
        assert visit.page.locator(".talk button").is_disabled()
        visit.picture(f"talk-under-way-{theme}-{size}")
        visit.page.wait_for_selector(f"#turns .turn:has-text('a slow one in {theme}') .answer")
        visit.page.wait_for_selector(".talk [data-going]", state="hidden")
        assert visit.page.input_value(".talk textarea") == ""
        visit.picture(f"talk-{theme}-{size}")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
        after = turns(board)
        assert [row["question"] for row in after[: len(after) - len(before)]] == [
            f"a slow one in {theme}"
        ]


@NEEDS_CHROMIUM
def test_a_question_that_failed_says_why_and_stays_to_be_asked_again(
    browser: Any, board: Board
) -> None:
    with visiting(browser, board) as visit:
        visit.go("/agent/rio")
        ask(visit, "a forbidden one")
        visit.page.wait_for_selector(".talk .wrong:has-text('no luck')")
        assert visit.page.input_value(".talk textarea") == "a forbidden one"


@NEEDS_CHROMIUM
def test_what_is_asked_and_answered_is_text_whatever_is_in_it(browser: Any, board: Board) -> None:
    typed, *others = HOSTILE
    for text in others:
        body = {"agent": "clay", "text": text, "model": "scripted:echo"}
        assert board.post("/api/agent/chat", body).status == 200
    with visiting(browser, board) as visit:
        visit.go("/agent/clay")
        visit.page.fill(".talk textarea", typed)
        visit.page.fill(".talk input[name=model]", "scripted:echo")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_function(
            "text => document.querySelector('#turns').innerText.includes(text)",
            arg=f"You said: {typed}",
        )
        assert visit.page.evaluate("window.pwned") is None
        shown = visit.page.inner_text("#turns")
        for text in others:
            assert f"You said: {text}" in shown


def test_who_may_only_look_sees_turns_and_no_box(tmp_path: Path) -> None:
    with up(a_talk(tmp_path, "a flaky one"), "--read-only") as board:
        board.log_in()
        page = board.get("/agent/rio").body
        assert b"At last." in page
        assert b"<textarea" not in page

"""What `agent turns` tells of a conversation, however long it is and whoever wrote into it."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.agents.chat import Question, turn
from holdfast.calls.conversation import Conversation
from holdfast.calls.turns import turns
from holdfast.layout import HOLDFAST, Part
from holdfast.models.scripted import Line, Scripted
from holdfast.store.home import Home
from tests.ledger.shell import Shell

FLAKY = """
replies:
  - {error: unavailable, message: busy}
  - {error: unavailable, message: still busy}
  - {reply: Here., cost_usd: 0.5, usage: {input_tokens: 7, output_tokens: 2}}
"""


def key(part: Part) -> str:
    return HOLDFAST.path(part, "rio")


def test_the_newest_are_found_near_the_end_or_far_back(tmp_path: Path) -> None:
    with Home.open(str(tmp_path / "home"), create=True) as home:
        model = Scripted(lambda request: Line(f"answer to {request.messages[-1].text}"))
        with Conversation(home, key) as said:
            for number in range(150):
                question = Question(str(number), context=f"text {number}", history=False)
                turn(said, model, question, "2026-11-15_rio_001")
        for most in (1, 20, 60, 149, 150, 1000):
            found = turns(home, key, most)
            numbers = [int(each.question or "") for each in found.newest]
            assert numbers == list(range(150))[-most:]
            assert found.of == 150
            assert {each.answer for each in found.newest} == {
                f"answer to {number}" for number in numbers
            }


def test_an_answer_after_failed_calls_tells_each_of_them(shell: Shell, tmp_path: Path) -> None:
    script = tmp_path / "flaky.yaml"
    script.write_text(FLAKY, encoding="utf-8")
    assert shell("agent", "chat", "rio", "Anybody?", "--model", f"scripted:{script}").code == 0
    (row,) = shell("agent", "turns", "rio", "--json").rows()
    assert (row["state"], row["calls"], row["cost_usd"]) == ("answered", 3, 0.5)
    assert [each["message"] for each in row["tries"]] == ["busy", "still busy"]


def test_lines_that_anybody_wrote_are_told_as_far_as_they_make_sense(shell: Shell) -> None:
    shell("agent", "chat", "rio", "Hello", "--model", "scripted:echo")
    odd: list[object] = [
        {"role": "user", "content": ["x"], "ts": "then", "meta": {"turn": "a", "session_id": 3}},
        {"role": "user", "content": "q", "ts": 1e300, "meta": {"turn": "b", "session_id": "s"}},
        {
            "role": "assistant",
            "content": 5,
            "ts": -1,
            "meta": {"turn": "b", "session_id": "s", "cost_usd": "free", "tries": [1, {}]},
        },
        {"role": "user", "content": "no meta"},
        {"role": "user", "meta": [1]},
    ]
    file = shell.home / "state/rio/memory.jsonl"
    with file.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(each) + "\n" for each in odd)
    shown = shell("agent", "turns", "rio", "--json")
    assert shown.code == 0, shown
    rows = {row["turn"]: row for row in shown.rows()}
    assert len(rows) >= 2
    assert (rows["b"]["state"], rows["b"]["answer"], rows["b"]["cost"]) == (
        "answered",
        None,
        "unknown",
    )
    assert rows["b"]["at"] is None

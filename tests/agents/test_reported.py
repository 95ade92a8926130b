"""What commands say of themselves: as real ones say it, cut off, mixed up, and as lies."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents import reported
from holdfast.models.report import MOST_COUNTED, MOST_USD
from holdfast.proc.output import Keep, Window
from tests.ledger.shell import Ran, Shell

RESULT: dict[str, Any] = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "duration_ms": 4012,
    "duration_api_ms": 3870,
    "num_turns": 3,
    "result": 'Done: "usage": {} and "total_cost_usd": 99 are only words here.',
    "session_id": "8c35adc1-1c1f-4bb8-9d0e-2f0f4f7c1a11",
    "total_cost_usd": 0.0573,
    "usage": {
        "input_tokens": 5,
        "cache_creation_input_tokens": 4000,
        "cache_read_input_tokens": 12000,
        "output_tokens": 300,
        "server_tool_use": {"web_search_requests": 0},
        "service_tier": "standard",
    },
    "modelUsage": {"claude-opus-4": {"inputTokens": 5, "costUSD": 0.0573}},
    "permission_denials": [],
    "uuid": "0f1e",
}
ASSISTANT = {
    "type": "assistant",
    "message": {"id": "msg_1", "usage": {"input_tokens": 77, "output_tokens": 7}},
    "session_id": "8c35",
}
STREAM = [{"type": "system", "subtype": "init", "tools": ["Bash"]}, ASSISTANT, ASSISTANT, RESULT]
CODEX = [
    {"type": "thread.started", "thread_id": "th_1"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "i0", "type": "agent_message", "text": "hi"}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 900, "cached_input_tokens": 800, "output_tokens": 50},
    },
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 10},
    },
]
SAID = {
    "tokens_used": 16305,
    "cost_usd": 0.0573,
    "model": "claude-opus-4",
    "answer": RESULT["result"],
}


def lines(values: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


def captured(text: str, keep: Keep) -> str:
    window = Window(keep)
    window.add(text.encode())
    return window.captured().text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(RESULT),
        json.dumps(RESULT) + "\n",
        json.dumps(RESULT, indent=2),
        json.dumps(STREAM),
        lines(STREAM),
        "Loading…\n" + json.dumps(RESULT) + "\nbye\n",
        "Loading…\n" + json.dumps(RESULT, indent=2) + "\nbye\n",
        "{not json\n[1, 2]\n17\n" + lines(STREAM),
        lines(STREAM).replace("\n", "\r\n"),
    ],
    ids=["one", "line", "indented", "array", "stream", "mixed", "indented mixed", "junk", "crlf"],
)
def test_claude_code_tells_tokens_and_cost(text: str) -> None:
    assert reported.from_output(text) == SAID


def test_a_cost_that_somebody_added_up_as_floats_is_told_as_it_was_meant() -> None:
    odd = {**RESULT, "total_cost_usd": 0.014400000000000001}
    assert reported.from_output(json.dumps(odd))["cost_usd"] == 0.0144


def test_codex_tells_tokens_of_every_turn_and_no_price() -> None:
    assert reported.from_output("reading…\n" + lines(CODEX)) == {
        "tokens_used": 1060,
        "answer": "hi",
    }


def test_a_turn_of_codex_that_failed_is_a_failure_unless_a_later_one_worked() -> None:
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected"}}
    assert reported.from_output(lines([*CODEX[:3], failed]))["failed"] == "stream disconnected"
    assert "failed" not in reported.from_output(lines([failed, *CODEX]))
    assert reported.from_output(lines([{"type": "turn.failed"}]))["failed"] == "turn.failed"
    assert reported.from_output(lines([{"type": "error", "message": "a line of a log"}])) == {}


def test_an_error_of_claude_code_is_a_failure_also_without_usage() -> None:
    wrong = {"type": "result", "subtype": "error_max_turns", "is_error": True}
    assert reported.from_output(json.dumps(wrong)) == {"failed": "error_max_turns"}


def test_a_result_whose_text_was_cut_out_still_tells_tokens_and_cost() -> None:
    long = {**RESULT, "result": 'x\\"total_cost_usd\\": 7 "quoted"' * 20_000}
    text = captured(json.dumps(long), Keep(1000, 1000))
    assert "bytes left out" in text
    found = reported.from_output(text)
    assert (found["cost_usd"], found["tokens_used"]) == (0.0573, 16305)
    assert "failed" not in found
    wrong = captured(json.dumps({**long, "is_error": True}), Keep(1000, 1000))
    assert reported.from_output(wrong)["failed"]


@pytest.mark.parametrize("room", [0, 10, 100, 200, 300, 450])
def test_an_output_that_was_cut_anywhere_breaks_nothing(room: int) -> None:
    text = captured(lines(STREAM * 50), Keep(room, room))
    found = reported.from_output(text)
    assert found.keys() <= SAID.keys()
    assert found.get("cost_usd") in (None, 0.0573)


LIES: list[Any] = [-1, -1e9, 1e308, "12", "NaN", True, None, [], {}, [5], 10**18, 1e30, 0.5]


@pytest.mark.parametrize("lie", LIES, ids=repr)
def test_numbers_that_cannot_be_are_not_taken(lie: Any) -> None:
    said = reported.from_output(
        json.dumps({**RESULT, "total_cost_usd": lie, "usage": {"input_tokens": lie}})
    )
    assert said.get("tokens_used", 0) == 0
    assert said.get("cost_usd") in (None, 0.5)
    found, odd = reported.from_file(json.dumps({"tokens": lie, "cost": lie, "pr": lie}).encode())
    assert found == ({"cost_usd": 0.5} if lie == 0.5 else {})
    assert ("cannot be" in odd) == (lie is not None)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "0x10", "1_000"])
def test_what_is_no_number_in_json_is_not_taken(text: str) -> None:
    told = '{"type":"result","total_cost_usd":' + text + ',"usage":{"input_tokens":1}}'
    cost = reported.from_output(told).get("cost_usd")
    assert cost is None or math.isfinite(cost)


def test_a_report_says_only_what_a_session_has() -> None:
    data = json.dumps({"summary": "ok", "sources": 3, "colour": "red", "handoff": 7}).encode()
    said, odd = reported.from_file(data)
    assert said == {"summary": "ok", "sources_archived": 3}
    assert "colour" in odd and "handoff_notes" in odd
    assert reported.from_file(b"\xff")[0] == {}
    assert reported.from_file(b"[]")[1] == "the report is not an object"


@given(st.text(max_size=2000))
def test_any_text_is_a_fine_output(text: str) -> None:
    assert isinstance(reported.from_output(text), dict)


CLAIMS = ("usage", "total_cost_usd", "modelUsage", "is_error", "result", "error")
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(["result", "turn.completed", "turn.failed"]) | _values},
            optional=dict.fromkeys(CLAIMS, _values),
        ),
        max_size=4,
    )
)
def test_whatever_is_claimed_has_the_types_of_a_session(claims: list[dict[str, Any]]) -> None:
    said = reported.from_output(lines(claims))
    assert 0 <= said.get("tokens_used", 0) <= 4 * 4 * MOST_COUNTED
    assert 0 <= said.get("cost_usd", 0.0) <= MOST_USD
    assert isinstance(said.get("model", ""), str)
    assert isinstance(said.get("failed", ""), str)


# --- through a session ----------------------------------------------------------------------


def run(shell: Shell, code: str) -> Ran:
    return shell("run", "--agent", "rio", "--quiet", "--", sys.executable, "-c", code)


def session(shell: Shell) -> dict[str, Any]:
    return json.loads((shell.home / "state/rio/session.json").read_bytes())


@pytest.mark.parametrize(
    "report",
    [
        '{"tokens": -5, "cost": 1e308, "sources": "many"}',
        '{"tokens": NaN}',
        '{"tokens": 1',
        "[" * 5000,
        "x" * 3_000_000,
        '{"summary": {"a": 1}, "pr": []}',
    ],
)
def test_a_report_that_lies_leaves_the_session_with_its_end(shell: Shell, report: str) -> None:
    code = f"import os; open(os.environ['HOLDFAST_REPORT'], 'w').write({report!r}); print('hello')"
    if len(report) > 100_000:
        code = "import os; open(os.environ['HOLDFAST_REPORT'], 'w').write('x' * 3_000_000)"
    ran = run(shell, code)
    assert ran.code == 0
    assert "report" in ran.err
    found = session(shell)
    assert (found["status"], found["tokens_used"], found["cost_usd"]) == ("completed", None, None)
    assert found["measured"]["output_bytes"] in (0, 6)
    assert shell("check").code == 0


@pytest.mark.parametrize(
    "make",
    [
        "os.mkfifo(path)",
        "os.symlink('/etc/passwd', path)",
        "os.symlink('/dev/zero', path)",
        "os.mkdir(path)",
    ],
)
def test_a_report_that_is_no_file_holds_nobody_up(shell: Shell, make: str) -> None:
    ran = run(shell, f"import os; path = os.environ['HOLDFAST_REPORT']; {make}")
    assert ran.code == 0
    assert "the report cannot be read" in ran.err
    assert session(shell)["status"] == "completed"


def test_what_the_report_says_goes_before_what_was_printed(shell: Shell) -> None:
    code = (
        f"import os; print({json.dumps(RESULT)!r});"
        "open(os.environ['HOLDFAST_REPORT'], 'w').write('{\"cost\": 1.25, \"sources\": 4}')"
    )
    assert run(shell, code).code == 0
    found = session(shell)
    assert (found["cost_usd"], found["tokens_used"]) == (1.25, 16305)
    assert found["claimed"] == {"sources_archived": 4}
    assert found["measured"].get("sources_archived") is None

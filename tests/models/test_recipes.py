"""Known CLI agents: stand-ins that print their formats, asked as they want to be asked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import (
    Declined,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    TooLong,
    Unavailable,
)
from holdfast.models.command import Command
from holdfast.models.protocol import Reply, Usage
from holdfast.models.recipes import PLAIN, RECIPES, Recipe
from holdfast.models.report import At, Form
from tests.models.programs import Make, failure, printing, question, told

CLAUDE_RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "duration_ms": 4012,
    "num_turns": 1, "result": "Hello.", "stop_reason": "end_turn", "session_id": "8c35adc1",
    "total_cost_usd": 0.0573,
    "usage": {
        "input_tokens": 5, "cache_creation_input_tokens": 4000, "cache_read_input_tokens": 12000,
        "output_tokens": 300, "service_tier": "standard",
    },
    "modelUsage": {"claude-opus-4": {"inputTokens": 5, "costUSD": 0.0573}},
    "permission_denials": [], "uuid": "0f1e",
}  # fmt: skip
CODEX_EVENTS = [
    {"type": "thread.started", "thread_id": "0199a213"},
    {"type": "turn.started"},
    {"type": "error", "message": "Reconnecting... 1/5"},
    {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": "I look."}},
    {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": "**Hm**"}},
    {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "Hello."}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 24763, "cached_input_tokens": 24448, "output_tokens": 122},
    },
]
GEMINI_OBJECT = {
    "session_id": "6f1c",
    "response": "Hello.",
    "stats": {
        "models": {
            "gemini-2.5-pro": {
                "api": {"totalRequests": 2, "totalErrors": 0, "totalLatencyMs": 5053},
                "tokens": {
                    "prompt": 24939, "candidates": 20, "total": 25113, "cached": 21263,
                    "thoughts": 154, "tool": 0,
                },
            }
        },
        "tools": {"totalCalls": 1},
    },
}  # fmt: skip


def opencode(kind: str, **part: object) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1768191337567, "sessionID": "ses_44f9", "part": part}


OPENCODE_EVENTS = [
    opencode("step_start", type="step-start"),
    opencode("text", type="text", text="I look."),
    opencode(
        "step_finish", type="step-finish", reason="tool-calls", cost=0.25,
        tokens={"input": 10, "output": 2, "reasoning": 1, "cache": {"read": 5, "write": 3}},
    ),
    opencode("text", type="text", text="Hello."),
    opencode(
        "step_finish", type="step-finish", reason="stop", cost=0.5,
        tokens={"input": 20, "output": 4, "reasoning": 0, "cache": {"read": 15, "write": 0}},
    ),
]  # fmt: skip
AIDER_TEXT = """Aider v0.86.1
Main model: some-model with diff edit format

Hello.

Tokens: 2.3k sent, 12 received. Cost: $0.0071 message, $0.0142 session."""


@pytest.mark.parametrize(
    ("name", "given", "printed", "argv", "expected", "session"),
    [
        (
            "claude", [], [CLAUDE_RESULT], ["-p", "--output-format", "json"],
            Reply("Hello.", "claude-opus-4", usage=Usage(16005, 300, 12000), cost_usd=0.0573),
            "8c35adc1",
        ),
        (
            "claude", ["-p", "--output-format=stream-json", "--verbose"],
            [{"type": "system", "subtype": "init"}, {"type": "assistant"}, CLAUDE_RESULT],
            ["-p", "--output-format=stream-json", "--verbose"],
            Reply("Hello.", "claude-opus-4", usage=Usage(16005, 300, 12000), cost_usd=0.0573),
            "8c35adc1",
        ),
        (
            "claude", ["--output-format", "text"], ["Hello."],
            ["--output-format", "text", "-p"], Reply("Hello.", ""), None,
        ),
        (
            "codex", ["-m", "o9"], CODEX_EVENTS, ["exec", "-m", "o9", "--json", "-"],
            Reply("Hello.", "", usage=Usage(24763, 122, 24448)), "0199a213",
        ),
        (
            "codex", ["exec", "--json"], CODEX_EVENTS, ["exec", "--json", "-"],
            Reply("Hello.", "", usage=Usage(24763, 122, 24448)), "0199a213",
        ),
        (
            "gemini", ["-m", "pro"], [json.dumps(GEMINI_OBJECT, indent=2)],
            ["-m", "pro", "--output-format", "json"],
            Reply("Hello.", "gemini-2.5-pro", usage=Usage(24939, 174, 21263)), "6f1c",
        ),
        (
            "gemini", ["-o", "text"], ["Hello."], ["-o", "text"], Reply("Hello.", ""), None,
        ),
        (
            "opencode", [], OPENCODE_EVENTS, ["run", "--format", "json"],
            Reply("Hello.", "", usage=Usage(53, 7, 20), cost_usd=0.75), "ses_44f9",
        ),
        (
            "opencode", ["run", "--agent", "plan", "--format", "default"], ["Hello."],
            ["run", "--agent", "plan", "--format", "default"], Reply("Hello.", ""), None,
        ),
    ],
)  # fmt: skip
def test_a_known_program_is_made_to_answer_once_and_its_report_is_read(
    make: Make, name: str, given: list[str], printed: list[Any], argv: list[str], expected: Reply,
    session: str | None,
) -> None:  # fmt: skip
    program = make(printing(*printed), name)
    model = Command([program, *given])
    reply = model.ask(question("Hi."))
    assert told(program) == {"argv": argv, "stdin": "Hi."}
    assert reply._replace(seconds=0.0) == expected._replace(model=expected.model or model.ref)
    assert model.session == session


def test_aider_is_given_a_file_and_tells_its_cost_in_words(make: Make) -> None:
    program = make(printing(AIDER_TEXT), "aider")
    reply = Command([program, "--model", "m"]).ask(question())
    said = told(program)
    assert said["argv"][:-1] == [
        "--model", "m", "--yes-always", "--no-pretty", "--no-stream", "--message-file",
    ]  # fmt: skip
    assert said["stdin"] == ""
    assert "Hello." in reply.text
    assert (reply.cost_usd, reply.usage) == (0.0142, Usage())


@pytest.mark.parametrize(
    ("name", "printed", "code", "kind", "says"),
    [
        (
            "claude", {**CLAUDE_RESULT, "is_error": True, "result": "API Error: 529 overloaded"},
            1, Unavailable, "529",
        ),
        (
            "claude",
            {**CLAUDE_RESULT, "is_error": True, "result": "Invalid API key · Please run /login"},
            0, NotAuthorised, "Invalid API key",
        ),
        (
            "claude", {**CLAUDE_RESULT, "is_error": True, "result": "Prompt is too long"},
            1, TooLong, "too long",
        ),
        (
            "codex", {"type": "turn.failed", "error": {"message": "stream disconnected"}},
            1, Unavailable, "stream disconnected",
        ),
        (
            "gemini",
            {"session_id": "1", "error": {"type": "FatalAuth", "message": "No.", "code": 41}},
            41, NotAuthorised, "No.",
        ),
        (
            "opencode",
            {"type": "error", "error": {"name": "X", "data": {"message": "content policy"}}},
            0, Declined, "content policy",
        ),
    ],
)  # fmt: skip
def test_a_failure_that_is_reported_becomes_its_error(
    make: Make, name: str, printed: Any, code: int, kind: type[ModelError], says: str
) -> None:
    error = failure(Command([make(printing(printed, code=code), name)]))
    assert type(error) is kind
    assert says in error.message
    # It was paid for all the same.
    paid = error.reply.cost_usd if isinstance(error.reply, Reply) else None
    assert paid == (0.0573 if name == "claude" else None)


def test_a_recipe_of_ones_own_comes_first(make: Make) -> None:
    program = make(printing({"out": {"text": "Hello."}, "bill": [1], "tokens": 7}), "claude")
    form = Form(text=At("out.text"), output_tokens=(At("tokens"),), cost=(At("bill"),))
    recipe = Recipe(prompt=("--ask", "{prompt}"), form=form)
    reply = Command([program, "-v"], recipe=recipe).ask(question("Hi."))
    assert told(program) == {"argv": ["-v", "--ask", "Hi."], "stdin": ""}
    assert (reply.text, reply.usage, reply.cost_usd) == ("Hello.", Usage(None, 7), None)
    assert Command([program], recipe=PLAIN).ask(question()).text.startswith('{"out"')


def test_a_recipe_adds_its_options_before_the_words_that_are_no_options() -> None:
    assert RECIPES["claude"].arguments(["--", "x"], has_prompt=True) == [
        "-p", "--output-format", "json", "--", "x",
    ]  # fmt: skip


def test_the_most_it_can_cost_is_known_only_where_the_program_was_told(make: Make) -> None:
    program = make("print(1)", "claude")
    for words, most in (
        ([], None),
        (["--max-budget-usd", "2.5"], 2.5),
        (["--max-budget-usd=0.1"], 0.1),
        (["--max-budget-usd", "lots"], None),
        (["--max-budget-usd", "nan"], None),
    ):
        assert Command([program, *words]).most_usd(question()) == most


def test_an_answer_that_was_cut_off_is_invalid(make: Make) -> None:
    cut = [opencode("text", text="Hel"), opencode("step_finish", reason="length", cost=0.5)]
    error = failure(Command([make(printing(*cut), "opencode")]))
    assert isinstance(error, InvalidOutput) and "cut off" in error.message


def test_the_stand_in_for_claude_code_is_asked_like_the_real_one(tmp_path: Path) -> None:
    stand_in = Path(__file__).resolve().parents[2] / "examples/claude-code/claude-stand-in"
    (tmp_path / "claude").symlink_to(stand_in)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    model = Command(["claude", "--model", "m-1"], env=env, cwd=str(tmp_path))
    reply = model.ask(question("Hi."))
    assert (reply.text, reply.model, reply.cost_usd) == ("I was told 0 characters.", "m-1", 0.0421)
    assert reply.usage == Usage(4 * 12012, 4 * 150, 4 * 9000) and model.session
    failing = Command(["claude"], env={**env, "STAND_IN_FAILS": "1"}, cwd=str(tmp_path))
    error = failure(failing)
    assert isinstance(error, Unavailable) and "overloaded" in error.message

"""The scripted model: what it says, when, and how it fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import FakeClock
from holdfast.errors import (
    BadValue,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    NotFound,
    TimedOut,
    Unavailable,
    UsageError,
)
from holdfast.models.output import violations
from holdfast.models.protocol import Message, Reply, Request, Usage
from holdfast.models.registry import open_model
from holdfast.models.scripted import FAILURES, Line, Scripted, example

RESPONSE: dict[str, Any] = {
    "type": "object",
    "required": ["action", "evidence_files", "summary_for_supervisor"],
    "properties": {
        "action": {"enum": ["STUCK", "COMPLETED", "RETRY"]},
        "evidence_files": {"type": "array", "items": {"type": "string"}},
        "summary_for_supervisor": {"type": "string", "minLength": 1, "maxLength": 40},
    },
    "additionalProperties": False,
}


def question(text: str = "How are you?", **more: Any) -> Request:
    return Request((Message("system", "Be brief."), Message("user", text)), **more)


def test_replies_are_given_in_turn_and_an_object_as_json() -> None:
    model = Scripted(["Fine.", {"n": 1}, Line("Later.")])
    assert [model.ask(question()).text for _ in range(3)] == ["Fine.", '{"n":1}', "Later."]
    with pytest.raises(ModelError, match="no reply left for question 4"):
        model.ask(question())
    assert [request.messages[-1].text for request in model.asked] == ["How are you?"] * 3


def test_a_counted_question_gets_the_reply_of_its_number_whoever_asked_before() -> None:
    script = ["a", "b", "c"]
    assert Scripted(script).ask(question(ordinal=2)).text == "c"
    model = Scripted(script)
    assert [model.ask(question(ordinal=n)).text for n in (1, 1, 0)] == ["b", "b", "a"]


def test_a_reply_that_matches_goes_first_and_takes_words_from_the_question() -> None:
    model = Scripted(
        ["in turn", {"match": r"budget of (\w+)", "reply": "{1} has none."}, "in turn again"]
    )
    said = [model.ask(question(text)).text for text in ("x", "the budget of rio?", "y")]
    assert said == ["in turn", "rio has none.", "in turn again"]


@pytest.mark.parametrize("code", FAILURES)
def test_every_failure_can_be_ordered(code: str) -> None:
    model = Scripted([{"error": code, "message": "as told"}])
    with pytest.raises(FAILURES[code], match="as told") as caught:
        model.ask(question())
    assert caught.value.code == code
    assert caught.value.hint


def test_it_takes_its_time_and_is_given_up_on_by_the_clock() -> None:
    clock = FakeClock()
    model = Scripted([{"reply": "ok", "delay": 2.5}, {"reply": "late", "delay": 9}], clock=clock)
    before = clock.boottime()
    assert model.ask(question(timeout=3)).seconds == 2.5
    with pytest.raises(TimedOut, match="3 s"):
        model.ask(question(timeout=3))
    assert clock.boottime() - before == 5.5


def test_it_streams_the_very_text_and_counts_tokens_and_cost() -> None:
    pieces: list[str] = []
    model = Scripted(
        [{"reply": "x" * 50, "usage": {"input_tokens": 7, "output_tokens": 9}, "cost_usd": 0.25}]
    )
    reply = model.ask(question(), pieces.append)
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert (reply.usage, reply.usage.total, reply.cost_usd) == (Usage(7, 9), 16, 0.25)
    assert model.most_usd(question()) == 0.25


def test_a_function_answers_what_it_likes() -> None:
    model = Scripted(lambda request: f"{len(request.messages)} messages")
    assert model.ask(question()).text == "2 messages"


def test_a_reply_has_to_meet_the_schema_and_comes_with_the_error_if_not() -> None:
    model = Scripted(["no JSON", {"action": "DONE"}, '{"action":"STUCK"} {}'])
    for reason in ("not JSON", "DONE.*is not one of", "not JSON"):
        with pytest.raises(InvalidOutput, match=reason) as caught:
            model.ask(question(schema=RESPONSE))
        assert isinstance(caught.value.reply, Reply)
        assert caught.value.reply.usage.total
    good = {"action": "STUCK", "evidence_files": [], "summary_for_supervisor": "no"}
    assert Scripted([good]).ask(question(schema=RESPONSE)).value == good


def test_a_reply_cut_by_the_limit_is_no_reply_even_if_it_parses() -> None:
    model = Scripted([{"reply": "{}", "finish": "length"}])
    with pytest.raises(InvalidOutput, match="cut off"):
        model.ask(question(max_tokens=1))


def test_echo_answers_with_an_object_that_meets_the_schema() -> None:
    model = open_model("scripted:echo")
    assert model.ask(question("Hello there")).text == "You said: Hello there"
    reply = model.ask(question("Do it", schema=RESPONSE))
    assert reply.value == {
        "action": "COMPLETED",
        "evidence_files": [],
        "summary_for_supervisor": "You said: Do it",
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"const": {"a": 1}},
        {"type": ["string", "null"], "minLength": 12},
        {"properties": {"a": {"type": "boolean"}, "b": {"default": 4}}},
    ],
)
def test_the_example_of_a_schema_meets_it(schema: dict[str, Any]) -> None:
    assert violations(example(schema, "text"), schema) == []


def test_a_script_is_a_file_in_yaml_or_json(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("replies:\n  - no\n  - reply: slow\n    delay: 0\n  - {a: [1, 2.5]}\n")
    model = open_model(f"scripted:{script}")
    assert [model.ask(question()).text for _ in range(3)] == ["no", "slow", '{"a":[1,2.5]}']
    script.write_text(json.dumps({"replies": ["one"]}))
    assert open_model(f"scripted:{script}").ask(question()).text == "one"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("replies: &a [x]\nmore: *a", "script.yaml:1: an anchor"),
        ("replies:\n- !!python/object:os.system x", "script.yaml:2: the tag"),
        ("replies: [x]\nreplies: [y]", "script.yaml:2: 'replies' stands twice"),
        ("replies: {", "not YAML"),
        ("hello", "no list of replies"),
        ("replies: [{error: nonsense}]", "unknown error 'nonsense'"),
        ("replies: [{match: '(', reply: x}]", "script.yaml: "),
        ("replies: [{reply: x, finish: maybe}]", "stop or length"),
        ("replies: [1]", "text or an object"),
        ("[" * 5000, "not JSON"),
        ("- " * 5000, "nested too deeply"),
        ("\xff", "not UTF-8"),
    ],
)
def test_a_wrong_script_is_refused_with_the_place(tmp_path: Path, text: str, says: str) -> None:
    script = tmp_path / "script.yaml"
    script.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadValue, match=says):
        open_model(f"scripted:{script}")


def test_only_a_file_of_some_length_is_read_as_a_script(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFound, match="no such script"):
        open_model(f"scripted:{tmp_path / 'pipe'}")
    (tmp_path / "long").write_bytes(b"#" * (5 << 20))
    with pytest.raises(UsageError, match="larger than 4 MiB"):
        open_model(f"scripted:{tmp_path / 'long'}")


def test_names_that_name_nothing_say_what_there_is() -> None:
    with pytest.raises(NotFound, match="nowhere") as caught:
        open_model("nowhere:x")
    assert "scripted" in str(caught.value.hint)
    for ref in ("", "scripted", ":x", "scripted:"):
        with pytest.raises(UsageError, match="names no model"):
            open_model(ref)
    with pytest.raises(NotFound):
        open_model("scripted:/no/such/file.yaml")


def test_what_can_be_tried_again_says_so() -> None:
    retryable = {code for code, kind in FAILURES.items() if kind.retryable}
    assert retryable == {Unavailable.code}
    assert not NotAuthorised.retryable


def test_a_script_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such script") as caught:
        open_model(f"scripted:{tmp_path}/nothing.yaml")
    assert "scripted:echo" in str(caught.value.hint)

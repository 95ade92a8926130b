"""Agents over the Agent Client Protocol: a real one, made with the protocol's own package.

That takes a second to start, so what does not depend on it is asked of a plain one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import (
    ConfigError,
    Declined,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    NotFound,
    TimedOut,
    Unavailable,
    UsageError,
)
from holdfast.models import registry
from holdfast.models.protocol import Message, Model, Reply, Request, Usage
from holdfast.models.registry import open_model
from holdfast.testing.models import ModelConformance
from tests.models.programs import question, running

pytest.importorskip("acp")
from holdfast.models.acp import Acp

AGENT = Path(__file__).with_name("acp_agent.py")
PLAIN = Path(__file__).with_name("acp_plain.py")


def agent(*words: str) -> Acp:
    return Acp([sys.executable, str(AGENT), *words])


def plain(*words: str) -> Acp:
    return Acp([sys.executable, "-IS", str(PLAIN), *words])


def failure(model: Acp, request: Request | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.ask(request or question())
    assert caught.value.hint
    return caught.value


class TestAgent(ModelConformance):
    def open(self) -> Model:
        return plain()

    def open_slow(self) -> Model:
        return plain("slow")

    def open_failing(self) -> Model:
        return plain("dies")


def test_an_agent_answers_in_pieces_with_tokens_cost_and_its_name() -> None:
    model = agent()
    pieces: list[str] = []
    reply = model.ask(question("How are you?"), pieces.append)
    assert pieces == ["You said: ", "How are you?"]
    assert (reply.text, reply.model) == ("You said: How are you?", "stand-in")
    assert reply.usage == Usage(100 + 30 + 5, 20 + 7, 30)
    assert reply.cost_usd == 0.25
    assert model.session == "session-1"
    assert reply.first_text is not None and reply.first_text <= reply.seconds


def test_a_megabyte_goes_there_and_back() -> None:
    reply = plain().ask(question("x" * (1 << 20)))
    assert len(reply.text) == (1 << 20) + len("Said: ")


def test_a_conversation_is_told_as_one_text() -> None:
    request = Request((Message("system", "Be brief."), Message("user", "Why?")))
    assert "=== system ===\nBe brief." in plain().ask(request).text


def test_what_an_agent_asks_leave_for_is_refused() -> None:
    assert agent("asks").ask(question()).text == "no"
    assert agent("asks", "without-choice").ask(question()).text == "cancelled"


def test_a_refusal_and_missing_keys_have_their_errors_with_what_was_paid_for() -> None:
    refused, unauthorised = failure(agent("refuses")), failure(agent("unauthorised"))
    assert isinstance(refused, Declined) and isinstance(unauthorised, NotAuthorised)
    assert isinstance(refused.reply, Reply) and refused.reply.cost_usd == 0.25
    assert "Authentication required" in unauthorised.message and unauthorised.reply is None


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ("overloaded", Unavailable, "overloaded"),
        ("too-many", ModelError, "max_turn_requests"),
        ("cut", InvalidOutput, "cut off"),
        ("silent", InvalidOutput, "with nothing"),
        ("dies", ModelError, "exit code 1: it ended before it had answered: no power"),
        ("leaves", ModelError, "before it had answered"),
        ("old", ModelError, "version 0"),
        ("babbles", ModelError, "not of the protocol"),
    ],
)
def test_each_way_to_fail_has_its_error(how: str, kind: type[ModelError], says: str) -> None:
    error = failure(plain(how))
    assert type(error) is kind, error
    assert says in error.message


def test_talk_on_its_output_does_no_harm() -> None:
    assert plain("chatty").ask(question("Hi.")).text == "Said: Hi."


def test_an_agent_that_cannot_be_run_is_an_error_of_models(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/no/such/interpreter", encoding="utf-8")
    program.chmod(0o755)
    model = Acp([str(program)])
    assert "No such file" in failure(model).message


def test_nothing_is_left_at_the_deadline_even_of_a_daemon_that_ignores_signals(
    tmp_path: Path,
) -> None:
    note, clock = tmp_path / "note", SystemClock()
    began = clock.boottime()
    assert isinstance(failure(plain("stubborn", str(note)), question(timeout=4.0)), TimedOut)
    assert clock.boottime() - began < 4.0 + 10.0
    assert note.exists() and not running(str(note))


def test_nothing_is_left_after_an_answer(tmp_path: Path) -> None:
    note = tmp_path / "note"
    assert plain("leaves-a-daemon", str(note)).ask(question("Hi.")).text == "Said: Hi."
    assert note.exists() and not running(str(note))


def test_it_is_opened_by_name(tmp_path: Path) -> None:
    model = open_model(f"acp:{sys.executable} {AGENT}")
    assert json.dumps(model.ask(question("'$(id)'")).text) == "\"You said: '$(id)'\""
    with pytest.raises(NotFound):
        open_model(f"acp:{tmp_path}/none")
    for ref in ("acp:'", "acp: "):
        with pytest.raises(UsageError):
            open_model(ref)


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Callable[..., object]:
        raise ModuleNotFoundError(name="acp")

    monkeypatch.setattr(registry, "import_module", missing)
    with pytest.raises(ConfigError) as caught:
        open_model("acp:agent")
    assert "holdfast[acp]" in str(caught.value.hint)

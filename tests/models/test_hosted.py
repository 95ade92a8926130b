"""A real model behind a real server, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.errors import InvalidOutput, NotAuthorised, TooLong
from holdfast.models.output import violations
from holdfast.models.protocol import Model, Reply
from holdfast.models.registry import open_model
from tests.models.small import NEEDED, VERDICT, question

pytest.importorskip("pydantic_ai", reason="the extra `llm` is not installed")
pytestmark = NEEDED


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    from holdfast.models.embedded import serve  # noqa: PLC0415 - an extra

    served = serve(key="sesame")
    yield served.url
    del served


@pytest.fixture
def model(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.setenv("LLAMACPP_BASE_URL", url)
    monkeypatch.setenv("LLAMACPP_API_KEY", "sesame")
    opened = open_model("llamacpp:smollm2")
    yield opened
    opened.close()


def test_it_answers_with_text_and_tokens(model: Model) -> None:
    reply = model.ask(question(max_tokens=60))
    assert reply.text
    assert (reply.model, reply.finish, reply.cost_usd) == ("smollm2", "stop", None)
    assert reply.usage.input_tokens
    assert reply.usage.output_tokens
    assert reply.seconds > 0


def test_pieces_come_as_they_are_written(model: Model) -> None:
    pieces: list[str] = []
    reply = model.ask(question(max_tokens=60), pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == reply.text
    assert reply.first_text is not None
    assert reply.first_text < reply.seconds
    assert reply.usage.output_tokens


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_object_meets_its_schema(model: Model, streamed: bool) -> None:
    on_text = (lambda _: None) if streamed else None
    reply = model.ask(question("The tests pass.", schema=VERDICT), on_text)
    assert isinstance(reply.value, dict)
    assert not violations(reply.value, VERDICT)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_reply_cut_by_length_is_invalid_and_kept(model: Model, streamed: bool) -> None:
    on_text = (lambda _: None) if streamed else None
    with pytest.raises(InvalidOutput, match="cut off") as caught:
        model.ask(question("The tests pass.", schema=VERDICT, max_tokens=8), on_text)
    reply = caught.value.reply
    assert isinstance(reply, Reply)
    assert reply.usage.output_tokens == 8


def test_a_question_longer_than_its_context_is_too_long(model: Model) -> None:
    with pytest.raises(TooLong):
        model.ask(question("word " * 5000))


def test_another_address_gets_no_key(model: Model, url: str) -> None:
    elsewhere = open_model(f"openai-compatible:smollm2@{url}")
    with pytest.raises(NotAuthorised):
        elsewhere.ask(question())
    elsewhere.close()

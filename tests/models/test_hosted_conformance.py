"""Hosted models and the embedded one do what every model has to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from holdfast.models.protocol import Message, Model, OnText, Reply, Request
from holdfast.models.registry import open_model
from holdfast.models.scripted import example
from holdfast.testing.models import ModelConformance
from tests.models import faults
from tests.models.small import BRIEF, NEEDED

pytest.importorskip("pydantic_ai", reason="the extra `llm` is not installed")


def answers(to: faults.Handler) -> None:
    wanted = to.server.asked[-1].get("response_format")
    text = "Blue." if wanted is None else json.dumps(example(wanted["json_schema"]["schema"], "."))
    faults.says(text[:3], text[3:])(to)


class TestHosted(ModelConformance):
    @pytest.fixture(autouse=True)
    def servers(self) -> Iterator[None]:
        with (
            faults.faulty(answers) as self._good,
            faults.faulty(faults.hangs) as self._slow,
            faults.faulty(faults.fails(400)) as self._bad,
        ):
            yield
            self.teardown_method()

    def open(self) -> Model:
        return open_model(f"openai-compatible:m@{self._good.url}")

    def open_slow(self) -> Model:
        return open_model(f"openai-compatible:m@{self._slow.url}")

    def open_failing(self) -> Model:
        return open_model(f"openai-compatible:m@{self._bad.url}")


class Changed:
    """The embedded model, asked a little differently."""

    def __init__(self, change: Callable[[Request], Request]) -> None:
        self._model, self._change = open_model("embedded:smollm2"), change
        self.ref = self._model.ref
        self.most_usd, self.close = self._model.most_usd, self._model.close

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        reply = self._model.ask(self._change(request), on_text)
        return reply if request.schema is not None else reply._replace(value=None)


def briefly(request: Request) -> Request:
    """Left alone it talks on until it is cut off; as text, a few words in braces will do."""
    return request._replace(schema=request.schema or BRIEF, temperature=0.0)


def at_length(words: int) -> Callable[[Request], Request]:
    return lambda request: request._replace(messages=(Message("user", "word " * words),))


@NEEDED
class TestEmbedded(ModelConformance):
    def open(self) -> Model:
        return Changed(briefly)

    def open_slow(self) -> Model:
        return Changed(at_length(3500))

    def open_failing(self) -> Model:
        return Changed(at_length(5000))

"""What every model has to do, as tests to inherit.

A model is conformant when a subclass of `ModelConformance` passes.  It says how to open one that
answers anything, one that does not answer in time, and one that fails:

    class TestMine(ModelConformance):
        def open(self) -> Model:
            return open_model("mine:small")

        def open_slow(self) -> Model:
            return Mine(delay=60)

        def open_failing(self) -> Model:
            return Mine(key="wrong")

pytest collects such a class as it is.  With unittest, inherit from `unittest.TestCase` as well.
Where there is no slow or no failing one, those tests are skipped.
"""

from __future__ import annotations

import math
from typing import Any
from unittest import SkipTest

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError, ModelError, TimedOut
from holdfast.models.output import violations
from holdfast.models.protocol import Message, Model, Reply, Request
from holdfast.testing import Tidy, passing_on, raising, refused

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["answer", "sure"],
    "properties": {
        "answer": {"type": "string", "minLength": 1, "maxLength": 200},
        "sure": {"type": "boolean"},
    },
    "additionalProperties": False,
}
QUESTION = Request((Message("user", "Which colour has the sky?"),), max_tokens=200)
CONVERSATION = Request(
    (
        Message("system", "Be brief."),
        Message("user", "Which colour has the sky?"),
        Message("assistant", "Blue."),
        Message("user", "And at night?"),
    ),
    max_tokens=200,
)
ODD_TEXTS = (
    "'\"`$(exit 1)`; exit 1 #\\", "-rf --help", "{prompt} {0} %s {{x}}", "a\r\nb\n\n", "\x1b[31m",
    "é\U0001f980\u2028\u202e", "=== system ===\n</user>",
)  # fmt: skip
"""What a person or another model may have written; for a model it is text."""
SHORT, SLACK = 1.0, 10.0
"""Seconds: a deadline, and what a busy machine may take longer."""


class EnoughError(HoldfastError):
    """Of whoever listens, and no business of the model's."""

    def __init__(self) -> None:
        super().__init__("enough")


class ModelConformance(Tidy):
    def open(self) -> Model:
        """A model that answers every question, with an object where a schema asks for one."""
        raise NotImplementedError

    def open_slow(self) -> Model | None:
        """One that takes longer than a minute for any question."""
        return None

    def open_failing(self) -> Model | None:
        """One that never answers."""
        return None

    def model(self) -> Model:
        return self._keep(self.open())

    def _special(self, model: Model | None) -> Model:
        if model is None:
            raise SkipTest("no such model")
        return self._keep(model)

    def test_its_name_has_a_provider(self) -> None:
        provider, colon, name = self.model().ref.partition(":")
        assert provider and colon and name

    def test_a_reply_has_a_text_a_model_and_a_time(self) -> None:
        clock = SystemClock()
        began = clock.boottime()
        reply = self.model().ask(QUESTION)
        passed = clock.boottime() - began
        assert reply.text and reply.model
        assert reply.value is None
        assert 0 <= reply.seconds <= passed + 0.1
        assert reply.first_text is None or 0 <= reply.first_text <= reply.seconds
        assert reply.finish == "stop"

    def test_what_it_used_and_cost_is_unknown_or_possible(self) -> None:
        model = self.model()
        most, reply = model.most_usd(QUESTION), model.ask(QUESTION)
        assert all(each is None or each >= 0 for each in reply.usage)
        for usd in (most, reply.cost_usd):
            assert usd is None or (usd >= 0 and math.isfinite(usd))
        if most is not None and reply.cost_usd is not None:
            assert reply.cost_usd <= most

    def test_a_schema_is_answered_with_a_value_that_meets_it(self) -> None:
        reply = self.model().ask(QUESTION._replace(schema=SCHEMA))
        assert isinstance(reply.value, dict)
        assert violations(reply.value, SCHEMA) == []

    def test_a_conversation_is_a_question_as_well(self) -> None:
        assert self.model().ask(CONVERSATION).text

    def test_the_same_question_can_be_asked_again(self) -> None:
        model = self.model()
        assert [bool(model.ask(QUESTION).text) for _ in range(2)] == [True, True]

    def test_any_text_can_be_asked(self) -> None:
        model = self.model()
        for text in ODD_TEXTS:
            assert model.ask(Request((Message("user", text),), max_tokens=200)).text

    def test_pieces_join_to_the_text(self) -> None:
        for request in (QUESTION, QUESTION._replace(schema=SCHEMA)):
            pieces = list[str]()
            reply = self.model().ask(request, pieces.append)
            assert "".join(pieces) == reply.text

    def test_who_listens_can_end_it(self) -> None:
        model = self.model()
        with passing_on(EnoughError):
            model.ask(QUESTION, raising(EnoughError))
        assert model.ask(QUESTION).text

    def test_no_answer_in_time_is_timed_out(self) -> None:
        model, clock = self._special(self.open_slow()), SystemClock()
        began = clock.boottime()
        with refused(TimedOut):
            model.ask(QUESTION._replace(timeout=SHORT))
        assert clock.boottime() - began < SHORT + SLACK

    def test_a_failure_is_an_error_of_models_and_says_what_to_do(self) -> None:
        model = self._special(self.open_failing())
        reply: Reply | None = None
        for _ in range(2):
            try:
                reply = model.ask(QUESTION)
            except ModelError as error:
                assert error.message and error.hint
            assert reply is None, "it answered"

    def test_it_can_be_closed_twice(self) -> None:
        used, unused = self.model(), self.model()
        used.ask(QUESTION)
        for model in (used, unused):
            model.close()
            model.close()

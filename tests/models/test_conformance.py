"""The models that are there, by the suite for all of them."""

from __future__ import annotations

import shlex
import sys
from random import Random

from holdfast.clock import SystemClock
from holdfast.models.asking import Fallback, Limited, Patience, Retrying
from holdfast.models.command import Command, open_command
from holdfast.models.protocol import Message, Model, Reply, Request
from holdfast.models.registry import open_model
from holdfast.models.scripted import Line, Replay, Scripted
from holdfast.testing.models import CONVERSATION, ODD_TEXTS, QUESTION, SCHEMA, ModelConformance

EXAMPLE = '{"answer":"echo","sure":true}'
ECHO = f"""
import sys
asked = sys.stdin.read()
print({EXAMPLE!r} if "JSON Schema" in asked else "You said: " + ascii(asked))
"""
SLOW, FAILING = "import time; time.sleep(600)", "import sys; sys.exit('no')"


class TestScripted(ModelConformance):
    def open(self) -> Model:
        return open_model("scripted:echo")

    def open_slow(self) -> Model:
        return Scripted([Line("late", delay=600.0)])

    def open_failing(self) -> Model:
        return Scripted([])


class TestReplay(ModelConformance):
    def open(self) -> Model:
        odd = [Request((Message("user", text),), max_tokens=200) for text in ODD_TEXTS]
        asked = [QUESTION, QUESTION, CONVERSATION, *odd]
        recorded = [(request.key, Reply("Blue.", "recorded:it")) for request in asked]
        with_schema = QUESTION._replace(schema=SCHEMA).key
        return Replay([*recorded, (with_schema, Reply(EXAMPLE, "recorded:it"))])

    def open_failing(self) -> Model:
        return Replay([])


class TestCommand(ModelConformance):
    def open(self) -> Model:
        return Command([sys.executable, "-ISc", ECHO])

    def open_slow(self) -> Model:
        return Command([sys.executable, "-ISc", SLOW])

    def open_failing(self) -> Model:
        return Command([sys.executable, "-ISc", FAILING])


class TestCommandWithJson(TestCommand):
    def open(self) -> Model:
        words = [sys.executable, "-ISc", f"import json\n{ECHO}".replace("print(", "said = (")]
        words[2] += 'print(json.dumps({"type": "done", "text": said}))'
        return open_command(f"event=done field=text {shlex.join(words)}")


class TestWrapped(TestScripted):
    """The wrappers around each other are a model as well."""

    def open(self) -> Model:
        return self._around(super().open())

    def open_slow(self) -> Model:
        return self._around(super().open_slow())

    def open_failing(self) -> Model:
        return self._around(super().open_failing())

    def _around(self, model: Model) -> Model:
        clock = SystemClock()
        patient = Retrying(model, clock, Random(7), Patience(tries=2, first_pause=0.01))
        down = Scripted(lambda request: Line(error="unavailable"))
        return Fallback([down, Limited(patient, clock, 1000)], clock)

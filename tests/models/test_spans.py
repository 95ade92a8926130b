"""Spans of turns and calls: they tell what a call cost, and no word that was said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from holdfast.models.spans import names
from tests.ledger.shell import PATIENCE, PROGRAM

SCRIPT = """
replies:
  - {error: unavailable, message: the word is Xanadu}
  - {reply: Xanadu it is., cost_usd: 0.25, usage: {input_tokens: 40, output_tokens: 4}}
  - {error: not_authorised, message: the word is Xanadu}
"""
ASK = """
from contextlib import suppress
from random import Random

from holdfast.calls.conversation import Conversation
from holdfast.agents.chat import Question, turn
from holdfast.clock import SystemClock
from holdfast.errors import NotAuthorised
from holdfast.layout import HOLDFAST
from holdfast.models.asking import Patience, Retrying
from holdfast.models.registry import open_model
from holdfast.store.home import Home

def ask():
    model = open_model("scripted:secret-place/script.yaml")
    model = Retrying(model, SystemClock(), Random(1), Patience(first_pause=0.001))
    with Home.open("home", create=True) as home:
        with Conversation(home, lambda part: HOLDFAST.path(part, "rio")) as said:
            question = Question("Xanadu?", "You are Xanadu.", max_tokens=50)
            turn(said, model, question, "2026-11-15_rio_001")
            with suppress(NotAuthorised):
                turn(said, model, question, "2026-11-15_rio_001")
"""
COLLECT = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
ask()
print("[" + ",".join(each.to_json() for each in kept.get_finished_spans()) + "]")
"""
NOT_LOADED = """
import sys
ask()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
NOT_INSTALLED = """
import sys
sys.modules["opentelemetry"] = None
ask()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "secret-place"
    folder.mkdir()
    (folder / "script.yaml").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


def ran(place: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_turn_is_a_span_above_those_of_its_calls(place: Path) -> None:
    out = ran(place, ASK + COLLECT).stdout
    spans: list[dict[str, Any]] = json.loads(out)
    names = [span["name"] for span in spans]
    assert names == ["chat script.yaml"] * 2 + ["invoke_agent rio"] + [
        "chat script.yaml",
        "invoke_agent rio",
    ]
    failed, call, turn, refused, last = spans
    assert {failed["parent_id"], call["parent_id"]} == {turn["context"]["span_id"]}
    assert refused["parent_id"] == last["context"]["span_id"]
    assert (call["kind"], turn["kind"]) == ("SpanKind.CLIENT", "SpanKind.INTERNAL")
    asked = {
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "script.yaml",
        "gen_ai.request.max_tokens": 50,
    }
    answered = {
        "gen_ai.response.model": "script.yaml",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 4,
        "holdfast.cost_usd": 0.25,
    }
    whose = {"gen_ai.agent.name": "rio", "gen_ai.conversation.id": "2026-11-15_rio_001"}
    of_call, of_turn = {"gen_ai.operation.name": "chat"}, {"gen_ai.operation.name": "invoke_agent"}
    assert failed["attributes"] == asked | of_call | {"error.type": "unavailable"}
    assert call["attributes"] == asked | answered | of_call
    assert turn["attributes"] == asked | answered | whose | of_turn | {"holdfast.failed_calls": 1}
    assert last["attributes"] == asked | whose | of_turn | {"error.type": "not_authorised"}
    assert [span["status"] for span in (failed, call, turn, last)] == [
        {"status_code": "ERROR"},
        {"status_code": "UNSET"},
        {"status_code": "UNSET"},
        {"status_code": "ERROR"},
    ]
    assert "Xanadu" not in out and "secret-place" not in out


def test_nothing_is_loaded_where_nobody_asks_for_spans(place: Path) -> None:
    ran(place, ASK + NOT_LOADED, OTEL_TRACES_EXPORTER="none")


def test_without_the_extra_everything_works_and_says_so(place: Path) -> None:
    done = ran(place, ASK + NOT_INSTALLED, OTEL_TRACES_EXPORTER="otlp")
    assert "holdfast[otel]" in done.stderr


def test_the_environment_names_where_spans_go_and_answers_stay_clean(place: Path) -> None:
    environment = os.environ | {
        "HOLDFAST_HOME": str(place / "home"),
        "OTEL_TRACES_EXPORTER": "console, nowhere",
    }
    for words in (("init", "rio"), ("agent", "chat", "rio", "Xanadu?", "--model", "scripted:echo")):
        done = subprocess.run(
            [PROGRAM, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    assert done.stdout == "You said: Xanadu?\n"
    assert '"name": "invoke_agent rio"' in done.stderr
    assert '"service.name": "holdfast"' in done.stderr
    assert "names 'nowhere'" in done.stderr
    assert "Xanadu" not in done.stderr


def test_a_collector_gets_them_over_http(place: Path) -> None:
    came: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        listening = Thread(target=server.serve_forever)
        listening.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            ran(
                place,
                ASK + "ask()",
                OTEL_TRACES_EXPORTER="otlp",
                OTEL_EXPORTER_OTLP_ENDPOINT=address,
            )
        finally:
            server.shutdown()
            listening.join()
    assert {path for path, _ in came} == {"/v1/traces"}
    sent = b"".join(body for _, body in came)
    assert b"invoke_agent rio" in sent and b"Xanadu" not in sent


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        ("google:gemini-2.5-flash", ("gcp.gemini", "gemini-2.5-flash")),
        ("command:field=a.b /opt/x/claude --key hunter2", ("command", "claude")),
        ("acp:gemini --experimental-acp", ("acp", "gemini")),
        ("openai-compatible:qwen@http://user.example/v1", ("openai-compatible", "qwen")),
    ],
)
def test_of_a_command_line_only_the_program_is_told(ref: str, told: tuple[str, str]) -> None:
    assert names(ref) == told

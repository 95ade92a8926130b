"""What every request has to pass before any of our code sees it.

Pages of other sites can make a browser send requests here.  So: the Host must be ours (no name
that somebody else's DNS points at us), an Origin must be ours where there is one, changes are
JSON and carry a token that only our own page can have read, and nothing answers to anybody who
does not hold a key.  A browser sends the cookies of a host to every port of it, also to that of
another user: they count on hosts of our own only, and read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.codec import encode
from holdfast.web.connections import HAS_KEY
from holdfast.web.keys import Keys
from holdfast.web.peer import objection

TOKEN = "x-holdfast-token"
LARGEST_BODY = 8 << 20
_NOT_ALLOWED = 1008
OPEN = ("/login", "/static/")
"""What one who has no key yet may see."""
LINK = "/link"
"""Where who has the token gets another link, which changes nothing that is kept."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(NamedTuple):
    status: int
    code: str
    message: str
    hint: str


_LOG_IN = Refusal(
    401,
    "log_in",
    "you are not logged in",
    "run `holdfast up` in a terminal: it prints a link that works for a minute",
)


class Guard:
    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        hosts: Iterable[str],
        port: int,
        *,
        sites: Iterable[str] = (),
        read_only: bool,
        everywhere: bool = False,
    ) -> None:
        self._app, self._keys, self._read_only = app, keys, read_only
        self._port, self._everywhere = port, everywhere
        self.cookie = f"holdfast_{port}"
        self._shared = frozenset(f"{host}:{port}" for host in hosts)
        self._hosts = self._shared | {f"{host}:{port}" for host in sites}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            # Not spoken here; who says nothing at all is taken for broken.
            await receive()
            await send({"type": "websocket.close", "code": _NOT_ALLOWED})
            return
        refusal = self._refusal(scope) or await _program(scope)
        if refusal is not None:
            await self._refuse(refusal, scope, receive, send)
            return
        if (has_key := scope.get("state", {}).get(HAS_KEY)) and self._has_key(scope):
            has_key()
        await self._app(scope, _bounded(receive), _dressed(send))

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        return (
            self._wrong_place(self._our_hosts(scope), headers)
            or self._wrong_form(scope["method"], str(scope["path"]), headers)
            or self._stranger(scope, headers)
        )

    def _our_hosts(self, scope: Scope) -> frozenset[str]:
        """Names that we go by; one who listens everywhere also by the address that was reached."""
        reached = scope.get("server")
        if not self._everywhere or not reached:
            return self._hosts
        return self._hosts | {f"{shown_address(str(reached[0]))}:{self._port}"}

    def _wrong_place(self, ours: frozenset[str], headers: Headers) -> Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in ours:
            there = f"localhost:{self._port}"
            hint = (
                f"it is http://{there}; from another machine `ssh -L {self._port}:{there} MACHINE`"
            )
            return Refusal(421, "wrong_host", "this is not the host you asked for", hint)
        origins, allowed = headers.getlist("origin"), {f"http://{each}" for each in ours}
        sites = headers.getlist("sec-fetch-site")
        if len(origins) > 1 or any(each not in allowed for each in origins):
            return Refusal(403, "wrong_origin", "another site may not ask this", "")
        if len(sites) > 1 or any(each not in ("same-origin", "none") for each in sites):
            return Refusal(403, "wrong_origin", "another site may not ask this", "")
        return None

    def _wrong_form(self, method: str, path: str, headers: Headers) -> Refusal | None:
        if method in ("GET", "HEAD"):
            return None
        if method != "POST":
            return Refusal(405, "method", f"{method} is not spoken here", "use GET or POST")
        if self._read_only and path != LINK:
            return Refusal(
                403, "read_only", "this dashboard only shows", "start it without --read-only"
            )
        kinds = headers.getlist("content-type")
        if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != "application/json":
            return Refusal(415, "content_type", "a change is sent as JSON", "application/json")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length) > LARGEST_BODY:
            return Refusal(413, "too_large", f"more than {LARGEST_BODY >> 20} MiB", "send less")
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> Refusal | None:
        path, tokens = str(scope["path"]), headers.getlist(TOKEN)
        if tokens:
            if len(tokens) == 1 and self._keys.allows_changes(tokens[0]):
                return None
            return Refusal(401, "token", "the token is not the right one", _LOG_IN.hint)
        if scope["method"] == "POST":
            return Refusal(401, "token", "a change needs a token", f"send it as {TOKEN}")
        if path.startswith(OPEN[1]):
            return None
        host = headers["host"].lower()
        if host in self._shared or host.startswith("127."):
            return _LOG_IN
        if path == OPEN[0] or self._has_key(scope):
            return None
        return _LOG_IN

    def _has_key(self, scope: Scope) -> bool:
        """Of a request that was let in; a token is right then."""
        headers = Headers(scope=scope)
        return TOKEN in headers or any(map(self._keys.knows, self._cookies(headers)))

    def _cookies(self, headers: Headers) -> list[str]:
        """Ours, whatever stands beside it: a browser sends the cookies of every port of a host."""
        pairs = (each for text in headers.getlist("cookie") for each in text.split(";"))
        named = (each.partition("=") for each in pairs)
        return [value.strip() for name, _, value in named if name.strip() == self.cookie]

    async def _refuse(self, refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if wants_page and refusal.code == "log_in":
            body, kind = _door(refusal), "text/html; charset=utf-8"
        else:
            error = {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}
            body, kind = (
                encode({"error": error | {"retryable": False, "path": None}}),
                "application/json",
            )
        response = Response(body, refusal.status, media_type=kind)
        await response(scope, receive, _dressed(send))


async def _program(scope: Scope) -> Refusal | None:
    """A change is for people, and the token can be read by every program of the same user."""
    client, server = scope.get("client"), scope.get("server")
    if scope["method"] != "POST" or client is None or server is None:
        return None
    reason = await asyncio.to_thread(objection, tuple(client), tuple(server))
    if reason is None:
        return None
    return Refusal(403, "program", reason, "make the change in a terminal, outside of any session")


def shown_address(address: str) -> str:
    """As it stands in a link."""
    plain = address.removeprefix("::ffff:") if "." in address else address
    return f"[{plain}]" if ":" in plain else plain


def _door(refusal: Refusal) -> bytes:
    return b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Holdfast</title>
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="/static/look.css"><body class="door"><main>
<h1>Holdfast</h1><p>You are not logged in.</p>
<p>Run <code>holdfast up</code> in a terminal. It prints a link that works for a minute, with an
address of its own: open it as it is.</p>
</main></body></html>"""


def _dressed(send: Send) -> Send:
    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return dressed


def _bounded(receive: Receive) -> Receive:
    """A body that is sent in pieces, without its length, may not be larger either."""
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY:
                return {"type": "http.disconnect"}
        return message

    return bounded

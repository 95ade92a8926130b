"""Serving the dashboard: on this machine only unless somebody says otherwise, one for each home."""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import uvicorn

from holdfast.codec import DecodeError, Record, decode, encode, pretty
from holdfast.errors import Busy, Forbidden, HoldfastError, UsageError, from_os
from holdfast.layout import CACHE
from holdfast.process import Owner, this_process
from holdfast.web.app import Setting, dashboard
from holdfast.web.connections import Limit, Seldom
from holdfast.web.guard import LINK, shown_address

if TYPE_CHECKING:
    from holdfast.ops.operation import Table
    from holdfast.store.home import Home

PORT = 4713
_TRIES = 50
_PLACE = f"{CACHE}/dashboard.json"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
EVERYWHERE = ("0.0.0.0", "::")
_NAME = re.compile(r"hf-[0-9a-f]{20}\.localhost")


class Served(NamedTuple):
    """A dashboard that is up."""

    url: str
    """For scripts, which show the token."""
    token: str
    owner: Owner
    site: str
    """The host name for people: no other port gets the cookies of a name that only they know."""

    def link(self, key: str) -> str:
        """What a person opens."""
        return f"http://{self.site}:{self.url.rpartition(':')[2]}/login?key={key}"

    def record(self) -> bytes:
        return pretty({**self._asdict(), "owner": list(self.owner)})


class IsUp(Exception):
    """Somebody else's dashboard of the same home was faster."""

    def __init__(self, served: Served) -> None:
        super().__init__(served.url)
        self.served = served


def bound(host: str, port: int | None) -> socket.socket:
    """A listening socket: on the port that was named, else on the first one that is free."""
    ports = [port] if port is not None else range(PORT, PORT + _TRIES)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for each in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, each))
            # Two can have bound the same port; only one of them can listen.
            listener.listen()
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise _no_place(host, each, error) from None
            continue
        return listener
    what = f"port {port} is" if port is not None else f"ports {PORT} to {PORT + _TRIES - 1} are"
    raise Busy(f"{what} taken", hint="leave --port out to take the next free one")


def _no_place(host: str, port: int, error: OSError) -> HoldfastError:
    """Why nobody can listen there, whatever the port."""
    if isinstance(error, socket.gaierror):
        return UsageError(f"not a host: {host[:80]!r}", hint="such as 127.0.0.1")
    if error.errno == errno.EADDRNOTAVAIL:
        hint = "`ip address` lists them; 0.0.0.0 means all of them"
        return UsageError(f"{host} is no address of this machine", hint=hint)
    if error.errno == errno.EACCES:
        return UsageError(f"you may not listen on port {port}", hint="take one from 1024 on")
    return from_os(error, f"listening on {host}")


def serve(
    home: Home,
    layout: str | None,
    table: Table,
    listener: socket.socket,
    *,
    read_only: bool,
    own_user: bool,
    ready: Callable[[Served, str], None],
) -> None:
    """Serve until somebody ends it; `ready` is told where, and the first link.

    With `own_user` that link lets in processes of this user only.

    IsUp if another one serves this home by now: one that is on no record could not be found.
    """
    host, port = listener.getsockname()[:2]
    shown, everywhere = shown_address(host), host in EVERYWHERE
    named = socket.gethostname().lower() if everywhere else shown
    here = everywhere or shown in LOOPBACK
    site = _own_name(home) if here else shown
    sites = tuple({site, named} - set(LOOPBACK))
    setting = Setting(home.path, layout, LOOPBACK, port, read_only, everywhere, sites)
    board = dashboard(setting, table)
    url = f"http://{'localhost' if here else shown}:{port}"
    served = Served(url, board.keys.token, this_process(), site)
    limit = Limit()
    config = uvicorn.Config(
        board.app,
        http=cast("Any", limit.connection),
        backlog=limit.most,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=2,
    )
    server = _Server(
        config,
        lambda: ready(served, served.link(board.keys.link(os.geteuid() if own_user else None))),
        board.end_streams,
    )
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).addFilter(Seldom())
    with _on_record(home, served), _told_to_end():
        server.run([listener])


def _own_name(home: Home) -> str:
    """A host name that stays with the home, so that bookmarks hold."""
    text = home.document(_PLACE).read()
    with suppress(DecodeError):
        found: Any = decode(text.data) if text is not None else None
        if isinstance(found, dict) and _NAME.fullmatch(str(cast("Record", found).get("site"))):
            return str(cast("Record", found)["site"])
    return f"hf-{secrets.token_hex(10)}.localhost"


@contextmanager
def _on_record(home: Home, served: Served) -> Generator[None]:
    record = home.document(_PLACE)

    def enter(old: bytes | None) -> bytes:
        other = _living(home, old)
        if other is not None:
            raise IsUp(other)
        return served.record()

    def leave(old: bytes | None) -> bytes:
        return pretty({"site": served.site}) if old is None or old == served.record() else old

    record.update(enter)
    try:
        yield
    finally:
        record.update(leave)


@contextmanager
def _told_to_end() -> Generator[None]:
    """For the time of a block a signal is uvicorn's alone: it ends the server, and not us."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(each, signal.signal(each, _heard)) for each in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _heard(number: int, frame: object) -> None:
    pass


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], ending: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready, self._ending = ready, ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def running(home: Home) -> Served | None:
    """The dashboard of a home, if one is up."""
    text = home.document(_PLACE).read()
    return _living(home, text.data if text is not None else None)


def _living(home: Home, data: bytes | None) -> Served | None:
    """What a record tells of, if that lives."""
    try:
        found: Any = decode(data) if data is not None else None
    except DecodeError:
        return None
    match found:
        case {
            "url": str(url),
            "token": str(token),
            "owner": [str(host), str(boot), int(pid), int(started)],
            "site": str(site),
        }:
            served = Served(url, token, Owner(host, boot, pid, started), site)
            return served if home.alive(served.owner) else None
        case _:
            return None


def new_link(served: Served, *, own_user: bool) -> str:
    """Ask a dashboard that is up for another link."""
    import json  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import ProxyHandler, Request, build_opener  # noqa: PLC0415

    headers = {"content-type": "application/json", "x-holdfast-token": served.token}
    request = Request(f"{served.url}{LINK}", encode({"own_user": own_user}), headers)
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=5) as answer:
            return served.link(json.loads(answer.read())["key"])
    except HTTPError as refused:
        with refused:
            error = json.loads(refused.read())["error"]
        raise Forbidden(error["message"], hint=error["hint"]) from None

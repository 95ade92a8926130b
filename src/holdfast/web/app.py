"""The dashboard as one ASGI application."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    RedirectResponse,
    StreamingResponse,
)
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from holdfast.clock import SystemClock
from holdfast.errors import HoldfastError
from holdfast.look.page import SHEET
from holdfast.ops.context import Context
from holdfast.ops.opening import Shared
from holdfast.ops.operation import Table
from holdfast.web import api, pages
from holdfast.web.calls import Calls
from holdfast.web.guard import LINK, Guard
from holdfast.web.keys import COOKIE_SECONDS, Keys
from holdfast.web.live import Live
from holdfast.web.peer import socket_of

HERE = Path(__file__).parent
_COMMENT = b": still here\n\n"
_QUIET = 15.0
"""Seconds after which a silent stream says something, so that a lost one is noticed."""


class Setting(NamedTuple):
    home: str
    layout: str | None
    hosts: tuple[str, ...]
    port: int
    read_only: bool = False
    everywhere: bool = False
    """Whether it listens on every address of this machine."""
    sites: tuple[str, ...] = ()
    """Further hosts, on which people log in; `hosts` are for scripts that show the token."""


class Dashboard(NamedTuple):
    app: ASGIApp
    keys: Keys
    end_streams: Callable[[], None]
    """Let go of the pages that listen: otherwise a server that is ending waits for them."""


def dashboard(setting: Setting, table: Table) -> Dashboard:
    clock = SystemClock()
    keys, shared = Keys(clock), Shared(setting.home, setting.layout, clock)

    def opened() -> Context:
        context = Context(setting.home, clock, setting.layout, shared)
        context.from_afar = True
        return context

    @asynccontextmanager
    async def watching(app: FastAPI) -> AsyncGenerator[None]:
        with opened() as context:
            app.state.live = live = Live(context.home(), context.layout)
            yield
            live.close()
        shared.close()

    app = FastAPI(
        title="Holdfast",
        summary="Every verb that `holdfast --help` lists and that needs no terminal",
        docs_url=None,
        redoc_url=None,
        openapi_url="/api",
        lifespan=watching,
    )
    calls = Calls()
    app.include_router(api.routes(table, opened, calls))
    app.include_router(pages.routes(table, opened, calls, read_only=setting.read_only))
    app.add_api_route("/static/job.css", _job_sheet, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    app.add_exception_handler(HoldfastError, _failed)
    app.add_exception_handler(RequestValidationError, api.refused)
    app.add_exception_handler(HTTPException, _odd)
    guard = Guard(
        app,
        keys,
        setting.hosts,
        setting.port,
        sites=setting.sites,
        read_only=setting.read_only,
        everywhere=setting.everywhere,
    )
    app.openapi = api.described(app, guard.cookie)
    _add_doors(app, keys, guard.cookie, read_only=setting.read_only)

    def end_streams() -> None:
        calls.close()
        app.state.live.close()

    return Dashboard(guard, keys, end_streams)


def _job_sheet() -> FileResponse:
    """The sheet that a job has wherever it is shown."""
    return FileResponse(SHEET, media_type="text/css")


def _add_doors(app: FastAPI, keys: Keys, cookie: str, *, read_only: bool) -> None:
    @app.get("/login", include_in_schema=False, response_model=None)
    def login(request: Request, key: str = "") -> HTMLResponse | RedirectResponse:
        client, server = request.scope.get("client"), request.scope.get("server")
        found = socket_of(tuple(client), tuple(server)) if client and server else None
        bought = keys.enter(key, found[1] if found is not None else None)
        if bought is None:
            hint = "Run `holdfast up` again: it prints a new one."
            text = "A link works once, within a minute."
            return HTMLResponse(pages.message("This link is used up", text, hint), 401)
        # No server is sent what comes after #; the page keeps it for its origin, port included.
        answer = RedirectResponse("/" if read_only else f"/#token={keys.token}", 303)
        answer.set_cookie(
            cookie, bought, max_age=int(COOKIE_SECONDS), httponly=True, samesite="strict"
        )
        return answer

    @app.post(LINK, include_in_schema=False)
    def link(own_user: Annotated[bool, Body(embed=True)] = False) -> JSONResponse:
        return JSONResponse({"key": keys.link(os.geteuid() if own_user else None)})

    @app.get("/events", include_in_schema=False)
    def events(request: Request, since: str = "") -> StreamingResponse:
        last = request.headers.get("last-event-id", since)
        return StreamingResponse(
            _stream(request.app.state.live, last), media_type="text/event-stream"
        )


async def _stream(live: Live, since: str) -> AsyncIterator[bytes]:
    import asyncio  # noqa: PLC0415

    yield f"retry: 1000\nid: {live.run}-{live.number}\nevent: hello\ndata: {{}}\n\n".encode()
    async with live.subscription(since) as news:
        coming = asyncio.ensure_future(anext(news))
        try:
            while True:
                done, _ = await asyncio.wait({coming}, timeout=_QUIET)
                if not done:
                    yield _COMMENT
                    continue
                told = coming.result()
                coming = asyncio.ensure_future(anext(news))
                if told is None:
                    yield f"id: {live.run}-{live.number}\nevent: stale\ndata: {{}}\n\n".encode()
                else:
                    yield f"id: {live.run}-{told.number}\ndata: ".encode() + told.data + b"\n\n"
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()


def _failed(request: Request, error: Exception) -> JSONResponse | HTMLResponse:
    if request.url.path.startswith("/api"):
        return api.failed(request, error)
    assert isinstance(error, HoldfastError)
    return HTMLResponse(
        pages.trouble(error, request.url.path), api.STATUS.get(error.exit_code, 409)
    )


def _odd(request: Request, error: Exception) -> JSONResponse | HTMLResponse:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith("/api"):
        code = "not_found" if error.status_code == 404 else "usage"
        told = {"code": code, "message": str(error.detail), "hint": "see /api"}
        body = {"error": told | {"retryable": False, "path": None}}
        return JSONResponse(body, error.status_code, headers=error.headers)
    return HTMLResponse(pages.message("Nothing here", "No such page."), error.status_code)

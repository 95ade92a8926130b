"""The connection to a server: it sends no more than an answer may have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2
from pydantic_ai.models import create_async_httpx2_client

from holdfast.models.running import MOST_OUTPUT

_MOST_TIMES_PACKED = 1032
"""What gzip can make of a byte."""


class Flood(Exception):
    """The server sent more than it may."""


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream, self._left = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._stream:
            self._left -= len(data)
            if self._left < 0:
                raise Flood
            yield data

    async def aclose(self) -> None:
        await self._stream.aclose()


def bounded_client() -> httpx2.AsyncClient:
    """For the libraries of the providers."""
    client = create_async_httpx2_client()
    # What is packed is unpacked before we can count it; so it is not asked for.
    client.headers["Accept-Encoding"] = "identity"
    # A hook and no transport: with one, proxies of the environment would not be used.
    client.event_hooks = {**client.event_hooks, "response": [_bound]}
    return client


async def _bound(response: httpx2.Response) -> None:
    match response.headers.get("Content-Encoding", "identity").lower():
        case "identity":
            most = MOST_OUTPUT
        case "gzip" | "deflate":
            most = MOST_OUTPUT // _MOST_TIMES_PACKED
        case _:
            most = 0
    response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), most)

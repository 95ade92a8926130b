"""A call that takes its time, told in lines while it goes on: its text, and then its envelope."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Thread
from typing import Any

from holdfast.codec import encode
from holdfast.errors import HoldfastError
from holdfast.ops.envelope import error_envelope

LINES = "application/x-ndjson"
Work = Callable[[Callable[[str], None]], dict[str, Any]]
"""Does something, tells text on the way, gives the envelope."""


async def as_it_comes(work: Work) -> AsyncIterator[bytes]:
    """Lines of JSON: `{"text": …}` for each piece, at last the envelope, or that of the error.

    Whoever goes away meanwhile stops nothing: what was begun is put on record to its end.
    """
    loop, told = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

    def tell(line: dict[str, Any] | None) -> None:
        loop.call_soon_threadsafe(told.put_nowait, None if line is None else encode(line) + b"\n")

    def run() -> None:
        try:
            tell(work(lambda text: tell({"text": text})))
        except HoldfastError as error:
            tell(error_envelope(error))
        finally:
            tell(None)

    # Not one of the server's own: those it waits for when it is told to end, and a model may
    # take minutes.  A session that ends so is found and closed as one of a process that died.
    Thread(target=run, name="call", daemon=True).start()
    while (line := await told.get()) is not None:
        yield line

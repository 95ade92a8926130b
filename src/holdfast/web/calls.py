"""Calls of verbs that change something, each in a thread of its own.

The server would wait for its own threads when it is told to end, and a model may take minutes.  It
does not wait for these: a call that is cut off so is one whose process died, and is found as that.
Whoever goes away while a call goes on stops nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Thread
from typing import Any

from holdfast.codec import encode
from holdfast.errors import Busy, HoldfastError
from holdfast.ops.envelope import error_envelope

LINES = "application/x-ndjson"
Tell = Callable[[str], None]
Work = Callable[[Tell | None], dict[str, Any]]
"""Does something, tells text on the way if anybody listens, gives the envelope."""
_Item = str | dict[str, Any] | Exception
_GRACE = 1.5
"""Seconds for what is nearly done, less than the server gives its connections."""


class Calls:
    """Those under way; used by the thread of the server's loop."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[_Item]] = set()

    async def answer(self, work: Work) -> dict[str, Any]:
        """The envelope."""
        queue = self._begun(work, listening=False)
        try:
            return _envelope(await queue.get())
        finally:
            self._queues.discard(queue)

    async def lines(self, work: Work) -> AsyncIterator[bytes]:
        """Lines of JSON: `{"text": …}` for each piece, at last the envelope, or the error's."""
        queue = self._begun(work, listening=True)
        try:
            while isinstance(item := await queue.get(), str):
                yield encode({"text": item}) + b"\n"
            try:
                last = _envelope(item)
            except HoldfastError as error:
                last = error_envelope(error)
            yield encode(last) + b"\n"
        finally:
            self._queues.discard(queue)

    def _begun(self, work: Work, *, listening: bool) -> asyncio.Queue[_Item]:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[_Item]()
        self._queues.add(queue)

        def tell(item: _Item) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, item)

        def run() -> None:
            try:
                tell(work(tell if listening else None))
            except Exception as error:
                tell(error)
            except BaseException as error:
                # Meant for this thread: raised in the server's it would end that.
                tell(RuntimeError(type(error).__name__))

        Thread(target=run, name="call", daemon=True).start()
        return queue

    def close(self) -> None:
        """Let go of whoever waits: otherwise a server that is ending waits for them."""
        ending = Busy(
            "the dashboard ends before this is done", hint="look what is on record, and try again"
        )
        loop = asyncio.get_running_loop()
        for queue in self._queues:
            loop.call_later(_GRACE, queue.put_nowait, ending)


def _envelope(item: _Item) -> dict[str, Any]:
    if isinstance(item, Exception):
        raise item
    assert isinstance(item, dict)
    return item

"""Calls of verbs, each in a thread of its own.

The server would wait for its own threads when it is told to end, and a model may take minutes.  It
does not wait for these: a call that is cut off so is one whose process died, and is found as that.
Whoever goes away while a call goes on stops nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial, update_wrapper
from threading import Thread
from typing import Any

from fastapi import APIRouter

from holdfast.codec import encode
from holdfast.errors import Busy, HoldfastError, Indeterminate
from holdfast.ops.envelope import error_envelope

LINES = "application/x-ndjson"
Tell = Callable[[str], None]
Work = Callable[[Tell | None], dict[str, Any]]
"""Does something, tells text on the way if anybody listens, gives the envelope."""
_GRACE = 1.5
"""Seconds for what is nearly done, less than the server gives its connections."""
_MOST_LOOKS = 40
"""At the same time; whoever only looks can ask again, and so can many."""


def _undecided() -> HoldfastError:
    return Indeterminate(
        "the dashboard ends before this is done, and it may be done yet",
        hint="look what is on record before you do it again",
    )


def _ending() -> HoldfastError:
    return Busy("the dashboard ends", hint="`holdfast up` starts it again")


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


class Calls:
    """Those under way; used by the thread of the server's loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Queue[Any], Callable[[], HoldfastError]] = {}
        """Where the answer of each is awaited, and what is said if it does not come in time."""
        self._looks = asyncio.Semaphore(_MOST_LOOKS)
        self._is_ending = False

    async def answer(self, work: Work) -> dict[str, Any]:
        """The envelope of a change."""
        return await self._result(partial(work, None), _undecided)

    async def looked(self, look: Callable[[], Any]) -> Any:
        """What a function gives that changes nothing."""
        async with self._looks:
            return await self._result(look, _ending)

    async def _result(self, act: Callable[[], Any], otherwise: Callable[[], HoldfastError]) -> Any:
        queue = self._begun(lambda tell: act(), otherwise)
        try:
            return _given(await queue.get())
        finally:
            self._waiting.pop(queue)

    async def lines(self, work: Work) -> AsyncIterator[bytes]:
        """Lines of JSON: `{"text": …}` for each piece, at last the envelope, or the error's."""
        queue = self._begun(work, _undecided)
        try:
            while isinstance(item := await queue.get(), str):
                yield encode({"text": item}) + b"\n"
            try:
                last = _given(item)
            except HoldfastError as error:
                last = error_envelope(error)
            yield encode(last) + b"\n"
        finally:
            self._waiting.pop(queue)

    def _begun(
        self, act: Callable[[Tell], Any], otherwise: Callable[[], HoldfastError]
    ) -> asyncio.Queue[Any]:
        if self._is_ending:
            raise _ending()
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()
        self._waiting[queue] = otherwise

        def tell(item: object) -> None:
            with suppress(RuntimeError):  # the server has ended, and nobody waits any more
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def run() -> None:
            try:
                tell(act(tell))
            except Exception as error:
                tell(_Failed(error))
            except BaseException as error:
                # Meant for this thread: raised in the server's it would end that.
                tell(_Failed(RuntimeError(type(error).__name__)))

        Thread(target=run, name="call", daemon=True).start()
        return queue

    def close(self) -> None:
        """Let go of whoever waits: otherwise a server that is ending waits for them."""
        self._is_ending = True
        loop = asyncio.get_running_loop()
        for queue, otherwise in self._waiting.items():
            loop.call_later(_GRACE, queue.put_nowait, _Failed(otherwise()))


def _given(item: Any) -> Any:
    if isinstance(item, _Failed):
        raise item.error
    return item


class LookingRouter(APIRouter):
    """Routes of functions that look at files, which can take long: the server awaits none."""

    def __init__(self, calls: Calls, **given: Any) -> None:
        super().__init__(**given)
        self._calls = calls

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        if not inspect.iscoroutinefunction(endpoint):
            endpoint = _in_a_thread(endpoint, self._calls)
        super().add_api_route(path, endpoint, **given)


def _in_a_thread(look: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    async def looking(*words: Any, **named: Any) -> Any:
        return await calls.looked(partial(look, *words, **named))

    update_wrapper(looking, look)
    # FastAPI reads off it what a route takes, and would look its names up in this module.
    looking.__signature__ = inspect.signature(look, eval_str=True)
    return looking

"""The one event loop of the process, in a thread of its own, for libraries that are asynchronous.

Whoever asks waits in its own thread and gets the pieces of the reply there, so a slow reader holds
up no other; it waits no longer than its timeout, whatever happens in the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

from holdfast.clock import SystemClock
from holdfast.models.protocol import OnText

T = TypeVar("T")
_LONGEST = 86_400.0
_lock = Lock()
_running: asyncio.AbstractEventLoop | None = None


class Late(Exception):
    """It was not done in time."""


def wait_for(
    make: Callable[[OnText], Coroutine[Any, Any, T]], timeout: float, on_text: OnText | None = None
) -> T:
    """What the coroutine returns; `Late` after so many seconds, and it is cancelled.

    `make` gets a function that takes pieces of text; they come out at `on_text`, in this thread.
    """
    clock = SystemClock()
    deadline = clock.boottime() + min(timeout, _LONGEST)
    pieces: SimpleQueue[str | None] = SimpleQueue()
    future = asyncio.run_coroutine_threadsafe(make(pieces.put), _loop())
    future.add_done_callback(lambda _: pieces.put(None))
    try:
        while (left := deadline - clock.boottime()) > 0:
            piece = pieces.get(timeout=left)
            if piece is None:
                return future.result()
            if on_text is not None:
                on_text(piece)
    except Empty:
        pass
    finally:
        future.cancel()
    raise Late


def _loop() -> asyncio.AbstractEventLoop:
    global _running
    with _lock:
        if _running is None:
            _running = asyncio.new_event_loop()
            Thread(target=_running.run_forever, name="holdfast-models", daemon=True).start()
        return _running


def _forget() -> None:
    global _running, _lock
    _running, _lock = None, Lock()


# The child of a fork has the loop but not its thread.
os.register_at_fork(after_in_child=_forget)

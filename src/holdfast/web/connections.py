"""Connections that have shown no key: few at a time, and none for long.

Everybody on the machine can connect. So these count in their order, and the oldest goes where there
are too many: one that shows a key does so at once. A connection that has shown one is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import MutableMapping
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.clock import SystemClock

HAS_KEY = "has_key"
"""Under this name the state of a request has what to call when it has shown a key."""
SECONDS = 5.0
_FEWEST, _MOST = 8, 64
_QUIET = 60.0


class Limit:
    """What the connections of one server share."""

    def __init__(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = min(max(files // 4, _FEWEST), _MOST)
        """How many may be open without a key, and how many are accepted at once."""
        self.without_key: dict[Connection, asyncio.TimerHandle] = {}

    def connection(self, **given: Any) -> Connection:
        return Connection(self, **given)


class Connection(H11Protocol):
    def __init__(self, limit: Limit, *, app_state: MutableMapping[str, Any], **given: Any) -> None:
        self._limit = limit
        super().__init__(app_state={**app_state, HAS_KEY: self.leave_alone}, **given)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        waiting = self._limit.without_key
        waiting[self] = self.loop.call_later(SECONDS, self._end)
        if len(waiting) > self._limit.most:
            next(iter(waiting))._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave_alone()
        super().connection_lost(exc)

    def leave_alone(self) -> None:
        timer = self._limit.without_key.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _end(self) -> None:
        self.leave_alone()
        self.transport.abort()


class Seldom(logging.Filter):
    """The same words once a minute: what strangers do must not fill a disk."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        words, now = f"{record.msg} {error}"[:500], self._clock.boottime()
        if now - self._said.get(words, float("-inf")) < _QUIET:
            return False
        if len(self._said) > 100:
            self._said.clear()
        self._said[words] = now
        return True

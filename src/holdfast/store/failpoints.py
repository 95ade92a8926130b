"""Named places in the protocol where a test can stop, fail or kill the process.

Each durability step calls `hit("log.append.written")`.  Nothing happens unless a test armed
that name, in the process with `armed` or from outside with

    HOLDFAST_FAILPOINTS="log.append.written=kill,segment.linked=stop@3"

where `kill` is SIGKILL, `stop` is SIGSTOP and `@3` means the third hit only.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

_actions: dict[str, Callable[[], None]] = {}


def hit(name: str) -> None:
    if _actions and name in _actions:
        _actions[name]()


@contextmanager
def armed(name: str, action: Callable[[], None]) -> Generator[None]:
    """Run `action` each time `name` is hit, as long as the block lasts."""
    _actions[name] = action
    try:
        yield
    finally:
        del _actions[name]


def arm_from(text: str) -> None:
    """Arm what HOLDFAST_FAILPOINTS asks for."""
    for item in filter(None, text.split(",")):
        name, _, how = item.partition("=")
        kind, _, count = how.partition("@")
        _actions[name] = _signal_on(int(count or 0), signal.Signals[f"SIG{kind.upper()}"])


def _signal_on(ordinal: int, what: signal.Signals) -> Callable[[], None]:
    hits = 0

    def act() -> None:
        nonlocal hits
        hits += 1
        if ordinal in (0, hits):
            os.kill(os.getpid(), what)

    return act


arm_from(os.environ.get("HOLDFAST_FAILPOINTS", ""))

"""A model that gives the answers of a recorded conversation again, and no others.

Answers are found by what was asked (`Request.key`), so the order does not matter; the same question
asked twice gets its answers in the order in which they were given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from holdfast.errors import ModelError
from holdfast.mask.shown import beginning
from holdfast.models.output import checked
from holdfast.models.protocol import OnText, Reply, Request


class NotRecorded(ModelError):
    code = "not_recorded"


class Replay:
    def __init__(self, recorded: Iterable[tuple[str, Reply]], *, ref: str = "replay:list") -> None:
        """Of pairs of `Request.key` and the reply to it."""
        self.ref = ref
        self._replies: dict[str, deque[Reply]] = {}
        for key, reply in recorded:
            self._replies.setdefault(key, deque()).append(reply)

    def ask(self, request: Request, on_text: OnText | None = None) -> Reply:
        waiting = self._replies.get(request.key)
        if not waiting:
            asked = request.messages[-1].text if request.messages else ""
            raise NotRecorded(
                f"{self.ref} has no {'other ' if waiting is not None else ''}answer to "
                f"{beginning(' '.join(asked.split()), 80)!r}",
                hint="the question differs from every recorded one, or was asked less often",
            )
        reply = waiting.popleft()
        if on_text is not None:
            on_text(reply.text)
        return checked(request, reply)

    def most_usd(self, request: Request) -> float | None:
        return 0.0

    def close(self) -> None:
        """There is nothing to let go of."""

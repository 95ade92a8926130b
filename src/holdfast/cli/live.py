"""Lines at the foot of a terminal that say how things are, until they are left.

It is drawn from a thread of its own, as the one that works waits for somebody else.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator
from typing import Self, TextIO

from holdfast.cli.render import clip
from holdfast.cli.safe import safe

_PAUSE = 0.5
_ERASE, _UP = "\r\x1b[K", "\x1b[1A\x1b[K"


class LiveLine:
    def __init__(
        self, stream: TextIO, says: Callable[[], str], paint: Callable[[str], str]
    ) -> None:
        self._stream, self._says, self._paint = stream, says, paint
        self._ended, self._turn = threading.Event(), threading.Lock()
        self._drawn: int = 0  # lines of ours at the foot
        self._text: str = ""
        self._thread = threading.Thread(target=self._keep_drawing, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        with self._turn:
            self._erase()

    @contextlib.contextmanager
    def aside(self) -> Generator[None]:
        """Make room for lines that stay."""
        with self._turn:
            self._erase()
            yield
            self._draw()

    def _keep_drawing(self) -> None:
        while not self._ended.wait(_PAUSE):
            with self._turn:
                self._draw()

    def _draw(self) -> None:
        text = "" if self._ended.is_set() or not self._is_ours() else self._says()
        if self._drawn and text == self._text:
            return
        self._erase()
        self._text = text
        if text:
            most = self._columns() - 1
            lines = [clip(line, most) for line in safe(text, lines=True).split("\n")]
            self._write(self._paint("\n".join(lines)))
            self._drawn = len(lines)

    def _erase(self) -> None:
        if self._drawn:
            self._write(_ERASE + _UP * (self._drawn - 1))
            self._drawn = 0

    def _write(self, text: str) -> None:
        # A terminal that is gone is no reason to end the work.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _is_ours(self) -> bool:
        """Whether somebody else has the terminal, as after Ctrl-Z and `bg`, and types there."""
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return True  # not the terminal that controls us: nobody types there

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

"""What a command printed: its beginning and end are kept, what lies between is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from holdfast.mask.shown import end

Stream = Literal["out", "err"]
LONGEST_LINE = 64 << 10
_TAIL = 16 << 10
_EDGE = 16 << 10
"""Bytes at a cut that may hold what is left of a secret."""
_ENDS = b"\n\r"


class Keep(NamedTuple):
    """How many bytes of each pipe are kept."""

    head: int = 80 << 10
    tail: int = 80 << 10


class Captured(NamedTuple):
    head: bytes
    tail: bytes
    dropped: int
    """Bytes between head and tail."""

    @property
    def total(self) -> int:
        return len(self.head) + self.dropped + len(self.tail)

    @property
    def text(self) -> str:
        """For people: with a note where something was left out."""
        if not self.dropped:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self.head, self.tail))
        return f"{head}\n[{self.dropped} bytes left out]\n{tail}"

    def cleaned(self, clean: Callable[[str], str]) -> str:
        """The same without secrets, as `clean` takes them out, nor what a cut has left of one."""
        if not self.dropped:
            return clean(self.text)
        head, tail = (part.decode("utf-8", "replace") for part in (self.head, self.tail))
        ends = len(self.head[-_EDGE:].decode("utf-8", "replace"))
        begins = len(self.tail[:_EDGE].decode("utf-8", "replace"))
        left_out = self.dropped + len(self.head[-_EDGE:]) + len(self.tail[:_EDGE])
        head = clean(head)[:-ends] if ends else ""
        return f"{head}\n[{left_out} bytes left out]\n{clean(tail)[begins:]}"


class Window:
    """Takes bytes as they come and keeps both ends of them."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._keep.head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= self._keep.tail:
            self._tail[:] = data[len(data) - self._keep.tail :]
        else:
            self._tail += data
            # Cut rarely: each cut moves all that stays.
            if len(self._tail) > 2 * self._keep.tail:
                del self._tail[: len(self._tail) - self._keep.tail]

    def captured(self) -> Captured:
        head = bytes(self._head)
        tail = bytes(self._tail[max(0, len(self._tail) - self._keep.tail) :])
        return Captured(head, tail, self._total - len(head) - len(tail))


class Output:
    """Both pipes of a command, cut off at `limit` bytes."""

    def __init__(self, keep: Keep, limit: int | None) -> None:
        self._limit = limit
        self.total = 0
        """All that came, also what was over the limit."""
        self._windows: dict[Stream, Window] = {"out": Window(keep), "err": Window(keep)}
        self._lines: dict[Stream, LastLine] = {"out": LastLine(), "err": LastLine()}
        self._latest: Stream = "out"
        self._both = Window(Keep(0, _TAIL))

    @property
    def over(self) -> bool:
        return self._limit is not None and self.total > self._limit

    def add(self, stream: Stream, data: bytes) -> bytes:
        """Take in what came; what of it is within the limit."""
        before, self.total = self.total, self.total + len(data)
        if self._limit is not None:
            data = data[: max(0, self._limit - before)]
        if data:
            self._windows[stream].add(data)
            self._lines[stream].add(data)
            self._both.add(data)
            if not data.isspace():
                self._latest = stream
        return data

    def captured(self, stream: Stream) -> Captured:
        return self._windows[stream].captured()

    @property
    def last_line(self) -> str:
        return self._lines[self._latest].text()

    @property
    def tail(self) -> str:
        return self._both.captured().tail.decode("utf-8", "replace")


class LastLine:
    """The last line that is not blank; a line that is too long loses its beginning."""

    def __init__(self) -> None:
        self._recent = b""

    def add(self, data: bytes) -> None:
        text = data.rstrip()
        blank = data[len(text) :]
        if text:
            self._recent = (self._recent + text)[-LONGEST_LINE:]
        if any(end in blank for end in _ENDS):
            self._recent = self._recent.rstrip() + b"\n"
        else:
            self._recent = (self._recent + blank)[-LONGEST_LINE:]

    def text(self) -> str:
        lines = self._recent.rstrip().splitlines()
        last = lines[-1].strip().decode("utf-8", "replace") if lines else ""
        is_cut = len(lines) == 1 and len(self._recent) == LONGEST_LINE
        return f"…{end(last, len(last) // 2)}" if is_cut else last

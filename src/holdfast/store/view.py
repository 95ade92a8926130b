"""A view: documents shown of one state, folded from a log; they can be thrown away and made again.

A view is always current when it is read through here.  Its files are for `cat`: replaced
without fsync, at most twenty times a second, and always when the view is closed.  Beside each
a hidden sidecar keeps the folded state and the line it has seen, so that reading goes on
from there; if the sidecar is lost or damaged, the log is folded again from the start.

A state that is handed out goes on with the lines that follow: look at it, do not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.codec import pretty
from holdfast.store.cell import fingerprint
from holdfast.store.primitives import CONTROL, FAILED, START, Cell, Cursor, Line, Log, Stamp

if TYPE_CHECKING:
    from holdfast.clock import Clock

State = TypeVar("State")
Render = Callable[[State], bytes]
_PAUSE, _SHARE = 0.05, 20
"""Seconds between two writings of the files, which may take one part in so many of the time."""
_WORTH_COMPARING = 10_000
"""How many states are compared with a file of unknown origin before it counts as edited."""
_FEW = 100
"""So many lines are rather read again than a file written that shows nothing new."""
_DOUBTFUL = 0
"""The version of a stamp that is for `cat` and `check` only; those of shapes begin at 1."""


class Shape(Generic[State]):
    """What a view is made of: pure functions over a state of plain JSON values."""

    def __init__(
        self,
        *,
        version: int,
        initial: Callable[[], State],
        fold: Callable[[State, Line], State],
        render: Render[State] = pretty,
    ) -> None:
        self.version = version
        """Raised when fold changes, so that old states are folded anew."""
        self.initial, self.fold, self.render = initial, fold, render


class _File(Generic[State]):
    """One file that shows the state, and what is known of it."""

    __slots__ = ("cell", "compared", "data", "met", "ours", "over", "render", "shows", "stranger")

    def __init__(self, cell: Cell, render: Render[State]) -> None:
        self.cell, self.render = cell, render
        self.met = False
        self.shows: Cursor | None = None
        """The newest line that it shows."""
        self.data: bytes | None = None
        """What was written into it here."""
        self.over: Cursor | None = None
        """What its stamp has seen and the log does not have."""
        self.stranger: str | None = None
        self.ours: str | None = None
        self.compared = 0

    def recognise(self, state: State) -> None:
        """Whether a file that no stamp accounts for shows just this state: then it is ours."""
        if self.stranger is not None and self.compared < _WORTH_COMPARING:
            self.compared += 1
            if fingerprint(self.render(state)) == self.stranger:
                self.ours, self.stranger = self.stranger, None


class View(Generic[State]):
    """Used by one thread at a time; the state is read by the stamp of the first file."""

    def __init__(
        self,
        log: Log,
        shape: Shape[State],
        clock: Clock,
        files: Sequence[tuple[Cell, Render[State]]],
    ) -> None:
        self._log, self._shape, self._clock = log, shape, clock
        self._files = [_File(cell, render) for cell, render in files]
        self._begin()
        self._owed = False
        self._doubtful = False
        self._next_save = float("-inf")
        self._cut: Cursor | None = None
        self.kept_aside: list[str] = []
        """Names under which hand-edited files were kept."""

    def _begin(self) -> None:
        self._state, self._cursor = self._shape.initial(), START
        self._unsealed: list[Line] = []
        self._ahead: list[Line] = []
        self._loaded = self._current = False

    # -- reading -----------------------------------------------------------------------

    def read(self) -> State:
        """The state after every line of the log."""
        self._catch_up()
        return self._seen()

    def known(self) -> State:
        """The state after every line that was read or written here; no file is opened."""
        return self._seen() if self._current else self.read()

    def known_at(self, head: Cursor) -> State:
        """The state that a decision meets; read again if others wrote, or if it runs again."""
        if self._ahead:
            self._begin()
        if head != self._cursor or not self._current or self._unsealed:
            self._catch_up()
        return self._seen()

    def _seen(self) -> State:
        if not self._unsealed:
            return self._state
        # Foreign lines at the end count for the reader; they are stamped once they are sealed.
        state = deepcopy(self._state)
        for line in self._unsealed:
            state = self._shape.fold(state, line)
        return state

    # -- our own lines -----------------------------------------------------------------

    def ahead(self, lines: Sequence[Line]) -> State:
        """The state after lines that will be written; the one before is gone.

        Given again with more lines behind them, they are not folded twice.
        """
        for line in lines[len(self._ahead) :]:
            self._state, self._unsealed = self._shape.fold(self._seen(), line), []
            self._ahead.append(line)
        return self._seen()

    def took(self, head: Cursor, lines: Sequence[Line]) -> None:
        """Go on with lines that were written when `head` was the newest one.

        What does not follow it just so, or was folded ahead in other words, is read.
        """
        ahead, self._ahead = self._ahead, []
        done = len(ahead)
        if [line.record for line in ahead] != [line.record for line in lines[:done]]:
            self._begin()
        elif lines and (head != self._cursor or lines[-1].seq != head.seq + len(lines)):
            self._current = False
            if ahead:
                self._begin()
        else:
            for line in lines[done:]:
                self._state = self._shape.fold(self._state, line)
            self._cursor = lines[-1].cursor if lines else self._cursor

    def lost_sight(self) -> None:
        """A write failed: what is in the log has to be read."""
        self._current = False
        if self._ahead:
            self._begin()

    # -- the files ---------------------------------------------------------------------

    def add(self, cell: Cell, render: Render[State]) -> None:
        """Show the state in one more file."""
        self._files.append(_File(cell, render))

    def refresh(self, acked: Cursor = START, *, read: bool = True) -> None:
        """Bring the files up to date, now or soon, if they show something else.

        `acked` is the newest line that this process knows is durable; without `read`, what was
        written here is taken for all there is.
        """
        if read or not self._current:
            self._catch_up()
        if self._clock.boottime() < self._next_save:
            self._owed = True
        else:
            self._save(acked, lazily=True)

    def flush(self, acked: Cursor = START) -> None:
        """Write what `refresh` put off; `acked` as there."""
        if self._owed:
            self._save(acked)

    def close(self, acked: Cursor = START) -> None:
        """Write what `refresh` put off, and let go."""
        try:
            self.flush(acked)
        finally:
            for file in self._files:
                file.cell.close()

    def rebuild(self) -> None:
        """Fold the whole log again and write the result."""
        for file in self._files:
            stamp = self._meet(file)
            file.over, file.shows = (stamp.cursor if stamp else START), None
        self._begin()
        self._loaded = True
        self._catch_up()
        self._save(START)

    def _save(self, acked: Cursor, *, lazily: bool = False) -> None:
        began, self._owed, waits = self._clock.boottime(), True, False
        for file in self._files:
            if not file.met:
                self._meet(file)
        if self._cut is not None:
            self._log.tell_of_cut(self._cut)
            self._cut = None
            self._catch_up()
        stale = [file for file in self._files if file.shows != self._cursor]
        if stale and self._cursor.seq > acked.seq:
            # Visible is not durable: never stamp a line that a power cut could take away.
            self._log.settle()
        self._recognise(stale)
        # What was read from a failed segment may be gone when the cache is: until the next
        # boot nobody goes on from such a state.
        version = _DOUBTFUL if self._doubtful else self._shape.version
        stamp = Stamp(self._log.key, self._cursor, self._state)
        pause = 0.0
        for file in stale:
            data = file.render(self._state)
            if lazily and data == file.data and self._cursor.seq < (file.shows or START).seq + _FEW:
                waits = True
                continue
            aside = file.cell.save(version, stamp, data, over=file.over, ours=file.ours)
            if aside is not None:
                self.kept_aside.append(aside)
            file.shows, file.data, file.over = self._cursor, data, None
            pause = _PAUSE
        self._owed, ended = waits, self._clock.boottime()
        self._next_save = ended + max(pause, _SHARE * (ended - began))

    def _recognise(self, files: Sequence[_File[State]]) -> None:
        """A crash can leave an old file beside a newer stamp: look for it from the start."""
        for file in files:
            file.recognise(self._state)
        unknown = [file for file in files if file.stranger is not None]
        if unknown:
            first = (self._shape.initial(), START)
            for state, _ in chain([first], self._folded(self._shape.initial(), START, [])):
                for file in unknown:
                    file.recognise(state)

    # -- reading the log ---------------------------------------------------------------

    def _catch_up(self) -> None:
        if self._ahead:
            self._begin()
        if not self._loaded:
            self._loaded = True
            stamp = self._meet(self._files[0]) if self._files else None
            if stamp is not None and self._files[0].over is None:
                self._state, self._cursor = stamp.state, stamp.cursor
        self._unsealed = []
        for state, cursor in self._folded(self._state, self._cursor, self._unsealed):
            self._state, self._cursor = state, cursor
        self._current = True

    def _folded(
        self, state: State, after: Cursor, unsealed: list[Line]
    ) -> Iterator[tuple[State, Cursor]]:
        """The state after each sealed line; what is behind the last is left in `unsealed`."""
        for line in self._log.read(after):
            if not isinstance(line, Line):
                continue
            if CONTROL not in line.record:
                unsealed.append(line)
            elif (line.record[CONTROL], line.record.get("boot")) == (FAILED, self._clock.boot()):
                self._doubtful = True
            if line.seq is None:
                continue
            for each in unsealed:
                state = self._shape.fold(state, each)
            unsealed.clear()
            yield state, line.cursor

    def _meet(self, file: _File[State]) -> Stamp | None:
        """See what a file shows and what its stamp has seen."""
        file.met, stamp = True, file.cell.load(self._shape.version)
        if stamp is None or not stamp.shown:
            file.stranger = file.cell.stranger()
        if stamp is not None and self._log.contains(stamp.cursor):
            file.shows = stamp.cursor if stamp.shown else None
        elif stamp is not None:
            # The log once reached further than it does now; whoever writes the view next
            # puts that on record before the stamp that proves it is replaced.
            file.over = stamp.cursor
            self._cut = max(self._cut or START, stamp.cursor)
        return stamp

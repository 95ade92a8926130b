"""A view: a document folded from a log, which can be thrown away and made again.

A view is always current when it is read through here.  Its file is for `cat`: replaced
without fsync, at most twenty times a second, and always when the view is closed.  Beside it
a hidden sidecar keeps the folded state and the line it has seen, so that reading goes on
from there; if the sidecar is lost or damaged, the log is folded again from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Generic, TypeVar

from holdfast.store.cell import fingerprint
from holdfast.store.primitives import CONTROL, FAILED, START, Cell, Cursor, Line, Log, Stamp

if TYPE_CHECKING:
    from holdfast.clock import Clock

State = TypeVar("State")
_PAUSE = 0.05
_WORTH_COMPARING = 10_000
"""How many states are compared with a file of unknown origin before it counts as edited."""
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
        render: Callable[[State], bytes],
    ) -> None:
        self.version = version
        """Raised when fold changes, so that old states are folded anew."""
        self.initial, self.fold, self.render = initial, fold, render


class View(Generic[State]):
    """Used by one thread at a time."""

    def __init__(self, log: Log, cell: Cell, shape: Shape[State], clock: Clock) -> None:
        self._log, self._cell, self._shape, self._clock = log, cell, shape, clock
        self._state = shape.initial()
        self._cursor = START
        self._unsealed: list[Line] = []
        self._loaded = False
        self._fresh = False
        self._owed = False
        self._doubtful = False
        self._stranger: str | None = None
        self._ours: str | None = None
        self._compared = 0
        self._saved_at = float("-inf")
        self._cut: Cursor | None = None
        self._over: Cursor | None = None
        self.kept_aside: list[str] = []
        """Names under which hand-edited files were kept."""

    def read(self) -> State:
        """The state after every line of the log; look at it, do not change it."""
        self._catch_up()
        if not self._unsealed:
            return self._state
        # Foreign lines at the end count for the reader; they are stamped once they are sealed.
        state = deepcopy(self._state)
        for line in self._unsealed:
            state = self._shape.fold(state, line)
        return state

    def refresh(self, acked: Cursor = START, state: State | None = None) -> None:
        """Bring the file up to date; `acked` is the newest line this process knows is durable.

        Who has folded the lines up to that one itself, as it wrote them, gives the `state` away.
        """
        if state is not None and self._loaded and self._stranger is None:
            self._state, self._cursor, self._fresh = state, acked, False
        self._catch_up()
        if self._fresh:
            return
        if self._clock.boottime() - self._saved_at < _PAUSE:
            self._owed = True
            return
        self._save(acked)

    def close(self) -> None:
        """Write what `refresh` put off, and let go."""
        if self._owed:
            self._save(START)
        self._cell.close()

    def rebuild(self) -> None:
        """Fold the whole log again and write the result."""
        self._load()
        self._begin_again(self._cursor if self._cut is None else self._cut)
        self._catch_up()
        self._save(START)

    def _save(self, acked: Cursor) -> None:
        self._owed = False
        if self._cut is not None:
            self._log.tell_of_cut(self._cut)
            self._cut = None
            self._catch_up()
        if self._cursor.seq > acked.seq:
            # Visible is not durable: never stamp a line that a power cut could take away.
            self._log.settle()
        self._recognise_past()
        data = self._shape.render(self._state)
        stamp = Stamp(self._log.key, self._cursor, self._state)
        # What was read from a failed segment may be gone when the cache is: until the next
        # boot nobody goes on from such a state.
        version = _DOUBTFUL if self._doubtful else self._shape.version
        aside = self._cell.save(version, stamp, data, over=self._over, ours=self._ours)
        if aside is not None:
            self.kept_aside.append(aside)
        self._fresh, self._saved_at, self._over = True, self._clock.boottime(), None

    def _catch_up(self) -> None:
        if not self._loaded:
            self._load()
        self._unsealed = []
        for state, cursor in self._folded(self._state, self._cursor, self._unsealed):
            self._state, self._cursor, self._fresh = state, cursor, False
            self._recognise(state)

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
            if line.seq is None or line.hash is None:
                continue
            for each in unsealed:
                state = self._shape.fold(state, each)
            unsealed.clear()
            yield state, Cursor(line.seq, line.hash, line.segment, line.end)

    def _load(self) -> None:
        self._loaded = True
        stamp = self._cell.load(self._shape.version)
        if stamp is None or not stamp.shown:
            self._stranger = self._cell.stranger()
        self._adopt(stamp)
        self._recognise(self._state)

    def _recognise(self, state: State) -> None:
        """Whether a file that no stamp accounts for shows just this state: then it is ours."""
        if self._stranger is not None and self._compared < _WORTH_COMPARING:
            self._compared += 1
            if fingerprint(self._shape.render(state)) == self._stranger:
                self._ours, self._stranger = self._stranger, None

    def _recognise_past(self) -> None:
        """A crash can leave an old file beside a newer stamp: look for it from the start."""
        if self._stranger is None:
            return
        self._recognise(self._shape.initial())
        for state, _ in self._folded(self._shape.initial(), START, []):
            self._recognise(state)

    def _adopt(self, stamp: Stamp | None) -> None:
        if stamp is None:
            return
        if self._log.contains(stamp.cursor):
            self._state, self._cursor, self._fresh = stamp.state, stamp.cursor, stamp.shown
        else:
            # The log once reached further than it does now; whoever writes the view next
            # puts that on record before the stamp that proves it is replaced.
            self._cut = stamp.cursor
            self._begin_again(stamp.cursor)

    def _begin_again(self, over: Cursor) -> None:
        self._state, self._cursor, self._unsealed = self._shape.initial(), START, []
        self._fresh, self._over = False, over

"""A log with the state that its lines make: read once, decided on, shown in documents.

Every decision is one write under the lock of the log, made from the state after every line
before it.  What was written comes back from the log and is folded on: nothing is read back,
and the state is copied for no one.  Documents follow as often as costs little beside the
work; one that cannot be written leaves the decision standing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Generic, Self, TypeVar

from holdfast.clock import utc_stamp
from holdfast.codec import Record
from holdfast.errors import HoldfastError
from holdfast.state.followed import Followed
from holdfast.state.spared import Spared, telling
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Decision, Line, Log, Question, Written
from holdfast.store.projection import Projection, Tell
from holdfast.store.view import Render, Shape, View

S = TypeVar("S")
T = TypeVar("T")
Act = Callable[[Record], Record]
"""Has the effect that the arguments describe; what is recorded of it."""
Look = Callable[[Record], Record | None]
"""What is to be recorded of an effect that may have happened; None if it did not happen."""
_NONE: Mapping[str, Render[object]] = MappingProxyType({})


class StateLog(Generic[S]):
    """Used by one thread at a time."""

    def __init__(
        self,
        home: Backend,
        key: str,
        shape: Shape[S],
        views: Mapping[str, Render[S]] = _NONE,
        *,
        log: Log | None = None,
    ) -> None:
        """`log` is that of the key, where it is open already; it is closed with this."""
        self._home, self.log = home, Followed(log or home.log(key))
        files = [(home.cell(name), render) for name, render in views.items()]
        # The state is read by the stamp of the first.
        others = [(Spared(cell, render), render) for cell, render in files[1:]]
        self._view = View(self.log, shape, home.clock, [*files[:1], *others])
        self.state: Callable[[], S] = self._view.read
        """After every line; look at it, do not change it: it goes on with the next lines."""
        self.known: Callable[[], S] = self._view.known
        """After every line that was read or written here; no file is opened."""
        self._projections: dict[tuple[str, str], Projection] = {}
        self._acked = START
        """The newest line that was written here."""
        self.stale: HoldfastError | None = None
        """Why the documents do not show the last decision, if they could not be written."""

    # -- deciding ----------------------------------------------------------------------

    def decide(self, decide: Callable[[S], Decision[T]]) -> Written[T]:
        """Write the lines that `decide` makes of the state, with no other line in between.

        The decision must be repeatable: it may be run again on a newer state, and only the
        lines and the value of its last run count.
        """

        self.known()  # outside the log's lock, so that inside there is little left to do

        def lines(head: Cursor) -> Decision[tuple[T, Cursor]]:
            records, value = decide(self._view.known_at(head))
            return records, (value, head)

        try:
            written = self.log.log.write(lines)
        except BaseException:
            self._view.lost_sight()
            raise
        value, head = written.value
        if written.lines:
            self._acked = self.log.wrote(written.lines)
        self._view.took(head, written.lines)
        if written.lines:
            try:
                self._view.refresh(self._acked, read=False)
                self.stale = None
            except HoldfastError as error:
                self.stale = error
        return Written(written.lines, value, written.masked)

    def preview(self, lines: Sequence[Record]) -> S:
        """Within a decision: the state that these lines would make, masked.

        The state before is gone; lines that are given again, with more behind them, are not
        folded twice.  A line without a `ts` gets that of now.  Lines that are written as they
        were previewed are not folded again, so the fold must not ask where a line stands.
        """
        now = utc_stamp(self._home.clock.now())
        records = [{"ts": now, **self._home.mask(record)} for record in lines]
        return self._view.ahead([Line(0, "", record, "", 0, 0) for record in records])

    def effect(self, name: str, args: Record, act: Act, look: Look) -> Record:
        """Have an effect outside the store once: an intent line, the act, a line of its end.

        `name` is given to one effect in the life of the log.  An intent without an end is
        looked at first; the act is done again only if it did not happen.
        """
        found = self.log.find(Question({"effect": name}, 1)).lines
        record = found[0].record if found else {}
        if record.get("event") == "effect_done":
            return record["result"]
        result = look(args) if found else None
        if result is None:
            if not found:
                line: Record = {"event": "effect", "effect": name, "args": args}
                self.decide(lambda _: ([line], None))
            result = act(args)
        done: Record = {"event": "effect_done", "effect": name, "result": result}
        return self.decide(lambda _: ([done], None)).lines[-1].record["result"]

    def project(self, to: Log, cell: str, tell: Tell) -> int:
        """Write to another log what `tell` makes of each line here, each exactly once.

        `cell` keeps how far that went; how many lines it took.
        """
        projection = self._projections.get((to.key, cell))
        if projection is None:
            projection = telling(self._home, self.log, to, cell, tell)
            self._projections[to.key, cell] = projection
        return projection.catch_up()

    # -- the documents -----------------------------------------------------------------

    def add(self, view: str, render: Render[S]) -> None:
        """Show the state in one more document."""
        self._view.add(Spared(self._home.cell(view), render), render)

    def refresh(self, acked: Cursor = START) -> None:
        """Read on, and bring the documents up to date, now or soon; `acked` as for a view."""
        self._acked = max(acked, self._acked)
        self._view.refresh(self._acked)
        self.stale = None

    def flush(self, *, read: bool = True) -> list[str]:
        """Bring the documents up to date; the names under which hand-edited ones were kept.

        Without `read`, only with what was put off.
        """
        if read:
            self._view.refresh(self._acked)
        self._view.flush(self._acked)
        self.stale = None
        return self._view.kept_aside

    def rebuild(self) -> list[str]:
        """Fold the whole log again and write the documents; names as of `flush`."""
        self._view.rebuild()
        return self._view.kept_aside

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the documents that wait for it, and let go; never raises for them."""
        with suppress(HoldfastError):
            self._view.close(self._acked)
        for projection in self._projections.values():
            projection.close()
        self.log.close()

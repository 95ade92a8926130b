"""A detached lease: ownership that outlives the process that took it, with its fence in the log.

A shell verb takes a lease and exits; a supervisor freezes and wakes up hours later.  So the
lease is a line of the very log it guards:

    {"lease": "session", "fence": 7, "purpose": …, "owner": […],
     "host": …, "boot": …, "deadline": …, "until": …}

Whoever takes over writes such a line with the next number, under the lock of the log.  Every
line of an owner carries its `fence`; one that is no longer the newest of its lease is refused
when it is written, and left out by `fenced` when the log is folded.  A deadline that has
passed ends nothing by itself: it only lets the next one in.  It is measured by the clock of the
store; `until`, by the wall clock, is for machines that have another one.

Effects outside the log are not fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from holdfast.clock import instant_of, utc_stamp
from holdfast.codec import Record, pretty
from holdfast.errors import BadValue, Busy, LeaseLost
from holdfast.process import Owner
from holdfast.store.backend import Backend
from holdfast.store.primitives import START, Cursor, Decision, Instant, Line, Log, T, Written
from holdfast.store.view import Shape

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
_LAST = 253_402_300_799.0
"""The last second that a stamp can name."""
_UNTIL = ("host", "boot", "deadline", "until")
Fences = dict[str, Any]
"""What the lines of a log say about its leases: `last`, and for each name its `current` line."""


class Grant(NamedTuple):
    """A lease that somebody has, or had until the next one came."""

    fence: int
    purpose: str
    since: str
    owner: Owner | None
    deadline: Instant


def no_fences() -> Fences:
    return {"last": 0, "current": {}}


def heeds(fences: Fences, line: Line) -> bool:
    """Whether a line counts, given the ones before it; takes note of what it says of leases."""
    record = line.record
    fence = record.get("fence")
    if fence is None:
        return True
    if type(fence) is not int or line.seq is None:
        return False  # not a line of ours, whatever it claims
    current = cast("dict[str, Record]", fences["current"])
    name = record.get("lease")
    if not isinstance(name, str):
        return any(held["fence"] == fence for held in current.values())
    if fence > fences["last"]:
        fences["last"] = fence
        current[name] = record
        return True
    held = current.get(name)
    if held is None or held["fence"] != fence:
        return False
    if record.get("released"):
        del current[name]
    else:
        current[name] = {**held, **{each: record[each] for each in _UNTIL if each in record}}
    return True


def fenced(shape: Shape[State]) -> Shape[list[Any]]:
    """The same view, blind for lines whose writer had already lost its lease."""

    def fold(both: list[Any], line: Line) -> list[Any]:
        fences, state = both
        return [fences, shape.fold(state, line) if heeds(fences, line) else state]

    return Shape(
        version=shape.version,
        initial=lambda: [no_fences(), shape.initial()],
        fold=fold,
        render=lambda both: shape.render(both[1]),
    )


def _fold(fences: Fences, line: Line) -> Fences:
    heeds(fences, line)
    return fences


LEASES = Shape(
    version=1, initial=no_fences, fold=_fold, render=lambda fences: pretty(fences["current"])
)


def grant_in(fences: Fences, name: str, here: str) -> Grant | None:
    """Who has a lease, or had it last; `here` is the host of lines that name none."""
    match fences["current"].get(name):
        case {
            "fence": int(fence),
            "purpose": str(purpose),
            "since": str(since),
            "owner": None | [str(), str(), int(), int()] as owner,
            "boot": str(boot),
            "deadline": float() | int() as deadline,
            **more,
        }:
            who = None if owner is None else Owner(*cast("tuple[str, str, int, int]", owner))
            # Lines of before machines shared a store name none: it was this one.
            host = str(more.get("host") or (who.host if who else here))
            wall = _instant(more.get("until"))
            return Grant(fence, purpose, since, who, Instant(host, boot, float(deadline), wall))
        case _:
            return None


def is_live(held: Grant | None, now: Instant, alive: Callable[[Owner], bool | None]) -> bool:
    """Whether a lease is had by an owner that may go on having it."""
    if held is None or now.left(held.deadline) <= 0:
        return False
    # An owner that cannot be seen from here may live.
    return held.owner is None or alive(held.owner) is not False


class Decided(Protocol[State_co]):
    """A log that is written by decisions on what its lines say, as a lease needs it."""

    @property
    def log(self) -> Log: ...
    def state(self) -> State_co: ...
    def decide(self, decide: Callable[[State_co], Decision[T]]) -> Written[T]: ...


class DetachedLease(Generic[State]):
    """One name of ownership over one log; used by one thread at a time."""

    def __init__(
        self,
        log: Decided[State],
        store: Backend,
        name: str,
        *,
        fences: Callable[[State], Fences],
        alive: Callable[[Owner], bool | None] | None = None,
    ) -> None:
        """`fences` finds in the state of the log what it says of leases.

        `alive` is asked instead of the store, by who knows more of an owner.
        """
        if not name:
            raise BadValue("a lease needs a name", hint='such as "session"')
        self._alive, self._now = alive or store.alive, store.now
        self._log, self._clock, self._name, self._fences = log, store.clock, name, fences
        self.acked: Cursor = START
        """The newest line that was written through it."""

    def take(
        self,
        purpose: str,
        *,
        seconds: float,
        owner: Owner | None = None,
        first: Callable[[], Sequence[Record]] = tuple,
    ) -> int:
        """Own it until the deadline or the death of `owner`; the fencing number, or Busy.

        `first` gives lines of the new owner that are written with it, at once; it is asked
        under the lock of the log, when nobody else can have the lease any more.
        """

        def decide(state: State) -> Decision[int]:
            fences = self._fences(state)
            held = grant_in(fences, self._name, self._now().host)
            if held is not None and is_live(held, self._now(), self._alive):
                raise self._busy(held)
            fence = fences["last"] + 1
            granted = {
                "lease": self._name,
                "fence": fence,
                "purpose": purpose,
                "since": utc_stamp(self._clock.now()),
                "owner": None if owner is None else list(owner),
                **self._until(seconds),
            }
            return [granted, *_fenced(fence, first())], fence

        written = self._log.decide(decide)
        self.acked = written.lines[-1].cursor
        return written.value

    def append(self, fence: int, record: Record, *more: Record) -> Cursor:
        """Write lines as its owner, or raise LeaseLost if somebody else has it by now."""
        self._write(fence, *_fenced(fence, (record, *more)))
        return self.acked

    def renew(self, fence: int, seconds: float) -> None:
        self._write(fence, {"lease": self._name, "fence": fence, **self._until(seconds)})

    def left(self) -> float:
        """Seconds until it can be taken over; 0 if nobody has it."""
        held = self.holder()
        return 0.0 if held is None else max(0.0, self._now().left(held.deadline))

    def release(self, fence: int, *last: Record) -> None:
        """Give it back, after the last lines of its owner."""
        over = {"lease": self._name, "fence": fence, "released": True}
        self._write(fence, *_fenced(fence, last), over)

    def holder(self) -> Grant | None:
        """Who has it: the newest owner, whether it is still alive or not; see `is_live`."""
        return grant_in(self._fences(self._log.state()), self._name, self._now().host)

    def is_live(self) -> bool:
        """Whether somebody has it and may go on having it."""
        return is_live(self.holder(), self._now(), self._alive)

    def _write(self, fence: int, *records: Record) -> None:
        def decide(state: State) -> Decision[None]:
            held = grant_in(self._fences(state), self._name, self._now().host)
            if held is None or held.fence != fence:
                raise self._lost(fence, held)
            return records, None

        self.acked = self._log.decide(decide).lines[-1].cursor

    def _until(self, seconds: float) -> Record:
        if not seconds > 0:
            raise BadValue("a lease lasts for more than 0 seconds", hint="such as 600")
        host, boot, deadline, wall = self._now().later(seconds)
        return {
            "host": host,
            "boot": boot,
            "deadline": round(deadline, 3),
            "until": utc_stamp(min(wall, _LAST)),
        }

    def _busy(self, held: Grant) -> Busy:
        left = self._now().left(held.deadline)
        who = f"process {held.owner.pid}" if held.owner else "somebody"
        return Busy(
            f"{self._name} is held by {who} since {held.since}: {held.purpose}",
            hint=f"it ends in {left:.0f} s at the latest; wait, or end its owner",
            path=self._log.log.key,
        )

    def _lost(self, fence: int, held: Grant | None) -> LeaseLost:
        now = "nobody has it" if held is None else f"number {held.fence} has it: {held.purpose}"
        return LeaseLost(
            f"lease {self._name} with number {fence} is over; {now}",
            hint="stop working on it, or take the lease again and look at what changed",
            path=self._log.log.key,
        )


def _fenced(fence: int, records: Sequence[Record]) -> list[Record]:
    if any("fence" in record or "lease" in record for record in records):
        raise BadValue("`fence` and `lease` are set by the lease", hint="choose another name")
    return [{**record, "fence": fence} for record in records]


def _instant(stamp: object) -> float:
    try:
        return instant_of(str(stamp))
    except ValueError:
        return 0.0

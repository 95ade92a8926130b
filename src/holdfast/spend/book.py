"""The book of what sessions may spend and have spent: `reserve`, `settle` and `correct` lines.

A session reserves before it begins and settles when it ends; what is reserved counts as spent
until then, so that sessions side by side cannot spend the same money.  Money belongs to the day
on which the session began.  A cost that nobody told is unknown, never 0: against the limits it
counts as what was reserved for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec import Record, pretty
from holdfast.errors import BadName
from holdfast.ids import SessionId, session_id
from holdfast.layout import SPEND, SPENT
from holdfast.process import Owner
from holdfast.settings import Budget
from holdfast.spend.gate import Bound, grant
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Decision, Line
from holdfast.store.view import Shape

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = dict[str, Any]
_DAYS_KEPT = 32
OF_A_JOB = "job-"
"""What the name begins with under which the calls of a job stand here."""


class Tally(NamedTuple):
    """What was spent, in USD and tokens, as far as it was told."""

    usd: float = 0.0
    unknown: int = 0
    """Sessions of which nobody told what they cost."""
    assumed_usd: float = 0.0
    """What had been reserved for those."""
    reserved_usd: float = 0.0
    """For sessions that are under way."""
    tokens: int = 0
    sessions: int = 0

    @property
    def committed(self) -> float:
        return self.usd + self.assumed_usd + self.reserved_usd

    def bound(self, name: str, most: float | None) -> Bound:
        return Bound(name, most, self.usd, self.reserved_usd, self.unknown, self.assumed_usd)

    def plus(self, more: Tally) -> Tally:
        return Tally(
            self.usd + more.usd,
            self.unknown + more.unknown,
            self.assumed_usd + more.assumed_usd,
            self.reserved_usd + more.reserved_usd,
            self.tokens + more.tokens,
            self.sessions + more.sessions,
        )


class Held(NamedTuple):
    """A reservation that is not settled."""

    session: SessionId
    usd: float
    owner: Owner | None


class Spend(StateLog[State]):
    def __init__(self, home: Home) -> None:
        super().__init__(home, SPEND, SHAPE, {SPENT: SHAPE.render})

    # -- writing -----------------------------------------------------------------------

    def reserve(
        self, session: SessionId, asked: float | None, budget: Budget, owner: Owner
    ) -> float | None:
        """Set money aside for a session; how much it may spend, None if there is no limit.

        One that does not say how much gets what a session may have, else all that is left.
        """

        def decide(state: State) -> Decision[float | None]:
            granted = _granted(state, session, asked, budget)
            if granted is None:
                return [], None
            line: Record = {"event": "reserve", "session_id": str(session)}
            return [{**line, "usd": granted, "owner": list(owner)}], granted

        return self.decide(decide).value

    def release(self, session: SessionId, why: str) -> None:
        """Give back what was reserved for a session that never began."""
        line = {"event": "settle", "session_id": str(session), "usd": 0.0, "summary": why}
        self.decide(lambda state: ([line] if str(session) in state["open"] else [], None))

    # -- reading -----------------------------------------------------------------------

    def open(self) -> list[Held]:
        """Reservations that are not settled."""
        return list(_held(self.state()))

    def days(self) -> list[str]:
        state = self.state()
        return sorted({*state["days"], *(held.session.day for held in _held(state))})

    def agents(self, day: str) -> dict[str, Tally]:
        """What each agent has spent of the money of a day."""
        return _tallies(self.state(), day)


# --- what may be spent ----------------------------------------------------------------------


def _granted(
    state: State, session: SessionId, wanted: float | None, budget: Budget
) -> float | None:
    day, agent = session.day, session.agent
    mine, fleet = _tally(state, day, agent), total(_tallies(state, day).values())
    bounds = [
        Bound(f"a session of {agent}", budget.session),
        mine.bound(f"{agent} today", budget.agent_day),
        fleet.bound("the fleet today", budget.fleet_day),
    ]
    return grant(
        bounds,
        wanted,
        hint="ask for less with --max-cost, wait for others to end, or raise the limit under "
        "[budget] in holdfast.toml; see `holdfast budget show`",
    )


def total(tallies: Iterable[Tally]) -> Tally:
    return reduce(Tally.plus, tallies, Tally())


def _tallies(state: State, day: str) -> dict[str, Tally]:
    names = {*state["days"].get(day, {})}
    names |= {held.session.agent for held in _held(state) if held.session.day == day}
    return {name: _tally(state, day, name) for name in sorted(names)}


def _tally(state: State, day: str, agent: str) -> Tally:
    spent = Tally(**state["days"].get(day, {}).get(agent, {}))
    mine = (each for each in _held(state) if each.session[:2] == (day, agent))
    return spent._replace(reserved_usd=sum(each.usd for each in mine))


def _held(state: State) -> Iterator[Held]:
    for name, (usd, owner) in state["open"].items():
        yield Held(session_id(name), usd, Owner(*owner) if owner else None)


# --- the fold -------------------------------------------------------------------------------


def fold(state: State, line: Line) -> State:
    """One line more; what is not a line of this book changes nothing."""
    record = line.record
    try:
        session = session_id(str(record.get("session_id")))
    except BadName:
        return state
    known, act = _money(record.get("usd")), _ACTS.get(str(record.get("event")))
    if act is not None:
        act(state, session, known, record)
    return state


def _reserve(state: State, session: SessionId, usd: float | None, record: Record) -> None:
    match record.get("owner"):
        case [str(), str(), int(), int()] as owner:
            state["open"][str(session)] = [usd or 0.0, owner]
        case _:
            state["open"][str(session)] = [usd or 0.0, None]


def _settle(state: State, session: SessionId, usd: float | None, record: Record) -> None:
    reserved, _ = state["open"].pop(str(session), (0.0, None))
    tokens = record.get("tokens")
    unknown = usd is None
    _add(
        state,
        session,
        Tally(
            usd=usd or 0.0,
            unknown=int(unknown),
            assumed_usd=reserved if unknown else 0.0,
            tokens=tokens if type(tokens) is int and tokens > 0 else 0,
            sessions=1,
        ),
    )


def _correct(state: State, session: SessionId, usd: float | None, record: Record) -> None:
    if usd is None or str(session) in state["open"]:
        return
    before = _money(record.get("was_usd"))
    assumed = (_money(record.get("reserved_usd")) or 0.0) if before is None else 0.0
    more = Tally(usd=usd - (before or 0.0), unknown=-int(before is None), assumed_usd=-assumed)
    _add(state, session, more)


_ACTS: dict[str, Callable[[State, SessionId, float | None, Record], None]] = {
    "reserve": _reserve,
    "settle": _settle,
    "correct": _correct,
}


def _add(state: State, session: SessionId, more: Tally) -> None:
    day: dict[str, Any] = state["days"].setdefault(session.day, {})
    total = Tally(**day.get(session.agent, {})).plus(more)
    day[session.agent] = total._asdict()
    if len(state["days"]) > _DAYS_KEPT:
        del state["days"][min(state["days"])]


def _money(value: object) -> float | None:
    """A sum that can be added up; a claim that is none is unknown."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    return None


def _shown(state: State) -> bytes:
    days = {
        day: {name: dict(each) for name, each in sorted(agents.items())}
        for day, agents in sorted(state["days"].items())
    }
    reserved = {name: usd for name, (usd, _) in sorted(state["open"].items())}
    return pretty({"schema_version": "1.0", "days": days, "reserved": reserved})


SHAPE: Shape[State] = Shape(
    version=1, initial=lambda: {"days": {}, "open": {}}, fold=fold, render=_shown
)


# --- what a journal tells -------------------------------------------------------------------


def settled(line: Line) -> Record | None:
    """The line of the book for a line of a journal."""
    record = line.record
    told: Record = {"session_id": record.get("session_id"), "usd": record.get("cost_usd")}
    match record.get("event"):
        case "session_end":
            if record.get("cause") == "crashed":
                told["usd"] = None  # what it told before is not all of it
            return {"event": "settle", **told, "tokens": record.get("tokens_used")}
        case "session_set" if "was_usd" in record:
            before = {"was_usd": record["was_usd"], "reserved_usd": record.get("budget_usd")}
            return {"event": "correct", **told, **before}
        case _:
            return None

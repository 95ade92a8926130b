"""What somebody should look at, told once, and again only after a while.

Each look at the fleet is compared with what was told before: a new trouble opens an alert, one that
lasts is told again after `every` seconds unless somebody has acknowledged it, one that is over is
closed.  Two that look at the same moment tell it once.  A trouble that comes and goes is not told
more often for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.agents.standing import Standing, kinds_of_trouble
from holdfast.codec import Record, pretty
from holdfast.errors import NotFound
from holdfast.layout import ALERTED, ALERTS
from holdfast.state.statelog import StateLog
from holdfast.store.primitives import Decision, Line
from holdfast.store.view import Shape
from holdfast.text import ago

if TYPE_CHECKING:
    from holdfast.store.home import Home

State = dict[str, Any]
EVERY = 1800.0
"""Seconds after which a trouble that lasts is told again."""
_MOST_SAID = 500
_REMEMBERED = 1000
"""So many troubles of the past: when each was told last."""


class Seen(NamedTuple):
    """A trouble of an agent as it is now."""

    agent: str
    kind: str
    says: str


def troubles_of(standings: Iterable[Standing], *, idle: bool) -> list[Seen]:
    """What there is to tell; of agents that were idle when last heard of only if asked for."""
    found: dict[tuple[str, str], Seen] = {}
    for one in standings:
        told = [*kinds_of_trouble(one)]
        if idle and one.state == "offline" and "offline" not in {kind for kind, _ in told}:
            told.append(("offline", f"not heard of for {ago(one.presence.age or 0.0)}"))
        for kind, says in told:
            # Of several of a kind the first is the worst.
            found.setdefault((one.agent, kind), Seen(one.agent, kind, says[:_MOST_SAID]))
    return list(found.values())


class Alerts(StateLog[State]):
    def __init__(self, home: Home) -> None:
        super().__init__(home, ALERTS, SHAPE, {ALERTED: SHAPE.render})

    def look(
        self, seen: list[Seen], every: float = EVERY, *, dry_run: bool = False
    ) -> list[Record]:
        """Record what is new, what lasts and what is over; the lines to report now."""

        def decide(state: State) -> Decision[list[Record]]:
            lines = _lines(state, seen, self._home.clock.now(), every)
            return lines, [line for line in lines if line.get("told")]

        return decide(self.state())[1] if dry_run else self.decide(decide).value

    def open(self) -> list[Record]:
        """The troubles that last, the oldest first."""
        alerts = self.state()["open"]
        return [{"id": name, **alert} for name, alert in alerts.items()]

    def acknowledge(self, name: str, by: str, note: str | None) -> Record:
        """Be told of it no more until it is over."""

        def decide(state: State) -> Decision[Record]:
            alert = state["open"].get(name)
            if alert is None:
                raise NotFound(
                    f"no open alert is called {name[:80]}", hint="`holdfast alerts list` shows them"
                )
            found: Record = {"id": name, **alert}
            if alert["acked_by"]:
                return [], found
            line: Record = {"event": "acked", "id": name, "agent": alert["agent"]}
            line |= {"kind": alert["kind"], "says": alert["says"], "by": by}
            return [line | ({"note": note} if note else {})], found

        return self.decide(decide).value


def _lines(state: State, seen: list[Seen], now: float, every: float) -> list[Record]:
    names = {(each["agent"], each["kind"]): name for name, each in state["open"].items()}
    lines: list[Record] = []
    fresh = state["next"]
    for each in seen:
        name = names.pop((each.agent, each.kind), None)
        told = now - state["told"].get(_topic(each), -every) >= every
        if name is None:
            name, fresh = f"alert-{fresh}", fresh + 1
            lines.append({"event": "raised", "id": name, **each._asdict(), "told": told, "at": now})
        elif told and not state["open"][name]["acked_by"]:
            lines.append({"event": "again", "id": name, **each._asdict(), "told": True, "at": now})
    for name in names.values():
        alert = state["open"][name]
        gone = Seen(alert["agent"], alert["kind"], alert["says"])
        lines.append({"event": "cleared", "id": name, **gone._asdict(), "at": now})
    return lines


def _topic(seen: Seen) -> str:
    return f"{seen.agent} {seen.kind}"


def fold(state: State, line: Line) -> State:
    """One line more; what is not a line of alerts changes nothing."""
    match line.record:
        case {"event": str(event), "id": str(name), "agent": str(agent), "kind": str(kind)}:
            _act(state, line.record, event, name, Seen(agent, kind, str(line.record.get("says"))))
        case _:
            pass
    return state


def _act(state: State, record: Record, event: str, name: str, seen: Seen) -> None:
    alerts: State = state["open"]
    if event == "cleared":
        alerts.pop(name, None)
    elif event == "acked" and name in alerts:
        alerts[name] |= {"acked_by": str(record.get("by"))}
    elif event in ("raised", "again"):
        before = alerts.get(name, {"since": record.get("ts"), "times": 0, "acked_by": None})
        times = before["times"] + bool(record.get("told"))
        alerts[name] = before | seen._asdict() | {"times": times}
        _count(state, name)
        at = record.get("at")
        if record.get("told") and isinstance(at, int | float):
            state["told"].pop(_topic(seen), None)
            state["told"][_topic(seen)] = at
            if len(state["told"]) > _REMEMBERED:
                del state["told"][next(iter(state["told"]))]


def _count(state: State, name: str) -> None:
    number = name.rpartition("-")[2]
    if number.isascii() and number.isdigit() and len(number) <= 15:
        state["next"] = max(state["next"], int(number) + 1)


def _shown(state: State) -> bytes:
    return pretty({"schema_version": "1.0", "open": state["open"]})


SHAPE: Shape[State] = Shape(
    version=1, initial=lambda: {"next": 1, "open": {}, "told": {}}, fold=fold, render=_shown
)

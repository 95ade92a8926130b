"""How much may be spent: by a session, by an agent in a day, by all of them in a day."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import ConfigError
from holdfast.settings import READ, amount, settings, table, unread
from holdfast.store.home import SETTINGS

if TYPE_CHECKING:
    from holdfast.store.home import Home


_LIMITS = ("session_usd", "day_usd")
"""Of one agent."""


class Budget(NamedTuple):
    """In USD; None is no limit."""

    session: float | None = None
    agent_day: float | None = None
    fleet_day: float | None = None


def budget_of(home: Home, agent: str) -> Budget:
    """The limits in holdfast.toml that hold for an agent.

    `[budget]` has `session_usd`, `agent_day_usd` and `fleet_day_usd`; `session_usd` and `day_usd`
    under `[agents.NAME]` hold instead for one agent.
    """
    found = settings(home, "budget") or settings(home, "agents")
    every, own = table(found, "budget"), table(found, "agents", agent) if agent else {}
    _check("budget", every.keys() - READ["budget"].keys(), READ["budget"])
    # Much else may stand there; what looks like a limit has to be one.
    _check(
        f"agents.{agent}",
        [each for each, near in unread(own, READ["agents"]["*"]) if near in _LIMITS],
        _LIMITS,
    )
    session, day = amount(own, "session_usd"), amount(own, "day_usd")
    return Budget(
        amount(every, "session_usd") if session is None else session,
        amount(every, "agent_day_usd") if day is None else day,
        amount(every, "fleet_day_usd"),
    )


def _check(name: str, wrong: Collection[str], known: Iterable[str]) -> None:
    """Refuse what is misspelt: silently ignored, it would be a limit that does not hold."""
    if wrong:
        raise ConfigError(
            f"{SETTINGS}: [{name}] has no {min(wrong)}",
            hint=f"there are {', '.join(known)}; see docs/budgets.md",
            path=SETTINGS,
        )

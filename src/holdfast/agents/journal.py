"""The state of an agent's journal, folded once, and the documents that show it.

Lines of an owner who had lost the lease never get here (`store.fence`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.agents import endings, history, metrics
from holdfast.agents.history import Born
from holdfast.codec import pretty
from holdfast.layout import Part
from holdfast.store.fence import Fences, fenced
from holdfast.store.primitives import Line
from holdfast.store.view import Render, Shape

# --- words of its lines that agents may not use ----------------------------------------

# What is known of sessions, tasks and money is made of them: a line that an agent made up would
# retire it, give a number twice or pay for what was not done.
OWN_EVENTS = frozenset(
    {
        *("session_start", "session_set", "session_end", "error", "count", "lease", "joined"),
        *("tool_use", "import", "retired", "reinstated", "forked", "persona_changed"),
        *("task_added", "task_started", "task_completed", "task_dropped", "task_reopened"),
        *("task_parked", "noted", "text_imported", "edited_by_hand"),
    }
)
SOURCES = "sources_archived"
"""The one word of everybody's that is added up."""


# --- the fold -------------------------------------------------------------------------------

State = list[Any]
"""What the lines say of leases, and `history`, `metrics` and `endings` of the rest."""


def shape(agent: str) -> Shape[State]:
    def fold(state: dict[str, Any], line: Line) -> dict[str, Any]:
        history.fold(state["history"], line)
        metrics.fold(state["metrics"], line)
        endings.fold(state["endings"], line)
        return state

    initial = {"history": history.initial, "metrics": metrics.initial, "endings": endings.initial}
    return fenced(
        Shape(
            version=9,
            initial=lambda: {part: made(agent) for part, made in initial.items()},
            fold=fold,
        )
    )


def history_in(state: State) -> history.State:
    return state[1]["history"]


def fences_in(state: State) -> Fences:
    return state[0]


def lease_of(role: str) -> str:
    """The lease of the session of a role."""
    return f"session.{role}" if role else "session"


def views(
    key: Callable[[Part], str], now: Callable[[], float], born: Born = lambda: None
) -> dict[str, Render[State]]:
    """The documents of an agent by their keys.

    `now` is asked when the metrics are written; whoever reads through the API counts again.
    """
    return {
        key("report"): lambda state: pretty(history.report(history_in(state), born)),
        key("metrics"): lambda state: pretty(metrics.metrics(state[1]["metrics"], now(), born)),
        key("session"): session_of(""),
    }


def session_of(role: str) -> Render[State]:
    """The newest session of all, or of a role."""
    return lambda state: pretty(history.session(history_in(state), role))

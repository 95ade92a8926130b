"""What lies on an agent's desk between sessions, as far as their ends decide about it.

A session that failed counts against the task it worked on.  Nothing here can undo the end of a
session or keep another one from beginning: what goes wrong is put into the audit log, and done
by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from holdfast.agents.notes import Notes
from holdfast.agents.tasks import TaskList
from holdfast.errors import HoldfastError
from holdfast.store.primitives import Log

if TYPE_CHECKING:
    from holdfast.layout import Part
    from holdfast.store.home import Home


class Desk:
    """Opens nothing before it is needed."""

    def __init__(self, home: Home, agent: str, key: Callable[[Part], str], journal: Log) -> None:
        self._home, self._agent, self._key, self._journal = home, agent, key, journal

    @cached_property
    def tasks(self) -> TaskList:
        return TaskList(self._home, self._agent, self._key("tasks"), self._journal)

    @cached_property
    def notes(self) -> Notes:
        return Notes(self._home, self._agent, self._key("notes"), self._journal)

    def settle(self) -> None:
        """Draw the consequences of sessions that ended, also of those whose owner died."""
        self._attempt("parking tasks", self.tasks.park)

    def _attempt(self, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except HoldfastError as error:
            self._home.notice("desk", f"{self._agent}: {what}: {error.message}")

    def close(self) -> None:
        for name in ("tasks", "notes"):
            if name in self.__dict__:
                self.__dict__.pop(name).close()

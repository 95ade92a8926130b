"""That the process of a session lives, also for those who cannot see it.

A number of a process says nothing in another pid namespace: in that of a command which the
wrapper holds by one, or in another container with the same home.  A lock of the kernel does,
so whoever owns a session has one beside the journal for as long as he lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.process import Owner

if TYPE_CHECKING:
    from holdfast.store.home import Home
    from holdfast.store.lease import FileLease

_PATIENCE = 5.0
"""Seconds for one whose session has ended to let go; he does so at once."""


class Presence:
    def __init__(self, home: Home, folder: str) -> None:
        self._home, self._folder = home, folder
        self._held: dict[str, FileLease] = {}

    def show(self, role: str, purpose: str) -> None:
        """From now on this process is seen to live, until it hides or dies."""
        lease = self._lease(role)
        lease.acquire(purpose, patience=_PATIENCE)
        self._held[role] = lease

    def hide(self, role: str) -> None:
        if (lease := self._held.pop(role, None)) is not None:
            lease.close()

    def is_alive(self, role: str, owner: Owner) -> bool:
        """Whether the owner of the session of a role lives."""
        seen = self._home.alive(owner)
        if seen is not None:
            return seen
        held = self._lease(role).holder()
        return held is not None and held.owner == owner and held.alive

    def _lease(self, role: str) -> FileLease:
        return self._home.lease(f"{self._folder}/session" + (f".{role}" if role else ""))

    def close(self) -> None:
        for role in [*self._held]:
            self.hide(role)

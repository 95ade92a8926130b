"""What a verb works with: the home, the clock, and a way to warn.

Every face makes one `Context` per call and closes it afterwards.  A verb that never asks for
the home never opens it.  The context knows neither arguments nor output.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.clock import Clock, SystemClock

if TYPE_CHECKING:
    from holdfast.store.home import Home


class Context:
    def __init__(self, home_path: str | None = None, clock: Clock | None = None) -> None:
        self.home_path = home_path
        """What `--home` said; the store looks for a home when it said nothing."""
        self.clock: Clock = clock or SystemClock()
        self._home: Home | None = None
        self._warnings: list[str] = []

    def home(self, *, create: bool = False, timezone: str | None = None) -> Home:
        """The home, opened at the first call; `create` makes it if it is not there."""
        if self._home is None:
            # A verb that needs no home must not pay for the store.
            from holdfast.store.home import Home

            self._home = Home.open(
                self.home_path, create=create, timezone=timezone, clock=self.clock
            )
        return self._home

    def warn(self, text: str) -> None:
        """Tell the caller about something that did not stop the verb."""
        self._warnings.append(text)

    def take_warnings(self) -> list[str]:
        """The warnings since the last call of this."""
        taken, self._warnings = self._warnings, []
        return taken

    def close(self) -> None:
        home, self._home = self._home, None
        if home is not None:
            home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

"""What a verb works with: the home, its layout, the clock, and a way to warn.

Every face makes one `Context` per call and closes it afterwards.  A verb that never asks for
the home never opens it; the calls of a server share one that stays open.  The context knows
neither arguments nor output.

A tree that another system made is a home too, once `--layout` says what it looks like.  It can
be read without a byte being written to it; the first verb that changes something makes
`holdfast.toml` at its top, which names the layout from then on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from holdfast.clock import Clock, SystemClock
from holdfast.errors import BadName, ConfigError, Forbidden, UsageError
from holdfast.ids import session_id

if TYPE_CHECKING:
    from holdfast.agents.agent import Agent
    from holdfast.layout import Layout
    from holdfast.ops.opening import Opened, Shared
    from holdfast.store.home import Home

Kept = TypeVar("Kept")
Live = Callable[[Callable[[], str]], AbstractContextManager[object]]


class Context:
    def __init__(
        self,
        home_path: str | None = None,
        clock: Clock | None = None,
        layout: str | None = None,
        shared: Shared | None = None,
    ) -> None:
        self.home_path = home_path
        """What `--home` said; the store looks for a home when it said nothing."""
        self.layout_said = layout
        """What `--layout` said."""
        self.clock: Clock = clock or SystemClock()
        self.watcher: Callable[[str, int, int], None] | None = None
        """Set by a face that can show how far long work has come: what, done, total."""
        self.tell: Callable[[str], None] | None = None
        """Set by a face that can show text as it comes."""
        self.live: Live | None = None
        """Set by a face that can draw a line anew in place: asks what it says, until it is left."""
        self.listen: Callable[[str], str | None] | None = None
        """Set by a face at which somebody types: asks for a line; None when there is no more."""
        self.recall: Callable[[Sequence[str]], None] | None = None
        """Set by such a face: takes lines, oldest first, that can be called up again."""
        self.edit: Callable[[str], str | None] | None = None
        """Set by such a face: has a text changed in an editor; None if it was left as it is."""
        self.from_afar = False
        """Set by a face whose callers may sit elsewhere: they name nothing of this machine."""
        self._shared = shared
        self._opened: Opened | None = None
        self._warnings: list[str] = []

    def home(self, *, create: bool = False, timezone: str | None = None) -> Home:
        """The home, opened at the first call; `create` makes it if it is not there."""
        if create and self._opened is not None and not self._opened.adopted:
            self.close()
        return self._open(create=create, timezone=timezone).home

    def _open(self, *, create: bool = False, timezone: str | None = None) -> Opened:
        if self._opened is None and self._shared is not None:
            self._opened = self._shared.take(create=create)
        if self._opened is None:
            # A verb that needs no home must not pay for the store.
            from holdfast.ops.opening import open_home

            self._opened = open_home(
                self.place, self.layout_said, self.clock, create=create, timezone=timezone
            )
        return self._opened

    @property
    def place(self) -> str | None:
        """Where the home is; None if the store has to look for it."""
        if self.home_path:
            return self.home_path
        if self.layout_said in (None, "holdfast"):
            return None if os.environ.get("HOLDFAST_HOME") else _adopted_tree()
        # Our own homes are no place to look for the tree of another system.
        return os.environ.get("HOLDFAST_HOME") or os.getcwd()

    @property
    def layout(self) -> Layout:
        """What the tree of the home looks like."""
        return self._open().layout

    @property
    def adopted(self) -> bool:
        """Whether the home has settings of ours; a foreign tree has none until it is changed."""
        return self._open().adopted

    def take_layout(self) -> str | None:
        """What `--layout` said, for a verb that means another tree by it than the home."""
        said, self.layout_said = self.layout_said, None
        return said

    def home_to_change(self) -> Home:
        """The home, for a verb that changes what is there already."""
        opened = self._open()
        if not opened.adopted:
            raise ConfigError(
                f"{opened.home.path} is a tree of {opened.layout.name} that is only looked at",
                hint=f"`holdfast init --layout {opened.layout.name}` lets Holdfast write to it",
                path=opened.home.path,
            )
        return opened.home

    def own_home(self, why: str, *, hint: str) -> Home:
        """The home, if it is one of Holdfast's own and not the tree of another system."""
        home = self.home()
        if self.layout.name != "holdfast":
            said = f"{home.path} is a tree of {self.layout.name}{why}"
            raise ConfigError(said, hint=hint, path=home.path)
        return home

    def once(self, name: str, key: str, make: Callable[[], Kept]) -> Kept:
        """A small value read from the log at `key`; a server reads it again when that changed."""
        if self._shared is None:
            return make()
        return self._shared.once(self.home(), name, key, make)

    def agent(self, name: str, *, change: bool = False) -> Agent:
        """An agent, to be closed after use; NotFound if there is none of that name."""
        from holdfast.agents.agent import opened

        return opened(self.home_to_change() if change else self.home(), name, self.layout)

    def called_in_session(self, agent: str | None = None) -> str | None:
        """The session of this process by its environment, if it is of that agent."""
        session = os.environ.get("HOLDFAST_SESSION", "")
        try:
            return session if session_id(session).agent == agent or agent is None else None
        except BadName:
            return None

    def progress(self, what: str) -> Callable[[int, int], None] | None:
        """To be told how far something long has come; None if nobody is watching."""
        show = self.watcher
        return None if show is None else lambda done, total: show(what, done, total)

    def check_person(self) -> None:
        """No agent decides about its own work or money.  Over HTTP the dashboard has checked."""
        from holdfast.proc.membership import tree_around

        tree = None if self.from_afar else tree_around(os.getpid())
        if tree is not None:
            raise Forbidden(
                f"a program that Holdfast runs (tree {tree[:80]}) cannot make a person's decision",
                hint="decide in a terminal outside of sessions and jobs, or in the dashboard",
            )

    def person(self, by: str | None) -> str:
        """Under which name a person decides: `by`, or else the user of this process."""
        if by:
            return by
        import getpass

        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return f"uid {os.getuid()}"

    def warn(self, text: str) -> None:
        """Tell the caller about something that did not stop the verb."""
        self._warnings.append(text)

    def take_warnings(self) -> list[str]:
        """The warnings since the last call of this."""
        taken, self._warnings = self._warnings, []
        return taken

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None and self._shared is not None:
            self._shared.leave(opened)
        elif opened is not None:
            opened.home.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _adopted_tree() -> str | None:
    """The tree with a layout of its own that the working directory lies in, if it is nearest."""
    here = os.path.realpath(os.curdir) if os.path.exists(os.curdir) else "/"
    while here != "/" and not os.path.isdir(os.path.join(here, ".holdfast")):
        settings = os.path.join(here, "holdfast.toml")
        if os.path.isfile(settings) and os.stat(settings).st_uid == os.geteuid():
            import tomllib

            from holdfast.userfile import read

            with suppress(OSError, UsageError, ValueError):
                named = tomllib.loads(read(settings, plain=True).decode()).get("layout")
                if named not in (None, "holdfast"):
                    return here
        here = os.path.dirname(here)
    return None

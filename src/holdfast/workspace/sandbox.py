"""Programs that can write in one folder only, by bubblewrap."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.errors import ConfigError

_HINT = "install bubblewrap (Debian: `apt install bubblewrap`), or choose another isolation"
_PATIENCE = 30.0
_OWN = ("/tmp", "/var/tmp", "/run", "/var/run")
"""Empty inside.  In the last two others have their sockets, and to speak with them is to act."""
_NEEDED = (
    *("/etc/resolv.conf", "/run/current-system", "/run/opengl-driver"),
    *("/run/wrappers", "/run/media"),
)
"""What may lie there and is no socket: names of hosts, the programs of some systems, disks."""


_USERS = (("--unshare-user", "--disable-userns"), ("--unshare-user",), ())
"""Tried in turn.  bubblewrap 0.8 can also forbid the namespaces in which a program would hold
capabilities; where user namespaces are forbidden, root can still make the others."""


class Sandbox(NamedTuple):
    """What a program reaches: all is read-only but one folder and a /tmp of its own."""

    writable: str
    readable: tuple[str, ...] = ()
    """Shown even where the sandbox has folders of its own."""
    hidden: tuple[str, ...] = ()
    """Folders that are empty inside, and files."""
    network: bool = True
    """Agents need it to reach their models."""
    frozen: tuple[str, ...] = ()
    """Files and folders below the writable one that are read-only all the same."""

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command in the sandbox, where it ends when its starter ends."""
        # No mount point can be made below a link.
        writable, *readable = map(os.path.realpath, (self.writable, *self.readable))
        binds = [word for path in readable for word in ("--ro-bind", path, path)]
        for path in map(os.path.realpath, self.hidden):
            if os.path.isdir(path):
                binds += ["--tmpfs", path, "--remount-ro", path]
            elif os.path.exists(path):
                binds += ["--ro-bind", "/dev/null", path]
        return [
            *_frame(*bubblewrap()),
            *(() if self.network else ("--unshare-net",)),
            *binds,
            *("--bind", writable, writable, "--chdir", writable),
            *(word for path in self.frozen for word in ("--ro-bind", path, path)),
            "--",
            *command,
        ]


def _frame(program: str, users: Sequence[str]) -> list[str]:
    own = dict.fromkeys(os.path.realpath(place) for place in _OWN if os.path.isdir(place))
    private = [word for place in own for word in ("--tmpfs", place)]
    programs = filter(None, os.environ.get("PATH", "").split(os.pathsep))
    for place in map(os.path.realpath, [*_NEEDED, *programs]):
        if place.startswith("/run/"):
            private += ["--ro-bind-try", place, place]
    return [
        program,
        *("--ro-bind", "/", "/", "--dev", "/dev"),
        # User 0 owns the kernel's settings in there, and needs no capability to write them.
        *("--proc", "/proc", "--remount-ro", "/proc"),
        *private,
        *users,
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session"),
    ]


def hidden_in(commands: Iterable[str]) -> list[str]:
    """The files that commands name and that are not to be seen inside."""
    own = tuple(f"{os.path.realpath(place)}/" for place in _OWN)
    found: dict[str, None] = {}
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            continue
        files = (word for word in words if os.path.isfile(word))
        found |= dict.fromkeys(each for each in files if os.path.realpath(each).startswith(own))
    return list(found)


@lru_cache(maxsize=1)
def bubblewrap() -> tuple[str, tuple[str, ...]]:
    """The program, and which user namespaces it can make here."""
    program = shutil.which("bwrap")
    if program is None:
        raise ConfigError("there is no sandbox: bubblewrap is not installed", hint=_HINT)
    # Installed is not allowed: reported here, and not as a failure of the agent.
    refusal = b""
    for users in _USERS:
        command = [*_frame(program, users), "--", "true"]
        try:
            tried = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"bubblewrap cannot be run: {error}", hint=_HINT) from error
        if tried.returncode == 0:
            return program, users
        refusal = tried.stderr
    reason = refusal.decode("utf-8", "replace").strip()
    raise ConfigError(
        f"bubblewrap cannot make a sandbox here: {reason[:200]}",
        hint="user namespaces may be forbidden (`sysctl kernel.unprivileged_userns_clone`); "
        "or choose another isolation",
    )

"""Programs that can write in one folder only, by bubblewrap."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import lru_cache

from holdfast.errors import ConfigError

_HINT = "install bubblewrap (Debian: `apt install bubblewrap`), or choose another isolation"
_PATIENCE = 30.0
_OWN = ("/tmp", "/var/tmp", "/run", "/var/run")
"""Empty inside.  In the last two others have their sockets, and to speak with them is to act."""
_NEEDED = (
    "/etc/resolv.conf",
    "/run/current-system",
    "/run/opengl-driver",
    "/run/wrappers",
    "/run/media",
)
"""What may lie there and is no socket: names of hosts, the programs of some systems, disks."""


def sandboxed(command: Sequence[str], *, writable: str, readable: Sequence[str]) -> list[str]:
    """The command, with all else read-only, a /tmp of its own, and an end when its starter ends.

    The network stays: agents need it to reach their models.
    """
    # No place can be made below a link.
    writable = os.path.realpath(writable)
    binds = [word for path in map(os.path.realpath, readable) for word in ("--ro-bind", path, path)]
    return [
        *_frame(bubblewrap()),
        *binds,
        *("--bind", writable, writable, "--chdir", writable),
        "--",
        *command,
    ]


def _frame(program: str) -> list[str]:
    own = dict.fromkeys(os.path.realpath(place) for place in _OWN if os.path.isdir(place))
    private = [word for place in own for word in ("--tmpfs", place)]
    for place in map(os.path.realpath, [*_NEEDED, *_programs()]):
        if place.startswith("/run/"):
            private += ["--ro-bind-try", place, place]
    return [
        program,
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *private,
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session"),
    ]


def _programs() -> list[str]:
    """The folders where programs are looked for."""
    return [place for place in os.environ.get("PATH", "").split(os.pathsep) if place]


def hidden_in(commands: Iterable[str]) -> list[str]:
    """The files that commands name and that are not to be seen inside."""
    own = tuple(f"{os.path.realpath(place)}/" for place in _OWN)
    found: dict[str, None] = {}
    for command in commands:
        try:
            words = shlex.split(command)
        except ValueError:
            continue
        for word in words:
            if os.path.isfile(word) and os.path.realpath(word).startswith(own):
                found[word] = None
    return list(found)


@lru_cache(maxsize=1)
def bubblewrap() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise ConfigError("there is no sandbox: bubblewrap is not installed", hint=_HINT)
    # It may be there and yet not be allowed to do its work: better said now than as a failure
    # of the agent.
    try:
        tried = subprocess.run(
            [*_frame(program), "--", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"bubblewrap cannot be run: {error}", hint=_HINT) from error
    if tried.returncode != 0:
        said = tried.stderr.decode("utf-8", "replace").strip()
        raise ConfigError(
            f"bubblewrap cannot make a sandbox here: {said[:200]}",
            hint="user namespaces may be forbidden (`sysctl kernel.unprivileged_userns_clone`); "
            "or choose another isolation",
        )
    return program

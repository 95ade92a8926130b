"""Programs that can write in one folder only, by bubblewrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache

from holdfast.errors import ConfigError

_HINT = "install bubblewrap (Debian: `apt install bubblewrap`), or choose another isolation"
_PATIENCE = 30.0


def sandboxed(command: Sequence[str], *, writable: str, readable: Sequence[str]) -> list[str]:
    """The command, with all else read-only, a /tmp of its own, and an end when its starter ends.

    The network stays: agents need it to reach their models.
    """
    binds = [word for path in readable for word in ("--ro-bind", path, path)]
    return [
        *_frame(bubblewrap()),
        *binds,
        *("--bind", writable, writable, "--chdir", writable),
        "--",
        *command,
    ]


def _frame(program: str) -> list[str]:
    private = [
        word
        for place in ("/tmp", "/var/tmp")
        if os.path.isdir(place)
        for word in ("--tmpfs", place)
    ]
    return [
        program,
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *private,
        *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session"),
    ]


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

"""Whether a command can be run at all, asked before anything is started or recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast.errors import NotFound, UsageError


def program_of(command: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> str:
    """The absolute path of what `command` runs, or an error that says what to do."""
    if not command or not command[0]:
        raise UsageError("no command to run", hint="give a program and its arguments")
    if any("\0" in word for word in command):
        raise UsageError("a command with a zero byte in it", hint="no program can be given one")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(
                f"not a variable of the environment: {name[:80]!r}",
                hint="its name may not be empty or have a = in it, nor either a zero byte",
            )
    if cwd is not None and not os.path.isdir(cwd):
        raise NotFound(f"no directory {cwd}", hint="make it, or run elsewhere", path=cwd)
    name = command[0]
    found = _in_place(name, cwd) if "/" in name else _on_path(name, environment, cwd)
    if found is not None:
        return found
    hint = f"check the spelling; `command -v {name}` tells whether the shell finds it"
    if "/" in name:
        hint = "check the path; a relative one counts from the directory the command runs in"
    raise NotFound(f"no command {name[:200]}", hint=hint)


def _in_place(name: str, cwd: str | None) -> str | None:
    path = os.path.join(cwd or os.getcwd(), name)
    if not os.path.exists(path):
        return None
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise UsageError(
            f"not a program: {name[:200]}", hint="`chmod +x` makes a script one", path=path
        )
    return path


def _on_path(name: str, environment: Mapping[str, str], cwd: str | None) -> str | None:
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(cwd or os.getcwd(), folder or ".", name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None

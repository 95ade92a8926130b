"""How git is called: with nothing in force that could start a program.

Configuration, attributes, hooks and variables of the environment can all name programs, and the
repositories we look at are written by people and agents we do not know.  So every call of ours
leaves out the user's and the system's configuration, overrides what the repository may say, and
ends after a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from holdfast.errors import Busy, ConfigError, DiskFull, NotOurs, StorageError

OFF: Mapping[str, str] = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
}
"""What even a look may run."""
_ALL_OFF: Mapping[str, str] = {
    **OFF,
    "core.excludesFile": "/dev/null",
    "core.attributesFile": "/dev/null",
    "core.pager": "cat",
    "core.askPass": "true",
    "core.sshCommand": "false",
    "core.alternateRefsCommand": "true",
    "core.autocrlf": "false",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "fetch.writeCommitGraph": "false",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
}
_SCOPES = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CEILING_DIRECTORIES": "",
    # As no setting does, this holds whatever a repository allows for a protocol by its name.
    "GIT_ALLOW_PROTOCOL": "file",
}
_NO_SETTINGS = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_DEFAULT_REF_FORMAT": "files",
    "LC_ALL": "C.UTF-8",
}
PATIENCE = 120.0
LONG = 3600.0
"""For what moves whole repositories."""


class Ran(NamedTuple):
    code: int
    out: bytes
    said: str


def environment(*, user_settings: bool = False) -> dict[str, str]:
    """Ours without anything that speaks to git; with `user_settings` the user's own remain."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if user_settings:
        return mine | {name: os.environ[name] for name in _SCOPES if name in os.environ} | _QUIET
    return mine | _QUIET | _NO_SETTINGS


def command(
    *words: str, settings: Mapping[str, str] | None = None, off: Mapping[str, str] = _ALL_OFF
) -> list[str]:
    """The words that start git with everything `off`, and `settings` in force."""
    git = shutil.which("git")
    if git is None:
        raise ConfigError("git is not installed", hint="install git (Debian: `apt install git`)")
    said = {**off, **(settings or {})}.items()
    return [git, *(word for name, value in said for word in ("-c", f"{name}={value}")), *words]


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    given: bytes = b"",
    patience: float = PATIENCE,
    held: Sequence[int] = (),
) -> Ran:
    """Run a command to its end; descriptors of `held` stay open for as long as it lives."""
    with subprocess.Popen(
        words,
        env=env,
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=tuple(held),
    ) as process:
        try:
            out, said = process.communicate(given, timeout=patience)
        except subprocess.TimeoutExpired:
            end(process)
            raise too_slow(words, patience) from None
        except BaseException:
            end(process)
            raise
    return Ran(process.returncode, out, told(process.returncode, said))


def told(code: int, said: bytes) -> str:
    """What a command complained of, also one that had no time to."""
    reason = f"fatal: {_NO_ROOM[0]}\n" if code == -signal.SIGXFSZ else ""
    return reason + said.decode("utf-8", "replace").strip()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def too_slow(words: Sequence[str], patience: float) -> Busy:
    # Not of the disk's refusals, after which another way is tried: it would wait as long.
    return Busy(
        f"git {_verb(words)} took longer than {patience:g} s and was ended",
        hint="the disk is slow, files are very large, or a pipe stands where git reads a file "
        "(`find . -type p`); the same call may be made again",
    )


_NO_ROOM = (
    "File too large",
    "No space left on device",
    "Disk quota exceeded",
    "Out of diskspace",
)


def refused(words: Sequence[str], said: str, path: str) -> StorageError | NotOurs:
    """The error for a command that failed."""
    if any(each in said for each in _NO_ROOM):
        return DiskFull(
            f"git {_verb(words)}: no room for it",
            hint="make room on the disk, then make the same call again",
            path=path,
        )
    if "dubious ownership" in said:
        return NotOurs(
            f"the repository belongs to another user: {path}",
            hint="`chown` it, or run holdfast as its owner; git does not trust it like this",
            path=path,
        )
    lines = said.split("\n")
    blamed = [line for line in lines if line.startswith(("fatal:", "error:"))]
    first = (blamed or lines)[0] or "no reason given"
    return StorageError(
        f"git {_verb(words)} failed: {first[:400]}",
        hint=f"look at it with `git -C {path} fsck`; is there space on the disk?",
        path=path,
    )


def _verb(words: Sequence[str]) -> str:
    options = iter(words[1:])
    for word in options:
        if word in ("-c", "-C"):
            next(options, None)
        elif not word.startswith("-"):
            return word
    return ""

"""A program in a folder: within limits, in a sandbox if need be, and nothing of it survives."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from holdfast.proc.tree import NO_LIMITS, Child, Tree

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.proc.limits import Ended, Limits, Progress
    from holdfast.proc.output import Keep, Stream
    from holdfast.workspace.sandbox import Sandbox

_SECRET = re.compile(r"HOLDFAST_.*(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)")


class Talk(TypedDict, total=False):
    """What a program is given while it runs, and who hears of it; `Tree` says more."""

    stdin: str | bytes | None
    on_start: Callable[[Child], None] | None
    on_output: Callable[[Stream, bytes], None] | None
    blocked: Callable[[], int | None] | None
    on_beat: Callable[[Progress], None] | None
    beat_every: float
    keep: Keep
    orphaned: Sequence[str] | None
    id: str | None
    clock: Clock | None


def program(
    command: Sequence[str],
    *,
    cwd: str | None = None,
    limits: Limits = NO_LIMITS,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    **talk: Unpack[Talk],
) -> Tree:
    """A program that can be started, or an error that says why not.

    It works in `cwd`, else where we are.  `env` replaces our environment without our secrets.
    """
    return Tree(
        command if sandbox is None else sandbox.wrap(command),
        limits=limits,
        env=our_environment() if env is None else env,
        cwd=cwd,
        **talk,
    )


def run(
    command: Sequence[str],
    *,
    cwd: str,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    **talk: Unpack[Talk],
) -> Ended:
    """Run a program in a folder to its end."""
    return program(command, cwd=cwd, limits=limits, env=env, sandbox=sandbox, **talk).run()


def our_environment() -> dict[str, str]:
    """Ours, without what only we need to know."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}

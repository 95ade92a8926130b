"""What a tree may use, and what is told about it while it runs and when it has ended."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from holdfast.errors import UsageError
from holdfast.proc.output import Captured

Means = Literal["cgroup", "pidns", "group"]
Outcome = Literal[
    "exited",  # the command ended by itself, with `code`
    "signaled",  # somebody else's signal ended it
    "timeout",
    "cpu",
    "memory",
    "output",
    "processes",
    "stopped",  # we were asked to
    "not_started",  # the kernel refused to run it; `error` says why
    "lost",  # the keeper was killed, and the tree with it: how the command ended is not known
]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The tree is ended when it goes beyond one of these; None is no limit."""

    time: float | None = None
    """Seconds, the sleep of the machine included."""
    cpu: float | None = None
    """Seconds of CPU, over all processes of the tree."""
    memory: int | None = None
    """Bytes in memory, over all processes of the tree."""
    output: int | None = None
    """Bytes on both pipes together."""
    processes: int | None = None
    """Processes and their threads at one time."""
    grace: float = 5.0
    """Seconds between SIGTERM and SIGKILL; 0 kills at once."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: float | None = getattr(self, field.name)
            least = 0 if field.name in ("grace", "output") else 1e-9
            if value is not None and not least <= value < float("inf"):
                raise UsageError(
                    f"a limit for {field.name} of {value}",
                    hint="give a number above zero, or nothing for no limit",
                )


class Sample(NamedTuple):
    """What a tree uses at one moment."""

    cpu: float = 0.0
    memory: int = 0
    processes: int = 0


class Progress(NamedTuple):
    """What a heartbeat can tell."""

    elapsed: float
    output_bytes: int
    last_line: str
    sample: Sample


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a tree ended, and what it used."""

    outcome: Outcome
    code: int | None
    """What the command exited with; also after a limit or a stop, if it still ended by itself."""
    signal: int | None
    duration: float
    cpu_seconds: float
    peak_memory: int
    output_bytes: int
    last_line: str
    """The last line that was not blank, on whichever pipe."""
    tail: str
    """The end of both outputs, in the order in which they came."""
    stdout: Captured
    stderr: Captured
    survivors_killed: int
    """Processes that outlived the command or the grace period."""
    left: int
    """Processes that not even SIGKILL ended: they wait in the kernel, or are another user's."""
    means: Means
    error: str | None = None

    @property
    def told_lost(self) -> str:
        return told_lost(self.left)

    @property
    def exit_code(self) -> int:
        """For a wrapper's own exit: the command's, 124 for a timeout, 128+n for a signal."""
        if self.outcome == "timeout":
            return 124
        if self.outcome == "not_started":
            return 126
        if self.signal is not None:
            return 128 + self.signal
        if self.outcome == "exited" and self.code is not None:
            return self.code
        return self.code or 1


def told_lost(left: int) -> str:
    """What `lost` is for people; `left` is how many processes not even SIGKILL ended."""
    ended = f"{left} of its processes do not end" if left else "all of it was ended"
    return f"the process that watched over it was killed, and {ended}"

"""A program in a folder: within limits, in a sandbox if need be, and nothing of it survives.

A gate is a command that has to succeed before a phase counts as done.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from holdfast.codec import Record
from holdfast.errors import HoldfastError, UsageError
from holdfast.mask.shown import end
from holdfast.proc.limits import Limits
from holdfast.proc.output import Keep
from holdfast.proc.survivors import Mark
from holdfast.proc.tree import Child, Tree

if TYPE_CHECKING:
    from holdfast.clock import Clock
    from holdfast.contracts.job_spec import Gate
    from holdfast.proc.limits import Ended, Progress
    from holdfast.proc.output import Stream
    from holdfast.workspace.sandbox import Sandbox

_SECRET = re.compile(r"HOLDFAST_.*(?:KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)")


class Terms(TypedDict, total=False):
    """Where and how a program runs, what it is given, and what is called; see `Tree`."""

    cwd: str | None
    limits: Limits
    stdin: str | bytes | int | None
    on_start: Callable[[Child], None] | None
    on_output: Callable[[Stream, bytes], None] | None
    blocked: Callable[[], int | None] | None
    on_beat: Callable[[Progress], None] | None
    beat_every: float
    keep: Keep
    orphaned: Sequence[str] | None
    mark: Mark
    clock: Clock | None


def program(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    **terms: Unpack[Terms],
) -> Tree:
    """A program that can be started, or an error that says why not.

    `env` replaces our environment without our secrets.
    """
    words = command if sandbox is None else sandbox.wrap(command)
    return Tree(words, env=our_environment() if env is None else env, **terms)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    **terms: Unpack[Terms],
) -> Ended:
    """Run a program to its end."""
    return program(command, env=env, sandbox=sandbox, **terms).run()


def our_environment() -> dict[str, str]:
    """Ours, without what only we need to know."""
    return {name: value for name, value in os.environ.items() if not _SECRET.fullmatch(name)}


# --- gates ----------------------------------------------------------------------------------

TIMED_OUT = 124
_SHOWN = 2_000
_FRESH = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python would trust what it compiled for the try before, if the new source has the same size and
was written within the same second: agents are that fast."""
_COUNTS = re.compile(r"(\d{1,9}) (passed|failed|errors?)\b")


class Passed(NamedTuple):
    """How the gates of a phase went; those behind the first that failed were not tried."""

    ok: bool
    seconds: float = 0.0
    runs: tuple[Record, ...] = ()
    test_pass_rate: str | None = None
    lost: bool = False
    """Whether the one that did not pass was ended by somebody, and says nothing about the work."""

    def record(self) -> Record:
        return {"ok": self.ok, "seconds": round(self.seconds, 3), "runs": list(self.runs)}

    @property
    def complaint(self) -> str:
        last = self.runs[-1]
        return f"gate {last['name']} ended with {last['exit_code']}: {last['output']}"


def pass_gates(
    gates: Sequence[Gate],
    folder: str,
    clock: Clock,
    sandbox: Sandbox | None = None,
    *,
    left: float,
) -> Passed:
    """Try them in turn; `left` is how many seconds the job has for all of them."""
    runs: list[Record] = []
    seconds, rate = 0.0, None
    for gate in gates:
        most = min(gate.timeout_seconds, left - seconds)
        ran, lost = _run(gate, most, folder, clock, sandbox)
        runs.append(ran)
        seconds += ran["seconds"]
        # The share of tests that passed, as most runners print it in their last lines.
        found = {word.removesuffix("s"): int(n) for n, word in _COUNTS.findall(ran["output"])}
        if total := sum(found.values()):
            rate = f"{100 * found.get('passed', 0) / total:g}%"
        if ran["exit_code"] != 0:
            return Passed(False, seconds, tuple(runs), rate, lost)
    return Passed(True, seconds, tuple(runs), rate)


def _run(
    gate: Gate, most: float, folder: str, clock: Clock, sandbox: Sandbox | None
) -> tuple[Record, bool]:
    ran: Record = {"name": gate.name or gate.run, "run": gate.run, "seconds": 0.0}
    if most <= 0:
        why = "it was not tried: the time of the job is used up"
        return ran | {"exit_code": TIMED_OUT, "output": why}, False
    try:
        ended = run(
            words_of(gate),
            cwd=folder,
            limits=Limits(time=most, grace=1.0),
            env=our_environment() | _FRESH,
            sandbox=sandbox,
            keep=Keep(_SHOWN, _SHOWN),
            clock=clock,
        )
    except HoldfastError as error:
        return ran | {"exit_code": 127, "output": error.message}, False
    output = end(ended.tail, _SHOWN).strip()
    if ended.outcome == "timeout":
        # First: what it printed until then may look like the reason.
        whose = "" if most == gate.timeout_seconds else ", all that the job had left"
        output = f"it did not end in {most:.3g} s{whose}\n{output}".strip()
    lost = ended.outcome == "lost"
    if lost:
        output = f"{ended.told_lost}\n{output}".strip()
    seconds = round(ended.duration, 3)
    return ran | {"exit_code": ended.exit_code, "seconds": seconds, "output": output}, lost


def doubts(gates: Iterable[Gate]) -> Iterator[str]:
    """Gates whose program is not there, or not yet."""
    for gate in gates:
        program = next(iter(words_of(gate)), "")
        if "/" not in program and shutil.which(program) is None:
            what = f"gate {gate.run[:80]!r}: there is no program {program!r}"
            yield f"{what}; gates run without a shell, for one write sh -c '…'"


def words_of(gate: Gate) -> list[str]:
    try:
        words = shlex.split(gate.run)
    except ValueError as error:
        raise UsageError(f"gate {gate.run[:80]!r}: {error}", hint="close the quote") from None
    if not words or not words[0] or "\0" in gate.run:
        raise UsageError(f"gate {gate.run[:80]!r} is no command", hint="such as `pytest -q`")
    return words

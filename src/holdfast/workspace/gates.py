"""Commands that have to succeed before a phase counts as done."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.clock import Clock
from holdfast.codec import Record
from holdfast.contracts.job_spec import Gate
from holdfast.errors import HoldfastError, UsageError
from holdfast.mask.shown import end
from holdfast.proc.limits import Limits
from holdfast.proc.output import Keep
from holdfast.workspace.command import our_environment, run
from holdfast.workspace.sandbox import Sandbox

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
        rate = _rate(ran["output"]) or rate
        if ran["exit_code"] != 0:
            return Passed(False, seconds, tuple(runs), rate, lost)
    return Passed(True, seconds, tuple(runs), rate)


def _run(
    gate: Gate,
    most: float,
    folder: str,
    clock: Clock,
    sandbox: Sandbox | None,
) -> tuple[Record, bool]:
    told: Record = {"name": gate.name or gate.run, "run": gate.run}
    if most <= 0:
        said = "it was not tried: the time of the job is used up"
        return {**told, "exit_code": TIMED_OUT, "seconds": 0.0, "output": said}, False
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
        return {**told, "exit_code": 127, "seconds": 0.0, "output": error.message}, False
    output = end(ended.tail, _SHOWN).strip()
    if ended.outcome == "timeout":
        # First: what it printed until then may look like the reason.
        whose = "" if most == gate.timeout_seconds else ", all that the job had left"
        output = f"it did not end in {most:.3g} s{whose}\n{output}".strip()
    lost = ended.outcome == "lost"
    if lost:
        output = f"{ended.told_lost}\n{output}".strip()
    told |= {"exit_code": ended.exit_code, "seconds": round(ended.duration, 3), "output": output}
    return told, lost


def doubts(gates: Iterable[Gate]) -> Iterator[str]:
    """Gates whose program is not there, or not yet."""
    for gate in gates:
        program = next(iter(words_of(gate)), "")
        if "/" not in program and shutil.which(program) is None:
            told = f"gate {gate.run[:80]!r}: there is no program {program!r}"
            yield f"{told}; gates run without a shell, for one write sh -c '…'"


def words_of(gate: Gate) -> list[str]:
    try:
        words = shlex.split(gate.run)
    except ValueError as error:
        raise UsageError(f"gate {gate.run[:80]!r}: {error}", hint="close the quote") from None
    if not words or not words[0] or "\0" in gate.run:
        raise UsageError(f"gate {gate.run[:80]!r} is no command", hint="such as `pytest -q`")
    return words


def _rate(output: str) -> str | None:
    """The share of tests that passed, as most runners tell it in their last lines."""
    found = {word.removesuffix("s"): int(count) for count, word in _COUNTS.findall(output)}
    total = sum(found.values())
    if not total or ("passed" not in found and "failed" not in found and "error" not in found):
        return None
    return f"{100 * found.get('passed', 0) / total:g}%"

"""The only way to a score: a commit is measured by the engine itself.

Each run has a checkout of its own, in which the sealed paths are those of the base.  The program
runs as a tree of processes with limits, a clean environment, and, where bubblewrap works, without
network and with the sealed paths read-only.  A program that is measured may be the candidate's
own, so the sealed paths are verified again afterwards.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from inspect import getsource
from typing import Literal, NamedTuple

from holdfast.clock import Clock
from holdfast.codec import Record, encode
from holdfast.errors import ConfigError, HoldfastError, UsageError
from holdfast.git.repository import FILE
from holdfast.improve import tracing
from holdfast.improve.scores import Format, NoScore, score_in
from holdfast.proc.limits import Ended, Limits
from holdfast.proc.output import Keep
from holdfast.workspace.command import run
from holdfast.workspace.repo import Checkout, Repo, Sealed
from holdfast.workspace.safedir import Folder
from holdfast.workspace.sandbox import Sandbox, bubblewrap

_KEPT = Keep(32 << 10, 64 << 10)
_MOST_TRACE = 16 << 20
_TRACE_PATIENCE = 10.0
"""How many times longer a benchmark may take while its lines are watched."""
_TRACE = ".holdfast-trace"
SEED = "HOLDFAST_SEED"
_RUNNER = """
import importlib.util, json, os, sys
def finite(value):
    return isinstance(value, (int, float, str, bool)) or value is None
out = os.dup(1)
os.dup2(2, 1)
spec = importlib.util.spec_from_file_location("evaluator", sys.argv[1])
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
module = importlib.util.module_from_spec(spec)
sys.modules["evaluator"] = module
spec.loader.exec_module(module)
result = module.evaluate(os.path.abspath(sys.argv[2]))
result = dict(getattr(result, "metrics", result))
plain = {}
for name, value in result.items():
    value = value.item() if hasattr(value, "item") else value
    if finite(value):
        plain[str(name)] = value
os.write(out, (json.dumps({"metrics": plain}) + "\\n").encode())
os._exit(0)
"""
"""Calls `evaluate(path)`; what it prints meanwhile goes to the other pipe."""

LIMITS = Limits(time=300.0, memory=4 << 30, output=64 << 20, processes=512, grace=1.0)
Status = Literal["ok", "error", "timeout"]


class Benchmark(NamedTuple):
    """How a checkout is measured."""

    command: str
    """For a shell; in the format `python`, `[PYTHON] EVALUATOR.py PROGRAM.py`."""
    format: Format = "json"
    primary: str = "primary"
    limits: Limits = LIMITS
    passed_on: tuple[str, ...] = ()
    """Variables of our environment that it gets."""

    @property
    def digest(self) -> str:
        return sha256(encode([self.command, self.format, self.primary])).hexdigest()

    def words(self) -> list[str]:
        if self.format != "python":
            return ["/bin/sh", "-c", self.command]
        words = shlex.split(self.command)
        python = [sys.executable] if words and words[0].endswith(".py") else words[:1]
        if len(words) - (not words[0].endswith(".py")) != 2:
            raise UsageError(
                f"not an evaluator and a program: {self.command[:80]!r}",
                hint="such as `evaluator.py initial_program.py`",
            )
        return [*python, "-c", _RUNNER, *words[-2:]]


class Evaluation(NamedTuple):
    """What one run of the benchmark gave."""

    status: Status
    score: float | None
    sub_scores: dict[str, float | None]
    raw: str
    seconds: float
    failure: Record | None = None
    """what, why, category and lesson; None where there is a score."""

    @property
    def is_ours(self) -> bool:
        """Whether it failed for reasons that are not the candidate's."""
        return self.failure is not None and self.failure["category"] == "infrastructure"


class Evaluator:
    def __init__(
        self, repo: Repo, folder: str, benchmark: Benchmark, sealed: Sealed, clock: Clock
    ) -> None:
        """`folder` is for checkouts."""
        self.repo, self.benchmark, self.sealed = repo, benchmark, sealed
        self._folder, self._clock = folder, clock
        self.isolation: Literal["sandbox", "none"] = "sandbox"
        try:
            bubblewrap()
        except ConfigError:
            self.isolation = "none"

    def evaluate(self, commit: str, *, seed: int = 0) -> Evaluation:
        return self._measured(commit, seed, None)

    def lines_run(self, commit: str, *, seed: int = 0) -> bytes:
        """What `tracing` tells of a run; empty if no Python could be watched."""
        trace = bytearray()
        self._measured(commit, seed, trace)
        return bytes(trace)

    def key(self, commit: str, seed: int) -> str:
        """What makes two measurements the same: files, seals, command and seed."""
        files = (self.repo.git.root(commit), self.sealed.base, list(self.sealed.paths))
        return sha256(encode([*files, self.benchmark.digest, seed])).hexdigest()

    def _measured(self, commit: str, seed: int, trace: bytearray | None) -> Evaluation:
        folder = os.path.join(self._folder, "measured")
        try:
            checkout = self.repo.checkout(commit, folder, sealed=self.sealed)
            try:
                ended = self._run(checkout, seed, trace)
                return self._judged(ended, checkout)
            finally:
                checkout.remove()
        except (HoldfastError, OSError) as error:
            why = error.message if isinstance(error, HoldfastError) else str(error)
            failed = failure("the benchmark could not be run", why, "infrastructure")
            return Evaluation("error", None, {}, "", 0.0, failed)

    def _run(self, checkout: Checkout, seed: int, trace: bytearray | None) -> Ended:
        limits, benchmark = self.benchmark.limits, self.benchmark
        env = self._environment(seed, checkout.path)
        place = os.path.join(checkout.path, _TRACE)
        if trace is not None:
            with Folder(checkout.path) as files:
                files.put(f"{_TRACE}/sitecustomize.py", FILE, [getsource(tracing).encode()], files)
            env |= {"PYTHONPATH": place, tracing.ROOT: checkout.path, tracing.OUT: f"{place}/lines"}
            if limits.time is not None:
                limits = replace(limits, time=limits.time * _TRACE_PATIENCE, cpu=None)
        sealed = [os.path.join(checkout.path, each) for each in self.sealed.paths]
        frozen = tuple(path for path in sealed if os.path.exists(path))
        sandbox = Sandbox(checkout.path, network=False, frozen=frozen)
        ended = run(
            benchmark.words(),
            cwd=checkout.path,
            limits=limits,
            env=env,
            sandbox=sandbox if self.isolation == "sandbox" else None,
            keep=_KEPT,
            clock=self._clock,
        )
        if trace is not None:
            with Folder(checkout.path) as files:
                trace += files.small(f"{_TRACE}/lines", _MOST_TRACE) or b""
        return ended

    def _environment(self, seed: int, files: str) -> dict[str, str]:
        """Nothing of ours but where programs are, and what the user passes on."""
        passed = {name: os.environ[name] for name in self.benchmark.passed_on if name in os.environ}
        scratch = "/tmp" if self.isolation == "sandbox" else files
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": scratch,
            "TMPDIR": scratch,
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            SEED: str(seed),
            **passed,
        }

    def _judged(self, ended: Ended, checkout: Checkout) -> Evaluation:
        raw, seconds = ended.stdout.text, round(ended.duration, 6)
        failed = _outcome(ended, (0, 1) if self.benchmark.format == "pass_fail" else (0,))
        broken = checkout.broken()
        if broken:
            paths = ", ".join([*broken.added, *broken.changed, *broken.removed][:5])
            failed = failure(
                f"sealed files were changed while it ran: {paths}",
                "the candidate's code writes where the benchmark lies",
                "sealed_file_violation",
            )
        if failed is None:
            benchmark = self.benchmark
            try:
                found = score_in(raw, ended.code or 0, benchmark.format, benchmark.primary)
                return Evaluation("ok", found.value, found.sub_scores, raw, seconds)
            except NoScore as error:
                why = "what it prints is not in the format that was agreed on"
                failed = failure(str(error), why, "benchmark_parse_error")
        status: Status = "timeout" if failed["category"] == "timeout" else "error"
        return Evaluation(status, None, {}, raw, seconds, failed)


def _outcome(ended: Ended, fine: Sequence[int]) -> Record | None:
    """What failed, if the program did not end as a benchmark does."""
    said = next(reversed(ended.tail.strip().splitlines()), "")[:300]
    took = f"after {ended.duration:.3g} s"
    verb, category = {
        "timeout": (f"used up its time {took}", "timeout"),
        "cpu": (f"used up its CPU time {took}", "timeout"),
        "memory": (f"used {ended.peak_memory} bytes", "oom"),
        "output": ("went over its limit of output", "logic_error"),
        "processes": ("went over its limit of processes", "logic_error"),
        "not_started": ("could not be run", "infrastructure"),
        "lost": ("could not be run", "infrastructure"),
        "signaled": (f"was ended by signal {ended.signal}", "logic_error"),
        "stopped": (f"was ended by signal {ended.signal}", "logic_error"),
        "exited": (f"ended with exit code {ended.code}", "logic_error"),
    }[ended.outcome]
    if ended.outcome == "exited" and ended.code in fine:
        return None
    if ended.outcome == "exited" and "MemoryError" in ended.tail[-2000:]:
        verb, category = "ran out of memory", "oom"
    if category == "infrastructure":
        said = ended.error or ended.told_lost
    return failure(f"the benchmark {verb}", said, category)


def failure(what: str, why: str, category: str = "logic_error", lesson: str = "") -> Record:
    return {
        "what": what[:1000],
        "why": why.strip()[:1000] or "not known",
        "category": category,
        "lesson": lesson or _LESSONS[category],
    }


_LESSONS: Mapping[str, str] = {
    "oom": "use less memory",
    "timeout": "keep within the time limit of the benchmark",
    "regression": "this change makes the score worse, or not measurably better",
    "logic_error": "make sure that the changed code runs to its end",
    "scope_error": "change only files that are in scope",
    "infrastructure": "not the candidate's fault; try it again",
    "benchmark_parse_error": "leave what the benchmark prints alone",
    "sealed_file_violation": "sealed files and what the benchmark loads must stay as they are",
}

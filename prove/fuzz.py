"""fuzz: bytes that nobody thought of, into every reader of files.

libFuzzer (by atheris) invents inputs for the functions of `fuzz_targets` and keeps those that
reach code no other input has reached.  Only typed errors may come out, what is checked there
has to hold, and no input may take long or half a gigabyte.

    python -m prove.fuzz TARGET RUNS SEED ARTIFACTS CORPUS…     (one target, until it breaks)

A case is one input.  Inputs count as fired if libFuzzer says that it ran them and that the
code under them was instrumented.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from prove import frame
from prove.frame import Control, Harness, Result

CORPUS = frame.PROVE / "corpus"
_RUNS = {"quick": 500, "ci": 8_000, "full": 200_000}
"""Inputs for each target."""
TARGETS = tuple(sorted(path.name for path in CORPUS.iterdir())) if CORPUS.is_dir() else ()
_LONGEST = {"settings": 4096}
_ELSE = 1024
_SECONDS, _MEGABYTES = 20, 512
"""For one input; of the seconds a busy machine may take most."""
_CONTROL_RUNS = 1_000_000


def _no_atheris(tier: str) -> str | None:
    return None if importlib.util.find_spec("atheris") else "needs the Python package atheris"


HARNESS = Harness(
    name="fuzz",
    proves="Readers of files answer any bytes with a typed error or with what is in them.",
    targets={tier: runs * len(TARGETS) for tier, runs in _RUNS.items()},
    unit="inputs",
    missing=_no_atheris,
)


class Fuzzed(NamedTuple):
    """What came of one target."""

    target: str
    executed: int
    reached: int
    """Places in the code; 0 if nothing was instrumented."""
    seconds: float
    megabytes: int
    broken: str
    """What the target said about the input that broke it."""
    found: bytes = b""

    @property
    def case(self) -> str:
        return f"{self.target}:{base64.b64encode(zlib.compress(self.found)).decode()}"


def fuzzed(target: str, runs: int, seed: int) -> Fuzzed:
    """Feed a target in a process of its own."""
    with frame.scratch("fuzz") as place:
        (place / "new").mkdir()
        seeds = [str(CORPUS / target)] if (CORPUS / target).is_dir() else []
        command = [sys.executable, "-m", "prove.fuzz", target, str(runs), str(seed)]
        started = time.monotonic()
        done = subprocess.run(
            [*command, f"{place}/", str(place / "new"), *seeds],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=frame.child_environment(),
        )
        spent = time.monotonic() - started
        artifacts = [path for path in place.iterdir() if path.is_file()]
        found = artifacts[0].read_bytes() if artifacts else b""
    said = done.stdout + done.stderr
    broken = ""
    if done.returncode != 0 or artifacts:
        named = re.search(r"^\w[\w.]*(?:Error|Exception)\b.*|ERROR: .*", said, re.MULTILINE)
        broken = named[0][:300] if named else f"exit status {done.returncode}: {said[-300:]}"
    return Fuzzed(
        target,
        _number(r"stat::number_of_executed_units: (\d+)", said),
        _number(r"cov: (\d+)", said),
        spent,
        _number(r"stat::peak_rss_mb: +(\d+)", said),
        broken,
        found,
    )


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def run(tier: str, seed: int, case: str | None = None) -> Result:
    result = Result(HARNESS.name, tier)
    if case is not None and ":" in case:
        _again(result, case)
        return result
    chosen = TARGETS if case is None else (case,)
    per_target: dict[str, dict[str, float]] = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for one in pool.map(lambda target: fuzzed(target, _RUNS[tier], seed), chosen):
            # The examples are run first; libFuzzer counts them too.
            result.tried += max(one.executed, 1)
            result.fired += one.executed if one.reached else 0
            result.survived += max(one.executed, 1) - bool(one.broken)
            if one.broken:
                result.add_failure(one.case, f"{one.target}: {one.broken}")
            per_target[one.target] = {
                "inputs": one.executed,
                "per_second": round(one.executed / one.seconds),
                "places_reached": one.reached,
                "megabytes": one.megabytes,
            }
    result.details = {"engine": "atheris (libFuzzer)", "targets": per_target}
    return result


def _again(result: Result, case: str) -> None:
    """One input again, without the fuzzer."""
    name, _, text = case.partition(":")
    targets = importlib.import_module("prove.fuzz_targets")
    result.tried = result.fired = 1
    try:
        targets.TARGETS[name](zlib.decompress(base64.b64decode(text)))
    except Exception as error:
        result.add_failure(case, f"{name}: {type(error).__name__}: {error}")
    else:
        result.survived = 1


def control(seed: int) -> list[Control]:
    """A bug behind a word of three bytes is found; and every target has its examples."""
    one = fuzzed("planted", _CONTROL_RUNS, seed)
    caught = "planted" in one.broken and one.found.startswith(b"hf!")
    named = set(importlib.import_module("prove.fuzz_targets").TARGETS)
    without = named.symmetric_difference(TARGETS)
    return [
        Control("planted", caught, f"after {one.executed} inputs: {one.broken}"),
        Control("examples for every target", not without, ", ".join(sorted(without))),
    ]


# --- in the process that is fed -------------------------------------------------------------


def feed(target: str, runs: str, seed: str, artifacts: str, *corpus: str) -> None:
    import atheris  # noqa: PLC0415 - an extra of the developers

    with atheris.instrument_imports(include=["holdfast", "prove.fuzz_targets"]):
        targets = importlib.import_module("prove.fuzz_targets")
    function = {**targets.TARGETS, "planted": targets.planted}[target]
    options = {
        "runs": runs,
        # libFuzzer takes 32 bits, and 0 for "by chance".
        "seed": int(seed) % (2**32 - 1) + 1,
        "max_len": _LONGEST.get(target, _ELSE),
        "timeout": _SECONDS,
        "rss_limit_mb": _MEGABYTES,
        "artifact_prefix": artifacts,
        "print_final_stats": 1,
    }
    settings = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup(["fuzz", *settings, *corpus], function)
    atheris.Fuzz()


if __name__ == "__main__":
    feed(*sys.argv[1:])

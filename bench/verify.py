"""Verifying: following the chain over a million lines, against only hashing their bytes."""

from __future__ import annotations

import statistics
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from bench.frame import (
    REPO,
    Bar,
    Outcome,
    Setup,
    child_environment,
    ratios,
    rounded,
    seconds_of,
    significant,
)
from bench.material import fill, home_in, records
from holdfast.store.primitives import Verified

KEY = "ledger.jsonl"
LINES, QUICK_LINES = 1_000_000, 100_000
MOST_SECONDS = 4.0
_CHUNK = 1 << 20


def run(setup: Setup) -> Outcome:
    lines = QUICK_LINES if setup.quick else LINES
    some = records(setup.rng("records"), 500)
    with home_in(setup.scratch / "home") as home:
        log = home.log(KEY)
        fill(log, some, lines)
        log.close()
    files = sorted((setup.scratch / "home").glob("ledger*.jsonl"))
    size = sum(file.stat().st_size for file in files)
    ours: list[float] = []
    raw: list[float] = []
    with home_in(setup.scratch / "home") as home:
        log = home.log(KEY)
        for _ in range(setup.pairs):
            raw.append(seconds_of(lambda: hash_only(files)))
            ours.append(seconds_of(lambda: check(log.verify(), lines)))
        log.close()
    alone = seconds_of(lambda: stand_alone(files))
    scale = LINES / lines
    scaled = "" if scale == 1 else f", scaled from {lines:,} lines"
    # Hashing is the rate that could at best be had.
    share = ratios(raw, ours)
    outcome = Outcome()
    outcome.numbers = {
        "lines": lines,
        "bytes": size,
        "seconds": rounded(ours),
        "raw_seconds": rounded(raw),
        "ratio_to_raw": rounded(share),
        "lines_per_second": rounded([lines / each for each in ours]),
        "mb_per_second": rounded([size / each / 1e6 for each in ours]),
        "raw_mb_per_second": rounded([size / each / 1e6 for each in raw]),
        "tools/verify_log.py seconds": significant(alone),
    }
    outcome.bars.append(
        Bar(
            f"verify of {LINES:,} lines{scaled}",
            statistics.median(ours) * scale,
            "<",
            MOST_SECONDS,
            "s",
            timed=True,
            alone=True,
            beside=tuple(raw),
        )
    )
    return outcome


def check(found: Verified, lines: int) -> None:
    if found.sealed != lines or found.problems or found.bad:
        raise AssertionError(f"{lines} written, {found.sealed} verified: {found.problems[:3]}")


def hash_only(files: list[Path]) -> None:
    """The raw limit: read everything and hash it once."""
    digest = sha256()
    for path in files:
        with path.open("rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                digest.update(data)


def stand_alone(files: list[Path]) -> None:
    """The verifier that shares no code with us, as a process."""
    command = [sys.executable, str(REPO / "tools/verify_log.py"), *map(str, files)]
    subprocess.run(command, env=child_environment(), check=True, stdout=subprocess.DEVNULL)

"""Validating: a ledger with all cross-checks, against a compiled schema check of the same lines."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastjsonschema
import orjson

from bench.frame import Bar, Outcome, Setup, ratios, rounded, seconds_of
from bench.material import CROWD
from holdfast.clock import FakeClock
from holdfast.contracts.kinds import kind
from holdfast.contracts.schema import schema_of
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows
from holdfast.ops.validate import validate
from holdfast.store.home import Home

LINES, QUICK_LINES = 100_000, 10_000
MOST_SECONDS = 2.5
_DATA: dict[str, Any] = {
    "task_start": {"task_type": "code_review", "target_files": ["a.py", "b.py"]},
    "info": {"message": "half of it is read"},
    "heartbeat": {},
    "error": {"error": "no answer within 300s", "stack": "Traceback"},
    "task_result": {"status": "success", "duration_sec": 12.5, "files_touched": ["a.py"]},
}


def run(setup: Setup) -> Outcome:
    lines = QUICK_LINES if setup.quick else LINES
    files = written(setup.scratch / "home", lines)
    fits = fastjsonschema.compile(schema_of(kind("ledger"), draft="7"))
    ours: list[float] = []
    raw: list[float] = []
    for _ in range(setup.pairs):
        raw.append(seconds_of(lambda: check_schema_only(fits, files, lines)))
        ours.append(seconds_of(lambda: check_all(files, lines)))
    share = ratios(raw, ours)
    scale = LINES / lines
    scaled = "" if scale == 1 else f", scaled from {lines:,} lines"
    outcome = Outcome()
    outcome.numbers = {
        "lines": lines,
        "bytes": sum(file.stat().st_size for file in files),
        "seconds": rounded(ours),
        "fastjsonschema_seconds": rounded(raw),
        "times_as_fast": rounded(share),
        "lines_per_second": rounded([lines / each for each in ours]),
    }
    outcome.bars += [
        Bar("cross-checks that notice a fault", faults_noticed(setup, files), "==", len(FAULTS)),
        Bar(
            f"validate of {LINES:,} ledger lines with all cross-checks{scaled}",
            statistics.median(ours) * scale,
            "<",
            MOST_SECONDS,
            "s",
            timed=True,
            alone=True,
            beside=tuple(raw),
        ),
        Bar(
            "times as fast as fastjsonschema's check of the schema alone",
            statistics.median(share),
            ">=",
            1.0,
            timed=True,
            beside=tuple(raw),
        ),
    ]
    return outcome


def written(home: Path, lines: int) -> list[Path]:
    """The files of a ledger that Holdfast wrote."""
    clock = FakeClock()
    with Home.open(str(home), create=True, timezone="UTC", clock=clock) as opened:
        log = opened.log("ledger/rio")
        session = f"{opened.day()}_rio_001"
        for start in range(0, lines, CROWD):
            log.append_all([entry(number, session) for number in range(start, start + CROWD)])
            clock.advance(1)
        log.close()
    return sorted(home.glob("ledger/rio/*.jsonl"))


def entry(number: int, session: str) -> dict[str, Any]:
    """Tasks of five events each."""
    event = list(_DATA)[number % len(_DATA)]
    return {
        "agent": "rio",
        "session_id": session,
        "event": event,
        "task_id": f"wo-{number // len(_DATA):06d}",
        "source": "dispatcher",
        "summary": f"Event {number} of a session that reads, writes and waits for its turn",
        "data": _DATA[event],
    }


def check_all(files: Sequence[Path], lines: int) -> None:
    found = validated(files)
    counts = found.counts
    if found.rows or counts["ledger@1.0"] != lines or counts["unchained"]:
        raise AssertionError(f"{lines} written, {counts} found: {found.rows[:3]}")


def validated(files: Sequence[Path]) -> Rows:
    with Context() as context:
        return validate(context, [str(file) for file in files])


def check_schema_only(fits: Callable[[Any], Any], files: Sequence[Path], lines: int) -> None:
    """The limit: parse every line and hold it against the schema, and nothing else."""
    seen = 0
    for file in files:
        for line in file.read_bytes().splitlines():
            fits(orjson.loads(line))
            seen += 1
    if seen != lines:
        raise AssertionError(f"{lines} written, {seen} read")


# --- that nothing is left out -------------------------------------------------------------------

Change = Callable[[list[bytes]], object]


def edited(old: bytes, new: bytes) -> Change:
    def change(lines: list[bytes]) -> None:
        assert old in lines[50]
        lines[50] = lines[50].replace(old, new)

    return change


FAULTS: dict[str, Change] = {
    "chain": edited(b"Event 50", b"Event 51"),
    "seq": lambda lines: lines.pop(50),
    "duplicate": lambda lines: lines.append(lines[51][: lines[51].index(b',"seq"')] + b"}\n"),
    "orphan": lambda lines: lines.pop(54),
    "date": edited(b'"ts":"20', b'"ts":"19'),
    "time_order": edited(b'"ts":"20', b'"ts":"19'),
    "agent_path": edited(b'"agent":"rio"', b'"agent":"leo"'),
    "session_agent": edited(b"_rio_", b"_leo_"),
    "id": lambda lines: [lines.append(b'{"ledger_id":"a","agent":"rio"}\n') for _ in range(2)],
    "choice": edited(b'"task_start"', b'"task_stare"'),
    "unknown_field": edited(b'{"ts"', b'{"x":1,"ts"'),
    "not_strict": edited(b'{"ts"', b'{"agent":"rio","ts"'),
    "torn": lambda lines: lines.append(b'{"ts":'),
}


def faults_noticed(setup: Setup, files: Sequence[Path]) -> int:
    """How many of the faults are told when a ledger has them."""
    good = files[0].read_bytes().splitlines(keepends=True)[:100]
    noticed = 0
    for code, change in FAULTS.items():
        lines = list(good)
        change(lines)
        path = setup.scratch / "faults/ledger/rio" / files[0].name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(lines))
        noticed += code in {row["code"] for row in validated([path]).rows}
    return noticed

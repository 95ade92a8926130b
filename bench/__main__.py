"""Measure the store against the raw limits of this machine.

    python -m bench [NAME] [--quick] [--seed N] [--dir PATH]

Prints every bar with its value.  A full run keeps its results in `bench/results` and the table
in `docs/benchmarks.md`; a quick one checks counts, reports times, and keeps nothing.
The last line is `N passed, N failed`, with `, N skipped` for what is inconclusive or absent.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from bench import frame, report

# Run as `python -m bench` from a checkout: the package under test is beside us.
sys.path.insert(0, str(frame.REPO / "src"))


def main() -> int:
    chosen = arguments()
    # So that children that were stopped for another's turn are ended, and scratch is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    counts: Counter[str] = Counter()
    for name in [chosen.name] if chosen.name else frame.NAMES:
        try:
            record = frame.run(name, chosen.dir, seed=chosen.seed, quick=chosen.quick)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            print(f"{name}: the benchmark itself failed", flush=True)
            counts["failed"] += 1
            continue
        show(record)
        counts.update(bar["verdict"] for bar in record["bars"])
        if not chosen.quick:
            frame.store(record)
            report.write()
    skipped = counts["inconclusive"] + counts["absent"]
    tally = f"{counts['passed']} passed, {counts['failed']} failed"
    print(tally + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if counts["failed"] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure the store.")
    names = (*frame.NAMES, *frame.BY_NAME_ONLY)
    asked_for = f"{', '.join(names)}; without it all but {', '.join(frame.BY_NAME_ONLY)}"
    parser.add_argument("name", nargs="?", metavar="NAME", help=asked_for)
    parser.add_argument("--quick", action="store_true", help="small; only counts are judged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--dir", type=Path, default=frame.SCRATCH, help="where temporary files go; bench/tmp"
    )
    chosen = parser.parse_args()
    if chosen.name and chosen.name not in names:
        parser.error(f"no benchmark {chosen.name!r}; there are {', '.join(names)}")
    chosen.dir = chosen.dir.resolve()
    return chosen


def show(record: dict[str, Any]) -> None:
    load = f"load {record['load_before'][0]} before, {record['load_after'][0]} after"
    load += f", {record['others']:.0%} of the processors to others"
    print(f"{record['name']}: {record['seconds']} s on {record['file_system']}, {load}")
    for bar in record["bars"]:
        if bar["verdict"] == "absent":
            print(f"  {'absent':<13}{bar['what']}")
        else:
            limit = f"{bar['sense']} {bar['limit']:g}"
            value = f"{bar['value']:g} {bar['unit']}".rstrip()
            print(f"  {bar['verdict']:<13}{bar['what']}: {value} ({limit})")
        if bar["verdict"] in ("inconclusive", "absent"):
            reason = f"{record['name']}: {bar['what']}: {bar['reason']}"
            print(json.dumps({"skipped": reason}, ensure_ascii=False))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

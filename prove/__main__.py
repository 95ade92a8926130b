"""Run the harnesses.

    python -m prove [--name NAME] [--tier quick|ci|full] [--seed S] [--case CASE]
    python -m prove --name mutants --area AREA [--seed S]
    python -m prove --plan quick|ci
    python -m prove --report
    python -m prove --list

One line of JSON for each harness, then `N passed, N failed` as the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from typing import Any

# Run as `python -m prove` from a checkout: the package under test is beside us.
from prove import frame, sampled
from tools.workers import Piece, in_workers

sys.path.insert(0, str(frame.REPO / "src"))


def main() -> int:
    chosen = _arguments()
    if chosen.report:
        print(report())
        return 0
    harnesses = frame.discover()
    if chosen.plan:
        for name in harnesses:
            print(json.dumps(planned(name, chosen.plan)))
        return 0
    if chosen.list:
        for name, module in harnesses.items():
            print(f"{name:<14}{module.HARNESS.proves}")
        return 0
    if chosen.name and chosen.name not in harnesses:
        print(f"no harness {chosen.name!r}; there are {', '.join(harnesses)}", file=sys.stderr)
        return 2
    if chosen.area:
        sampled.run(chosen.area, chosen.seed or "1")
        return 0
    if chosen.name:
        return tally(Counter([run_one(harnesses[chosen.name], chosen)]))
    pieces = [
        Piece(
            name,
            about(module.HARNESS, chosen.tier),
            lambda _, module=module: run_one(module, chosen),
        )
        for name, module in harnesses.items()
    ]
    return tally(Counter(done.value or "failed" for done in in_workers(pieces)))


def tally(counts: Counter[str]) -> int:
    """Print the last line; the exit status."""
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}", flush=True)
    return 1 if counts["failed"] else 0


def run_one(module: frame.ModuleType, chosen: argparse.Namespace) -> str:
    """Run a harness, print its line, keep its record; `passed`, `failed` or `skipped`."""
    name: str = module.HARNESS.name
    before, source = os.getloadavg()[0], frame.trees(name)
    seed = frame.seed_of(chosen.seed)
    result = frame.run_harness(module, chosen.tier, seed, chosen.case)
    if not result.skipped and frame.trees(name) != source:
        result.details["faults"].append("the source was changed while the harness ran")
    record = frame.record_of(result, seed, (before, os.getloadavg()[0]))
    print(json.dumps({key: record[key] for key in _SHOWN}), flush=True)
    if result.skipped:
        print(f"{result.name}: skipped: {result.skipped}", file=sys.stderr)
        return "skipped"
    if chosen.case is None:
        frame.store(record)
    faults = result.details["faults"]
    for fault in faults:
        print(f"{result.name}: {fault}", file=sys.stderr)
    for case, says, trace in result.failures:
        again = f"python -m prove --name {result.name} --tier {result.tier} --seed {seed}"
        print(f"{result.name}: {says}\n  again: {again} --case '{case}'", file=sys.stderr)
        for row in trace:
            print(f"    {row}", file=sys.stderr)
    return "failed" if faults else "passed"


def planned(name: str, tier: str) -> dict[str, Any]:
    """The tier in which a harness has to run for `tier`, None for not at all, and about how long.

    A full or ci result of the same store and harness holds; the quick tier adds cases to it.
    """
    harness: frame.Harness = frame.discover()[name].HARNESS
    results = [frame.stored(name, each) for each in ("full", "ci")]
    holds = any(record and not record["details"]["faults"] for record in results)
    run = tier
    if holds and not harness.beyond_store:
        run = {"ci": "quick"}.get(tier)
    return {"name": name, "tier": run, "seconds": about(harness, run or tier)}


def about(harness: frame.Harness, tier: str) -> float:
    """How long a tier takes, from the last full result."""
    try:
        text = (frame.RESULTS / f"{harness.name}.full.json").read_text("utf-8")
    except FileNotFoundError:
        return 30.0
    share = harness.targets[tier] / harness.targets["full"]
    return round(3 + json.loads(text)["seconds"] * share, 1)


_SHOWN = (
    "name",
    "tier",
    "seed",
    "tried",
    "fired",
    "survived",
    "lost",
    "failed",
    "skipped",
    "seconds",
    "details",
)


def report() -> str:
    """A table of the results that belong to the tree as it is."""
    rows = ["| harness | tier | tried | fired | lost | failed | s | seed | verdict | proves |"]
    rows.append("|---|---|--:|--:|--:|--:|--:|---|---|---|")
    for name, module in frame.discover().items():
        for tier in frame.TIERS:
            record = frame.stored(name, tier)
            if record is None:
                rows.append(f"| {name} | {tier} |  |  |  |  |  |  | absent |  |")
                continue
            verdict = "FAILED" if record["details"]["faults"] else "passed"
            numbers = " | ".join(
                str(record[key]) for key in ("tried", "fired", "lost", "failed", "seconds", "seed")
            )
            rows.append(f"| {name} | {tier} | {numbers} | {verdict} | {module.HARNESS.proves} |")
    rows.append("")
    rows.append(f"store tree `{frame.tree_hash(frame.REPO / 'src/holdfast/store')[:16]}`")
    return "\n".join(rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="prove", description="Run the fault harnesses.")
    parser.add_argument("--name", help="this harness only")
    parser.add_argument("--tier", choices=frame.TIERS, default="quick")
    parser.add_argument("--seed", help="a number, or any text such as a commit")
    parser.add_argument("--case", help="one failed case again, with the seed it was found with")
    parser.add_argument(
        "--area", nargs="+", choices=sampled.AREAS, help="samples outside the store, kept"
    )
    parser.add_argument("--plan", choices=("quick", "ci"), help="which tier each would run in")
    parser.add_argument("--report", action="store_true", help="table of the stored results")
    parser.add_argument("--list", action="store_true", help="the harnesses and what they prove")
    chosen = parser.parse_args()
    if chosen.area and chosen.name != "mutants":
        parser.error("--area needs --name mutants")
    if chosen.case and not chosen.name:
        parser.error("--case needs --name")
    return chosen


if __name__ == "__main__":
    sys.exit(main())

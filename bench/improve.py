"""Campaigns on the tasks of `examples/improve`, beside random search of the same budget.

Bin packing has 300 evaluations, circle packing four minutes for each of three seeds with a number
of circles that is drawn; the control has as many evaluations.  A proposer that changes nothing must
merge nothing.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.frame import REPO, Bar, Outcome, Setup, significant

EVALUATIONS, QUICK_EVALUATIONS = 300, 30
MOST_EXCESS = 3.6
SECONDS, QUICK_SECONDS = 240, 15
SEEDS = 3
FEWEST, MOST = 20, 32
RECORDS = {"AlphaEvolve": 2.63586276, "OpenEvolve": 2.634292, "ShinkaEvolve": 2.63598325}
"""Published sums of radii for 26 circles."""
NULL_ROUNDS, QUICK_NULL_ROUNDS = 10, 2
_MAKES = REPO / "examples/improve/run.py"


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    _bins(setup, outcome)
    _circles(setup, outcome)
    _nothing(setup, outcome)
    return outcome


def _bins(setup: Setup, outcome: Outcome) -> None:
    evaluations = int(setup.pick(EVALUATIONS, QUICK_EVALUATIONS))
    home = _example().campaign("bin_packing", _place(setup, "bins"), "--seed", str(setup.seed))
    _do(home, "run", "bin_packing", "--eval-budget", str(evaluations))
    held = _do(home, "finalize", "bin_packing")["data"]["holdout"]
    found = _status(home, "bin_packing")
    outcome.numbers["bin_packing"] = {**_shown(found), "holdout": held}
    best = found["best"]
    if not setup.quick:
        bar = Bar(f"excess after {evaluations} evaluations", best, "<=", MOST_EXCESS, "%")
        outcome.bars.append(bar)
    outcome.bars += [
        Bar("hold-out less that of best fit", held["result"] - held["base"], "<", 0, "%"),
        Bar("excess less that of random search", best - found["control"]["best"], "<", 0, "%"),
    ]


def _circles(setup: Setup, outcome: Outcome) -> None:
    number = setup.rng("circles").randint(FEWEST, MOST)
    seconds = int(setup.pick(SECONDS, QUICK_SECONDS))
    rows: list[dict[str, Any]] = []
    for seed in range(1, int(setup.pick(SEEDS, 1)) + 1):
        rows.append(_packed(setup, number, seed, seconds))
    ahead = sum(row["best"] > row["random_search"] for row in rows)
    outcome.bars.append(Bar(f"seeds ahead of random search, n = {number}", ahead, ">=", len(rows)))
    outcome.numbers["circle_packing"] = {"n": number, "seconds": seconds, "seeds": rows}
    if not setup.quick:
        known = _packed(setup, 26, 1, seconds)
        outcome.numbers["circle_packing_26"] = {**known, "published": RECORDS}


def _packed(setup: Setup, number: int, seed: int, seconds: int) -> dict[str, Any]:
    example = _example()
    place = _place(setup, f"circles-{number}-{seed}")

    def draw(at: Path) -> None:
        chance = setup.rng(f"start {number} {seed}")
        rows = (f"    ({chance.random():.6f}, {chance.random():.6f}),\n" for _ in range(number))
        path = at / "pack.py"
        head, rest = path.read_text(encoding="utf-8").split("START = [  # search: 0..1\n", 1)
        rest = rest[rest.index("\n]") + 1 :]
        text = f"{head}START = [  # search: 0..1\n{''.join(rows)}{rest}"
        path.write_text(text, encoding="utf-8")
        (at / "bench/circles.txt").write_text(f"{number}\n", encoding="utf-8")

    home = example.campaign("circle_packing", place, "--seed", str(seed), change=draw)
    _do(home, "run", "circle_packing", "--deadline", f"{seconds}s")
    _do(home, "report", "circle_packing", "--control")
    found = _status(home, "circle_packing")
    return {"seed": seed, **_shown(found)}


def _nothing(setup: Setup, outcome: Outcome) -> None:
    merged: dict[str, int] = {}
    for task in ("bin_packing", "circle_packing", "wall_clock"):
        home = _example().campaign(task, _place(setup, f"null-{task}"))
        rounds = str(int(setup.pick(NULL_ROUNDS, QUICK_NULL_ROUNDS)))
        _do(home, "run", task, "--rounds", rounds, "--executor", "null")
        merged[task] = _status(home, task)["merged"]
    outcome.numbers["null_proposer_merges"] = merged
    outcome.bars.append(
        Bar("merges of a proposer that changes nothing", sum(merged.values()), "==", 0)
    )


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "baseline": significant(found["baseline"], 9),
        "best": significant(found["best"], 9),
        "random_search": significant(found["control"]["best"], 9),
        "evaluations": found["evaluations"],
        "rounds": found["iterations"],
        "merged": found["merged"],
    }


def _place(setup: Setup, name: str) -> Path:
    place = setup.scratch / name
    place.mkdir()
    return place


def _status(home: Path, task: str) -> dict[str, Any]:
    return _do(home, "status", task)["data"]


def _do(home: Path, verb: str, *words: str) -> dict[str, Any]:
    """A verb's envelope; 1 is how a run ends whose budget is used up."""
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "improve", verb, *words]
    ran = subprocess.run([*command, "--json"], capture_output=True, check=False)
    if ran.returncode not in (0, 1) or not ran.stdout:
        raise RuntimeError(f"{' '.join(words)}: {ran.stderr.decode(errors='replace')[-600:]}")
    return json.loads(ran.stdout)


def _example() -> Any:
    spec = importlib.util.spec_from_file_location("improve_example", _MAKES)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""The ledger: an event written, against its bytes alone; finding and verifying among a million."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from bench.frame import (
    Bar,
    Outcome,
    Setup,
    child_environment,
    interleaved,
    ratios,
    rounded,
    seconds_of,
    significant,
)
from bench.material import CountingVfs, RawWriter, home_in, lines_of, records
from holdfast.ledger.book import Event, Ledger
from holdfast.ledger.entry import entry

AGENT = "rio"
TURN = 50
LEAST_SHARE = 0.65
MOST_SYNCS = 2
ENTRIES, QUICK_ENTRIES = 1_000_000, 50_000
CROWD = 2_000
TASKS = 50_000
LOOKS, QUICK_LOOKS = 9, 3
MOST_SECONDS_TO_FIND, MOST_SECONDS_TO_VERIFY = 1.0, 10.0


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    write(setup, outcome)
    find(setup, outcome)
    return outcome


# --- writing --------------------------------------------------------------------------------


def events(rng: Random) -> list[Event]:
    return [
        Event("info", each["summary"], each["source"], each["task_id"], None, {"step": 1})
        for each in records(rng, 500)
    ]


def writer(ledger: Ledger, some: list[Event]) -> Callable[[int], int]:
    supply = cycle(some)

    def act(count: int) -> int:
        for _ in range(count):
            ledger.write(next(supply))
        return count

    return act


def write(setup: Setup, outcome: Outcome) -> None:
    some = events(setup.rng("events"))
    raw = RawWriter(setup.scratch / "raw", lines_made(setup, some))
    turns = int(setup.pick(20, 4))
    with home_in(setup.scratch / "home") as home, Ledger(home, AGENT) as ledger:
        ours = writer(ledger, some)
        ours(TURN)
        raw.write(TURN)
        pairs = [
            interleaved(
                partial(ours, TURN), partial(raw.write, TURN), turns, setup.rng(f"order {at}")
            )
            for at in range(setup.pairs)
        ]
    raw.close()
    rates, raw_rates = [a.rate for a, _ in pairs], [b.rate for _, b in pairs]
    share = ratios(rates, raw_rates)
    syncs = syncs_before_ack(setup, some)
    outcome.numbers["write"] = {
        "syncs_before_ack": syncs,
        "ratio_to_raw": rounded(share),
        "rate": rounded(rates),
        "raw_rate": rounded(raw_rates),
        "cpu_us": rounded([ours.cpu_each for ours, _ in pairs]),
        "raw_cpu_us": rounded([raw.cpu_each for _, raw in pairs]),
    }
    outcome.bars += [
        Bar("`ledger write`: syncs before an event is acknowledged", syncs, "<=", MOST_SYNCS),
        Bar(
            "`ledger write` in process, against the raw append of its bytes",
            statistics.median(share),
            ">=",
            LEAST_SHARE,
            "× raw",
            timed=True,
            beside=tuple(raw_rates),
        ),
    ]


def lines_made(setup: Setup, some: list[Event]) -> list[bytes]:
    """The very lines that a ledger makes of these events."""
    with home_in(setup.scratch / "sample") as home, Ledger(home, AGENT) as ledger:
        for each in some:
            ledger.write(each)
    (file,) = (setup.scratch / f"sample/ledger/{AGENT}").glob("*.jsonl")
    return lines_of(file)


def syncs_before_ack(setup: Setup, some: list[Event]) -> int:
    """The most that any of some events waited for; the first one makes the file of its day."""
    vfs, most = CountingVfs(), 0
    with home_in(setup.scratch / "counted", vfs) as home, Ledger(home, AGENT) as ledger:
        ledger.write(some[0])
        for each in some[1:]:
            before = vfs.syncs
            ledger.write(each)
            most = max(most, vfs.syncs - before)
    return most


# --- finding --------------------------------------------------------------------------------


def find(setup: Setup, outcome: Outcome) -> None:
    count = QUICK_ENTRIES if setup.quick else ENTRIES
    place = setup.scratch / "large"
    session = filled(setup, place, count)
    task = f"wo-{TASKS // 2:06d}"
    first = seconds_of(lambda: command(place, "list", "--task", task))
    looks = QUICK_LOOKS if setup.quick else LOOKS
    bare = [seconds_of(lambda: call([sys.executable, "-c", "pass"])) for _ in range(looks)]
    by_task = [seconds_of(lambda: command(place, "list", "--task", task)) for _ in range(looks)]
    by_session = [
        seconds_of(lambda: command(place, "list", "--session", session)) for _ in range(looks)
    ]
    check = [seconds_of(lambda: command(place, "verify")) for _ in range(QUICK_LOOKS)]
    cache = sum(file.stat().st_size for file in (place / "cache").rglob("*.index"))
    scale = ENTRIES / count
    scaled = "" if scale == 1 else f", scaled from {count:,}"
    outcome.numbers["find"] = {
        "entries": count,
        "index_bytes": cache,
        "making_the_index_s": significant(first),
        "by_task_s": rounded(by_task),
        "by_session_s": rounded(by_session),
        "verify_s": rounded(check),
        "bare_python_s": rounded(bare),
    }
    # Looking up does not grow with the ledger as verifying does: a small one is not scaled.
    for what, seconds in (("--task", by_task), ("--session", by_session)):
        outcome.bars.append(
            Bar(
                f"`ledger list {what}` among {count:,} entries, as a command",
                statistics.median(seconds),
                "<",
                MOST_SECONDS_TO_FIND,
                "s",
                timed=True,
                alone=True,
                beside=tuple(bare),
            )
        )
    outcome.bars.append(
        Bar(
            f"`ledger verify` of {ENTRIES:,} entries{scaled}, as a command",
            statistics.median(check) * scale,
            "<",
            MOST_SECONDS_TO_VERIFY,
            "s",
            timed=True,
            alone=True,
            beside=tuple(bare),
        )
    )
    shutil.rmtree(place)


def filled(setup: Setup, place: Path, count: int) -> str:
    """Make a ledger of so many entries; one of its sessions."""
    rng = setup.rng("entries")
    some = records(rng, 500)
    with home_in(place) as home, Ledger(home, AGENT) as ledger:
        log = home.log(f"ledger/{AGENT}")
        day = home.day()
        for start in range(0, count, CROWD):
            log.append_all([numbered(rng, some, day, each) for each in range(start, start + CROWD)])
        log.close()
        ledger.refresh()
    return f"{day}_{AGENT}_{count // 1000:03d}"


def numbered(rng: Random, some: list[dict[str, Any]], day: str, number: int) -> dict[str, Any]:
    chosen = some[number % len(some)]
    return entry(
        agent=AGENT,
        session=f"{day}_{AGENT}_{number // 500 + 1:03d}",
        event="info",
        task=f"wo-{rng.randrange(TASKS):06d}",
        source=chosen["source"],
        summary=chosen["summary"],
        data={},
    )


def command(place: Path, *words: str) -> None:
    program = "import sys; from holdfast.cli.main import main; sys.exit(main())"
    call([sys.executable, "-c", program, "--home", str(place), "ledger", *words])


def call(words: list[str]) -> None:
    subprocess.run(words, env=child_environment(), check=True, capture_output=True)

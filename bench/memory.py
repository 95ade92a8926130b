"""The memory of an agent by topics with 100,000 data: adding, showing, opening."""

from __future__ import annotations

import time

from bench.frame import (
    Bar,
    Outcome,
    Setup,
    ratios,
    rounded,
    seconds_of,
    significant,
)
from bench.material import home_in, records
from holdfast.layout import HOLDFAST
from holdfast.memory.datum import datum_line
from holdfast.memory.topics import Topics
from holdfast.store.home import Home

COUNT, QUICK_COUNT = 100_000, 6_000
EARLY, TOPICS = 1_000, 500
SAMPLE, SHOWN, AT_ONCE = 200, 100, 1_000
MOST_GROWTH, MOST_SHOW_MS, MOST_OPEN_MS = 1.2, 50.0, 300.0


def run(setup: Setup) -> Outcome:
    outcome = Outcome()
    count, rng = int(setup.pick(COUNT, QUICK_COUNT)), setup.rng("memory")
    texts = [str(each["summary"]) for each in records(rng, 1_000)]
    place = setup.scratch / "home"
    with home_in(place) as home:
        early, late = list[list[float]](), list[list[float]]()
        with Topics(home, "rio") as small, Topics(home, "mia") as large:
            fill(home, small, texts, EARLY)
            fill(home, large, texts, count)
            added = iter(range(10**9))

            def add(topics: Topics) -> list[float]:
                """Processor time of each of some adds; a few of them write the tree as well."""
                spent = list[float]()
                for _ in range(SAMPLE):
                    number, began = next(added), time.process_time()
                    topics.add(f"work/{number % TOPICS}", texts[number % len(texts)])
                    spent.append(time.process_time() - began)
                return spent

            for _ in range(setup.pairs):
                # In turns, so that whatever else the machine does falls on both.
                for topics, some in rng.sample([(small, early), (large, late)], 2):
                    some.append(add(topics))
            shares = ratios(*([middle(each) for each in some] for some in (late, early)))
            first = seconds_of(lambda: large.under("work/7", SHOWN))
            spent = time.process_time()
            shown = [seconds_of(lambda: large.under("work/7", SHOWN)) for _ in range(20)]
            spent = (time.process_time() - spent) / len(shown) * 1e3
            everything = [seconds_of(lambda: large.under("/", SHOWN)) for _ in range(10)]
            tree = [seconds_of(large.topics) for _ in range(10)]
            written = seconds_of(large.show)
        size = (place / HOLDFAST.path("topics", "mia")).stat().st_size
        shown_size = (place / HOLDFAST.path("fmm", "mia")).stat().st_size
    opened = [seconds_of(lambda: Home.open(str(place)).close()) for _ in range(10)]
    began = time.perf_counter()
    with Home.open(str(place)) as home, Topics(home, "mia") as topics:
        topics.under("work/7", SHOWN)
    whole = time.perf_counter() - began
    outcome.numbers["memory"] = {
        "data": count,
        "bytes_of_log": size,
        "bytes_of_tree": shown_size,
        "add_cpu_us": {name: rounded([middle(each) * 1e6 for each in some])
                       for name, some in (("early", early), ("late", late))},
        "add_cpu_us_mean": {name: rounded([sum(each) / SAMPLE * 1e6 for each in some])
                            for name, some in (("early", early), ("late", late))},
        "ms_first_show": significant(first * 1e3),
        "ms_show_cpu": significant(spent),
        "ms_show": rounded([each * 1e3 for each in shown]),
        "ms_show_of_all": rounded([each * 1e3 for each in everything]),
        "ms_tree": rounded([each * 1e3 for each in tree]),
        "ms_open": rounded([each * 1e3 for each in opened]),
        "ms_open_and_show": significant(whole * 1e3),
        "s_tree_written": significant(written),
    }  # fmt: skip
    what = f"{count:,} data"
    beside = tuple(middle(each) for each in early)
    outcome.bars += [
        Bar(f"{what}: processor time of an add, against {EARLY:,}", middle(shares), "<=",
            MOST_GROWTH, "×", timed=True, beside=beside),
        Bar(f"{what}: `memory show` of a topic: processor time", spent, "<=", MOST_SHOW_MS, "ms",
            timed=True, alone=True),
        Bar(f"{what}: opening the home", middle(opened) * 1e3, "<=", MOST_OPEN_MS, "ms",
            timed=True, alone=True),
    ]  # fmt: skip
    return outcome


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def fill(home: Home, topics: Topics, texts: list[str], count: int) -> None:
    for start in range(0, count, AT_ONCE):
        now = home.clock.now()
        topics.add_all(
            [
                datum_line(f"work/{number % TOPICS}", texts[number % len(texts)], ts=now)
                for number in range(start, start + AT_ONCE)
            ]
        )

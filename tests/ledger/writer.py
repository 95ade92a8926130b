"""A process that writes events, for tests that need many of them at once.

    python -m tests.ledger.writer HOME AGENT NAME COUNT [SPEED BEGUN]

Prints `NAME-N` when event N is acknowledged.  With SPEED its clock runs so many times faster
than ours, from BEGUN on, so that seconds pass in milliseconds and stamps differ.
"""

from __future__ import annotations

import sys

from holdfast.clock import SystemClock
from holdfast.ledger.book import Event, Ledger
from holdfast.store.home import Home


class Hurried(SystemClock):
    def __init__(self, speed: float, begun: float) -> None:
        self._speed, self._begun = speed, begun

    def now(self) -> float:
        return self._begun + (super().now() - self._begun) * self._speed


def main(home: str, agent: str, name: str, count: str, *pace: str) -> None:
    clock = Hurried(float(pace[0]), float(pace[1])) if pace else SystemClock()
    with Home.open(home, clock=clock) as opened, Ledger(opened, agent) as ledger:
        for number in range(int(count)):
            data = {"writer": name, "n": number}
            ledger.write(Event("info", f"{name}-{number}", "test", "wo-1", None, data))
            print(f"{name}-{number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

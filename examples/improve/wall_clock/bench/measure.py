"""Seconds of a blur, and whether it is still right.  Noisy on purpose: it is wall-clock time."""

import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from blur import blur

SIDE, WINDOW, RUNS = 28, 3, 4


def expected(rows: list[list[int]]) -> list[list[int]]:
    def mean(y: int, x: int) -> int:
        across = [a for a in range(x - WINDOW, x + WINDOW + 1) if 0 <= a < SIDE]
        down = [b for b in range(y - WINDOW, y + WINDOW + 1) if 0 <= b < SIDE]
        return sum(rows[b][a] for b in down for a in across) // (len(across) * len(down))

    return [[mean(y, x) for x in range(SIDE)] for y in range(SIDE)]


chance = random.Random(8)
picture = [[chance.randrange(256) for _ in range(SIDE)] for _ in range(SIDE)]
seconds = float("inf")
for _ in range(RUNS):
    began = time.perf_counter()
    found = blur([list(row) for row in picture])
    seconds = min(seconds, time.perf_counter() - began)
    if found != expected(picture):
        raise SystemExit("the picture is wrong")
print(f"METRIC seconds={seconds:.6f}")

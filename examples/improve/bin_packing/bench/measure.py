"""Mean excess over the lower bound, in per cent, on instances in the manner of OR-library's u500.

python bench/measure.py [train|holdout]
"""

import json
import math
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pack import priority

CAPACITY, ITEMS, INSTANCES = 150, 500, 20
SEEDS = {"train": 500, "holdout": 501}


def instances(seed: int) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randint(20, 100) for _ in range(ITEMS)] for _ in range(INSTANCES)]


def bins_of(items: list[int], priorities: list[float]) -> int:
    """How many bins are opened; what counts of a bin is the room that it has."""
    with_room = [0] * CAPACITY + [len(items)]
    for item in items:
        fitting = [room for room in range(item, CAPACITY + 1) if with_room[room]]
        chosen = max(fitting, key=lambda room: priorities[room - item])
        with_room[chosen] -= 1
        with_room[chosen - item] += 1
    return len(items) - with_room[CAPACITY]


def excess(seed: int) -> float:
    priorities = [float(priority(left)) for left in range(CAPACITY + 1)]
    shares = [
        bins_of(items, priorities) / math.ceil(sum(items) / CAPACITY) - 1
        for items in instances(seed)
    ]
    return 100 * sum(shares) / len(shares)


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else "train"
    print(json.dumps({"primary": excess(SEEDS[which])}))

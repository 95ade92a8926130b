"""The sum of radii, if the packing is one: checked in exact arithmetic, with no tolerance."""

import json
import math
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from pack import pack

CIRCLES = int(Path(__file__).with_name("circles.txt").read_text(encoding="utf-8"))


def check(circles: list[tuple[float, float, float]]) -> None:
    if len(circles) != CIRCLES:
        raise SystemExit(f"{len(circles)} circles, not {CIRCLES}")
    if not all(math.isfinite(value) for circle in circles for value in circle):
        raise SystemExit("not a number")
    exact = [tuple(Fraction(value) for value in circle) for circle in circles]
    for i, (x, y, r) in enumerate(exact):
        if r < 0 or x < r or y < r or x + r > 1 or y + r > 1:
            raise SystemExit(f"circle {i} is not in the square")
        for j, (x2, y2, r2) in enumerate(exact[:i]):
            if (x - x2) ** 2 + (y - y2) ** 2 < (r + r2) ** 2:
                raise SystemExit(f"circles {j} and {i} overlap")


circles = [tuple(map(float, circle)) for circle in pack()]
check(circles)
print(json.dumps({"primary": math.fsum(r for _, _, r in circles)}))

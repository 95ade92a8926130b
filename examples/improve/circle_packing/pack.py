"""Circles in the unit square, with the largest sum of radii: relaxed from where they start."""

import math

START = [  # search: 0..1
    (0.747291, 0.202753),
    (0.205159, 0.600757),
    (0.056757, 0.776329),
    (0.764411, 0.041736),
    (0.683395, 0.502737),
    (0.635444, 0.953733),
    (0.986758, 0.409141),
    (0.844143, 0.786304),
    (0.971755, 0.028792),
    (0.937895, 0.222282),
    (0.129411, 0.597458),
    (0.838859, 0.956674),
    (0.364279, 0.827689),
    (0.030791, 0.968506),
    (0.293460, 0.543508),
    (0.124337, 0.043828),
    (0.007690, 0.600157),
    (0.561123, 0.815946),
    (0.851140, 0.423453),
    (0.847342, 0.200732),
    (0.880890, 0.250543),
    (0.939752, 0.384308),
    (0.428063, 0.518320),
    (0.058917, 0.074891),
    (0.544938, 0.714092),
    (0.044749, 0.406751),
]
STEPS = 300


def pack() -> list[tuple[float, float, float]]:
    """Centres and radii: gradient steps against overlaps that cost ever more (Adam)."""
    n = len(START)
    values = [at[0] for at in START] + [at[1] for at in START] + [0.4 / math.sqrt(n)] * n
    first, second = [0.0] * (3 * n), [0.0] * (3 * n)
    for step in range(1, STEPS + 1):
        done = step / STEPS
        slopes = _slopes(values, n, 10 * 1000**done)
        rate = 0.02 * 0.0005**done
        one, two = 1 - 0.9**step, 1 - 0.99**step
        for at, slope in enumerate(slopes):
            first[at] = 0.9 * first[at] + 0.1 * slope
            second[at] = 0.99 * second[at] + 0.01 * slope * slope
            values[at] += rate * (first[at] / one) / (math.sqrt(second[at] / two) + 1e-9)
    return _shrunk(values[:n], values[n : 2 * n], values[2 * n :])


def _slopes(values: list[float], n: int, weight: float) -> list[float]:
    """Where to: larger radii, and away from walls and neighbours that are too near."""
    slopes = [0.0] * (2 * n) + [1.0] * n
    for i in range(n):
        x, y, r = values[i], values[n + i], values[2 * n + i]
        for at, here, way in ((i, x, 1), (i, 1 - x, -1), (n + i, y, 1), (n + i, 1 - y, -1)):
            if here < r:
                slopes[at] += way * weight * (r - here)
                slopes[2 * n + i] -= weight * (r - here)
        for j in range(i):
            dx, reach = x - values[j], r + values[2 * n + j]
            if -reach < dx < reach:
                dy = y - values[n + j]
                square = dx * dx + dy * dy
                if square < reach * reach:
                    far = math.sqrt(square) + 1e-12
                    push = weight * (reach - far)
                    slopes[i] += push * dx / far
                    slopes[j] -= push * dx / far
                    slopes[n + i] += push * dy / far
                    slopes[n + j] -= push * dy / far
                    slopes[2 * n + i] -= push
                    slopes[2 * n + j] -= push
    return slopes


def _shrunk(
    xs: list[float], ys: list[float], radii: list[float]
) -> list[tuple[float, float, float]]:
    """What is left once no circle overlaps: all shrink until the last pair does not touch."""
    n = len(xs)
    for i in range(n):
        radii[i] = min(radii[i], xs[i], 1 - xs[i], ys[i], 1 - ys[i])
        for j in range(i):
            over = radii[i] + radii[j] - math.hypot(xs[i] - xs[j], ys[i] - ys[j])
            if over > 0:
                radii[i] -= over / 2
                radii[j] -= over / 2
    # Into the gaps that are left, and away from what rounding adds.
    for i in range(n):
        gaps = [math.hypot(xs[i] - xs[j], ys[i] - ys[j]) - radii[j] for j in range(n) if j != i]
        radii[i] = min(xs[i], 1 - xs[i], ys[i], 1 - ys[i], *gaps)
    return [(x, y, r - 1e-14) for x, y, r in zip(xs, ys, radii, strict=True)]

"""The pictures of a campaign: scores over rounds and families, for pages and terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from holdfast.charts import Bar, Chart, Level, Series, bars, lines, svg
from holdfast.improve.overview import Curve, Point, families
from holdfast.text import plural

_SPREAD = 1.96
_WIDE_RANGE = 50
"""Positive scores that differ by more than this factor are drawn on a logarithmic scale."""
_LETTERS, _MOST_LABELS = 4, 12


def pictures(curve: Curve) -> list[Chart]:
    return [scores(curve), by_family(curve)] if curve.points else [scores(curve)]


def scores(curve: Curve) -> Chart:
    """Winners, losers, baseline with its noise, and target."""
    known = [each for each in curve.points if each.score is not None]
    won, lost = [each for each in known if each.won], [each for each in known if not each.won]
    labels = [each.family[:_LETTERS] for each in won] if len(won) <= _MOST_LABELS else []
    series = [
        Series("losers", _placed(lost), "quiet", joined=False),
        Series("winners", _placed(won), "good", labels=labels),
    ]
    levels: list[Level] = []
    if curve.baseline is not None:
        spread = _SPREAD * (curve.sd or 0.0)
        levels.append(Level("baseline", curve.baseline, "going", spread))
    if curve.target is not None:
        levels.append(Level("target", curve.target, "care"))
    failed, log = len(curve.points) - len(known), is_wide(curve)
    notes = ["higher is better" if curve.higher else "lower is better"]
    notes += ["logarithmic"] * log + [f"{failed} without a score"] * bool(failed)
    title = f"{curve.metric} ({', '.join(notes)})"
    return lines(title, [each for each in series if each.points], "round", levels=levels, log=log)


def is_wide(curve: Curve) -> bool:
    found = [each.score for each in curve.points if each.score is not None]
    found += [each for each in (curve.baseline, curve.target) if each is not None]
    if curve.baseline is not None and curve.sd:
        found.append(curve.baseline - _SPREAD * curve.sd)
    return bool(found) and min(found) > 0 and max(found) > _WIDE_RANGE * min(found)


def by_family(curve: Curve) -> Chart:
    rows = [
        Bar(
            each["family"],
            each["tried"],
            f"{each['won']} of {each['tried']}"
            + (f", +{each['gain']:.3g}" if each["gain"] else ""),
            "good" if each["won"] else "quiet",
        )
        for each in families(curve)
    ]
    return bars("Candidates by family: winners, gain", rows)


def _placed(points: Sequence[Point]) -> list[tuple[float, float]]:
    return [(float(each.round), each.score) for each in points if each.score is not None]


def page(curve: Curve, title: str) -> str:
    """The pictures as an HTML file that stands alone."""
    head = f"<meta charset='utf-8'><title>{escape(title)}</title>"
    drawn = f"<h1>{escape(title)}</h1>{svg(pictures(curve), alone=True)}"
    look = "font:15px system-ui,sans-serif;max-width:60rem;margin:2rem auto"
    return (
        f"<!doctype html><html lang='en'><head>{head}</head><body style='{look}'>{drawn}</body>"
        "</html>\n"
    )


# --- in a terminal --------------------------------------------------------------------------


def terminal(curve: Curve, width: int = 72, height: int = 10) -> str:
    """The score chart in characters: # winners, . losers, - baseline, = target, x no score."""
    known = [each.score for each in curve.points if each.score is not None]
    levels = [each for each in (curve.baseline, curve.target) if each is not None]
    values = [*known, *levels]
    if not values:
        return "no score yet"
    of = math.log if is_wide(curve) else float
    low, high = min(values), max(values)
    across = max(1, width - 12)
    last = max((each.round for each in curve.points), default=1)
    first = max(1, last - across + 1)
    grid = [[" "] * across for _ in range(height)]

    def row(value: float) -> int:
        return round((of(high) - of(value)) / ((of(high) - of(low)) or 1) * (height - 1))

    for value, mark in ((curve.baseline, "-"), (curve.target, "=")):
        if value is not None:
            grid[row(value)] = [mark] * across
    step = max(1, (across - 1) // max(1, last - first)) if last > first else 1
    for each in sorted(curve.points, key=lambda point: point.won):
        if each.round >= first:
            at = height - 1 if each.score is None else row(each.score)
            mark = "x" if each.score is None else "#" if each.won else "."
            grid[at][min(across - 1, (each.round - first) * step)] = mark
    edge = {0: f"{high:.6g}", height - 1: f"{low:.6g}"}
    drawn = [f"{edge.get(at, ''):>10} {''.join(cells).rstrip()}" for at, cells in enumerate(grid)]
    tries = plural(len(curve.points), "candidate")
    best = f", best {curve.best:.6g}" if curve.best is not None else ""
    drawn.append(f"{'':>10} round {first} to {last}, {tries}{best}")
    return "\n".join([*drawn, f"{'':>10} # winner  . loser  x no score  - baseline  = target"])

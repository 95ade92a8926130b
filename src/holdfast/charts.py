"""Charts as SVG: heat map, bars, lanes, lines, graph; and the same as PNG.

Every shape has its colour as an attribute, for a file that stands alone, and its meaning as a
class, which a style sheet may recolour (`fill-good`, `line-going`, `ink`).  Texts may be
anybody's: they are escaped, and characters that XML cannot hold are replaced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

from holdfast.errors import ConfigError

Meaning = Literal["good", "going", "care", "bad", "quiet"]
COLOURS: Mapping[str, str] = {
    "good": "#2c7766",
    "going": "#2563a8",
    "care": "#9a6200",
    "bad": "#b3322b",
    "quiet": "#656e73",
    "ink": "#1f272b",
    "soft": "#5a646a",
    "rule": "#e4dfd3",
    "card": "#fffefb",
}
WIDTH = 520
_LEFT, _RIGHT, _ROW, _TITLE = 116, 24, 22, 30
_TALL, _LETTERS = 150, 15
_FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Chart(NamedTuple):
    title: str
    height: float
    """Of a width of `WIDTH`."""
    body: str


class Cell(NamedTuple):
    """One place of a heat map."""

    share: float | None
    """From 0, faint, to 1, full; None is drawn as a dash."""
    title: str = ""
    chosen: bool = False


class Bar(NamedTuple):
    label: str
    value: float
    shown: str
    meaning: Meaning = "going"


class Span(NamedTuple):
    """Something in a lane, from `start` to `end`; a dot if both are the same."""

    lane: str
    start: float
    end: float
    title: str = ""
    meaning: Meaning = "going"


class Series(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    meaning: Meaning = "going"
    joined: bool = True
    """Whether a line leads from point to point."""
    labels: Sequence[str] = ()
    """Texts above the points."""


class Level(NamedTuple):
    """A value to compare with, drawn across; with a spread as a band around it."""

    name: str
    value: float
    meaning: Meaning = "quiet"
    spread: float = 0.0


class Link(NamedTuple):
    start: str
    end: str
    weight: float
    title: str = ""


# --- kinds of charts ------------------------------------------------------------------------


def heat(
    title: str, rows: Mapping[str, Sequence[Cell | None]], columns: Sequence[str], note: str = ""
) -> Chart:
    """One row of cells for each label; `None` where there is nothing to show."""
    wide = min((WIDTH - _LEFT - _RIGHT) / max(1, len(columns)), 44)
    parts: list[str] = []
    for at, (label, cells) in enumerate(rows.items()):
        y = _TITLE + at * _ROW
        parts.append(_label(label, y))
        for number, cell in enumerate(cells):
            x = _LEFT + number * wide
            if cell is not None and cell.share is None:
                line = {"x1": x + wide * 0.3, "x2": x + wide * 0.7, "y1": y + 11, "y2": y + 11}
                parts.append(_line("soft", cell.title, **line))
            if cell is not None and (cell.share is not None or cell.chosen):
                edge = _stroke("ink", 1.5, alone=False) if cell.chosen else ""
                shape = _box(x + 0.75, y + 1, wide - 1.5, _ROW - 2)
                full = 0.0 if cell.share is None else 0.06 + 0.94 * cell.share
                look = f"{_fill('going', edge=cell.chosen)} fill-opacity='{full:.2f}'{edge}"
                parts.append(_shape("rect", f"{shape}{look}", cell.title))
    y = _TITLE + len(rows) * _ROW
    step = max(1, math.ceil(len(columns) * 30 / max(1, WIDTH - _LEFT - _RIGHT)))
    for number in range(0, len(columns), step):
        parts.append(_text(_LEFT + (number + 0.5) * wide, y + 14, columns[number], anchor="middle"))
    parts.append(_text(8, y + 34, note))
    return Chart(title, y + (46 if note else 26), "".join(parts))


def bars(title: str, found: Sequence[Bar]) -> Chart:
    most = max((bar.value for bar in found), default=0) or 1
    parts: list[str] = []
    for at, bar in enumerate(found):
        y = _TITLE + at * _ROW
        long = (WIDTH - _LEFT - _RIGHT - 100) * bar.value / most
        shape = _box(_LEFT, y + 3, max(1.0, long), _ROW - 6)
        parts.append(_label(bar.label, y))
        parts.append(_shape("rect", f"{shape}{_fill(bar.meaning)} rx='2'", bar.shown))
        parts.append(_text(_LEFT + long + 8, y + 15, bar.shown, "ink"))
    return Chart(title, _TITLE + len(found) * _ROW + 8, "".join(parts))


def lanes(title: str, names: Sequence[str], spans: Sequence[Span], note: str = "") -> Chart:
    """What happened when, in seconds, one lane for each name."""
    low = min((span.start for span in spans), default=0.0)
    high = max((span.end for span in spans), default=1.0)
    scale = (WIDTH - _LEFT - _RIGHT) / ((high - low) or 1)
    rows = {name: _TITLE + at * _ROW for at, name in enumerate(names)}
    parts = [_label(name, y) for name, y in rows.items()]
    parts += [_rule(_LEFT, WIDTH - _RIGHT, y + 11) for y in rows.values()]
    for span in spans:
        y, x = rows[span.lane], _LEFT + (span.start - low) * scale
        long = (span.end - span.start) * scale
        if long > 8 or span.meaning == "bad":
            shape = f"{_box(x, y + 6, max(9, long), _ROW - 12)} rx='1'"
            parts.append(_shape("rect", shape + _fill(span.meaning), span.title))
        else:
            shape = f" cx='{x + long / 2:.1f}' cy='{y + 11}' r='4'"
            parts.append(_shape("circle", shape + _fill(span.meaning), span.title))
    y = _TITLE + len(names) * _ROW
    parts.append(_text(_LEFT, y + 14, f"{_short(low)} s"))
    parts.append(_text(WIDTH - _RIGHT, y + 14, f"{_short(high)} s", anchor="end"))
    parts.append(_text(8, y + 34, note))
    return Chart(title, y + (46 if note else 26), "".join(parts))


def lines(
    title: str,
    found: Sequence[Series],
    x_label: str,
    *,
    floor: float = math.inf,
    levels: Sequence[Level] = (),
    log: bool = False,
) -> Chart:
    """Points over a number, such as a score over rounds; the scale reaches down to `floor`."""
    points = [point for series in found for point in series.points] or [(0.0, 0.0)]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    values = [y for _, y in points]
    values += [each.value + side * each.spread for each in levels for side in (-1, 1)]
    low, high = min(*values, floor), max(values)
    of = math.log if log and low > 0 else float
    across = (WIDTH - _LEFT - _RIGHT) / ((right - left) or 1)
    up = _TALL / ((of(high) - of(low)) or 1)
    bottom = _TITLE + _TALL
    base = bottom if high > low else _TITLE + _TALL / 2

    def height(value: float) -> float:
        return base - (of(value) - of(low)) * up

    parts = [_rule(_LEFT, WIDTH - _RIGHT, y) for y in (_TITLE, bottom)]
    parts += [
        _text(_LEFT - 8, y + 4, _short(value), anchor="end")
        for y, value in ((base, low), (_TITLE, high))[: 2 if high > low else 1]
    ]
    for at, level in enumerate(levels):
        parts += _level(level, height, bottom + 54, _LEFT + 130 * at)
    for at, series in enumerate(found):
        placed = [(_LEFT + (x - left) * across, height(y)) for x, y in series.points]
        if series.joined and len(placed) > 1:
            way = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(f"<polyline points='{way}' fill='none'{_stroke(series.meaning, 2)}/>")
        names = [*series.labels, *[""] * (len(placed) - len(series.labels))]
        for (x, y), (known, value), label in zip(placed, series.points, names, strict=True):
            says = f"{series.name}, {x_label} {_short(known)}: {_short(value)} {label}".rstrip()
            shape = f" cx='{x:.1f}' cy='{y:.1f}' r='3.5'"
            parts.append(_shape("circle", shape + _fill(series.meaning), says))
            parts.append(_text(x, y - 7, label, anchor="middle"))
        key = _LEFT + 130 * at
        parts.append(f"<circle cx='{key}' cy='{bottom + 32}' r='4'{_fill(series.meaning)}/>")
        parts.append(_text(key + 10, bottom + 36, series.name))
    parts.append(_text(_LEFT, bottom + 16, f"{x_label} {_short(left)}"))
    parts.append(_text(WIDTH - _RIGHT, bottom + 16, _short(right), anchor="end"))
    return Chart(title, bottom + (68 if levels else 46), "".join(parts))


def _level(level: Level, height: Callable[[float], float], y: float, x: float) -> list[str]:
    at, says = height(level.value), f"{level.name} {_short(level.value)}"
    long = WIDTH - _LEFT - _RIGHT
    parts: list[str] = []
    if level.spread:
        top = height(level.value + level.spread)
        box = _box(_LEFT, top, long, height(level.value - level.spread) - top)
        parts.append(_shape("rect", f"{box}{_fill(level.meaning)} fill-opacity='0.15'", says))
    look = f"{_stroke(level.meaning, 1.5)} stroke-dasharray='5 4'"
    ends = f" x1='{_LEFT}' x2='{_LEFT + long}' y1='{at:.1f}' y2='{at:.1f}'"
    key = f" x1='{x - 5}' x2='{x + 5}' y1='{y - 4:.1f}' y2='{y - 4:.1f}'"
    parts += [_shape("line", ends + look, says), _shape("line", key + look, "")]
    return [*parts, _text(x + 10, y, says)]


def graph(title: str, names: Sequence[str], links: Sequence[Link], hub: str = "") -> Chart:
    """Names on a circle and what goes between them; `hub` stands in the middle."""
    around = [name for name in names if name != hub]
    tall = 300 if len(around) > 2 else 200
    middle = (WIDTH / 2, _TITLE + tall / 2)
    reach_x, reach_y = WIDTH * 0.3, tall / 2 - 34
    spots = {hub: middle} if hub else {}
    for at, name in enumerate(around):
        turn = 2 * math.pi * at / max(1, len(around)) - math.pi / 2
        spots[name] = (
            middle[0] + reach_x * math.cos(turn),
            middle[1] + reach_y * math.sin(turn),
        )
    most = max((link.weight for link in links), default=1) or 1
    parts = [
        "<defs><marker id='tip' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' "
        f"markerHeight='7' orient='auto' markerUnits='userSpaceOnUse'>"
        f"<path d='M0 0L8 4L0 8z'{_fill('going')}/></marker></defs>"
    ]
    parts += [_arrow(spots[link.start], spots[link.end], link, most) for link in links]
    for name, (x, y) in spots.items():
        shape = f" cx='{x:.1f}' cy='{y:.1f}' r='{11 if name == hub else 8}'"
        parts.append(_shape("circle", shape + _fill("good" if name == hub else "going"), name))
        below = y + 24 if y >= middle[1] or name == hub else y - 14
        parts.append(_text(x, below, _clipped(name), "ink", "middle"))
    return Chart(title, _TITLE + tall + 12, "".join(parts))


# --- documents ------------------------------------------------------------------------------


def svg(charts: Iterable[Chart], *, alone: bool = False) -> str:
    """Charts one below the other; `alone`: a file of its own, with a ground."""
    parts: list[str] = []
    # Where a page has the title above the picture, its line is not left empty.
    height = skipped = 0.0 if alone else -20.0
    titles: list[str] = []
    for chart in charts:
        titles.append(chart.title)
        heading = _text(0, 16, chart.title, "ink", weight=" font-weight='600'") if alone else ""
        parts.append(f"<g transform='translate(0 {height:.1f})'>{heading}{chart.body}</g>")
        height += chart.height + skipped
    edge = 20 if alone else 0
    wide, tall = WIDTH + 2 * edge, height - skipped + 2 * edge
    ground = f"<rect width='{wide}' height='{tall:.1f}'{_fill('card')}/>" if alone else ""
    size = f" width='{wide}' height='{tall:.1f}'" if alone else ""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' class='chart' role='img'{size} "
        f"viewBox='0 0 {wide} {tall:.1f}' aria-label='{_clean('; '.join(titles))}' "
        f"font-family=\"{_FONT}\" font-size='13'>{ground}"
        f"<g transform='translate({edge} {edge})'>{''.join(parts)}</g></svg>"
    )


def png(document: str) -> bytes:
    """The same picture in pixels, two for each unit; ConfigError without the extra `plot`."""
    try:
        from resvg_py import svg_to_bytes  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError(
            "PNG needs the extra `plot`",
            hint="`pip install 'holdfast[plot]'`, or name a file that ends in .svg",
        ) from None
    return bytes(svg_to_bytes(svg_string=document, zoom=2))


# --- shapes ---------------------------------------------------------------------------------


def _arrow(start: tuple[float, float], end: tuple[float, float], link: Link, most: float) -> str:
    thick, opaque = 1 + 3 * link.weight / most, 0.3 + 0.6 * link.weight / most
    look = f"{_stroke('going', thick)} stroke-opacity='{opaque:.2f}' fill='none'"
    (x1, y1), (x2, y2) = start, end
    long = math.hypot(x2 - x1, y2 - y1)
    if long < 1:  # to itself
        shape = f" d='M{x1 + 8:.1f} {y1 - 6:.1f}a11 11 0 1 1 0 12'"
        return _shape("path", shape + look, link.title)
    # From rim to rim, bent, so that there and back do not lie on each other.
    along, off = ((x2 - x1) / long, (y2 - y1) / long), min(22, long * 0.12)
    x1, y1 = x1 + along[0] * 11, y1 + along[1] * 11
    x2, y2 = x2 - along[0] * 14, y2 - along[1] * 14
    bend = ((x1 + x2) / 2 - along[1] * off, (y1 + y2) / 2 + along[0] * off)
    shape = f" d='M{x1:.1f} {y1:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {x2:.1f} {y2:.1f}'"
    return _shape("path", f"{shape}{look} marker-end='url(#tip)'", link.title)


def _shape(name: str, attributes: str, title: str) -> str:
    inner = f"<title>{_clean(title)}</title>" if title else ""
    return f"<{name}{attributes}>{inner}</{name}>"


def _box(x: float, y: float, wide: float, tall: float) -> str:
    return f" x='{x:.1f}' y='{y:.1f}' width='{max(0.5, wide):.1f}' height='{tall:.1f}'"


def _fill(colour: str, *, edge: bool = False) -> str:
    more = " line-ink" if edge else ""
    return f" class='fill-{colour}{more}' fill='{COLOURS[colour]}'"


def _stroke(colour: str, width: float, *, alone: bool = True) -> str:
    """`alone`: the shape has no fill, which would have named its classes."""
    known = f" class='line-{colour}'" if alone else ""
    return f"{known} stroke='{COLOURS[colour]}' stroke-width='{width:.1f}'"


def _line(colour: str, title: str, **ends: float) -> str:
    placed = "".join(f" {name}='{value:.1f}'" for name, value in ends.items())
    return _shape("line", f"{placed}{_stroke(colour, 1)}", title)


def _rule(x1: float, x2: float, y: float) -> str:
    return _line("rule", "", x1=x1, x2=x2, y1=y, y2=y)


def _text(
    x: float, y: float, text: str, colour: str = "soft", anchor: str = "start", weight: str = ""
) -> str:
    place = f" x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{weight}"
    return f"<text{place}{_fill(colour)}>{_clean(text)}</text>" if text else ""


def _label(name: str, y: float) -> str:
    shown = _text(_LEFT - 10, y + 15, _clipped(name), "ink", "end")
    return f"<g>{shown}<title>{_clean(name)}</title></g>"


def _clipped(name: str) -> str:
    """Names of a fork differ at their end, so that is what stays."""
    return name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :]


def _clean(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _short(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 1_000 else f"{value:,.0f}"

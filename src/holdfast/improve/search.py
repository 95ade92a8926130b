"""Search over the numbers in files: which may change, and what to try next.

A line declares its numbers with a comment: `# search: 0.1..5 log`, for a Python statement that
begins there those of all its lines.  Where nothing is declared, numbers of Python files are
detected: of constants in capitals and of default arguments, else those with a point.

What to try next depends only on what was tried and on a seed, so that it is the same after a crash.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import StringIO
from math import exp, floor, log
from random import Random
from typing import Any, NamedTuple, Protocol

from holdfast.errors import ConfigError, UsageError

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
_LITERAL = re.compile(rf"(?<![\w.])(?:(?<=[=(\[,:{{\s])-)?(?:{_NUMBER})(?![\w.])")
_RANGE = rf"(-?(?:{_NUMBER}))\s*\.\.\s*(-?(?:{_NUMBER}))((?:\s+(?:log|int))*)"
_MARKER = re.compile(rf"(?:#|//|--|;|%|/\*)\s*search:\s*{_RANGE}")
_LISTED = re.compile(rf"(\S+?):(\w+)\s+{_RANGE}")
_NAME = re.compile(r"\s*(?:(?:const|let|var|static|final|auto|double|float|int)\s+)*([A-Za-z_]\w*)")
_CAPITALS = re.compile(r"([A-Z][A-Z0-9_]*)(?:\s*,\s*[A-Z][A-Z0-9_]*)*\s*(?::[^=]*)?=[^=]")
_FUNCTION = re.compile(r"\s*(?:async )?def (\w+)\(")
_REACH = 4.0
"""Detected numbers go from a quarter of what they are to four times as much."""
_SIGMA, _STEP = 0.25, 0.3
"""Of the range of a number: the first spread of CMA-ES, and a local step."""
_MOST, _TRIES = 400, 50


class Files(Protocol):
    """The files that a plan may change."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...
    def paths(self) -> list[str]: ...


class Constant(NamedTuple):
    """A number in a file, and the range in which to look for a better one."""

    name: str
    path: str
    line: int
    """Counted from 0."""
    start: int
    end: int
    value: float
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def share(self, value: float) -> float:
        """Where in its range a value is, from 0 to 1."""
        low, high = self._ends()
        at = log(max(value, self.low)) if self.log else value
        return min(1.0, max(0.0, (at - low) / (high - low)))

    def text(self, share: float) -> str:
        low, high = self._ends()
        value = low + (high - low) * share
        value = min(self.high, max(self.low, exp(value) if self.log else value))
        return str(floor(value + 0.5)) if self.whole else f"{value:.6g}"

    def _ends(self) -> tuple[float, float]:
        return (log(self.low), log(self.high)) if self.log else (self.low, self.high)


class Tried(NamedTuple):
    """A point that was measured; `loss` is lower for what is better, None without a score."""

    point: list[float]
    loss: float | None


# --- which numbers --------------------------------------------------------------------------


def constants(files: Files, listed: Sequence[str] = ()) -> list[Constant]:
    """The numbers to search over: `listed` as `PATH:NAME LOW..HIGH`, declared, else detected."""
    paths = sorted(files.paths())
    found = [each for path in paths for each in _declared(path, files.read(path))]
    for entry in listed:
        match = _LISTED.fullmatch(entry.strip())
        if match is None or match[1] not in paths:
            hint = "such as `pack.py:WEIGHTS 0..1`, in a file that may change"
            raise UsageError(f"not a constant to search over: {entry[:80]!r}", hint=hint)
        lines = files.read(match[1]).split("\n")
        for number, line in enumerate(lines):
            name = _NAME.match(line)
            if name and name[1] == match[2]:
                found += _in_line(match[1], number, line, match[2], _range(*match.groups()[2:]))
    if not found:
        python = [path for path in paths if path.endswith(".py")]
        for detect in (_detected, _fractions):
            found = found or [each for path in python for each in detect(path, files.read(path))]
    if len(found) > _MOST:
        raise UsageError(
            f"{len(found)} numbers to search over, the most are {_MOST}",
            hint="declare those that matter: `# search: LOW..HIGH`",
        )
    return _named_apart(found)


_Range = tuple[float, float, bool, bool]


def _range(low: str, high: str, words: str) -> _Range:
    ends = float(low), float(high)
    if not ends[0] < ends[1] or ("log" in words and ends[0] <= 0):
        hint = "LOW is less than HIGH, and greater than 0 with `log`"
        raise UsageError(f"not a range: {low}..{high}{words}", hint=hint)
    return (*ends, "log" in words, "int" in words)


def _declared(path: str, text: str) -> Iterator[Constant]:
    lines = text.split("\n")
    last = _ends_of_statements(text) if path.endswith(".py") else {}
    for number, line in enumerate(lines):
        marker = _MARKER.search(line)
        if marker is None:
            continue
        name = _NAME.match(line)
        spread = _range(*marker.groups())
        for at in range(number, last.get(number, number) + 1):
            code = lines[at].split("#", 1)[0] if path.endswith(".py") else lines[at]
            code = code[: marker.start()] if at == number else code
            yield from _in_line(path, at, code, name[1] if name else f"line {number + 1}", spread)


def _in_line(path: str, number: int, line: str, name: str, spread: _Range) -> Iterator[Constant]:
    for found in _LITERAL.finditer(line):
        value = float(found[0])
        yield Constant(f"{path}:{name}", path, number, *found.span(), value, *spread)


def _detected(path: str, text: str) -> Iterator[Constant]:
    """Numbers of constants in capitals, and of default arguments."""
    lines, last = text.split("\n"), _ends_of_statements(text)
    for first, line in enumerate(lines):
        if (name := _CAPITALS.match(line) or _FUNCTION.match(line)) is None:
            continue
        for at in range(first, last.get(first, first) + 1):
            code = lines[at].split("#", 1)[0]
            for each in _in_line(path, at, code, name[1], (0.0, 1.0, False, False)):
                yield each._replace(**_around(each.value, code[each.start : each.end]))


def _fractions(path: str, text: str) -> Iterator[Constant]:
    """Numbers with a point in them, wherever they are."""
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(StringIO(text).readline):
            if token.type == tokenize.NUMBER and "." in token.string:
                row, name = token.start[0] - 1, f"{path}:line {token.start[0]}"
                place = (name, path, row, token.start[1], token.end[1], float(token.string))
                yield Constant(*place, 0.0, 1.0)._replace(**_around(place[-1], token.string))


def _around(value: float, literal: str) -> dict[str, Any]:
    """A range for a number of which nothing else is known."""
    whole = literal.lstrip("-").isdigit()
    low, high = sorted((value / _REACH, value * _REACH)) if value else (-1.0, 1.0)
    if whole:
        low, high = min(low, value - 1), max(high, value + 1)
    return {"low": low, "high": high, "log": low > 0 and not whole, "whole": whole}


def _ends_of_statements(text: str) -> dict[int, int]:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    simple = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)
    return {
        node.lineno - 1: (node.end_lineno or node.lineno) - 1
        for node in ast.walk(module)
        if isinstance(node, simple)
    }


def _named_apart(found: Sequence[Constant]) -> list[Constant]:
    """`WEIGHTS[0]`, `WEIGHTS[1]` where one name has several numbers; each place once."""
    by_place = {(each.path, each.line, each.start): each for each in found}
    names: dict[str, list[Constant]] = {}
    for each in by_place.values():
        names.setdefault(each.name, []).append(each)
    return [
        each._replace(name=f"{name}[{at}]") if len(group) > 1 else each
        for name, group in names.items()
        for at, each in enumerate(group)
    ]


# --- what to try next -----------------------------------------------------------------------


def _uniform(start: list[float], tried: Sequence[Tried], random: Random) -> list[float]:
    return [random.random() for _ in start]


def cma() -> tuple[Any, Any]:
    """numpy and CMA-ES."""
    try:
        return import_module("numpy"), import_module("cmaes").CMA
    except ImportError:
        raise ConfigError(
            "CMA-ES needs the extra `search`",
            hint="`pip install 'holdfast[search]'`, or --executor search:random",
        ) from None


def _cma(start: list[float], tried: Sequence[Tried], random: Random) -> list[float]:
    """A draw of CMA-ES after every whole population of what was tried."""
    np, made = cma()
    bounds = np.array([[0.0, 1.0]] * len(start))
    found = made(np.array(start), _SIGMA, bounds=bounds, seed=random.getrandbits(31))
    size: int = found.population_size
    worst = max((each.loss for each in tried if each.loss is not None), default=0.0)
    for first in range(0, len(tried) // size * size, size):
        batch = tried[first : first + size]
        found.tell(
            [(np.array(each.point), worst if each.loss is None else each.loss) for each in batch]
        )
    return [float(each) for each in found.ask()]


def _local(start: list[float], tried: Sequence[Tried], random: Random) -> list[float]:
    """A few numbers of the best point moved."""
    point = list(_best(start, tried)[0])
    for at in random.sample(range(len(point)), min(len(point), random.choice((1, 1, 2, 3)))):
        point[at] = _inside(point[at] + random.gauss(0, _STEP))
    return point


def _cross(start: list[float], tried: Sequence[Tried], random: Random) -> list[float]:
    """The best point, moved by the difference of two good ones."""
    good = _best(start, tried)
    if len(good) < 3:
        return [_inside(each + random.gauss(0, _STEP / 2)) for each in good[0]]
    one, other = random.sample(good[: max(4, len(good) // 5)], 2)
    gaps = [0.7 * (a - b) for a, b in zip(one, other, strict=True)]
    moved = [random.random() < 0.5 for _ in start]
    return [
        _inside(at + gap) if move else at
        for at, gap, move in zip(good[0], gaps, moved, strict=True)
    ]


def _best(start: list[float], tried: Sequence[Tried]) -> list[list[float]]:
    """Points with a score, the best first; the start where there is none."""
    known = [(each.loss, at) for at, each in enumerate(tried) if each.loss is not None]
    points = {tuple(tried[at].point): None for _, at in sorted(known)}
    return [list(each) for each in points] or [start]


def _inside(share: float) -> float:
    return min(1.0, max(0.0, share))


Draw = Callable[[list[float], Sequence[Tried], Random], list[float]]
DRAWS: Mapping[str, tuple[tuple[str, Draw], ...]] = {
    "search": (("CMA-ES", _cma), ("a local step", _local), ("a cross of good points", _cross)),
    "search:cma": (("CMA-ES", _cma),),
    "search:random": (("a uniform draw", _uniform),),
}
"""By proposer the ways to a next point; planners of a round take them in turn."""


def next_texts(
    found: Sequence[Constant], draw: Draw, tried: Sequence[Tried], random: Random
) -> list[str]:
    """A point as texts: neither what is there nor, if that can be had, what was tried."""
    start = [each.share(each.value) for each in found]
    known = {
        tuple(c.text(at) for c, at in zip(found, point, strict=True))
        for point in (start, *(each.point for each in tried))
    }
    point = draw(start, tried, random)
    for _ in range(_TRIES):
        if tuple(each.text(share) for each, share in zip(found, point, strict=True)) not in known:
            break
        point[random.randrange(len(point))] = random.random()
    return [each.text(share) for each, share in zip(found, point, strict=True)]


def rewritten(line: str, found: Sequence[tuple[Constant, str]]) -> str:
    """A line with other numbers."""
    for each, text in sorted(found, key=lambda pair: -pair[0].start):
        line = line[: each.start] + text + line[each.end :]
    return line

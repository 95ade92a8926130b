"""Rows and documents as plain aligned text.

Pure: values in, lines out; no stream, no colour, no terminal.  Every character that comes from
data goes through `safe`.  Rich could do this too, and would cost more than a whole hot verb.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from holdfast.cli.safe import safe
from holdfast.text import ago

GAP = "  "
WIDEST = 40
"""A cell wider than this pushes its own line out, not the whole column."""
NAME, LAST = 24, 12
"""What a terminal that is too small leaves of the name that a line begins with, and of its end."""
MOST_COLUMNS = 9


def cell(value: object) -> str:
    """One value on one line."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return safe(value)
        case int() | float():
            return str(value)
        case _:
            # Only rows with something nested pay for this.
            import json

            return safe(json.dumps(value, ensure_ascii=False, default=str))


def width(text: str) -> int:
    """How many columns of a terminal `text` fills."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    return sum(
        0 if category(char) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(char) in "WF")
        for char in text
    )


def clip(text: str, columns: int) -> str:
    """`text` cut to `columns`, the cut shown as an ellipsis."""
    if width(text) <= columns:
        return text
    used = 1
    for at, char in enumerate(text):
        used += width(char)
        if used > columns:
            return text[:at] + "…"
    return text


def columns_of(rows: Iterable[Mapping[str, Any]], wanted: Sequence[str]) -> list[str]:
    """The wanted columns that some row has, or all keys in the order they first appear."""
    present = dict.fromkeys(key for row in rows for key in row)
    return [name for name in wanted if name in present] if wanted else list(present)


class Grid:
    """Lines under one header; the columns grow as wider cells come."""

    def __init__(self, columns: Sequence[str], numeric: Iterable[str] = ()) -> None:
        self._columns = list(columns)
        self._numeric = set(numeric)
        self._widths = [width(safe(name)) for name in columns]
        self._named: int | None = None

    def narrow(self, most: int) -> None:
        """Cut the names that lines begin with, so that all columns can be seen."""
        rest = [*self._widths[1:-1], min(LAST, self._widths[-1])]
        self._named = max(NAME, most - sum(rest) - len(GAP) * len(rest))
        self._widths[0] = min(self._widths[0], self._named)

    def header(self) -> str:
        return self._line([safe(name).upper() for name in self._columns])

    def fit(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self._grow(self._cells(row))

    def line(self, row: Mapping[str, Any]) -> str:
        cells = self._cells(row)
        if self._named is not None:
            cells[0] = clip(cells[0], self._named)
        self._grow(cells)
        return self._line(cells)

    def _cells(self, row: Mapping[str, Any]) -> list[str]:
        return [self._cell(name, row.get(name)) for name in self._columns]

    def _cell(self, name: str, value: object) -> str:
        return ago(value) if name == "age" and isinstance(value, int | float) else cell(value)

    def _grow(self, cells: Sequence[str]) -> None:
        self._widths = [
            max(had, min(width(text), WIDEST))
            for had, text in zip(self._widths, cells, strict=True)
        ]

    def _line(self, cells: Sequence[str]) -> str:
        padded: list[str] = []
        for name, text, wide in zip(self._columns, cells, self._widths, strict=True):
            space = " " * (wide - width(text))
            padded.append(space + text if name in self._numeric else text + space)
        return GAP.join(padded).rstrip(" ")


def table(
    rows: Sequence[Mapping[str, Any]], wanted: Sequence[str] = (), most: int | None = None
) -> list[str]:
    """Header and rows, on a terminal of `most` columns; nothing at all for no rows."""
    if not rows:
        return []
    columns = columns_of(rows, wanted)
    numeric = [name for name in columns if _are_numbers(row.get(name) for row in rows)]
    grid = Grid(columns, numeric)
    grid.fit(rows)
    if most is not None and len(columns) > 1:
        grid.narrow(most)
    return [grid.header(), *(grid.line(row) for row in rows)]


def outline(data: Mapping[str, Any]) -> Iterator[str]:
    """A document as keys and values, what is nested indented below its key."""
    plain = [key for key, value in data.items() if not _is_block(value)]
    wide = max((width(safe(key)) for key in plain), default=0) + 1
    for key, value in data.items():
        label = safe(key) + ":"
        if _is_block(value):
            yield label
            yield from ("  " + line for line in _block(value))
        else:
            yield f"{label}{' ' * (wide - width(label))} {_inline(value)}"


def _are_numbers(values: Iterable[object]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(type(value) in (int, float) for value in present)


def _is_block(value: object) -> bool:
    match value:
        case Mapping():
            return bool(cast("Mapping[str, Any]", value))
        case list() | tuple():
            return any(isinstance(each, Mapping) for each in cast("list[object]", value))
        case str():
            return "\n" in value
        case _:
            return False


def _block(value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            yield from outline(cast("Mapping[str, Any]", value))
        case str():
            yield from safe(value, lines=True).rstrip("\n").split("\n")
        case _:
            items = cast("list[Any]", value)
            if all(isinstance(each, Mapping) for each in items):
                yield from _rows(items)
            else:
                yield from (cell(each) for each in items)


def _rows(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table; where each row has fields of its own, those stand behind what all have."""
    columns = columns_of(items, ())
    if len(columns) <= MOST_COLUMNS:
        return table(items)
    shared = [name for name in columns if all(name in each for each in items)]
    rows: list[dict[str, Any]] = []
    for each in items:
        own = [f"{name}={cell(value)}" for name, value in each.items() if name not in shared]
        rows.append({**{name: each[name] for name in shared}, "more": ", ".join(own)})
    return table(rows)


def _inline(value: Any) -> str:
    match value:
        case list() | tuple():
            return ", ".join(cell(each) for each in cast("list[object]", value)) or "-"
        case Mapping():
            return "-"
        case _:
            return cell(value)

"""Amounts as people write them, amounts and texts as they are shown in a line, texts in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.errors import UsageError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([smhdw]?)")
_BYTES = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for kind, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("KMGT", 1)
}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([KMGT]i?B|B?)")


def duration(text: str) -> float:
    """Seconds: `90m`, `1.5h`, `2 d`, `5400`."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds > 0:
        return seconds
    raise UsageError(f"not a length of time: {text[:80]!r}", hint="such as 90s, 30m, 1.5h or 2d")


def size(text: str) -> int:
    """Bytes: `200MB`, `1.5 GiB`, `4096`."""
    found = _SIZE.fullmatch(text.strip())
    count = int(float(found[1]) * _BYTES[found[2]]) if found else 0
    if count > 0:
        return count
    raise UsageError(f"not a size: {text[:80]!r}", hint="such as 200MB, 2GiB or 4096")


def ago(seconds: float) -> str:
    """A length of time in the one unit that tells most: 3s, 12m, 4h, 1096d."""
    for unit in ("d", "h", "m"):
        if abs(seconds) >= 2 * _SECONDS[unit]:
            return f"{round(seconds / _SECONDS[unit])}{unit}"
    return f"{round(seconds)}s"


def plural(count: int, noun: str) -> str:
    """`1 file`, `1,200 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def clip(text: str, most: int) -> str:
    """The text in at most so many characters, a cut shown as an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def pieces(text: str, most: int) -> Iterator[str]:
    """A text in pieces of so many characters: paragraphs while they fit, else lines, else words."""
    held = ""
    for part in _parts(text, most, (r"\n\s*\n", r"\n", r"(?<=\s)")):
        if held.strip() and len(held) + len(part) > most:
            yield held.strip()
            held = ""
        held += part
    if held.strip():
        yield held.strip()


def _parts(text: str, most: int, cuts: tuple[str, ...]) -> Iterator[str]:
    """Parts that are short enough, cut as coarsely as that allows; together they are the text."""
    if len(text) <= most:
        yield text
    elif not cuts:
        yield from (text[at : at + most] for at in range(0, len(text), most))
    else:
        ends = [match.end() for match in re.finditer(cuts[0], text)]
        for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
            yield from _parts(text[start:end], most, cuts[1:])

"""Amounts of bytes as people type them: `200MB`, `1.5 GiB`, `4096`."""

from __future__ import annotations

import re

from holdfast.errors import UsageError

_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([KMGT]i?B|B?)")
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for kind, base in (("B", 1000), ("iB", 1024))
    for power, letter in enumerate("KMGT", 1)
}


def size(text: str) -> int:
    """The number of bytes."""
    found = _SIZE.fullmatch(text.strip())
    count = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if count > 0:
        return count
    raise UsageError(f"not a size: {text[:80]!r}", hint="such as 200MB, 2GiB or 4096")

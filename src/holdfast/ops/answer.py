"""An answer of `doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Answer(NamedTuple):
    check: str
    state: str
    """ok, warning or broken."""
    detail: str
    fix: str = ""

    def as_row(self) -> dict[str, str]:
        return self._asdict()

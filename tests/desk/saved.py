"""Files as somebody else saves them."""

from __future__ import annotations

import os
from pathlib import Path


def saved_long_ago(file: Path, data: bytes) -> None:
    """A broken or an empty text: one that is new is waited for."""
    file.write_bytes(data)
    for each in (file, file.with_name(f".{file.name}.next")):
        if each.exists():
            os.utime(each, (0, 0))

"""What the tests of mailboxes share."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.store.home import Home
from holdfast.store.mailbox import FileMailbox
from holdfast.store.primitives import Claim, Line

KEY = "state/rio/inbox"
OLD = (1_600_000_000, 1_600_000_000)


def drop(folder: Path, name: str, data: bytes = b'{"n": 1}', *, old: bool = True) -> Path:
    """What a foreign writer does: just put a file there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_bytes(data)
    if old:
        os.utime(file, OLD)
    return file


def claims(mailbox: FileMailbox, limit: int = 50) -> list[Claim]:
    return mailbox.claim("rio", fence=1, seconds=30.0, limit=limit)


def names(folder: Path, shelf: str) -> list[str]:
    return sorted(os.listdir(folder / shelf))


def told(home: Home) -> list[str]:
    """What the audit log was told."""
    lines = [line for line in home.log("audit").read() if isinstance(line, Line)]
    return [line.record["detail"] for line in lines]

"""Jobs of which only what was shown of them is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import Corrupt

if TYPE_CHECKING:
    from holdfast.store.home import Home


def is_lost(home: Home, key: str) -> bool:
    """Whether a folder without a history was a job: what is shown of it tells."""
    name = f"{key}/manifest.json"
    text = home.document(name).read()
    if text is not None and b'"job_id"' in text.data:
        return True
    cell = home.cell(name)
    try:
        stamp = cell.peek()
    finally:
        cell.close()
    return stamp is not None and stamp.cursor.seq > 0


def check_not_lost(home: Home, key: str, name: str) -> None:
    """Corrupt if what is missing here is not the job but its history."""
    if is_lost(home, key):
        raise Corrupt(
            f"the history of {name} is damaged or gone",
            hint=f"bring {key}/history.jsonl back from a backup; {key}/manifest.json shows "
            "where the job was",
            path=f"{key}/history.jsonl",
        )

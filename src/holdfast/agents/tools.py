"""What an agent did with its tools: a line for each call, and what they add up to.

A line says which tool, with what, and whether it worked, so that people can follow; it never
holds what was written or what came back.  Pure.
"""

from __future__ import annotations

from itertools import islice
from typing import cast

from holdfast.codec import Record
from holdfast.mask import hiding
from holdfast.text import clip, one_line

MOST_DIGEST = 300
"""Characters of what is told of the input, or of an error."""
MOST_FILES = 100
_MOST_NAMES, _MOST_NAME, _MOST_PATH = 50, 80, 500
_IDS_KEPT = 64
"""Calls that are told twice come close together."""
_LOOKED_AT, _MOST_SCALARS = 4_000, 6

_TELLING: dict[str, tuple[str, ...]] = {
    "Bash": ("command",),
    "Write": ("file_path",),
    "Edit": ("file_path",),
    "MultiEdit": ("file_path",),
    "NotebookEdit": ("notebook_path",),
    "Read": ("file_path",),
    "Glob": ("pattern", "path"),
    "Grep": ("pattern", "path"),
    "WebFetch": ("url",),
    "WebSearch": ("query",),
    "Task": ("subagent_type", "description"),
    "Agent": ("subagent_type", "description"),
}
"""Of tools we know, the input that tells what they did."""
_WRITERS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_SILENT = frozenset(
    {"content", "new_string", "old_string", "new_source", "prompt", "edits", "todos"}
)
"""Texts that an agent writes: what they are about is told by their file."""

_hide = hiding()


def told(text: str, most: int = MOST_DIGEST) -> str:
    """A text in a line, without secrets and not too long."""
    # Masked before it is cut: half a key is one that no pattern finds.
    return clip(one_line(str(_hide({"text": text[:_LOOKED_AT]})["text"])), most)


def digest(tool: str, given: Record) -> str:
    """What a tool was called with, in a line."""
    names = _TELLING.get(tool)
    if names is not None:
        found = [given[name] for name in names if isinstance(given.get(name), str)]
        return told(" ".join(found))
    scalars = {
        str(name): value[:_LOOKED_AT] if isinstance(value, str) else value
        for name, value in given.items()
        if name not in _SILENT and isinstance(value, str | int | float | bool)
    }
    # By their names first, which are no names any more in a line.
    some = _hide(dict(islice(scalars.items(), _MOST_SCALARS)))
    return told(" ".join(f"{name[:40]}={str(value)[:200]}" for name, value in some.items()))


def line(tool: str, given: Record, call: str | None, error: str | None) -> Record:
    """The line of one call; `error` says that it failed."""
    record: Record = {"event": "tool_use", "tool": told(tool, _MOST_NAME) or "?"}
    if shown := digest(tool, given):
        record["input"] = shown
    path = given.get(_TELLING[tool][0]) if tool in _WRITERS else None
    if isinstance(path, str) and path and error is None:
        record["wrote"] = told(path, _MOST_PATH)
    if error is not None:
        record["failed"] = told(error) or "failed"
    if call:
        record["call"] = call[:128]
    return record


# --- what they add up to --------------------------------------------------------------------


def counted(before: Record | None, record: Record) -> Record:
    """The counts of a session with one line more."""
    counts: Record = before or {**shown(None), "last": []}
    counts["calls"] += 1
    counts["failed"] += "failed" in record
    by_name: dict[str, int] = counts["by_name"]
    name = str(record.get("tool"))
    if name not in by_name and len(by_name) >= _MOST_NAMES:
        name = "other"
    by_name[name] = by_name.get(name, 0) + 1
    wrote, path = cast("list[str]", counts["wrote"]), record.get("wrote")
    if isinstance(path, str) and path not in wrote and len(wrote) < MOST_FILES:
        wrote.append(path)
    if isinstance(record.get("call"), str):
        counts["last"] = [*counts["last"], record["call"]][-_IDS_KEPT:]
    return counts


def knows(counts: Record | None, call: object) -> bool:
    """Whether a call is counted already."""
    return counts is not None and call is not None and call in counts["last"]


def shown(counts: Record | None) -> Record:
    """The counts as people see them."""
    if counts is None:
        return {"calls": 0, "failed": 0, "by_name": {}, "wrote": []}
    return {name: counts[name] for name in ("calls", "failed", "by_name", "wrote")}


def files_written(shown: Record) -> int | None:
    """How many; unknown where there were more than are kept."""
    known = len(shown["wrote"])
    return known if known < MOST_FILES else None

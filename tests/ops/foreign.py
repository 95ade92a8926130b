"""Trees as other systems left them, in the shapes that were met, with made-up content."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def put(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def lines(records: Iterable[dict[str, Any] | bytes]) -> bytes:
    """JSONL as a shell script writes it, with a space behind each colon."""
    made = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in records)
    return b"".join(line + b"\n" for line in made)


def snapshot(tree: Path) -> dict[str, tuple[Any, ...]]:
    """Everything that a careless importer could change."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted([tree, *tree.rglob("*")]):
        kept = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        shape = (kept.st_mode, kept.st_ino, kept.st_nlink, kept.st_size)
        found[str(path.relative_to(tree))] = (*shape, kept.st_mtime_ns, kept.st_ctime_ns, content)
    return found


# --- ledgers --------------------------------------------------------------------------------


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """Version 1.0, on the 16th, a minute apart."""
    return {
        "ts": f"2025-11-16T02:{number:02d}:00+07:00",
        "agent": "cls",
        "session_id": "2025-11-16_cls_001",
        "event": "info",
        "task_id": f"wo-{number}",
        "source": "orchestrator",
        "summary": f"event {number}",
        "data": {"number": number},
        **changes,
    }


def ap_io(number: int, task: str, **event: Any) -> dict[str, Any]:
    """AP/IO 3.1: the event is an object, and the date in `ts` is that of the day before."""
    return {
        "protocol": "AP/IO",
        "version": "3.1",
        "agent": "cls",
        "ts": f"2025-11-15T21:{number:02d}:35+07:00",
        "correlation_id": f"corr-20251116-{number:03d}",
        "event": {
            "type": "task_start",
            "task_id": task,
            "source": "liam",
            "summary": f"work on {task}",
            **event,
        },
        "data": {"execution_duration_ms": 1250},
        "ledger_id": f"ledger-20251116-0416{number:02d}-cls-001",
        "parent_id": None,
    }


def luka(tree: Path) -> Path:
    """Two agents with ledgers, one with a status; other things around them."""
    old = [ap_io(1, "wo-test-008"), ap_io(2, "wo-test-009"), ap_io(3, "wo-test-verify")]
    new = [
        entry(1, event="task_start", task_id="wo-1"),
        entry(2, event="heartbeat", task_id="system"),
        entry(3, event="task_result", task_id="wo-1", data={"status": "success", "x": [1, {}]}),
    ]
    put(tree / "g/ledger/cls/2025-11-16.jsonl", lines([*old, *new]))
    andy = [
        {**entry(number), "agent": "andy", "session_id": "2025-11-17_andy_002", "ts": ts}
        for number, ts in enumerate(
            ["2025-11-17T09:00:00+0700", "2025-11-17T02:30:00Z", "2025-11-17T09:45:00.250+07:00"]
        )
    ]
    put(tree / "g/ledger/andy/2025-11-17.jsonl", lines(andy))
    status = {
        "agent": "cls",
        "state": "idle",
        "last_heartbeat": "2025-11-16T02:10:00+07:00",
        "last_task_id": "wo-1",
        "session_id": "2025-11-16_cls_001",
        "last_error": None,
    }
    put(tree / "agents/cls/status.json", json.dumps(status, indent=2))
    put(tree / "agents/README.md", "# Agents\n")
    summary = "# CLS Session Summary: 2025-11-16_cls_001\n\n**Date:** 2025-11-16\n"
    put(tree / "memory/cls/sessions/2025-11-16_cls_001.md", summary)
    put(tree / "tools/ledger_write.zsh", "#!/bin/zsh\n")
    return tree

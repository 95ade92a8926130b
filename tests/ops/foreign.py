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


# --- agents' state --------------------------------------------------------------------------


def report(agent: str, **changes: Any) -> dict[str, Any]:
    return {
        "agent": agent,
        "updated_at": "2026-03-31T22:00:00Z",
        "status": "idle",
        "summary": "Archived eight sources",
        "current_task": None,
        "last_session": {
            "id": "20260331-220000",
            "started_at": "2026-03-31T20:30:00Z",
            "ended_at": "2026-03-31T22:00:00Z",
            "outcome": "completed",
            "sources_archived": 8,
            "branch": f"{agent}/research-2026-03-31",
            "pr_number": 247,
        },
        "blocked_by": None,
        "next_priority": "Go on with the open thread",
        **changes,
    }


def tasks(agent: str, **changes: Any) -> dict[str, Any]:
    task = {
        "id": "task-001",
        "type": "research",
        "description": "Look into the second version",
        "status": "pending",
        "priority": "high",
        "created_at": "2026-03-31T22:00:00Z",
        "context": "From the session of 03-31",
        "follow_up_from": None,
        "completed_at": None,
        "outcome": None,
    }
    return {"agent": agent, "updated_at": "2026-03-31T22:00:00Z", "tasks": [task], **changes}


def session(agent: str, **changes: Any) -> dict[str, Any]:
    return {
        "agent": agent,
        "session_id": "20260331-220000",
        "started_at": "2026-03-31T20:30:00Z",
        "ended_at": "2026-03-31T22:00:00Z",
        "type": "research",
        "domain": "finance",
        "branch": f"{agent}/research-2026-03-31",
        "status": "completed",
        "model": "sonnet",
        "timeout_seconds": 5400,
        "research_question": "How is it done elsewhere?",
        "belief_targeted": "It is done the same way everywhere",
        "disconfirmation_target": "One place where it is not",
        "sources_archived": 8,
        "sources_expected": 10,
        "tokens_used": None,
        "cost_usd": None,
        "errors": [],
        "handoff_notes": "Three sources need extraction",
        **changes,
    }


def metrics(agent: str, **changes: Any) -> dict[str, Any]:
    lifetime = {"sessions_total": 47, "sessions_completed": 42, "sessions_timeout": 3}
    lifetime |= {"sessions_error": 2, "sources_archived": 312, "claims_proposed": 89}
    lifetime |= {"claims_accepted": 71, "claims_challenged": 12, "claims_rejected": 6}
    lifetime |= {"disconfirmation_attempts": 47, "disconfirmation_hits": 8}
    lifetime |= {"cross_agent_flags_sent": 23, "cross_agent_flags_received": 15}
    rolling = {"sessions": 12, "sources_archived": 87, "claims_proposed": 24}
    rolling |= {"acceptance_rate": 0.83, "avg_sources_per_session": 7.25}
    stamp = "2026-03-31T22:00:00Z"
    return {
        "agent": agent,
        "updated_at": stamp,
        "lifetime": lifetime,
        "rolling_30d": rolling,
    } | changes


def message(to: str, number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"msg-{number:03d}",
        "from": "theseus",
        "to": to,
        "created_at": f"2026-03-31T18:00:{number:02d}Z",
        "type": "flag",
        "priority": "normal",
        "subject": f"Look at this, {number}",
        "body": "There is something in it.",
        "source_ref": "theseus/research-2026-03-31",
        "expires_at": None,
        **changes,
    }


NOTES = """\
# Rio — Operational Memory

## Cross-Session Patterns
- The same thing keeps appearing (sessions 03-28, 03-31).

## Dead Ends (don't re-investigate)
- Fees (2026-03-25): all is said.
"""
JOURNAL = [
    {
        "ts": "2026-03-31T20:30:00Z",
        "event": "session_start",
        "session_id": "20260331-220000",
        "type": "research",
    },
    {"ts": "2026-03-31T20:35:00Z", "event": "orient_complete", "files_read": ["a.md"]},
    {"ts": "2026-03-31T21:30:00Z", "event": "sources_archived", "count": 5, "domain": "finance"},
    {
        "ts": "2026-03-31T22:00:00Z",
        "event": "session_end",
        "outcome": "completed",
        "sources_archived": 8,
        "handoff": "go on",
    },
]


def teleo_agent(folder: Path, agent: str) -> Path:
    """The seven entries of one agent; two messages wait."""
    for name, value in (
        ("report", report(agent)),
        ("tasks", tasks(agent)),
        ("session", session(agent)),
        ("metrics", metrics(agent)),
    ):
        put(folder / f"{name}.json", json.dumps(value, indent=2))
    put(folder / "memory.md", NOTES)
    put(folder / "journal.jsonl", lines(JOURNAL))
    for number in (2, 1):
        put(folder / f"inbox/9f{number}.json", json.dumps(message(agent, number)))
    return folder


def teleo(tree: Path) -> Path:
    teleo_agent(tree / "rio", "rio")
    teleo_agent(tree / "clay", "clay")
    return tree


STOPS = {"2ea8dbcb": 35, "4ee6c75b": 21, "76fb9bca": 17, "f262ddd9": 3, "9b4ecba9": 2}
LAST_STOP = "2026-03-06T12:07:16Z"


def stops(folder: Path) -> Path:
    """78 files that a hook wrote each time an agent stopped, and when the first one did last."""
    made = 0
    for id, many in STOPS.items():
        for _ in range(many):
            made += 1
            ended = f"2026-03-05T{made // 60:02d}:{made % 60:02d}:18Z"
            if id == "2ea8dbcb" and made == 7:
                ended = LAST_STOP
            name = ended.replace("-", "").replace(":", "").removesuffix("Z")
            value = {"id": id, "ended": ended, "status": "completed"}
            put(folder / f"{name}.json", json.dumps(value))
    return folder

"""`holdfast.testing.replay_job_history`, for people who test their own agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import replay_job_history

SAID = {"action": "COMPLETED", "evidence_files": [], "summary_for_supervisor": "Done."}


def call(number: int, before: str, after: str, action: str = "COMPLETED") -> dict[str, Any]:
    said = {**SAID, "action": action}
    settings = {"role": "Worker", "phase": "a", "model": "m", "temperature": 0.7, "max_tokens": 10}
    return {
        "sequence": number,
        "timestamp": "2026-01-29T14:30:45Z",
        "state_before": before,
        "workspace_path": "/w",
        "request": {"prompt": "p", "files_context": [], "metadata": settings},
        "response": {
            "status": "SUCCESS",
            **said,
            "raw_response": json.dumps(said),
            "execution_time_seconds": 1.5,
            "cost_usd": 0.01,
            "new_status": after,
        },
    }


def history(path: Path, *calls: dict[str, Any]) -> str:
    whole = {"job_id": "j", "created_at": "2026-01-29T10:00:00Z", "interactions": list(calls)}
    (path / "jobHistory.json").write_text(json.dumps({**whole, "recovery_points": []}))
    return str(path)


def test_a_good_history_passes_as_a_whole_and_in_part(tmp_path: Path) -> None:
    folder = history(tmp_path, call(1, "PENDING", "REVIEWING"), call(2, "REVIEWING", "SUCCESS"))
    assert replay_job_history(folder) == 2
    assert replay_job_history(folder, 1) == 1


def test_a_state_that_does_not_follow_is_told(tmp_path: Path) -> None:
    folder = history(tmp_path, call(0, "PENDING", "SUCCESS"), call(1, "PENDING", "SUCCESS"))
    assert replay_job_history(folder, 1) == 1
    with pytest.raises(AssertionError, match=r"interactions\[1\]"):
        replay_job_history(folder)


def test_an_answer_that_breaks_the_rules_is_told(tmp_path: Path) -> None:
    bad = call(0, "PENDING", "SUCCESS")
    long = {**SAID, "summary_for_supervisor": "x" * 501}
    bad["response"] |= {"raw_response": json.dumps(long), **long}
    with pytest.raises(AssertionError, match="call 0"):
        replay_job_history(history(tmp_path, bad))

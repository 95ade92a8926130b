"""Every answer of a job is durable before the next call, whatever it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import FakeClock
from holdfast.models.scripted import Line
from tests.jobs.test_runner import Scene, said
from tests.store.faults import FaultyVfs

CALLS = 8
PHASES = [{"name": "work", "max_retries": CALLS}]


@pytest.fixture
def vfs() -> FaultyVfs:
    return FaultyVfs()


@pytest.fixture
def scene(tmp_path: Path, vfs: FaultyVfs) -> Scene:
    made = Scene(tmp_path / "home", FakeClock(), vfs, phases=PHASES)
    vfs.forget()
    return made


def script(**more: Any) -> list[Line]:
    last = CALLS - 1
    said_last = [said("RETRY", f"Step {n}.") for n in range(last)] + [said("STUCK", "Enough.")]
    return [Line(text, **more) for text in said_last]


def unsettled(vfs: FaultyVfs, until: int | None = None) -> int:
    """How many writes to the history no sync follows."""
    calls = vfs.calls[:until]
    ours = [call.op for call in calls if "history" in call.name and call.op in ("write", "sync")]
    return len(ours) - 1 - max((n for n, op in enumerate(ours) if op == "sync"), default=-1)


@pytest.mark.parametrize("more", [{}, {"delay": 0.005}, {"cost_usd": 0.01}])
def test_an_answer_is_durable_before_the_job_goes_on(
    scene: Scene, vfs: FaultyVfs, more: dict[str, Any]
) -> None:
    behind: list[int] = []
    with scene.running(script(**more)) as runner:
        runner._watch = lambda word, state: behind.append(unsettled(vfs))
        runner.run()
    assert len(behind) >= 2 * CALLS
    assert set(behind) == {0}


@pytest.mark.parametrize("answer", [{"evidence_files": ["gone.txt"]}, {"note": "sk-ant-api03-"}])
def test_nothing_is_told_elsewhere_of_an_answer_that_is_not_durable(
    scene: Scene, vfs: FaultyVfs, answer: dict[str, Any]
) -> None:
    if "note" in answer:
        answer = {"note": f"{answer['note']}{'Ab3dEf6h' * 11}-Ab3dEAAA"}
    lines = script()
    lines[3] = Line(said("RETRY", "Step 3.", **answer))
    scene.run(lines)
    audit = [n for n, each in enumerate(vfs.calls) if each.op == "write" and "jsonl" in each.name]
    told = [n for n in audit if "history" not in vfs.calls[n].name]
    assert told, "the audit was told"
    assert [unsettled(vfs, n) for n in told] == [0] * len(told)

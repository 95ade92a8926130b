"""What a power cut may take of a job: a moment of answers that cost nothing, and no more."""

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


def syncs(vfs: FaultyVfs) -> int:
    return vfs.count("sync", "*history*")


def test_answers_that_come_at_once_and_cost_nothing_share_a_sync(
    scene: Scene, vfs: FaultyVfs
) -> None:
    assert scene.run(script())["status"] == "INTERVENTION_REQUIRED"
    assert len(scene.calls()) == CALLS
    assert 1 <= syncs(vfs) < CALLS
    assert unsettled(vfs) == 0, "what is told at the end is durable"


@pytest.mark.parametrize("more", [{"delay": 0.005}, {"cost_usd": 0.01}])
def test_what_took_time_or_money_is_durable_before_the_job_goes_on(
    scene: Scene, vfs: FaultyVfs, more: dict[str, Any]
) -> None:
    behind: list[int] = []
    with scene.running(script(**more)) as runner:
        runner._watch = lambda word, state: behind.append(unsettled(vfs))
        runner.run()
    assert len(behind) >= 2 * CALLS
    assert set(behind) == {0}


def test_a_slow_answer_after_quick_ones_is_durable_before_the_next_is_asked(
    scene: Scene, vfs: FaultyVfs
) -> None:
    quick, behind = script(), list[int]()
    quick[4] = quick[4]._replace(delay=60.0)
    with scene.running(quick) as runner:
        runner._watch = lambda word, state: behind.append(unsettled(vfs))
        runner.run()
    # asked, judged, asked, judged: the fifth answer is judged at 9.
    assert behind[9] == 0
    assert max(behind) > 0


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


def test_no_manifest_is_stamped_with_a_line_that_is_not_durable(
    scene: Scene, vfs: FaultyVfs
) -> None:
    behind: list[int] = []

    def interrupt(word: str, state: Any) -> None:
        behind.append(unsettled(vfs))
        if state["sequence"] == 5:
            raise KeyboardInterrupt

    with scene.running(script()) as runner:
        runner._watch = interrupt
        with pytest.raises(KeyboardInterrupt):
            runner.run()
    assert behind[-1] > 0
    scene.job.close()
    stamped = [n for n, each in enumerate(vfs.calls) if each.op == "dir.rename"]
    assert unsettled(vfs, stamped[-1]) == 0

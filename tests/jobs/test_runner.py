"""Asking agents for a job: what is on record before, what follows, and what a crash leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import FakeClock
from holdfast.errors import Busy, DiskFull, LeaseLost, OverBudget
from holdfast.jobs import history, steward
from holdfast.jobs.job import Job
from holdfast.jobs.place import Models, workspace_of
from holdfast.jobs.replay import Differs, replay
from holdfast.jobs.runner import Runner
from holdfast.jobs.spec import Options, settled, spec_from
from holdfast.jobs.state import Refused, fold, initial
from holdfast.models.scripted import Scripted
from holdfast.spend.book import Spend
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.store.primitives import Decide, T, Written
from holdfast.store.vfs import Vfs
from holdfast.testing import unmarked

WORKER, SUPERVISOR = "scripted:worker", "scripted:supervisor"


def said(action: str = "COMPLETED", summary: str = "It is done.", **more: Any) -> str:
    return json.dumps(
        {"action": action, "evidence_files": [], "summary_for_supervisor": summary, **more}
    )


class Scene:
    """A home with one job whose agents say what they are told to say."""

    def __init__(self, path: Path, clock: FakeClock, vfs: Vfs | None = None, **spec: Any) -> None:
        self.path, self.clock = path, clock
        self.home = Home.open(str(path), create=True, clock=clock, vfs=vfs)
        self.job = Job(self.home, "j")
        told = {"prompt": "Add a test", "models": {"worker": WORKER, "supervisor": SUPERVISOR}}
        self.job.create(settled(spec_from({**told, **spec}).spec, Options()))

    @contextmanager
    def running(self, worker: Sequence[Any], supervisor: Sequence[Any] = ()) -> Generator[Runner]:
        given = {
            WORKER: Scripted(worker, ref=WORKER, clock=self.clock),
            SUPERVISOR: Scripted(supervisor, ref=SUPERVISOR, clock=self.clock),
        }
        self.job.own("a test")
        workspace = workspace_of(self.job)
        workspace.make()
        if self.job.state()["status"] == "DRAFT":
            steward.activate(self.job)
        runner = Runner(self.job, workspace, given=given)
        try:
            yield runner
        finally:
            runner.close()
            self.job.disown()

    def run(self, worker: Sequence[Any], supervisor: Sequence[Any] = ()) -> dict[str, Any]:
        with self.running(worker, supervisor) as runner:
            return runner.run()

    def again(self) -> None:
        """As another process: nothing is known but what is on disk."""
        self.job.close()
        self.home.close()
        self.home = Home.open(str(self.path), clock=self.clock)
        self.job = Job(self.home, "j")

    def calls(self) -> list[dict[str, Any]]:
        return list(history.calls(self.job))

    def states(self) -> list[str]:
        return [each["new_status"] for each in self.job.state()["trail"]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def scene(tmp_path: Path, clock: FakeClock) -> Scene:
    return Scene(tmp_path / "home", clock)


def test_a_worker_and_then_a_supervisor_take_a_job_to_success(scene: Scene) -> None:
    state = scene.run([said()], [said(summary="I looked at it.")])
    assert state["status"] == "SUCCESS"
    assert scene.states() == ["PENDING", "REVIEWING", "SUCCESS"]
    assert [each["state_before"] for each in scene.calls()] == ["PENDING", "REVIEWING"]
    assert [each["sequence"] for each in scene.calls()] == [0, 1]


def test_what_the_former_agent_said_is_in_the_next_prompt(scene: Scene) -> None:
    scene.run([said(summary="The port is 4711.", evidence_files=["a.py"])], [said()])
    prompt = scene.calls()[1]["request"]["prompt"]
    assert "The port is 4711." in prompt
    assert "a.py" in prompt
    assert "COMPLETED" in prompt
    assert scene.calls()[1]["request"]["files_context"] == ["a.py"]


def test_a_supervisor_sends_the_work_back_to_the_worker(scene: Scene) -> None:
    state = scene.run(
        [said(), said(summary="Now with a test.")],
        [said("RETRY", "There is no test."), said()],
    )
    assert state["status"] == "SUCCESS"
    assert [each["request"]["metadata"]["role"] for each in scene.calls()] == [
        "worker",
        "supervisor",
        "worker",
        "supervisor",
    ]
    assert "There is no test." in scene.calls()[2]["request"]["prompt"]


def test_a_phase_that_is_tried_again_too_often_asks_for_a_person(scene: Scene) -> None:
    state = scene.run([said("RETRY", "Not yet.")] * 9)
    assert state["status"] == "INTERVENTION_REQUIRED"
    assert len(scene.calls()) == 4
    assert "3 times" in state["why"]


def test_a_stuck_agent_is_told_what_the_steward_says(scene: Scene) -> None:
    worker = [said("STUCK", "Which port?"), said()]
    assert scene.run(worker, [said()])["status"] == "INTERVENTION_REQUIRED"
    steward.go_on(scene.job, "Port 4711.", "ann")
    assert scene.run(worker, [said()])["status"] == "SUCCESS"
    assert "Port 4711." in scene.calls()[1]["request"]["prompt"]


def test_an_error_of_the_provider_is_tried_three_times_with_growing_pauses(
    scene: Scene, clock: FakeClock
) -> None:
    down = {"error": "unavailable", "message": "503"}
    began = clock.now()
    state = scene.run([down] * 9)
    assert state["status"] == "INTERVENTION_REQUIRED"
    calls = scene.calls()
    assert [each["response"]["action"] for each in calls] == ["RETRY", "RETRY", "RETRY", "STUCK"]
    assert {each["response"]["status"] for each in calls} == {"ERROR"}
    assert clock.now() - began >= 0.5 + 1.0 + 2.0


def test_an_error_of_the_provider_that_passes_leaves_no_trace_in_the_outcome(scene: Scene) -> None:
    down = {"error": "unavailable", "message": "503"}
    assert scene.run([down, down, said()], [said()])["status"] == "SUCCESS"


def test_who_is_not_let_in_is_not_asked_again(scene: Scene) -> None:
    state = scene.run([{"error": "not_authorised", "message": "no key"}] * 3)
    assert state["status"] == "INTERVENTION_REQUIRED"
    assert len(scene.calls()) == 1
    assert "no key" in state["why"]


def test_an_answer_that_takes_too_long_asks_for_a_person(scene: Scene) -> None:
    state = scene.run([{"reply": said(), "delay": 601.0}])
    assert state["status"] == "INTERVENTION_REQUIRED"
    assert scene.calls()[0]["response"]["status"] == "TIMEOUT"


def test_time_that_is_used_up_halts_the_job_before_anybody_is_asked(
    tmp_path: Path, clock: FakeClock
) -> None:
    scene = Scene(tmp_path / "home", clock, budget={"max_time": "10s"})
    slow = {"reply": said("RETRY", "Not yet."), "delay": 6.0}
    state = scene.run([slow, slow, slow])
    assert state["status"] == "HALTED_TIME"
    assert [each["response"]["status"] for each in scene.calls()] == ["SUCCESS", "TIMEOUT"]
    with pytest.raises(Refused, match="above what is used"):
        steward.resume(scene.job, max_seconds=10.0)
    steward.resume(scene.job, max_seconds=100.0)
    assert scene.run([slow, slow, said()], [said()])["status"] == "SUCCESS"


def test_money_that_is_spent_halts_the_job_before_anybody_is_asked(
    tmp_path: Path, clock: FakeClock
) -> None:
    scene = Scene(tmp_path / "home", clock, budget={"max_cost": 0.5})
    dear = {"reply": said("RETRY", "Not yet."), "cost_usd": 0.3}
    state = scene.run([dear] * 5)
    assert state["status"] == "HALTED_COST"
    assert len(scene.calls()) == 1
    assert state["cost_usd"] == pytest.approx(0.3)


def test_calls_without_end_are_stopped_by_the_limit_of_calls(
    tmp_path: Path, clock: FakeClock
) -> None:
    scene = Scene(
        tmp_path / "home",
        clock,
        budget={"max_iterations": 5},
        phases=[{"name": "work", "max_retries": 99}],
    )
    state = scene.run([said("RETRY", "Not yet.")] * 9)
    assert (state["status"], state["hold"], state["steps"]) == ("PENDING", "iterations", 5)
    steward.resume(scene.job, max_iterations=6)
    with scene.running([said("RETRY", "Not yet.")] * 5 + [said()]) as runner:
        assert runner.run()["status"] == "SUCCESS"


@pytest.mark.parametrize("point", ["job.written", "job.claimed", "job.answered"])
@pytest.mark.parametrize("hit", range(1, 9))
def test_a_crash_anywhere_changes_nothing_of_the_outcome(
    tmp_path: Path, clock: FakeClock, point: str, hit: int
) -> None:
    worker = [said(), said(summary="Now with a test.")]
    supervisor = [said("RETRY", "There is no test."), said()]
    whole = Scene(tmp_path / "whole", clock)
    whole.run(worker, supervisor)
    scene = Scene(tmp_path / "home", clock)
    seen = 0

    def die() -> None:
        nonlocal seen
        seen += 1
        if seen == hit:
            raise Death

    with armed(point, die):
        try:
            scene.run(worker, supervisor)
        except Death:
            scene.again()
            scene.run(worker, supervisor)
    assert scene.job.state()["status"] == "SUCCESS"
    ended, expected = (
        [
            (unmarked(each["request"]["prompt"]), each["response"]["raw_response"])
            for each in of.calls()
            if each["response"]["raw_response"] is not None
        ]
        for of in (scene, whole)
    )
    assert ended == expected
    assert replay(scene.job).status == "SUCCESS"


class Death(BaseException):
    """The process ends here."""


def test_a_runner_that_was_replaced_can_no_longer_say_anything(scene: Scene) -> None:
    with scene.running([said()]) as runner:
        call = runner._claim()
        assert call is not None
        other = Job(scene.home, "j")
        other.fence = scene.job.fence + 1
        other.decide(lambda state: [{"event": "note"}])
        with pytest.raises(LeaseLost):
            runner._finish(call, runner._ask(call))
        other.close()


def test_a_job_has_one_runner_at_a_time(scene: Scene) -> None:
    with (
        scene.running([said()]),
        Job(scene.home, "j") as other,
        pytest.raises(Busy, match="a test"),
    ):
        other.own("another")


def test_a_job_that_is_cancelled_while_somebody_is_asked_stays_cancelled(scene: Scene) -> None:
    with scene.running([said()]) as runner:
        call = runner._claim()
        assert call is not None
        with Job(scene.home, "j") as other:
            steward.cancel(other)
        runner._finish(call, runner._ask(call))
    assert scene.job.state()["status"] == "CANCELED"
    assert scene.calls()[0]["response"]["new_status"] == "CANCELED"


def test_a_job_suspended_while_somebody_is_asked_waits_when_that_has_ended(scene: Scene) -> None:
    with scene.running([said()]) as runner:
        call = runner._claim()
        assert call is not None
        with Job(scene.home, "j") as other:
            steward.suspend(other)
        runner._finish(call, runner._ask(call))
    state = scene.job.state()
    assert (state["status"], state["hold"]) == ("REVIEWING", "suspended")


def test_a_phase_waits_for_approval_and_goes_on_after_it(tmp_path: Path, clock: FakeClock) -> None:
    phases = [{"name": "work", "approval": True}, {"name": "rest"}]
    scene = Scene(tmp_path / "home", clock, phases=phases)
    state = scene.run([said(), said()])
    assert (state["status"], state["hold"]) == ("REVIEWING", "approval")
    shown = steward.shown_now(scene.job).hash
    steward.reject(scene.job, "Not like this.", "ann", shown)
    with pytest.raises(Refused):
        steward.approve(scene.job, None, "ann", shown)
    state = scene.run([said(), said(summary="Better."), said()])
    assert state["hold"] == "approval"
    with pytest.raises(steward.Stale):
        steward.approve(scene.job, None, "ann", shown)
    steward.approve(scene.job, None, "ann", steward.shown_now(scene.job).hash)
    assert scene.run([said(), said(), said()])["status"] == "SUCCESS"
    assert "Not like this." in scene.calls()[1]["request"]["prompt"]


@pytest.mark.parametrize(
    ("event", "field", "value"),
    [
        ("judged", "action", "RETRY"),
        ("call", "state_before", "PENDING"),
        ("judged", "status", "SUCCESS"),
    ],
)
def test_a_history_that_was_changed_is_told_with_the_call(
    scene: Scene, event: str, field: str, value: str
) -> None:
    scene.run([said()], [said("RETRY", "No."), said()] if field == "status" else [said()])
    assert replay(scene.job).calls >= 1
    lines = [line.record for line in scene.job.lines()]
    changed = [
        record for record in lines if record.get("event") == event and record.get("sequence") == 1
    ]
    changed[0][field] = value

    class Changed(Job):
        def lines(self, after: Any = None) -> Any:
            for line in super().lines():
                same = line.record.get("event") == event and line.record.get("sequence") == 1
                yield line._replace(record=changed[0]) if same else line

    with Changed(scene.home, "j") as job, pytest.raises(Differs) as told:
        replay(job)
    assert told.value.sequence == 1


def test_the_first_calls_can_be_replayed_alone(scene: Scene) -> None:
    scene.run([said()], [said()])
    assert replay(scene.job, until=1)._replace(lines=0)[:3] == (1, 0, "REVIEWING")


def test_what_calls_cost_stands_in_the_book_of_the_fleet_once(scene: Scene) -> None:
    dear = {"reply": said(), "cost_usd": 0.25}
    scene.run([dear], [dear])
    with Spend(scene.home) as spend:
        (tally,) = spend.agents(scene.home.day()).values()
        assert (tally.usd, tally.sessions, tally.reserved_usd) == (0.5, 2, 0.0)


def test_a_job_stops_where_the_fleet_has_spent_what_it_may(scene: Scene) -> None:
    (scene.path / "holdfast.toml").write_text(
        'format = 1\ntimezone = "UTC"\n[budget]\nfleet_day_usd = 0.4\n'
    )
    scene.again()
    dear = {"reply": said(), "cost_usd": 0.25}
    with pytest.raises(OverBudget):
        scene.run([dear], [dear])
    state = scene.job.state()
    assert (state["status"], state["hold"], state["steps"]) == ("REVIEWING", None, 1)
    with Spend(scene.home) as spend:
        (tally,) = spend.agents(scene.home.day()).values()
        assert (tally.usd, tally.reserved_usd) == (0.25, 0.0)


def test_a_reply_without_end_is_cut_and_is_no_answer(scene: Scene) -> None:
    state = scene.run([said(summary="x" * 9_000_000)])
    assert state["status"] == "INTERVENTION_REQUIRED"
    raw = scene.calls()[0]["response"]["raw_response"]
    assert raw.endswith("characters more]")
    assert len(raw) < 1_100_000


def test_a_run_with_a_model_that_only_answers_writes_once_for_each_call(
    tmp_path: Path, clock: FakeClock
) -> None:
    scene = Scene(tmp_path / "home", clock, phases=[{"name": "work"}])
    written = 0

    def count() -> None:
        nonlocal written
        written += 1

    told = [said("RETRY"), said("RETRY"), said()]
    with scene.running(told) as runner, armed("job.written", count):
        runner.run()
    assert [each["response"]["action"] for each in scene.calls()] == ["RETRY", "RETRY", "COMPLETED"]
    assert written == 4  # the first question, and then each answer with the next one
    assert replay(scene.job).calls == 3


def test_what_the_history_masks_is_not_told_to_the_next_agent_either(
    tmp_path: Path, clock: FakeClock
) -> None:
    scene = Scene(tmp_path / "home", clock, phases=[{"name": "work"}])
    secret = "ghp_" + "a1B2c3D4e5" * 4
    model = Scripted([said("RETRY", f"The token is {secret}."), said()], ref=WORKER, clock=clock)
    with scene.running([]) as runner:
        runner.models = Models(runner.workspace.path, clock=clock, given={WORKER: model})
        runner.run()
    asked = [request.text for request in model.asked]
    assert len(asked) == 2
    assert "The token is" in asked[1]
    assert secret not in asked[1]


def folded_to(job: Job, last: int = sys.maxsize) -> dict[str, Any]:
    """What the lines of a history tell, up to one of them."""
    state = initial()
    for line in job.lines():
        if (line.seq or 0) <= last:
            state = fold(state, line)
    return state


def test_what_a_runner_knows_is_what_the_history_says(tmp_path: Path, clock: FakeClock) -> None:
    """It does not read again what it wrote; others write in between."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    phases = [{"name": "work", "max_retries": 9}, {"name": "look", "role": "supervisor"}]
    scene = Scene(tmp_path / "home", clock, phases=phases)
    looked: list[str] = []

    def watch(word: str, known: dict[str, Any]) -> None:
        with Home.open(str(scene.path), clock=clock) as home, Job(home, "j") as other:
            last = other.log.head().seq
            assert scene.job.known() in (folded_to(other, last), folded_to(other, last - 1))
            saved = home.cell(f"{other.key}/manifest.json").peek()
            assert saved is None or saved.state == folded_to(other, saved.cursor.seq)
            if len(looked) % 5 == 3:
                other.decide(lambda _: [{"event": "note", "guidance": "Mind the gap."}])
        looked.append(word)
        clock.advance(0.4 if len(looked) % 3 == 0 else 0.0)

    more = [said("RETRY", f"Once more, {number}.") for number in range(6)]
    told = [*more, said("RETRY", f"It is {secret}."), said(), said()]
    reviewed = [said("RETRY", "It is not done."), said()]
    with scene.running(told, reviewed) as runner:
        runner._watch = watch
        assert runner.run()["status"] == "SUCCESS"
    assert len(looked) > 8
    assert scene.job.state()["guidance"][0]["text"] == "Mind the gap."


def test_a_clock_that_is_set_back_does_not_hold_up_a_pause(
    scene: Scene, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    sleep = clock.sleep
    monkeypatch.setattr(clock, "sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    with scene.running([{"error": "unavailable"}, said()], [said()]) as runner:
        step = clock.now
        runner._watch = lambda word, state: (
            monkeypatch.setattr(clock, "now", lambda: step() - 86_400.0)
            if word == "waiting"
            else None
        )
        runner.run()
    assert max(slept) <= 60.0


def test_one_who_holds_a_job_for_a_moment_is_not_to_be_cancelled(scene: Scene) -> None:
    with Job(scene.home, "j") as other:
        for purpose, says in (("job rewind j", "try again"), ("job run j", "job cancel j")):
            other.own(purpose)
            with pytest.raises(Busy) as caught:
                scene.job.own("job run j")
            assert says in str(caught.value.hint)
            other.disown()


def test_what_was_decided_and_not_written_is_not_known(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state goes ahead of a write, and must come back when the disk refuses it."""
    write, full = scene.job.log.log.write, False

    def refused(decide: Decide[T]) -> Written[T]:
        if not full:
            return write(decide)
        decide(scene.job.log.log.head())
        raise DiskFull("no room", hint="make some")

    monkeypatch.setattr(scene.job.log.log, "write", refused)

    def watch(word: str, known: dict[str, Any]) -> None:
        nonlocal full
        full = known["sequence"] == 3

    with scene.running([said("RETRY"), said("RETRY"), said("RETRY")]) as runner:
        runner._watch = watch
        with pytest.raises(DiskFull):
            runner.run()
        told = folded_to(scene.job)
        assert told["sequence"] == 3
        assert scene.job.known() == told

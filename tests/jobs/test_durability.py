"""Jobs while processes die, hurry past one another, and files are damaged."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from holdfast.cli.main import main
from holdfast.errors import Busy
from holdfast.jobs import steward
from holdfast.jobs.job import Job, shown
from holdfast.jobs.state import fold, initial
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from tests.jobs.desk import AGAIN, DONE, Desk
from tests.ledger.shell import PATIENCE, ended

UPDATES = 200


def forked(work: Callable[[], object]) -> int:
    """A process of its own that has everything loaded already."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            done = work()
            code = done if isinstance(done, int) else 0
        os._exit(code)
    return child


def code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_once(works: list[Callable[[], object]]) -> list[int]:
    """The exit codes of processes that all begin at the same moment."""
    gate, opener = os.pipe()

    def waiting(work: Callable[[], object]) -> Callable[[], object]:
        def wait() -> object:
            os.close(opener)
            os.read(gate, 1)
            return work()

        return wait

    children = [forked(waiting(work)) for work in works]
    os.close(opener)
    os.close(gate)
    return [code_of(child) for child in children]


def killed_at(place: str, ordinal: int, words: list[str]) -> int:
    """`holdfast words…` that dies at a place of its protocol."""

    def die() -> None:
        nonlocal ordinal
        ordinal -= 1
        if ordinal == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> int:
        with armed(place, die):
            return main(words)

    return code_of(forked(work))


# --- deaths ---------------------------------------------------------------------------------


def test_the_manifest_is_whole_and_of_the_state_before_or_after_whenever_its_writer_is_killed(
    desk: Desk,
) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    file, chance = desk.home / "jobs/demo/manifest.json", Random(7)

    def update() -> None:
        while True:
            with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
                if job.state()["hold"]:
                    steward.resume(job)
                else:
                    steward.suspend(job)

    deaths, made = 0, 0
    while made < UPDATES or deaths < 5:
        child = forked(update)
        time.sleep(chance.uniform(0.02, 0.4))
        os.kill(child, signal.SIGKILL)
        assert code_of(child) == -signal.SIGKILL
        deaths += 1
        with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
            state, before, now = initial(), b"", b""
            for line in job.lines():
                state = fold(state, line)
                before, now = now, shown(state)
            made = len(state["trail"])
        json.loads(file.read_bytes())
        assert file.read_bytes() in (before, now), f"after {made} updates"
        with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
            job.catch_up()  # so that each death is judged by itself
    assert desk("check").code == 0


def test_a_job_whose_runner_died_at_its_very_end_is_shown_and_leaves_the_queue(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    words = ["--home", str(desk.home), "job", "run", "demo"]
    assert killed_at("job.written", 2, words) == -signal.SIGKILL
    assert desk.status() == "SUCCESS"
    assert desk.queue() == ["demo"]
    assert "already in terminal state SUCCESS" in desk("job", "run").out
    assert desk.queue() == []
    assert desk.manifest()["status"] == "SUCCESS"
    assert [each["response"]["action"] for each in desk.calls()] == ["COMPLETED"]


def test_a_second_runner_is_refused_by_name_until_the_first_is_dead(desk: Desk) -> None:
    begun, go = desk.cwd / "begun", desk.cwd / "go"
    worker = desk.program(
        "import json, os, sys, time\n"
        "begun, go = sys.argv[1:]\n"
        "if not os.path.exists(go):\n"
        "    open(begun, 'w').close()\n"
        "    time.sleep(600)\n"
        f"print(json.dumps({DONE!r}))\n",
        str(begun),
        str(go),
    )
    phases = [{"name": "work", "model": worker, "repeatable": True}]
    desk.ok("job", "new", desk.spec(job_id="demo", prompt="Wait.", phases=phases))
    with ended(desk.shell.start("job", "run", "demo")) as first:
        until(begun.exists)
        lease = desk.home / "jobs/demo/.runner.lease"
        os.utime(lease, (0, 0))  # however old it looks
        assert desk("doctor", "--fix").code == 0  # and whoever cleans up
        error = desk.refused("job", "run", "demo", code=5, says=f"process {first.pid}")
        assert "job cancel demo" in error["hint"]
        first.kill()
    go.touch()
    assert desk.ran()["status"] == "SUCCESS"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# --- crowds ---------------------------------------------------------------------------------


def test_thirty_jobs_made_at_once_are_thirty_jobs(desk: Desk) -> None:
    desk.new(id="first")

    def made(number: int) -> Callable[[], object]:
        words = ["--home", str(desk.home), "job", "new", "--prompt", "Say hello"]
        return lambda: main([*words, "--id", f"job-{number}"])

    assert at_once([made(number) for number in range(30)]) == [0] * 30
    expected = {"first", *(f"job-{number}" for number in range(30))}
    assert set(desk.index()["jobs"]) == expected
    assert {row["job"] for row in desk.ok("job", "list")["rows"]} == expected
    assert desk("check").code == 0


def test_what_four_processes_tell_a_job_at_once_is_all_there(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")

    def tells(who: int) -> Callable[[], object]:
        def work() -> None:
            with Home.open(str(desk.home)) as home, Job(home, "demo") as job:
                for number in range(20):
                    note = {"event": "note", "guidance": f"{who} says {number}"}
                    job.decide(lambda _, note=note: [note])

        return work

    assert at_once([tells(who) for who in range(4)]) == [0] * 4
    told = [line["guidance"] for line in desk.lines(event="note")]
    assert sorted(told) == sorted(f"{who} says {n}" for who in range(4) for n in range(20))
    for who in range(4):
        own = [each for each in told if each.startswith(f"{who} ")]
        assert own == [f"{who} says {n}" for n in range(20)]


def test_steps_of_four_processes_are_as_many_calls_each_with_a_number_and_a_price_of_its_own(
    desk: Desk,
) -> None:
    answer = {"reply": AGAIN, "cost_usd": 1}
    phases = [{"name": "work", "max_retries": 100, "model": desk.script(*[answer] * 20)}]
    desk.ok("job", "new", desk.spec(job_id="demo", prompt="Go.", phases=phases))
    desk.ok("job", "set", "demo", "--max-cost", "80")
    desk.ok("job", "activate", "demo")
    words = ["--home", str(desk.home), "job", "step", "demo"]

    def answers() -> None:
        for _ in range(5):
            while (code := main(words)) == Busy.exit_code:
                time.sleep(0.001)
            assert code == 0

    assert at_once([answers] * 4) == [0] * 4
    assert [each["sequence"] for each in desk.calls()] == list(range(20))
    assert (desk.show()["calls"], desk.show()["cost_usd"]) == (20, 20)
    assert desk.ok("job", "replay", "demo")["data"]["calls"] == 20


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b'{"schema_version": "1.0", "job_id": "de', b"\0" * 80])
def test_a_manifest_that_was_cut_off_costs_nothing_and_is_written_again(
    desk: Desk, damage: bytes
) -> None:
    desk.new("--worker", desk.script(DONE))
    (desk.home / "jobs/demo/manifest.json").write_bytes(damage)
    shown = desk("job", "show", "demo", "--json")
    assert (shown.code, shown.json()["data"]["status"]) == (0, "DRAFT")
    assert "jobs/demo/manifest.json is not what was written" in shown.err
    assert "holdfast rebuild" in shown.err
    desk.ok("job", "activate", "demo")
    assert desk.manifest()["status"] == "PENDING"
    assert desk("job", "show", "demo").err == ""


@pytest.mark.parametrize("name", ["manifest.json", "jobHistory.json"])
def test_a_shown_file_of_a_job_that_is_over_is_told_and_made_anew(desk: Desk, name: str) -> None:
    desk.new("--worker", desk.script(DONE))
    desk.ran()
    file = desk.home / "jobs/demo" / name
    whole = file.read_bytes()
    assert desk("job", "show", "demo").err == ""
    file.write_bytes(whole[: len(whole) // 2])
    assert f"jobs/demo/{name} is not what was written" in desk("job", "show", "demo").err
    assert f"{name} is not what was written" in desk("doctor").out
    assert desk("rebuild").code == 0
    assert desk("job", "show", "demo").err == ""
    assert desk("doctor").code == 0
    assert json.loads(file.read_bytes())["job_id"] == "demo"


def test_a_manifest_that_somebody_edited_decides_nothing_and_is_kept(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE))
    file = desk.home / "jobs/demo/manifest.json"
    edited = json.dumps({**desk.manifest(), "status": "SUCCESS"}).encode()
    file.write_bytes(edited)
    assert desk.status() == "DRAFT"
    desk.ok("job", "activate", "demo")
    assert desk.manifest()["status"] == "PENDING"
    (kept,) = file.parent.glob("manifest.json.edited-*")
    assert kept.read_bytes() == edited


def test_a_damaged_history_is_told_and_never_begun_anew(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    assert desk.ran()["status"] == "SUCCESS"
    file = desk.home / "jobs/demo/history.jsonl"
    data = file.read_bytes()
    damaged = data.replace(b'"event":"reply"', b'"event":"rep\x00y"')
    assert damaged != data
    file.write_bytes(damaged)
    checked = desk("check")
    assert checked.code == 6
    assert "jobs/demo/history.jsonl" in checked.out + checked.err
    assert desk("job", "show", "demo").code == 0
    desk("job", "run", "demo")
    assert file.read_bytes().startswith(damaged)


def test_a_history_of_which_the_end_is_missing_is_told_too(desk: Desk) -> None:
    desk.new("--worker", desk.script(DONE), "--activate")
    assert desk.ran()["status"] == "SUCCESS"
    file = desk.home / "jobs/demo/history.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-2]))
    checked = desk("check")
    assert checked.code == 6
    assert "history.jsonl" in checked.out + checked.err

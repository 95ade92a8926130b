"""A run whose process died goes on where it was: nothing is asked twice, and no tick is lost."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import StorageError
from holdfast.store.primitives import Written
from holdfast.swarm.run import Decide, Run
from tests.agents.world import until
from tests.ledger.shell import PATIENCE
from tests.swarm.conftest import GOAL, Garden

ALL = "rio,kim,ada"
SAYING = {"match": r"\A(?:MoE|Broad|Hand)[\w ]+ to (\w+)\.", "reply": "{1} would water the seeds."}
SUMMARY = {"match": "cluster summarizer", "reply": "The baton. Water first. Then seeds."}


def killed(garden: Garden, at: str, *words: str) -> None:
    """Run `holdfast swarm …` as a process that ends itself by SIGKILL at a place."""
    ran = garden.shell("swarm", *words, env={"HOLDFAST_FAILPOINTS": at})
    assert ran.code == -signal.SIGKILL, (ran.code, ran.out, ran.err)


def begun(model: str, *more: str, ticks: int = 3) -> list[str]:
    words = ["run", "--name", "one", "--goal", GOAL, "--agents", ALL, "--ticks", str(ticks)]
    return [*words, "--seed", "7", "--model", model, *more]


def turns(garden: Garden) -> Counter[str]:
    """How often each call stands in the conversations as a question."""
    return Counter(line["meta"]["turn"] for agent in ALL.split(",") for line in garden.asked(agent))


def timeless(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in each.items() if k not in ("t", "seconds")} for each in events]


def lines(garden: Garden, event: str) -> list[dict[str, Any]]:
    return [line for line in garden.logged("swarms/one.jsonl") if line.get("event") == event]


@pytest.fixture
def undisturbed(garden: Garden) -> list[dict[str, Any]]:
    """The events of the run that nobody kills."""
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--ticks", "3", "--seed", "7", name="whole", model=model)
    (garden.home / "state/router_weights.json").unlink()
    return timeless(garden.events(name="whole"))


@pytest.fixture
def model(garden: Garden, undisturbed: list[dict[str, Any]]) -> Iterator[str]:
    del undisturbed  # it has the same words, and was run first
    yield f"scripted:{garden.cwd / 'script-1.json'}"


def test_a_reply_that_was_recorded_is_there_before_the_tick_is_composed(
    garden: Garden, undisturbed: list[dict[str, Any]], model: str
) -> None:
    # The first of the two experts of tick 2 has answered.
    killed(garden, "swarm.answered=kill@4", *begun(model))
    before = turns(garden)
    assert garden.ok("swarm", "resume", "one")["data"]["status"] == "done"
    after = turns(garden)
    assert all(times == 1 for times in before.values())
    again = {name for name, times in after.items() if times > 1 or name.endswith("/2")}
    assert len(again) <= 1, "at most the other expert, whose answer was not recorded"
    assert timeless(garden.events()) == undisturbed
    replies = [e["reply"] for e in garden.events("moe") if e["tick"] == 2]
    (summed,) = [e for e in garden.events("aggregate") if e["tick"] == 2]
    assert len(replies) == 2 and all(reply in summed["prompt"] for reply in replies)


@pytest.mark.parametrize("place", ["swarm.asking=kill@1", "lease.taken=kill@1"])
def test_a_process_that_dies_while_it_looks_back_leaves_everything_to_look_back_at(
    garden: Garden, undisturbed: list[dict[str, Any]], model: str, place: str
) -> None:
    killed(garden, "swarm.answered=kill@5", *begun(model))
    before = turns(garden)
    for _ in range(2):
        killed(garden, place, "resume", "one")
    assert garden.ok("swarm", "resume", "one")["data"]["status"] == "done"
    after = turns(garden)
    assert {name: after[name] for name in before} == before
    assert timeless(garden.events()) == undisturbed


@pytest.mark.parametrize("write", [1, 2, 3])
def test_after_each_tick_the_run_says_who_is_asked_next(
    garden: Garden, undisturbed: list[dict[str, Any]], model: str, write: int
) -> None:
    # The first write makes the run, each further one is a tick.
    killed(garden, f"swarm.written=kill@{write}", *begun(model))
    tick = write - 1
    shown = garden.ok("swarm", "show", "one")["data"]
    assert (shown["status"], shown["ticks"]) == ("interrupted", f"{tick}/3")
    following = [e["expert"] for e in undisturbed if e.get("tick") == tick + 1 and "expert" in e]
    assert shown["next"]["tick"] == tick + 1
    assert shown["next"]["experts"] == following
    assert shown["next"]["reason"].startswith("best scores:")
    garden.ok("swarm", "resume", "one")
    assert timeless(garden.events()) == undisturbed
    assert [line["tick"] for line in lines(garden, "tick")] == [1, 2, 3]


def test_a_save_that_fails_does_not_hide_what_failed_before_it(
    garden: Garden, monkeypatch: pytest.MonkeyPatch
) -> None:
    declines = garden.script({"match": ".", "error": "declined", "message": "no water today"})
    real, writes = Run.decide, 0

    def full(self: Run, decide: Decide) -> Written[None]:  # as a disk that is full by then
        nonlocal writes
        writes += 1
        if writes > 1:
            raise StorageError("no space left", hint="make room", path="swarms/one.jsonl")
        return real(self, decide)

    monkeypatch.setattr(Run, "decide", full)
    error = garden.swarm(
        "--agents", ALL, "--ticks", "1", "--topology", "mesh", model=declines, code=1
    )
    assert "no space left" in error["message"]
    assert "rio: declined: no water today" in error["message"]


def test_a_killed_run_of_programs_edits_a_shared_note_once_for_each_call(garden: Garden) -> None:
    """Judged by the note and the effects, not by the status that was recorded."""
    note, effects = garden.cwd / "note.md", garden.cwd / "effects.jsonl"
    model = garden.program(PROGRAM, str(garden.home), str(note), str(effects))
    given = [f"--agent-model={agent}={model} {agent}" for agent in ALL.split(",")]

    def done() -> list[str]:
        return [json.loads(line) for line in effects.read_bytes().splitlines()]

    words: list[str] = [*begun("scripted:echo", *given, "--topology", "mesh", ticks=4)]
    for kill in range(2):
        process = garden.shell.start("swarm", *words)
        effects.touch()
        had = len(done())
        until(lambda had=had: len(done()) >= had + 2)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        words = ["resume", "one"]
        assert len({line["tick"] for line in lines(garden, "tick")}) <= kill + 2
    assert garden.ok("swarm", "resume", "one")["data"]["status"] == "done"

    written = note.read_text(encoding="utf-8").splitlines()
    assert len(written) == len({*written}), "no call edited the note twice"
    assert {*done()} <= {*written} and len(done()) == len({*done()})
    calls = {f"one/{tick}/{agent}" for tick in range(1, 5) for agent in ALL.split(",")}
    assert {*written} <= calls
    # A call is there, or it is one that a kill interrupted, and then the run says so.
    events = garden.events("broadcast")
    assert {f"one/{each['tick']}/{each['to']}" for each in events} <= {*done()}
    lost = {f"one/{each['tick']}/{each['agent']}" for each in garden.events("error")}
    assert calls - {*done()} <= lost
    assert len(lost) <= 2 * 3
    assert all("interrupted" in each["error"] for each in garden.events("error"))


PROGRAM = """
import json, os, sys, time
home, note, effects, agent = sys.argv[1:]
with open(home + "/state/" + agent + "/memory.jsonl", "rb") as file:
    lines = [json.loads(line) for line in file.read().split(b"\\n")[:-1]]
turn = [line for line in lines if line.get("role") == "user"][-1]["meta"]["turn"]
for path, text in ((note, turn), (effects, json.dumps(turn))):
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, (text + "\\n").encode())
    os.close(file)
    time.sleep(0.05)
print("added " + turn)
"""
"""Edits the note, then notes the effect: what it was asked for is the turn in its conversation."""


def test_a_program_that_was_interrupted_is_asked_again_only_if_that_is_allowed(
    garden: Garden,
) -> None:
    effects = garden.cwd / "effects.jsonl"
    model = garden.program(PROGRAM, str(garden.home), str(garden.cwd / "note"), str(effects))
    path = garden.cwd / "swarm.yaml"
    for name, repeatable in (("once", "false"), ("again", "true")):
        path.write_text(f"agents: [rio]\nrepeatable: {repeatable}\n", encoding="utf-8")
        process = garden.shell.start(
            "swarm", "run", "--file", str(path), "--name", name, "--goal", GOAL, "--ticks", "1",
            "--topology", "ring", "--agent-model", f"rio={model} rio",
        )  # fmt: skip
        effects.write_bytes(b"")
        until(lambda: effects.stat().st_size > 0)
        process.kill()
        process.communicate(timeout=PATIENCE)
        garden.ok("swarm", "resume", name)
    assert not garden.events("handoff", name="once")
    assert "may have had an effect" in garden.events("error", name="once")[0]["error"]
    assert garden.events("handoff", name="again")[0]["reply"] == "added again/1/rio/2"


def test_resuming_a_finished_run_completes_its_files_and_asks_nobody(
    garden: Garden, undisturbed: list[dict[str, Any]], model: str
) -> None:
    # Its last line says that it is over; the document was not written.
    killed(garden, "swarm.written=kill@5", *begun(model))
    assert garden.ok("swarm", "show", "one")["data"]["status"] == "done"
    assert garden.document()["ticks"] < 3
    assert garden.ok("swarm", "analyze", "one")["data"]["ticks"] == 3
    asked = turns(garden)
    assert garden.ok("swarm", "resume", "one")["data"]["status"] == "done"
    assert turns(garden) == asked
    assert timeless(garden.events()) == undisturbed
    refused = garden("swarm", "resume", "one", "--ticks", "3", "--json")
    assert refused.code == 2 and "has done 3 ticks" in refused.error()["message"]
    assert garden.ok("swarm", "resume", "one", "--ticks", "4")["data"]["ticks"] == "4/4"


def test_a_stopped_run_ends_after_its_tick_and_goes_on_later(garden: Garden) -> None:
    slow = garden.script({"match": ".", "reply": "Wait.", "delay": 0.1})
    process = garden.shell.start("swarm", *begun(slow, ticks=200))
    until(lambda: lines(garden, "tick"))
    told = garden.ok("swarm", "stop", "one")
    assert "stops after tick" in told["detail"]
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    shown = garden.ok("swarm", "show", "one")["data"]
    assert (shown["status"], shown["why"]) == ("stopped", "stopped by `swarm stop`")
    tick = len(lines(garden, "tick"))
    killed(garden, "swarm.written=kill@3", "resume", "one")
    assert [line["tick"] for line in lines(garden, "tick")] == [*range(1, tick + 3)]
    assert garden("swarm", "stop", "one").code == 0  # without a process it ends at once
    assert (garden.document()["status"], garden.document()["ticks"]) == ("stopped", tick + 2)
    assert garden.ok("swarm", "list")["rows"][0]["status"] == "stopped"

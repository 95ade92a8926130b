"""What a user sees of runs: dry, live, beside the best agent alone, with any router."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from typing import Any

import pytest

from tests.agents.world import until
from tests.ledger.shell import PATIENCE
from tests.swarm.conftest import GOAL, Garden

ALL = "rio,kim,ada"
SAYING = {"match": r"\A(?:MoE|Broad|Hand)[\w ]+ to (\w+)\.", "reply": "{1} would water the seeds."}
SUMMARY = {"match": "cluster summarizer", "reply": "The baton. Water first. Then seeds."}


def test_every_kind_of_event_has_its_documented_fields(garden: Garden) -> None:
    broken = garden.script({"match": "cluster summarizer", "error": "declined"}, SAYING)
    model = garden.script(SAYING, SUMMARY)
    garden.swarm(
        "--agents", ALL, "--topology", "mixed", "--switch-after", "1", "--ticks", "3",
        "--summarizer", "ada", model=model,
    )  # fmt: skip
    garden.swarm("--agents", ALL, "--topology", "ring", "--ticks", "2", name="ring", model=model)
    garden.swarm("--agents", ALL, "--ticks", "1", name="broken", model=broken)
    said = ["prompt", "reply", "tick"]
    fields = {
        "input_goal": ["text"],
        "handoff": ["from", "to", *said],
        "broadcast": ["from", "to", *said],
        "moe": ["expert", *said, "router_scores"],
        "aggregate": ["summarizer", *said],
        "error": ["agent", "error", "tick"],
    }
    events = [each for name in ("one", "ring", "broken") for each in garden.events(name=name)]
    assert {each["type"] for each in events} == {*fields}
    for each in events:
        assert {*fields[each["type"]]} <= {*each}, each
        assert isinstance(each["t"], float) and each["t"] > 1.7e9
        assert each["type"] == "input_goal" or each["tick"] >= 1
        assert not {*each} & {"ts", "fence", "seq", "hash", "charge", "turn"}
    for name in ("one", "ring", "broken"):
        document = garden.document(name)
        assert {"agents", "model", "use_ollama", "ticks", "elapsed_sec", "counts"} <= {*document}
        assert document["use_ollama"] is False
        path = str(garden.home / f"logs/cluster_run_{name}.json")
        assert garden("validate", "--strict", path).code == 0


def test_a_dry_run_says_who_would_be_asked_what_and_changes_nothing(garden: Garden) -> None:
    before = garden.digest(), sorted(map(str, garden.home.rglob("*")))
    words = ("swarm", "run", "--agents", ALL, "--goal", GOAL, "--model", "scripted:echo")
    ran = garden(*words, "--dry-run")
    assert "moe, 10 ticks, 3 agents, up to 3 calls in tick 1" in ran.out
    assert "tick 1: kim, ada (best scores:" in ran.out
    assert f"Global Goal: {GOAL}" in ran.out
    assert (garden.digest(), sorted(map(str, garden.home.rglob("*")))) == before


def test_experts_of_a_tick_are_asked_at_once(garden: Garden) -> None:
    agents = [f"a{number}" for number in range(8)]
    for agent in agents:
        assert garden("agent", "new", agent).code == 0
    slow = garden.script({"match": ".", "reply": "Wait.", "delay": 0.6})
    garden.swarm("--agents", ",".join(agents), "--topology", "mesh", "--ticks", "2", model=slow)
    times = [
        [
            line["ts"]
            for line in garden.logged(f"state/{agent}/memory.jsonl")
            if "turn" in line["meta"]
        ]
        for agent in agents
    ]
    asked, answered, asked_next, answered_next = zip(*times, strict=True)
    assert max(asked) < min(answered), "everybody is asked before anybody has answered"
    assert max(answered) < min(asked_next) and max(asked_next) < min(answered_next)


def test_the_best_agent_alone_gets_as_many_tokens_and_is_shown_beside_the_swarm(
    garden: Garden,
) -> None:
    model = garden.script(SAYING, SUMMARY)
    found = garden.swarm("--agents", ALL, "--ticks", "3", "--baseline", model=model)
    swarm, alone = found["compared"]
    chosen = [each["expert"] for each in garden.events("moe")]
    best = max(ALL.split(","), key=chosen.count)
    assert alone["who"] == f"{best} alone" and alone["run"] == "one-baseline"
    of_one = garden.document("one-baseline")
    assert of_one["agents"] == [best] and of_one["compared_with"] == "one"
    last = of_one["events"][-1]
    tokens = last["input_tokens"] + last["output_tokens"]
    assert swarm["tokens"] <= alone["tokens"] < swarm["tokens"] + 2 * tokens
    shown = garden.ok("swarm", "analyze", "one")["data"]
    assert shown["compare"]["run"] == "cluster_run_one-baseline"
    assert "difference" in garden("swarm", "analyze", "one").out


def test_a_router_of_meaning_scores_by_cosines(garden: Garden) -> None:
    pytest.importorskip("onnxruntime", reason="the extra memory is not installed")
    goals = {"x": "Irrigate the beds", "y": "Write the tax return", "z": "Repair the car"}
    for agent in goals:
        assert garden("agent", "new", agent).code == 0
    dry = {"match": "summarizer", "reply": "The vegetables need water at once."}
    given = [f"--agent-goal={agent}={goal}" for agent, goal in goals.items()]
    garden.swarm(
        "--agents", "x,y,z", "--ticks", "2", "--topk", "3", "--router", "embedding", *given,
        "--goal", "The lettuce is dry and thirsty", model=garden.script(dry, SAYING),
    )  # fmt: skip
    scores = garden.events("moe")[-1]["router_scores"]
    # All three were asked before, so what is left between them is what they mean.
    assert scores["x"] == max(scores.values()) and scores["x"] > scores["y"] + 0.05
    assert all(-1.6 <= score <= 1 for score in scores.values())
    assert garden.document()["router"] == "embedding"


def test_without_the_extra_meaning_is_that_of_hashed_words(garden: Garden) -> None:
    with (garden.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write('\n[memory]\nembedder = "hash:64"\n')
    garden.swarm(
        "--agents", ALL, "--ticks", "2", "--router", "embedding",
        model=garden.script(SAYING, SUMMARY),
    )  # fmt: skip
    scores = [score for each in garden.events("moe") for score in each["router_scores"].values()]
    assert len(scores) == 12 and all(-1.6 <= score <= 1 for score in scores)


def test_weights_are_learned_towards_those_who_were_asked_less(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--ticks", "5", "--topk", "1", model=model)
    chosen = [each["expert"] for each in garden.events("moe")]
    weights = json.loads((garden.home / "state/router_weights.json").read_bytes())
    often = sorted(ALL.split(","), key=chosen.count)
    assert weights[often[0]] >= weights[often[1]] >= weights[often[2]]
    assert weights[often[0]] > weights[often[2]]


def test_an_agent_that_is_retired_or_not_there_takes_part_in_no_swarm(garden: Garden) -> None:
    assert garden("agent", "retire", "kim").code == 0
    for agents, code in ((ALL, "retired"), ("rio,nobody", "not_found")):
        ran = garden("swarm", "run", "--agents", agents, "--goal", GOAL, "--model",
                     "scripted:echo", "--json")  # fmt: skip
        assert ran.error()["code"] == code, ran.err
    assert not (garden.home / "swarms").exists()


def test_two_processes_do_not_run_one_swarm(garden: Garden) -> None:
    slow = garden.script({"match": ".", "reply": "Wait.", "delay": 0.2})
    process = garden.shell.start(
        "swarm", "run", "--name", "one", "--goal", GOAL, "--agents", ALL, "--ticks", "100",
        "--model", slow,
    )  # fmt: skip
    until(lambda: [x for x in garden.logged("swarms/one.jsonl") if x.get("event") == "tick"])
    refused = garden("swarm", "resume", "one", "--json")
    assert refused.code == 5 and "is run by process" in refused.error()["message"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    shown = garden.ok("swarm", "show", "one")["data"]
    assert (shown["status"], shown["why"]) == ("stopped", "stopped by SIGINT")


def test_a_terminal_shows_who_is_asked_while_they_are(garden: Garden) -> None:
    slow = garden.script({"match": ".", "reply": "Wait.", "delay": 1.5})
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        garden.shell.command(
            ["swarm", "run", "--goal", GOAL, "--agents", "rio", "--ticks", "1", "--topology",
             "ring", "--model", slow]
        ),
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=garden.cwd,
        env=garden.shell.environment({"TERM": "xterm", "COLUMNS": "100"}),
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        while process.poll() is None or b"is done" not in said:
            said += os.read(ours, 4096)
    except OSError:
        pass  # what a pty says once nobody holds its other end
    os.close(ours)
    process.wait(PATIENCE)
    assert b"tick 1/1  handoff for 1 s" in said and b"asking rio" in said
    assert b"tick 1/1  " in said and b"s  handoff: rio  (" in said


def test_a_list_shows_each_run_with_its_state(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--ticks", "2", model=model)
    rows: list[dict[str, Any]] = garden.ok("swarm", "list")["rows"]
    (row,) = rows
    assert (row["run"], row["status"], row["topology"], row["ticks"]) == (
        "one",
        "done",
        "moe",
        "2/2",
    )
    assert garden("swarm", "show", "none").code == 4
    assert garden("swarm", "stop", "one", "--json").json()["applied"] is False


def test_a_damaged_line_of_a_run_hides_no_other_run(garden: Garden) -> None:
    garden.swarm("--agents", ALL, "--ticks", "2", model=garden.script(SAYING, SUMMARY))
    garden.swarm("--agents", "rio", "--ticks", "1", name="two", model="scripted:echo")
    log, state = garden.home / "swarms/one.jsonl", garden.home / "swarms/one.json"
    whole = log.read_bytes()
    first = whole.replace(b'"agents":["rio","kim","ada"]', b'"agents":5')
    assert first != whole
    lines = whole.splitlines(keepends=True)
    cut = [[*lines[:at], b"garbage{\n", *lines[at + 1 :]] for at in range(len(lines))]
    for number, damaged in enumerate([first, *map(b"".join, cut)]):
        log.write_bytes(damaged)
        state.unlink(missing_ok=True)
        rows = {row["run"] for row in garden("swarm", "list", "--json").rows()}
        words = ("resume", "one", "--ticks", "4"), ("show", "one"), ("stop", "one")
        ran = [garden("swarm", *each) for each in words]
        if number < 2:
            assert rows == {"two"}
            assert [each.code for each in ran] == [6, 6, 6]
            assert "swarms/one.jsonl is damaged" in garden("swarm", "list").err
        else:
            assert rows == {"one", "two"}
            assert ran[1].code == 0
        assert garden("swarm", "analyze", "one").code == 0, "by its document where that is left"
        assert not any("this is a bug" in each.err for each in ran)


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "nosuch:model"),
        ("--model", "command:/no/such/program"),
        ("--model", "scripted:echo", "--summarizer-model", "nosuch:model"),
        ("--model", "scripted:echo", "--baseline", "--name", "x" * 60),
        ("--model", "scripted:echo", "--baseline", "--name", "two"),
    ],
)
def test_what_cannot_be_run_leaves_no_run(garden: Garden, words: tuple[str, ...]) -> None:
    garden.swarm("--agents", "rio", "--ticks", "1", name="two-baseline", model="scripted:echo")
    given = ("swarm", "run", "--name", "one", "--agents", ALL, "--goal", GOAL, *words)
    ran = garden(*given)
    assert ran.code in (1, 2, 4), ran.err
    assert "this is a bug" not in ran.err
    assert [row["run"] for row in garden("swarm", "list", "--json").rows()] == ["two-baseline"]


def test_a_folder_with_the_name_of_a_run_does_not_hide_it(garden: Garden) -> None:
    garden.swarm("--agents", "rio", "--ticks", "1", model="scripted:echo")
    (garden.cwd / "one").mkdir()
    ran = garden("swarm", "analyze", "one")
    assert (ran.code, ran.err) == (0, "")


def test_other_files_in_the_folder_of_runs_stop_no_run(garden: Garden) -> None:
    garden.swarm("--agents", ALL, "--ticks", "1", name="two", model="scripted:echo")
    (garden.home / "swarms/two.json").write_text("[1]", encoding="utf-8")
    (garden.home / "swarms/two (copy).jsonl").write_text("", encoding="utf-8")
    garden.swarm("--agents", ALL, "--ticks", "1", model="scripted:echo")
    listed = garden("swarm", "list", "--json")
    assert {row["run"] for row in listed.rows()} == {"one", "two"}

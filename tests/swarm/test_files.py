"""Swarms written down by people: YAML, JSON and YSON, with whatever else stands in such files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.swarm.conftest import GOAL, Garden

YSON = """\
#@name: The garden
#@seed: 3
# agents of a household
{
  swarm: {agents: ["Rio", "kim", "ada"], selection_strategy: "moe", moe_topk: 1},
  cooldown_seconds: 1,
  goals: {global: ["Plan the garden", "with little water"], local: {Kim: "Find the well"}},
  summarizer_role_hint: "budget",
  telemetry: {level: "high"}
}
logic:
  def make_priming(tick, baton, peers):
      open("RAN", "w").write("it ran")
"""


def written(garden: Garden, text: str, name: str = "swarm.yson") -> str:
    path = garden.cwd / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def spec(garden: Garden, text: str, *words: str) -> dict[str, Any]:
    """What would be run, and that nothing was."""
    given = ["swarm", "run", "--file", written(garden, text), "--model", "scripted:echo", *words]
    ran = garden(*given, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert not (garden.home / "swarms").exists()
    return ran.json()["data"]["spec"] | {"warned": ran.err}


NULLS = """\
#@goal: Plan the garden
#@seed:
agents: {rio: {goal: null, model: null, persona: null}, kim: }
goal: null
goals: {kim: null, local: null}
topology: ~
model:
summarizer: null
ticks: null
baton: {chars: null}
"""


def test_null_in_a_file_says_as_little_as_a_key_that_is_not_there(garden: Garden) -> None:
    text = "agents: [rio, kim]\ngoal: Plan the garden\n"
    assert spec(garden, NULLS) == spec(garden, text)
    assert spec(garden, "agents: [rio]\ngoal: [null, Plan, ~]\n")["goal"] == "Plan"


@pytest.mark.parametrize(
    "text, says",
    [
        ("agents: [rio]\ngoal: null\n", "a swarm has no goal"),
        ("agents: [rio]\ngoals: {global: [null]}\n", "a swarm has no goal"),
        ("agents: null\ngoal: x\n", "a swarm has no agents"),
        ("agents: [rio, null]\ngoal: x\n", "agent 2 has no name"),
    ],
)
def test_what_a_swarm_needs_is_refused_where_it_is_null(
    garden: Garden, text: str, says: str
) -> None:
    ran = garden("swarm", "run", "--file", written(garden, text), "--model", "scripted:echo")
    assert ran.code == 2
    assert says in ran.err


def test_a_file_that_is_not_there_is_said_with_what_to_do(garden: Garden) -> None:
    for flag in ("--file", "--goal-file"):
        ran = garden("swarm", "run", "--agents", "rio", flag, "nothere.yaml")
        assert ran.code == 2
        assert ran.err.startswith(f"error: {flag}: cannot read nothere.yaml: No such file")
        assert "hint: name a file that exists" in ran.err


def test_a_yson_file_makes_a_swarm_and_its_logic_is_never_run(garden: Garden) -> None:
    found = spec(garden, YSON)
    assert found["agents"] == ["rio", "kim", "ada"]
    assert (found["topology"], found["topk"], found["cooldown"], found["seed"]) == ("moe", 1, 1, 3)
    assert found["goal"] == "Plan the garden\nwith little water"
    assert found["goals"] == {"kim": "Find the well"}
    assert found["summarizer"] == "ada"
    for said in ("logic is never run", "telemetry is not read", "cooldown counts ticks"):
        assert said in found["warned"]
    ran = garden("swarm", "run", "--file", str(garden.cwd / "swarm.yson"), "--model",
                 "scripted:echo", "--ticks", "2", "--name", "one")  # fmt: skip
    assert ran.code == 0, ran.err
    assert not (garden.cwd / "RAN").exists() and not Path("RAN").exists()
    assert "Subgoal for kim: Find the well" in json.dumps(garden.document())


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system ['touch RAN']", "!exec 'x'"])
def test_tags_that_make_objects_are_refused(garden: Garden, tag: str) -> None:
    ran = garden("swarm", "run", "--file", written(garden, f"agents: [rio]\ngoal: {tag}\n"))
    assert ran.code == 2, (ran.code, ran.err)
    assert not (garden.cwd / "RAN").exists() and not (garden.home / "swarms").exists()


def test_flags_go_before_what_the_file_says(garden: Garden) -> None:
    text = "agents: {rio: {goal: Sow}, kim: }\ngoal: In the file\nticks: 4\nbaton: {chars: 50}\n"
    found = spec(garden, text)
    assert (found["agents"], found["goals"]) == (["rio", "kim"], {"rio": "Sow"})
    assert (found["ticks"], found["baton_chars"]) == (4, 50)
    goal = garden.cwd / "goal.txt"
    goal.write_text("From a file\n", encoding="utf-8")
    over = ("--agents", "ada,rio", "--ticks", "2", "--goal-file", str(goal), "--topk", "2")
    found = spec(garden, text, *over, "--summarizer", "1", "--timeout", "90s")
    assert (found["agents"], found["goal"], found["ticks"]) == (["ada", "rio"], "From a file", 2)
    assert (found["summarizer"], found["timeout"]) == ("rio", 90.0)
    assert spec(garden, text, "--goal", "By hand")["goal"] == "By hand"


@pytest.mark.parametrize(
    "text",
    [
        "agents: [rio]\nticks: 2.5\n", "agents: [rio]\nticks: true\n", "agents: [rio]\nticks: many",
        "agents: [rio]\nexplore: [1]\n", "agents: [rio]\nrepeatable: 1\n", "agents: [[rio]]",
        "agents: [5]", "agents: rio", "- rio", "agents: {rio: 5}\ntopology: star", "agents: [rio,",
        "agents: [rio, rio]", "agents: [nobody]", '{"agents": ["rio"], "ticks": 1e999}', "",
        "agents: [rio]\ntimeout: soon", "agents: [rio]\ntimeout: -5",
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused_with_a_hint_and_runs_nothing(
    garden: Garden, text: str
) -> None:
    words = ("swarm", "run", "--goal", GOAL, "--model", "scripted:echo", "--json")
    ran = garden(*words, "--file", written(garden, text, "swarm.yaml"))
    assert ran.code in (2, 4), (ran.code, ran.out, ran.err)
    assert ran.error()["hint"]
    assert not (garden.home / "swarms").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--agents", "rio,kim"], "no goal"),
        (["--goal", "x"], "no agents"),
        (["--goal", "x", "--agents", "rio", "--topk", "2"], "--topk is 2"),
        (["--goal", "x", "--agents", "rio", "--ticks", "0"], "--ticks is 0"),
        (["--goal", "x", "--agents", "rio", "--explore", "1.5"], "--explore is 1.5"),
        (["--goal", "x", "--agents", "rio", "--baton-sentences", "0"], "--baton-sentences is 0"),
        (["--goal", "x", "--agents", "rio", "--agent-goal", "kim=Sow"], "kim is not in the swarm"),
        (["--goal", "x", "--agents", "rio", "--agent-goal", "Sow"], "has no value"),
        (["--goal", "x", "--agents", "rio", "--summarizer", "cook"], "no agent 'cook'"),
        (["--goal", "x", "--agents", "rio", "--max-cost", "-1"], "--max-cost"),
        (["--goal", "x", "--agents", "rio", "--name", "../x"], "not a run"),
    ],
)
def test_flags_that_make_no_sense_are_refused(garden: Garden, words: list[str], says: str) -> None:
    ran = garden("swarm", "run", "--model", "scripted:echo", *words, "--json")
    assert ran.code == 2, (ran.code, ran.err)
    assert says in ran.error()["message"] and ran.error()["hint"]
    assert not (garden.home / "swarms").exists()

"""What a run says: events of the documented kinds, in the documented order."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import pairwise

import pytest

from tests.swarm.conftest import GOAL, Garden

ALL = "rio,kim,ada"
SAYING = {"match": r"\A(?:MoE|Broad|Hand)[\w ]+ to (\w+)\.", "reply": "{1} would water the seeds."}
SUMMARY = {"match": "cluster summarizer", "reply": "The baton. Water first. Then seeds."}


def words(text: str) -> list[str]:
    found = re.findall(r"[a-z0-9]+", text.lower())
    return found + [f"{a}_{b}" for a, b in pairwise(found)]


def test_a_ring_hands_the_last_reply_to_the_next_agent(garden: Garden) -> None:
    model = garden.script(*[f"Reply number {number}." for number in range(4)])
    garden.swarm("--agents", ALL, "--topology", "ring", "--ticks", "7", model=model)
    events = garden.events("handoff")
    agents = ["rio", "kim", "ada"]
    assert [each["to"] for each in events] == [agents[tick % 3] for tick in range(7)]
    assert [each["from"] for each in events] == [agents[tick % 3 - 1] for tick in range(7)]
    assert [each["tick"] for each in events] == list(range(1, 8))
    for before, after in pairwise(events):
        assert before["reply"] in after["prompt"]
    assert garden.events()[0].items() >= {"type": "input_goal", "text": GOAL}.items()


def test_a_mesh_asks_every_agent_and_the_error_of_one_is_an_event(garden: Garden) -> None:
    broken = garden.script({"error": "unavailable", "message": "no room"})
    model = garden.script(SAYING)
    garden.swarm(
        "--agents", ALL, "--topology", "mesh", "--ticks", "1", "--agent-model", f"kim={broken}",
        model=model,
    )  # fmt: skip
    sent = garden.events("broadcast")
    assert [(each["from"], each["to"]) for each in sent] == [("rio", "rio"), ("rio", "ada")]
    (error,) = garden.events("error")
    assert (error["agent"], error["tick"]) == ("kim", 1)
    assert "unavailable" in error["error"]
    assert garden.document()["counts"] == {
        "rio": {"chat": 1, "errors": 0},
        "kim": {"chat": 0, "errors": 1},
        "ada": {"chat": 1, "errors": 0},
    }


def test_moe_asks_the_best_experts_and_a_summariser_writes_the_baton(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--topk", "2", "--ticks", "5", model=model)
    document = garden.document()
    for tick in range(1, 6):
        of_tick = [each for each in document["events"] if each.get("tick") == tick]
        experts = [each for each in of_tick if each["type"] == "moe"]
        assert [each["type"] for each in of_tick] == ["moe", "moe", "aggregate"]
        scores = experts[0]["router_scores"]
        assert set(scores) == {"rio", "kim", "ada"}
        ranked = sorted(document["agents"], key=lambda agent: -scores[agent])
        assert [each["expert"] for each in experts] == ranked[:2]
        assert experts[0]["reason"]
    counted = Counter(each["expert"] for each in garden.events("moe"))
    assert document["counts"] == {
        agent: {"chat": counted[agent], "errors": 0} for agent in document["agents"]
    }
    assert document["aggregate"] == {"calls": 5, "errors": 0}
    assert garden("validate", "--strict", str(garden.home / "logs/cluster_run_one.json")).code == 0


def test_mixed_is_mesh_first_and_then_moe(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm(
        "--agents", ALL, "--topology", "mixed", "--switch-after", "2", "--ticks", "4", model=model
    )
    kinds = {tick: set[str]() for tick in range(1, 5)}
    for each in garden.events("broadcast", "moe", "aggregate"):
        kinds[each["tick"]].add(each["type"])
    assert kinds == {
        1: {"broadcast"},
        2: {"broadcast"},
        3: {"moe", "aggregate"},
        4: {"moe", "aggregate"},
    }


def test_the_scores_of_tick_1_are_the_documented_ones(garden: Garden) -> None:
    weights = garden.home / "state/router_weights.json"
    weights.write_text('{"kim": 0.25}')
    goals = {"rio": "Choose seeds", "kim": "Bring water to the garden", "ada": "Write a budget"}
    given = [part for a, goal in goals.items() for part in ("--agent-goal", f"{a}={goal}")]
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--ticks", "1", *given, model=model)
    roles = {"rio": "gardener", "kim": "water engineer", "ada": "budget planner"}
    documents = {
        agent: Counter(
            words(
                f"{roles[agent]} Global Goal: {GOAL}\nSubgoal for {agent}: {goals[agent]}\n"
                f"Keywords: agent_id={agent}; roles={roles[agent]}"
            )
        )
        for agent in goals
    }
    df = Counter(token for each in documents.values() for token in each)
    expected = {
        agent: sum(
            found[token] * math.log(1 + 3 / (1 + df[token]))
            for token in set(words(GOAL)) & {*found}
        )
        + (0.25 if agent == "kim" else 0.0)
        for agent, found in documents.items()
    }
    scores = garden.events("moe")[0]["router_scores"]
    for agent, score in expected.items():
        assert scores[agent] == pytest.approx(score, abs=1e-9)


def test_an_expert_that_is_cooling_down_is_not_chosen_while_another_is_free(
    garden: Garden,
) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--topk", "1", "--cooldown", "2", "--ticks", "6", model=model)
    experts = [each["expert"] for each in garden.events("moe")]
    assert len(experts) == 6
    for at in range(4):
        assert len({*experts[at : at + 3]}) == 3
    assert garden.events("moe")[1]["router_scores"][experts[0]] == -1e9


def test_a_tick_in_which_all_experts_cool_down_says_so(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm("--agents", ALL, "--topk", "3", "--cooldown", "1", "--ticks", "3", model=model)
    assert {each["tick"] for each in garden.events("moe")} == {1, 3}
    (error,) = garden.events("error")
    assert error["tick"] == 2
    assert "cooling down" in error["error"]


def test_there_is_one_baton_for_each_tick_within_its_limits(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm(
        "--agents", ALL, "--ticks", "4", "--summarizer", "ada", "--baton-chars", "22",
        "--baton-sentences", "2", model=model,
    )  # fmt: skip
    batons = garden.batons("ada")
    assert [each["fields"]["tick"] for each in batons] == [1, 2, 3, 4]
    assert {each["text"] for each in batons} == {"The baton. Water first."[:22]}
    assert all(isinstance(each["ts"], float) for each in batons)
    assert not garden.batons("rio")


def test_without_a_summary_the_baton_is_the_joined_notes(garden: Garden) -> None:
    model = garden.script(SAYING, {"match": "cluster summarizer", "error": "declined"})
    garden.swarm("--agents", ALL, "--ticks", "2", "--summarizer", "ada", model=model)
    errors = garden.events("error")
    assert [(each["agent"], each["tick"]) for each in errors] == [("ada", 1), ("ada", 2)]
    said = [f"{each['expert']}: {each['reply']}" for each in garden.events("moe")[:2]]
    assert garden.batons("ada")[0]["text"] == " | ".join(said)
    assert garden.document()["counts"]["ada"]["errors"] == 2


def test_goals_reach_the_agents_and_their_memory(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    garden.swarm(
        "--agents", ALL, "--topology", "mesh", "--ticks", "1", "--agent-goal", "kim=Find the well",
        model=model,
    )  # fmt: skip
    prompts = {each["to"]: each["prompt"] for each in garden.events("broadcast")}
    assert all(f"Global Goal: {GOAL}" in prompt for prompt in prompts.values())
    assert "Subgoal for kim: Find the well" in prompts["kim"]
    assert "Find the well" not in prompts["rio"]
    (noted,) = garden.logged("state/kim/topics.jsonl")
    assert noted["topic"] == "goals/runs/one"
    assert noted["fields"] == {
        "global_goal": GOAL, "agent_goal": "Find the well", "model": model, "topology": "mesh",
    }  # fmt: skip


def test_two_runs_of_one_second_have_two_logs(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)
    for _ in range(2):
        words = ("swarm", "run", "--goal", GOAL, "--agents", "rio", "--ticks", "1")
        assert garden(*words, "--model", model).code == 0
    names = [row["run"] for row in garden.ok("swarm", "list")["rows"]]
    assert len({*names}) == 2
    for name in names:
        assert garden.document(name)["ticks"] == 1


def test_the_same_seed_and_replies_make_the_same_run(garden: Garden) -> None:
    model = garden.script(SAYING, SUMMARY)

    def events(name: str, seed: str) -> str:
        (garden.home / "state/router_weights.json").unlink(missing_ok=True)
        garden.swarm(
            "--agents", ALL, "--topk", "1", "--ticks", "8", "--seed", seed, "--explore", "0.5",
            name=name, model=model,
        )  # fmt: skip
        # All of the document, apart from times and the name of the run.
        document = garden.document(name)
        for each in (document, *document["events"]):
            for key in ("t", "seconds", "elapsed_sec", "run"):
                each.pop(key, None)
        return json.dumps(document)

    first = events("a", "7")
    assert events("b", "7") == first
    assert events("c", "8") != first

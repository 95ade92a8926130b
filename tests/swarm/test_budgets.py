"""What a swarm may spend: limits of the run, of an agent, of the fleet, and of calls a tick."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from holdfast.spend.book import Spend
from holdfast.store.home import Home
from tests.agents.world import until
from tests.ledger.shell import PATIENCE
from tests.swarm.conftest import GOAL, Garden

ALL = "rio,kim,ada"
MESH = ("--agents", ALL, "--topology", "mesh")
PRICED = {"match": ".", "reply": "Water first.", "cost_usd": 0.5}


def limited(garden: Garden, text: str) -> None:
    with (garden.home / "holdfast.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")


def reserved(garden: Garden) -> list[str]:
    with Home.open(str(garden.home)) as home, Spend(home) as book:
        return [str(held.session) for held in book.open()]


def spent(garden: Garden) -> float:
    with Home.open(str(garden.home)) as home, Spend(home) as book:
        return sum(tally.usd for day in book.days() for tally in book.agents(day).values())


def shown(garden: Garden) -> dict[str, Any]:
    return garden.ok("swarm", "show", "one")["data"]


def test_a_run_stops_before_the_call_that_would_be_too_much_and_goes_on_with_more(
    garden: Garden,
) -> None:
    model = garden.script(PRICED)
    error = garden.swarm(*MESH, "--ticks", "2", "--max-cost", "2", model=model, code=1)
    assert error["code"] == "over_budget"
    assert "swarm one may spend 2.00 USD: 1.50 is spent, 0.50 is reserved" in error["message"]
    found = shown(garden)
    assert (found["status"], found["ticks"], found["cost_usd"]) == ("stopped", "1/2", 1.5)
    assert len(garden.asked("kim")) == 1, "nobody is asked in a tick that cannot be paid"
    assert any("swarm one" in row["detail"] for row in garden.ok("audit", "list")["rows"])
    garden.ok("swarm", "resume", "one", "--max-cost", "3")
    assert shown(garden)["cost_usd"] == 3.0


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ("[agents.kim]\nday_usd = 0.6", "kim"),
        ("[budget]\nagent_day_usd = 0.6", "rio"),
        ("[budget]\nfleet_day_usd = 2.1", "fleet"),
    ],
)
def test_the_limits_of_an_agent_and_of_the_fleet_hold_for_swarms(
    garden: Garden, limit: str, named: str
) -> None:
    limited(garden, limit)
    error = garden.swarm(*MESH, "--ticks", "3", model=garden.script(PRICED), code=1)
    assert error["code"] == "over_budget" and named in error["message"]
    assert shown(garden)["ticks"] == "1/3"
    assert spent(garden) == 1.5 == shown(garden)["cost_usd"]
    assert reserved(garden) == [], "what a refused tick had reserved is given back"


def test_two_swarms_share_the_money_of_the_fleet(garden: Garden) -> None:
    limited(garden, "[budget]\nfleet_day_usd = 2.0")
    model = garden.script(PRICED)
    garden.swarm(*MESH, "--ticks", "1", model=model)
    garden.swarm(*MESH, "--ticks", "1", model=model, name="two", code=1)
    assert spent(garden) == 1.5
    statuses = {row["run"]: row["status"] for row in garden.ok("swarm", "list")["rows"]}
    assert statuses == {"one": "done", "two": "stopped"}


def test_a_model_without_a_price_has_an_equal_share_of_what_is_left(garden: Garden) -> None:
    program = garden.cwd / "claude"  # a program of this name tells afterwards what it cost
    said = json.dumps({"type": "result", "result": "Water.", "total_cost_usd": 0.25})
    program.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{said}'\n", encoding="utf-8")
    program.chmod(0o755)
    garden.swarm(*MESH, "--ticks", "2", "--max-cost", "3", model=f"command:{program}")
    sent = [line for line in garden.logged("swarms/one.jsonl") if line.get("event") == "broadcast"]
    assert [line["reserved_usd"] for line in sent] == [1.0] * 3 + [0.75] * 3
    assert shown(garden)["cost_usd"] == 1.5


def test_a_tick_with_more_messages_than_are_allowed_is_refused_before_it_is_run(
    garden: Garden,
) -> None:
    error = garden.swarm(*MESH, "--max-messages", "2", model="scripted:echo", code=2)
    assert "a tick of mesh has 3 calls, 2 are allowed" in error["message"]
    assert "--max-messages 3" in error["hint"]
    error = garden.swarm(
        "--agents", ALL, "--topk", "3", "--max-messages", "3", model="scripted:echo", code=2
    )
    assert "a tick of moe has 4 calls" in error["message"]
    assert not (garden.home / "swarms").exists()


def test_a_call_whose_answer_is_unknown_counts_with_what_was_reserved_for_it(
    garden: Garden,
) -> None:
    limited(garden, "[budget]\nfleet_day_usd = 9.0")
    slow = garden.cwd / "slow.json"
    slow.write_text('{"replies": [{"match": ".", "reply": "Wait.", "delay": 30, "cost_usd": 0.5}]}')
    words = ["run", "--name", "one", "--goal", GOAL, "--agents", "rio", "--topology", "ring"]
    process = garden.shell.start(
        "swarm", *words, "--ticks", "1", "--max-cost", "0.9", "--model", f"scripted:{slow}"
    )
    until(lambda: garden.asked("rio"))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    slow.write_text('{"replies": [{"match": ".", "reply": "Quick.", "cost_usd": 0.5}]}')
    refused = garden("swarm", "resume", "one", "--json")
    assert "0.50 counts for 1 of unknown cost" in refused.error()["message"]
    garden.ok("swarm", "resume", "one", "--max-cost", "1")
    found = shown(garden)
    assert (found["lost_calls"], found["unknown_costs"], found["cost_usd"]) == (1, 1, 0.5)
    assert garden.events("handoff")[0]["reply"] == "Quick."
    assert reserved(garden) == []

"""state/index.json: who there is, who descends from whom, and how many lines each has."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.shell import PATIENCE, Shell

PROCESSES, TURNS = 8, 50


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "kim", "--timezone", "UTC").code == 0
    return made


def shown(shell: Shell) -> dict[str, Any]:
    return json.loads((shell.home / "state/index.json").read_bytes())["agents"]


def counted(shell: Shell, agent: str) -> dict[str, int]:
    folder = shell.home / "state" / agent
    files = {"memory_lines": "memory.jsonl", "events_lines": "events.jsonl"}
    return {
        name: path.read_bytes().count(b"\n") if (path := folder / file).exists() else 0
        for name, file in files.items()
    }


def test_counters_are_those_of_a_recount_after_many_processes_have_talked(shell: Shell) -> None:
    agents = [f"a{number}" for number in range(PROCESSES)]
    for agent in agents:
        assert shell("agent", "new", agent).code == 0
    words = ["--topology", "ring", "--ticks", str(2 * TURNS), "--model", "scripted:echo"]

    def talk(agent: str) -> int:
        given = ["--name", agent, "--agents", f"{agent},rio", "--goal", "Water", *words]
        process = shell.start("swarm", "run", *given)
        process.communicate(timeout=4 * PATIENCE)
        return process.returncode

    # Each process asks an agent of its own, and one that all of them ask.
    with ThreadPoolExecutor(PROCESSES) as pool:
        assert [*pool.map(talk, agents)] == [0] * PROCESSES
    index = shown(shell)
    for agent in (*agents, "rio"):
        assert index[agent]["counters"] == counted(shell, agent)
    assert index["a0"]["counters"]["memory_lines"] >= 2 * TURNS
    assert index["rio"]["counters"]["memory_lines"] >= 2 * TURNS * PROCESSES
    assert shell("check").code == 0


def test_a_chat_counts_when_it_ends(shell: Shell) -> None:
    assert shell("agent", "chat", "rio", "Hello", "--model", "scripted:echo").code == 0
    assert shown(shell)["rio"]["counters"] == counted(shell, "rio")


def test_a_swarm_and_a_fork_count_too(shell: Shell) -> None:
    words = ["--agents", "rio,kim", "--goal", "Water", "--ticks", "3", "--model", "scripted:echo"]
    assert shell("swarm", "run", *words).code == 0
    assert shell("agent", "fork", "rio", "ada").code == 0
    index = shown(shell)
    for agent in ("rio", "kim", "ada"):
        assert index[agent]["counters"] == counted(shell, agent)
    assert index["ada"]["parent_id"] == "rio"
    assert index["rio"]["counters"]["events_lines"] == 1


def test_no_fork_makes_a_circle_and_one_made_by_hand_ends(shell: Shell) -> None:
    assert shell("agent", "fork", "rio", "ada").code == 0
    assert shell("agent", "fork", "ada", "eve").code == 0
    for old, new in (("rio", "rio"), ("eve", "rio"), ("eve", "Ada")):
        assert shell("agent", "fork", old, new).code == 2
    path = shell.home / "state/rio/manifest.json"
    manifest = json.loads(path.read_bytes())
    path.write_text(json.dumps({**manifest, "ancestry": {"parent_id": "eve"}}), encoding="utf-8")
    lineage = json.loads(shell("agent", "show", "eve", "--json").out)["data"]["lineage"]
    assert lineage == {"parent": "ada", "ancestors": ["ada", "rio"], "children": ["rio"]}
    refused = shell("agent", "edit", "eve", "--patch", '{"ancestry": {"parent_id": "eve"}}')
    assert refused.code == 2


def test_a_folder_that_was_removed_renamed_or_never_made_is_not_invented(shell: Shell) -> None:
    (shell.home / "state/kim").rename(shell.home / "state/zoe")
    (shell.home / "state/stray").mkdir()
    assert shell("rebuild").code == 0
    index = shown(shell)
    assert "kim" not in index and "stray" not in index
    assert index["zoe"]["counters"] == counted(shell, "zoe")
    said = shell("check").out + shell("validate", str(shell.home)).out
    assert "zoe" in said, said


# --- swap -----------------------------------------------------------------------------------


def test_a_swap_changes_the_persona_and_keeps_name_memory_and_parent(shell: Shell) -> None:
    assert shell("agent", "fork", "rio", "ada").code == 0
    assert shell("agent", "chat", "ada", "My name is Bo", "--model", "scripted:echo").code == 0
    before = json.loads((shell.home / "state/ada/manifest.json").read_bytes())
    words = ("agent", "swap", "ada", "--persona", "critic", "--cause", "a second look")
    dry = json.loads(shell(*words, "--dry-run", "--json").out)
    assert not dry["applied"] and "core_directives" in dry["data"]["changed"]
    assert json.loads((shell.home / "state/ada/manifest.json").read_bytes()) == before
    said = shell(*words)
    assert "ada has the persona of critic" in said.out
    made = json.loads((shell.home / "state/ada/manifest.json").read_bytes())
    assert made["roles"] == ["critic", "sceptic"]
    assert made["ancestry"] == {"parent_id": "rio"} and made["agent_id"] == before["agent_id"]
    assert made["notes"] == before["notes"]
    assert b"My name is Bo" in (shell.home / "state/ada/memory.jsonl").read_bytes()
    (line,) = (shell.home / "state/ada/events.jsonl").read_bytes().splitlines()
    event = json.loads(line)
    assert event["type"] == "persona_swap_in"
    assert event["meta"] == {"from": "ada", "to": "critic", "cause": "a second look"}
    assert shown(shell)["ada"]["counters"] == counted(shell, "ada")
    assert shell("validate", "--strict", str(shell.home / "state/ada")).code == 0
    again = json.loads(shell(*words, "--json").out)
    assert not again["applied"]
    assert counted(shell, "ada")["events_lines"] == 1


def test_an_agent_takes_the_persona_of_another_agent(shell: Shell) -> None:
    assert shell("agent", "edit", "kim", "--role", "water engineer").code == 0
    assert shell("agent", "swap", "rio", "--like", "kim").code == 0
    made = json.loads((shell.home / "state/rio/manifest.json").read_bytes())
    assert (made["agent_id"], made["roles"]) == ("rio", ["water engineer"])
    assert shell("agent", "swap", "rio").code == 2
    assert shell("agent", "swap", "rio", "--like", "nobody").code == 4

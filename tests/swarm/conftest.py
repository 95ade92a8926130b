"""A home with agents, and swarms in it by the command line."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.jobs.desk import Desk
from tests.ledger.shell import on_its_own

AGENTS = ("rio", "kim", "ada")
GOAL = "Plan the garden: water, seeds and a budget"


class Garden(Desk):
    """A desk whose agents form swarms."""

    def swarm(self, *words: str, code: int = 0, model: str = "", name: str = "one") -> Any:
        """`swarm run --name one …`: what it ends with."""
        given = ["--model", model] if model else []
        goal = () if "--goal" in words else ("--goal", GOAL)
        ran = self("swarm", "run", "--name", name, *goal, *given, *words, "--json")
        assert ran.code == code, (ran.code, ran.out, ran.err)
        return ran.json()["data"] if ran.out else ran.error()

    def document(self, name: str = "one", id: str = "") -> Any:
        del id
        return json.loads((self.home / "logs" / f"cluster_run_{name}.json").read_bytes())

    def events(self, *kinds: str, name: str = "one") -> list[dict[str, Any]]:
        """Those of these kinds."""
        found = self.document(name)["events"]
        return [each for each in found if not kinds or each["type"] in kinds]

    def logged(self, key: str) -> list[dict[str, Any]]:
        path = self.home / key
        return (
            [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        )

    def asked(self, agent: str) -> list[dict[str, Any]]:
        """The questions in an agent's conversation."""
        lines = self.logged(f"state/{agent}/memory.jsonl")
        return [line for line in lines if line.get("role") == "user"]

    def batons(self, agent: str) -> list[dict[str, Any]]:
        lines = self.logged(f"state/{agent}/topics.jsonl")
        return [line for line in lines if line.get("topic") == "moe/baton"]


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with three agents, made once: a copy is had for less."""
    place = tmp_path_factory.mktemp("planted")
    desk = Desk(place)
    assert desk("init", *AGENTS, "--timezone", "UTC").code == 0
    for agent, role in (("rio", "gardener"), ("kim", "water engineer"), ("ada", "budget planner")):
        patch = json.dumps({"roles": [role]})
        assert desk("agent", "edit", agent, "--patch", patch).code == 0
    return desk.home


@pytest.fixture
def garden(tmp_path: Path, planted: Path, monkeypatch: pytest.MonkeyPatch) -> Garden:
    on_its_own(monkeypatch, tmp_path)
    made = Garden(tmp_path)
    copytree(planted, made.home)
    monkeypatch.chdir(made.cwd)
    return made

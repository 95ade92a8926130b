"""Trees of topics that another system wrote are read where they lie, and gone on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.swarm import FMM
from tests.ledger.shell import Shell

PAGE = {"ts": 1794725022.5, "text": "A page", "topic": "web-open"}
TREE: dict[str, Any] = {
    "chat": {"user": {"tick": {"__data__": [{"ts": 1794725021.58, "text": "Tick 1: is it on?"}]}}},
    "goals": {
        "runs": {"20261115-064402": {"__data__": [{"global_goal": "map the reef", "model": "m"}]}}
    },
    "moe": {"baton": {"__data__": [{"tick": 1, "text": "Bridge: the lamp is lit"}]}},
    "web": {"a.org": {"a/b": {"__data__": [PAGE]}}},
    "retrieval": {"ivf": {"dim2": {"K2": {"centroids": "AAAA", "buckets": {"0": [1]}}}}},
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    (made.home / "state/rio/fmm.json").write_text(json.dumps(TREE), encoding="utf-8")
    return made


def found(shell: Shell) -> list[dict[str, Any]]:
    shown = shell("memory", "show", "--agent", "rio", "--topic", "/", "--json")
    return shown.json()["data"]["data"]


def test_a_tree_of_another_system_is_shown_and_searched(shell: Shell) -> None:
    rows = shell("memory", "tree", "--agent", "rio", "--json").rows()
    assert {row["topic"]: row["data"] for row in rows} == {
        "chat/user/tick": 1,
        "goals/runs/20261115-064402": 1,
        "moe/baton": 1,
        "web/a.org/a-b": 1,
    }
    hits = shell("memory", "search", "lamp", "--agent", "rio", "--json").rows()
    assert (hits[0]["topic"], hits[0]["text"]) == ("moe/baton", "Bridge: the lamp is lit")
    goal = next(each for each in found(shell) if each["topic"].startswith("goals"))
    assert (goal["global_goal"], goal["model"]) == ("map the reef", "m")
    assert not (shell.home / "state/rio/topics.jsonl").exists()


def test_the_first_add_takes_over_all_that_the_tree_says(shell: Shell) -> None:
    before = found(shell)
    added = shell("memory", "add", "--agent", "rio", "--topic", "moe/baton", "--text", "Go on")
    assert added.code == 0
    assert "kept as" in added.err
    *old, new = found(shell)
    assert old == before
    assert new["id"] == f"rio#{len(before) + 1}"
    (aside,) = (shell.home / "state/rio").glob("fmm.json.edited-*")
    assert json.loads(aside.read_bytes()) == TREE
    ours = json.loads((shell.home / "state/rio/fmm.json").read_bytes())
    assert [each["text"] for each in ours["moe"]["baton"]["__data__"]] == [
        "Bridge: the lamp is lit",
        "Go on",
    ]
    hits = shell("memory", "search", "lamp", "--agent", "rio", "--json").rows()
    assert [hit["text"] for hit in hits].count("Bridge: the lamp is lit") == 1


def test_a_damaged_tree_without_a_log_is_never_overwritten(shell: Shell) -> None:
    file = shell.home / "state/rio/fmm.json"
    file.write_bytes(b'{"chat": {"user"')
    assert found(shell) == []
    refused = shell("memory", "add", "--agent", "rio", "--topic", "a", "--text", "b")
    assert (refused.code, "move it away" in refused.err) == (6, True)
    assert file.read_bytes() == b'{"chat": {"user"'
    file.unlink()
    assert shell("memory", "add", "--agent", "rio", "--topic", "a", "--text", "b").code == 0


@pytest.mark.parametrize(
    "index",
    [
        {"centroids": "AAAA"},
        {"nprobe": 4, "centroids": [[0.6, 0.8], [1.0, 0.0]]},
        {"ts": 1794726806.2, "dim": 2, "K": 2, "count": 3, "centroids": [[0.6, 0.8], [1, 0]]}
        | {"buckets": {"0": [1, 2], "1": [3]}},
    ],
)
def test_an_index_of_another_system_is_no_topic_and_no_fault(
    shell: Shell, index: dict[str, Any]
) -> None:
    file = shell.home / "state/rio/fmm.json"
    tree = {**TREE, "retrieval": {"ivf": {"dim2": {"K2": index}}}}
    file.write_text(json.dumps(tree), encoding="utf-8")
    findings = FMM.read(tree).findings
    assert not [each for each in findings if each.level == "error" or "ivf" in each.field]
    topics = [each["topic"] for each in found(shell)]
    assert len(topics) == 4 and not any(each.startswith("retrieval") for each in topics)


def test_an_agent_is_found_as_its_tree_spells_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    folder = tmp_path / "tree/state/TestHarness"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"agent_id": "TestHarness"}', encoding="utf-8")
    (folder / "fmm.json").write_text(json.dumps(TREE), encoding="utf-8")
    said: dict[str, Any] = {
        "ts": 1794725021.5,
        "role": "user",
        "content": "The buoy is red",
        "meta": {},
    }
    (folder / "memory.jsonl").write_text(json.dumps(said) + "\n", encoding="utf-8")
    there = ("--home", str(tmp_path / "tree"), "--layout", "qjson", "memory")
    for query, text in (("lamp lit", "Bridge: the lamp is lit"), ("buoy", "The buoy is red")):
        hits = shell(*there, "search", query, "--agent", "TestHarness", "--json").rows()
        assert hits[0]["text"] == text
    tree = shell(*there, "tree", "--agent", "testharness", "--json").rows()
    assert len(tree) == 4
    assert not (tmp_path / "tree/cache").exists(), "a tree that is only looked at stays as it is"


@pytest.mark.parametrize("ts", [1_795_108_301_070, 1e300, -1e18, True, "soon", None])
def test_a_time_that_is_none_leaves_a_datum_without_one(shell: Shell, ts: object) -> None:
    file = shell.home / "state/rio/fmm.json"
    file.write_text(json.dumps({"a": {"__data__": [{"text": "red buoy", "ts": ts}]}}), "utf-8")
    for words in (("show", "--topic", "/"), ("tree",), ("search", "buoy")):
        ran = shell("memory", *words, "--agent", "rio")
        assert ran.code == 0, ran.err
    assert shell("memory", "add", "--agent", "rio", "--topic", "a", "--text", "Go on").code == 0
    assert [each["ts"] == 0.0 for each in found(shell)] == [True, False]
    assert shell("agent", "chat", "rio", "Which buoy?", "--model", "scripted:echo").code == 0

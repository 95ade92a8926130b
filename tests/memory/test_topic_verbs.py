"""The verbs of memory by topics, as their users meet them."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.swarm import FMM, TOPIC_LINE
from tests.ledger.shell import Shell

WRITERS, EACH = 8, 12


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    return made


def fmm(shell: Shell, agent: str = "rio") -> Any:
    return json.loads((shell.home / "state" / agent / "fmm.json").read_bytes())


def add(shell: Shell, text: str, *more: str, topic: str = "decisions/fees") -> str:
    words = ("--agent", "rio", "--topic", topic, "--text", text, *more)
    done = shell("memory", "add", *words, "--json")
    assert done.code == 0, done.err
    return done.json()["data"]["id"]


def shown(shell: Shell, topic: str = "/", agent: str = "rio") -> list[dict[str, Any]]:
    return shell("memory", "show", "--agent", agent, "--topic", topic, "--json").json()["data"][
        "data"
    ]


def test_what_is_added_is_shown_with_all_that_was_said_of_it(shell: Shell) -> None:
    (shell.cwd / "value.json").write_text('{"percent": 3}', encoding="utf-8")
    first = add(shell, "Fees are 2 %")
    more = ("--supersedes", first, "--tag", "law", "--tag", "fees", "--meta", '{"by": "ana"}')
    add(
        shell,
        "Fees are 3 %",
        *more,
        "--data",
        "@value.json",
        "--source",
        "ana",
        "--until",
        "2027-01-01",
    )
    old, new = shown(shell, "decisions")
    assert (old["id"], old["superseded_by"]) == ("rio#1", "rio#2")
    assert {name: new[name] for name in new if name != "ts"} == {
        "topic": "decisions/fees",
        "id": "rio#2",
        "text": "Fees are 3 %",
        "meta": {"by": "ana"},
        "data": {"percent": 3},
        "tags": ["law", "fees"],
        "supersedes": "rio#1",
        "source": "ana",
        "valid_until": 1798761600.0,
    }
    assert isinstance(new["ts"], float)
    text = shell("memory", "show", "--agent", "rio", "--topic", "decisions").out
    assert "decisions/fees: Fees are 2 %  (superseded by rio#2)" in text
    assert FMM.read(fmm(shell), strict=True).findings == []
    lines = (shell.home / "state/rio/topics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [TOPIC_LINE.read(json.loads(line), strict=True).findings for line in lines] == [[], []]


def test_a_secret_that_is_a_key_of_meta_or_data_is_masked(shell: Shell) -> None:
    secret = "sk-ant-api03-" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789" * 2
    add(shell, "Keys", "--meta", json.dumps({secret: 1}), "--data", json.dumps([{secret: {}}]))
    assert "[SECRET:" in next(iter(shown(shell)[0]["meta"]))
    for file in shell.home.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("nothing", ["", "  ", "\n\t"])
def test_neither_nothing_is_remembered_nor_is_it_looked_for(shell: Shell, nothing: str) -> None:
    for words in (("add", "--topic", "a", "--text", nothing), ("search", nothing)):
        refused = shell("memory", *words, "--agent", "rio")
        assert refused.code == 2
        assert refused.err.startswith("error: nothing to ")
        assert "is empty\nhint: give" in refused.err
    assert shown(shell) == []


def found_by(shell: Shell, words: str, agent: str = "rio") -> list[str]:
    found = shell("memory", "search", words, "--agent", agent, "--json").rows()
    return [row["id"] for row in found]


def decided(shell: Shell, verb: str, id: str, *more: str, agent: str = "rio") -> str:
    done = shell("memory", verb, id, "--agent", agent, *more)
    assert done.code == 0, done.err
    return done.out.strip()


def test_a_proposal_changes_nothing_until_it_is_accepted(shell: Shell) -> None:
    old = [add(shell, "Fees are 2 %"), add(shell, "The fees: 2 percent")]
    before = fmm(shell)
    more = [word for id in old for word in ("--supersedes", id)]
    new = add(shell, "Fees are 2 %, since May", *more, "--proposed", "--source", "a model")
    assert sorted(found_by(shell, "fees since May")) == old
    assert [row["id"] for row in shown(shell)] == old and fmm(shell) == before
    text = shell("memory", "show", "--agent", "rio", "--topic", "decisions").out
    assert f"Fees are 2 %, since May  (a model, proposed in place of {' '.join(old)})" in text

    assert decided(shell, "accept", new, "--by", "ana") == f"{new} accepted by ana"
    assert found_by(shell, "fees since May")[0] == new
    rows = {row["id"]: row for row in shown(shell)}
    assert [rows[id]["superseded_by"] for id in old] == [new, new]
    assert (rows[new]["supersedes"], rows[new]["accepted_by"]) == (old, "ana")
    assert FMM.read(fmm(shell), strict=True).findings == []
    for line in (shell.home / "state/rio/topics.jsonl").read_text(encoding="utf-8").splitlines():
        assert TOPIC_LINE.read(json.loads(line), strict=True).findings == []

    shell("memory", "reindex")
    assert {row["id"]: row for row in shown(shell)} == rows
    again = shell("memory", "accept", new, "--agent", "rio")
    assert again.code == 4 and "no proposal waits" in again.err


def test_a_refused_proposal_is_gone_and_a_fork_decides_for_itself(shell: Shell) -> None:
    new = add(shell, "Fees are 4 %", "--proposed")
    assert shell("agent", "fork", "rio", "kid").code == 0
    assert decided(shell, "refuse", new, "--by", "a gate") == f"{new} refused by a gate"
    assert shell("memory", "show", "--agent", "rio", "--topic", "/").out == "no data under /\n"
    decided(shell, "accept", new, agent="kid")
    assert found_by(shell, "fees", "kid") == [new]
    assert found_by(shell, "fees") == []


def test_a_tree_counts_deeper_topics_with_those_above(shell: Shell) -> None:
    for topic in ("/", "a/b", "a/c", "d"):
        add(shell, "x", topic=topic)
    tree = shell("memory", "tree", "--agent", "rio", "--json").json()
    assert [(row["topic"], row["data"]) for row in tree["rows"]] == [
        ("/", 1),
        ("a/b", 1),
        ("a/c", 1),
        ("d", 1),
    ]
    rows = shell("memory", "tree", "--agent", "rio", "--depth", "1", "--json").rows()
    assert [(row["topic"], row["data"]) for row in rows] == [("/", 1), ("a", 2), ("d", 1)]
    rows = shell("memory", "tree", "--agent", "rio", "--topic", "a", "--json").rows()
    assert [row["topic"] for row in rows] == ["a/b", "a/c"]


@pytest.mark.parametrize("topic", ["__data__", "a/../b", "", "a//b", "retrieval/ivf/x"])
def test_a_topic_that_breaks_the_rule_is_refused(shell: Shell, topic: str) -> None:
    refused = shell("memory", "add", "--agent", "rio", "--topic", topic, "--text", "x", "--json")
    assert (refused.code, refused.error()["code"]) == (2, "bad_name")
    assert not (shell.home / "state/rio/topics.jsonl").exists()


@pytest.mark.parametrize(
    "words", [("--meta", "[1]"), ("--meta", "{"), ("--supersedes", "rio#9"), ("--until", "soon")]
)
def test_what_cannot_be_said_of_a_datum_is_refused(shell: Shell, words: tuple[str, str]) -> None:
    add_words = ("memory", "add", "--agent", "rio", "--topic", "a", "--text", "x")
    refused = shell(*add_words, *words)
    assert refused.code in (2, 4)
    assert not (shell.home / "state/rio/topics.jsonl").exists()


def test_forgotten_data_are_in_no_file_but_the_log_when_forget_returns(shell: Shell) -> None:
    secret = add(shell, "The zebra plan", topic="plans/a")
    add(shell, "Another zebra", topic="plans/b")
    add(shell, "Horses", topic="horses")
    dry = shell("memory", "forget", secret, "--agent", "rio", "--dry-run", "--json").json()
    assert (dry["applied"], dry["data"]["forgotten"]) == (False, [secret])
    assert len(shown(shell)) == 3
    done = shell("memory", "forget", secret, "--agent", "rio", "--topic", "plans", "--json").json()
    assert done["data"]["forgotten"] == [secret, "rio#2"]
    left = {
        str(file.relative_to(shell.home))
        for file in shell.home.rglob("*")
        if file.is_file() and b"zebra" in file.read_bytes()
    }
    assert left == {"state/rio/topics.jsonl"}
    assert [datum["text"] for datum in shown(shell)] == ["Horses"]
    again = shell("memory", "forget", secret, "--agent", "rio", "--json").json()
    assert not again["applied"]


def test_compaction_is_counted_in_the_tree_and_can_be_seen_before(shell: Shell) -> None:
    first = add(shell, "A is 1")
    add(shell, "A is 2", "--supersedes", first)
    add(shell, "Same")
    add(shell, "Same")
    compact = ("memory", "compact", "--agent", "rio", "--json")
    expected = {"duplicates": ["rio#3"], "superseded": [first]}
    assert shell(*compact, "--dry-run").json()["data"] == expected
    assert len(shown(shell)) == 4
    assert shell(*compact).json()["data"] == expected
    assert [datum["text"] for datum in shown(shell)] == ["A is 2", "Same"]
    left_out = {"duplicate": 1, "superseded": 1}
    assert fmm(shell)["__data__"][0]["meta"] == {"left_out": left_out}


def test_processes_that_add_at_the_same_time_lose_nothing(shell: Shell) -> None:
    code = (
        "import sys\n"
        "from holdfast.store.home import Home\n"
        "from holdfast.memory.topics import Topics\n"
        "with Home.open(sys.argv[1]) as home, Topics(home, 'rio') as topics:\n"
        f"    for n in range({EACH}):\n"
        "        topics.add(f'writers/{sys.argv[2]}', f'{sys.argv[2]}-{n}')\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(shell.home), str(number)])
        for number in range(WRITERS)
    ]
    assert [writer.wait() for writer in writers] == [0] * WRITERS
    expected = sorted(f"{number}-{n}" for number in range(WRITERS) for n in range(EACH))
    assert sorted(datum["text"] for datum in shown(shell, "writers")) == expected
    # The tree may lag behind the log until the next write.
    assert shell("memory", "add", "--agent", "rio", "--topic", "later", "--text", "x").code == 0
    tree = fmm(shell)["writers"]
    found = [datum["text"] for node in tree.values() for datum in node["__data__"]]
    assert sorted(found) == expected
    assert shell("check").code == 0


def test_rebuild_writes_a_tree_that_was_lost(shell: Shell) -> None:
    add(shell, "one")
    (shell.home / "state/rio/fmm.json").unlink()
    warned = shell("memory", "tree", "--agent", "rio")
    assert "fmm.json is missing" in warned.err
    assert "state/rio/fmm.json" in shell("rebuild").out
    assert fmm(shell)["decisions"]["fees"]["__data__"][0]["text"] == "one"
    assert "fmm.json" not in shell("memory", "tree", "--agent", "rio").err


def test_reindex_describes_the_index_of_vectors_in_the_tree(shell: Shell) -> None:
    pytest.importorskip("faiss")
    for number in range(20):
        add(shell, f"datum number {number} of the harbour")
    assert shell("memory", "reindex").code == 0
    (dim,) = fmm(shell)["retrieval"]["ivf"].values()
    (index,) = dim.values()
    assert index["count"] == 20
    assert {"dim", "K", "nprobe", "count", "centroids"} <= index.keys()
    assert FMM.read(fmm(shell), strict=True).findings == []
    lines = (shell.home / "state/rio/topics.jsonl").read_bytes()
    assert shell("memory", "reindex").code == 0
    assert (shell.home / "state/rio/topics.jsonl").read_bytes() == lines, "nothing new to record"
    hits = shell("memory", "search", "harbour 7", "--agent", "rio", "--json").rows()
    assert hits[0]["text"] == "datum number 7 of the harbour"


@pytest.mark.parametrize("room", [0, 40_000], ids=["none", "for the index to be opened"])
def test_on_a_full_disk_memory_is_read_all_the_same(shell: Shell, room: int) -> None:
    add(shell, "Fees are 2 %")
    assert len(found_by(shell, "fees")) == 1
    add(shell, f"Fees are 3 %, for some {'and others ' * 9_000}")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    for words in (
        ("search", "fees", "--agent", "rio"),
        ("tree", "--agent", "rio"),
        ("show", "--agent", "rio", "--topic", "/"),
    ):
        ran = shell("memory", *words, "--json", begin=full)
        assert ran.code == 0, ran.err
        assert "Fees are 3 %" in ran.out or '"data":2' in ran.out
    refused = shell("memory", "reindex", "--json", begin=full)
    assert refused.error()["code"] == "disk_full", refused.err


def test_data_without_a_text_are_shown_as_json(shell: Shell) -> None:
    add(shell, "", "--data", '{"k": [true, null]}')
    ran = shell("memory", "show", "--agent", "rio", "--topic", "/")
    assert ran.out.endswith('decisions/fees: {"k":[true,null]}\n')


def test_what_is_no_json_is_said_once(shell: Shell) -> None:
    ran = shell("memory", "add", "--agent", "rio", "--topic", "a", "--meta", '{"a":')
    assert ran.code == 2 and ran.err.count("not JSON") == 1

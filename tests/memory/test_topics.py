"""The memory of an agent by topics, through its Python interface."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.recall import open_recall
from holdfast.contracts.fractal import data_in
from holdfast.errors import BadName, BadValue, NotFound
from holdfast.memory.datum import Datum, datum_line
from holdfast.memory.topics import Topics
from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.testing import Turner


@pytest.fixture
def topics(home: Home) -> Iterator[Topics]:
    with Topics(home, "rio") as made:
        yield made


def fmm(home: Home, agent: str = "rio") -> Any:
    return json.loads(Path(home.path, "state", agent, "fmm.json").read_bytes())


def texts(found: list[Datum]) -> list[str]:
    return [datum.text for datum in found]


def test_a_datum_reads_back_with_all_that_was_said_of_it(home: Home, topics: Topics) -> None:
    old = topics.add("decisions/fees", "Fees are 2 %", ts=5.0)
    new = topics.add(
        "decisions/fees",
        "Fees are 3 %",
        meta={"by": "ana"},
        data=[1, None, {"x": "é"}],
        tags=["fees", "law"],
        supersedes=old,
        source="2026-11-19_rio_001",
        valid_until=9.5,
        fields={"tick": 3},
    )
    assert (old, new) == ("rio#1", "rio#2")
    first, second = topics.under("decisions")
    assert (first.ts, first.text, first.topic, first.supersedes) == (
        5.0,
        "Fees are 2 %",
        "decisions/fees",
        (),
    )
    assert second == Datum(
        "rio#2",
        home.clock.now(),
        "decisions/fees",
        "Fees are 3 %",
        {"by": "ana"},
        [1, None, {"x": "é"}],
        ("fees", "law"),
        ("rio#1",),
        "2026-11-19_rio_001",
        9.5,
        {"tick": 3},
    )
    assert topics.superseded() == {"rio#1": "rio#2"}
    topics.close()
    told = fmm(home)["decisions"]["fees"]["__data__"]
    assert told[0] == {"id": "rio#1", "ts": 5.0, "text": "Fees are 2 %", "superseded_by": "rio#2"}
    assert told[1]["tick"] == 3 and told[1]["data"] == [1, None, {"x": "é"}]


def test_data_stand_at_the_root_in_the_middle_and_at_a_leaf(home: Home, topics: Topics) -> None:
    for topic in ("/", "a", "a/b", "a/bc", "a/b/c"):
        topics.add(topic, f"at {topic}")
    assert texts(topics.under("a/b")) == ["at a/b", "at a/b/c"]
    assert texts(topics.under("/", newest=2)) == ["at a/bc", "at a/b/c"]
    assert [(each.topic, each.data) for each in topics.topics("a")] == [
        ("a", 1),
        ("a/b", 1),
        ("a/b/c", 1),
        ("a/bc", 1),
    ]
    topics.close()
    assert sorted((topic, datum["text"]) for topic, datum in data_in(fmm(home))) == sorted(
        (topic, f"at {topic}") for topic in ("/", "a", "a/b", "a/bc", "a/b/c")
    )


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "__data__",
        "a/__data__",
        "a//b",
        "/a",
        "a/",
        "a/../b",
        ".",
        "a\0b",
        "a\nb",
        "a\ud800",
        "/".join(["a"] * 33),
        "/".join(["a"] * 10_000),
        "x" * 1_001,
        "retrieval/ivf/dim8",
    ],
)
def test_a_topic_that_breaks_the_rule_is_refused(topics: Topics, topic: str) -> None:
    with pytest.raises(BadName, match="not a topic"):
        topics.add(topic, "hello")
    assert topics.under() == []


@pytest.mark.parametrize(
    "topic", ["/".join(["a"] * 32), "x" * 1_000, "data", "ü/日本/🙂", "a b/c:d", "~1/%2F/..."]
)
def test_an_odd_topic_reads_back_as_it_was_written(home: Home, topics: Topics, topic: str) -> None:
    topics.add(topic, "hello", data={"a": [[[1]]]})
    assert [(each.topic, each.text) for each in topics.under(topic)] == [(topic, "hello")]
    topics.close()
    assert [found for found, _ in data_in(fmm(home))] == [topic]


def test_data_that_cannot_be_shown_are_refused(topics: Topics) -> None:
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    wrong: list[dict[str, Any]] = [
        {"data": deep},
        {"data": float("nan")},
        {"fields": {"id": "x"}},
    ]
    for refused in wrong:
        with pytest.raises(BadValue):
            topics.add("a", "text", **refused)
    with pytest.raises(BadValue):
        topics.add("a", "")
    with pytest.raises(NotFound):
        topics.add("a", "text", supersedes="rio#7")
    assert topics.log.head().seq == 0


def test_a_forgotten_datum_is_gone_from_tree_and_reading(home: Home, topics: Topics) -> None:
    first, second = topics.add("a/b", "secret plan"), topics.add("a", "other")
    correction = topics.add("a/b", "another plan", supersedes=first)
    assert topics.forget([first, "rio#99", "leo#1", "x"]) == [first]
    assert "secret plan" not in json.dumps(fmm(home))
    assert topics.get([first, second]).keys() == {second}
    assert texts(topics.under("a/b")) == ["another plan"]
    assert [each.data for each in topics.topics("a")] == [1, 1]
    assert topics.forget([first]) == []
    topics.forget([correction])
    assert texts(topics.under("/", newest=1)) == ["other"]
    assert fmm(home)["__data__"] == [{"ts": home.clock.now(), "meta": {"left_out": {"asked": 2}}}]


def test_compaction_takes_out_duplicates_and_superseded_data(home: Home, topics: Topics) -> None:
    old = topics.add("a", "A is 1")
    topics.add("a", "A is 2", supersedes=old)
    same = [topics.add("b", "same", tags=["t"]) for _ in range(3)]
    topics.add("b", "same")
    found = topics.compact()
    assert found == (same[:2], [old])
    assert texts(topics.under()) == ["A is 2", "same", "same"]
    left_out = {"duplicate": 2, "superseded": 1}
    assert fmm(home)["__data__"][0]["meta"] == {"left_out": left_out}
    assert topics.compact() == ([], [])


def test_the_newest_index_of_each_dimension_is_shown(home: Home, topics: Topics) -> None:
    known = {"nprobe": 4, "count": 100, "centroids": "cache/a"}
    for dim, size in ((8, 64), (8, 16), (768, 4)):
        topics.set_index({"dim": dim, "K": size, **known})
    with pytest.raises(BadValue):
        topics.set_index({"dim": 8, "K": 16, "centroids": "x"})
    assert sorted((each["dim"], each["K"]) for each in topics.indexes()) == [(8, 16), (768, 4)]
    topics.close()
    ivf = fmm(home)["retrieval"]["ivf"]
    assert {name: [*node] for name, node in ivf.items()} == {"dim8": ["K16"], "dim768": ["K4"]}
    assert ivf["dim8"]["K16"] == {"ts": home.clock.now(), "dim": 8, "K": 16, **known}


@pytest.mark.parametrize("damage", [None, b"", b"{", b"\0" * 40, b'{"a":{"__data__":['])
def test_a_damaged_tree_is_made_again_of_the_log(home: Home, damage: bytes | None) -> None:
    file = Path(home.path, "state/rio/fmm.json")
    with Topics(home, "rio") as topics:
        topics.add("a", "one")
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    with Topics(home, "rio") as topics:
        assert topics.behind() != ""
        topics.add("a", "two")
    assert [datum["text"] for _, datum in data_in(fmm(home))] == ["one", "two"]
    with Topics(home, "rio") as topics:
        assert topics.behind() == ""


def test_a_tree_that_was_edited_is_kept_aside(home: Home) -> None:
    file = Path(home.path, "state/rio/fmm.json")
    with Topics(home, "rio") as topics:
        topics.add("a", "one")
    file.write_bytes(b'{"mine": {"__data__": [{"text": "by hand"}]}}')
    with Topics(home, "rio") as topics:
        assert topics.behind() == "changed by another program"
        topics.add("a", "two")
    assert [datum["text"] for _, datum in data_in(fmm(home))] == ["one", "two"]
    (aside,) = file.parent.glob("fmm.json.edited-*")
    assert b"by hand" in aside.read_bytes()


def test_a_large_tree_follows_as_often_as_its_size_allows(home: Home, clock: Turner) -> None:
    with Topics(home, "rio") as topics:
        topics.add_all([datum_line("a", "x" * 1_000, ts=1.0) for _ in range(1_000)])
    with Topics(home, "rio") as topics:
        assert topics.behind() == ""
        topics.add("b", "late")
    with Topics(home, "rio") as topics:
        assert topics.behind() == "1 line behind"
        assert texts(topics.under("b")) == ["late"]
    clock.advance(6.0)
    with Topics(home, "rio") as topics:
        topics.add("b", "later")
    with Topics(home, "rio") as topics:
        assert topics.behind() == ""
    assert len(fmm(home)["b"]["__data__"]) == 2


def test_an_index_that_was_lost_or_damaged_changes_no_answer(home: Home) -> None:
    with Topics(home, "rio") as topics:
        ids = [topics.add("a", f"text {number}") for number in range(5)]
        topics.forget(ids[1:2])
        before = topics.under("a"), topics.topics()
    index = Path(home.path, "cache/memory/index.sqlite3")
    for content in (b"not a database at all" * 100, b""):
        index.write_bytes(content)
        with Topics(home, "rio") as topics:
            assert (topics.under("a"), topics.topics()) == before
    index.unlink()
    with Topics(home, "rio") as topics:
        assert (topics.under("a"), topics.topics()) == before


@pytest.mark.parametrize("page", [1, 3, 9, 25])
def test_an_index_of_which_some_pages_are_damaged_is_made_again(home: Home, page: int) -> None:
    index = Path(home.path, "cache/memory/index.sqlite3")

    def damage() -> None:
        with open_recall(home) as recall:
            assert len(recall.search("text 3")) == 6
        size = index.stat().st_size
        assert size > page * 4096
        os.truncate(index, page * 4096)
        with index.open("ab") as file:
            file.write(b"\xa5" * (size - page * 4096))

    with Topics(home, "rio") as topics:
        topics.add_all([datum_line("a", f"text {number}", ts=1.0) for number in range(5)])
        topics.add("b", "text 5")
    damage()
    with Topics(home, "rio") as topics:
        assert len(topics.under()) == 6
    damage()
    with Topics(home, "rio") as topics:
        topics.forget([topics.add("a", "text 6")])
        assert topics.behind() == ""
    damage()
    with open_recall(home) as recall:
        assert recall.reindex() > 0
        assert recall.index.size() == 6


def test_the_index_of_another_log_is_not_used(home: Home) -> None:
    with Topics(home, "rio") as topics:
        topics.add_all([datum_line("a", "long " * 100, ts=1.0), datum_line("a", "two", ts=1.0)])
        assert len(topics.under()) == 2
    Path(home.path, "state/rio/topics.jsonl").unlink()
    with Topics(home, "rio") as topics:
        topics.add("b", "new")
        assert texts(topics.under()) == ["new"]


def test_a_memory_on_another_store_says_the_same() -> None:
    store = Memory()
    with closing(store), Topics(store, "rio") as topics:
        ids = [topics.add(f"a/{number % 2}", f"text {number}") for number in range(6)]
        topics.forget(ids[:1])
        assert texts(topics.under("a/0")) == ["text 2", "text 4"]
        assert texts([*topics.get(ids[3:4]).values()]) == ["text 3"]

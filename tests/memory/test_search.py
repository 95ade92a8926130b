"""What was recorded is found, at once and by what it says; what was taken back is not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import pytest

from holdfast.agents.recall import open_recall
from holdfast.memory.search import Filters, Recall, Recency
from holdfast.memory.topics import Topics
from holdfast.ops.agent import fork
from holdfast.ops.context import Context
from holdfast.store.home import Home

DAY = 86_400.0


def note(home: Home, text: str, agent: str = "rio", topic: str = "facts", **known: Any) -> str:
    with Topics(home, agent) as topics:
        return topics.add(topic, text, **known)


def say(home: Home, session: str, *turns: str, agent: str = "rio", **meta: Any) -> None:
    log = home.log(f"state/{agent}/memory.jsonl")
    for number, text in enumerate(turns):
        named = {"turn": f"{session}/{number // 2}", "session_id": session, **meta}
        role = ("user", "assistant")[number % 2]
        log.append({"ts": home.clock.now(), "role": role, "content": text, "meta": named})
    log.close()


@pytest.fixture
def recall(home: Home) -> Iterator[Recall]:
    with open_recall(home) as made:
        yield made


def ids(recall: Recall, query: str, **given: Any) -> list[str]:
    filters = {name: given.pop(name) for name in list(given) if name in Filters._fields}
    return [hit.id for hit in recall.search(query, filters=Filters(**filters), **given)]


def test_an_empty_memory_gives_an_empty_list(recall: Recall) -> None:
    assert recall.search("anything at all") == []


def test_a_text_is_found_right_after_it_was_added(home: Home, recall: Recall) -> None:
    note(home, "the cat sleeps")
    assert recall.search("deploy port") == []
    added = note(home, "The deploy listens on port 8081")
    assert ids(recall, "which ports do deployments listen on") == [added]


def test_every_source_is_found_with_its_provenance(home: Home, recall: Recall) -> None:
    say(home, "2026-11-18_rio_001", "Is the harbour open?", "The harbour is closed on Mondays.")
    home.document("state/rio/memory.md").replace(b"# Rio\n\n## Dead Ends\n- 2026-11-01: fee page\n")
    home.log("ledger/rio").append(
        {"event": "info", "summary": "Moved to the lighthouse", "session_id": "s", "data": {}}
    )
    home.log("jobs/fix/history.jsonl").append(
        {"event": "judged", "summary_for_supervisor": "The valve leaks", "sequence": 1}
    )
    for query, source, agent in (
        ("harbour", "turn", "rio"),
        ("fee page", "note", "rio"),
        ("lighthouse", "ledger", "rio"),
        ("valve", "job", ""),
    ):
        hit = recall.search(query)[0]
        assert (hit.source, hit.agent) == (source, agent), query


def test_sealed_texts_are_not_indexed(home: Home, recall: Recall) -> None:
    say(home, "2026-11-18_rio_001", "sealedword one", "sealedword two", sealed="key-1")
    home.log("jobs/fix/history.jsonl").append(
        {"event": "judged", "summary_for_supervisor": "sealedword", "sealed": "key-1"}
    )
    assert recall.search("sealedword") == []


def test_filters_leave_only_what_they_name(home: Home, recall: Recall) -> None:
    now = home.clock.now()
    old = note(home, "apple pie", topic="food/sweet", ts=now - 40 * DAY, tags=["fruit"])
    new = note(home, "apple soup", topic="food/warm", ts=now)
    theirs = note(home, "apple tree", agent="mia", topic="garden")
    assert set(ids(recall, "apple")) == {old, new, theirs}
    assert set(ids(recall, "apple", agents=["rio"])) == {old, new}
    assert ids(recall, "apple", agents=["mia"]) == [theirs]
    assert ids(recall, "apple", agents=[]) == []
    assert set(ids(recall, "apple", topic="food")) == {old, new}
    assert ids(recall, "apple", topic="food/warm") == [new]
    assert ids(recall, "apple", topic="foo") == []
    assert ids(recall, "apple", tags=["fruit"]) == [old]
    assert ids(recall, "apple", sources=["turn"]) == []
    assert set(ids(recall, "apple", since=now - DAY)) == {new, theirs}
    assert ids(recall, "apple", before=now - DAY) == [old]


def test_decay_lets_old_texts_fade_as_stated(home: Home, recall: Recall) -> None:
    now = home.clock.now()
    note(home, "pear juice", ts=now - 2 * DAY)
    plain = recall.search("pear")[0]
    faded = recall.search("pear", recency=Recency(decay=0.5))[0]
    assert faded.parts["decay"] == pytest.approx(2.718281828**-1.0)
    assert faded.score == pytest.approx(plain.score * faded.parts["decay"])
    fresh = recall.search("pear", recency=Recency(fresh=0.3))[0]
    assert fresh.score == pytest.approx(plain.score + fresh.parts["fresh"])


def test_a_correction_stands_above_what_it_corrects(home: Home, recall: Recall) -> None:
    first = note(home, "The database host is zeus zeus database host")
    second = note(home, "It moved: use hera from now on", supersedes=first)
    third = note(home, "Moved again, to apollo", supersedes=second)
    hits = recall.search("which is the database host")
    assert [hit.id for hit in hits] == [third, second, first]
    assert [hit.superseded_by for hit in hits] == ["", third, second]
    assert hits[0].parts["corrects"] > 0


def test_corrections_in_a_circle_end(home: Home, recall: Recall) -> None:
    log = home.log("state/rio/topics.jsonl")
    for text, corrected in (("alpha beta", "rio#2"), ("alpha gamma", "rio#1")):
        log.append({"ts": 1.0, "topic": "a", "text": text, "supersedes": corrected})
    log.close()
    assert sorted(ids(recall, "alpha")) == ["rio#1", "rio#2"]


def test_what_was_forgotten_is_found_no_more(home: Home, path: str, recall: Recall) -> None:
    secret, other = note(home, "The xylophone is broken"), note(home, "The trumpet is fine")
    assert ids(recall, "xylophone trumpet") == [secret, other]
    with Topics(home, "rio") as topics:
        topics.forget([secret])
    assert ids(recall, "xylophone trumpet") == [other]
    for name in os.listdir(f"{path}/cache/memory"):
        with open(f"{path}/cache/memory/{name}", "rb") as file:
            data = file.read().lower()
        assert b"xylophon" not in data, name
        assert b"trumpet" in data or not name.endswith(".sqlite3")


def test_a_fork_remembers_what_its_parent_knew_then(home: Home, path: str) -> None:
    home.document("state/rio/manifest.json").replace(b'{"agent_id": "rio"}')
    early = note(home, "The bridge is open")
    say(home, "s1", "How long is the bridge?", "A mile.")
    with Context(path) as call:
        fork(call, "rio", "rio2")
    note(home, "The bridge is closed now")
    own = note(home, "The bridge of the fork", agent="rio2")
    with open_recall(home) as recall:
        said = "state/rio/memory.jsonl#1"
        assert set(ids(recall, "bridge", agents=["rio2"])) == {early, said, own}
        log = home.log("state/rio2/topics.jsonl")
        log.append({"ts": 1.0, "event": "forget", "ids": [early], "why": "asked"})
        log.close()
        assert set(ids(recall, "bridge", agents=["rio2"])) == {said, own}
        assert early in ids(recall, "bridge", agents=["rio"])


def test_a_text_that_is_no_longer_valid_counts_half(home: Home, recall: Recall) -> None:
    gone = note(home, "rent is 900 rent", valid_until=home.clock.now() - 1)
    valid = note(home, "rent is 950 since then, and somewhat more words")
    assert ids(recall, "rent") == [valid, gone]
    assert recall.search("rent")[1].parts["expired"] == 0.5


def test_a_long_session_is_found_by_words_spread_over_its_turns(home: Home, recall: Recall) -> None:
    say(home, "s1", "My sister Ana lives in Porto", "Nice", "She paints boats", "Lovely")
    say(home, "s2", "Boats are expensive", "Yes", "I saw boats", "Where", "At sea", "Ah")
    say(home, "s3", "My brother lives in Rome", "Fine")
    hits = recall.search("what does the sister in Porto paint", by_session=True)
    assert hits[0].session == "s1"
    assert len({hit.session for hit in hits}) == len(hits)
    assert {"words", "session"} <= hits[0].parts.keys()


def test_the_same_text_is_listed_once(home: Home, recall: Recall) -> None:
    for _ in range(5):
        note(home, "Kettle is on")
    assert len(recall.search("kettle")) == 1


def test_diversity_lowers_what_a_better_hit_says_already(home: Home, recall: Recall) -> None:
    first = note(home, "The ferry to the island leaves at nine")
    again = note(home, "The ferry to the island leaves at nine sharp")
    other = note(home, "A ferry ticket for the island costs four coins in winter")
    assert ids(recall, "when does the ferry to the island leave") == [first, again, other]
    hits = recall.search("when does the ferry to the island leave", diversity=1.0)
    assert [hit.id for hit in hits] == [first, other, again]
    assert hits[2].parts["repeats"] < 0


def test_a_question_of_100_kilobytes_works(home: Home, recall: Recall) -> None:
    wanted = note(home, "The zebra crossing is painted")
    query = " ".join(f"word{number}" for number in range(13_000)) + " zebra"
    assert len(query) > 100_000
    assert ids(recall, query) == [wanted]


def test_deleting_the_cache_changes_no_result(home: Home, path: str) -> None:
    for number in range(30):
        note(home, f"lamp number {number} is in room {number % 7}")
    home.document("state/rio/memory.md").replace(b"## Open Questions\n- lamp of the attic?\n")
    with open_recall(home) as recall:
        before = recall.search("lamp room 3", k=20)
        assert len(before) == 20
        shutil.rmtree(f"{path}/cache/memory")
        assert recall.search("lamp room 3", k=20) == before
    shutil.rmtree(f"{path}/cache/memory")
    with open_recall(home) as recall:
        assert recall.search("lamp room 3", k=20) == before


@pytest.mark.parametrize("damage", [b"", b"no database at all", b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_index_is_made_again(home: Home, path: str, damage: bytes) -> None:
    wanted = note(home, "lamp on the table")
    with open_recall(home) as recall:
        recall.search("lamp")
    with open(f"{path}/cache/memory/index.sqlite3", "wb") as file:
        file.write(damage)
    with open_recall(home) as recall:
        assert ids(recall, "lamp") == [wanted]


def test_an_edited_note_replaces_what_it_was(home: Home, recall: Recall) -> None:
    notes = home.document("state/rio/memory.md")
    notes.replace(b"## Corrections\n- the well is dry\n- the mill turns\n")
    assert len(recall.search("well")) == 1
    notes.replace(b"## Corrections\n- the mill turns\n")
    assert recall.search("well") == []
    assert len(recall.search("mill")) == 1


def _search_in_child(path: str, count: int) -> None:
    with Home.open(path) as home, open_recall(home) as recall:
        for number in range(count):
            note(home, f"event {number}", agent="mia")
            recall.search("event")


def test_several_processes_index_one_home(home: Home, path: str) -> None:
    context = get_context("fork")
    children = [context.Process(target=_search_in_child, args=(path, 12)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    with open_recall(home) as recall:
        recall.read_on()
        assert recall.index.size() == 36


def test_a_log_that_was_replaced_is_read_anew(home: Home, path: str, recall: Recall) -> None:
    note(home, "first things", topic="a")
    note(home, "second things", topic="a")
    assert len(recall.search("things")) == 2
    shutil.rmtree(f"{path}/state/rio")
    assert recall.search("things") == []
    wanted = note(home, "third things")
    assert ids(recall, "things") == [wanted]

"""Fractal memory: topics in topics, notes in each, and what is known about the index."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import fractal
from holdfast.contracts.fractal import FMM, FractalMemory
from holdfast.contracts.schema import schema_of
from tests.contracts.saying import changed, errors, example, told, without
from tests.contracts.strategies import Json, anything, values_of

TOPICS = example("fmm/1.0-topics.json")
BUCKETS = example("fmm/1.0-an-index-with-buckets.json")
ONLY = example("fmm/1.0-the-only-index.json")


def memory(value: Any) -> FractalMemory:
    record = FMM.read(value).record
    assert isinstance(record, FractalMemory)
    return record


# --- topics ---------------------------------------------------------------------------------


def test_notes_are_found_at_every_level() -> None:
    found = memory(TOPICS)
    assert [note.text for note in found.data] == ["at the top"]
    summaries = found.topics["chat"].topics["assistant"].topics["summaries"]
    assert [note.text for note in summaries.data] == ["in short"]
    assert found.topics["goals"].topics == {}


@pytest.mark.parametrize(
    ("path", "new", "where"),
    [
        ("chat", "text", "chat"),
        ("chat.assistant", [], "chat.assistant"),
        ("chat.assistant", None, "chat.assistant"),
        ("goals.deep", 3, "goals.deep"),
        ("__data__", {}, "__data__"),
        ("__data__[0]", "text", "__data__[0]"),
        ("moe.baton.__data__[0].text", 5, "moe.baton.__data__[0].text"),
        ("moe.baton.__data__[0].meta", "m", "moe.baton.__data__[0].meta"),
    ],
)
def test_every_key_is_a_topic_and_every_note_an_object(path: str, new: Any, where: str) -> None:
    for strict in (True, False):
        assert told("fmm", changed(TOPICS, path, new), strict=strict) == [("error", "type", where)]


def test_a_note_without_a_time_is_read_with_a_warning_and_never_written() -> None:
    path = "moe.baton.__data__[0].ts"
    value = without(TOPICS, path)
    assert told("fmm", value) == [("warning", "missing", path)]
    assert told("fmm", value, strict=True) == [("error", "missing", path)]
    assert FMM.read(value).value == value


def test_a_time_in_another_form_is_mended_where_it_is() -> None:
    path = "moe.baton.__data__[0].ts"
    found = FMM.read(changed(TOPICS, path, "2026-11-15T06:43:22Z"))
    assert [finding[:3] for finding in found.findings] == [("warning", "time", path)]
    assert found.value == TOPICS


def test_fields_that_tools_add_to_a_note_are_part_of_the_format() -> None:
    value = {"kg": {"edges": {"__data__": [{"ts": 1794725003.0, "src": "a", "weight": 0.5}]}}}
    assert told("fmm", value, strict=True) == []
    assert memory(value).value() == value


@pytest.mark.parametrize("name", ["", "data", "value", "topics", "model_extra", "a/b", "ts", "\0"])
def test_a_topic_may_have_any_name(name: str) -> None:
    value = {name: {"__data__": [{"ts": 1794725003.0}], name: {}}}
    assert told("fmm", value, strict=True) == []
    assert memory(value).value() == value
    assert list(memory(value).topics) == [name]


# --- the index ------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [TOPICS, BUCKETS, ONLY])
def test_an_index_is_read_in_either_form(value: Json) -> None:
    assert told("fmm", value, strict=True) == []


def test_several_indexes_are_read() -> None:
    index = {"nprobe": 1, "centroids": "AA=="}
    ivf = {"dim32": {"K4": index, "K8": index}, "dim768": {"K64": index, "__data__": []}}
    found = memory({"retrieval": {"ivf": ivf}}).retrieval.ivf.dimensions
    assert {name: list(sizes.indexes) for name, sizes in found.items()} == {
        "dim32": ["K4", "K8"],
        "dim768": ["K64"],
    }


@pytest.mark.parametrize("centroids", ["AAAA", [], [[0.5, 1], [0, 1.0]], [0.5, 1.0]])
def test_centroids_are_text_or_numbers(centroids: Any) -> None:
    value = changed(BUCKETS, "retrieval.ivf.dim2.K2.centroids", centroids)
    assert told("fmm", value, strict=True) == []


def test_fields_that_tools_add_to_an_index_are_part_of_the_format() -> None:
    value = changed(BUCKETS, "retrieval.ivf.dim2.K2.trained_by", {"tool": [1]})
    assert told("fmm", value, strict=True) == []
    assert memory(value).value() == value


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("retrieval.ivf.dim2.K2.centroids", 5),
        ("retrieval.ivf.dim2.K2.nprobe", 0),
        ("retrieval.ivf.dim2.K2.count", -1),
        ("retrieval.ivf.dim2.K2.buckets", [1]),
        ("retrieval.ivf.dim2.K2", "index"),
        ("retrieval.ivf.dim2", 4),
        ("retrieval.ivf", []),
    ],
)
def test_an_index_is_held_to_its_rules(path: str, new: Any) -> None:
    found = errors(told("fmm", changed(BUCKETS, path, new)))
    assert found
    assert {(code, field) for _, code, field in found} == {("type", path)}


def test_an_index_has_centroids() -> None:
    path = "retrieval.ivf.dim2.K2.centroids"
    assert told("fmm", without(BUCKETS, path)) == [("error", "missing", path)]


@pytest.mark.parametrize(
    ("path", "new", "where"),
    [
        ("retrieval.ivf.dim2.K2.dim", 3, "retrieval.ivf"),
        ("retrieval.ivf.dim2.K2.K", 3, "retrieval.ivf.dim2"),
    ],
)
def test_an_index_has_the_size_that_its_name_says(path: str, new: int, where: str) -> None:
    assert told("fmm", changed(BUCKETS, path, new)) == [("error", "rule", where)]


@pytest.mark.parametrize("field", ["dim", "K", "nprobe", "count", "centroids"])
def test_the_only_index_has_all_of_its_fields(field: str) -> None:
    value = without(ONLY, f"retrieval.ivf.{field}")
    assert told("fmm", value) == [("error", "rule", "retrieval.ivf")]


def test_names_that_are_no_size_are_told_and_kept() -> None:
    index = {"centroids": "AA=="}
    value = {"retrieval": {"ivf": {"dimX": {"K4": index}, "dim3": {"4": index}}, "log": {}}}
    found = FMM.read(value)
    assert {finding[:3] for finding in found.findings} == {
        ("warning", "unknown_field", "retrieval.ivf.dimX"),
        ("warning", "unknown_field", "retrieval.ivf.dim3.4"),
    }
    assert found.record is not None
    assert found.record.value() == value


# --- all of it ------------------------------------------------------------------------------

names = st.text(max_size=6).filter(lambda name: name not in ("__data__", "retrieval"))
notes = st.lists(values_of(fractal.Datum, unknown=True), max_size=2)


def with_notes(topics: Json, data: list[Json] | None) -> Json:
    return topics if data is None else {"__data__": data, **topics}


trees = st.recursive(
    st.builds(with_notes, st.just({}), st.none() | notes),
    lambda inner: st.builds(
        with_notes, st.dictionaries(names, inner, max_size=3), st.none() | notes
    ),
    max_leaves=8,
)


@settings(max_examples=50)
@given(trees)
def test_a_tree_of_topics_is_written_as_it_was_read(value: Json) -> None:
    found = FMM.read(value, strict=True)
    assert found.findings == []
    assert found.record is not None
    assert found.record.value() == value


@settings(max_examples=50)
@given(trees, anything)
def test_anything_but_a_topic_in_a_tree_is_found(value: Json, new: Any) -> None:
    found = FMM.read(value | {"added": new})
    if not isinstance(new, dict):
        assert [finding[:3] for finding in found.findings] == [("error", "type", "added")]
    assert FMM.looks(value | {"added": new}) in (True, False)


def test_a_tree_looks_like_one_if_there_are_notes_and_only_objects_above_them() -> None:
    assert FMM.looks(TOPICS)
    assert not FMM.looks({})
    assert not FMM.looks({"a": {"b": {}}})
    assert not FMM.looks({"a": {"__data__": []}, "b": 3})
    assert not FMM.looks([TOPICS])


def test_the_schema_says_that_every_other_key_is_a_topic() -> None:
    schema = schema_of(FMM)
    assert schema["additionalProperties"] == {"$ref": "#/$defs/Topic"}
    topic = schema["$defs"]["Topic"]
    assert topic["additionalProperties"] == {"$ref": "#/$defs/Topic"}
    assert topic["properties"]["__data__"]["items"] == {"$ref": "#/$defs/Datum"}
    assert schema["$defs"]["Datum"]["required"] == ["ts"]


def test_a_large_memory_is_read_whole() -> None:
    order = random.Random(7)
    value: Json = {}
    for number in range(10_000):
        topic = value.setdefault(f"t{order.randrange(20)}", {}).setdefault("notes", {})
        topic.setdefault("__data__", []).append({"ts": 1794725000.0 + number, "text": "a note"})
    found = memory(value)
    assert sum(len(topic.topics["notes"].data) for topic in found.topics.values()) == 10_000
    assert found.value() == value

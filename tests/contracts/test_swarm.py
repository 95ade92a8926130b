"""Runs, personas, lines and the index of swarms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contracts import persona, swarm
from holdfast.contracts.kind import Form, Kind
from holdfast.contracts.kinds import kind
from holdfast.contracts.persona import MANIFEST
from holdfast.ids import is_agent_id
from tests.contracts.fixtures import Fixture, fixtures
from tests.contracts.rounds import alike, by_path
from tests.contracts.saying import (
    changed,
    cross_findings,
    crossed,
    errors,
    example,
    garbled,
    told,
    without,
)
from tests.contracts.strategies import Json, Keeping, values_of

OURS = [each for each in fixtures() if each.kind in swarm.KINDS]
OLDER = [each for each in OURS if each.form.upgrade is not None]
TEST = example("test-run/1.0-all-events.json")
CLUSTER = example("cluster-run/1.0-all-events.json")
FORK = example("manifest/1.0-a-fork.json")
INDEX = example("index/1.0-parents-and-counters.json")
LINE = {"ts": 1794725021.5, "role": "user", "content": "Well?", "meta": {"model": "mock"}}
EVENT = {"ts": 1794725021.5, "type": "fork", "meta": {"child_id": "x"}}


def named(fixture: Fixture) -> str:
    return fixture.name


@pytest.mark.parametrize("fixture", OURS, ids=named)
def test_every_kept_file_is_right_in_its_form_and_written_as_it_was_read(fixture: Fixture) -> None:
    values = fixture.values()
    for value in values:
        assert fixture.kind.form_of(value) is fixture.form
        found = fixture.kind.read(value, strict=True, form=fixture.form)
        assert found.findings == []
        assert found.record is not None
        assert found.record.value() == value
    assert cross_findings(fixture.kind, values) == []


@pytest.mark.parametrize("fixture", OURS, ids=named)
def test_a_value_looks_like_its_kind_and_no_other(fixture: Fixture) -> None:
    unmistakable = fixture.kind.name != "router-weights" and fixture.form.version != "log"
    first = fixture.values()[0]
    if unmistakable and "retrieval" not in first:
        assert alike(first) == [fixture.kind.name]
    else:
        assert set(alike(first)) <= {fixture.kind.name}


@pytest.mark.parametrize("fixture", OLDER, ids=named)
def test_every_older_form_is_brought_to_the_one_that_is_written(fixture: Fixture) -> None:
    for value in fixture.values():
        new = fixture.kind.upgraded(value)
        assert fixture.kind.form_of(new) is fixture.kind.current
        assert fixture.kind.read(new, strict=True).findings == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("state/rio/fmm.json", "fmm"),
        ("logs/test_run_20261115-064402.json", "test-run"),
        ("logs/cluster_run_20261115-064402.json", "cluster-run"),
        ("home/state/rio/manifest.json", "manifest"),
        ("personas/lila.json", "manifest"),
        ("state/rio/memory.jsonl", "memory-line"),
        ("state/rio/events.jsonl", "agent-event"),
        ("state/index.json", "index"),
        ("state/router_weights.json", "router-weights"),
        ("jobs/index.json", "job-index"),
        ("jobs/j1/manifest.json", "job-manifest"),
    ],
)
def test_files_are_known_by_their_names(path: str, name: str | None) -> None:
    assert by_path(path) == ([name] if name else [])


# --- runs -----------------------------------------------------------------------------------


def fields_of(run: Json, missing: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Every field of every event, and whether its absence is an error."""
    return [
        (f"events[{number}].{field}", "warning" if (event["type"], field) in missing else "error")
        for number, event in enumerate(run["events"])
        for field in event
    ]


@pytest.mark.parametrize(("path", "level"), fields_of(TEST, set()))
def test_every_event_of_a_test_has_all_of_its_fields(path: str, level: str) -> None:
    assert told("test-run", without(TEST, path)) == [(level, "missing", path)]


TOLERATED = {
    ("moe", "prompt"),
    ("moe", "router_scores"),
    ("aggregate", "prompt"),
    ("error", "agent"),
}


@pytest.mark.parametrize(("path", "level"), fields_of(CLUSTER, TOLERATED))
def test_every_event_of_a_cluster_has_all_of_its_fields(path: str, level: str) -> None:
    assert told("cluster-run", without(CLUSTER, path)) == [(level, "missing", path)]
    assert told("cluster-run", without(CLUSTER, path), strict=True) == [("error", "missing", path)]


@pytest.mark.parametrize(
    ("name", "run", "path", "level"),
    [
        *(("test-run", TEST, field, "error") for field in TEST if field != "logs"),
        ("test-run", TEST, "logs", "warning"),
        *(("test-run", TEST, f"counts.{field}", "error") for field in TEST["counts"]),
        *(("test-run", TEST, f"logs.{field}", "error") for field in TEST["logs"]),
        *(("cluster-run", CLUSTER, field, "error") for field in ("agents", "model", "ticks")),
        ("cluster-run", CLUSTER, "counts", "error"),
        ("cluster-run", CLUSTER, "events", "error"),
        ("cluster-run", CLUSTER, "use_ollama", "warning"),
        ("cluster-run", CLUSTER, "elapsed_sec", "warning"),
        ("cluster-run", CLUSTER, "counts.A.chat", "error"),
        ("cluster-run", CLUSTER, "counts.A.errors", "warning"),
    ],
)
def test_a_run_has_all_of_its_fields(name: str, run: Json, path: str, level: str) -> None:
    assert told(name, without(run, path)) == [(level, "missing", path)]


def test_an_excerpt_of_a_run_is_read_with_warnings_only() -> None:
    excerpt = {
        "agents": ["A", "B"],
        "model": "gemma3:4b",
        "ticks": 12,
        "counts": {"A": {"chat": 4}, "B": {"chat": 5}},
        "events": CLUSTER["events"][3:4],
    }
    assert errors(told("cluster-run", excerpt)) == []
    assert {code for _, code, _ in told("cluster-run", excerpt)} == {"missing"}
    assert errors(crossed("cluster-run", excerpt)) == []


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("events[1].t", "late", "time"),
        ("events[1].t", -5.0, "time"),
        ("events[1].tick", 0, "type"),
        ("events[1].tick", 1.5, "type"),
        ("events[1].from", "", "type"),
        ("events[1].reply", None, "type"),
        ("events[1].type", "flew", "choice"),
        ("events[3].router_scores.A", "high", "type"),
        ("events[3].router_scores", [1], "type"),
        ("agents", "A", "type"),
        ("ticks", -1, "type"),
        ("elapsed_sec", -1, "type"),
        ("use_ollama", "yes", "type"),
        ("counts.A.chat", -1, "type"),
        ("events", {}, "type"),
    ],
)
def test_a_cluster_run_is_held_to_its_rules(path: str, new: Any, code: str) -> None:
    assert told("cluster-run", changed(CLUSTER, path, new)) == [("error", code, path)]


@pytest.mark.parametrize(
    ("path", "new", "meant"),
    [
        ("events[1].t", "2026-11-15T06:44:01Z", 1794725041.0),
        ("events[1].t", 1794725041000, 1794725041.0),
        ("events[1].type", "Hand-off", "handoff"),
        ("ticks", "3", 3),
    ],
)
def test_drift_in_a_cluster_run_is_mended_with_a_warning(path: str, new: Any, meant: Any) -> None:
    found = kind("cluster-run").read(changed(CLUSTER, path, new))
    assert [(finding.level, finding.field) for finding in found.findings] == [("warning", path)]
    assert found.value == changed(CLUSTER, path, meant)


def test_names_of_any_kind_and_agents_that_cool_are_right_in_a_run() -> None:
    text = json.dumps(CLUSTER, ensure_ascii=False).replace('"A"', '"Lila-v∞"')
    value = json.loads(text)
    assert told("cluster-run", value, strict=True) == []
    assert crossed("cluster-run", value) == []


def test_fields_that_were_added_survive_and_are_told() -> None:
    value = changed(CLUSTER, "events[0].seed", 7) | {"mood": "calm"}
    found = kind("cluster-run").read(value)
    assert {finding.field for finding in found.findings} == {"mood", "events[0].seed"}
    assert found.record is not None
    assert found.record.value() == value


@pytest.mark.parametrize(
    ("path", "new", "code", "where"),
    [
        ("counts.A.chat", 4, "counts", "counts.A.chat"),
        ("counts.C.errors", 0, "counts", "counts.C.errors"),
        ("ticks", 2, "tick", "events[3].tick"),
        ("events[1].from", "Z", "agent", "events[1].from"),
        ("events[5].summarizer", "Z", "agent", "events[5].summarizer"),
    ],
)
def test_what_a_cluster_run_says_twice_is_compared(
    path: str, new: Any, code: str, where: str
) -> None:
    assert crossed("cluster-run", changed(CLUSTER, path, new)) == [("warning", code, where)]


def test_an_agent_with_events_has_counts() -> None:
    assert crossed("cluster-run", without(CLUSTER, "counts.B")) == [
        ("warning", "counts", "counts.B")
    ]


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("counts.chat", 2, "counts"),
        ("counts.errors", 0, "counts"),
        ("elapsed_sec", 30.0, "elapsed"),
    ],
)
def test_what_a_test_run_says_twice_is_compared(path: str, new: Any, code: str) -> None:
    assert crossed("test-run", changed(TEST, path, new)) == [("warning", code, path)]


# --- personas -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Lila-v∞", "Universe-Orchestrator-Ω", "a.b", "../x", " "])
def test_a_name_that_is_no_id_is_kept_as_what_is_shown(name: str) -> None:
    value = FORK | {"agent_id": name, "ancestry": {"parent_id": "Yan-∞"}}
    assert told("manifest", value) == [("warning", "form", "")]
    assert told("manifest", value, strict=True) == [("error", "form", "")]
    new = MANIFEST.upgraded(value)
    assert is_agent_id(new["agent_id"])
    assert is_agent_id(new["ancestry"]["parent_id"])
    assert new["display_name"] == name
    assert told("manifest", new, strict=True) == []
    assert MANIFEST.upgraded(value) == new


@pytest.mark.parametrize(
    "parent", [{}, {"ancestry": {}}, {"ancestry": {"parent_id": None}}, {"parent_id": "rio"}]
)
def test_a_parent_may_be_missing(parent: Json) -> None:
    value = without(FORK, "ancestry") | parent
    found = MANIFEST.read(value, strict=True)
    assert found.findings == []
    assert isinstance(found.record, persona.Persona)
    assert found.record.parent_id == parent.get("parent_id")


@pytest.mark.parametrize("parent", [{"ancestry": {"parent_id": "F"}}, {"parent_id": "F"}])
def test_an_agent_that_is_its_own_parent_is_read_as_one_without(parent: Json) -> None:
    value = without(FORK, "ancestry") | {"agent_id": "F"} | parent
    assert told("manifest", value) == [("warning", "form", "")]
    assert MANIFEST.read(value, strict=True, form=MANIFEST.current).record is None
    new = MANIFEST.upgraded(value)
    assert told("manifest", new, strict=True) == []
    assert new["agent_id"] == "F"


def test_a_foreign_name_that_is_its_own_parent_is_mended_twice() -> None:
    value = FORK | {"agent_id": "Yan-∞", "ancestry": {"parent_id": "Yan-∞"}}
    new = MANIFEST.upgraded(value)
    assert told("manifest", new, strict=True) == []
    assert new["ancestry"]["parent_id"] is None


@pytest.mark.parametrize(
    ("path", "new", "code"),
    [
        ("roles", [1], "type"),
        ("core_directives", {}, "type"),
        ("runtime.temperature", "hot", "type"),
        ("runtime.top_k", -1, "type"),
        ("notes[0].ts", "then", "time"),
        ("features.recursive_memory", "on", "type"),
    ],
)
def test_a_persona_is_held_to_its_rules(path: str, new: Any, code: str) -> None:
    found = errors(told("manifest", changed(FORK, path, new)))
    assert [(each, field.startswith(path)) for _, each, field in found] == [(code, True)]


def test_a_persona_is_about_somebody() -> None:
    assert told("manifest", without(FORK, "agent_id")) == [("error", "missing", "agent_id")]
    assert told("manifest", {"agent_id": "rio"}, strict=True) == []


def test_a_persona_lies_in_the_directory_of_its_agent() -> None:
    assert crossed("manifest", FORK, "state/TestHarness-child1/manifest.json") == []
    assert crossed("manifest", FORK, "state/rio/manifest.json") == [("error", "path", "agent_id")]
    assert crossed("manifest", FORK, "personas/rio.json") == []


# --- lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line", "field"),
    [
        *(("memory-line", LINE, field) for field in ("ts", "role", "content")),
        *(("agent-event", EVENT, field) for field in ("ts", "type")),
    ],
)
def test_a_line_has_its_fields(name: str, line: Json, field: str) -> None:
    assert told(name, without(line, field)) == [("error", "missing", field)]


@pytest.mark.parametrize(
    ("name", "line", "field", "new", "code"),
    [
        ("memory-line", LINE, "role", "robot", "choice"),
        ("memory-line", LINE, "content", None, "type"),
        ("memory-line", LINE, "ts", "once", "time"),
        ("memory-line", LINE, "meta", "m", "type"),
        ("memory-line", LINE, "hash", "zz", "type"),
        ("agent-event", EVENT, "type", "", "type"),
        ("agent-event", EVENT, "meta", [], "type"),
        ("agent-event", EVENT, "ts", True, "time"),
    ],
)
def test_a_line_is_held_to_its_rules(
    name: str, line: Json, field: str, new: Any, code: str
) -> None:
    assert told(name, line | {field: new}) == [("error", code, field)]


def test_times_as_text_are_read_as_seconds() -> None:
    found = kind("memory-line").read(LINE | {"ts": "2026-11-15T06:43:41.500000Z"})
    assert [finding[:3] for finding in found.findings] == [("warning", "time", "ts")]
    assert found.value["ts"] == 1794725021.5


# --- the index ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["updated", "agents", "agents.ingested.counters", "agents.ingested.counters.memory_lines"],
)
def test_an_index_has_its_fields(path: str) -> None:
    assert told("index", without(INDEX, path)) == [("error", "missing", path)]


@pytest.mark.parametrize(
    ("path", "new", "where"),
    [
        (
            "agents.ingested.manifest_path",
            "/home/x/state/ingested/manifest.json",
            "agents.ingested.manifest_path",
        ),
        ("agents.ingested.parent_id", "ingested", "agents.ingested.parent_id"),
        ("agents.ingested.parent_id", "gone", "agents.ingested.parent_id"),
    ],
)
def test_what_is_odd_about_an_index_is_told(path: str, new: str, where: str) -> None:
    value = changed(INDEX, path, new)
    assert told("index", value, strict=True) == []
    assert [(level, field) for level, _, field in crossed("index", value)] == [("warning", where)]


def test_parents_in_a_circle_are_told_once_for_each() -> None:
    value = changed(INDEX, "agents.TestHarness.parent_id", "TestHarness-child1")
    assert crossed("index", value) == [
        ("warning", "parent", "agents.TestHarness.parent_id"),
        ("warning", "parent", "agents.TestHarness-child1.parent_id"),
    ]


def test_names_in_an_index_that_are_no_ids_are_told_with_what_they_become() -> None:
    value = changed(INDEX, "agents.Yan-∞", INDEX["agents"]["ingested"])
    (finding,) = cross_findings(kind("index"), [value])
    assert (finding.level, finding.code, finding.field) == ("warning", "name", "agents.Yan-∞")
    new = MANIFEST.upgraded({"agent_id": "Yan-∞"})
    assert new["agent_id"] in finding.reason


# --- weights and rows -----------------------------------------------------------------------


def test_weights_are_numbers_for_any_name() -> None:
    weights = {"A": 0.00625, "schema": -2, "Lila-v∞": 0}
    assert told("router-weights", weights, strict=True) == []
    assert told("router-weights", {"A": None}) == [("error", "type", "A")]
    assert told("router-weights", {"A": "0.5"}) == [("warning", "type", "A")]


ROW: Json = {"ts": 1794725021.5, "text": "Well?", "meta": {"role": "user"}, "freq": 2}


@pytest.mark.parametrize("field", ["ts", "text", "freq"])
def test_a_row_has_its_fields(field: str) -> None:
    assert told("retrieval-row", without(ROW, field)) == [("error", "missing", field)]


@pytest.mark.parametrize(
    ("field", "new"),
    [("freq", 0), ("text", None), ("meta", []), ("fingerprint", "xyz"), ("id", -1)],
)
def test_a_row_is_held_to_its_rules(field: str, new: Any) -> None:
    assert told("retrieval-row", ROW | {field: new}) == [("error", "type", field)]


@pytest.mark.parametrize("meta", ["", "[]", "{", "null"])
def test_meta_as_text_is_the_text_of_an_object(meta: str) -> None:
    assert told("retrieval-row", ROW | {"meta": meta}) == [("error", "rule", "")]


# --- all of them ----------------------------------------------------------------------------


def with_another_parent(value: Json) -> Json:
    found = {name: inner for name, inner in value.items() if name != "parent_id"}
    return found | ({"ancestry": {}} if "ancestry" in value else {})


def with_meta_as_text(value: Json) -> Json:
    return value | {"meta": json.dumps({"was": value["meta"]})}


KEEPING: Keeping = {
    persona.Persona: with_another_parent,
    swarm.StoredRow: with_meta_as_text,
}
FORMS = [
    (each, form)
    for each in swarm.KINDS
    for form in each.forms
    if each.name not in ("fmm", "router-weights") and form.version != "log"
]


@pytest.mark.parametrize(
    ("its", "form"), FORMS, ids=lambda each: getattr(each, "name", None) or each.version
)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_and_written_the_same(
    its: Kind, form: Form, data: st.DataObject
) -> None:
    value = data.draw(values_of(form.model, keeping=KEEPING, unknown=True))
    found = its.read(value, form=form)
    assert found.record is not None
    assert {finding.code for finding in found.findings} == {"unknown_field"}
    written = found.record.value()
    assert written == value
    again = its.read(written, form=form).record
    assert again is not None
    assert again.value() == written
    if form.upgrade is not None and its.form_of(value) is form:
        assert its.read(its.upgraded(value)).record is not None


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)))
def test_weights_are_written_as_they_were_read(value: dict[str, float]) -> None:
    found = kind("router-weights").read(value, strict=True)
    assert found.findings == []
    assert found.record is not None
    assert found.record.value() == value


@pytest.mark.parametrize("fixture", OURS, ids=named)
@settings(max_examples=25)
@given(data=st.data())
def test_no_file_at_all_breaks_the_reading(fixture: Fixture, data: st.DataObject) -> None:
    value = data.draw(st.sampled_from(fixture.values()))
    broken = data.draw(garbled(value))
    for strict in (True, False):
        found = fixture.kind.read(broken, strict=strict)
        assert found.record is not None or found.findings
    cross_findings(fixture.kind, [broken])
    assert fixture.kind.looks(broken) in (True, False)


def test_the_kinds_of_swarms_are_those_that_scripts_rely_on() -> None:
    assert [each.name for each in swarm.KINDS] == [
        "fmm",
        "test-run",
        "cluster-run",
        "manifest",
        "memory-line",
        "topic-line",
        "agent-event",
        "index",
        "router-weights",
        "retrieval-row",
    ]

"""Differences and merges, over texts of any kind."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store import merge
from holdfast.store.merge import (
    apply,
    difference,
    distance,
    lines_of,
    merge_json,
    merge_lines,
    undo,
)

TEXTS = st.lists(st.sampled_from("abcdef\u2028\r"), max_size=8).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "".join(f"{line}\n" for line in lines)])
)

ONE, TWO, THREE = {"id": 1}, {"id": 2}, {"id": 3}
DONE = {"id": 1, "status": "done"}


@given(TEXTS, TEXTS)
def test_a_patch_makes_the_new_text_and_can_be_undone(old: str, new: str) -> None:
    patch = difference(old, new)
    assert apply(patch, old) == new
    assert undo(patch, new) == old
    assert (patch == []) == (old == new)
    assert distance(old, new) == distance(new, old)
    assert distance(old, old) == 0


@given(TEXTS, TEXTS, TEXTS)
def test_texts_that_are_compared_in_parts_come_out_the_same(one: str, two: str, three: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_AT_ONCE", 0)
        changes = difference(one, two)
        assert apply(changes, one) == two
        assert undo(changes, two) == one
        assert merge_lines(one, one, three) == merge_lines(one, three, one) == three
        both = merge_lines(one, two, three).split("\n")
        for _, _, come in (*changes, *difference(one, three)):
            assert {line.removesuffix("\n") for line in come} <= {*both}


def test_an_edit_of_every_task_is_compared_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def matcher(junk: None, one: Any, two: Any, **options: bool) -> Any:
        compared.append(len(one) * len(two))
        return SequenceMatcher(junk, one, two, **options)

    monkeypatch.setattr(merge, "SequenceMatcher", matcher)
    task = {"priority": "medium", "status": "pending", "type": "research", "outcome": None}
    tasks = [{"id": f"task-{n:03d}", **task, "due": None} for n in range(400)]
    old = json.dumps(tasks, indent=2)
    new = old.replace("medium", "high")
    changes = difference(old, new)
    assert [[len(gone), len(come)] for _, gone, come in changes] == [[1, 1]] * 400
    assert sum(compared) < 400 * 10
    same = "a\nb\n" * 300
    assert len(difference(f"x\n{same}y\n", f"z\n{same}{same}u\n")) == 1


@given(TEXTS)
def test_only_a_line_feed_ends_a_line(text: str) -> None:
    lines = lines_of(text)
    assert "".join(lines) == text
    assert all(line.endswith("\n") for line in lines[:-1])
    assert all(line.count("\n") <= 1 for line in lines)


@given(TEXTS, TEXTS)
def test_a_side_that_did_nothing_leaves_the_other_as_it_is(base: str, other: str) -> None:
    assert merge_lines(base, base, other) == other
    assert merge_lines(base, other, base) == other
    assert merge_lines(base, other, other) == other


@given(TEXTS, TEXTS, TEXTS)
def test_no_line_that_somebody_added_is_lost(base: str, ours: str, theirs: str) -> None:
    merged = merge_lines(base, ours, theirs).split("\n")
    for _, _, come in (*difference(base, ours), *difference(base, theirs)):
        for line in come:
            assert line.removesuffix("\n") in merged


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ("a\nb\nc\n", "a\nb\nc\nd\n", "A\nb\nc\n", "A\nb\nc\nd\n"),
        ("a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n", "a\nc\nd\n"),
        ("a\n", "a\nx\n", "a\ny\n", "a\ny\nx\n"),
        ("a\nb\n", "a\nB\n", "a\n", "a\nB\n"),
        ("a", "a\nx\n", "y", "y\na\nx\n"),
        ("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n", "a\nY\nX\n" + "c\n"),
    ],
)
def test_both_changes_are_in_the_merged_text(
    base: str, ours: str, theirs: str, merged: str
) -> None:
    assert merge_lines(base, ours, theirs) == merged


def test_texts_too_long_to_compare_are_told_apart_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge, "_MOST_PAIRS", 3)
    assert difference("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n") == [
        [1, ["b\n", "c\n"], ["x\n", "c\n", "y\n"]]
    ]


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "merged"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"a": 1, "b": 1}, {"a": 1}, {"a": 2, "b": 1}, {"a": 2}),
        ({"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2}),
        ({"a": {"x": 1}}, {"a": {"x": 1, "y": 2}}, {"a": {"x": 5}}, {"a": {"x": 5, "y": 2}}),
        ([1, 2], [1, 2, 3], [2], [2]),
        ([ONE], [ONE, TWO], [THREE, ONE], [THREE, ONE, TWO]),
        ([ONE], [DONE], [ONE, TWO], [DONE, TWO]),
        ([ONE, TWO], [ONE, TWO, THREE], [TWO], [TWO, THREE]),
        (1, [{"id": 1}], [{"id": 2}], [{"id": 2}, {"id": 1}]),
        ([], [{"id": 1}, {"id": 1}], [{"id": 2}], [{"id": 2}]),
        ([], [{"id": 1}], [{"name": 2}], [{"name": 2}]),
        (None, {"a": 1}, {"b": 1}, {"b": 1, "a": 1}),
        ({}, {"a": 1}, [2], [2]),
    ],
)  # fmt: skip
def test_json_is_merged_by_field_and_by_id(base: Any, ours: Any, theirs: Any, merged: Any) -> None:
    texts = ("" if base is None else json.dumps(base), json.dumps(ours), json.dumps(theirs))
    assert json.loads(merge_json(*texts)) == merged

"""Differences and merges, over texts of any kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store import merge
from holdfast.store.merge import apply, difference, lines_of, merge_json, merge_lines, undo, weight

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
    assert (weight(patch) == 0) == (old == new)


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

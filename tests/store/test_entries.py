"""Texts as entries of a log: masked entry by entry, they show no more than masked as a whole."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast import mask
from holdfast.store.entries import entries_of
from holdfast.store.merge import lines_of

TAG = re.compile(r"\[SECRET:[a-z-]+:([0-9a-f]{8})\]")
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\n"
PIECES = (
    "a\n",
    "\n",
    "- password=correct-horse\n",
    KEY + "-----END PRIVATE KEY-----\n",
    KEY,
    "-----END PRIVATE KEY-----\n",
    "kind: Secret\ndata:\n  name: cm9ib3RzLXJ1bi10aGUtd29ybGQ=\n",
    "ünd",
)
masked = mask.by_key_name(lambda: b"of a test")


def secrets_in(texts: list[str]) -> set[str]:
    return set(TAG.findall("".join(masked({"texts": texts})["texts"])))


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_every_line_has_an_entry_and_every_secret_is_within_one(pieces: list[str]) -> None:
    text = "".join(pieces)
    entries = entries_of(text)
    assert "".join(entries) == text
    assert len(entries) == len(lines_of(text))
    assert secrets_in([text]) <= secrets_in(entries)


def test_what_holds_no_secret_over_several_lines_stays_in_lines() -> None:
    text = "a\n- password=correct-horse\nb\n- password=battery-staple\nc"
    assert entries_of(text) == lines_of(text)
    both = f"a\n{KEY}-----END PRIVATE KEY-----\nb\n"
    whole = f"{KEY}-----END PRIVATE KEY-----\n"
    assert entries_of(both) == ["a\n", whole, "", "", "", "b\n"]


def test_what_is_a_secret_only_without_the_one_before_it_is_within_one_as_well() -> None:
    cluster = "kind: Secret\ndata:\n  name: cm9ib3RzLXJ1bi10aGUtd29ybGQ=\n"
    text = f"{KEY}{cluster}ünd{cluster}"
    assert entries_of(text) == [text, *[""] * 8]

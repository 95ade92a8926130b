"""What is sealed opens with its key, in its place, unchanged, and no other way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import mask
from holdfast.errors import Corrupt, NoKey
from holdfast.keys import as_text, from_text
from holdfast.seal import Key, Ring

OLD, NEW, OTHER = (Key(bytes([number]) * 32) for number in (1, 2, 3))
PLACE = "state/rio/memory.jsonl#12 content"
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=300)


def ring(*keys: Key) -> Ring:
    return Ring(keys, "the test")


@given(TEXTS, TEXTS)
def test_what_was_sealed_opens_in_its_place_and_in_no_other(text: str, place: str) -> None:
    sealed = ring(OLD).seal(text, place)
    assert ring(OLD).open(sealed, place) == text
    with pytest.raises(Corrupt):
        ring(OLD).open(sealed, place + "0")


@given(TEXTS, st.data())
def test_one_changed_letter_and_it_does_not_open(text: str, data: Any) -> None:
    sealed = ring(OLD).seal(text, PLACE)
    at = data.draw(st.integers(0, len(sealed) - 1))
    letter = data.draw(st.characters(codec="ascii").filter(lambda one: one != sealed[at]))
    with pytest.raises((Corrupt, NoKey)):
        ring(OLD).open(sealed[:at] + letter + sealed[at + 1 :], PLACE)


@settings(max_examples=15)
@given(st.text(min_size=1, max_size=8_000))
def test_nothing_in_a_sealed_text_is_taken_for_a_secret(text: str) -> None:
    sealed = ring(OLD).seal(text, PLACE)
    record = {"ts": "2026-11-16T01:00:00Z", "content": sealed, "token count": "a=b"}
    assert mask.by_key_name(lambda: b"k" * 32)(record) == record


def test_an_old_key_opens_what_it_sealed_and_the_newest_seals() -> None:
    before = ring(OLD).seal("then", PLACE)
    both = ring(OLD, NEW)
    assert both.open(before, PLACE) == "then"
    assert f" {NEW.id} " in both.seal("now", PLACE)
    with pytest.raises(NoKey, match=NEW.id) as told:
        ring(OLD, OTHER).open(both.seal("now", PLACE), PLACE)
    assert told.value.hint


def test_the_same_text_never_looks_the_same() -> None:
    assert ring(OLD).seal("same", PLACE) != ring(OLD).seal("same", PLACE)


def test_a_later_form_is_told_apart_from_a_broken_one() -> None:
    later = ring(OLD).seal("x", PLACE).replace("v1", "v2")
    with pytest.raises(NoKey, match="v2"):
        ring(OLD).open(later, PLACE)


def test_the_name_of_a_text_needs_the_key() -> None:
    assert ring(OLD).digest("yes") == ring(OLD).digest("yes")
    assert ring(OLD).digest("yes") != ring(NEW).digest("yes")


def test_a_key_that_strays_into_a_record_is_masked_and_none_is_shown_by_itself() -> None:
    text = as_text(Key(bytes(range(7, 39))))
    assert from_text(text).secret == bytes(range(7, 39))
    shown = mask.by_key_name(lambda: b"k" * 32)({"said": f"it is {text} now"})
    assert text not in shown["said"]
    assert repr(OLD) == f"Key({OLD.id})"

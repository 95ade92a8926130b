"""Names that could harm a file system never become file names."""

from __future__ import annotations

import string
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import BadName
from holdfast.ids import (
    SessionId,
    agent_id,
    is_agent_id,
    key_parts,
    mapped_agent_id,
    session_id,
)

FIRST = string.ascii_letters + string.digits

HOSTILE = [
    "", ".", "..", "../x", "a/../b", "/etc/passwd", "a/b/../../../c", "a\0b", "a\\b", "..\\x",
    "%2e%2e", "%2e%2e%2fx", "\udcc0\udcae", "a ", " a", "a\t", "a\n", "\na", "-rf", "_a", "~root",
    "x" * 256, "x" * 300, "é", "e\u0301", "\u202egnp", "🦀", "Lila-v∞", "a:b", "a|b", "a*", "$HOME",
    "`id`", "a;b", "a&b", "a'b", 'a"b', "٣", "ａ", "\u200ba", "con\u0000", "ﬁ", "İ", "\ufeffa",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_name_is_neither_agent_nor_key_nor_session(name: str) -> None:
    for check in (agent_id, key_parts, session_id):
        with pytest.raises(BadName) as caught:
            check(name)
        assert caught.value.hint
        assert len(caught.value.message) < 500


@pytest.mark.parametrize("name", [".hidden", "a/.lock", "a//b", "/a", "a/", "a/-b"])
def test_no_key_reaches_what_is_the_stores_own(name: str) -> None:
    with pytest.raises(BadName):
        key_parts(name)


@pytest.mark.parametrize("name", ["a.b", "x" * 65, "a/b"])
def test_an_agent_id_has_no_dots_and_64_characters_at_most(name: str) -> None:
    with pytest.raises(BadName):
        agent_id(name)


def test_a_component_has_200_characters_at_most() -> None:
    assert key_parts("x" * 200) == ["x" * 200]
    with pytest.raises(BadName):
        key_parts("x" * 201)


def test_two_spellings_of_one_name_are_both_refused() -> None:
    twins = [unicodedata.normalize(form, "café") for form in ("NFC", "NFD")]
    assert twins[0] != twins[1]
    for twin in twins:
        with pytest.raises(BadName):
            agent_id(twin)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", fullmatch=True))
def test_a_plain_name_is_an_agent_as_it_is(name: str) -> None:
    assert agent_id(name) == name


@given(st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", fullmatch=True), min_size=1))
def test_a_key_has_the_components_that_it_is_joined_of(parts: list[str]) -> None:
    assert key_parts("/".join(parts)) == parts


@given(st.text())
@example("a/b.jsonl\n")
def test_whatever_is_taken_is_made_of_safe_characters(text: str) -> None:
    try:
        parts = key_parts(text)
    except BadName:
        return
    for part in parts:
        assert part[0] in FIRST
        assert set(part) <= set(FIRST + "._-")


def test_a_session_id_has_three_parts() -> None:
    found = session_id("2026-11-15_rio_001")
    assert found == SessionId("2026-11-15", "rio", 1)
    assert session_id("2026-11-15_a_b_1234") == SessionId("2026-11-15", "a_b", 1234)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15_rio_01",
        "2026-11-15_rio_0001",
        "2026-11-15_Rio_001",
        "2026-11-15_rio_",
        "2026-11-15__001",
        "2026-1-15_rio_001",
        "20260331-220000",
        "2026-11-15_rio_001\n",
        "٢٠٢٦-١١-١٥_rio_٠٠١",
        "2026-11-15_rio_" + "9" * 5000,
        "2026-11-15_" + "x" * 65 + "_001",
    ],
)
def test_another_form_is_no_session_id(text: str) -> None:
    with pytest.raises(BadName) as caught:
        session_id(text)
    assert caught.value.hint


@given(
    st.from_regex(r"\d{4}-\d{2}-\d{2}_[a-z0-9][a-z0-9_-]{0,63}_\d{3,6}", fullmatch=True)
    | st.builds(
        "{}_{}_{:03d}".format, st.dates(), st.sampled_from(["rio", "a_1", "x-y"]), st.integers(0)
    )
)
def test_a_session_id_has_one_spelling(text: str) -> None:
    try:
        found = session_id(text)
    except BadName:
        return
    assert str(found) == text


# --- names of others ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mapped"),
    [
        ("rio", "rio"),
        ("Rio", "rio"),
        ("Lila-v∞", "lila-v-652a61dd"),
        ("Café crème", "cafe-creme-d8ceb770"),
        ("../leo", "leo-8a1f71de"),
        ("rio;rm", "rio-rm-0ed5158d"),
        ("", "agent-e3b0c442"),
        ("日本", "agent-cf2abf0c"),
    ],
)
def test_a_foreign_name_is_mapped_by_one_rule(name: str, mapped: str) -> None:
    assert mapped_agent_id(name) == mapped


@given(st.text(max_size=400))
@example("x" * 300)
@example("\udcff")
def test_whatever_others_call_an_agent_has_an_id_here(name: str) -> None:
    mapped = mapped_agent_id(name)
    assert is_agent_id(mapped)
    assert mapped == mapped.lower()
    assert mapped_agent_id(mapped) == mapped


@given(st.lists(st.text(max_size=20), unique=True, min_size=2, max_size=2))
def test_different_names_stay_different_unless_only_their_case_differs(names: list[str]) -> None:
    one, other = names
    same = mapped_agent_id(one) == mapped_agent_id(other)
    assert not same or one.lower() == other.lower()

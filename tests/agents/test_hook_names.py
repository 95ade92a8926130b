"""Conversations of Claude Code under names of all kinds: each is found again by its next event."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agents import hooked
from holdfast.mask import by_key_name
from tests.agents.test_hook import CLAUDE, did, event, events, hook, journal, used
from tests.ledger.shell import Shell


def test_names_of_sessions_that_could_be_paths_are_only_names(shell: Shell) -> None:
    for name in ("../../etc/passwd", "a\nb", "x" * 5_000, "‮evil", "\x00"):
        assert hook(shell, event("SessionStart", session_id=name)).code == 0
        assert did(shell, event("SessionEnd", session_id=name, reason="other")) == "ended"
    known = [line["known_as"] for line in journal(shell) if "known_as" in line]
    assert len(set(known)) == 5
    assert all(re.fullmatch("claude-code/[0-9a-f-]{36}", name) for name in known)


@pytest.mark.parametrize(
    "name",
    [
        CLAUDE,
        "sk-" + "live0123456789abcdef",
        "ghp_" + "a1B2" * 9,
        "../../x",
        "a b",
        "session_01AbCdEf9",
    ],
)
def test_however_a_conversation_is_called_it_is_found_again(shell: Shell, name: str) -> None:
    told = {**used("t1", command="ls"), "session_id": name}
    assert did(shell, told) == "noted"
    assert did(shell, {**told, "tool_use_id": "t2"}) == "noted"
    assert events(shell) == ["session_start", "tool_use", "tool_use"]
    assert "[SECRET" not in journal(shell)[0]["known_as"]


@given(st.uuids() | st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=60))
def test_no_name_of_a_conversation_is_changed_on_its_way_into_the_journal(name: object) -> None:
    said = json.dumps({"session_id": str(name) or "x", "hook_event_name": "Stop"})
    known = hooked.parse(said.encode()).known_as
    assert by_key_name(lambda: b"k")({"known_as": known})["known_as"] == known

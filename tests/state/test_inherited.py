"""A fork's log goes on from the lines that its parent had, and from no others."""

from __future__ import annotations

from holdfast.state.inherited import lines_before
from holdfast.store.memory import Memory
from holdfast.store.primitives import Line

PARENT, CHILD = "state/rio/log.jsonl", "state/kid/log.jsonl"


def test_a_fork_has_the_lines_up_to_the_one_it_was_forked_at() -> None:
    home = Memory()
    cursors = home.log(PARENT).append_all([{"n": number} for number in range(5)])
    at = cursors[2]
    found = lines_before(home, CHILD, PARENT, at.seq, at.hash)
    assert [line.record["n"] for line in found] == [0, 1, 2]
    later = lines_before(home, CHILD, PARENT, at.seq, at.hash, cursors[0])
    assert [line.record["n"] for line in later] == [1, 2]


def test_a_parent_without_that_line_gives_none_and_a_notice() -> None:
    home = Memory()
    at = home.log(PARENT).append({"n": 1})
    for last, hash in ((at.seq, "0" * 64), (at.seq + 1, at.hash)):
        assert lines_before(home, CHILD, PARENT, last, hash) == []
    assert lines_before(home, CHILD, "state/gone/log.jsonl", 1, at.hash) == []
    told = [line.record for line in home.log("audit").read() if isinstance(line, Line)]
    assert {each["event"] for each in told} == {"fork_lost"}
    assert ["state/gone" in each["detail"] for each in told] == [False, True]

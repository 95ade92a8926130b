"""Named places where a test can stop a process."""

from __future__ import annotations

import signal

import pytest

from holdfast.store import failpoints
from holdfast.store.failpoints import arm_from, armed, hit
from tests.store.children import child, state_when


def test_a_place_that_nobody_armed_does_nothing() -> None:
    hit("nowhere")
    with armed("somewhere", list):
        hit("nowhere")


def test_an_armed_place_acts_each_time_as_long_as_the_block_lasts() -> None:
    hits: list[int] = []
    with armed("here", lambda: hits.append(1)):
        hit("here")
        hit("here")
    hit("here")
    assert hits == [1, 1]


def test_a_place_is_disarmed_when_the_block_fails() -> None:
    hits: list[int] = []
    with pytest.raises(ZeroDivisionError), armed("here", lambda: hits.append(1)):
        raise ZeroDivisionError
    hit("here")
    assert hits == []


@pytest.fixture
def signalled() -> list[int]:
    """The signals that this process sent itself, by number, instead of ending."""
    return []


def test_text_arms_places_with_a_signal_and_a_count(signalled: list[int]) -> None:
    before = signal.signal(signal.SIGUSR1, lambda number, frame: signalled.append(number))
    try:
        arm_from("one=usr1,,two=usr1@3,")
        for _ in range(2):
            hit("one")
        assert len(signalled) == 2
        for expected in (2, 2, 3, 3):
            hit("two")
            assert len(signalled) == expected
    finally:
        for name in ("one", "two"):
            failpoints._actions.pop(name, None)
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("text", ["nothing", "a=explode", "a=kill@x"])
def test_text_that_means_nothing_is_not_taken_for_a_test_that_passed(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        arm_from(text)


def test_the_environment_arms_places_in_another_process() -> None:
    script = """
from holdfast.store.failpoints import hit
for number in range(5):
    say(number)
    hit("log.append.written")
"""
    env = {"HOLDFAST_FAILPOINTS": "log.append.written=kill@3"}
    with child(script, env) as made:
        assert [made.hear() for _ in range(3)] == ["0", "1", "2"]
        assert made.wait() == -signal.SIGKILL
    with child(script, {"HOLDFAST_FAILPOINTS": "log.append.written=stop"}) as made:
        assert made.hear() == "0"
        assert state_when(made.pid, lambda state: state == "T") == "T"
    with child(script, {"HOLDFAST_FAILPOINTS": ""}) as made:
        assert made.wait() == 0

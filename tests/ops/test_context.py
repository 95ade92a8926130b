"""What a verb works with."""

import os

import pytest

from holdfast.clock import FakeClock
from holdfast.errors import NotFound
from holdfast.ops.context import Context


def test_the_home_is_opened_once_where_it_was_said(tmp_path) -> None:
    with Context(str(tmp_path / "home"), FakeClock()) as context:
        home = context.home(create=True)
        assert home.path == str(tmp_path / "home")
        assert context.home() is home
        assert home.clock is context.clock


def test_a_home_that_is_not_there_is_not_made_by_looking(tmp_path) -> None:
    with Context(str(tmp_path / "home")) as context, pytest.raises(NotFound):
        context.home()
    assert not (tmp_path / "home").exists()


def test_a_context_that_needs_no_home_opens_none(tmp_path) -> None:
    with Context(str(tmp_path / "home")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_closed_context_has_let_the_home_go(tmp_path) -> None:
    context = Context(str(tmp_path / "home"))
    before = os.listdir("/proc/self/fd")
    first = context.home(create=True)
    assert len(os.listdir("/proc/self/fd")) > len(before)
    context.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    context.close()
    assert context.home() is not first
    context.close()


def test_warnings_are_handed_over_once() -> None:
    context = Context()
    context.warn("one")
    context.warn("two")
    assert context.take_warnings() == ["one", "two"]
    assert context.take_warnings() == []

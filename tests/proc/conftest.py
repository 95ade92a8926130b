"""What tests of process trees share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from holdfast.proc.limits import Means
from tests.proc.world import lacking, living, named


@pytest.fixture(params=["cgroup", "pidns", "group"])
def means(request: pytest.FixtureRequest) -> Means:
    """Each means in turn, where the machine has it."""
    if why := lacking(request.param):
        pytest.skip(why)
    return request.param


@pytest.fixture
def word() -> Iterator[str]:
    """Put into the environment of a tree; whoever still has it after the test is a survivor."""
    word = f"word-{secrets.token_hex(8)}"
    yield word
    assert [named(pid) for pid in living(word)] == []

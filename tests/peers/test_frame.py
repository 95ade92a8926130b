"""When a measurement may be called passed, failed, or neither."""

from __future__ import annotations

import pytest

from bench.frame import Bar, Ground, judge

STEADY = (100.0, 101.0, 99.0)
WILD = (100.0, 60.0, 124.0)
"""Varies by 64 %."""


@pytest.mark.parametrize(
    ("value", "beside", "verdict"),
    [
        (10.1, STEADY, "passed"),
        (9.9, STEADY, "failed"),
        (10.1, WILD, "inconclusive"),
        (9.9, WILD, "inconclusive"),
        (16.3, WILD, "inconclusive"),
        (16.5, WILD, "passed"),
    ],
)
def test_a_wild_limit_spoils_what_is_not_met_by_more_than_it_varied(
    value: float, beside: tuple[float, ...], verdict: str
) -> None:
    bar = Bar("rate", value, ">=", 10.0, timed=True, beside=beside)
    assert judge(bar, Ground())[0] == verdict


def test_a_difference_is_never_met_in_spite_of_a_wild_limit() -> None:
    bar = Bar("time beyond the raw loop", 1.0, "<=", 60.0, timed=True, beside=WILD)
    assert judge(bar, Ground())[0] == "inconclusive"


def test_others_on_the_processors_spoil_any_ratio() -> None:
    bar = Bar("rate", 99.0, ">=", 10.0, timed=True, beside=STEADY)
    assert judge(bar, Ground(others=0.5))[0] == "inconclusive"

"""Noise is not progress, and progress is not lost in noise."""

from __future__ import annotations

from random import Random
from typing import Protocol

import pytest

from holdfast.improve.acceptance import Noise, contest, holds_even, noise_of, regressed, verdict

ROUNDS, SEEDS = 20, 200
MEAN, SD = 100.0, 2.0
MOST_FALSE, LEAST_TRUE = 0.2, 0.9


class Rule(Protocol):
    def __call__(self, chance: Random, effect: float) -> bool: ...


def ours(chance: Random, effect: float) -> bool:
    def pair(_: int) -> tuple[float, float]:
        return chance.gauss(MEAN, SD), chance.gauss(MEAN + effect, SD)

    return contest(pair, higher=True, exact=False).accepted


def any_higher_score(chance: Random, effect: float) -> bool:
    return chance.gauss(MEAN + effect, SD) > chance.gauss(MEAN, SD)


def merges(rule: Rule, effects: tuple[float, ...]) -> tuple[float, float]:
    """False merges in 20 rounds on average, and the share of rounds that merged the good one.

    As the loop does it: noise from five runs, one run of each candidate, those that held even
    against what is there, best first, and upon a winner the others too.
    """
    false, true = 0, 0
    for seed in range(SEEDS):
        chance = Random(seed)
        known = noise_of([chance.gauss(MEAN, SD) for _ in range(5)])
        for _ in range(ROUNDS):
            runs = sorted(((chance.gauss(MEAN + each, SD), each) for each in effects), reverse=True)
            even = [
                each for run, each in runs if holds_even(run, known.mean, known.sd, higher=True)
            ]
            merged = [each for each in even if rule(chance, each)]
            false += sum(each <= 0 for each in merged)
            true += any(each > 0 for each in merged)
    return false / SEEDS, true / SEEDS / ROUNDS


def test_no_change_is_hardly_ever_merged_and_two_standard_deviations_nearly_always() -> None:
    false, _ = merges(ours, (0.0, 0.0, 0.0))
    _, true = merges(ours, (2 * SD, 0.0, 0.0))
    assert false <= MOST_FALSE, f"{false} false merges in {ROUNDS} rounds"
    assert true >= LEAST_TRUE, f"merged in {true:.1%} of rounds"


def test_the_control_that_takes_any_higher_score_fails_the_same_bars() -> None:
    false, _ = merges(any_higher_score, (0.0, 0.0, 0.0))
    assert false > 100 * MOST_FALSE


def test_an_exact_benchmark_is_run_once_and_a_tie_is_no_gain() -> None:
    asked: list[int] = []

    def pair(number: int) -> tuple[float, float]:
        asked.append(number)
        return 9.0, 12.0

    assert contest(pair, higher=True, exact=True)[:2] == (True, "better")
    assert contest(pair, higher=False, exact=True)[:2] == (False, "worse")
    assert contest(lambda _: (9.0, 9.0), higher=True, exact=True)[:2] == (False, "tie")
    assert asked == [0, 0]


def test_a_clear_loss_is_given_up_after_a_few_pairs() -> None:
    chance = Random(7)
    lost = contest(lambda _: (chance.gauss(10, 1), chance.gauss(5, 1)), higher=True, exact=False)
    assert (lost.accepted, lost.why, lost.pairs) == (False, "worse", 4)
    assert lost.interval is not None and lost.interval[1] < 0
    won = contest(lambda _: (chance.gauss(10, 1), chance.gauss(5, 1)), higher=False, exact=False)
    assert (won.accepted, won.pairs) == (True, 8)


def test_equal_pairs_decide_nothing_by_dividing_by_zero() -> None:
    assert verdict([0.0] * 4) == "reject"
    assert verdict([1.0] * 8) == "accept"


def test_noise_needs_five_runs_and_equal_ones_are_exact() -> None:
    assert noise_of([3.0] * 5) == Noise(3.0, 0.0)
    assert noise_of([1.0, 2.0, 3.0, 4.0, 5.0]).sd == pytest.approx(1.5811388)
    with pytest.raises(ValueError, match="5 runs"):
        noise_of([1.0] * 4)
    # The mean of many equal numbers may be off by a bit; their spread is not.
    assert noise_of([0.1] * 7).sd == 0.0


def test_a_sub_score_that_falls_too_far_or_is_gone_is_named() -> None:
    before = {"speed": 100.0, "size": 10.0, "unknown": None, "gone": 1.0}
    after = {"speed": 92.0, "size": 9.6, "unknown": 1.0}
    assert regressed(before, after, threshold=0.05, higher=True) == ["gone", "speed"]
    assert regressed(before, after, threshold=0.05, higher=False) == ["gone"]
    assert regressed({"a": -10.0}, {"a": -11.0}, threshold=0.05, higher=True) == ["a"]

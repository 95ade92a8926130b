"""SIGKILL of the wrapper, of the keeper and of both, at random instants."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.proc.limits import Means
from tests.proc.killing import VICTIMS, Victim, kill_once

RUNS = 30
"""Over all means and victims; `python -m tests.proc.killing 200` does more."""


@pytest.mark.parametrize("victim", VICTIMS)
def test_no_child_survives_a_kill_at_a_random_instant(
    means: Means, victim: Victim, tmp_path: Path
) -> None:
    chance = random.Random(random.getrandbits(32))
    for _ in range(RUNS // 9 + 1):
        kill_once(chance, means, victim, tmp_path)

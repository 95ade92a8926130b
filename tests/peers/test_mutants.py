"""The bugs that the harnesses have to see: each can still be put into the source."""

from __future__ import annotations

import pytest

from prove.frame import REPO
from prove.mutants import HELD_OUT, Mutant, load


@pytest.mark.parametrize("mutant", [*load(), *load(HELD_OUT)], ids=lambda mutant: mutant.name)
def test_a_bug_stands_where_its_text_says(mutant: Mutant) -> None:
    assert mutant.problem(REPO / "src") is None
    for name, old, new in mutant.edits:
        text = (REPO / "src/holdfast" / name).read_text(encoding="utf-8")
        compile(text.replace(old, new), name, "exec")  # or it says nothing about the bug

"""Which tier of a harness has to run."""

from __future__ import annotations

import re
from typing import Any

import pytest

from prove import __main__ as prove
from prove import frame

BELOW = {"clock", "codec", "errors", "ids", "process", "settings", "store", "text"}
IMPORTED = re.compile(r"^\s*(?:from|import) holdfast\.(\w+)", re.MULTILINE)
HARNESSES = {
    name
    for name in frame.discover()
    # A hunt is made of every harness, since it hunts with any of them.
    if frame.PROVE / "hunt.py" not in frame.made_of(name)
}


@pytest.mark.parametrize("name", sorted(HARNESSES))
def test_a_harness_that_runs_code_above_the_store_says_so(name: str) -> None:
    texts = [file.read_text("utf-8") for file in frame.made_of(name) if file.suffix == ".py"]
    rooms = {room for text in texts for room in IMPORTED.findall(text)}
    assert bool(rooms - BELOW) == frame.discover()[name].HARNESS.beyond_store, rooms - BELOW


@pytest.mark.parametrize(
    ("name", "stored", "tier", "runs"),
    [
        ("kill9", {"details": {"faults": []}}, "ci", "quick"),
        ("kill9", {"details": {"faults": []}}, "quick", None),
        ("kill9", {"details": {"faults": ["lost"]}}, "ci", "ci"),
        ("kill9", None, "ci", "ci"),
        ("kill9", None, "quick", "quick"),
        ("sessions", {"details": {"faults": []}}, "ci", "ci"),
        ("sessions", {"details": {"faults": []}}, "quick", "quick"),
    ],
)
def test_a_result_that_holds_leaves_the_quick_tier_to_ci_and_nothing_to_a_quick_run(
    name: str,
    stored: dict[str, Any] | None,
    tier: str,
    runs: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frame, "stored", lambda name, tier: stored if tier == "full" else None)
    assert prove.planned(name, tier)["tier"] == runs

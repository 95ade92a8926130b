"""A call that changes more files than a line of the history can name."""

from __future__ import annotations

import json
from typing import Any

from holdfast.jobs.state import capped, fold, initial, phase_of
from holdfast.jobs.verdict import Verdict
from holdfast.store.primitives import Line
from holdfast.workspace.snapshots import Measured
from tests.jobs.desk import Desk
from tests.jobs.test_steward import folded

WRITES = """
import json, sys
for number in range(1500):
    open(f"{number:04}.txt", "w").close()
print(json.dumps({"action": "COMPLETED", "evidence_files": ["0000.txt", "1499.txt", "gone"],
                  "summary_for_supervisor": "There are many."}))
"""


def test_the_first_of_very_many_files_are_listed_with_their_number(desk: Desk) -> None:
    desk.new("--worker", desk.program(WRITES))
    desk.ran()
    (call,) = desk.calls()
    measured = call["response"]["measured_files"]
    assert measured["added"] == [f"{number:04}.txt" for number in range(1000)]
    assert measured["counts"] == {"added": 1500, "changed": 0, "removed": 0}
    (point,) = desk.document("jobHistory.json")["recovery_points"]
    assert (len(point["rollback_files"]), point["rollback_count"]) == (1000, 1500)
    assert desk("check").code == 0


def test_what_is_not_listed_in_the_history_counts_for_the_warnings(desk: Desk) -> None:
    desk.new("--worker", desk.program(WRITES))
    desk.ran()
    told = {each["kind"]: each["reason"] for each in desk.calls()[0]["response"]["warnings"]}
    assert told["unlisted"].endswith("and 1488 more")
    assert told["unchanged"] == "listed but not changed: gone"


def test_a_line_stays_far_below_its_limit_however_long_the_names_are(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    state = folded(desk)
    many = [f"{number:05}/{'x' * 140}" for number in range(60_000)]
    long = ["\x01" * 4000 + str(number) for number in range(5000)]
    for paths in (many, long):
        line = judged_line(state, Measured(paths, paths, paths))
        assert len(json.dumps(line)) < 3 << 20
        assert line["measured_files"]["counts"]["added"] == len(paths)


def judged_line(state: dict[str, Any], measured: Measured) -> dict[str, Any]:
    phase = phase_of(state)
    verdict = Verdict("SUCCESS", phase, 0, "COMPLETED", [], "", [], [], measured)
    return verdict.line(state, 0, "")


def test_points_of_before_are_kept_with_few_of_their_files() -> None:
    point = {"id": "a", "rollback_files": [str(number) for number in range(60_000)]}
    state = fold(initial(), Line(None, None, {"event": "point", "point": point}, "", 0, 0))
    (kept,) = state["points"]
    assert kept["rollback_files"] == [str(number) for number in range(1000)]
    assert kept["rollback_count"] == 60_000


def test_a_list_that_is_short_is_kept_as_it_is() -> None:
    assert capped(["a", "b"]) == ["a", "b"]
    assert capped([]) == []

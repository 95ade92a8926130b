"""Planners that need no model: what they plan is valid, repeatable, and can be carried out."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.codec import Record
from holdfast.contracts.kinds import kind
from holdfast.errors import Conflict, HoldfastError, NotFound, UsageError
from holdfast.improve.proposers import Edit, builtin, carry_out, mutations
from holdfast.improve.search import constants
from tests.improve.campaigns import Campaigns
from tests.workspace.test_workspace import git

WEIGHTS = """\
WEIGHTS = [  # search: 0..1
    0.5, 0.25,
    0.125,
]
RATE = 0.01  # search: 1e-4..1 log
DEPTH = 3  # search: 1..9 int
OTHER = 7


def solve(x, scale=2.0):
    return x * scale + 1
"""


class Texts(dict[str, str]):
    """Files in memory."""

    def read(self, path: str) -> str:
        return self[path]

    def write(self, path: str, text: str) -> None:
        self[path] = text

    def paths(self) -> list[str]:
        return list(self)


def asking(
    round: int = 1, planner: str = "planner_a", *, seed: int = 7, input: Record | None = None
) -> Record:
    return {"role": "planner", "round": round, "id": planner, "seed": seed, "input": input or {}}


def planned(name: str, texts: Mapping[str, str], request: Record) -> tuple[Record, Texts]:
    """A plan that holds to the contract, and the files once it is carried out."""
    files = Texts(texts)
    plan = builtin(name)(request, files)
    assert dict(files) == texts, "planning changes nothing"
    reading = kind("plan").read(plan, strict=True)
    assert reading.record is not None and not reading.findings
    carry_out(plan, files)
    return plan, files


# --- which numbers --------------------------------------------------------------------------


def test_declared_numbers_have_their_range_and_others_stay_as_they_are() -> None:
    found = {each.name: each for each in constants(Texts({"a.py": WEIGHTS}))}
    assert list(found) == [
        *("a.py:WEIGHTS[0]", "a.py:WEIGHTS[1]", "a.py:WEIGHTS[2]", "a.py:RATE", "a.py:DEPTH"),
    ]
    rate = found["a.py:RATE"]
    assert (rate.value, rate.low, rate.high, rate.log) == (0.01, 1e-4, 1.0, True)
    assert rate.text(0.5) == "0.01" and rate.share(0.01) == pytest.approx(0.5)
    assert [found["a.py:DEPTH"].text(share) for share in (0.0, 0.5, 1.0)] == ["1", "5", "9"]


def test_declared_numbers_are_found_in_any_language() -> None:
    text = "const double alpha = -0.5; // search: -1..1\nint x = 3;\n"
    (found,) = constants(Texts({"a.cc": text}))
    assert (found.name, found.value, found.low) == ("a.cc:alpha", -0.5, -1.0)


def test_where_nothing_is_declared_capitals_and_defaults_are_detected() -> None:
    text = (
        'LIMIT = 8\nNAMES = [\n    "é", 0.5\n]\nlower = 3\n\n\n'
        "def f(x, *, rate=0.1, on=True):\n    return 5\n"
    )
    numbers = constants(Texts({"a.py": text}))
    found = {each.name: (each.value, each.low, each.high) for each in numbers}
    assert found == {
        "a.py:LIMIT": (8.0, 2.0, 32.0),
        "a.py:NAMES": (0.5, 0.125, 2.0),
        "a.py:f": (0.1, 0.025, 0.4),
    }


def test_where_nothing_has_a_name_numbers_with_a_point_are_detected() -> None:
    text = 'def f(x):\n    """0.5 in words"""\n    return 2 * x + 0.3 * x[1]  # not 0.7\n'
    (found,) = constants(Texts({"a.py": text}))
    assert (found.name, found.value, found.start) == ("a.py:line 3", 0.3, 19)


def test_a_list_in_the_settings_names_numbers_too_and_a_wrong_entry_is_refused() -> None:
    files = Texts({"a.py": "SIZE = 4\nRATE = 2\n"})
    (found,) = constants(files, ["a.py:SIZE 1..16 log int"])
    assert (found.name, found.low, found.high, found.whole) == ("a.py:SIZE", 1.0, 16.0, True)
    for wrong in ("a.py:SIZE", "b.py:SIZE 1..2", "a.py:SIZE 2..1", "a.py:SIZE 0..1 log"):
        with pytest.raises(UsageError):
            constants(files, [wrong])


# --- search ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["search", "search:cma", "search:random"])
def test_a_search_changes_declared_numbers_within_their_ranges_and_nothing_else(name: str) -> None:
    if name != "search:random":
        pytest.importorskip("cmaes", reason="the extra `search` is not installed")
    seen: set[str] = set()
    for number, planner in enumerate(("planner_a", "planner_b", "planner_c"), 1):
        _, files = planned(name, {"a.py": WEIGHTS}, asking(number, planner))
        text = files["a.py"]
        assert text != WEIGHTS and text not in seen
        seen.add(text)
        values: dict[str, Any] = {}
        exec(text, values)
        assert all(0 <= each <= 1 for each in values["WEIGHTS"]) and len(values["WEIGHTS"]) == 3
        assert 1e-4 <= values["RATE"] <= 1 and values["DEPTH"] in range(1, 10)
        assert values["OTHER"] == 7 and "# search: 1e-4..1 log" in text


def test_a_plan_follows_from_the_request_alone() -> None:
    texts = {"a.py": WEIGHTS}
    one, again = (planned("search:random", texts, asking()) for _ in range(2))
    assert one == again
    assert planned("search:random", texts, asking(seed=8))[0]["steps"] != one[0]["steps"]
    assert planned("search:random", texts, asking(2))[0]["steps"] != one[0]["steps"]


GOALS = (0.9, 0.1, 0.7, 0.4, 0.2, 0.8, 0.6, 0.3)
MANY = f"WEIGHTS = [{', '.join(['0.5'] * len(GOALS))}]  # search: 0..1\n"


def searched(name: str, evaluations: int) -> float:
    """The least distance from the goals."""
    found: list[float] = []
    proposals: list[Record] = []
    for number in range(1, evaluations + 1):
        told = {"direction": "lower_is_better", "proposals": proposals}
        files = Texts({"a.py": MANY})
        planner = f"planner_{'abc'[number % 3]}"
        plan = builtin(name)(asking(number, planner, input=told), files)
        carry_out(plan, files)
        weights = json.loads(files["a.py"].partition("=")[2].partition("#")[0])
        found.append(sum((a - b) ** 2 for a, b in zip(weights, GOALS, strict=True)))
        proposals.append({"plan": plan, "score": found[-1], "status": "regression"})
    return min(found)


def test_the_default_search_learns_from_what_was_measured() -> None:
    """Random draws of the same number do not come near."""
    pytest.importorskip("cmaes", reason="the extra `search` is not installed")
    assert searched("search", 150) < searched("search:random", 150) / 4


def test_a_failed_candidate_is_the_worst_point_and_no_gap_in_the_history() -> None:
    pytest.importorskip("cmaes", reason="the extra `search` is not installed")
    proposals: list[Record] = []
    for number in range(1, 25):
        plan, _ = planned(
            "search:cma", {"a.py": WEIGHTS}, asking(number, input={"proposals": proposals})
        )
        proposals.append({"plan": plan, "score": None if number % 2 else 1.0, "status": "error"})
    assert len({each["plan"]["hypothesis"] for each in proposals}) == 24


def test_without_numbers_a_search_says_how_to_declare_them() -> None:
    with pytest.raises(NotFound, match="no numbers"):
        builtin("search:random")(asking(), Texts({"a.txt": "none\n"}))


def test_a_plan_is_of_the_first_family_that_is_free() -> None:
    asked = asking(input={"families": ["data", "other"]})
    plan, _ = planned("search:random", {"a.py": WEIGHTS}, asked)
    assert plan["approach_family"] == "data"


def test_a_campaign_searches_the_numbers_that_its_settings_name(desk: Campaigns) -> None:
    files = {"solve.py": "FACTOR, SHIFT = 3, 1\n\n\ndef solve(x):\n    return FACTOR * x\n"}
    for name, text in files.items():
        (desk.source / name).write_text(text)
    git(desk.source, "commit", "-qam", "two numbers")
    desk.init("--planners", "2", "--executor", "search:random", "--seed", "5")
    words = ("improve", "set", "sort", "constants", "solve.py:FACTOR 4..9 int")
    assert desk(*words).code == 0
    assert desk.loop("--rounds", "1")["best"] > 18
    line = desk.solve().splitlines()[0]
    assert re.fullmatch(r"FACTOR, SHIFT = [4-9], [4-9]", line), "all numbers of the line"


# --- mutation -------------------------------------------------------------------------------


def test_every_mutation_is_other_source_that_parses() -> None:
    text = (
        "def é(x, y):\n    if not x < y and True:\n        return min(x + 1, 2.5)\n"
        "    while x:\n        x -= 1\n        break\n    return x == y\n"
    )
    found = [each.new.strip() for each in mutations("a.py", text)]
    for each in mutations("a.py", text):
        ast.parse(text.replace(each.old, each.new))
    for wanted in ("if x < y and True:", "if not x <= y and True:", "if not x < y or True:"):
        assert wanted in found
    for wanted in ("return max(x + 1, 2.5)", "return min(x - 1, 2.5)", "continue", "pass"):
        assert wanted in found
    assert mutations("a.py", "not Python (") == []


def test_planners_of_a_round_try_different_mutations() -> None:
    texts = {"a.py": "def f(x):\n    return x < 3 and x > 1 or x == 7\n"}
    found = [
        planned("mutate", texts, asking(1, f"planner_{letter}", seed=at))[0]
        for at, letter in enumerate("abcd")
    ]
    words = {tuple(re.findall(r"\w+", plan["hypothesis"])) for plan in found}
    assert len(words) == 4, "by their words too: that is how the critic compares them"


def test_a_mutation_is_tried_once() -> None:
    texts = {"a.py": "def f(x):\n    return x < 3\n"}
    proposals: list[Record] = []
    for number in range(1, 6):
        plan, _ = planned("mutate", texts, asking(number, input={"proposals": proposals}))
        proposals.append({"plan": plan, "score": 1.0})
    assert len({each["plan"]["hypothesis"] for each in proposals}) == 5
    with pytest.raises(NotFound):
        builtin("mutate")(asking(6, input={"proposals": proposals}), Texts(texts))


# --- patches, nothing, edits ----------------------------------------------------------------


def test_patches_are_taken_in_their_order_by_the_planners_of_a_round(tmp_path: Path) -> None:
    listed = [
        {"hypothesis": "two", "edits": [{"file": "a.py", "replace": "1", "by": "2"}]},
        {"hypothesis": "new", "approach_family": "data", "edits": [{"file": "b.py", "by": "x\n"}]},
        {"hypothesis": "three", "edits": [{"file": "a.py", "replace": "1", "by": "3"}]},
    ]
    place = tmp_path / "patches.json"
    place.write_text(json.dumps(listed))
    name, texts = f"patches:{place}", {"a.py": "A = 1\n"}
    first, files = planned(name, texts, asking())
    assert (first["hypothesis"], files["a.py"]) == ("two", "A = 2\n")
    second, files = planned(name, texts, asking(1, "planner_b"))
    assert (second["approach_family"], files["b.py"]) == ("data", "x\n")
    done = [{"plan": first, "score": 2.0}, {"plan": second, "score": None}]
    assert planned(name, texts, asking(2, input={"proposals": done}))[0]["hypothesis"] == "three"
    with pytest.raises(NotFound):
        builtin(name)(asking(2, "planner_b", input={"proposals": done}), Texts(texts))
    place.write_text('[{"edits": []}]')
    with pytest.raises(UsageError, match="no hypothesis or edits"):
        builtin(name)(asking(), Texts(texts))


def test_the_null_proposer_changes_nothing() -> None:
    _, files = planned("null", {"a.py": WEIGHTS}, asking())
    assert files == {"a.py": WEIGHTS}


def test_an_edit_whose_text_has_moved_is_found_and_one_that_is_gone_is_refused() -> None:
    edit = Edit("a.py", 'A = "1"', 'A = "2"', 1)
    plan: Record = {"steps": [{"step": 1, "file": "a.py", "change": edit.change()}]}
    files = Texts({"a.py": '\n\nA = "1"\n'})
    carry_out(plan, files)
    assert files["a.py"] == '\n\nA = "2"\n'
    with pytest.raises(Conflict, match="0 times"):
        carry_out(plan, files)
    plan["steps"][0]["change"] = "make it better"
    with pytest.raises(HoldfastError, match="holds no edit"):
        carry_out(plan, files)


def test_a_name_that_is_no_proposer_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError) as refused:
        builtin("magic")
    assert "search:random" in str(refused.value.hint)

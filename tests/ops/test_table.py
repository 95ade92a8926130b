"""The table of verbs."""

import re
from collections import Counter

import pytest

from holdfast.ops.operation import Operation, Table
from holdfast.ops.parameter import parameters
from holdfast.ops.table import TABLE

EVERY = pytest.mark.parametrize("operation", TABLE.operations, ids=lambda each: each.name)


@EVERY
def test_every_verb_has_a_name_a_summary_and_an_example(operation: Operation) -> None:
    assert re.fullmatch(r"[a-z][a-z-]*( [a-z][a-z-]*)?", operation.name)
    assert re.fullmatch(r"[A-Z][^\n]{5,69}[^.\n]", operation.summary)
    assert operation.example.startswith(f"holdfast {operation.name}")
    assert operation.faces


@EVERY
def test_every_verb_can_be_loaded_and_reflected(operation: Operation) -> None:
    for parameter in parameters(operation.load()):
        assert re.fullmatch(r"[^\n]{2,79}[^.\n]", parameter.help), parameter.name


@EVERY
def test_what_destroys_can_be_tried_first(operation: Operation) -> None:
    takes = {parameter.name for parameter in parameters(operation.load())}
    assert operation.effect != "destroy" or "dry_run" in takes


def test_no_name_stands_twice() -> None:
    assert [name for name, times in Counter(TABLE.names()).items() if times > 1] == []


def test_every_noun_is_explained_and_used() -> None:
    used = {operation.noun for operation in TABLE.operations if operation.noun}
    assert used == set(TABLE.nouns)
    assert not used & {operation.verb for operation in TABLE.operations if not operation.noun}


def test_a_face_sees_the_verbs_that_are_for_it() -> None:
    assert "ledger tail" in TABLE.seen_by("cli").names()
    assert "ledger tail" not in TABLE.seen_by("mcp").names()
    assert "ledger write" in TABLE.seen_by("mcp").names()
    tail_only = Table([TABLE.of_noun("ledger")["tail"]], TABLE.nouns)
    assert tail_only.seen_by("cli").nouns == {"ledger": TABLE.nouns["ledger"]}
    assert tail_only.seen_by("mcp").nouns == {}


def test_verbs_are_found_by_noun_in_the_order_of_the_table() -> None:
    assert list(TABLE.of_noun("ledger"))[:4] == ["write", "list", "tail", "verify"]
    assert "init" in TABLE.of_noun(None)
    assert TABLE.of_noun("nothing") == {}

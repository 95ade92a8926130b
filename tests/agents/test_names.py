"""Names that could lead elsewhere are refused by every verb before a path is touched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError, UsageError
from holdfast.ops.operation import Operation
from holdfast.ops.parameter import parameters
from holdfast.ops.table import TABLE
from holdfast.testing import Turner
from tests.ledger.shell import Verbs, on_its_own
from tests.ops.foreign import snapshot

TAKES_AGENT = [
    operation
    for operation in TABLE.operations
    if any(parameter.name == "agent" for parameter in parameters(operation.load()))
]
SAMPLES = {str: "x", int: 1, float: 1.0}


def call(verbs: Verbs, operation: Operation, name: str) -> None:
    """The verb for an agent of that name, with whatever else it has to be given."""
    given: dict[str, Any] = {}
    for each in parameters(operation.load()):
        sample = name if each.name == "agent" else (*each.choices, SAMPLES.get(each.type))[0]
        if each.required or each.name in ("agent", "text"):
            given[each.keyword] = [sample] if each.repeated else sample
    verbs(operation.name, **{**given, **MORE.get(operation.name, {})})


MORE = {"ledger write": {"event": "info"}, "session end": {"outcome": "completed"}}


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", agent=["rio"], timezone="UTC")
    return made


def test_verbs_of_agents_are_tried_here() -> None:
    assert {"init", "status", "ledger write", "ledger list"} <= {each.name for each in TAKES_AGENT}


@pytest.mark.parametrize("name", ["../leo", "x" * 300, "rio;rm", "rio/../leo", ".", "rio\n", ""])
@pytest.mark.parametrize("operation", TAKES_AGENT, ids=lambda each: each.name)
def test_a_hostile_name_is_refused_and_nothing_is_touched(
    verbs: Verbs, tmp_path: Path, operation: Operation, name: str
) -> None:
    before = snapshot(tmp_path)
    with pytest.raises(UsageError):
        call(verbs, operation, name)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("operation", TAKES_AGENT, ids=lambda each: each.name)
def test_a_name_in_upper_case_is_the_same_agent(verbs: Verbs, operation: Operation) -> None:
    verbs.write("first")
    with suppress(HoldfastError):  # such as there being no session to end
        call(verbs, operation, "RIO")
    for folder in ("state", "ledger"):
        folders = [each.name for each in Path(verbs.path, folder).iterdir() if each.is_dir()]
        assert folders == ["rio"]

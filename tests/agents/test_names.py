"""Names that could lead elsewhere are refused by every verb before a path is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import BadName
from holdfast.ops.operation import Operation
from holdfast.ops.parameter import parameters
from holdfast.ops.table import TABLE
from holdfast.testing import Turner, refused
from tests.ledger.shell import Verbs, on_its_own
from tests.ops.foreign import snapshot

TAKES_AGENT = [
    operation
    for operation in TABLE.operations
    if any(parameter.name == "agent" for parameter in parameters(operation.load()))
]
MORE = {"ledger write": {"text": "x", "event": "info"}}


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
    agent = [name] if operation.name == "init" else name
    with refused(BadName):
        verbs(operation.name, agent=agent, **MORE.get(operation.name, {}))
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("operation", TAKES_AGENT, ids=lambda each: each.name)
def test_a_name_in_upper_case_is_the_same_agent(verbs: Verbs, operation: Operation) -> None:
    verbs.write("first")
    agent = ["RIO"] if operation.name == "init" else "RIO"
    verbs(operation.name, agent=agent, **MORE.get(operation.name, {}))
    for folder in ("state", "ledger"):
        assert [each.name for each in Path(verbs.path, folder).iterdir()] == ["rio"]

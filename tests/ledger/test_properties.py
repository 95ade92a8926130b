"""Whatever the text and whatever the data: they come back equal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.mask import hiding
from holdfast.testing import Turner
from tests.ledger.shell import Verbs, is_entry, lines_in

_hide = hiding()


def _is_harmless(text: str) -> bool:
    """Hypothesis takes words from our sources, too, and what is or names a secret is masked."""
    record = {text: "0", "text": [text]}
    return _hide(record) == record


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200).filter(_is_harmless)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=20,
)
_objects = st.dictionaries(_text, _values, max_size=5)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Verbs:
    made = Verbs(str(tmp_path_factory.mktemp("any") / "home"), Turner())
    made("init", timezone="UTC")
    return made


def exactly(value: Any) -> str:
    """Text that differs for 1, 1.0 and True, and for 0.0 and -0.0."""
    return json.dumps(value)


@given(text=_text.filter(bool), source=_text, task=_text.filter(bool), data=_objects)
def test_arbitrary_texts_and_data_come_back_equal(
    home: Verbs, text: str, source: str, task: str, data: dict[str, Any]
) -> None:
    done = home.write(text, source=source, task=task, data=json.dumps(data))

    line = lines_in(home.path, "rio")[-1]
    record = json.loads(line)
    assert record["seq"] == done.data["seq"]
    assert is_entry(record)
    assert (record["summary"], record["source"], record["task_id"]) == (text, source, task)
    assert exactly(record["data"]) == exactly(data)
    [row] = home.rows("ledger list", limit=1)
    assert (row["summary"], row["task_id"]) == (text, task)
    assert exactly(row["data"]) == exactly(data)


@given(data=_objects)
def test_data_may_be_written_with_any_spacing_and_escapes(
    home: Verbs, data: dict[str, Any]
) -> None:
    home.write("text", data=f"\n {json.dumps(data, ensure_ascii=False, indent=2)} \n")
    assert exactly(home.rows("ledger list", limit=1)[0]["data"]) == exactly(data)


def test_the_ledger_of_all_that_verifies(home: Verbs) -> None:
    home.write("at least one")
    assert home("ledger verify").exit_code == 0

"""`holdfast schema`: one, all, older drafts, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from holdfast.contracts.kinds import KINDS
from holdfast.contracts.schema import filename
from holdfast.errors import NotFound, StorageError, UsageError
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.validate import schema

REPLY = {"action": "COMPLETED", "evidence_files": ["a.py"], "summary_for_supervisor": "Done."}


def ask(name: str | None = None, **options: str) -> Rows | Show | Change:
    with Context("/nowhere") as context:
        return schema(context, name, **options)  # pyright: ignore[reportArgumentType]


def test_without_a_name_every_kind_is_listed() -> None:
    found = ask()
    assert isinstance(found, Rows)
    assert [row["kind"] for row in found.rows] == [kind.name for kind in KINDS]


def test_what_is_shown_is_the_schema_itself() -> None:
    found = ask("agent-response")
    assert isinstance(found, Show)
    assert json.loads(found.text or "") == found.data
    Draft202012Validator(found.data).validate(REPLY)
    assert not Draft202012Validator(found.data).is_valid(REPLY | {"action": "MAYBE"})
    assert not Draft202012Validator(found.data).is_valid(
        REPLY | {"summary_for_supervisor": "x" * 501}
    )


def test_an_older_version_and_an_older_draft_can_be_had() -> None:
    older, draft = ask("agent-response@0.9"), ask("agent-response", draft="7")
    assert isinstance(older, Show) and isinstance(draft, Show)
    Draft202012Validator(older.data).validate(REPLY | {"summary_for_supervisor": "x" * 999})
    Draft7Validator(draft.data).validate(REPLY)
    assert "draft-07" in draft.data["$schema"]


def test_all_of_them_become_files_and_a_second_time_nothing_changes(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "schemas"
    first, second = ask(all=str(place)), ask(all=str(place))
    assert isinstance(first, Change) and isinstance(second, Change)
    assert (first.applied, second.applied) == (True, False)
    names = {file.name for file in place.iterdir()}
    assert names == {filename(kind) for kind in KINDS} | {"llm-chat-schema.json"}
    assert {"fmm.schema.json", "test_run.schema.json", "cluster_run.schema.json"} <= names


def test_what_agents_are_told_has_the_three_fields_and_no_more(tmp_path: Path) -> None:
    ask(all=str(tmp_path))
    told = json.loads((tmp_path / "llm-chat-schema.json").read_bytes())
    assert list(told["properties"]) == ["action", "evidence_files", "summary_for_supervisor"]
    assert sorted(told["required"]) == sorted(told["properties"])
    Draft7Validator(told).validate(REPLY)


def test_what_cannot_be_is_refused_with_a_hint(tmp_path: Path) -> None:
    for name in ("leger", "ledger@9.9"):
        with pytest.raises(NotFound) as refused:
            ask(name)
        assert "ledger" in str(refused.value.hint)
    with pytest.raises(UsageError):
        ask("ledger", all=str(tmp_path))
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(StorageError):
        ask(all=str(tmp_path / "file" / "below"))

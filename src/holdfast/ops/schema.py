"""The verb that tells what a file has to look like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from holdfast.codec import pretty
from holdfast.contracts.job_exchange import TOLD_TO_AGENTS
from holdfast.contracts.kind import Form, Kind
from holdfast.contracts.kinds import KINDS, kind
from holdfast.contracts.schema import LLM_CHAT, filename, schema_of
from holdfast.errors import NotFound, UsageError, typed
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.userfile import put_over


@example("holdfast schema ledger", columns="kind versions shape what")
def schema(
    context: Context,
    name: Annotated[
        str | None, Arg("Kind of file, or KIND@VERSION; all are listed without", positional=True)
    ] = None,
    *,
    all: Annotated[str | None, Arg("Write every schema into this directory", metavar="DIR")] = None,
    draft: Annotated[Literal["2020-12", "7"], Arg("Which JSON Schema")] = "2020-12",
) -> Rows | Show | Change:
    if name is not None and all is not None:
        raise UsageError("one schema or all of them", hint="leave out NAME or --all")
    if all is not None:
        return _write_all(all, draft)
    if name is None:
        rows: list[dict[str, Any]] = []
        for each in KINDS:
            versions = ", ".join(form.version for form in each.forms)
            row = {"kind": each.name, "versions": versions, "shape": each.shape}
            rows.append({**row, "what": each.what})
        return Rows(rows, {"kinds": len(rows)})
    chosen, form = find(name)
    found = schema_of(chosen, form, draft)
    return Show(found, text=pretty(found).decode())


def find(name: str) -> tuple[Kind, Form | None]:
    """`ledger` or `ledger@1.0`."""
    bare, at, version = name.partition("@")
    chosen = kind(bare)
    if not at:
        return chosen, None
    form = chosen.form(version)
    if form is None:
        known = ", ".join(f"{bare}@{each.version}" for each in chosen.forms)
        raise NotFound(f"{bare} has no version {version[:20]!r}", hint=f"one of {known}")
    return chosen, form


def schema_files(draft: Literal["2020-12", "7"] = "2020-12") -> Iterator[tuple[str, bytes]]:
    """File name and content of every schema."""
    for each in KINDS:
        yield filename(each), pretty(schema_of(each, draft=draft))
        if each.name == "agent-response":
            told = schema_of(each, draft="7")
            shown = {name: told["properties"][name] for name in TOLD_TO_AGENTS}
            yield LLM_CHAT, pretty({**told, "properties": shown})


def _write_all(directory: str, draft: Literal["2020-12", "7"]) -> Change:
    changed = 0
    files = list(schema_files(draft))
    with typed("writing schemas", directory):
        os.makedirs(directory, exist_ok=True)  # noqa: TID251 - a directory of the user's, no home
        for name, content in files:
            changed += put_over(os.path.join(directory, name), content)
    detail = f"{len(files)} schemas in {directory}, {changed} written"
    return Change(directory, applied=changed > 0, detail=detail, data={"files": len(files)})

"""The verbs of the ledger that work on files anywhere: merge and repair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Any

from holdfast.errors import NotFound, UsageError
from holdfast.interop.records import merge as union
from holdfast.interop.records import repair as saved
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, tally
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, DryRun
from holdfast.userfile import put_new
from holdfast.validate.sources import Source, Trouble, content

_SHOWN = 5


@example("holdfast ledger merge 2026-11-15.jsonl copy/2026-11-15.jsonl --out merged.jsonl")
def merge(
    context: Context,
    file: Annotated[Sequence[str], Arg("Files of one ledger, in any order", positional=True)],
    *,
    out: Annotated[str, Arg("The new file", metavar="FILE")],
    dry_run: DryRun = False,
) -> Change:
    """Every distinct entry comes once, in order of time; two entries are the same if they differ
    only in their number and hash. Lines are numbered and chained again. The files are only read,
    and nothing is overwritten: merging the same entries into the same file changes nothing.
    """
    merged = union({path: _content(context, path) for path in file})
    for path, source in merged.sources.items():
        for piece in source.rejects[:_SHOWN]:
            context.warn(f"not merged: {path}:{piece.line}: {piece.why or 'it cannot be written'}")
        if len(source.rejects) > _SHOWN:
            context.warn(f"not merged: {len(source.rejects) - _SHOWN} more of {path}")
    made = put_new(out, merged.data, mode=0o600, dry_run=dry_run)
    read = sum(source.entries for source in merged.sources.values())
    rejects = sum(len(source.rejects) for source in merged.sources.values())
    verb = "would be written" if dry_run else "written" if made else "there already"
    detail = f"{merged.entries} entries of {read} {verb}: {out}"
    return Change(
        os.path.abspath(out),
        applied=made and not dry_run,
        detail=detail,
        data={
            "entries": merged.entries,
            "duplicates": read - merged.entries,
            "rejects": rejects,
            "files": [
                {
                    "file": path,
                    "entries": source.entries,
                    "new": source.news,
                    "rejects": len(source.rejects),
                }
                for path, source in merged.sources.items()
            ],
        },
        dry_run=dry_run,
        exit_code=ATTENTION if rejects else 0,
    )


@example("holdfast ledger repair 2026-11-15.jsonl", columns="file state entries mended rejects out")
def repair(
    context: Context,
    file: Annotated[Sequence[str], Arg("Damaged files", positional=True)],
    *,
    out: Annotated[
        str | None, Arg("The new file; else NAME.repaired beside it", metavar="FILE")
    ] = None,
    dry_run: DryRun = False,
) -> Rows:
    """For each FILE a new file FILE.repaired is made, with every record that can be read, one a
    line: sound lines unchanged, objects that stood over several lines or several to a line, and
    those with closing brackets too many. All other bytes go to FILE.rejects, with their position
    and the reason. FILE itself is only read, and nothing is overwritten.
    """
    if out is not None and len(file) != 1:
        raise UsageError("--out is for one file", hint="leave it out, or name one FILE")
    rows = [_repaired(context, path, out or f"{path}.repaired", dry_run) for path in file]
    states = tally(rows, "state")
    sums = {name: sum(row[name] for row in rows) for name in ("entries", "mended", "rejects")}
    counts, whole = {**states, **sums}, states.keys() <= {"sound", "repaired"}
    return Rows(rows, counts, exit_code=0 if whole and not counts["rejects"] else ATTENTION)


def _repaired(context: Context, path: str, out: str, dry_run: bool) -> dict[str, Any]:
    data = _content(context, path)
    found = saved(data)
    state = "sound" if found.data == data else "repaired"
    if not found.entries:
        state = "nothing to save" if data.strip() else "empty"
    row = {"file": path, "state": state, "entries": found.entries, "mended": found.mended}
    row |= {"rejects": len(found.rejects), "out": None, "rejects_file": None}
    if state == "repaired":
        # The rejects first: a new file without them would look as if there had been none.
        if found.rejects:
            row["rejects_file"] = f"{out.removesuffix('.repaired')}.rejects"
            put_new(row["rejects_file"], found.reject_lines, mode=0o600, dry_run=dry_run)
        row["out"] = out
        put_new(out, found.data, mode=0o600, dry_run=dry_run)
    return row


def _content(context: Context, path: str) -> bytes:
    """The bytes of a file that somebody named, unpacked if they are packed."""
    found = content(Source(path, os.path.abspath(path), named=True))
    if isinstance(found, Trouble):
        raise NotFound(f"{path}: {found.finding.reason}", hint="look at the name", path=path)
    for lost in found.findings:
        context.warn(f"{path}: {lost.reason}")
    return found.data

"""The verbs that show what happened in a job, here or elsewhere."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from holdfast.codec import Record, pretty
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.jobs.job import Job
from holdfast.jobs.packing import changes_of, check_kept
from holdfast.jobs.report import timeline
from holdfast.ops.context import Context
from holdfast.ops.envelope import Change, Rows, Show
from holdfast.ops.job_damage import looked_for_damage, warn_of_damage
from holdfast.ops.jobs import Decrypt, Id, details, opened, workspace_of
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg, checked_limit
from holdfast.userfile import existing, put_new, put_over

Format = Literal["table", "json", "html"]
Out = Annotated[str | None, Arg("Write the page there", metavar="FILE", is_path=True)]


@example(
    "holdfast job history hello",
    columns="sequence when phase role model outcome action status_after wrong seconds cost_usd",
)
def history(
    call: Context,
    id: Id = None,
    *,
    format: Annotated[
        Format, Arg("A line for each call, all that is known of them, or a page")
    ] = "table",
    limit: Annotated[int, Arg("The newest N calls; 0 is all")] = 100,
    only: Annotated[int | None, Arg("Only the call with this number, from 0", metavar="N")] = None,
    out: Out = None,
    decrypt: Decrypt = False,
) -> Rows | Show | Change:
    """--format json is the history in its own format, with prompts and replies, and the decisions
    between the calls. --format html is one page that opens without a network.
    """
    checked_limit(limit)
    if out is not None and format != "html":
        raise UsageError("--out goes with --format html", hint="redirect the output instead")
    with opened(call, id, decrypt=decrypt) as job:
        found = looked_for_damage(call, job)
        if format == "html":
            page = _html(call, job, found, decrypt=decrypt)
            if out is not None:
                return _written(job, page, out)
            return Show({"html": page}, text=page, exact=True)
        told = timeline(job, limit=limit, only=only)
        if only is not None and not told.calls:
            raise NotFound(f"{job.name} has no call {only}", hint="`holdfast job history` has all")
        if format == "json":
            data = told.record(job.state()) | {"verified": found is not None, "damage": found or []}
            return Show(data, text=pretty(data).decode(), exact=True)
    more = only is None and told.total > len(told.calls)
    return Rows([_row(each) for each in told.calls], {"calls": told.total}, truncated=more)


def _row(call: Record) -> Record:
    response, settings = call["response"], call["request"]["metadata"]
    metrics: Record = response.get("metrics") or {}
    return {
        "sequence": call["sequence"],
        "when": call["timestamp"],
        "phase": settings.get("phase"),
        "role": settings.get("role"),
        "model": settings.get("model"),
        "outcome": response["status"],
        "action": response["action"],
        "status_after": response["new_status"],
        "seconds": round(response["execution_time_seconds"], 3),
        "cost_usd": response["cost_usd"],
        "tokens": metrics.get("total_tokens"),
        "wrong": len(call["wrong"]) + sum(each["state"] != "there" for each in call["evidence"]),
        "summary": response["summary_for_supervisor"],
    }


@example("holdfast job export hello --out hello.html")
def export(
    call: Context,
    id: Id = None,
    *,
    out: Annotated[str, Arg("Where to", metavar="FILE", is_path=True)],
    replace: Annotated[bool, Arg("Also if there is a file already")] = False,
    decrypt: Decrypt = False,
) -> Change:
    """The page opens without a network."""
    with opened(call, id, decrypt=decrypt) as job:
        page = _html(call, job, warn_of_damage(call, job), decrypt=decrypt)
        return _written(job, page, out, replace=replace)


def _html(call: Context, job: Job, damage: list[str] | None, *, decrypt: bool) -> str:
    from holdfast.jobs.report import MOST_BYTES, as_html

    if job.spec.sensitive and not decrypt:
        call.warn(f"{job.name} is sensitive: without its files and what was said")
        return as_html(job, details(job), damage=damage)
    try:
        diff = "" if job.spec.isolation == "none" else changes_of(job, patch=True, most=MOST_BYTES)
        if diff is None:
            check_kept(job)
            diff = workspace_of(job).diff(patch=True)
    except HoldfastError as error:
        diff = ""  # nothing is made yet, or there is nothing to compare with
        call.warn(f"without the files of {job.name}: {error.message}")
    return as_html(job, details(job), diff, damage)


def _written(job: Job, page: str, out: str, *, replace: bool = False) -> Change:
    _check_out(job, out, replace=replace)
    data = page.encode()
    put = put_over if replace else put_new
    put(out, data)
    detail = f"{job.name} is in {out}"
    return Change(job.name, applied=True, detail=detail, data={"bytes": len(data)})


def _check_out(job: Job, out: str, *, replace: bool) -> None:
    above = os.path.dirname(os.path.abspath(out))
    if os.path.isdir(out):
        page = os.path.join(out, f"{job.name}.html")
        raise UsageError(f"{out} is a folder", hint=f"name a file: --out {page}", path=out)
    home = os.path.realpath(job.home.path)
    if os.path.commonpath([home, os.path.realpath(above)]) == home and not out.endswith(".html"):
        what = f"{out} would be a file of the home"
        raise UsageError(what, hint="end its name in .html, or write elsewhere")
    if existing(out) is not None and not replace:
        hint = f"another name, or `holdfast job export {job.name} --out {out} --replace`"
        raise UsageError(f"{out} already exists", hint=hint, path=out)

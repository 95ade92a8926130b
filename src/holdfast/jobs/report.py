"""Exports of a job: measurements as CSV, everything as one page.

Agents and the pages they read wrote most of this, so a cell never begins as a formula, and every
template escapes what it is given.  The dashboard uses the same templates.
"""

from __future__ import annotations

import csv
import io
import re
from base64 import b64encode
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import __version__
from holdfast.clock import instant_of
from holdfast.codec import Record
from holdfast.jobs.history import calls
from holdfast.jobs.timeline import in_order, timeline, words
from holdfast.text import ago

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Environment

    from holdfast.jobs.job import Job

_METRICS = (
    *("token_input", "token_output", "token_cache_read", "cache_hit", "ttft_seconds"),
    *("throughput_tokens_per_second", "total_tokens"),
)
_COLUMNS = (
    *("timestamp", "step_number", "role", "action", "summary", "cost_usd", "time_seconds"),
    *(*_METRICS, "status_after"),
)
_LONGEST = 400_000
"""Characters of one text: the history has the rest."""
_HERE = Path(__file__).parent
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
MOST_BYTES = 4 * (_LONGEST + 1)
"""What has to be read of a text to see whether it is longer."""
_FORMULA = re.compile(r"\s*[=+\-@]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def as_csv(job: Job) -> str:
    """A line for each call, oldest first; what is not known is left empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    for number, call in enumerate(calls(job), 1):
        response: Record = call["response"]
        metrics: Record = response.get("metrics") or {}
        row = {
            "timestamp": call["timestamp"],
            "step_number": number,
            "role": call["request"]["metadata"].get("role"),
            "action": response["action"],
            "summary": response["summary_for_supervisor"],
            "cost_usd": response["cost_usd"],
            "time_seconds": response["execution_time_seconds"],
            **{name: metrics.get(name) for name in _METRICS},
            "status_after": response["new_status"],
        }
        rows.writerow([_cell(each) for each in row.values()])
    return f"{','.join(_COLUMNS)}\n{text.getvalue()}"


def _cell(value: Any) -> str:
    """Text that a spreadsheet takes for text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    line = _UNPRINTABLE.sub(" ", value)
    return f"'{line}" if _FORMULA.match(line) else line


# --- pages ----------------------------------------------------------------------------------


def as_html(job: Job, shown: Record, diff: str = "", damage: Sequence[str] | None = None) -> str:
    """Everything there is about a job, in one file that asks for nothing and runs nothing.

    `shown` is what `job show` gives; `diff` what the job did to its files, as git has it; `damage`
    where its history is not what was written, None if that was not verified.
    """
    from markupsafe import Markup  # noqa: PLC0415 - few verbs draw

    told = timeline(job)
    measured: list[Record] = [each["response"].get("metrics") or {} for each in told.calls]
    tokens = [each["total_tokens"] for each in measured if each.get("total_tokens") is not None]
    lines = diff[:_LONGEST].rstrip("\n").split("\n") if diff.strip() else []
    if len(diff) > _LONGEST:
        lines.append("… the rest: holdfast job diff --patch")
    sheet = (_HERE / "sheet.css").read_text("utf-8")
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    return (
        templates()
        .get_template("export.html")
        .render(
            policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'",
            sheet=Markup(sheet),
            job=shown,
            items=in_order(told.calls, told.events),
            asking=told.asking,
            points=told.points,
            tokens=f"{sum(tokens):,}" if tokens else "?",
            lines=lines,
            damage=damage,
            most=_LONGEST,
            as_of=job.now(),
            head=job.log.head(),
            version=__version__,
        )
    )


def templates(*folders: Path) -> Environment:
    """The templates of a job, and those in other folders; all escape what they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context  # noqa: PLC0415

    made = Environment(
        loader=FileSystemLoader([*folders, _HERE / "templates"]),
        autoescape=True,
        finalize=plain,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {"lasted": lasted, "since": since, "words": words}
    filters |= {"clock": pass_context(clock_of), "day": pass_context(day_of)}
    made.filters.update(filters)
    return made


def _here(context: Mapping[str, Any], stamp: object) -> datetime | None:
    """A time by the clock of the home: histories of jobs have UTC, ledgers do not."""
    try:
        at = datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    where = context.get("zone")
    return at if where is None or at.tzinfo is None else at.astimezone(where)


def clock_of(context: Mapping[str, Any], stamp: object) -> str:
    """The hour of a time stamp; the day where that is another question."""
    at = _here(context, stamp)
    return str(stamp or "") if at is None else at.strftime("%H:%M:%S")


def day_of(context: Mapping[str, Any], stamp: object) -> str:
    at = _here(context, stamp)
    return str(stamp or "")[:10] if at is None else at.strftime("%Y-%m-%d")


def lasted(seconds: float) -> str:
    """A length of time in two units."""
    if seconds < 60:
        return f"{round(seconds, 1):g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min")] if hours else [(minutes, "min"), (rest, "s")]
    return " ".join(f"{count} {unit}" for count, unit in parts if count)


def since(stamp: object, now: object) -> str:
    """How long ago it was then."""
    try:
        return ago(max(0.0, instant_of(str(now)) - instant_of(str(stamp))))
    except ValueError:
        return "?"


def plain(value: object) -> object:
    """Text as it was written: what would turn it round or cannot be seen is shown instead."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        text = value.replace("\r\n", "\n")
        return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return value

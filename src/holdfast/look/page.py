"""Filling templates: every text is escaped, and what cannot be seen in it is shown.

Agents and the pages that they read wrote most of what is drawn.  The sheet and the templates here
are shared: the dashboard draws with them, and a file that is taken elsewhere has them inside.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import instant_of
from holdfast.text import ago

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
SHEET = _HERE / "sheet.css"
_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


@cache
def templates(*folders: Path) -> Environment:
    """The templates that are shared, and those in other folders."""
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
    filters |= {"clock": pass_context(_clock), "day": pass_context(_day)}
    made.filters.update(filters)
    return made


def alone(template: str, **values: object) -> str:
    """A page in one file that asks for nothing and runs nothing."""
    from markupsafe import Markup  # noqa: PLC0415 - few verbs draw

    sheet = SHEET.read_text("utf-8")
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return templates().get_template(template).render(policy=policy, sheet=Markup(sheet), **values)


def _clock(context: Mapping[str, Any], stamp: object) -> str:
    """The hour of a time stamp; the day where that is another question."""
    return _here(context, stamp, "%H:%M:%S") or str(stamp or "")


def _day(context: Mapping[str, Any], stamp: object) -> str:
    return _here(context, stamp, "%Y-%m-%d") or str(stamp or "")[:10]


def _here(context: Mapping[str, Any], stamp: object, form: str) -> str:
    """A time by the clock of the home: histories of jobs have UTC, ledgers do not."""
    try:
        at = datetime.fromisoformat(str(stamp))
    except ValueError:
        return ""
    where = context.get("zone")
    return (at if where is None or at.tzinfo is None else at.astimezone(where)).strftime(form)


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


def words(status: object) -> str:
    """A state, an event or an action as people write it."""
    return str(status or "unknown").replace("_", " ").lower()


def plain(value: object) -> object:
    """Text as it was written: what would turn it round or cannot be seen is shown instead."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        text = value.replace("\r\n", "\n")
        return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return value

"""The verbs of formats: what files are and what is wrong with them; what they have to look like."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any, Literal

from holdfast.codec import pretty
from holdfast.contracts.job_exchange import TOLD_TO_AGENTS
from holdfast.contracts.kind import Form, Kind, Origin
from holdfast.contracts.kinds import KINDS, kind
from holdfast.contracts.ledger import LEDGER, with_events
from holdfast.contracts.schema import LLM_CHAT, filename, schema_of
from holdfast.errors import HoldfastError, NotFound, UsageError, typed
from holdfast.ops.context import Context
from holdfast.ops.envelope import ATTENTION, Change, Rows, Show
from holdfast.ops.operation import example
from holdfast.ops.parameter import Arg
from holdfast.settings import SETTINGS, parse_settings
from holdfast.userfile import put_over
from holdfast.validate.check import Ask, Report, Told, judge, without_index
from holdfast.validate.sources import PACKED, Content, Source, Trouble, content, sources

UNREADABLE = 2
_PLACES = {"chain", "seq"}
"""Codes of damage: each file counts by itself."""


@example(
    "holdfast validate ledger/ state/rio/status.json",
    columns="file line level field reason times files",
)
def validate(
    context: Context,
    path: Annotated[
        Sequence[str], Arg("Files, directories or globs; - is the standard input", positional=True)
    ],
    *,
    kind: Annotated[
        str | None, Arg("What they are, such as ledger or ledger@1.0", metavar="NAME")
    ] = None,
    strict: Annotated[bool, Arg("Demand what Holdfast itself would write")] = False,
    all: Annotated[bool, Arg("Print each finding on a line of its own")] = False,
) -> Rows:
    """Prints file:line: field: reason. The same finding about the same field of files of one kind
    is one line, with its first place and a count; damage of a log is named for each file. Nothing
    is changed. Exits with 0 if there are warnings at most, 1 if there are errors, 2 if a file could
    not be read. With --strict every warning is an error. --json has the same rows.
    """
    run = _Run(kind, strict=strict, every=all)
    for source in sources(path, KINDS):
        run.take(source)
    return run.result()


class _Run:
    """One call: the files one after the other, and what they add up to."""

    def __init__(self, kind: str | None, *, strict: bool, every: bool) -> None:
        chosen, form = find(kind) if kind is not None else (None, None)
        self._ask = Ask(KINDS, chosen, form, strict, every)
        self._rows: list[dict[str, Any]] = []
        self._alike: dict[tuple[object, ...], dict[str, Any]] = {}
        self._counts = Counter[str](files=0, records=0, errors=0, warnings=0)
        self._counts.update(bad_lines=0, unchained=0)
        self._forms = Counter[str]()
        self._unreadable = False
        self._extra: dict[str, tuple[str, ...]] = {}
        self._ledgers: dict[tuple[str, ...], Kind] = {}

    def take(self, source: Source | Trouble) -> None:
        found = content(source) if isinstance(source, Source) else source
        if isinstance(found, Trouble):
            report = Report(strict=self._ask.strict)
            report.tell(found.finding)
            self._unreadable |= found.unreadable
        else:
            assert isinstance(source, Source)
            report = self._judged(source, found)
            self._counts["files"] += 1
        for told in report.told():
            self._add(source.name, told, {form.partition("@")[0] for form in report.forms})
        self._counts.update(report.counts)
        self._forms.update(+report.forms)

    def _add(self, name: str, told: Told, kinds: Collection[str]) -> None:
        row, found = _row(name, told), told.finding
        shared = bool(found.field) or found.code == "unknown_kind"
        if self._ask.every or not shared or found.code in _PLACES:
            self._rows.append(row)
            return
        key = (*sorted(kinds), found.level, found.code, without_index(found.field))
        first = self._alike.setdefault(key, row)
        if first is row:
            self._rows.append(row)
        else:
            first["times"] += row["times"]
            first["files"] += 1

    def _judged(self, source: Source, found: Content) -> Report:
        if found.findings and not found.data:
            # It was not empty before it was packed.
            report = Report(strict=self._ask.strict, every=self._ask.every)
        else:
            origin = Origin(source.path.removesuffix(PACKED))
            report = judge(found.data, origin, self._asked_of(source), named=source.named)
        report.tell_all(found.findings)
        return report

    def result(self) -> Rows:
        code = ATTENTION if self._counts["errors"] else 0
        return Rows(
            self._rows,
            {**self._counts, **dict(sorted(self._forms.items()))},
            plain=[_shown(row) for row in self._rows],
            exit_code=UNREADABLE if self._unreadable else code,
        )

    def _asked_of(self, source: Source) -> Ask:
        """What is asked of this file: a home may know more events than we do."""
        directory = os.path.dirname(source.path)
        if directory not in self._extra:
            self._extra[directory] = _extra_events(directory) if directory else ()
        if not (extra := self._extra[directory]):
            return self._ask
        if extra not in self._ledgers:
            self._ledgers[extra] = with_events(extra)
        ledger, asked = self._ledgers[extra], self._ask
        kinds = [ledger if each is LEDGER else each for each in asked.kinds]
        if asked.kind is not LEDGER:
            return asked._replace(kinds=kinds)
        form = ledger.form(asked.form.version) if asked.form else None
        return asked._replace(kinds=kinds, kind=ledger, form=form)


def _extra_events(directory: str) -> tuple[str, ...]:
    """The events that the settings of the home around a directory add."""
    while True:
        try:
            with open(os.path.join(directory, SETTINGS), "rb") as file:
                return parse_settings(file.read()).extra_events
        except FileNotFoundError:
            above = os.path.dirname(directory)
            if above == directory:
                return ()
            directory = above
        except (OSError, HoldfastError):
            return ()


def _row(name: str, told: Told) -> dict[str, Any]:
    found = told.finding
    return {
        "file": name,
        "line": found.line,
        "level": found.level,
        "code": found.code,
        "field": found.field,
        "reason": found.reason,
        "times": told.times,
        "files": 1,
        "further": told.further,
    }


def _shown(row: dict[str, Any]) -> str:
    """`file:line: field: reason`."""
    parts = [f"{row['file']}:{row['line']}" if row["line"] else row["file"]]
    parts += [row["field"]] if row["field"] else []
    parts += ["warning"] if row["level"] == "warning" else []
    more = row["times"] - 1
    further = f" (and {more} more: {row['further']})" if more else ""
    if row["files"] > 1:
        further = f" ({row['times']} times in {row['files']} files)"
    return ": ".join([*parts, row["reason"]]) + further


# --- schemas ------------------------------------------------------------------------------------


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

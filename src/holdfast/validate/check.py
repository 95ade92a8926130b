"""What is to be said about one file, whatever it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple, cast

from holdfast.contracts.kind import (
    LOG_FORM,
    Finding,
    Form,
    Kind,
    Located,
    Origin,
    Reading,
    is_log_line,
    line_of,
)
from holdfast.contracts.ledger import content
from holdfast.store.chain import GENESIS, holds, read_seal
from holdfast.validate.detect import by_path, detect
from holdfast.validate.scan import OF_LINES, Found, Scan, lines_of

_INDEX = re.compile(r"\[\d+\]")
_MOST_RANGES = 12
_HASH_PART = 76
"""What the hash and the line feed add to the end of a sealed line."""


class Ask(NamedTuple):
    """How to look at files."""

    kinds: Sequence[Kind]
    kind: Kind | None = None
    form: Form | None = None
    strict: bool = False
    every: bool = False
    """Whether each finding is told by itself, not once for each field of a file."""


class Told:
    """A finding, and how often it was met."""

    def __init__(self, finding: Finding) -> None:
        self.finding, self.times = finding, 0
        self._ranges: list[list[int]] = []

    def again(self, line: int) -> None:
        self.times += 1
        if self.times == 1:
            return
        if self._ranges and line in (self._ranges[-1][1], self._ranges[-1][1] + 1):
            self._ranges[-1][1] = line
        elif len(self._ranges) <= _MOST_RANGES:
            self._ranges.append([line, line])

    @property
    def further(self) -> str:
        """The other lines: `2, 5-9, …`."""
        shown = [f"{low}-{high}" if high > low else f"{low}" for low, high in self._ranges]
        return ", ".join(shown[:_MOST_RANGES] + ["…"] * (len(shown) > _MOST_RANGES))


class Report:
    """What was found in one file; the same about the same field once, unless `every`."""

    def __init__(self, *, strict: bool = False, every: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        """errors, warnings, records, bad_lines, unchained."""
        self.forms: Counter[str] = Counter()
        """Records of each kind and version."""
        self._strict, self._every = strict, every
        self._told: dict[tuple[str, str, str, int], Told] = {}

    def tell(self, finding: Finding) -> None:
        if self._strict and finding.level == "warning":
            finding = finding._replace(level="error")
        field, line = finding.field, finding.line
        if not self._every:
            field, line = without_index(field), 0
        told = self._told.setdefault((finding.level, finding.code, field, line), Told(finding))
        told.again(finding.line)
        self.counts["errors" if finding.level == "error" else "warnings"] += 1

    def tell_all(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.tell(finding)

    def told(self) -> list[Told]:
        """In the order of the file, what concerns all of it first."""
        return sorted(self._told.values(), key=lambda each: each.finding.line)


def without_index(field: str) -> str:
    """The field of all rows: `losers[].score` for `losers[0].score`."""
    return _INDEX.sub("[]", field)


def judge(data: bytes, origin: Origin, ask: Ask, *, named: bool = True) -> Report:
    """Everything that is to be said about the bytes of a file."""
    judge = _Judge(origin, ask, named=named)
    if _is_markdown(origin, ask):
        judge.text(data)
    else:
        judge.values(data)
    return judge.report


def _is_markdown(origin: Origin, ask: Ask) -> bool:
    if ask.kind is not None:
        return ask.kind.shape == "markdown"
    named = by_path(origin.path, ask.kinds)
    return origin.name.endswith(".md") or any(each.shape == "markdown" for each in named)


class _Judge:
    def __init__(self, origin: Origin, ask: Ask, *, named: bool) -> None:
        self.report = Report(strict=ask.strict, every=ask.every)
        self._origin, self._ask, self._named = origin, ask, named

    def _tell(self, code: str, reason: str, line: int = 0) -> None:
        self.report.tell(Finding("error", code, "", reason, line))

    def _kind(self, sample: Any) -> Kind | None:
        if self._ask.kind is not None:
            return self._ask.kind
        kind, finding = detect(self._origin, sample, self._ask.kinds)
        if finding is not None:
            # Not everything in a directory is a record.
            mild = finding.code == "unknown_kind" and not self._named
            self.report.tell(finding._replace(level="warning") if mild else finding)
        return kind

    def _count(self, kind: Kind, form: Form) -> None:
        self.report.counts["records"] += form is not LOG_FORM
        self.report.forms[f"{kind.name}@{form.version}"] += 1

    def _read(self, kind: Kind, value: Any) -> Reading:
        self._count(kind, self._ask.form or kind.form_of(value))
        return kind.read(value, strict=self._ask.strict, form=self._ask.form)

    def _cross_check(self, kind: Kind, found: Sequence[Located]) -> Iterator[Finding]:
        return kind.cross_check(found, self._origin) if kind.cross_check else iter(())

    # --- Markdown -----------------------------------------------------------------------------

    def text(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self._tell("not_utf8", f"not UTF-8 at byte {error.start}", line)
            return
        if not text.strip():
            self._tell("empty", f"empty: {len(data)} bytes")
            return
        text = text.removeprefix("\ufeff")
        kind = self._kind(text)
        if kind is not None and kind.parse is not None:
            reading = kind.parse(text)
            self._count(kind, kind.current)
            self.report.tell_all(reading.findings)
            self.report.tell_all(self._cross_check(kind, [Located(1, reading)]))

    # --- JSON in all its layouts --------------------------------------------------------------

    def values(self, data: bytes) -> None:
        scan = Scan(data)
        values = scan.values()
        ahead = list(_until_entry(values))
        sample = ahead[-1].value if ahead and _is_entry(ahead[-1]) else None
        kind = self._kind(sample)
        everything = chain(ahead, values)
        if kind is None:
            self._count_only(everything, scan)
        elif kind.shape == "lines":
            self._lines(everything, scan, kind)
        else:
            self._whole(everything, scan, kind)
        self.report.counts["bad_lines"] += scan.bad

    def _hear(self, scan: Scan, *, of_lines: bool, blank_is: str = "warning") -> None:
        """Pass on what the scan had to tell."""
        for finding in scan.told:
            if finding.code == "empty":
                finding = finding._replace(level=cast("Any", blank_is))
            if of_lines or finding.code not in OF_LINES:
                self.report.tell(finding)
        scan.told.clear()

    def _count_only(self, values: Iterator[Found], scan: Scan) -> None:
        """A file of no kind we know: what can be said all the same."""
        seen: dict[int, int] = {}
        for found in values:
            if not found.sound:
                continue
            self.report.counts["records"] += 1
            if isinstance(value := found.value, dict):
                key = hash(content(cast("dict[str, Any]", value)))
                first = seen.setdefault(key, found.line)
                if first != found.line:
                    reason = f"the same as in line {first}"
                    self.report.tell(Finding("warning", "duplicate", "", reason, found.line))
        records = self.report.counts["records"]
        if records > 1 and self._origin.name.endswith(".json"):
            reason = f"{records} values under the name of one document"
            self.report.tell(Finding("warning", "several", "", reason))
        of_lines = ".jsonl" in self._origin.name or records > 1
        self._hear(scan, of_lines=of_lines)
        if of_lines:
            self._tell_spread(scan)

    def _tell_spread(self, scan: Scan) -> None:
        if scan.spread:
            of_all = f"{scan.spread} of {self.report.counts['records']} records"
            self._tell("not_lines", f"not line-delimited: {of_all} have no line of their own")

    # --- lines --------------------------------------------------------------------------------

    def _lines(self, values: Iterator[Found], scan: Scan, kind: Kind) -> None:
        report, course = self.report, _Course(scan)
        watch = kind.watch(self._origin) if kind.watch else None
        located: list[Located] = []
        plain = _plain(kind, self._ask)
        plainly = 0
        # Called for every line of files with very many.
        for line, value, raw, start, sound in values:
            if scan.told:
                self._hear(scan, of_lines=True)
            if not sound:
                continue
            told = course.see(line, value, raw, start)
            if told:
                report.tell_all(told)
            if plain(value):
                plainly += 1
                if watch is not None and (odd := watch.see(line, value, value)):
                    report.tell_all(odd)
                continue
            if type(value) is list:
                scan.spread -= b"\n" in raw.strip()  # told here, and not once more at the end
                self._tell("not_lines", "not line-delimited: an array", line)
            for at, entry in _entries(line, value, raw, kind):
                reading = self._read(kind, entry)
                report.tell_all(each._replace(line=at) for each in reading.findings)
                if watch is not None:
                    asked = self._ask.form is not None
                    value = reading.value if asked else kind.upgraded(reading.value)
                    report.tell_all(watch.see(at, value, entry))
                else:
                    located.append(Located(at, reading))
        report.counts["records"] += plainly
        report.forms[f"{kind.name}@{kind.current.version}"] += plainly
        report.counts["unchained"] += course.unchained
        self._hear(scan, of_lines=True)
        self._tell_spread(scan)
        report.tell_all(watch.end() if watch else self._cross_check(kind, located))

    # --- documents and arrays -----------------------------------------------------------------

    def _whole(self, values: Iterator[Found], scan: Scan, kind: Kind) -> None:
        found = [each for each in values if each.sound]
        self._hear(scan, of_lines=False, blank_is="error")
        if len(found) > 1:
            reason = f"{len(found)} values where one {kind.shape} is expected"
            self._tell("several", reason, found[1].line)
        if kind.shape == "array" and found and not isinstance(found[0].value, list):
            self._tell("type", "not an array", found[0].line)
        located: list[Located] = []
        lines: dict[str, int] = {}
        for each in found:
            lines = lines_of(each.raw, each.line)
            for path, value in _items(each.value) if kind.shape == "array" else [("", each.value)]:
                reading = self._read(kind, value)
                located.append(Located(line_of(path, lines) or each.line, reading))
                self.report.tell_all(_placed(reading.findings, path, lines))
        for finding in self._cross_check(kind, located):
            at = line_of(finding.field, lines) if kind.shape == "document" else 0
            self.report.tell(finding._replace(line=at or finding.line))


def _plain(kind: Kind, ask: Ask) -> Callable[[Any], bool]:
    """What tells at once that a line is as it should be."""
    form = kind.current
    if form.plain is None or kind.cross_check is not None or ask.form not in (None, form):
        return lambda value: False
    return form.plain


def _is_entry(found: Found) -> bool:
    return found.sound and not is_log_line(found.value)


def _until_entry(values: Iterator[Found]) -> Iterator[Found]:
    for found in values:
        yield found
        if _is_entry(found):
            return


def _entries(line: int, value: Any, raw: bytes, kind: Kind) -> Iterator[tuple[int, Any]]:
    """The records of what stands at one place: one, none, or those of an array."""
    if is_log_line(value) and LOG_FORM not in kind.forms:
        return
    if not isinstance(value, list):
        yield line, value
        return
    lines = lines_of(raw, line)
    for path, item in _items(cast("list[Any]", value)):
        yield line_of(path, lines) or line, item


def _items(value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, list):
        return [("", value)]
    return [(f"[{number}]", item) for number, item in enumerate(cast("list[Any]", value))]


def _placed(findings: Iterable[Finding], path: str, lines: dict[str, int]) -> Iterator[Finding]:
    for each in findings:
        field = f"{path}.{each.field}".strip(".") if path else each.field
        yield each._replace(field=field, line=line_of(field, lines))


class _Course:
    """Follows the numbers and hashes of a log through one of its files."""

    def __init__(self, scan: Scan) -> None:
        self._data = scan.data
        self._end = 0
        """Behind the last sealed line."""
        self._digest: bytes | None = None
        """Its hash; None while nothing is known of what comes before the file."""
        self._seq: int | None = None
        self.unchained = 0

    def see(self, line: int, value: Any, raw: bytes, start: int) -> list[Finding]:
        found: list[Finding] = []
        if type(value) is not dict:
            return found
        entry = cast("dict[str, Any]", value)
        seq = entry.get("seq")
        if type(seq) is int:
            if self._seq is not None and seq != self._seq + 1:
                reason = f"{seq} follows {self._seq}"
                found.append(Finding("error", "seq", "seq", reason, line))
            self._seq = seq
        if self._digest is not None:
            # The usual case, without looking at the line twice.
            covered = raw[:-_HASH_PART]
            if start != self._end:
                covered = self._data[self._end : start] + covered
            digest = sha256(self._digest + sha256(covered).digest())
            if entry.get("hash") == digest.hexdigest():
                self._digest, self._end = digest.digest(), start + len(raw)
                return found
        self._look_at(line, raw, start, found)
        return found

    def _look_at(self, line: int, raw: bytes, start: int, found: list[Finding]) -> None:
        bare = raw.rstrip(b"\n")
        seal = read_seal(bare)
        if seal is None:
            self.unchained += 1
            return
        previous = self._digest if self._digest is not None else GENESIS if seal.seq == 1 else None
        gap = sha256(self._data[self._end : start])
        if previous is not None and not holds(bare, seal, previous, gap):
            reason = "does not follow from the line before: something was changed, added or removed"
            found.append(Finding("error", "chain", "hash", reason, line))
        self._digest, self._end = seal.digest, start + len(raw)

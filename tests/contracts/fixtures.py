"""Files of every kind and every version, kept for ever: `fixtures/KIND/VERSION-WHAT.EXT`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.codec import MAX_DOCUMENT, decode
from holdfast.contracts.kind import Form, Kind
from holdfast.contracts.kinds import KINDS, kind

FOLDER = Path(__file__).parent / "fixtures"


class Fixture(NamedTuple):
    kind: Kind
    form: Form
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(FOLDER).as_posix()

    def values(self) -> list[Any]:
        """The values in it that have a schema: its lines, its items, the whole of it."""
        data = self.path.read_bytes()
        if self.kind.shape == "lines":
            return [decode(line) for line in data.splitlines()]
        if self.kind.shape == "markdown":
            assert self.kind.parse is not None
            reading = self.kind.parse(data.decode())
            assert reading.record is not None, reading.findings
            return [reading.record.value()]
        value = decode(data, limit=MAX_DOCUMENT)
        return list(value) if self.kind.shape == "array" and isinstance(value, list) else [value]


def fixtures() -> Iterator[Fixture]:
    names = {each.name for each in KINDS}
    for path in sorted(FOLDER.glob("*/*")):
        if path.parent.name in names:
            its_kind = kind(path.parent.name)
            version = path.name.partition("-")[0]
            form = its_kind.form(version)
            assert form is not None, f"{path} is of no version of {its_kind.name}"
            yield Fixture(its_kind, form, path)

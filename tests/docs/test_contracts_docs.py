"""docs/contracts.md names every kind there is."""

import re

from holdfast.contracts.kinds import KINDS
from tools.generate_docs import DOCS


def test_every_kind_is_named_and_no_other() -> None:
    table = (DOCS / "contracts.md").read_text("utf-8").partition("## The kinds")[2]
    rows = [row for row in table.partition("##")[0].splitlines() if row.startswith("| ")]
    named = {name for row in rows[1:] for name in re.findall(r"`([a-z-]+)`", row)}
    assert named == {each.name for each in KINDS}

"""The generated pages are what the code says about itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.ops.table import TABLE
from tools.generate_docs import DOCS, REPO, document, stale_pages
from tools.generate_docs import main as generate

REFERENCE = DOCS / "cli.md"


def test_every_page_is_what_would_be_written() -> None:
    assert [str(path) for path, _ in stale_pages(DOCS)] == [], "stale: run `make fix`"


def test_the_reference_is_the_same_on_every_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert document(TABLE) == REFERENCE.read_text("utf-8")


@pytest.mark.parametrize("name", TABLE.names())
def test_every_verb_is_in_the_reference_with_its_example(name: str) -> None:
    operation = next(each for each in TABLE.operations if each.name == name)
    _, _, section = REFERENCE.read_text("utf-8").partition(f"\n## holdfast {name}\n")
    assert operation.example in section.partition("\n## ")[0]


def test_a_stale_page_is_found_and_mended(tmp_path: Path) -> None:
    into = ("--into", str(tmp_path / "docs"))
    assert generate(["--check", *into]) == 1
    assert not (tmp_path / "docs").exists()
    tool = [sys.executable, str(REPO / "tools" / "generate_docs.py")]
    assert subprocess.run([*tool, *into], capture_output=True, check=False).returncode == 0
    assert generate(["--check", *into]) == 0
    page = tmp_path / "docs" / "cli.md"
    page.write_text(page.read_text("utf-8") + "edited\n", encoding="utf-8")
    assert generate(["--check", *into]) == 1


def test_a_schema_of_no_kind_is_removed(tmp_path: Path) -> None:
    into = ("--into", str(tmp_path))
    generate(into)
    old = tmp_path / "schemas" / "gone.schema.json"
    old.parent.mkdir(exist_ok=True)
    old.write_text("{}", encoding="utf-8")
    assert generate(["--check", *into]) == 1
    assert generate(into) == 0
    assert not old.exists()

"""docs/cli.md is what the verbs say about themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.ops.table import TABLE
from tools.generate_docs import REPO, TARGET, document

GENERATOR = [sys.executable, str(REPO / "tools" / "generate_docs.py")]


def generate(*words: str) -> int:
    return subprocess.run(
        [*GENERATOR, *words], cwd=REPO, capture_output=True, check=False
    ).returncode


def test_the_reference_is_what_would_be_written() -> None:
    assert TARGET.read_text("utf-8") == document(TABLE), "stale: run `make fix`"


def test_the_reference_is_the_same_on_every_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    assert document(TABLE) == TARGET.read_text("utf-8")


@pytest.mark.parametrize("name", TABLE.names())
def test_every_verb_is_in_the_reference_with_its_example(name: str) -> None:
    operation = next(each for each in TABLE.operations if each.name == name)
    _, _, section = TARGET.read_text("utf-8").partition(f"\n## holdfast {name}\n")
    assert operation.example in section.partition("\n## ")[0]


def test_a_stale_reference_is_found_and_mended(tmp_path: Path) -> None:
    target = tmp_path / "docs" / "cli.md"
    assert generate("--check", "--target", str(target)) == 1
    assert not target.exists()
    assert generate("--target", str(target)) == 0
    assert generate("--check", "--target", str(target)) == 0
    target.write_text(target.read_text("utf-8") + "edited\n", encoding="utf-8")
    assert generate("--check", "--target", str(target)) == 1

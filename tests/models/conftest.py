from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.models.programs import Make


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a program of a script in Python; its path."""

    def make(script: str, name: str = "agent") -> str:
        lines = script.strip("\n").splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        body = "\n".join(line[indent:] for line in lines)
        path.write_text(f"#!{sys.executable} -IS\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make

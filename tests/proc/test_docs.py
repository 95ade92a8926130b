"""What docs/processes.md shows works as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

from holdfast.proc.limits import Means, Outcome

PAGE = Path(__file__).resolve().parents[2] / "docs/processes.md"


def test_the_program_in_the_page_runs(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 1
    done = subprocess.run(
        [sys.executable, "-c", programs[0]],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "exited 0 done 1"
    assert list(tmp_path.iterdir()) == []


def test_the_page_knows_every_outcome_and_means() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in (*get_args(Outcome), *get_args(Means)):
        assert f"`{name}`" in page, name

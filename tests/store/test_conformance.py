"""Both backends keep what `holdfast.testing.conformance` promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.testing.conformance import StoreConformance
from tests.store.backends import InMemory, OnFiles


class TestHome(OnFiles, StoreConformance):
    """On files."""


class TestMemory(InMemory, StoreConformance):
    """In memory."""


def test_the_suite_needs_no_test_tools(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "for name in ('pytest', 'hypothesis', '_pytest'): sys.modules[name] = None\n"
        "import holdfast.testing.conformance as suite\n"
        "print(len([name for name in dir(suite.StoreConformance) if name.startswith('test_')]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert int(done.stdout) > 40
    assert list(tmp_path.iterdir()) == []

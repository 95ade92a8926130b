"""Both backends keep what `holdfast.testing.conformance` promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.testing.conformance import StoreConformance


class TestHome(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        self.path = str(tmp_path / "home")
        self.homes: list[Home] = []
        yield
        for home in self.homes:
            home.close()

    def open(self) -> Home:
        home = Home.open(self.path, create=True, timezone="UTC", clock=self.clock)
        self.homes.append(home)
        return home


class TestMemory(StoreConformance):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.memory = Memory(self.clock, self.masker)

    def open(self) -> Memory:
        return self.memory


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

"""How the conformance suites open our two backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.testing import Conformance


class OnFiles(Conformance):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> Iterator[None]:
        self.path = str(tmp_path / "home")
        self.homes: list[Home] = []
        yield
        self.teardown_method()
        for home in self.homes:
            home.close()

    def open(self) -> Home:
        home = Home.open(self.path, create=True, timezone="UTC", clock=self.clock)
        self.homes.append(home)
        return home


class InMemory(Conformance):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.memory = Memory(self.clock, self.masker)

    def open(self) -> Memory:
        return self.memory

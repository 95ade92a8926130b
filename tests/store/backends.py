"""How the conformance suites open our two backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.home import Home
from holdfast.store.memory import Memory
from holdfast.testing import Conformance, Turner


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
        return self._home(self.clock, "")

    def elsewhere(self) -> Home:
        return self._home(self.far_clock, "far/4711")

    def save_by_hand(self, key: str, data: bytes) -> None:
        Path(self.path, key).write_bytes(data)

    def _home(self, clock: Turner, host: str) -> Home:
        home = Home.open(self.path, create=True, timezone="UTC", clock=clock, host=host)
        self.homes.append(home)
        return home


class InMemory(Conformance):
    @pytest.fixture(autouse=True)
    def place(self) -> Iterator[None]:
        self.memory = Memory(self.clock, self.masker)
        self.far_memory = self.memory.seen_from("far/4711", self.far_clock)
        yield
        self.memory.close()
        self.far_memory.close()

    def open(self) -> Memory:
        return self.memory

    def elsewhere(self) -> Memory:
        return self.far_memory

    def save_by_hand(self, key: str, data: bytes) -> None:
        self.memory.sheet(key).save(data)

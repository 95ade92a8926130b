"""What is made of the primitives, on both backends."""

from __future__ import annotations

from pathlib import Path

from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.store.projection import Projection
from tests.store.backends import InMemory, OnFiles
from tests.store.composed import ComposedConformance


class TestHome(OnFiles, ComposedConformance):
    """On files."""


class TestMemory(InMemory, ComposedConformance):
    """In memory."""


def test_lines_of_a_strange_hand_are_neither_told_nor_believed(tmp_path: Path) -> None:
    with Home.open(str(tmp_path), create=True, timezone="UTC") as home:
        source, target = home.log("state/a.jsonl"), home.log("state/b.jsonl")
        source.append({"n": 1})
        target.append({"n": 0})
        with open(tmp_path / "state/a.jsonl", "a", encoding="utf-8") as file:
            file.write('{"n":"strange"}\nnot JSON\n')
        with open(tmp_path / "state/b.jsonl", "a", encoding="utf-8") as file:
            file.write('{"ref":"state/a.jsonl#9"}\nnot JSON\n')
        source.append({"n": 2})
        one = Projection(source, target, home.cell("state/p.json"), lambda line: line.record)
        assert one.catch_up() == 2
        refs = [line.record.get("ref") for line in target.read() if isinstance(line, Line)]
        assert refs == [None, "state/a.jsonl#9", "state/a.jsonl#1", "state/a.jsonl#2"]
        for each in (one, source, target):
            each.close()

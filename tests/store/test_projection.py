"""What a projection does to the disk; what it means is in `test_composed`."""

from __future__ import annotations

from pathlib import Path

from holdfast.store.home import Home
from holdfast.store.projection import Projection
from tests.store.faults import FaultyVfs


def test_the_source_is_durable_before_the_target_hears_of_it(tmp_path: Path) -> None:
    vfs = FaultyVfs()
    with Home.open(str(tmp_path), create=True, timezone="UTC", vfs=vfs) as home:
        source, target = home.log("state/a.jsonl"), home.log("state/b.jsonl")
        source.append({"n": 1})
        target.append({"n": 0})
        one = Projection(source, target, home.cell("state/p.json"), lambda line: {"n": 1})
        vfs.forget()
        assert one.catch_up() == 1
        order = vfs.order()
        assert order.index("sync a.jsonl") < order.index("write .b.jsonl.tmp")
        for each in (one, source, target):
            each.close()

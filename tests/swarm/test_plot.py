"""The pictures of a run, as files of the user's."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from holdfast import charts
from holdfast.swarm.pictures import MOST_COLUMNS, pictures, router, topology
from tests.jobs.desk import Desk
from tests.ledger.shell import on_its_own
from tests.swarm.runs import aggregate, cluster, failed, moe, of_one, passed
from tests.swarm.test_analysis import TWO

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    assert made("init", "rio").code == 0
    monkeypatch.chdir(made.cwd)
    (made.cwd / "run.json").write_text(json.dumps(TWO), encoding="utf-8")
    return made


def drawn(*found: charts.Chart) -> ElementTree.Element:
    return ElementTree.fromstring(charts.svg(found, alone=True))


def titles(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def test_a_picture_is_an_svg_that_stands_alone(desk: Desk) -> None:
    made = desk.ok("swarm", "plot", "run.json", "--out", "run.svg")
    root = ElementTree.parse(desk.cwd / "run.svg").getroot()
    assert root.tag == f"{SVG}svg"
    shown = " ".join(each.text or "" for each in root.iter(f"{SVG}text"))
    for chart in made["data"]["charts"]:
        assert chart in shown
    assert "Router scores by tick" in shown
    # Neither script nor style nor anything from elsewhere.
    text = (desk.cwd / "run.svg").read_text(encoding="utf-8")
    assert "href" not in text and "<script" not in text and " style=" not in text


def test_a_picture_is_a_png_of_the_same_charts(desk: Desk) -> None:
    assert desk.ok("swarm", "plot", "run.json", "--out", "run.png")["applied"]
    data = (desk.cwd / "run.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    wide, tall = struct.unpack(">II", data[16:24])
    assert wide == 2 * (charts.WIDTH + 40) and tall > 400


def test_without_the_extra_png_is_refused_and_svg_is_drawn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)  # as where it is not installed
    error = desk.refused("swarm", "plot", "run.json", "--out", "run.png", code=3, says="plot")
    assert ".svg" in error["hint"]
    assert desk.ok("swarm", "plot", "run.json", "--out", "run.svg")["applied"]
    desk.refused("swarm", "plot", "run.json", "--out", "run.pdf", code=2, says="not a picture")


def test_the_heat_map_says_each_score_and_who_was_chosen() -> None:
    run = cluster(moe(1, "a", "x", a=2.0, b=-1e9), moe(2, "b", "y", a=1.0, b=3.0))
    chart = router(run)
    assert chart is not None
    said = titles(drawn(chart))
    assert "a, tick 1: 2, chosen" in said
    assert "b, tick 1: cooling down" in said
    assert "b, tick 2: 3, chosen" in said and "a, tick 2: 1" in said


def test_of_thousands_of_ticks_a_part_is_drawn_and_the_chart_says_so() -> None:
    ticks = 5_000
    run = cluster(*(moe(tick, "a", "x", a=1.0, b=0.0) for tick in range(1, ticks + 1)))
    found = pictures(run)
    chart = found[0]
    cells = [each for each in titles(drawn(chart)) if each.startswith("a, tick")]
    assert 1 < len(cells) <= MOST_COLUMNS
    assert any(f"tick {ticks}:" in each for each in cells)  # the newest is among them
    assert "of 5,000 ticks" in chart.title
    assert len(charts.svg(found)) < 300_000


def test_the_topology_is_drawn_by_who_passed_to_whom() -> None:
    ring = cluster(
        passed(1, "handoff", "b", "a", "x"),
        passed(2, "handoff", "a", "b", "y"),
        passed(3, "handoff", "b", "a", "z"),
    )
    said = titles(drawn(topology(ring)))
    assert "b → a: 2×" in said and "a → b: 1×" in said
    said = titles(drawn(topology(cluster(moe(1, "b", "x"), aggregate(1, "a", "y")))))
    assert "b → the baton: 1×" in said and "the baton → a: 1×" in said


@pytest.mark.parametrize(
    "run",
    [
        cluster(agents=()),
        cluster(failed("a")),
        of_one(),
        of_one({"t": 1.0, "type": "error", "error": "gone"}),
        {"agents": ["a"], "events": [moe(1, "a", "x", a=-1e9)]},
        {"events": [{"type": "moe", "t": 1e300, "expert": "a", "tick": 1, "router_scores": 3}]},
        cluster(passed(1, "handoff", "solo", "solo", "x"), agents=("solo",)),
    ],
)
def test_a_run_with_little_or_nothing_in_it_is_drawn_all_the_same(run: dict[str, Any]) -> None:
    assert drawn(*pictures(run), topology(run)).tag == f"{SVG}svg"


def test_texts_of_agents_are_text_in_a_picture() -> None:
    evil = "</text><script>alert(1)</script>'\"\x00\x1b\ud800"
    run = cluster(moe(1, evil, evil, **{evil: 1.0}), failed(evil, evil), agents=(evil,))
    root = drawn(*pictures(run), topology(run))
    assert not list(root.iter(f"{SVG}script"))
    assert any("<script>alert(1)</script>" in each for each in titles(root))
    charts.png(charts.svg(pictures(run), alone=True))


def test_scores_over_rounds_are_points_with_a_line() -> None:
    best = charts.Series("best", [(0, 1.0), (1, 1.5), (2, 1.5)], "good")
    tried = charts.Series("tried", [(1, 0.5)], "quiet", joined=False)
    root = drawn(charts.lines("Score", [best, tried], "round"))
    assert len(list(root.iter(f"{SVG}polyline"))) == 1
    assert "tried, round 1: 0.5" in titles(root)
    flat = charts.lines("Score", [charts.Series("best", [(1, 2.0)])], "round")
    assert "best, round 1: 2" in titles(drawn(flat))
    assert drawn(charts.lines("Score", [], "round")).tag == f"{SVG}svg"

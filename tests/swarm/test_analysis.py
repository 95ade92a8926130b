"""What is measured of a run, at the command line and of documents of other systems."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from holdfast.swarm.analysis import analyze, balance, batons, difference, drifts
from tests.jobs.desk import Desk
from tests.ledger.shell import on_its_own
from tests.swarm.runs import T, aggregate, cluster, failed, moe, of_one, passed

TWO = cluster(
    {"t": T, "type": "input_goal", "text": "find the fee"},
    moe(1, "a", "the fee is three", a=2.0, b=1.0),
    aggregate(1, "a", "fee three"),
    moe(2, "a", "three per cent", a=2.0, b=1.0),
    moe(2, "b", "since May", a=2.0, b=1.5),
    aggregate(2, "a", "fee three since May"),
    failed("b"),
    counts={"a": {"chat": 2, "errors": 0}, "b": {"chat": 1, "errors": 1}},
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    assert made("init", "rio").code == 0
    monkeypatch.chdir(made.cwd)
    return made


def test_words_are_counted_for_each_agent_with_its_summaries() -> None:
    found = analyze(TWO)
    assert found["tokens"]["words"] == 4 + 2 + 3 + 2 + 4
    assert found["per_agent"]["a"]["words"] == 4 + 2 + 3 + 4
    assert found["per_agent"]["b"] == {
        "chat": 1, "share": 1 / 3, "aggregate": 0, "errors": 1, "words": 2,
    }  # fmt: skip
    assert found["tokens"]["words_per_second"] == 15 / 4
    assert found["moe_distribution"] == {"a": 2, "b": 1}


def test_entropy_and_imbalance_are_of_the_replies_of_each_agent() -> None:
    found = analyze(TWO)["load"]
    entropy = -(2 / 3 * math.log2(2 / 3) + 1 / 3 * math.log2(1 / 3))
    assert found == {
        "entropy": pytest.approx(entropy), "evenness": pytest.approx(entropy),
        "std": 0.5, "cov": pytest.approx(1 / 3), "max_min": 2.0,
    }  # fmt: skip
    assert balance([4, 4, 4, 4])["entropy"] == 2.0
    assert balance([4, 0]) == {
        "entropy": 0.0, "evenness": 0.0, "std": 2.0, "cov": 1.0, "max_min": None,
    }  # fmt: skip


def test_the_counts_of_a_run_go_before_a_recount_of_an_excerpt() -> None:
    excerpt = cluster(moe(7, "b", "…"), counts={"a": {"chat": 4}, "b": {"chat": 5}})
    assert analyze(excerpt)["per_agent"]["a"]["chat"] == 4
    assert analyze(cluster(moe(7, "b", "…")))["per_agent"]["b"]["chat"] == 1


def test_the_baton_of_a_tick_is_its_summary_or_else_its_last_reply() -> None:
    assert batons(TWO) == {1: "fee three", 2: "fee three since May"}
    ring = cluster(passed(1, "handoff", "b", "a", "one"), passed(2, "handoff", "a", "b", "two"))
    assert batons(ring) == {1: "one", 2: "two"}
    mesh = [passed(1, "broadcast", "a", "a", "one"), passed(1, "broadcast", "a", "b", "two")]
    assert batons(cluster(*mesh)) == {1: "two"}


def test_drift_is_nothing_for_the_same_words_and_one_for_none_in_common() -> None:
    texts = ["fee three", "Three, fee!", "fee three since May", "cows"]
    run = cluster(*(aggregate(tick, "a", text) for tick, text in enumerate(texts, 1)))
    moved = drifts(run)
    assert moved[2] == pytest.approx(0.0, abs=1e-12)
    assert moved[3] == pytest.approx(1 - 2 / (math.sqrt(2) * 2))
    assert moved[4] == 1.0
    assert analyze(TWO)["baton"]["drift_from_goal"] == pytest.approx(1 - 1 / (math.sqrt(3) * 2))


def test_latency_is_what_was_reported_or_else_lies_between_events() -> None:
    assert analyze(TWO)["latency"]["measured"] == "between events"
    said = [{**moe(1, "a", "x"), "seconds": seconds} for seconds in (0.1, 0.2, 0.3, 2.0)]
    found = analyze(cluster(*said))["latency"]
    assert found["measured"] == "reported"
    assert (found["p50"], found["p95"], found["max"]) == (0.2, 2.0, 2.0)


def test_a_cost_that_one_reply_did_not_report_is_unknown() -> None:
    priced = {**moe(1, "a", "x"), "cost_usd": 0.25, "output_tokens": 3}
    assert analyze(cluster(priced, priced))["cost_usd"] == 0.5
    assert analyze(cluster(priced, priced))["tokens"]["reported_output"] == 6
    assert analyze(cluster(priced, moe(2, "a", "y")))["cost_usd"] is None


@pytest.mark.parametrize(
    "run",
    [
        cluster(),
        cluster(agents=("solo",)),
        cluster(passed(1, "handoff", "solo", "solo", ""), agents=("solo",)),
        cluster(failed("a"), failed("b"), failed("nobody")),
        of_one(),
        of_one({"t": T, "type": "error", "error": "gone"}),
        {"agents": "x", "ticks": None, "elapsed_sec": "fast", "counts": [1], "events": {"a": 1}},
        {"agents": [1, None], "events": [None, 3, {"type": ["moe"]}, {"type": "moe", "tick": "x"}]},
        {"agents": ["a"], "elapsed_sec": 0, "events": [moe(1, "a", "x", a=-1e9)]},
    ],
)
def test_a_run_with_little_or_nothing_in_it_is_measured_all_the_same(run: dict[str, Any]) -> None:
    found = analyze(run)
    json.dumps(found, allow_nan=False)
    assert found["replies"] <= 1
    assert difference(found, found)["replies"] == 0


def test_errors_are_counted_for_the_agent_they_name() -> None:
    found = analyze(cluster(failed("a", "no\x1b[2Janswer"), failed("a"), failed("b")))
    assert found["errors"]["count"] == 3
    assert found["errors"]["ratio"] == 1.0
    assert found["per_agent"]["a"]["errors"] == 2


def test_a_test_run_has_one_agent_and_no_chat_or_fork_among_its_agents() -> None:
    chat = {"t": T + 1, "type": "chat", "prompt": "Tick 1", "reply": "All is well"}
    run = of_one(
        chat,
        {"t": T + 2, "type": "fork", "child_id": "rio-child1"},
        {"t": T + 3, "type": "status", "tail_mem": 2, "tail_ev": 1},
        counts={"chat": 1, "fork": 1, "status": 1, "errors": 0},
    )
    found = analyze(run)
    assert found["kind"] == "test-run"
    assert list(found["per_agent"]) == ["rio"]
    assert found["per_agent"]["rio"]["chat"] == 1
    assert found["events"] == {"chat": 1, "fork": 1, "status": 1}


# --- at the command line --------------------------------------------------------------------


def test_a_file_is_measured_where_it_lies_and_compared_with_another(desk: Desk) -> None:
    for name, run in (("one", TWO), ("two", cluster(moe(1, "b", "only this", a=0.0, b=1.0)))):
        (desk.cwd / f"{name}.json").write_text(json.dumps(run), encoding="utf-8")
    found = desk.ok("swarm", "analyze", "one.json", "--compare", "two.json")["data"]
    assert found["replies"] == 5 and found["compare"]["replies"] == 1
    assert found["difference"]["replies"] == 4
    assert found["difference"]["load.entropy"] == found["load"]["entropy"]
    shown = desk("swarm", "analyze", "one.json", "--compare", "two.json")
    line = next(line for line in shown.out.splitlines() if line.startswith("replies "))
    assert line.split() == ["replies", "5", "1", "+4"]


def test_a_run_of_the_home_is_known_by_its_name(desk: Desk) -> None:
    logs = desk.home / "logs"
    logs.mkdir()
    (logs / "cluster_run_20261119-064700.json").write_text(json.dumps(TWO), encoding="utf-8")
    for name in ("20261119-064700", "cluster_run_20261119-064700"):
        found = desk.ok("swarm", "analyze", name)
        assert found["data"]["run"] == "cluster_run_20261119-064700"
    error = desk.refused("swarm", "analyze", "20261118-000000", code=4, says="no such run")
    assert "cluster_run_20261119-064700" in error["hint"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"events": ', '{"a": 1}'])
def test_a_file_that_is_no_run_is_refused_with_a_hint(desk: Desk, text: str) -> None:
    (desk.cwd / "odd.json").write_text(text, encoding="utf-8")
    desk.refused("swarm", "analyze", "odd.json", code=2, says="")


def test_names_and_errors_of_others_cannot_move_the_cursor(desk: Desk) -> None:
    evil = "a\x1b]0;x\x07\nb"
    run = cluster(moe(1, evil, "x"), failed(evil, "no\x1b[2Janswer"), agents=(evil,))
    (desk.cwd / "evil.json").write_text(json.dumps(run), encoding="utf-8")
    shown = desk("swarm", "analyze", "evil.json")
    assert shown.code == 0
    assert "\x1b" not in shown.out + shown.err and "\x07" not in shown.out

"""One agent under test, as its user meets it: the verb, and the three files it leaves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.swarm import TEST_RUN
from holdfast.errors import OverBudget
from holdfast.store.home import Home
from holdfast.swarm.harness import Plan, Subject
from holdfast.swarm.harness import test as run_test
from holdfast.testing import Turner
from tests.jobs.desk import Desk
from tests.ledger.shell import on_its_own


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    on_its_own(monkeypatch, tmp_path)
    made = Desk(tmp_path)
    assert made("init", "rio", "--timezone", "UTC").code == 0
    monkeypatch.chdir(made.cwd)
    return made


def tried(desk: Desk, *words: str, model: str = "scripted:echo", code: int = 0) -> dict[str, Any]:
    """The document of a test, and its files."""
    ran = desk("swarm", "test", "--agent", "rio", "--model", model, *words, "--json")
    assert ran.code == code, ran.out + ran.err
    path = desk.home / ran.json()["target"]
    return json.loads(path.read_text(encoding="utf-8"))


def kinds(run: dict[str, Any]) -> list[str]:
    return [event["type"] for event in run["events"]]


def test_the_steps_follow_the_rhythm_and_forks_stop_at_their_limit(desk: Desk) -> None:
    run = tried(desk, "--iterations", "35", "--max-forks", "2")
    for number, kind in enumerate(kinds(run), 1):
        fork = number in (7, 14)
        assert kind == ("fork" if fork else "status" if number % 5 == 0 else "chat"), number
    assert [e["child_id"] for e in run["events"] if e["type"] == "fork"] == [
        "rio-child1",
        "rio-child2",
    ]
    assert run["events"][0]["prompt"].startswith("Tick 1: run health check and echo counters={")


def test_the_document_has_the_documented_keys_and_keeps_its_promises(desk: Desk) -> None:
    run = tried(desk, "--iterations", "14")
    assert list(run) == [
        "agent_id", "start_ts", "end_ts", "elapsed_sec", "counts", "events", "logs",
    ]  # fmt: skip
    assert run["elapsed_sec"] == pytest.approx(run["end_ts"] - run["start_ts"], abs=1e-6)
    seen = Counter(kinds(run))
    assert run["counts"] == {
        "chat": seen["chat"], "fork": seen["fork"], "status": seen["status"], "errors": 0,
    }  # fmt: skip
    stamps = [event["t"] for event in run["events"]]
    assert stamps == sorted(stamps)
    assert run["start_ts"] <= stamps[0] and stamps[-1] <= run["end_ts"]
    assert set(run["logs"]) == {"txt", "json", "log"}
    assert all((desk.home / path).is_file() for path in run["logs"].values())
    judged = desk("validate", "--strict", str(desk.home / run["logs"]["json"]), "--json")
    assert judged.code == 0 and not judged.rows(), judged.out
    # The log has one line for each step, beside its first and last.
    text = (desk.home / run["logs"]["log"]).read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(run["events"]) + 2


def test_a_status_has_the_lines_of_both_files(desk: Desk) -> None:
    run = tried(desk, "--iterations", "10")
    state = desk.home / "state" / "rio"
    memory, events = (
        len((state / name).read_bytes().splitlines()) for name in ("memory.jsonl", "events.jsonl")
    )
    assert run["events"][-1] == {**run["events"][-1], "tail_mem": memory, "tail_ev": events}
    assert events == 1


def test_a_second_test_makes_further_children(desk: Desk) -> None:
    tried(desk, "--iterations", "7")
    assert tried(desk, "--iterations", "7")["events"][-1]["child_id"] == "rio-child2"
    shown = desk.ok("agent", "show", "rio")["data"]["lineage"]
    assert shown["children"] == ["rio-child1", "rio-child2"]


def test_what_fails_is_an_event_and_the_test_goes_on(desk: Desk) -> None:
    model = desk.script("fine", {"error": "declined", "message": "no way"}, "again")
    run = tried(desk, "--iterations", "3", model=model, code=1)
    assert kinds(run) == ["chat", "error", "chat"]
    assert run["counts"]["errors"] == 1
    found = desk.ok("swarm", "analyze", Path(run["logs"]["json"]).stem)["data"]
    assert found["kind"] == "test-run" and found["errors"]["count"] == 1


def test_without_money_the_test_ends(desk: Desk) -> None:
    replies = [{"reply": text, "cost_usd": 0.4} for text in ("one", "two", "three")]
    model = desk.script(*replies)
    run = tried(desk, "--iterations", "9", "--max-cost", "0.6", model=model, code=1)
    assert kinds(run) == ["chat", "error"]


def test_a_secret_of_a_reply_reaches_no_file(desk: Desk) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    run = tried(desk, "--iterations", "1", model=desk.script(f"the token is {secret}"))
    for path in run["logs"].values():
        assert secret not in (desk.home / path).read_text(encoding="utf-8")


def test_the_duration_ends_a_test_as_well(desk: Desk) -> None:
    run = tried(desk, "--duration", "0.2s", "--max-forks", "0")
    assert run["events"] and 0.2 <= run["elapsed_sec"] < 30
    desk.refused("swarm", "test", "--agent", "rio", "--duration", "1s", "--iterations", "3", code=2)
    model = ("--model", "scripted:echo")
    desk.refused("swarm", "test", "--agent", "rio", "--iterations", "0", *model, code=2)
    desk.refused("swarm", "test", "--agent", "nobody", "--model", "scripted:echo", code=4)


# --- what the verb cannot bring about -------------------------------------------------------


def subject(say: Any = str.upper) -> Subject:
    return Subject("rio", "scripted", say, lambda note: "rio-child1", lambda: (0, 0))


def test_tests_of_one_second_have_names_of_their_own(tmp_path: Path) -> None:
    with Home.open(str(tmp_path / "home"), create=True, clock=Turner(1_795_000_000.0)) as home:
        made = [run_test(home, "logs", subject(), Plan(iterations=1)) for _ in range(3)]
        paths = {path for run in made for path in run["logs"].values()}
        assert len(paths) == 9
        assert all(home.document(path).read() is not None for path in paths)


def test_an_interrupted_test_leaves_what_it_had(tmp_path: Path) -> None:
    def interrupted(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with Home.open(str(tmp_path / "home"), create=True, clock=Turner(1_795_000_000.0)) as home:
        with pytest.raises(KeyboardInterrupt):
            run_test(home, "logs", subject(), Plan(iterations=9), interrupted)
        (name,) = [name for name in home.names("logs") if name.endswith(".json")]
        text = home.document(f"logs/{name}").read()
    assert text is not None
    run = json.loads(text.data)
    assert run["counts"]["chat"] == len(run["events"]) == 3
    assert TEST_RUN.read(run).record is not None


def test_a_clock_that_is_set_back_makes_no_time_negative(tmp_path: Path) -> None:
    clock = Turner(1_795_000_000.0)

    def say(text: str) -> str:
        clock.advance(2.0)
        clock.step(-3600.0)
        return text

    with Home.open(str(tmp_path / "home"), create=True, clock=clock) as home:
        run = run_test(home, "logs", subject(say), Plan(iterations=2))
    assert run["elapsed_sec"] == 4.0
    assert [event["t"] - run["start_ts"] for event in run["events"]] == [2.0, 4.0]


def test_over_budget_is_the_last_event(tmp_path: Path) -> None:
    def say(text: str) -> str:
        raise OverBudget("the limit of today is reached", hint="tomorrow")

    with Home.open(str(tmp_path / "home"), create=True, clock=Turner(1_795_000_000.0)) as home:
        run = run_test(home, "logs", subject(say), Plan(iterations=9))
    assert kinds(run) == ["error"]

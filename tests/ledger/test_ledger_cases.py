"""A ledger as its people meet it: quick to check, in one order, out of work trees, heard once."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import Turner
from tests.ledger.shell import PROGRAM, Shell, Verbs, entries_in
from tests.ops.foreign import entry, lines, put, snapshot

# --- checking -------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "most"), [(300, 1.0), (100_000, 10.0)])
def test_checking_a_day_takes_no_time_to_speak_of(
    verbs: Verbs, tmp_path: Path, count: int, most: float
) -> None:
    """In time of this process: what else the machine does is no concern of ours."""
    file = put(
        tmp_path / "ledger/cls/2025-11-16.jsonl",
        lines(
            entry(n // 1000 % 60, summary=f"event {n}", session_id="2025-11-16_cls_001")
            for n in range(count)
        ),
    )
    begun = time.process_time()
    found = verbs("validate", path=[str(file)])
    assert time.process_time() - begun < most
    assert (found.counts["records"], found.counts["errors"]) == (count, 0)


def test_clean_wrong_and_unreadable_are_three_exit_codes(shell: Shell) -> None:
    folder = shell.cwd / "ledger/cls"
    good = put(folder / "2025-11-16.jsonl", lines([entry(1)]))
    bad = put(folder / "2025-11-17.jsonl", lines([entry(1), entry(2, event=7)]))
    clean, wrong = shell("validate", str(good)), shell("validate", str(bad))
    unreadable = shell("validate", str(folder / "2025-11-18.jsonl"))
    assert [clean.code, wrong.code, unreadable.code] == [0, 1, 2]
    assert clean.err.startswith("files 1, records 1, errors 0, warnings 0")
    assert any(line.startswith(f"{bad}:2: event: ") for line in wrong.out.splitlines())


# --- order ----------------------------------------------------------------------------------

MOMENTS: dict[str, Any] = {
    "epoch s": 1763233200,  # 2025-11-15T19:00:00Z
    "offset": "2025-11-16T02:10:00+07:00",
    "compact": "2025-11-16T02:20:00+0700",
    "zulu": "2025-11-15T19:30:00Z",
    "fraction": "2025-11-15T19:30:00.250000Z",
    "epoch ms": 1763235600000,  # 2025-11-15T19:40:00Z
    "naive": "2025-11-15T19:50:00",
}
UNREADABLE = {"script": "$(date -u +%Y-%m-%dT%H:%M:%SZ)", "text": "CLS heartbeat 2025-10-31 #2"}


def test_times_of_every_form_are_listed_by_their_instant_and_odd_ones_told(
    verbs: Verbs, tmp_path: Path
) -> None:
    names = ["naive", "epoch ms", "zulu", "script", "compact", "epoch s", "text", "fraction"]
    told = {**MOMENTS, **UNREADABLE}
    day = [entry(1, summary=name, ts=told[name]) for name in [*names, "offset"]]
    tree = tmp_path / "tree"
    file = put(tree / "g/ledger/cls/2025-11-16.jsonl", lines(day))
    verbs("import", src=str(tree))
    shown = [text for text in verbs.texts(agent="cls", limit=0) if text in told]
    assert [name for name in shown if name in MOMENTS] == list(MOMENTS)
    assert set(shown) == set(told), "what tells no time is kept all the same"

    rows = verbs.rows("validate", path=[str(file)])
    odd = {row["line"]: row for row in rows if row["field"] == "ts" and row["code"] == "time"}
    assert sum(row["times"] for row in odd.values() if row["level"] == "error") == 2
    reasons = " ".join(row["reason"] for row in odd.values() if row["level"] == "warning")
    assert "UTC" in reasons, "a time without a zone is read by a stated rule"


# --- results --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "cause"),
    [("exit 7", 7, "exit"), ("kill -9 $$", 137, "signal"), ("sleep 60", 124, "timeout")],
)
def test_the_result_of_a_run_has_its_code_its_cause_and_its_duration(
    shell: Shell, script: str, code: int, cause: str
) -> None:
    limit = ("--timeout", "1s") if cause == "timeout" else ()
    ran = shell("run", "--agent", "cls", "--task", "wo-9", *limit, "--", "sh", "-c", script)
    assert ran.code == code
    (result,) = [each for each in entries_in(shell.home, "cls") if each["event"] == "task_result"]
    data = result["data"]
    assert (data["status"], data["exit_code"], data["cause"]) == ("failure", code, cause)
    assert 0 <= data["duration_sec"] < 60


# --- silence --------------------------------------------------------------------------------


def test_a_watch_that_writes_with_a_throttle_is_heard_once_in_half_an_hour(
    verbs: Verbs, clock: Turner
) -> None:
    """What a line of a crontab does every five minutes: `applied` says whether to ring."""

    def watch() -> list[str]:
        rung: list[str] = []
        for row in verbs("status").rows:
            if row["agent"] != "watch" and row["trouble"]:
                said = f"{row['agent']}: {row['trouble']}"
                if verbs.write(said, agent="watch", throttle="30m").applied:
                    rung.append(said)
        return rung

    verbs.write("go", event="task_start", task="wo-9")
    assert watch() == []
    clock.advance(600)
    heard = {}
    for minute in range(0, 65, 5):
        if minute == 20:
            verbs.write("no key", agent="clay", event="error")
        if rung := watch():
            heard[minute] = rung
        clock.advance(300)
    silent = "rio: offline while busy on wo-9"
    assert heard == {
        0: [silent],
        20: ["clay: no key"],
        30: [silent],
        50: ["clay: no key"],
        60: [silent],
    }
    verbs.write("done", event="task_result", task="wo-9", data='{"status":"success"}')
    assert silent not in watch()


# --- where it lies --------------------------------------------------------------------------


def test_without_a_home_named_nothing_is_put_into_a_work_tree(shell: Shell) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    assert shell.run(["git", "init", "-q", str(shell.cwd)]).code == 0
    before = snapshot(shell.cwd)
    words = ["ledger", "write", "--agent", "cls", "--event", "info", "text"]
    assert shell.run([PROGRAM, *words]).code == 0
    where = json.loads(shell.run([PROGRAM, "path", "cls", "--json"]).out)["data"]["path"]
    assert snapshot(shell.cwd) == before
    assert Path(where).is_relative_to(shell.user)
    (answer,) = [
        row
        for row in json.loads(shell.run([PROGRAM, "doctor", "--json"]).out)["rows"]
        if row["check"] == "git"
    ]
    assert answer["state"] == "ok"


def test_verbs_of_agents_write_below_the_home_they_are_given_only(shell: Shell) -> None:
    (shell.user / ".bashrc").write_text("precious", encoding="utf-8")
    tree = put(shell.cwd / "tree/g/ledger/old/2025-11-16.jsonl", lines([entry(1)])).parents[3]
    calls = [
        ("init", "rio", "clay"),
        ("run", "--agent", "rio", "--", "true"),
        ("session", "start", "--agent", "rio"),
        ("session", "note", "--agent", "rio", "--event", "finding", "x"),
        ("session", "end", "--agent", "rio", "--outcome", "completed"),
        ("task", "add", "--agent", "rio", "x"),
        ("memory", "note", "--agent", "rio", "--section", "corrections", "x"),
        ("inbox", "send", "--from", "clay", "--to", "rio", "--subject", "s", "x"),
        ("inbox", "take", "--agent", "rio"),
        ("import", str(tree)),
        ("ledger", "summary", "--day", "today"),
        ("ledger", "archive"),
        ("agent", "count", "--agent", "rio", "claims_accepted=1", "--source", "ci"),
    ]
    before = snapshot(shell.user), snapshot(shell.cwd)
    assert {words[:2]: shell(*words).code for words in calls} == {words[:2]: 0 for words in calls}
    assert (snapshot(shell.user), snapshot(shell.cwd)) == before
    assert sorted(each.name for each in shell.place.iterdir()) == ["cwd", "home", "user"]

"""`ledger summary`: what happened in a session, for people, and never at their cost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.summary import SessionSummary, parse
from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import PROGRAM, Shell, Verbs, on_its_own
from tests.ops.foreign import entry, lines, luka, put

FIRST = "2023-11-14_rio_001"


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="+07:00")
    return made


def session(verbs: Verbs, clock: Turner, agent: str = "rio") -> None:
    """A session with a task, an error and a second task."""
    data = {"agent": agent, "task": "wo-123", "source": "user"}
    verbs.write("Starting task", event="task_start", data='{"task_type":"review"}', **data)
    clock.advance(120)
    verbs.write(
        "Task completed",
        event="task_result",
        data='{"status":"success","duration_sec":120}',
        **data,
    )
    verbs.write("Task failed", event="error", data='{"error":"Timeout after 300s"}', **data)


def text(verbs: Verbs, name: str = FIRST, agent: str = "rio") -> str:
    return Path(verbs.path, f"memory/{agent}/sessions/{name}.md").read_text(encoding="utf-8")


def files(verbs: Verbs, pattern: str) -> list[Path]:
    found = Path(verbs.path, "memory/rio/sessions").glob(pattern)
    return [each for each in found if each.name[0] != "."]


def is_valid(path: str | Path) -> bool:
    done = subprocess.run(
        [PROGRAM, "validate", "--strict", str(path), "--json"], capture_output=True, check=False
    )
    answer = json.loads(done.stdout)
    return done.returncode == 0 and not answer["rows"]


def test_a_session_becomes_the_documented_markdown(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    found = verbs("ledger summary", session=FIRST)
    assert (found.applied, found.data["events"], found.data["tasks"]) == (True, 3, 1)
    stamps = [row["ts"] for row in verbs.rows("ledger list")]
    assert text(verbs) == "\n".join(
        [
            f"# RIO Session Summary: {FIRST}",
            "",
            "**Date:** 2023-11-14",
            "**Total Events:** 3",
            "",
            "## Timeline",
            "",
            f"- **{stamps[0]}** [task_start] Starting task",
            "  - Task: `wo-123`",
            f"- **{stamps[1]}** [task_result] Task completed",
            "  - Task: `wo-123`",
            f"- **{stamps[2]}** [error] Task failed",
            "  - Task: `wo-123`",
            "",
            "## Tasks Completed",
            "",
            "- **wo-123**: Task completed",
            "  - Status: success",
            "  - Duration: 120s",
            "",
            "## Errors",
            "",
            f"- **{stamps[2]}** Task failed: Timeout after 300s",
            "  - Task: `wo-123`",
            "",
            "## Notes",
            "",
            "_Session summary generated from ledger entries._",
            "",
        ]
    )
    assert is_valid(Path(verbs.path, "memory"))


def test_entries_of_another_system_older_than_their_sessions_name_are_summed_up(
    verbs: Verbs, tmp_path: Path
) -> None:
    early = [
        entry(number, ts=f"2025-11-{day}T21:00:00+07:00", session_id=f"2025-11-16_cls_{session}")
        for number, (day, session) in enumerate([("14", "001"), ("15", "001"), ("15", "002")])
    ]
    put(tmp_path / "tree/g/ledger/cls/2025-11-16.jsonl", lines(early))
    verbs("import", src=str(tmp_path / "tree"))
    found = verbs("ledger summary", day="2025-11-15", agent="cls").rows
    assert [(each["session_id"], each["events"]) for each in found] == [
        ("2025-11-16_cls_001", 2),
        ("2025-11-16_cls_002", 1),
    ]
    for name, events in (("001", 2), ("002", 1)):
        one = verbs("ledger summary", session=f"2025-11-16_cls_{name}", dry_run=True)
        assert one.data["events"] == events


def test_nothing_to_tell_is_said(verbs: Verbs) -> None:
    verbs.write("", event="heartbeat")
    verbs("ledger summary", session=FIRST)
    assert text(verbs).count("(none)") == 2


def test_a_duration_that_nobody_told_is_taken_from_the_ledger(verbs: Verbs, clock: Turner) -> None:
    verbs.write("a", event="task_start", task="wo-1")
    clock.advance(90)
    verbs.write("b", event="task_result", task="wo-1", data='{"status":"failure"}')
    verbs("ledger summary", session=FIRST)
    assert "  - Status: failure\n  - Duration: 90s\n" in text(verbs)


def test_entries_that_came_later_are_in_the_next_one(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    verbs("ledger summary", session=FIRST)
    assert verbs("ledger summary", session=FIRST).data["state"] == "unchanged"

    verbs.write("One more")
    again = verbs("ledger summary", session=FIRST)
    assert again.data["state"] == "brought up to date"
    assert "**Total Events:** 4" in text(verbs)
    assert "One more" in text(verbs)
    assert not verbs.warnings
    assert len(files(verbs, "*")) == 1


@pytest.mark.parametrize("edit", ["\nMy own note.\n", None])
def test_what_a_person_edited_is_kept_beside_and_reported(
    verbs: Verbs, clock: Turner, edit: str | None
) -> None:
    session(verbs, clock)
    verbs("ledger summary", session=FIRST)
    file = Path(verbs.path, f"memory/rio/sessions/{FIRST}.md")
    mine = text(verbs) + edit if edit else text(verbs).replace("Task failed", "Nothing happened")
    file.write_text(mine, encoding="utf-8")

    for count in (1, 2):
        found = verbs("ledger summary", session=FIRST)
        assert "My own" not in text(verbs)
        assert "Nothing happened" not in text(verbs)
        kept = files(verbs, "*.edited-*")
        assert [each.read_text(encoding="utf-8") for each in kept] == [mine]
        assert bool(found.data["kept_aside"]) is (count == 1)
        assert any("edited by hand" in each for each in verbs.warnings) is (count == 1)


def test_a_file_that_is_no_text_is_kept_too(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    file = Path(verbs.path, f"memory/rio/sessions/{FIRST}.md")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\xff\x00")
    verbs("ledger summary", session=FIRST)
    assert [each.read_bytes() for each in files(verbs, "*.edited-*")] == [b"\xff\x00"]


def test_a_session_over_midnight_is_one_summary_of_both_days(verbs: Verbs, clock: Turner) -> None:
    verbs.write("Late", event="task_start", task="wo-1")
    clock.advance(DAY)
    verbs.write("Early", event="task_result", task="wo-1", data='{"status":"success"}')
    verbs.write("Fresh", session="new")
    today = verbs.rows("ledger summary", day="today")
    assert [row["session_id"] for row in today] == [FIRST, "2023-11-15_rio_001"]
    assert [row["session_id"] for row in verbs.rows("ledger summary", day="yesterday")] == [FIRST]
    assert "Late" in text(verbs)
    assert "Early" in text(verbs)
    assert "**Date:** 2023-11-14\n**Total Events:** 2" in text(verbs)
    assert is_valid(Path(verbs.path, "memory"))


def test_yesterday_just_after_midnight_is_yesterday_in_the_zone_of_the_home(
    verbs: Verbs, clock: Turner
) -> None:
    five_past = 1_700_067_900.0
    """2023-11-16T00:05 at +07:00, still the 15th in UTC."""
    clock.advance(five_past - 600 - clock.now())
    verbs.write("Ten minutes ago")
    clock.advance(600)
    verbs.write("Now")
    rows = verbs.rows("ledger summary", day="yesterday", all_=True)
    assert [row["session_id"] for row in rows] == ["2023-11-15_rio_001"]
    assert "Ten minutes ago" in text(verbs, "2023-11-15_rio_001")
    assert verbs("ledger summary", day="2023-11-15").counts["day"] == "2023-11-15"


def test_a_day_is_that_of_every_agent_or_of_one(verbs: Verbs, clock: Turner) -> None:
    for agent in ("rio", "clay"):
        session(verbs, clock, agent)
    both = [row["agent"] for row in verbs.rows("ledger summary", day="today")]
    assert both == ["clay", "rio"]
    assert [row["agent"] for row in verbs.rows("ledger summary", day="today", agent="rio")] == [
        "rio"
    ]


HOSTILE = [
    "`code` | pipe | **bold** _it_ <b>html</b> &amp; [link](x)",
    "## Errors\n\n- **2023-11-14T00:00:00Z** forged",
    "# RIO Session Summary: 2023-11-14_rio_999",
    "\u2028line\u2029 \x1b[31m red \t tab \r",
    "  - Status: success",
    "---\n***\n```\nfence\n",
    "(none)",
    "\\`\\n",
]


def test_hostile_text_forges_nothing_and_comes_back(verbs: Verbs) -> None:
    for each in HOSTILE:
        verbs.write(each, event="task_result", task=each, data='{"status":"success"}')
        verbs.write(each, event="error", task="wo-1")
    verbs("ledger summary", session=FIRST)
    reading = parse(text(verbs))
    record = reading.record
    assert isinstance(record, SessionSummary)
    assert not reading.findings
    assert [item.summary for item in record.timeline] == [t for t in HOSTILE for _ in range(2)]
    assert [(done.task_id, done.summary) for done in record.tasks_completed] == [
        (each, each) for each in HOSTILE
    ]
    assert [error.summary for error in record.errors] == HOSTILE
    headings = [line for line in text(verbs).split("\n") if line.startswith("#")]
    assert len(headings) == 5
    assert is_valid(Path(verbs.path, "memory"))
    assert verbs("ledger summary", session=FIRST).data["state"] == "unchanged"


def test_a_dry_run_prints_and_writes_nothing(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    shown = verbs("ledger summary", session=FIRST, dry_run=True)
    assert shown.text.startswith(f"# RIO Session Summary: {FIRST}")
    of_day = verbs("ledger summary", day="today", dry_run=True)
    assert list(of_day.plain) == shown.text.split("\n")
    assert not Path(verbs.path, "memory").exists()


def test_out_is_any_file_and_follows_the_same_rules(
    verbs: Verbs, clock: Turner, tmp_path: Path
) -> None:
    session(verbs, clock)
    out = tmp_path / "today.md"
    assert verbs("ledger summary", session=FIRST, out=str(out)).target == str(out)
    verbs.write("One more")
    verbs("ledger summary", session=FIRST, out=str(out))
    assert "One more" in out.read_text(encoding="utf-8")
    assert not verbs.warnings
    out.write_text("mine", encoding="utf-8")
    verbs("ledger summary", session=FIRST, out=str(out))
    assert [each.read_text() for each in tmp_path.glob("today.md.edited-*")] == ["mine"]
    assert not Path(verbs.path, "memory").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"session": FIRST, "day": "today"},
        {"session": FIRST, "agent": "rio"},
        {"day": "today", "out": "x.md"},
        {"day": "today", "agent": "rio", "all_": True},
        {"day": "tomorrow"},
        {"day": "2023-02-30"},
    ],
)
def test_a_wrong_call_is_refused(verbs: Verbs, clock: Turner, wrong: dict[str, Any]) -> None:
    session(verbs, clock)
    with refused(UsageError):
        verbs("ledger summary", **wrong)


def test_a_session_that_never_was_is_not_found(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    with refused(NotFound, "2023-11-14_rio_002"):
        verbs("ledger summary", session="2023-11-14_rio_002")


def test_packed_days_are_summed_up_as_before(verbs: Verbs, clock: Turner) -> None:
    session(verbs, clock)
    clock.advance(DAY)
    verbs.write("Next day")
    before = verbs("ledger summary", session=FIRST, dry_run=True).text
    assert verbs("ledger archive").counts["files"] == 1
    assert verbs("ledger summary", session=FIRST, dry_run=True).text == before


def test_a_foreign_tree_is_summed_up_where_it_lies(clock: Turner, tmp_path: Path) -> None:
    tree = luka(tmp_path / "tree")
    verbs = Verbs(str(tree), clock, layout="luka")
    rows = verbs.rows("ledger list", agent="cls", limit=0)
    ids = {row["session_id"] for row in rows if row.get("session_id")}
    name = min(each for each in ids if "_cls_" in each)
    shown = verbs("ledger summary", session=name, dry_run=True)
    assert shown.data["events"] == sum(row.get("session_id") == name for row in rows) > 0
    with refused(ConfigError, "only looked at"):
        verbs("ledger summary", session=name)
    out = tmp_path / f"{name}.md"
    verbs("ledger summary", session=name, out=str(out))
    assert is_valid(out)


def test_imported_entries_are_part_of_it(verbs: Verbs, tmp_path: Path) -> None:
    tree = luka(tmp_path / "tree")
    verbs("import", src=str(tree))
    rows = verbs.rows("ledger list", agent="cls", limit=0)
    name = "2025-11-16_cls_001"
    found = verbs("ledger summary", session=name)
    assert found.data["events"] == sum(row.get("session_id") == name for row in rows) == 3
    kept = Path(verbs.path, found.data["kept_aside"])
    assert kept.read_bytes() == (tree / f"memory/cls/sessions/{name}.md").read_bytes()
    assert is_valid(Path(verbs.path, f"memory/cls/sessions/{name}.md"))


def test_the_command_says_where_it_is(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.write("Hello")
    (name,) = {row["session_id"] for row in shell("ledger", "list", "--json").rows()}
    ran = shell("ledger", "summary", name)
    assert (ran.code, ran.err) == (0, "")
    assert f"memory/cls/sessions/{name}.md" in ran.out
    assert shell("ledger", "summary", name, "--dry-run").out.startswith("# CLS Session Summary")
    assert shell("ledger", "summary", "2020-01-01_cls_001").code == 4

"""`status`: who is busy, idle, failing, silent or unknown."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.agent import Agent, Start
from holdfast.clock import utc_stamp
from holdfast.errors import ConfigError, NotFound
from holdfast.process import this_process
from holdfast.store.home import Home
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import Shell, Verbs, on_its_own, status_on_disk


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    return made


def standing(verbs: Verbs, agent: str = "rio") -> dict[str, Any]:
    [row] = verbs.rows("status", agent=agent)
    return row


def test_a_row_has_the_fields_of_status_json_and_what_they_mean_now(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    clock.advance(30)
    row = standing(verbs)
    assert row == {
        "agent": "rio",
        "state": "busy",
        "last_heartbeat": "2023-11-14T12:00:00+00:00",
        "last_task_id": "wo-1",
        "session_id": "2023-11-14_rio_001",
        "last_error": None,
        "recorded_state": "busy",
        "session": "2023-11-14_rio_001",
        "sessions": [],
        "age": 30,
        "task": "wo-1",
        "inbox": 0,
        "inbox_high": 0,
        "cost": None,
        "cost_today_usd": 0.0,
        "cost_today_known_usd": 0.0,
        "cost_today_unknown": 0,
        "report": None,
        "parked": [],
        "note": "",
        "trouble": None,
        "troubles": [],
    }


def test_an_agent_that_is_silent_too_long_is_offline_and_its_file_stays(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("fine")
    before = Path(verbs.path, "state/rio/status.json").read_bytes()
    clock.advance(300)
    assert standing(verbs)["state"] == "idle"
    clock.advance(300)
    row = standing(verbs)
    assert (row["state"], row["recorded_state"], row["age"]) == ("offline", "idle", 600)
    assert Path(verbs.path, "state/rio/status.json").read_bytes() == before
    verbs.write("", event="heartbeat")
    assert standing(verbs)["state"] == "idle"


def test_an_agent_that_fell_silent_at_work_is_offline_while_busy(
    verbs: Verbs, clock: Turner
) -> None:
    verbs.write("go", event="task_start", task="wo-9")
    clock.advance(600)
    row = standing(verbs)
    assert (row["state"], row["note"]) == ("offline", "offline while busy on wo-9")
    assert status_on_disk(verbs.path, "rio")["state"] == "busy"


def test_an_agent_in_error_says_why_also_when_it_is_offline(verbs: Verbs, clock: Turner) -> None:
    verbs.write("x", event="error", data='{"error": "disk full"}')
    assert (standing(verbs)["state"], standing(verbs)["note"]) == ("error", "disk full")
    clock.advance(600)
    assert (standing(verbs)["state"], standing(verbs)["note"]) == ("offline", "disk full")


def test_an_agent_never_heard_of_is_unknown_not_offline(verbs: Verbs, clock: Turner) -> None:
    verbs("init", agent=["rio"])
    clock.advance(1_000_000)
    row = standing(verbs)
    assert (row["state"], row["age"], row["note"]) == ("unknown", None, "no events yet")


def test_an_agent_heard_of_in_the_future_is_flagged(verbs: Verbs, clock: Turner) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    clock.step(-30)
    assert "future" not in standing(verbs)["note"], "clocks of machines differ a little"
    clock.step(-3600)
    row = standing(verbs)
    assert row["state"] == "busy"
    assert "in the future" in row["note"]
    assert "clock" in row["note"]


def test_the_settings_decide_how_long_silence_is_fine(verbs: Verbs, clock: Turner) -> None:
    settings = Path(verbs.path, "holdfast.toml")
    text = settings.read_text(encoding="utf-8")
    verbs.write("fine")
    clock.advance(3000)
    for value, state in (('"1h"', "idle"), ('"45m"', "offline"), ("3001", "idle")):
        settings.write_text(text.replace('"300s"', value), encoding="utf-8")
        assert standing(verbs)["state"] == state
    settings.write_text(text.replace('"300s"', '"soon"'), encoding="utf-8")
    with refused(ConfigError, "offline_after"):
        verbs("status")


def test_every_agent_has_a_row_and_states_are_counted(verbs: Verbs, clock: Turner) -> None:
    verbs.write("old", agent="silent")
    clock.advance(600)
    verbs("init", agent=["Newcomer"])
    verbs.write("go", agent="worker", event="task_start", task="wo-1")
    verbs.write("x", agent="failing", event="error")

    found = verbs("status")
    assert [(row["agent"], row["state"]) for row in found.rows] == [
        ("failing", "error"),
        ("newcomer", "unknown"),
        ("silent", "offline"),
        ("worker", "busy"),
    ]
    states = {"busy": 1, "error": 1, "offline": 1, "unknown": 1}
    assert found.counts == {"agents": 4, **states, "attention": 1}
    assert found.exit_code == 1, "one of them is in error"


def test_an_unknown_agent_is_not_found_and_those_there_are_are_named(verbs: Verbs) -> None:
    with pytest.raises(NotFound) as caught:
        verbs("status", agent="rio")
    assert "holdfast init" in (caught.value.hint or "")
    verbs.write("text", agent="clay")
    with pytest.raises(NotFound) as caught:
        verbs("status", agent="rio")
    assert "clay" in (caught.value.hint or "")


def test_a_status_edited_by_hand_is_kept_aside_and_does_not_count(verbs: Verbs, path: str) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    file = Path(path, "state/rio/status.json")
    edited = file.read_bytes().replace(b"busy", b"idle")
    file.write_bytes(edited)

    assert standing(verbs)["state"] == "busy"
    verbs.write("still at it", event="heartbeat")
    assert status_on_disk(path, "rio")["state"] == "busy"
    [aside] = file.parent.glob("status.json.edited-*")
    assert aside.read_bytes() == edited


def test_people_see_how_long_ago_in_words_and_no_raw_seconds(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", "rio", "--timezone", "UTC")
    file = shell.home / "ledger/rio/2023-11-14.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(
        '{"ts":"2023-11-14T12:00:00Z","agent":"rio","event":"task_start","task_id":"wo-9"}\n',
        encoding="utf-8",
    )
    ran = shell("status")
    assert ran.code == 1
    header, line = ran.out.splitlines()
    columns = ["AGENT", "STATE", "SESSION", "AGE", "TASK", "INBOX", "COST", "TROUBLE"]
    assert header.split() == columns
    assert line.split()[:2] == ["rio", "offline"]
    assert line.endswith("offline while busy on wo-9")
    assert line.split()[3].endswith("d"), "an age of years is told in days"


# --- the fleet ------------------------------------------------------------------------------


FLEET = ("astra", "clay", "leo", "rio", "theseus", "vida")


@pytest.fixture
def fleet(tmp_path: Path) -> Shell:
    """Six agents: one report is missing, one corrupt, one three days old."""
    shell = Shell(tmp_path)
    assert shell("init", *FLEET, "--timezone", "UTC").code == 0
    state = shell.home / "state"
    (state / "clay/report.json").unlink()
    (state / "leo/report.json").write_bytes(b'{"agent": "leo", ')
    report = json.loads((state / "vida/report.json").read_bytes())
    report["updated_at"] = utc_stamp(time.time() - 3 * DAY)
    (state / "vida/report.json").write_text(json.dumps(report), encoding="utf-8")
    return shell


def test_all_six_are_listed_whatever_became_of_their_reports(fleet: Shell) -> None:
    ran = fleet("status", "--json")
    assert ran.code == 1
    rows = {row["agent"]: row for row in ran.rows()}
    assert {agent: row["report"] for agent, row in rows.items()} == {
        "astra": "ok",
        "clay": "missing",
        "leo": "unreadable",
        "rio": "ok",
        "theseus": "ok",
        "vida": "stale",
    }
    assert rows["clay"]["troubles"] == ["report.json missing"]
    assert rows["leo"]["troubles"][0].startswith("report.json unreadable: not JSON")
    assert rows["vida"]["troubles"] == ["stale: report 3d old"]
    assert json.loads(ran.out)["counts"]["attention"] == 3


def test_the_table_of_the_fleet_fits_a_hundred_columns(fleet: Shell) -> None:
    fleet("session", "start", "--agent", "rio", "--type", "research")
    fleet("session", "start", "--agent", "rio", "--type", "extract", "--role", "miner")
    ran = fleet("status")
    assert ran.code == 1
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == list(FLEET)
    assert max(map(len, ran.out.splitlines())) <= 100
    for words in ("report.json missing", "report.json unreadable", "stale: report 3d old"):
        assert words in ran.out


def test_a_fleet_without_trouble_is_exit_code_0(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell("init", *FLEET)
    assert shell("status").code == 0


def test_looking_at_the_fleet_writes_nothing(fleet: Shell) -> None:
    fleet("session", "start", "--agent", "rio")
    fleet("session", "end", "--agent", "rio", "--outcome", "error", "--error", "no key")

    def everything() -> dict[str, tuple[int, bytes]]:
        files = [file for file in fleet.home.rglob("*") if file.is_file()]
        return {str(file): (file.stat().st_mtime_ns, file.read_bytes()) for file in files}

    before = everything()
    fleet("status")
    fleet("status", "rio")
    fleet("agent", "list", "--by", "health")
    fleet("agent", "show", "rio")
    assert everything() == before


@pytest.mark.parametrize(
    ("setting", "report"),
    [("", "ok"), ('stale_after = "1h"', "stale"), ("stale_after = 90", "stale")],
)
def test_the_settings_decide_when_a_report_is_stale(
    verbs: Verbs, clock: Turner, setting: str, report: str
) -> None:
    verbs("init", agent=["rio"])
    settings = Path(verbs.path, "holdfast.toml")
    settings.write_text(f"{setting}\n{settings.read_text('utf-8')}", encoding="utf-8")
    clock.advance(DAY)
    assert standing(verbs)["report"] == report


@pytest.mark.parametrize("value", ['"soon"', "[1]", "-5", "0"])
def test_a_stale_after_that_is_no_duration_is_refused(verbs: Verbs, value: str) -> None:
    settings = Path(verbs.path, "holdfast.toml")
    settings.write_text(f"stale_after = {value}\n{settings.read_text('utf-8')}", encoding="utf-8")
    with refused(ConfigError, "stale_after"):
        verbs("status")


def test_an_agent_that_writes_to_its_ledger_only_is_not_stale(verbs: Verbs, clock: Turner) -> None:
    verbs("init", agent=["rio"])
    clock.advance(30 * DAY)
    verbs.write("fine")
    assert (standing(verbs)["report"], standing(verbs)["troubles"]) == ("ok", [])
    verbs.write("fine", agent="cls")
    assert standing(verbs, "cls")["report"] is None, "it never had a state of its own"


def test_two_roles_of_one_agent_are_both_seen(verbs: Verbs) -> None:
    verbs("session start", agent="rio", type="research")
    verbs("session start", agent="rio", type="extract", role="miner", task="wo-9")
    row = standing(verbs)
    assert [(each["type"], each["role"], each["status"]) for each in row["sessions"]] == [
        ("research", None, "running"),
        ("extract", "miner", "running"),
    ]
    assert row["session"] == "001 research, 002 as miner"
    assert (row["state"], row["task"]) == ("busy", "wo-9")
    plain = "\n".join(verbs("status", agent="rio").plain)
    assert "2023-11-14_rio_001 research: running" in plain
    assert "2023-11-14_rio_002 extract as miner: running" in plain


def test_a_session_whose_process_is_gone_is_crashed_before_that_is_on_record(
    verbs: Verbs,
) -> None:
    with Home.open(verbs.path, clock=verbs.clock) as home, Agent(home, "rio") as rio:
        rio.start(Start("research"), owner=this_process()._replace(started=1))
    found = verbs("status")
    [row] = found.rows
    assert (row["state"], row["recorded_state"], found.exit_code) == ("crashed", "busy", 1)
    assert [each["status"] for each in row["sessions"]] == ["crashed"]
    assert row["trouble"] == "session crashed"
    assert "running" not in "\n".join(verbs("status", agent="rio").plain)


def test_a_failed_session_is_shown_with_what_it_said(verbs: Verbs) -> None:
    verbs("session start", agent="rio")
    verbs("session end", agent="rio", outcome="error", error="no key for the feed")
    assert (standing(verbs)["state"], standing(verbs)["troubles"]) == (
        "error",
        ["no key for the feed"],
    )
    verbs("session start", agent="rio")
    assert standing(verbs)["troubles"] == []


def test_one_crashed_role_does_not_make_the_other_one_crashed(verbs: Verbs) -> None:
    with Home.open(verbs.path, clock=verbs.clock) as home, Agent(home, "rio") as rio:
        rio.start(Start("research"), owner=this_process())
        rio.start(Start("extract", "miner"), owner=this_process()._replace(started=1))
        row = standing(verbs)
    assert (row["state"], row["trouble"]) == ("busy", "session crashed as miner")


def test_a_session_that_outlived_its_time_is_crashed(verbs: Verbs, clock: Turner) -> None:
    verbs("session start", agent="rio", timeout="10m")
    clock.advance(650)
    assert standing(verbs)["state"] == "offline"
    clock.advance(60)
    assert standing(verbs)["state"] == "crashed"


def test_the_cost_of_today_is_that_of_sessions_that_ended_today(
    verbs: Verbs, clock: Turner
) -> None:
    def session(**said: Any) -> None:
        verbs("session start", agent="rio")
        verbs("session end", agent="rio", outcome="completed", **said)

    session(cost=9.0)
    clock.advance(DAY)
    assert (standing(verbs)["cost"], standing(verbs)["cost_today_usd"]) == (None, 0.0)
    session(cost=0.25)
    session(cost=0.5)
    assert (standing(verbs)["cost"], standing(verbs)["cost_today_usd"]) == ("0.75", 0.75)
    session()
    row = standing(verbs)
    assert (row["cost"], row["cost_today_usd"]) == ("0.75+?", None)
    assert (row["cost_today_known_usd"], row["cost_today_unknown"]) == (0.75, 1)
    verbs("session set", agent="rio", cost=0.25)
    assert (standing(verbs)["cost"], standing(verbs)["cost_today_usd"]) == ("1.00", 1.0)


def test_a_cost_that_nobody_told_is_unknown_not_nothing(verbs: Verbs) -> None:
    verbs("session start", agent="rio")
    verbs("session end", agent="rio", outcome="completed")
    row = standing(verbs)
    assert (row["cost"], row["cost_today_usd"]) == ("?", None)


def test_days_begin_at_midnight_of_the_home(path: str, tmp_path: Path, clock: Turner) -> None:
    verbs = Verbs(path, clock)  # it is 12:00 in UTC, 23:30 where the home is
    verbs("init", timezone="+11:30")
    verbs("session start", agent="rio")
    verbs("session end", agent="rio", outcome="completed", cost=1.0)
    assert standing(verbs)["cost_today_usd"] == 1.0
    clock.advance(1800)
    assert standing(verbs)["cost_today_usd"] == 0.0


def test_waiting_messages_are_counted_and_urgent_ones_apart(verbs: Verbs, path: str) -> None:
    verbs("init", agent=["rio"])
    with Home.open(path, clock=verbs.clock) as home:
        box = home.mailbox("state/rio/inbox")
        for priority in ("high", "normal", "high"):
            box.deliver({"from": "leo", "to": "rio", "subject": "x"}, priority=priority)
        box.claim("rio", fence=1, seconds=60)
        box.close()
    row = standing(verbs)
    assert (row["inbox"], row["inbox_high"]) == (2, 1)
    inbox = Path(path, "state/rio/inbox")
    (inbox / "dropped.json").write_text('{"from": "leo", "priority": "high"}', encoding="utf-8")
    (inbox / ".hidden.json").write_text("{}", encoding="utf-8")
    row = standing(verbs)
    assert (row["inbox"], row["inbox_high"]) == (3, 2)


def test_lines_that_are_gone_and_lines_that_are_damaged_are_trouble(verbs: Verbs) -> None:
    verbs("init", agent=["rio", "clay"])
    for agent in ("rio", "clay"):
        verbs("session start", agent=agent)
    file = Path(verbs.path, "state/rio/journal.jsonl")
    file.write_bytes(file.read_bytes()[:-200])
    assert "journal: lines lost" in standing(verbs)["troubles"]
    with Path(verbs.path, "state/clay/journal.jsonl").open("ab") as journal:
        journal.write(b"no JSON\n")
    assert "journal: 1 damaged lines" in standing(verbs, "clay")["troubles"]


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"[1]", b"\xff", b'{"agent": "rio"}', b'{"updated_at": 7}', b"\0" * 64]
)
def test_a_report_that_says_nothing_is_unreadable_with_the_reason(
    verbs: Verbs, content: bytes
) -> None:
    verbs("init", agent=["rio"])
    Path(verbs.path, "state/rio/report.json").write_bytes(content)
    row = standing(verbs)
    assert row["report"] == "unreadable"
    assert len(row["troubles"][0]) > len("report.json unreadable: ")


def test_a_report_that_is_a_link_or_a_folder_is_unreadable(verbs: Verbs) -> None:
    verbs("init", agent=["rio", "clay"])
    for agent in ("rio", "clay"):
        Path(verbs.path, f"state/{agent}/report.json").unlink()
    Path(verbs.path, "state/rio/report.json").symlink_to("/etc/passwd")
    Path(verbs.path, "state/clay/report.json").mkdir()
    assert {row["report"] for row in verbs.rows("status")} == {"unreadable"}


@pytest.mark.parametrize("name", ["state/rio/journal.jsonl", "ledger/rio/2023-11-14.jsonl"])
def test_a_log_that_is_no_file_is_trouble_of_that_agent_alone(verbs: Verbs, name: str) -> None:
    for agent in ("rio", "clay"):
        verbs("init", agent=[agent])
        verbs.write("text", agent=agent)
    file = Path(verbs.path, name)
    file.unlink()
    file.symlink_to("/dev/zero")
    rows = {row["agent"]: row for row in verbs.rows("status")}
    assert rows["clay"]["troubles"] == []
    assert any("regular file" in each for each in rows["rio"]["troubles"])


def test_agents_of_another_system_are_seen_by_their_reports(
    path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    for agent, status, when in (
        ("rio", "researching", "2023-11-14T11:59:00Z"),
        ("Clay", "idle", "2023-11-11T12:00:00Z"),
        ("leo", "error", "2023-11-14T11:59:30Z"),
    ):
        folder = Path(path, agent)
        folder.mkdir(parents=True)
        report = {"agent": agent.lower(), "updated_at": when, "status": status, "summary": "Key?"}
        report["last_session"] = {"id": "20231114-100000"}  # pyright: ignore[reportArgumentType]
        (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    rows = {row["agent"]: row for row in Verbs(path, clock, "teleo").rows("status")}
    assert {agent: (row["state"], row["report"]) for agent, row in rows.items()} == {
        "rio": ("busy", "ok"),
        "clay": ("offline", "stale"),
        "leo": ("error", "ok"),
    }
    assert rows["leo"]["trouble"] == "Key?"


def test_a_ledger_that_was_removed_is_missed(verbs: Verbs) -> None:
    verbs.write("go", event="task_start", task="wo-1")
    shutil.rmtree(Path(verbs.path) / "ledger/rio")
    assert standing(verbs)["troubles"] == ["ledger: lines lost"]

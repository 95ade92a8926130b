"""`import`: trees of other systems brought into a home, with nothing made up and nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, NotFound, UsageError
from holdfast.store.failpoints import armed
from holdfast.store.home import Home
from holdfast.store.primitives import Line
from holdfast.testing import DAY, Turner, refused
from tests.ledger.shell import Shell, Verbs, entries_in, on_its_own
from tests.ops.foreign import (
    LAST_STOP,
    NOTES,
    STOPS,
    ap_io,
    entry,
    lines,
    luka,
    message,
    put,
    report,
    snapshot,
    stops,
    tasks,
    teleo,
    teleo_agent,
)
from tests.store.children import fork

APRIL = 1_775_000_000.0
"""2026-03-31T23:33:20Z, after everything in the trees."""


@pytest.fixture
def verbs(path: str, clock: Turner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    on_its_own(monkeypatch, tmp_path)
    clock.advance(APRIL - clock.now())
    made = Verbs(path, clock)
    made("init", timezone="UTC")
    return made


def bring(verbs: Verbs, tree: Path, layout: str | None = None, **more: Any) -> Any:
    verbs.layout = layout
    try:
        return verbs("import", src=str(tree), **more)
    finally:
        verbs.layout = None


def states(found: Any) -> dict[str, str]:
    return {row["file"]: row["state"] for row in found.rows}


def content(home: str) -> dict[str, bytes]:
    """Every file of the home; locks and stamps come and go."""
    files = [each for each in Path(home).rglob("*") if each.is_file() and each.name[0] != "."]
    return {str(each): each.read_bytes() for each in files}


def imports(home: str, agent: str) -> list[dict[str, Any]]:
    """What the lines of a journal say of imports."""
    with Home.open(home) as opened:
        found = opened.log(f"state/{agent}/journal.jsonl").read()
        records = [line.record for line in found if isinstance(line, Line)]
    return [each["imported"] for each in records if each["event"] == "import"]


# --- ledgers --------------------------------------------------------------------------------


def test_entries_of_all_forms_are_listed_next_to_ours_in_the_same_columns(
    verbs: Verbs, tmp_path: Path
) -> None:
    verbs.write("ours", agent="cls", event="task_start", task="wo-ours")
    done = bring(verbs, luka(tmp_path / "tree"))
    assert (done.exit_code, done.counts["layout"], done.counts["entries"]) == (0, "luka", 9)

    rows = verbs.rows("ledger list", agent="cls", limit=0)
    found = [row["task_id"] for row in rows if row["task_id"].startswith("wo-")]
    assert found == ["wo-test-008", "wo-test-009", "wo-test-verify", "wo-1", "wo-1", "wo-ours"]
    for row in rows:
        assert {"ts", "agent", "event", "task_id", "summary", "data", "seq", "file"} <= set(row)
    assert (rows[0]["event"], rows[0]["summary"]) == ("task_start", "work on wo-test-008")
    kept = next(row for row in rows if row["event"] == "task_result")
    assert kept["data"] == {"status": "success", "x": [1, {}]}
    assert verbs.texts(task="wo-test-verify") == ["work on wo-test-verify"]
    assert [row["task_id"] for row in verbs.rows("ledger list", agent="andy", limit=2)][:1] != []


def test_foreign_files_are_kept_byte_for_byte_and_named_in_one_chained_line(
    verbs: Verbs, tmp_path: Path
) -> None:
    tree = luka(tmp_path / "tree")
    bring(verbs, tree)
    (line,) = [each for each in entries_in(verbs.path, "cls") if "imported" in each["data"]]
    assert (line["event"], line["seq"], line["source"]) == ("info", 1, "holdfast import")
    told = {each["path"]: each for each in line["data"]["imported"]["files"]}
    assert set(told) == {"g/ledger/cls/2025-11-16.jsonl", "agents/cls/status.json"}
    for path, each in told.items():
        copy = Path(verbs.path, "ledger/cls/imported", each["name"])
        assert copy.read_bytes() == (tree / path).read_bytes()
    assert verbs("ledger verify").exit_code == 0
    assert verbs("check").exit_code == 0


def test_a_copy_that_was_changed_or_taken_away_is_found(verbs: Verbs, tmp_path: Path) -> None:
    bring(verbs, luka(tmp_path / "tree"))
    (copy,) = Path(verbs.path, "ledger/andy/imported").glob("2025*")
    original = copy.read_bytes()
    copy.write_bytes(original.replace(b"event 1", b"event X"))
    for name in ("ledger verify", "check"):
        found = verbs(name)
        assert found.exit_code == 6
        assert any(copy.name in str(row) for row in found.rows)
    copy.unlink()
    assert verbs("ledger verify", agent="andy").exit_code == 6
    copy.write_bytes(original)
    assert verbs("ledger verify").exit_code == 0


def test_the_source_stays_as_it_was_to_the_last_bit(verbs: Verbs, tmp_path: Path) -> None:
    trees = [luka(tmp_path / "luka"), teleo(tmp_path / "teleo"), stops(tmp_path / "stops")]
    for tree in trees:
        before = snapshot(tree)
        bring(verbs, tree)
        assert snapshot(tree) == before


@pytest.mark.parametrize("make", [luka, teleo, stops])
def test_importing_again_adds_nothing(
    verbs: Verbs, tmp_path: Path, clock: Turner, make: Any
) -> None:
    tree = make(tmp_path / "tree")
    first = bring(verbs, tree)
    assert first.counts["taken"] > 0
    before = content(verbs.path)
    clock.advance(DAY)
    again = bring(verbs, tree)
    assert (again.counts["taken"], again.counts["repaired"], again.exit_code) == (0, 0, 0)
    assert set(states(again).values()) == {"known"}
    assert content(verbs.path) == before


def test_a_file_that_has_grown_takes_the_place_of_what_was_imported_of_it(
    verbs: Verbs, tmp_path: Path
) -> None:
    file = put(tmp_path / "g/ledger/cls/2025-11-16.jsonl", lines([entry(1), entry(1)]))
    bring(verbs, tmp_path)
    with file.open("ab") as appended:
        appended.write(lines([entry(2)]))
    assert bring(verbs, tmp_path).counts["taken"] == 1
    shown = [row["task_id"] for row in verbs.rows("ledger list") if row["task_id"] != "system"]
    assert shown == ["wo-1", "wo-1", "wo-2"]
    assert len(list(Path(verbs.path, "ledger/cls/imported").glob("2025*"))) == 2


def test_duplicates_are_kept_and_can_be_left_out_of_the_list(verbs: Verbs, tmp_path: Path) -> None:
    titles = [entry(number % 60, summary=f"one {number}") for number in range(169)]
    again = [titles[number % 60] for number in range(130)]
    data = lines([*titles, *again])
    put(tmp_path / "g/ledger/cls/2025-11-13.jsonl", data)
    bring(verbs, tmp_path)
    rows = verbs("ledger list", session="2025-11-16_cls_001", limit=0)
    assert len(rows.rows) == 299
    distinct = verbs("ledger list", session="2025-11-16_cls_001", limit=0, dedupe=True)
    assert (len(distinct.rows), distinct.counts["duplicates"]) == (169, 130)
    few = verbs("ledger list", session="2025-11-16_cls_001", limit=10, dedupe=True)
    assert (few.rows, few.truncated) == (distinct.rows[-10:], True)
    (copy,) = Path(verbs.path, "ledger/cls/imported").glob("2025*")
    assert copy.read_bytes() == data


def test_the_status_and_the_sessions_go_on_from_what_was_imported(
    verbs: Verbs, tmp_path: Path
) -> None:
    today = "2026-03-31"
    busy = entry(1, ts=f"{today}T20:00:00Z", session_id=f"{today}_cls_007", event="task_start")
    put(tmp_path / "g/ledger/cls/2026-03-31.jsonl", lines([busy]))
    bring(verbs, tmp_path)
    row = verbs.rows("status", agent="cls")[0]
    assert (row["recorded_state"], row["last_heartbeat"]) == ("busy", busy["ts"])
    assert row["state"] == "offline"  # to bring its history in is no sign of life
    new = verbs.write("ours", agent="cls", session="new").data["session_id"]
    assert int(new.rpartition("_")[2]) > 7


def test_a_status_file_counts_when_it_is_newer_than_the_entries(
    verbs: Verbs, tmp_path: Path
) -> None:
    put(tmp_path / "g/ledger/cls/2025-11-16.jsonl", lines([entry(1)]))
    status = {"agent": "cls", "state": "error", "last_heartbeat": "2025-11-17T02:10:00+07:00"}
    put(tmp_path / "agents/cls/status.json", json.dumps({**status, "last_error": "it broke"}))
    bring(verbs, tmp_path)
    row = verbs.rows("status", agent="cls")[0]
    assert (row["recorded_state"], row["last_error"]) == ("error", "it broke")


def test_damaged_ledgers_are_taken_as_far_as_they_can_be_read(verbs: Verbs, tmp_path: Path) -> None:
    folder = tmp_path / "g/ledger/cls"
    put(folder / "2025-11-01.jsonl", lines([entry(1), b'{"ts": "2025-1']))
    put(folder / "2025-11-02.jsonl", json.dumps(entry(2), indent=2))
    put(folder / "2025-11-03.jsonl", b"#!/bin/zsh\nset -eu\n")
    put(folder / "2025-11-04.jsonl", b"")
    put(folder / "2025-11-05.jsonl", lines([entry(3)]))
    done = bring(verbs, tmp_path)
    assert [states(done)[f"g/ledger/cls/2025-11-0{n}.jsonl"] for n in range(1, 6)] == [
        "repaired",
        "repaired",
        "quarantined",
        "skipped",
        "taken",
    ]
    assert done.exit_code == 1
    assert all(row["detail"] for row in done.rows)
    shown = [row["task_id"] for row in verbs.rows("ledger list") if row["task_id"] != "system"]
    assert shown == ["wo-1", "wo-2", "wo-3"]
    kept = [each.read_bytes() for each in Path(verbs.path, "ledger/cls/imported").glob("2*03.*")]
    assert kept == [b"#!/bin/zsh\nset -eu\n"]
    assert set(states(bring(verbs, tmp_path)).values()) == {"known", "skipped"}
    assert verbs("check").exit_code == 0


def test_a_file_of_several_agents_goes_to_the_one_with_most_entries(
    verbs: Verbs, tmp_path: Path
) -> None:
    flat = {"timestamp": "2025-11-20T01:00:00Z", "event": "overseer_check", "data": {}}
    records = [{**flat, "agent": "Liam", "ledger_id": f"l-{n}"} for n in range(24)]
    records += [{**flat, "agent": "ManualSmoke", "ledger_id": "m-1"}]
    records += [{"event_type": "x", "timestamp": "2025-11-20T02:00:00Z", "status": "ok"}]
    put(tmp_path / "g/ledger/ap_io_v31.jsonl", lines(records))
    done = bring(verbs, tmp_path)
    assert [(row["agent"], row["entries"]) for row in done.rows] == [("liam", 26)]
    assert len(verbs.rows("ledger list", agent="Liam", event="overseer_check")) == 25


@pytest.mark.parametrize("part", ["", "g", "g/ledger", "g/ledger/cls"])
def test_a_part_of_a_tree_is_recognised_by_where_it_lies(
    verbs: Verbs, tmp_path: Path, part: str
) -> None:
    put(tmp_path / "g/ledger/cls/2025-11-16.jsonl", lines([entry(1)]))
    done = bring(verbs, tmp_path / part)
    assert [(row["agent"], row["state"]) for row in done.rows] == [("cls", "taken")]


def test_one_file_and_a_bare_folder_of_days_are_ledgers_too(verbs: Verbs, tmp_path: Path) -> None:
    one = put(tmp_path / "copies/day.jsonl", lines([entry(1), ap_io(1, "wo-8")]))
    assert bring(verbs, one).rows[0]["agent"] == "cls"
    lessons = [{"type": "lesson", "title": "t", "ts": "2025-11-14T01:00:00+0700"}]
    put(tmp_path / "mls/ledger/2025-11-14.jsonl", lines(lessons))
    assert bring(verbs, tmp_path / "mls/ledger").rows[0]["agent"] == "mls"


def test_names_that_are_no_text_are_told_and_left(verbs: Verbs, tmp_path: Path) -> None:
    tree = luka(tmp_path / "tree")
    put(tree / "g/ledger/cls" / os.fsdecode(b"2025-\xff.jsonl"), lines([entry(1)]))
    put(tree / "g/ledger" / os.fsdecode(b"\xfe") / "2025-11-16.jsonl", lines([entry(1)]))
    done = bring(verbs, tree)
    told = [row for row in done.rows if row["detail"] == "its name is not UTF-8"]
    assert [row["state"] for row in told] == ["skipped", "skipped"]
    assert json.dumps(done.as_dict("now"))
    assert done.counts["taken"] == 4


# --- agents' state --------------------------------------------------------------------------


def test_all_seven_entries_of_an_agent_arrive(verbs: Verbs, tmp_path: Path) -> None:
    tree = teleo(tmp_path / "agent-state")
    done = bring(verbs, tree)
    assert (done.exit_code, done.counts["layout"], done.counts["taken"]) == (0, "teleo", 16)
    for name in ("report", "session", "metrics", "tasks"):
        brought = json.loads(Path(verbs.path, f"state/rio/{name}.json").read_bytes())
        assert brought == json.loads((tree / f"rio/{name}.json").read_bytes())
    assert Path(verbs.path, "state/rio/memory.md").read_text("utf-8") == NOTES
    with Home.open(verbs.path, clock=verbs.clock) as home:
        waiting = home.mailbox("state/rio/inbox").waiting()
        assert [each.id for each in waiting] == ["9f1", "9f2"]
        (claim,) = home.mailbox("state/rio/inbox").claim("rio", fence=1, seconds=60)
    assert claim.record == message("rio", 1)
    (told,) = imports(verbs.path, "rio")
    assert told["sessions"] == [
        {
            "session_id": "20260331-220000",
            "started_at": "2026-03-31T20:30:00Z",
            "ended_at": "2026-03-31T22:00:00Z",
            "type": "research",
            "outcome": "completed",
            "sources_archived": 8,
        }
    ]
    (copy,) = Path(verbs.path, "state/rio/imported").glob("journal.jsonl.*")
    assert copy.read_bytes() == (tree / "rio/journal.jsonl").read_bytes()
    assert [row["agent"] for row in verbs.rows("status")] == ["clay", "rio"]
    assert verbs("check").exit_code == 0


def test_what_an_import_writes_is_what_we_would_write(verbs: Verbs, tmp_path: Path) -> None:
    bring(verbs, teleo(tmp_path / "agent-state"))
    bring(verbs, luka(tmp_path / "luka"))
    bring(verbs, stops(tmp_path / "stops"))
    logs = [*Path(verbs.path).rglob("journal.jsonl"), *Path(verbs.path, "ledger").glob("*/*.jsonl")]
    assert len(logs) == 9
    found = verbs("validate", path=[str(each) for each in logs], strict=True)
    assert (found.rows, found.exit_code) == ([], 0)


def test_the_folder_of_one_agent_is_enough(verbs: Verbs, tmp_path: Path) -> None:
    done = bring(verbs, teleo_agent(tmp_path / "rio", "rio"))
    assert {row["agent"] for row in done.rows} == {"rio"}
    assert done.counts["taken"] == 8


def test_values_that_drifted_are_mended_and_told(verbs: Verbs, tmp_path: Path) -> None:
    tree = tmp_path / "agent-state"
    last = {**report("rio")["last_session"], "outcome": '"Completed"', "pr_number": "unknown"}
    odd = report("rio", status="Idle", last_session=last, mood="good")
    put(tree / "rio/report.json", json.dumps(odd))
    (row,) = bring(verbs, tree).rows
    assert row["state"] == "repaired"
    assert "status" in row["detail"]
    assert "last_session.outcome" in row["detail"]
    brought = json.loads(Path(verbs.path, "state/rio/report.json").read_bytes())
    assert (brought["status"], brought["mood"]) == ("idle", "good")
    assert brought["last_session"]["pr_number"] is None
    (copy,) = Path(verbs.path, "state/rio/imported").glob("report*")
    assert json.loads(copy.read_bytes()) == odd


def test_junk_is_quarantined_by_name_and_the_rest_arrives(verbs: Verbs, tmp_path: Path) -> None:
    tree = tmp_path / "agent-state"
    rio = teleo_agent(tree / "rio", "rio")
    put(rio / "inbox/broken.json", '{"id": "x", ')
    put(rio / "inbox/empty.json", "")
    put(rio / "inbox/other.json", json.dumps(message("leo")))
    put(rio / "inbox/evil.json", json.dumps(message("rio", **{"from": "../x"})))
    put(rio / "inbox/x.json.tmp", "{}")
    (rio / "inbox/link.json").symlink_to("/etc/passwd")
    (rio / "inbox/folder.json").mkdir()
    put(rio / "research-journal.md", "# Notes\n")
    put(rio / "report.json", '{"agent": "rio"')
    os.mkfifo(rio / "metrics.fifo")
    done = bring(verbs, tree)
    found = states(done)
    assert found["rio/report.json"] == "quarantined"
    assert [found[f"rio/inbox/{name}.json"] for name in ("broken", "other", "evil")] == [
        "quarantined"
    ] * 3
    skipped = ("rio/inbox/empty.json", "rio/inbox/link.json", "rio/inbox/x.json.tmp")
    assert [found[name] for name in (*skipped, "rio/research-journal.md")] == ["skipped"] * 4
    assert all(row["detail"] for row in done.rows if row["state"] in ("quarantined", "skipped"))
    assert done.exit_code == 1
    inbox = {each.name for each in Path(verbs.path, "state/rio/inbox").glob("*.json")}
    assert inbox == {"9f1.json", "9f2.json"}
    assert not Path(verbs.path, "state/rio/report.json").exists()
    assert Path(verbs.path, "state/rio/metrics.json").exists()
    assert verbs("check").exit_code == 0
    assert set(states(bring(verbs, tree)).values()) == {"known", "skipped"}


def test_a_text_that_somebody_edited_here_is_not_overwritten(
    verbs: Verbs, tmp_path: Path, clock: Turner
) -> None:
    tree = teleo(tmp_path / "agent-state")
    bring(verbs, tree)
    mine = Path(verbs.path, "state/rio/memory.md")
    mine.write_text(NOTES + "- my own line\n", encoding="utf-8")
    put(tree / "rio/memory.md", NOTES + "- a line of theirs\n")
    put(tree / "clay/memory.md", NOTES + "- a line of theirs\n")
    done = bring(verbs, tree)
    assert states(done)["rio/memory.md"] == "skipped"
    assert states(done)["clay/memory.md"] == "taken"
    assert mine.read_text("utf-8").endswith("- my own line\n")
    text = Path(verbs.path, "state/clay/memory.md").read_text("utf-8")
    assert text.endswith("- a line of theirs\n")
    copies = [each.read_bytes() for each in Path(verbs.path, "state/rio/imported").glob("mem*")]
    assert any(each.endswith(b"- a line of theirs\n") for each in copies)


def test_a_name_that_does_not_fit_is_mapped_and_kept(verbs: Verbs, tmp_path: Path) -> None:
    tree = tmp_path / "agent-state"
    teleo_agent(tree / "Lila-v∞", "Lila-v∞")
    teleo_agent(tree / "Rio", "Rio")
    done = bring(verbs, tree)
    assert {row["agent"] for row in done.rows} == {"lila-v-652a61dd", "rio"}
    manifest = json.loads(Path(verbs.path, "state/lila-v-652a61dd/manifest.json").read_bytes())
    assert manifest == {"agent_id": "lila-v-652a61dd", "display_name": "Lila-v∞"}
    brought = json.loads(Path(verbs.path, "state/lila-v-652a61dd/report.json").read_bytes())
    assert brought["agent"] == "lila-v-652a61dd"
    display = json.loads(Path(verbs.path, "state/rio/manifest.json").read_bytes())["display_name"]
    assert display == "Rio"
    assert [row["agent"] for row in verbs.rows("status")] == ["lila-v-652a61dd", "rio"]
    again = bring(verbs, tree)
    assert set(states(again).values()) == {"known"}


def test_a_message_with_a_taken_id_is_kept_beside(verbs: Verbs, tmp_path: Path) -> None:
    one = put(tmp_path / "one/rio/inbox/a.json", json.dumps(message("rio", 1)))
    other = put(tmp_path / "two/rio/inbox/a.json", json.dumps(message("rio", 2)))
    bring(verbs, one.parents[2], "teleo")
    done = bring(verbs, other.parents[2], "teleo")
    assert states(done) == {"rio/inbox/a.json": "skipped"}
    with Home.open(verbs.path, clock=verbs.clock) as home:
        (claim,) = home.mailbox("state/rio/inbox").claim("rio", fence=1, seconds=60)
    assert claim.record == message("rio", 1)


# --- what a stop hook left ------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ops/sessions", "ops_sessions"])
def test_stops_are_grouped_by_id_with_the_last_end_and_no_beginning(
    verbs: Verbs, tmp_path: Path, place: str
) -> None:
    stops(tmp_path / place)
    done = bring(verbs, tmp_path / place)
    assert {row["agent"]: row["entries"] for row in done.rows} == STOPS
    assert done.counts["layout"] == "teleo"
    assert LAST_STOP in next(row["detail"] for row in done.rows if row["agent"] == "2ea8dbcb")
    for id, many in STOPS.items():
        (told,) = imports(verbs.path, id)
        (past,) = told["sessions"]
        assert (past["session_id"], past["started_at"], past["stops"]) == (None, None, many)
        assert len(told["files"]) == many
    assert imports(verbs.path, "2ea8dbcb")[0]["sessions"][0]["ended_at"] == LAST_STOP
    assert not Path(verbs.path, "state/2ea8dbcb/session.json").exists()


def test_new_stops_are_added_and_files_without_fields_are_told(
    verbs: Verbs, tmp_path: Path
) -> None:
    folder = stops(tmp_path / "ops/sessions")
    bring(verbs, tmp_path)
    put(folder / "a.json", '{"id": "9b4ecba9", "ended": "2026-03-07T00:00:00Z", "status": "error"}')
    put(folder / "b.json", '{"id": "9b4ecba9"}')
    put(folder / "c.json", "")
    done = bring(verbs, tmp_path)
    assert (done.counts["taken"], done.counts["known"], done.counts["skipped"]) == (1, 4, 2)
    first, second = imports(verbs.path, "9b4ecba9")
    assert (first["sessions"][0]["stops"], second["sessions"][0]["stops"]) == (2, 1)
    assert second["sessions"][0]["ended_at"] == "2026-03-07T00:00:00Z"


# --- the verb -------------------------------------------------------------------------------


def test_a_dry_run_says_the_same_and_writes_nothing(verbs: Verbs, tmp_path: Path) -> None:
    tree = teleo(tmp_path / "agent-state")
    put(tree / "rio/report.json", "{")
    before = content(verbs.path)
    tried = bring(verbs, tree, dry_run=True)
    assert any("dry run" in warning for warning in verbs.warnings)
    assert content(verbs.path) == before
    done = bring(verbs, tree)
    assert states(tried) == states(done)


def test_a_dry_run_needs_no_home_and_makes_none(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    tree = luka(tmp_path / "tree")
    ran = shell("import", str(tree), "--dry-run", "--json")
    assert (ran.code, ran.json()["counts"]["entries"]) == (0, 9)
    assert not shell.home.exists()
    assert shell("import", str(tree), "--json").json()["counts"]["taken"] == 4
    assert shell.home.exists()


def test_the_command_line_shows_what_became_of_each_file(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    tree = teleo(tmp_path / "agent-state")
    ran = shell("import", str(tree), "--layout", "teleo")
    assert ran.code == 0
    assert "rio/report.json" in ran.out
    listed = shell("status", "--json").rows()
    assert [row["agent"] for row in listed] == ["clay", "rio"]


def test_a_layout_that_was_said_is_believed_and_checked(verbs: Verbs, tmp_path: Path) -> None:
    tree = put(tmp_path / "agents/rio/memory.md", "# Rio\n").parents[1]
    with refused(NotFound, "nothing of a tree of teleo or luka"):
        bring(verbs, tree)
    assert states(bring(verbs, tree, "teleo")) == {"rio/memory.md": "taken"}
    with refused(NotFound, "nothing of a tree of luka"):
        bring(verbs, tree, "luka")
    with refused(ConfigError, "a tree of omc cannot be imported"):
        bring(verbs, tree, "omc")
    with refused(UsageError, "no layout"):
        bring(verbs, tree, "nobody")
    with refused(NotFound, "there is no"):
        bring(verbs, tmp_path / "nowhere")


def test_an_import_goes_into_a_home_of_ours_only(
    tmp_path: Path, clock: Turner, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_its_own(monkeypatch, tmp_path)
    tree = luka(tmp_path / "tree")
    Verbs(str(tree), clock, layout="luka")("init", timezone="UTC")
    with refused(ConfigError, "a tree of luka itself"):
        Verbs(str(tree), clock)("import", src=str(teleo(tmp_path / "agent-state")))


def test_a_home_that_forges_an_import_line_stops_no_verb(verbs: Verbs) -> None:
    for forged in (
        {"imported": 1},
        {"imported": {"files": [1, {"path": 1}], "sessions": {"x": "y"}, "status": {}}},
        {
            "imported": {
                "files": [{"path": "a", "name": "../../../holdfast.toml", "sha256": "0"}],
                "sessions": {"9999-99-99": 1, "2026-03-31": True},
                "status": {"last_heartbeat": "2099-01-01T00:00:00Z", "session_id": 5},
            }
        },
    ):
        verbs.write("forged", event="info", data=json.dumps(forged))
    assert len(verbs.rows("ledger list")) == 3
    assert verbs.rows("status")[0]["state"] in ("idle", "offline")
    verbs.write("ours", session="new")
    assert verbs("ledger verify").exit_code == 0


def is_killed(act: Callable[[], object], point: str, number: int) -> bool:
    """Whether `act`, in a process of its own, came to the point so many times and died there."""
    pid = fork()
    if pid == 0:
        hits = iter(range(1, number))
        try:
            with armed(point, lambda: next(hits, None) or os.kill(os.getpid(), signal.SIGKILL)):
                act()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return status != 0


ALWAYS = ["log.append.unlocked", "log.append.synced", "lease.taken"]
DOCUMENTS = ["document.written", "document.renamed", "view.stamped"]
TEXTS = ["mailbox.linked", "sheet.written", "sheet.swapped"]


@pytest.mark.parametrize(
    ("make", "point"),
    [
        *((luka, point) for point in (*ALWAYS, *DOCUMENTS)),
        *((teleo, point) for point in (*ALWAYS, *DOCUMENTS, *TEXTS)),
        *((stops, point) for point in ALWAYS),
    ],
)
def test_whoever_is_killed_over_an_import_completes_it_by_running_it_again(
    verbs: Verbs, tmp_path: Path, make: Any, point: str
) -> None:
    tree = make(tmp_path / "tree")
    killed = [is_killed(lambda: bring(verbs, tree), point, number) for number in (1, 2, 4)]
    assert killed[0]
    assert bring(verbs, tree).exit_code == 0
    assert verbs("check").exit_code == 0
    assert set(states(bring(verbs, tree)).values()) == {"known"}

    plain = Verbs(str(tmp_path / "plain"), verbs.clock)
    plain("init", timezone="UTC")
    bring(plain, tree)
    assert brought(Path(verbs.path)) == brought(Path(plain.path))


def brought(home: Path) -> dict[str, Any]:
    """What an import brought: all files but logs, and what the logs say without time and order."""
    found: dict[str, Any] = {}
    for file in sorted(each for each in home.rglob("*") if each.is_file()):
        key = str(file.relative_to(home))
        if any(part.startswith(".") for part in key.split("/")) or "/20" in key:
            continue
        if key.endswith(".jsonl"):
            told = [json.loads(line) for line in file.read_bytes().splitlines()]
            files = [each for line in told for each in line.get("imported", {}).get("files", ())]
            found[key] = sorted(json.dumps(each, sort_keys=True) for each in files)
        elif not key.endswith(".history"):
            found[key] = file.read_bytes()
    return found


def test_two_imports_at_once_bring_everything_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    tree = teleo(tmp_path / "tree")
    shell("init")
    words = ("import", str(tree), "--json")
    running = [shell.start(*words) for _ in range(3)]
    taken = 0
    for process in running:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        taken += json.loads(out)["counts"]["taken"]
    assert taken == 16


def test_a_source_that_is_the_home_itself_or_inside_it_is_no_trouble(
    verbs: Verbs, tmp_path: Path
) -> None:
    tree = teleo(tmp_path / "agent-state")
    bring(verbs, tree)
    shutil.copytree(verbs.path, tmp_path / "copy")
    done = bring(verbs, Path(verbs.path, "state"), "teleo")
    assert done.counts["taken"] <= 16
    assert verbs("check").exit_code == 0
    assert json.loads(Path(verbs.path, "state/rio/tasks.json").read_bytes()) == tasks("rio")

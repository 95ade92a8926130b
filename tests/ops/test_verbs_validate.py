"""`validate`: what files are, what is wrong with them, and nothing is changed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli.main import main
from holdfast.contracts.kind import Kind, Origin
from holdfast.contracts.kinds import KINDS
from holdfast.errors import NotFound
from holdfast.ops.context import Context
from holdfast.ops.envelope import Rows
from holdfast.ops.table import TABLE
from holdfast.store.home import Home
from holdfast.validate.check import Ask, judge
from tests.contracts.fixtures import FOLDER, Fixture, fixtures
from tests.contracts.strategies import anything
from tests.ledger.shell import REPO, Verbs

DAMAGED = FOLDER / "damaged"


def validate(*paths: Path | str, **options: Any) -> Rows:
    operation = next(each for each in TABLE.operations if each.name == "validate")
    with Context() as context:
        found = operation.call(context, {"path": [str(path) for path in paths], **options})
    assert isinstance(found, Rows)
    return found


def told(*paths: Path | str, **options: Any) -> list[tuple[str, str, str, int, int]]:
    """Level, code, field, line and times of every row."""
    return [
        (row["level"], row["code"], row["field"], row["line"], row["times"])
        for row in validate(*paths, **options).rows
    ]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*words: str) -> Ran:
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        code = main(["validate", *words])
    return Ran(code, out.getvalue(), err.getvalue())


@pytest.fixture
def nothing_changes(tmp_path: Path) -> Iterator[None]:
    """The damaged files, and what a test found in its directory, are the same afterwards."""

    def state() -> dict[str, Any]:
        files = [path for top in (tmp_path, DAMAGED) for path in top.rglob("*")]
        return {
            str(path): sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            for path in files
            if not path.is_symlink()
        }

    before = state()
    yield
    assert before.items() <= state().items()


def entry(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "ts": f"2026-11-15T08:{number // 60 % 60:02}:{number % 60:02}+07:00",
        "agent": "rio",
        "session_id": "2026-11-15_rio_001",
        "event": "info",
        "task_id": "system",
        "source": "cli",
        "summary": f"Number {number}",
        "data": {},
    } | changes


def write(path: Path, *values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(orjson.dumps(value) + b"\n" for value in values))
    return path


@pytest.fixture
def day(tmp_path: Path) -> Path:
    return tmp_path / "ledger/rio/2026-11-15.jsonl"


# --- files of the ledger format ---------------------------------------------------------------


def test_the_examples_of_the_format_are_clean() -> None:
    found = validate(
        FOLDER / "ledger/1.0-one-of-each.jsonl",
        FOLDER / "ledger/1.0-sealed.jsonl",
        FOLDER / "status/1.0-idle.json",
        FOLDER / "status/1.0-error.json",
        FOLDER / "summary/1.0-with-an-error.md",
        strict=True,
    )
    assert found.rows == []
    assert found.exit_code == 0
    assert found.counts["files"] == 5
    assert found.counts["records"] == 11
    assert (found.counts["ledger@1.0"], found.counts["status@1.0"]) == (8, 2)


def ap_io(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "protocol": "AP/IO",
        "version": "3.1",
        "ledger_id": f"ledger-20251116-0416{number}-cls-1",
        "ts": f"2025-11-15T21:16:{number}+07:00",
        "agent": "cls",
        "correlation_id": f"corr-20251116-{number}",
        "session_id": "2025-11-16_cls_001",
        "event": {
            "type": "task_start",
            "task_id": f"wo-{number}",
            "source": "dispatcher",
            "summary": f"Task {number}",
        },
        "data": {},
        "routing": {"targets": ["cls"], "broadcast": False, "priority": "normal"},
    } | changes


def test_entries_of_ap_io_are_recognised_and_their_days_are_doubted(tmp_path: Path) -> None:
    path = write(tmp_path / "g/ledger/cls/2025-11-16.jsonl", *(ap_io(n) for n in (11, 12, 13)))
    found = validate(path)
    assert found.exit_code == 0
    assert (found.counts["records"], found.counts["errors"]) == (3, 0)
    assert found.counts["ledger@3.1"] == 3
    assert told(path) == [
        ("warning", "form", "", 1, 3),
        ("warning", "date", "ts", 1, 3),
        ("warning", "orphan", "task_id", 1, 3),
    ]
    assert "ts date 2025-11-15 != file date 2025-11-16" in str(found.rows)
    as_ours = validate(path, kind="ledger@1.0")
    assert (as_ours.counts["errors"], as_ours.exit_code) == (12, 1)
    assert {row["field"] for row in as_ours.rows if row["level"] == "error"} == {
        "event",
        "task_id",
        "source",
        "summary",
    }


def test_flat_entries_are_read_and_odd_ones_are_told(tmp_path: Path) -> None:
    lines: list[Any] = [
        {
            "ledger_id": f"322a7c71-11ce-4d0d-a339-3281799953{number:02}",
            "parent_id": None,
            "correlation_id": None,
            "timestamp": f"2025-11-20T07:55:{number:02}.229880Z",
            "agent": "Liam" if number else "ManualSmoke",
            "event": "task_start" if number in (1, 5) else f"milestone_{number}",
            "data": {"note": number},
            "execution_duration_ms": None,
        }
        for number in range(25)
    ]
    lines += [
        {"event_type": f"key_{n}", "timestamp": f"2025-11-21T23:2{n}:17+07:00", "status": "ok"}
        for n in range(3)
    ]
    path = write(tmp_path / "ap_io_v31.jsonl.v_027998a2", *lines)
    found = validate(path)
    assert found.counts["records"] == 28
    by_code = {(level, code, field): times for level, code, field, _, times in told(path)}
    assert by_code["warning", "choice", "event"] == 23
    assert by_code["error", "missing", "agent"] == 3
    assert by_code["warning", "spelling", "agent"] == 25
    assert {key for key in by_code if key[0] == "error"} == {("error", "missing", "agent")}


@pytest.mark.parametrize(
    ("ts", "level"),
    [
        ("2026-11-15T08:48:46+07:00", None),
        ("2026-11-15T08:48:46Z", None),
        ("2026-11-15T08:48:46.229880Z", None),
        ("2026-11-15T08:48:46+0700", "warning"),
        (1794707326, "warning"),
        (1794707326123, "warning"),
        ("2026-11-15T08:48:46", "warning"),
        ("$(date -u +%Y-%m-%dT%H:%M:%SZ)", "error"),
        ("CLS heartbeat 2026-10-31 05:55:53 #2036", "error"),
    ],
)
def test_times_of_every_form_are_read_and_others_are_told(
    day: Path, ts: Any, level: str | None
) -> None:
    found = told(write(day, entry(1, ts=ts)))
    assert found == ([] if level is None else [(level, "time", "ts", 1, 1)])


def test_duplicates_are_counted_and_nothing_is_taken_away(tmp_path: Path) -> None:
    entries = [
        {
            "ts": f"2025-11-13T12:58:{number % 60:02}+0700",
            "type": "solution",
            "title": "Prompt",
            "summary": f"Prompt: {number}",
            "source": {"producer": "clc"},
            "tags": ["learning"],
        }
        for number in range(169)
    ]
    again = [entries[number * 7 % 169] for number in range(130)]
    path = write(tmp_path / "mls/ledger/2025-11-13.jsonl", *entries, *again)
    before = path.read_bytes()
    found = validate(path)
    assert found.counts["records"] == 299
    assert ("warning", "duplicate", "", 170, 130) in told(path)
    renamed = path.rename(tmp_path / "other.txt")
    assert ("warning", "duplicate", "", 170, 130) in told(renamed)
    assert renamed.read_bytes() == before


def test_a_day_of_our_own_is_clean(tmp_path: Path, path: str, home: Home) -> None:
    verbs = Verbs(path, home.clock)
    for number in range(5):
        verbs.write(f"start {number}", agent="rio", event="task_start", task=f"wo-{number}")
        verbs.write(f"end {number}", agent="rio", event="task_result", task=f"wo-{number}")
    found = validate(path, strict=True)
    assert found.rows == []
    assert found.counts["ledger@1.0"] == 10
    assert found.counts["status@1.0"] == 1
    assert found.counts["unchained"] == 0
    (segment,) = Path(path).glob("ledger/rio/*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)

    def rows(*changed: bytes) -> list[tuple[str, str, int]]:
        segment.write_bytes(b"".join(changed))
        found = [row[1:4] for row in told(segment) if row[1] not in ("orphan", "duplicate")]
        segment.write_bytes(b"".join(lines))
        return found

    assert rows(*lines[2:]) == [], "a file may begin in the middle of a chain"
    assert rows(*lines[1:]) == []
    assert rows(*lines[:3], *lines[4:]) == [("seq", "seq", 4), ("chain", "hash", 4)]
    edited = lines[4].replace(b"start 2", b"start 3")
    assert rows(*lines[:4], edited, *lines[5:]) == [("chain", "hash", 5)]
    first = lines[0].replace(b"start 0", b"start 9")
    assert rows(first, *lines[1:]) == [("chain", "hash", 1)]
    added = orjson.dumps(entry(1, ts=json.loads(lines[0])["ts"])) + b"\n"
    assert ("chain", "hash", 4) in rows(*lines[:2], added, *lines[2:])
    assert [row[:2] for row in rows(*lines[:-1], lines[-1] + b"\xff\n")] == [("not_utf8", "")]


def test_lines_of_somebody_else_are_unchained_and_not_bad(path: str, home: Home) -> None:
    verbs = Verbs(path, home.clock)
    verbs.write("one", agent="rio", event="info")
    (segment,) = Path(path).glob("ledger/rio/*.jsonl")
    stamp = json.loads(segment.read_bytes())["ts"]
    theirs = entry(1, ts=stamp, session_id=f"{stamp[:10]}_rio_001")
    with segment.open("ab") as file:
        file.write(orjson.dumps(theirs) + b"\n")
    verbs.write("two", agent="rio", event="info")
    found = validate(segment)
    assert [row["code"] for row in found.rows] == []
    assert found.counts["unchained"] == 1
    assert found.counts["records"] == 3


def test_a_packed_day_is_read_like_any_other(path: str, home: Home, clock: Any) -> None:
    verbs = Verbs(path, clock)
    for number in range(3):
        verbs.write(f"{number}", agent="rio", event="info")
    clock.advance(86400 * 2)
    verbs.write("later", agent="rio", event="info")
    verbs("ledger archive")
    (packed,) = Path(path).glob("ledger/rio/*.jsonl.zst")
    found = validate(Path(path) / "ledger")
    assert found.rows == []
    assert found.counts["ledger@1.0"] == 4
    damaged = bytearray(packed.read_bytes())
    damaged[20] ^= 0xFF
    packed.write_bytes(damaged)
    assert told(packed)[0][:2] == ("error", "packed")


def test_events_that_the_home_lists_are_no_surprise(tmp_path: Path, day: Path) -> None:
    write(day, entry(1, event="deploy"))
    assert [row[:3] for row in told(day)] == [("warning", "choice", "event")]
    assert [row[:3] for row in told(day, strict=True)] == [("error", "choice", "event")]
    settings = tmp_path / "holdfast.toml"
    settings.write_text('format = 1\n[ledger]\nextra_events = ["deploy"]\n', encoding="utf-8")
    assert told(day, strict=True) == []
    assert told(day, kind="ledger@1.0", strict=True) == []
    settings.write_text("nonsense", encoding="utf-8")
    assert [row[:3] for row in told(day)] == [("warning", "choice", "event")]


def test_what_one_entry_cannot_show_is_told(day: Path) -> None:
    write(
        day,
        entry(3, event="task_start", task_id="wo-1"),
        entry(2, agent="clay", session_id="2026-11-15_clay_001"),
        entry(4, session_id="2026-11-15_clay_001"),
        entry(4, session_id="2026-11-15_clay_001"),
        entry(5, ts="2026-11-16T08:00:00+07:00"),
    )
    assert told(day) == [
        ("warning", "orphan", "task_id", 1, 1),
        ("warning", "time_order", "ts", 2, 1),
        ("warning", "agent_path", "agent", 2, 1),
        ("warning", "session_agent", "session_id", 3, 2),
        ("warning", "duplicate", "", 4, 1),
        ("warning", "date", "ts", 5, 1),
    ]
    assert validate(day).exit_code == 0
    assert validate(day, strict=True).exit_code == 1


# --- damaged files ------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_changes")
def test_bad_lines_are_told_with_their_numbers_and_stay() -> None:
    found = validate(DAMAGED / "extra-brackets.jsonl")
    assert found.exit_code == 1
    assert (found.counts["bad_lines"], found.counts["errors"]) == (13, 13)
    (row,) = found.rows
    assert (row["line"], row["times"], row["further"]) == (1, 13, "2-13")


@pytest.mark.usefixtures("nothing_changes")
def test_objects_over_several_lines_are_records_and_told() -> None:
    found = validate(DAMAGED / "pretty.jsonl")
    assert found.counts["records"] == 14
    assert "not line-delimited" in str(found.rows)
    assert validate(DAMAGED / "one-pretty.jsonl").counts["records"] == 1
    assert "not line-delimited" in str(validate(DAMAGED / "one-pretty.jsonl").rows)


def test_a_ledger_of_pretty_objects_is_read_all_the_same(day: Path) -> None:
    day.parent.mkdir(parents=True)
    day.write_text("".join(json.dumps(entry(n), indent=1) + "\n" for n in range(4)), "utf-8")
    assert told(day) == [("error", "not_lines", "", 0, 1)]
    assert validate(day).counts["ledger@1.0"] == 4
    day.write_text(json.dumps([entry(0), entry(1, agent=7)], indent=1), "utf-8")
    assert told(day) == [("error", "not_lines", "", 1, 1), ("error", "type", "agent", 12, 1)]
    day.write_text("[]\n", "utf-8")
    assert told(day) == [("error", "not_lines", "", 1, 1)]


@pytest.mark.usefixtures("nothing_changes")
def test_a_script_over_a_ledger_is_all_bad_lines() -> None:
    found = validate(DAMAGED / "script-over-a-ledger.jsonl")
    assert (found.exit_code, found.counts["bad_lines"], found.counts["records"]) == (1, 24, 0)
    assert found.rows[0]["further"] == "2-24"


@pytest.mark.usefixtures("nothing_changes")
def test_empty_missing_and_torn_are_three_things(tmp_path: Path, day: Path) -> None:
    day.parent.mkdir(parents=True)
    day.touch()
    assert told(day) == [("warning", "empty", "", 0, 1)]
    assert validate(day).exit_code == 0
    assert validate(day, strict=True).exit_code == 1
    missing = tmp_path / "ledger/rio/2026-11-14.jsonl"
    assert told(missing) == [("error", "missing", "", 0, 1)]
    assert validate(missing).exit_code == 2
    assert told(DAMAGED / "torn.jsonl") == [("error", "torn", "", 4, 1)] + [
        row for row in told(DAMAGED / "torn.jsonl") if row[1] == "orphan"
    ]
    assert validate(DAMAGED / "torn.jsonl").counts["records"] == 3
    status = tmp_path / "state/rio/status.json"
    status.parent.mkdir(parents=True)
    status.touch()
    assert told(status) == [("error", "empty", "", 0, 1)]


@pytest.mark.usefixtures("nothing_changes")
def test_several_values_under_the_name_of_a_document_are_told(tmp_path: Path) -> None:
    lines = DAMAGED / "lines-under-a-document-name.json"
    assert ("warning", "several", "", 0, 1) in told(lines)
    assert validate(lines).counts["records"] == 3
    status = {"agent": "rio", "state": "idle", "last_heartbeat": "2026-11-15T08:48:46Z"}
    path = write(tmp_path / "state/rio/status.json", status, status)
    assert told(path) == [("error", "several", "", 2, 1)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbf%s\n", ("warning", "bom", "", 1, 1)),
        (b"%s\r\n", ("warning", "crlf", "", 1, 1)),
        (b"%s", ("warning", "unended", "", 1, 1)),
        (b"%s\n\n", ("warning", "blank", "", 2, 1)),
        (b"%s\n\0\0\0", ("error", "nul", "", 2, 1)),
        (b'%s\n{"a":"\xe4"}\n', ("error", "not_utf8", "", 2, 1)),
        (b'%s\n{"ts":', ("error", "torn", "", 2, 1)),
    ],
)
def test_marks_of_other_systems_and_of_crashes_are_told(
    day: Path, data: bytes, expected: tuple[Any, ...]
) -> None:
    day.parent.mkdir(parents=True)
    day.write_bytes(data % orjson.dumps(entry(1)))
    assert told(day) == [expected]
    assert validate(day).counts["records"] == 1


# --- documents --------------------------------------------------------------------------------


def test_a_list_of_alternatives_is_refused_with_the_allowed_values(tmp_path: Path) -> None:
    status = {
        "agent": "rio",
        "state": "idle | busy | error | offline",
        "last_heartbeat": "2026-11-15T08:48:46Z",
    }
    path = tmp_path / "status.json"
    path.write_text(json.dumps(status, indent=2), "utf-8")
    ran = run(str(path))
    assert ran.code == 1
    assert ran.out == (
        f"{path}:3: state: 'idle | busy | error | offline' is not one of "
        "idle, busy, error, offline\n"
    )
    path.write_text(json.dumps(status | {"state": "idle", "mood": "fine"}, indent=2), "utf-8")
    ran = run(str(path))
    assert ran.code == 0
    assert ran.out == f"{path}:5: mood: warning: not a field of this format; kept\n"


@pytest.mark.skipif(
    "report" not in {each.name for each in KINDS}, reason="there is no kind called report yet"
)
def test_the_example_of_a_report_is_no_report(tmp_path: Path) -> None:
    real = FOLDER / "report/1.0-after-a-session.json"
    value = json.loads(real.read_bytes())
    place = tmp_path / "state" / value["agent"] / "report.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(value), "utf-8")
    assert told(place) == []
    place.write_text(json.dumps(value | {"x-new": 1}), "utf-8")
    assert [row[:3] for row in told(place)] == [("warning", "unknown_field", "x-new")]
    place.write_text(json.dumps(value | {"status": "idle | researching | extracting"}), "utf-8")
    (row,) = validate(place).rows
    assert (row["level"], row["field"]) == ("error", "status")
    assert "researching, extracting" in row["reason"]


def test_a_newer_version_is_told_from_a_wrong_one(tmp_path: Path) -> None:
    status = {"agent": "rio", "state": "idle", "last_heartbeat": "2026-11-15T08:48:46Z"}
    path = write(tmp_path / "status.json", status | {"schema_version": "7.0"})
    assert told(path) == [("error", "newer", "schema_version", 1, 1)]
    assert "update" in validate(path).rows[0]["reason"]


def test_a_file_in_the_wrong_place_is_told_and_read(day: Path) -> None:
    status = {"agent": "rio", "state": "idle", "last_heartbeat": "2026-11-15T08:48:46Z"}
    write(day, status)
    assert told(day) == [("error", "wrong_kind", "", 0, 1)]
    assert validate(day).counts["status@1.0"] == 1


def test_what_nobody_knows_is_an_error_if_it_was_named_and_a_warning_if_not(tmp_path: Path) -> None:
    path = write(tmp_path / "some/thing.json", {"a": 1})
    assert [row[:2] for row in told(path)] == [("error", "unknown_kind")]
    assert [row[:2] for row in told(tmp_path)] == [("warning", "unknown_kind")]
    (row,) = validate(path).rows
    assert "ledger" in row["reason"] and "--kind" in row["reason"]
    assert [row[1] for row in told(path, kind="status")] == ["missing", "missing", "missing"]


def test_markdown_is_read_by_line(tmp_path: Path) -> None:
    text = (FOLDER / "summary/1.0-with-an-error.md").read_text("utf-8")
    path = tmp_path / "memory/rio/sessions/2026-11-15_rio_001.md"
    path.parent.mkdir(parents=True)
    path.write_text(text.replace("120s", "long"), "utf-8")
    (tmp_path / "README.md").write_text("# Hello\n", "utf-8")
    assert told(tmp_path) == [("error", "type", "tasks_completed[0].duration_sec", 16, 1)]
    path.write_bytes(b"# \xff\n")
    assert told(path) == [("error", "not_utf8", "", 1, 1)]
    path.write_text("\n", "utf-8")
    assert told(path) == [("error", "empty", "", 0, 1)]
    assert [row[1] for row in told(tmp_path / "README.md")] == ["unknown_kind"]


# --- many files of one kind ---------------------------------------------------------------------


@pytest.fixture
def drifted(tmp_path: Path) -> Path:
    """A loop whose files use other names, in a folder that begins with a dot."""
    top = tmp_path / "project/.omc/self-improve"
    for number in range(1, 9):
        history = {"round": number, "baseline_score": 1.0, "winner": None, "losers": [{}, {}]}
        write(top / f"state/iteration_history/round_{number}.json", history)
    rows = [{"round": number, "score": 2.0, "approach_family": "data"} for number in range(1, 12)]
    (top / "tracking").mkdir(parents=True)
    (top / "tracking/raw_data.json").write_text(json.dumps(rows), "utf-8")
    return top


def test_drift_over_many_files_is_told_once_for_each_field_with_a_count(drifted: Path) -> None:
    found = validate(drifted.parent.parent)
    first = drifted / "state/iteration_history/round_1.json"
    rows = {(row["code"], row["field"]): row for row in found.rows}
    assert len(rows) == len(found.rows) == 12
    row = rows["missing", "losers[0].plan_id"]
    assert (row["file"], row["line"], row["times"], row["files"]) == (str(first), 1, 16, 8)
    assert rows["renamed", "round"]["files"] == 8
    assert rows["renamed", "[0].score"]["times"] == 11
    assert found.counts["errors"] == 16 * 5 + 8 + 11 * 3
    ran = run(str(drifted.parent))
    assert f"{first}:1: losers[0].plan_id: missing (16 times in 8 files)" in ran.out.splitlines()


def test_every_finding_is_a_line_with_all(drifted: Path) -> None:
    found = validate(drifted, all=True)
    assert len(found.rows) == found.counts["errors"] + found.counts["warnings"]
    places = {(row["file"], row["field"]) for row in found.rows if "losers" in row["field"]}
    assert len(places) == 8 * 2 * 5
    assert {row["times"] for row in found.rows} == {1}


def test_damage_of_logs_is_told_for_each_of_them(path: str, home: Home) -> None:
    verbs = Verbs(path, home.clock)
    for agent in ("rio", "clay"):
        for number in range(3):
            verbs.write(f"{number}", agent=agent, event="info")
    for segment in Path(path).glob("ledger/*/*.jsonl"):
        lines = segment.read_bytes().splitlines(keepends=True)
        segment.write_bytes(lines[0] + lines[2])
    damage = [row for row in validate(Path(path) / "ledger").rows if row["code"] == "chain"]
    assert len({row["file"] for row in damage}) == 2


# --- which files --------------------------------------------------------------------------------


def test_directories_are_walked_in_order_without_what_is_hidden(tmp_path: Path) -> None:
    write(tmp_path / "b/ledger/rio/2026-11-15.jsonl", {"agent": 1, "event": "info", "task_id": ""})
    write(tmp_path / "a/status.json", {"agent": "rio", "state": "?", "last_heartbeat": ""})
    write(tmp_path / "a/.status.json.view", {"x": 1})
    write(tmp_path / ".git/status.json", {"x": 1})
    write(tmp_path / "a/ledger/rio/.lock")
    (tmp_path / "a/picture.png").write_bytes(b"\x89PNG")
    names = [row["file"] for row in validate(tmp_path).rows]
    assert names == sorted(names)
    assert {Path(name).relative_to(tmp_path).as_posix() for name in names} == {
        "a/status.json",
        "b/ledger/rio/2026-11-15.jsonl",
    }
    assert validate(tmp_path).counts["files"] == 2
    assert validate(tmp_path, tmp_path / "a").counts["files"] == 2, "each file once"
    named = tmp_path / "a/.status.json.view"
    assert validate(named).counts["files"] == 1


def test_globs_are_expanded_and_one_without_a_match_is_missing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}/ledger/rio/2026-11-15.jsonl", entry(1))
    assert validate(tmp_path / "*/ledger/rio/*.jsonl").counts["files"] == 2
    assert validate(f"{tmp_path}/**/*.jsonl").counts["files"] == 2
    assert told(tmp_path / "*.nothing") == [("error", "missing", "", 0, 1)]
    odd = write(tmp_path / "[x].jsonl", entry(1))
    assert validate(odd).counts["files"] == 1


def test_what_cannot_be_read_is_told_and_the_rest_is_read(tmp_path: Path, day: Path) -> None:
    write(day, entry(1))
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "dangling.json").symlink_to("nowhere")
    found = validate(tmp_path / "pipe.jsonl", tmp_path / "dangling.json", tmp_path / "gone", day)
    assert [row["code"] for row in found.rows] == ["unreadable", "missing", "missing"]
    assert found.exit_code == 2
    assert found.counts["ledger@1.0"] == 1
    walked = validate(tmp_path)
    assert {row["code"] for row in walked.rows} == {"unreadable", "link"}
    assert [row[1] for row in told(_empty(tmp_path))] == ["nothing"]
    assert validate(_empty(tmp_path)).exit_code == 0


def _empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir(exist_ok=True)
    return path


def test_standard_input_is_known_by_its_content() -> None:
    program = "import sys; from holdfast.cli.main import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "validate", "-", "--json"],
        input=orjson.dumps(entry(1)) + b'\n{"ts":',
        capture_output=True,
        cwd=REPO,
        check=False,
    )
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert found["counts"]["ledger@1.0"] == 1
    assert [(row["file"], row["code"], row["line"]) for row in found["rows"]] == [
        ("<stdin>", "torn", 2)
    ]


@pytest.mark.parametrize("kind", ["nothing", "ledger@9.9", "ledger@"])
def test_a_kind_that_there_is_not_is_refused_with_those_there_are(day: Path, kind: str) -> None:
    with pytest.raises(NotFound) as refused:
        validate(write(day, entry(1)), kind=kind)
    assert "ledger" in str(refused.value.hint)


# --- anything at all ------------------------------------------------------------------------------

JSON_FIXTURES = [each for each in fixtures() if each.kind.shape != "markdown"]


def changed(value: Any, data: st.DataObject) -> Any:
    """The value with something else at one place, somewhere inside."""
    inner = list(value) if isinstance(value, dict) else range(len(value))
    if not inner or data.draw(st.booleans()):
        return data.draw(anything)
    at = data.draw(st.sampled_from(inner))
    copy = dict(value) if isinstance(value, dict) else list(value)
    if isinstance(value[at], dict | list):
        copy[at] = changed(value[at], data)
    else:
        copy[at] = data.draw(anything)
    return copy


@pytest.mark.parametrize("fixture", JSON_FIXTURES, ids=lambda fixture: fixture.name)
@settings(max_examples=10)
@given(data=st.data())
def test_no_change_of_a_record_breaks_the_check(fixture: Fixture, data: st.DataObject) -> None:
    values = [changed(value, data) for value in fixture.values()]
    text = b"".join(orjson.dumps(value) + b"\n" for value in values)
    if fixture.kind.shape == "array":
        text = orjson.dumps(values)
    origin = Origin(f"/home/state/rio/{fixture.path.name}")
    for ask in (Ask(KINDS, fixture.kind), Ask(KINDS, strict=True)):
        report = judge(text, origin, ask)
        assert report.forms.total() + report.counts["records"] or report.told()


@given(st.binary(max_size=40) | st.text().map(str.encode), st.sampled_from(KINDS))
def test_no_bytes_break_the_check(data: bytes, kind: Kind) -> None:
    report = judge(data, Origin("x.jsonl"), Ask(KINDS, kind))
    assert report.counts["records"] or report.told()


# --- what is shown ------------------------------------------------------------------------------


def test_a_line_names_file_line_field_and_reason_once(day: Path) -> None:
    write(day, *(entry(n, ts=f"2026-11-15T08:00:0{n}+0700") for n in range(5)), entry(6, agent=1))
    ran = run(str(day))
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"{day}:1: ts: warning: '2026-11-15T08:00:00+0700': another form of time, "
        "read as '2026-11-15T08:00:00+07:00' (and 4 more: 2-5)",
        f"{day}:6: agent: not of the form rio, in lower case: 1",
    ]
    assert ran.err == (
        "files 1, records 6, errors 1, warnings 5, bad_lines 0, unchained 6, ledger@1.0 6\n"
    )


def test_what_is_clean_says_so_on_standard_error_only(day: Path) -> None:
    ran = run(str(write(day, entry(1))))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("files 1, records 1, errors 0, warnings 0")


def test_text_from_files_cannot_move_the_cursor(day: Path) -> None:
    ran = run(str(write(day, entry(1, agent="\x1b[2J\n"))))
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) == len(validate(day).rows)


def test_three_hundred_lines_are_checked_at_once(day: Path) -> None:
    write(day, *(entry(n) for n in range(300)))
    assert validate(day).counts["records"] == 300

"""What is on record of a job: requests, replies, recovery points, replay, and going back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.contracts.job_exchange import REQUEST
from holdfast.contracts.job_history import HISTORY
from holdfast.contracts.job_lines import MANIFEST
from tests.jobs.desk import AGAIN, DONE, STUCK, Desk

UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

WRITES = """
import json, os, sys
request = json.load(sys.stdin)
with open(os.environ["SEEN"], "a") as file:
    file.write(json.dumps(request) + "\\n")
for name in sys.argv[1].split(","):
    if name:
        with open(name, "a") as file:
            file.write("more\\n")
listed = [name for name in sys.argv[2].split(",") if name]
print(json.dumps({"action": "COMPLETED", "evidence_files": listed,
                  "summary_for_supervisor": "Written by hand."}))
"""


def writer(desk: Desk, changed: str, listed: str) -> str:
    """A program that changes files, and says that it changed others."""
    return desk.program(WRITES, changed, listed)


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs put the requests they got."""
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.jsonl"))
    return tmp_path / "seen.jsonl"


def requests(seen: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in seen.read_text(encoding="utf-8").splitlines()]


# --- every call -----------------------------------------------------------------------------


def test_every_call_is_on_record_with_all_that_the_format_asks_for(desk: Desk) -> None:
    phases = [{"name": "a", "temperature": 0.5, "max_tokens": 77}, {"name": "b"}]
    told = desk.spec(
        prompt="P",
        files=["spec.md"],
        phases=phases,
        models={"worker": desk.script(AGAIN, DONE, DONE)},
    )
    desk.ok("job", "new", told, "--id", "demo")
    desk.ran()
    calls = desk.calls()
    assert [call["sequence"] for call in calls] == [0, 1, 2]
    for call in calls:
        assert UTC.fullmatch(call["timestamp"])
        assert call["state_before"] == "PENDING"
        request, response = call["request"], call["response"]
        assert "# Task\n\nP" in request["prompt"]
        assert request["files_context"] == ["spec.md"]
        assert set(request["metadata"]) >= {
            "role",
            "phase",
            "model",
            "temperature",
            "max_tokens",
            "cost_threshold",
            "time_threshold_minutes",
            "accepted_formats",
        }
        assert json.loads(response["raw_response"])["action"] == response["action"]
        assert response["execution_time_seconds"] >= 0
        assert response["cost_usd"] == 0
        assert response["status"] == "SUCCESS"
    first = calls[0]["request"]["metadata"]
    assert (first["role"], first["temperature"], first["max_tokens"]) == ("worker", 0.5, 77)
    assert HISTORY.read(desk.document("jobHistory.json"), strict=True).findings == []
    assert MANIFEST.read(desk.manifest(), strict=True).findings == []


def test_a_history_in_a_file_is_json_whatever_was_said(desk: Desk) -> None:
    desk.ok(
        "job", "new", "--prompt", "a\x9bb\u202ec", "--id", "demo", "--worker", desk.script(DONE)
    )
    desk.ran()
    told = json.loads(desk.shell("job", "history", "demo", "--format", "json").out)
    assert "a\x9bb\u202ec" in told["interactions"][0]["request"]["prompt"]


def test_the_request_is_built_recorded_and_given_to_commands_as_json(
    desk: Desk, seen: Path
) -> None:
    desk.new("--worker", writer(desk, "out.md", "out.md"), "--max-cost", "10", "--max-time", "1h")
    desk.ran()
    (request,) = requests(seen)
    assert REQUEST.read(request, strict=True).findings == []
    assert list(request) == [
        "job_id",
        "phase",
        "context_files",
        "system_prompt",
        "task_description",
        "metadata",
    ]
    assert request["metadata"] == {
        "cost_threshold": 1000,
        "time_threshold_minutes": 60,
        "accepted_formats": ["COMPLETED", "STUCK", "RETRY"],
    }
    assert "You are the worker" in request["system_prompt"]
    assert '"summary_for_supervisor"' in request["system_prompt"]
    (call,) = desk.calls()
    assert json.loads(call["request"]["prompt"]) == request


def test_the_next_agent_is_told_what_was_said_decided_and_attached(desk: Desk, seen: Path) -> None:
    note = desk.cwd / "note.md"
    note.write_text("Mind the gap", encoding="utf-8")
    said = {**STUCK, "evidence_files": ["half.md"], "summary_for_supervisor": "Half is done; and?"}
    desk.new("--worker", writer(desk, "", ""), "--attach", str(note), "--activate")
    (desk.workspace() / "half.md").write_text("Half", encoding="utf-8")
    desk.step(said)
    desk.ok("job", "steward", "demo", "continue", "--guidance", "The left one,\nnot “the right”")
    desk.step(STUCK)
    desk.ok("job", "steward", "demo", "answer", "--guidance", "Port 8080", "--by", "Ada")
    desk.ran()
    *_, call = desk.calls()
    (request,) = requests(seen)
    text = request["task_description"]
    for each in (
        "action: STUCK",
        "summary: Which port is meant?",
        "The left one,\nnot “the right”",
        "Port 8080",
        "attachments/note.md",
    ):
        assert each in text, each
        assert json.dumps(each, ensure_ascii=False)[1:-1] in call["request"]["prompt"], each
    assert "half.md" in call["request"]["files_context"]
    assert "attachments/note.md" in request["context_files"]
    second = desk.calls()[1]["request"]["prompt"]
    assert "Half is done; and?" in second
    assert "evidence files: half.md" in second
    attached = desk.workspace() / "attachments/note.md"
    assert attached.read_text(encoding="utf-8") == "Mind the gap"


def test_what_one_phase_left_is_context_of_the_next(desk: Desk, seen: Path) -> None:
    desk.new("--worker", writer(desk, "out.md", "out.md"), "--supervisor", writer(desk, "", ""))
    desk.ran()
    _, review = requests(seen)
    assert review["context_files"] == ["out.md"]
    assert "summary: Written by hand." in review["task_description"]
    assert "action: COMPLETED" in review["task_description"]
    assert "You are the supervisor" in review["system_prompt"]


@pytest.mark.parametrize(
    ("changed", "listed", "kinds"),
    [
        ("a,b", "a,b", []),
        ("a,b,c", "a", ["unlisted"]),
        ("a", "a,kept,same", ["unchanged"]),
        ("a,b", "b,kept,same", ["unlisted", "unchanged"]),
    ],
)
def test_files_are_measured_against_what_an_agent_lists(
    desk: Desk, seen: Path, changed: str, listed: str, kinds: list[str]
) -> None:
    desk.new("--worker", writer(desk, changed, listed), "--activate")
    for name in ("kept", "same"):
        (desk.workspace() / name).write_text("before", encoding="utf-8")
    desk.ran()
    (call,) = desk.calls()
    response = call["response"]
    assert [each["kind"] for each in response.get("warnings", [])] == kinds
    measured = {"added": changed.split(","), "changed": [], "removed": []}
    assert response["measured_files"] == measured
    assert desk.status() == "SUCCESS"


# --- recovery points and going back ---------------------------------------------------------


def three(desk: Desk, *gates: str) -> None:
    """A job of three phases, each of which adds a line to a file of its own and to one of all."""
    phases = [
        {
            "name": name,
            "model": writer(desk, f"{name},all", f"{name},all"),
            "gates": [{"run": gate} for gate in gates],
        }
        for name in ("a", "b", "c")
    ]
    desk.ok("job", "new", desk.spec(prompt="P", phases=phases), "--id", "demo")


def test_a_recovery_point_follows_each_phase_that_was_completed(desk: Desk, seen: Path) -> None:
    three(desk, "true")
    desk.ran()
    points = desk.document("jobHistory.json")["recovery_points"]
    assert [point["id"] for point in points] == ["a-complete-0", "b-complete-1", "c-complete-2"]
    for point in points:
        assert point["checkpoint_id"] == point["id"]
        assert point["metadata"]["evidence_count"] == 2
        assert point["metadata"]["confidence"] == "high"
        assert point["metadata"]["test_pass_rate"] is None
    assert [point["resume_phase"] for point in points] == ["b", "c", None]
    assert [point["can_resume_from"] for point in points] == [True, True, False]
    assert points[0]["rollback_files"] == ["a", "all"]


@pytest.mark.parametrize(
    ("gate", "listed", "confidence", "rate"),
    [
        ("true", "a", "high", None),
        (None, "a", "medium", None),
        ("true", "a,gone", "medium", None),
        ("echo 3 passed in 0.1s", "a", "high", "100%"),
        ("sh -c 'echo 3 passed, 1 failed in 0.1s'", "a", "high", "75%"),
    ],
)
def test_how_sure_a_recovery_point_is_follows_from_gates_and_evidence(
    desk: Desk, seen: Path, gate: str | None, listed: str, confidence: str, rate: str | None
) -> None:
    more = () if gate is None else ("--gate", gate)
    desk.new("--worker", writer(desk, "a", listed), *more)
    desk.ran()
    (point,) = desk.document("jobHistory.json")["recovery_points"]
    assert point["metadata"]["confidence"] == confidence
    assert point["metadata"]["test_pass_rate"] == rate


def test_going_back_to_a_recovery_point_restores_phase_and_files(desk: Desk, seen: Path) -> None:
    three(desk)
    for _ in range(2):
        desk.ok("job", "step", "demo")
    workspace = desk.workspace()
    desk.ok("job", "checkpoint", "demo", "by-hand", "--description", "Before lunch")
    (workspace / "stray").write_text("x", encoding="utf-8")
    assert (workspace / "all").read_text() == "more\nmore\n"
    before = desk.digest()
    told = desk.ok("job", "rewind", "demo", "--point", "a-complete-0", "--dry-run")
    assert (told["applied"], told["data"]["phase"]) == (False, 1)
    assert desk.digest() == before
    desk.ok("job", "rewind", "demo", "--point", "a-complete-0")
    assert desk.show()["phase"] == "b"
    desk.ok("job", "step", "demo")
    assert (workspace / "all").read_text() == "more\nmore\n"
    assert not (workspace / "stray").exists()
    desk.ok("job", "rewind", "demo", "--point", "by-hand")
    assert desk.ran()["status"] == "SUCCESS"
    assert (workspace / "all").read_text() == "more\nmore\nmore\n"
    assert len(desk.calls()) == 4
    assert desk("job", "replay", "demo").code == 0


def test_recovery_points_that_cannot_be_are_refused(desk: Desk, seen: Path) -> None:
    three(desk)
    desk.refused("job", "checkpoint", "demo", "x", says="checkpoint is refused")
    desk.ok("job", "step", "demo")
    desk.ok("job", "checkpoint", "demo", "x")
    desk.refused("job", "checkpoint", "demo", "x", code=2, says="already")
    error = desk.refused("job", "rewind", "demo", "--point", "y", code=4, says="'y'")
    assert "a-complete-0, x" in error["hint"]


def test_going_back_to_a_phase_keeps_what_happened_and_tells_of_it(desk: Desk, seen: Path) -> None:
    three(desk)
    for _ in range(2):
        desk.ok("job", "step", "demo")
    used = desk.manifest()["metrics"]
    before = desk.digest()
    for wrong in ("3", "-1"):
        error = desk.refused("job", "rewind", "demo", "--phase", wrong, code=2, says=wrong)
        assert "a, b, c" in error["hint"]
    assert desk.ok("job", "rewind", "demo", "--phase", "0", "--dry-run")["dry_run"]
    assert desk.digest() == before
    desk.ok("job", "rewind", "demo", "--phase", "0")
    manifest = desk.manifest()
    assert (manifest["current_phase"], manifest["status"]) == ("a", "PENDING")
    assert manifest["metrics"] == used
    events = [each for each in manifest["history"] if each.get("event") == "RESTEP"]
    assert len(events) == 1 and "c" in events[0]["description"]
    assert len(desk.calls()) == 2
    (line,) = [each for each in desk.lines(event="move") if each["cause"] == "rewind"]
    assert line["previous_phase"] == "c"
    assert desk.ran()["calls"] == 5


def test_going_back_to_the_start_counts_anew_and_keeps_the_former_run(
    desk: Desk, seen: Path
) -> None:
    three(desk)
    for _ in range(2):
        desk.ok("job", "step", "demo")
    desk.ok("job", "rewind", "demo", "--start")
    shown = desk.show()
    assert (shown["status"], shown["phase"], shown["run"]) == ("PENDING", "a", 1)
    assert (shown["calls"], shown["seconds"], shown["cost_usd"]) == (0, 0, 0)
    assert len(desk.calls()) == 2
    assert desk.ran()["calls"] == 3
    assert [call["sequence"] for call in desk.calls()] == [0, 1, 2, 3, 4]
    assert (desk.workspace() / "all").read_text() == "more\n" * 3


def test_a_start_at_a_later_phase_is_a_start_too(desk: Desk, seen: Path) -> None:
    three(desk)
    for _ in range(2):
        desk.ok("job", "step", "demo")
    desk.ok("job", "rewind", "demo", "--start", "--phase", "1")
    assert (desk.show()["phase"], desk.show()["calls"]) == ("b", 0)
    assert desk.ran()["calls"] == 2


def test_one_has_to_say_where_to(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo", "--activate")
    for words in ((), ("--point", "x", "--start"), ("--point", "x", "--phase", "0")):
        desk.refused("job", "rewind", "demo", *words, code=2, says="where to")


# --- replay ---------------------------------------------------------------------------------


def test_a_good_history_is_derived_again_and_so_is_its_beginning(desk: Desk) -> None:
    worker, supervisor = desk.script(DONE, STUCK, DONE), desk.script(AGAIN, DONE)
    desk.new("--worker", worker, "--supervisor", supervisor)
    desk.ran(code=1)
    desk.ok("job", "steward", "demo", "continue")
    desk.ran()
    told = desk.ok("job", "replay", "demo")["data"]
    assert (told["calls"], told["status"]) == (5, "SUCCESS")
    states = []
    for until in range(5):
        told = desk.ok("job", "replay", "demo", "--until", str(until))["data"]
        assert told["calls"] == until
        states.append(told["status"])
    assert states == ["DRAFT", "REVIEWING", "PENDING", "INTERVENTION_REQUIRED", "REVIEWING"]


@pytest.mark.parametrize(
    ("event", "name", "value"),
    [
        ("judged", "action", "STUCK"),
        ("judged", "status", "SUCCESS"),
        ("call", "state_before", "REVIEWING"),
        ("reply", "raw_response", "I am done!"),
    ],
)
def test_a_history_that_was_changed_fails_where_it_was_changed(
    desk: Desk, event: str, name: str, value: str
) -> None:
    desk.new("--worker", desk.script(AGAIN, AGAIN, DONE))
    desk.ran()
    file = desk.home / "jobs/demo/history.jsonl"
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    (at,) = [
        number
        for number, line in enumerate(lines)
        if line.get("event") == event and line.get("sequence") == 1
    ]
    lines[at][name] = value
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    for view in (".manifest.json.view", ".jobHistory.json.view"):
        (desk.home / "jobs/demo" / view).unlink(missing_ok=True)
    ran = desk("job", "replay", "demo", "--json")
    assert ran.code != 0
    assert "call 1" in ran.error()["message"], ran.error()
    assert desk("job", "replay", "demo", "--until", "1").code == 0


def test_replay_options_that_contradict_each_other_are_refused(desk: Desk) -> None:
    desk.new("--worker", "scripted:echo")
    desk.refused("job", "replay", "demo", "--until", "1", "--from", "1", code=2)
    desk.refused("job", "replay", "demo", "--model", "scripted:echo", code=2, says="--from")
    desk.refused("job", "replay", "demo", "--until", "-1", code=2, says="-1")


# --- what is shown --------------------------------------------------------------------------


def test_the_files_that_are_shown_are_made_again_from_the_history(desk: Desk) -> None:
    desk.new("--worker", desk.script(AGAIN, STUCK))
    desk.ran(code=1)
    folder = desk.home / "jobs/demo"
    before = {name: (folder / name).read_bytes() for name in ("manifest.json", "jobHistory.json")}
    index = (desk.home / "jobs/index.json").read_bytes()
    for name in before:
        (folder / name).unlink()
        (folder / f".{name}.view").unlink()
    (desk.home / "jobs/index.json").unlink()
    assert desk("rebuild").code == 0
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert (desk.home / "jobs/index.json").read_bytes() == index
